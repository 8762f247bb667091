"""Heights -> rows of block characters, for terminals; plain ASCII where the encoding has no blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Glyphs:
    """The characters of one terminal."""

    levels: str  # from empty to full, equally spaced
    bar: str  # from empty to full, growing to the right
    cut: str
    axis: str
    tick: str
    up: str
    down: str
    branch: tuple[str, str, str, str]  # inner, last, line beside, blank
    tight: tuple[str, str, str, str]  # the same, two columns wide
    dot: str
    more: str
    plus_minus: str
    mark: str
    left: str
    right: str


BLOCKS = Glyphs(
    levels=" \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588",
    bar=" \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588",
    cut="\u2502",
    axis="\u2500",
    tick="\u2534",
    up="\u25b2",
    down="\u25bc",
    branch=("\u251c\u2500 ", "\u2514\u2500 ", "\u2502  ", "   "),
    tight=("\u251c ", "\u2514 ", "\u2502 ", "  "),
    dot="\u00b7",
    more="\u2026",
    plus_minus="\u00b1",
    mark="\u25b2",
    left="\u25c0",
    right="\u25b6",
)
ASCII = Glyphs(
    levels=" .:#",
    bar=" #",
    cut="|",
    axis="-",
    tick="+",
    up="^",
    down="v",
    branch=("|- ", "`- ", "|  ", "   "),
    tight=("| ", "` ", "| ", "  "),
    dot="-",
    more="...",
    plus_minus="+-",
    mark="^",
    left="<",
    right=">",
)


def columns(heights: np.ndarray | Sequence[float], n_rows: int, glyphs: Glyphs) -> list[str]:
    """Heights from 0 to 1 as vertical bars: n_rows strings, top first, one character per height.

    A height above 0 is never drawn as nothing.
    """
    steps = len(glyphs.levels) - 1
    level = np.rint(np.clip(heights, 0.0, 1.0) * n_rows * steps).astype(int)
    level = np.where((np.asarray(heights) > 0.0) & (level == 0), 1, level)
    rows = []
    for row in reversed(range(n_rows)):
        here = np.clip(level - row * steps, 0, steps)
        rows.append("".join(glyphs.levels[i] for i in here))
    return rows


def bar(share: float, width: int, glyphs: Glyphs) -> str:
    """A share from 0 to 1 as a horizontal bar of at most `width` characters, unpadded."""
    steps = len(glyphs.bar) - 1
    eighths = round(max(0.0, min(1.0, share)) * width * steps)
    if share > 0.0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, steps)
    return glyphs.bar[-1] * full + (glyphs.bar[rest] if rest else "")


def axis(width: int, ticks: Sequence[tuple[int, str]], glyphs: Glyphs) -> tuple[str, str]:
    """A horizontal axis and the line of labels below it; ticks are (column, label).

    A label that would touch the one before it is left out, its tick stays.
    """
    line = [glyphs.axis] * width
    labels = [" "] * width
    free = 0
    for column, label in ticks:
        line[column] = glyphs.tick
        start = max(0, min(column - len(label) // 2, width - len(label)))
        if start >= free:
            labels[start : start + len(label)] = label
            free = start + len(label) + 1
    return "".join(line), "".join(labels).rstrip()


def occupied(density: np.ndarray, floor: float = 0.004, least: int = 24) -> tuple[int, int]:
    """The bins worth drawing, [first, last): those above `floor` of the peak, and some about the cut."""
    n = len(density)
    seen = np.flatnonzero(density > floor * density.max()) if density.any() else np.array([], int)
    first = min(seen[0] if len(seen) else n // 2, n // 2 - least // 2)
    last = max(seen[-1] + 1 if len(seen) else n // 2, n // 2 + least // 2)
    return max(0, int(first) - 2), min(n, int(last) + 2)


def nice_numbers(n: int) -> list[int]:
    """Round numbers of clusters from 1 to n, about a dozen."""
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000) if n / s <= 12), 5000)
    return [1, *range(step if step > 1 else 2, n + 1, step)]
