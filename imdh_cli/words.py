"""Text for people, wherever it is shown: names that cannot steer a terminal, counts, lists."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

# Characters that would steer the terminal, reorder the line or make a page invalid: controls, format
# characters (right-to-left overrides, zero-width), lone surrogates, line and paragraph separators.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def printable(text: str, limit: int | None = None) -> str:
    """Text that is safe to show: controls are spelled out, more than `limit` characters cut.

    A column may be named anything, escape sequences included; guarded by
    test_report_terminal.py::test_names_cannot_steer_the_terminal.
    """
    if limit is not None:
        text = _cut(text, limit)
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_spelled, text))
    return text if limit is None else _cut(text, limit)


def cells(text: str) -> int:
    """How wide a text is, in columns: letters of Chinese, Japanese and Korean take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def short(text: str, width: int) -> str:
    """Printable text cut to so many columns."""
    text = printable(text, width)
    while cells(text) > width:
        text = text[:-2] + "\u2026"
    return text


def count(n: int, noun: str = "row", plural: str | None = None) -> str:
    """1 row, 2 rows, 1,234 rows."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def listing(items: Sequence[str], limit: int = 6, last: str = "and") -> str:
    """a, b and c (or another word before the last); the rest of a long list as a number."""
    items = list(items)
    if len(items) > limit:
        items = [*items[: limit - 1], f"{len(items) - limit + 1:,} more"]
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def quoted(names: Sequence[str], limit: int = 6, last: str = "and") -> str:
    """The same of names: "a", "b" and "c"."""
    return listing([f'"{name}"' for name in names], limit, last)


def _spelled(c: str) -> str:
    return c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNPRINTABLE else c


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


def speed_in_words(speed: float) -> str:
    """Rows per second: `1.25 million rows/s`, `31 thousand rows/s`, `240 rows/s`."""
    if speed >= 1e5:
        return f"{speed / 1e6:.2f} million rows/s"
    return f"{speed / 1e3:.0f} thousand rows/s" if speed >= 1e3 else f"{speed:.0f} rows/s"
