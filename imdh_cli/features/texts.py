"""What a column of text holds, and what to do with it: not all of them are categories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from imdh_cli.arrow_compute import pc
from imdh_cli.features.kinds import example, plain
from imdh_cli.features.spec import MAX_LEVELS
from imdh_cli.sources.base import typed
from imdh_cli.sources.csv.numbers import USUAL_NULLS, Evidence, spelled_plainly, to_numbers

MOSTLY = 0.9  # of the different texts
_DATE = r"^[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T].*)?$|^[0-9]{1,2}:[0-9]{2}(:.*)?$"
_POINTS = r"^[+-]?[0-9]{1,3}([.][0-9]{3})+(,[0-9]*)?$"  # for thousands, and a decimal comma
_QUANTITY = r"^[^0-9A-Za-z\s]?\s*[+-]?[0-9][0-9.,']*\s*[^0-9\s]{0,6}$"

# Each with what to do about it; {} stands for the option of `--parse`.
ADVICE = {
    "category": "--categorical onehot uses it",
    "number": "numbers as text; {} uses it",
    "date": "dates or times; convert them to numbers to use them",
    "points": "numbers with points for thousands; --decimal , {} uses them",
    "comma": "numbers with a decimal comma; --decimal , uses them",
    "quantity": "numbers with units; write plain numbers to use them",
    "many": f"more than {MAX_LEVELS} different texts; group them first to use it",
}
SHOWN = frozenset(ADVICE) - {"category"}  # whose note shows a text


def advice(columns: Mapping[str, pa.ChunkedArray], commas: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """What to do with each column of text, by a sample of its cells; and one of them, where it says more.

    commas : columns that the reader knows to hold decimal commas.
    """
    found = {name: kind_of_text(column) for name, column in columns.items()}
    found |= {name: ("comma", found[name][1]) for name in commas if name in found}
    of_kind: dict[str, list[str]] = {}
    for name, (kind, _) in found.items():
        of_kind.setdefault(kind, []).append(name)
    options = {kind: typed("--parse", *names[:20]) for kind, names in of_kind.items()}
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
                return kind, _first(values.filter(fits))
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
