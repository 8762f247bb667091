"""Where the parts of a picture lie, whatever draws it: the page's SVG or matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from imdh_cli.compiled.histogram import CENTRES, EDGES
from imdh_cli.report.draw import occupied
from imdh_cli.report.figures import Side, Split, Summary


@dataclass(frozen=True)
class Frame:
    """Where the bins of a density lie across a picture."""

    low: float  # projected sds from the cut, left edge
    high: float
    width: float

    @classmethod
    def of(cls, split: Split, width: float) -> Frame:
        first, last = occupied(split.density)
        return cls(float(EDGES[first]), float(EDGES[last]), width)

    def x(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) * self.width

    def sampled(self, split: Split, points: int) -> tuple[np.ndarray, np.ndarray]:
        """Places across the frame, in projected sds, the cut among them, and the density there."""
        at = np.union1d(np.linspace(self.low, self.high, points), [0.0])
        return at, np.interp(at, CENTRES, split.density, left=0.0, right=0.0)


@dataclass(frozen=True)
class Place:
    """Where a node of the tree stands."""

    side: Side
    split: Split | None  # None: an end, one cluster or several
    level: int  # from the left
    line: float  # from the top; each end has one


def places(summary: Summary, limit: int) -> Iterator[Place]:
    """Every node that is drawn, children before their parent, which stands between them.

    Parameters
    ----------
    limit : clusters told apart, at most
    """
    ends = 0
    lines: dict[int, float] = {}
    stack: list[tuple[Side, int, bool]] = [(summary.root, 0, False)]
    while stack:
        side, level, opened = stack.pop()
        split = summary.splits.get(side.node)
        if split is not None and (split.from_k or 2) > limit:
            split = None
        if split is None:
            lines[side.node] = ends + 0.5
            ends += 1
        elif opened:
            lines[side.node] = (lines[split.left.node] + lines[split.right.node]) / 2.0
        else:
            stack += [(side, level, True), (split.right, level + 1, False), (split.left, level + 1, False)]
            continue
        yield Place(side, split, level, lines[side.node])
