"""A source -> its features: those named, or all numbers that are not ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from imdh_cli.errors import DataError, UsageError
from imdh_cli.features.kinds import example, kind_of, plain
from imdh_cli.features.spec import MAX_LEVELS, Column, FeatureSpec
from imdh_cli.params import FeatureParams
from imdh_cli.sources.base import Source, check_columns, listed

ID_ROWS = 30  # fewer rows than this say nothing about what is an identifier
SAMPLE_ROWS = 20_000
SAMPLE_CELLS = 4_000_000
EXACT = 2**53  # beyond it a double does not hold every whole number


@dataclass
class Selection:
    """What `choose` decided, and what it has to say about it.

    left_out : (name, reason) of every column of the table that is no feature, unless the features
        were named one by one.
    ids : the columns to carry to the labels.
    """

    spec: FeatureSpec
    left_out: list[tuple[str, str]]
    notes: list[str]
    ids: tuple[str, ...] = ()


def choose(source: Source, params: FeatureParams) -> Selection:
    """The features of a table: those named, or all numeric columns but ids and identifiers.

    With `categorical="onehot"` the text columns are read once for their levels; those of a stream
    are the levels of its first rows.

    Raises
    ------
    DataError
        For a column that is not there or is no number; when there are no rows or no features.
    UsageError
        For a column that is both a feature and something else.
    """
    _check_names(source, params)
    if _is_empty(source):
        raise DataError(f"{_where(source)}: no data rows", "a model is learned from rows")
    return _named(source, params) if params.columns is not None else _default(source, params)


def ready(source: Source, spec: FeatureSpec) -> None:
    """Make a source ready to be read by the features of a model.

    Raises
    ------
    DataError
        For a feature that is not there, with the nearest names, or that is of another kind.
    """
    if not source.schema.names:
        return  # an input without a single byte has no rows
    source.check(spec.source_columns)
    source.expect(numbers=spec.numbers, texts=spec.texts)
    for column in spec.columns:
        kind = kind_of(source.schema.field(column.name))
        if column.name in source.hive_columns:
            kind = "from the names of folders"
        fits = ("number", "empty throughout", *(() if column.levels is None else ("text",)))
        if kind not in fits:
            raise DataError(
                f'{_where(source)}: column "{column.name}" is {kind}{_example(source, column.name)}; '
                f"the model learned {'numbers' if column.levels is None else 'text'}",
                f'give the column "{column.name}" as the model knows it',
            )


def _check_names(source: Source, params: FeatureParams) -> None:
    named = params.columns or ()
    if source.schema.names:
        wanted = [*named, *params.exclude, *params.ids]
        check_columns(wanted, source.schema.names, _where(source))
    twice = next((n for n, times in Counter(named).items() if times > 1), None)
    if twice is not None:
        raise UsageError(f'column "{twice}" is named twice', "name each feature once")
    for name in named:
        if name in params.exclude or name in params.ids:
            option = "-x" if name in params.exclude else "--id"
            raise UsageError(f'column "{name}" is named by -c and by {option}', "keep one of them")


def _is_empty(source: Source) -> bool:
    if source.rows is not None:
        return source.rows == 0
    return not source.schema.names or source.sample(1, source.schema.names[:1]).num_rows == 0


def _named(source: Source, params: FeatureParams) -> Selection:
    texts: list[str] = []
    numbers: list[str] = []
    for name in params.columns or ():
        if name in source.hive_columns:
            raise DataError(
                f'column "{name}" comes from the names of folders and is no feature',
                "leave it out of -c; --keep carries it to the labels",
            )
        column = source.schema.field(name)
        kind = kind_of(column)
        if kind == "text" and params.categorical == "onehot":
            texts.append(name)
        elif kind == "number":
            numbers.append(name)
        elif kind == "text":
            raise DataError(
                f'column "{name}" is text, not numbers{_example(source, name)}',
                f'use --categorical onehot, or leave "{name}" out of -c',
            )
        else:
            raise DataError(
                f'column "{name}" is {kind}, not numbers',
                f'convert it to numbers first, or leave "{name}" out of -c',
            )
    source.check(params.columns or ())
    levels, crowded = _levels(source, texts)
    if crowded:
        raise DataError(
            f'column "{crowded[0]}" has more than {MAX_LEVELS} different texts',
            f'group them first, or leave "{crowded[0]}" out of -c',
        )
    void = next((n for n in texts if not levels[n]), None)
    if void is not None:
        raise DataError(f'column "{void}" has no text in it', f'leave "{void}" out of -c')
    wide = [n for n in numbers if _is_wide(source.schema.field(n).type)]
    notes = _rounding(_sample(source, wide)) if wide else []
    spec = _spec(params.columns or (), levels, params)
    return Selection(spec, [], notes, tuple(params.ids))


def _default(source: Source, params: FeatureParams) -> Selection:
    out = _LeftOut()
    chosen: list[str] = []
    texts: list[str] = []
    for column in source.schema:
        name, kind = column.name, kind_of(column)
        if name in params.exclude:
            out.add(name, "excluded with -x")
        elif name in params.ids:
            out.add(name, "an id, carried to the labels")
        elif name in source.hive_columns:
            out.add(name, "from the names of folders")
        elif name in source.id_columns:
            out.add(name, "an index written by pandas", "it is used when named with -c")
        elif kind == "number":
            chosen.append(name)
        elif kind != "text":
            out.add(name, f"{kind}, not numbers", "convert it to numbers to use it")
        elif params.categorical == "onehot":
            chosen.append(name)
            texts.append(name)
        elif params.categorical == "error":
            raise DataError(
                f'column "{name}" is text, not numbers{_example(source, name)}',
                f'use -x "{name}", --categorical ignore, or --categorical onehot',
            )
        else:
            out.add(name, "text", "--categorical onehot uses it")
    absent = source.absent
    for name in [n for n in chosen if n in absent]:
        out.add(name, f"not in {absent[name]}", "a feature has to be in every file")
    chosen = [n for n in chosen if n not in absent]
    texts = [n for n in texts if n not in absent]
    notes = _identifiers(source, chosen, out)
    levels, crowded = _levels(source, texts)
    for name in texts:
        if name in crowded:
            out.add(name, f"text with more than {MAX_LEVELS} levels", "group them first to use it")
        elif not levels[name]:
            out.add(name, "text without a value")
    chosen = [n for n in chosen if n not in out.names]
    if not chosen:
        hint = "; ".join(f'"{n}": {reason}' for n, reason in out.pairs[:5])
        raise DataError(f"{_where(source)}: no column to learn from", hint or None)
    return Selection(_spec(chosen, levels, params), out.pairs, out.notes() + notes, params.ids)


class _LeftOut:
    """Columns that are no features, with reasons; equal reasons become one note."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self.names: set[str] = set()
        self._said: dict[tuple[str, str], list[str]] = {}

    def add(self, name: str, reason: str, advice: str = "") -> None:
        self.pairs.append((name, reason))
        self.names.add(name)
        if advice:  # without it the person has asked for it
            self._said.setdefault((reason, advice), []).append(name)

    def notes(self) -> list[str]:
        return [
            f"left out {listed(names)}: {reason} ({advice})" for (reason, advice), names in self._said.items()
        ]


