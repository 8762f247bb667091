"""What a column of text holds, and what to do with it: not all of them are categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from imdh_cli.arrow_compute import pc
from imdh_cli.features.kinds import example, plain
from imdh_cli.features.spec import MAX_LEVELS
from imdh_cli.sources.base import typed
from imdh_cli.sources.csv.numbers import (
    USUAL_NULLS,
    Evidence,
    Unit,
    spelled_plainly,
    to_numbers,
    without_units,
)

MOST_UNITS = 5  # in a hint
MOSTLY = 0.9  # of the different texts
_DATE = r"^[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T].*)?$|^[0-9]{1,2}:[0-9]{2}(:.*)?$"
_POINTS = r"^[+-]?[0-9]{1,3}([.][0-9]{3})+(,[0-9]*)?$"  # for thousands, and a decimal comma
_QUANTITY = r"^[+-]?([^0-9A-Za-z\s]|[A-Z]{3}\s)?\s*[+-]?[0-9][0-9.,']*\s*[^0-9\s]{0,6}$"

# Each with what to do about it; {} stands for the option of `--parse`.
ADVICE = {
    "category": "--categorical onehot uses it",
    "number": "numbers as text; {} uses it",
    "date": "dates or times; convert them to numbers to use them",
    "points": "numbers with points for thousands; --decimal , {} uses them",
    "comma": "numbers with a decimal comma; --decimal , uses them",
    "quantity": "numbers with units; {}",
    "many": f"more than {MAX_LEVELS} different texts; group them first to use it",
}
SHOWN = frozenset(ADVICE) - {"category"}  # whose note shows a text


def advice(
    columns: Mapping[str, pa.ChunkedArray], commas: Iterable[str] = (), *, typed_source: bool = False
) -> dict[str, tuple[str, str]]:
    """What to do with each column of text, by a sample of its cells; and one of them, where it says more.

    commas : columns that the reader knows to hold decimal commas. typed_source : no file of text.
    """
    found = {name: kind_of_text(column) for name, column in columns.items()}
    found |= {name: ("comma", found[name][1]) for name in commas if name in found}
    of_kind: dict[str, list[str]] = {}
    for name, (kind, _) in found.items():
        of_kind.setdefault(kind, []).append(name)
    options = {kind: typed("--parse", *names[:20]) for kind, names in of_kind.items()}
    if "quantity" in of_kind:
        units = [] if typed_source else _units([columns[name] for name in of_kind["quantity"]])
        options["quantity"] = (
            f"{without_units(units)} FILE | imdh fit - uses them"
            if units
            else "write plain numbers, of one unit, to use them"
        )
    return {
        name: (ADVICE[kind].format(options[kind]), shown if kind in SHOWN else "")
        for name, (kind, shown) in found.items()
    }


def kind_of_text(column: pa.ChunkedArray) -> tuple[str, str]:
    """Which of ADVICE fits most of the different texts, and one of them for a message."""
    try:
        values = plain(column.combine_chunks()).cast(pa.string()).drop_null().unique()
        if not len(values):
            return "category", ""
        for kind, fits in _fitting(values):
            if (pc.sum(fits).as_py() or 0) > MOSTLY * len(values):
                odd = pc.and_not(fits, _are_numbers(values)) if kind == "quantity" else fits
                return kind, _first(values.filter(odd))
    except (pa.ArrowException, UnicodeDecodeError):
        return "category", ""
    return ("many", _first(values)) if len(values) > MAX_LEVELS else ("category", "")


def _fitting(values: pa.Array) -> Sequence[tuple[str, pa.Array]]:
    return (
        ("date", pc.match_substring_regex(values, _DATE)),
        ("points", pc.match_substring_regex(values, _POINTS)),
        ("number", _are_numbers(values)),
        ("quantity", pc.match_substring_regex(values, _QUANTITY)),
    )


def _units(columns: Iterable[pa.ChunkedArray]) -> list[Unit]:
    """The units of columns with one each; none if a column has several, or too many to type."""
    all_units: set[Unit] = set()
    for column in columns:
        cells = pc.unique(plain(column.combine_chunks()).cast(pa.string()).drop_null()).to_pylist()
        units = {unit for cell in cells[:1000] if (unit := Unit.of(cell)) is not None}
        if len({unit.text.strip() for unit in units}) != 1:
            return []
        all_units |= units
    return sorted(all_units) if len(all_units) <= MOST_UNITS else []


def _are_numbers(values: pa.Array) -> pa.Array:
    numbers, _ = to_numbers(spelled_plainly(values), pa.array(USUAL_NULLS, pa.string()))
    return pc.is_valid(numbers)


def are_numbers(column: pa.ChunkedArray, decimal: str) -> bool:
    """Whether all cells of a column of text, or nearly all, are numbers in plain spelling or missing."""
    seen = Evidence()
    seen.see(plain(column.combine_chunks()).cast(pa.string()), pa.array(USUAL_NULLS, pa.string()), decimal)
    return seen.numeric


def _first(values: pa.Array) -> str:
    return example(values.slice(0, 1)).removeprefix(": it holds ") or f'"{values[0].as_py()}"'
