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
    "clock": "times of day written as numbers, HHMM",
    "circle": "sine and cosine of an angle",
}


def warning(notation: Mapping[str, Any], to_do: str | None = None) -> str:
    """What was found, what it does to clusters, and what to do. to_do : but for `-x COLUMN`."""
    circle = notation["kind"] == "circle"
    if to_do is None:
        from imdh_cli.sources.base import typed

        whole = notation["columns"] == notation["features"]
        to_do = f"leave {'them' if circle else 'it'} out"
        to_do += f" ({typed('-x', *notation['columns'])})" if whole else ""
    if circle:
        return (
            f"{_described(notation)}: cuts along them divide the circle into arcs, which need not be groups; "
            f"where they are none, {to_do}"
        )
    if notation["kind"] == "year":
        return f"{_described(notation)}: gaps between years are gaps of the notation; {to_do}"
    if notation["kind"] == "clock":
        return (
            f"{_described(notation)}: gaps between hours are gaps of the notation; {to_do}, or count minutes "
            "from midnight"
        )
    return (
        f"{_described(notation)}: gaps between months and years are gaps of the notation; {to_do}, or count "
        "days or months from a fixed one"
    )


def doubt(notations: Sequence[Mapping[str, Any]]) -> str:
    """Why a choice is not clear, as a sentence."""
    return (
        f"Not clear where a notation tells clusters apart: {listing([_described(n) for n in notations], 3)}."
    )


def _described(notation: Mapping[str, Any]) -> str:
    """`"date" (dates written as numbers, YYYYMMDD)`"""
    names = quoted([printable(name, NAME) for name in notation["features"]])
    return f"{names} ({WHAT[notation['kind']]})"