def _spec(names: Iterable[str], levels: Mapping[str, Sequence[str]], params: FeatureParams) -> FeatureSpec:
    spec = FeatureSpec(
        tuple(Column(n, tuple(levels[n]) if n in levels else None) for n in names), params.missing
    )
    if len(set(spec.names)) < len(spec.names):
        twice = next(n for n, times in Counter(spec.names).items() if times > 1)
        raise DataError(
            f'two features are called "{twice}": a column, and a level of another',
            f'use -x "{twice}"',
        )
    return spec


def _identifiers(source: Source, chosen: list[str], out: _LeftOut) -> list[str]:
    """Leave out whole numbers that only count the rows; notes on those beyond 2^53."""
    text, parts = any(p.format == "csv" for p in source.parts), len(source.parts)
    whole = [n for n in chosen if _may_count(source.schema.field(n).type, text)]
    if not whole:
        return []
    # Most columns fall out in a few rows, so that a wide table is not read for nothing.
    if source.rereadable and len(whole) > 20:
        few = source.sample(10 * ID_ROWS, whole)
        wide = {n for n in whole if _is_wide(source.schema.field(n).type)}
        whole = [n for n in whole if n in wide or few.num_rows < ID_ROWS or _counts(few.column(n), parts)]
    sample = _sample(source, whole)
    for name in whole:
        if _counts(sample.column(name), parts):
            out.add(name, "looks like an identifier", "it is used when named with -c")
    used = [n for n in whole if n not in out.names and _is_wide(source.schema.field(n).type)]
    return _rounding(sample.select(used))


