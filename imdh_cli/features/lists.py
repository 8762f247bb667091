"""Lists of numbers: which columns hold them, how long they are, and which of their items are features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from imdh_cli.errors import DataError, UsageError
from imdh_cli.features.kinds import kind_of
from imdh_cli.features.names import Span
from imdh_cli.features.spec import Items
from imdh_cli.sources.base import Source
from imdh_cli.sources.nested import is_list, lengths_of, vector_length

SAMPLE_ROWS = 200
MOSTLY = 0.9  # of the cells of a text column are lists, then the others are bad rows


def lengths(source: Source, names: Iterable[str]) -> dict[str, int | str]:
    """Of those columns that hold lists of numbers: the length, or why there is not one.

    Where the type does not say it, the first rows do: text is a list where nearly all cells are JSON arrays
    of numbers, and most lists have to have one length.
    """
    told: dict[str, int | str] = {}
    unsure = []
    for name in names:
        kind = source.schema.field(name).type
        length = vector_length(kind)
        if length is not None:
            told[name] = length
        elif is_list(kind) or kind_of(source.schema.field(name)) == "text":
            unsure.append(name)
    if unsure:
        sample = source.sample(SAMPLE_ROWS, unsure)
        for name in unsure:
            found = _length(sample.column(name))
            if found is not None:
                told[name] = found
    return told


def _length(column: pa.ChunkedArray) -> int | str | None:
    """The length of most lists, or why there is none; None for a column of text that is no lists."""
    cells = column.drop_null()
    try:
        seen = np.concatenate([np.empty(0), *map(lengths_of, cells.chunks)])
    except (pa.ArrowException, UnicodeDecodeError):  # text that is not UTF-8
        return None
    known = seen[~np.isnan(seen)]
    if not is_list(column.type) and (not len(known) or len(known) < MOSTLY * len(cells)):
        return None
    if not len(known):
        return "lists without a value"
    values, counts = np.unique(known, return_counts=True)
    if values[-1] == 0:
        return "lists without a value"
    if 2 * counts.max() <= len(known):
        return f"lists of {values[0]:.0f} to {values[-1]:.0f} numbers"
    return int(values[counts.argmax()])


def choose_items(column: str, length: int, asked: Sequence[Span], excluded: Sequence[Span]) -> Items:
    """The items that were asked for, in that order, without those excluded.

    Raises
    ------
    DataError
        For items that the lists do not have.
    UsageError
        For items that are asked for twice, or when none is left.
    """
    wanted = _places(column, length, asked or [(0, None)])
    if len(set(wanted)) < len(wanted):
        raise UsageError(f'items of "{column}" are named twice', "name each feature once")
    places = wanted[~np.isin(wanted, _places(column, length, excluded))]
    if not len(places):
        raise UsageError(f'no item of "{column}" is left', "-c names too few, or -x too many")
    edges = np.flatnonzero(np.diff(places) != 1) + 1
    return Items(length, tuple((int(run[0]), int(run[-1]) + 1) for run in np.split(places, edges)))


def _places(column: str, length: int, spans: Sequence[Span]) -> np.ndarray:
    ranges = [np.arange(start, length if stop is None else stop) for start, stop in spans]
    for (start, stop), places in zip(spans, ranges, strict=True):
        if start >= length or (stop or 0) > length:
            last = start if stop is None or start >= length else stop - 1
            raise DataError(
                f'column "{column}" holds lists of {length} numbers; there is no {column}[{last}]',
                f"the last is {column}[{length - 1}]",
            )
        if not len(places):
            raise UsageError(
                f"{column}[{start}:{stop}]: no items", "write [start:stop], the stop not included"
            )
    return np.concatenate([np.empty(0, dtype=np.int64), *ranges])
