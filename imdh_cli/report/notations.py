"""Columns whose numbers are a notation of something else, as a model's metadata keep them -> words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from imdh_cli.words import listing, printable, quoted

NAME = 40  # characters of a name
WHAT = {
    "day": "dates written as numbers, YYYYMMDD",
    "month": "months written as numbers, YYYYMM",
    "year": "numbers that begin with a year",
    "clock": "times written as numbers, as 1545 or 7.30",
    "circle": "sine and cosine of an angle",
    "sum": "their sum or difference has few values",
    "cut": "equal in many rows, as times cut at the end of follow-up",
    "blocks": "numbers given out in blocks, as ids",
}
ALIKE = "sum", "cut"  # of columns of which one is to be kept


def warning(notation: Mapping[str, Any], to_do: str | None = None) -> str:
    """What was found, what it does to clusters, and what to do. to_do : but for `-x COLUMN`."""
    kind = notation["kind"]
    several = kind in ALIKE and len(notation["features"]) > 1
    if to_do is None:
        from imdh_cli.sources.base import typed

        whole = notation["columns"] == notation["features"]
        names = notation["columns"][:1] if kind == "product" else notation["columns"][several:]
        to_do = "leave them out" if kind == "circle" else "keep one of them" if several else "leave it out"
        to_do += f" ({typed('-x', *names)})" if whole else ""
    of_dates = (
        f"gaps between months and years are gaps of the notation; {to_do}, or count days or months from a "
    )
    return (
        f"{_described(notation)}: "
        + {
            "day": f"{of_dates}fixed one",
            "month": f"{of_dates}fixed one",
            "year": f"gaps between years are gaps of the notation; {to_do}",
            "clock": f"gaps between hours are gaps of the notation; {to_do}, or count minutes",
            "circle": "cuts along them divide the circle into arcs, which need not be groups; where they are "
            f"none, {to_do}",
            "product": f"gaps between its multiples are no groups; {to_do}",
            "sum": f"rows lie on lines, and gaps between these are no groups; {to_do}",
            "cut": f"rows in which they are equal are no group of their own; {to_do}",
            "blocks": f"gaps between blocks are gaps of the numbering; {to_do}",
        }[kind]
    )


def doubt(notations: Sequence[Mapping[str, Any]]) -> str:
    """Why a choice is not clear, as a sentence."""
    found = listing([_described(n) for n in notations], 3)
    return f"Not clear where how numbers are written or worked out tells clusters apart: {found}."


def _described(notation: Mapping[str, Any]) -> str:
    """`"date" (dates written as numbers, YYYYMMDD)`"""
    names = [printable(name, NAME) for name in notation["features"]]
    if notation["kind"] == "product":
        product, *factors = (quoted([name]) for name in names)
        return f"{product} ({' times '.join(factors)})"
    return f"{quoted(names)} ({WHAT[notation['kind']]})"