def _sample(source: Source, names: list[str]) -> pa.Table:
    """The first rows of some columns, fewer of very many columns: 10,000 must not take gigabytes."""
    return source.sample(min(SAMPLE_ROWS, max(10 * ID_ROWS, SAMPLE_CELLS // max(1, len(names)))), names)


def _may_count(kind: pa.DataType, text: bool) -> bool:
    return pt.is_integer(kind) or (text and pt.is_float64(kind))


def _is_wide(kind: pa.DataType) -> bool:
    return pt.is_int64(kind) or pt.is_uint64(kind)


def _counts(column: pa.ChunkedArray, parts: int) -> bool:
    """Whether a column is whole numbers, none missing, strictly up or strictly down.

    It may start again with each of several parts, as a row number of each file does.
    """
    if column.null_count or not (pt.is_integer(column.type) or pt.is_floating(column.type)):
        return False
    x = column.to_numpy()
    if x.dtype.kind == "f" and not (np.isfinite(x).all() and (x == np.floor(x)).all()):
        return False
    breaks = min(int((x[1:] <= x[:-1]).sum()), int((x[1:] >= x[:-1]).sum()))
    return breaks < parts and len(x) >= ID_ROWS * (breaks + 1)


def _rounding(sample: pa.Table) -> list[str]:
    names = [n for n in sample.column_names if _beyond(sample.column(n))]
    if not names:
        return []
    return [f"{listed(names)}: whole numbers beyond 2^53 are rounded to the nearest double"]


def _beyond(column: pa.ChunkedArray) -> bool:
    ends = pc.min_max(column).as_py()
    return any(end is not None and abs(end) > EXACT for end in ends.values())


def _levels(source: Source, texts: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The different texts of each column, sorted; and the columns with more than MAX_LEVELS."""
    levels: dict[str, set[str]] = {name: set() for name in texts}
    crowded: list[str] = []
    open_ = list(texts)
    if open_ and not source.rereadable:
        sample = source.sample(SAMPLE_ROWS, open_)
        batches: Iterable[pa.RecordBatch] = sample.combine_chunks().to_batches()
    else:
        batches = (chunk.features for chunk in source.chunks(open_)) if open_ else ()
    for batch in batches:
        for name in list(open_):
            column = plain(batch.column(batch.schema.get_field_index(name)))
            try:
                levels[name].update(t for t in pc.unique(column).to_pylist() if t is not None)
            except UnicodeDecodeError as error:
                raise DataError(
                    f'column "{name}" holds text that is not UTF-8', f'use -x "{name}"'
                ) from error
            if len(levels[name]) > MAX_LEVELS:
                open_.remove(name)
                crowded.append(name)
        if not open_:
            break
    return {n: sorted(found) for n, found in levels.items() if n not in crowded}, crowded


def _example(source: Source, name: str) -> str:
    return example(source.sample(100, [name]).column(name))


def _where(source: Source) -> str:
    parts = source.parts
    return parts[0].name if len(parts) == 1 else f"{len(parts)} files"
