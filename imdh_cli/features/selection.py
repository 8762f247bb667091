"""A source -> its features: those named, or all numbers that are not ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.arrow_compute import pc
from imdh_cli.errors import PIPE, DataError, UsageError
from imdh_cli.features.kinds import example, kind_of, kind_of_type, worded
from imdh_cli.features.lists import choose_items, lengths
from imdh_cli.features.matrix import all_bad
from imdh_cli.features.names import Named, Span, resolve
from imdh_cli.features.spec import MAX_LEVELS, Column, FeatureSpec, Items
from imdh_cli.features.texts import ADVICE, advice, are_numbers
from imdh_cli.params import FeatureParams
from imdh_cli.sources.base import Source, as_spelled, nearest, typed
from imdh_cli.sources.nested import is_list, number_fields, vector_length
from imdh_cli.sources.nulls import Nulls
from imdh_cli.sources.signatures import shell_word
from imdh_cli.words import listing, quoted

ID_ROWS = 30  # fewer rows than this say nothing about what is an identifier
SAMPLE_ROWS = 20_000
FEW_ROWS = 10 * ID_ROWS
SAMPLE_CELLS = 4_000_000
EXACT = 2**53  # beyond it a double does not hold every whole number
_NUMBERED = re.compile(r"column_[0-9]+")  # a name where there is no header
RARE_MARKS = ":~^"  # between cells; no file is read so unless it is said
_ONE_LENGTH = "give all of them one length to use them"


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


def select_features(source: Source, params: FeatureParams) -> Selection:
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
    params = _as_spelled(params, source.schema.names)
    named = resolve(source, params, _where(source))
    if _is_empty(source):
        raise DataError(f"{_where(source)}: no data rows", "a model is learned from rows")
    source.expect(texts=params.onehot, parse=params.parse)
    if named.features is not None:
        selection = _named(source, params, named, named.features)
    else:
        selection = _default(source, params, named)
    source.expect(lengths=selection.spec.lengths, parse=selection.spec.parsed)
    Nulls.of(source.null_values, source.schema.names).check(source.schema.names)
    selection.spec = replace(selection.spec, null_values=source.null_values)
    return selection


def _as_spelled(params: FeatureParams, names: Sequence[str]) -> FeatureParams:
    """The columns as the file spells them: accents may be composed in one place and not in the other."""

    def known(asked: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(as_spelled(name, names) for name in asked)

    return replace(
        params,
        columns=None if params.columns is None else known(params.columns),
        exclude=known(params.exclude),
        ids=known(params.ids),
        onehot=known(params.onehot),
        parse=known(params.parse),
        log=known(params.log),
    )


def bind_features(source: Source, spec: FeatureSpec) -> None:
    """Make a source ready to be read by the features of a model.

    Raises
    ------
    DataError
        For a feature that is not there, with the nearest names, or that is of another kind.
    """
    if not source.schema.names:
        raise DataError(f"{_where(source)}: no data rows, and no header either", "name the data")
    source.expose(spec.source_columns)
    _check_known(source, spec)
    expect = partial(
        source.expect,
        numbers=spec.numbers,
        texts=spec.texts,
        lengths=spec.lengths,
        nulls=spec.null_values,
    )
    expect(parse=spec.parsed)
    as_text = _numbers_as_text(source, spec)
    if as_text:
        expect(parse=(*spec.parsed, *as_text))
    for column in spec.columns:
        kind = kind_of(source.schema.field(column.name))
        if column.name in source.hive_columns:
            kind = "from the names of folders"
        if column.items is not None:
            fits, learned = _holds_lists(source, column), f"lists of {column.items.length} numbers"
        else:
            learned = "numbers" if column.levels is None else "text"
            may_be_text = column.levels is not None or column.parse or column.name in as_text
            fits = kind in ("number", "empty throughout") or (kind == "text" and may_be_text)
        if not fits:
            held = _example(source, column.name) if kind == "text" else ""
            commas = kind == "text" and are_numbers(source.sample(FEW_ROWS, [column.name]).column(0), ",")
            raise DataError(
                f'{_where(source)}: column "{column.name}" is {kind}{held}; the model learned {learned}',
                "add --decimal ," if commas else f'give the column "{column.name}" as the model knows it',
            )


def _numbers_as_text(source: Source, spec: FeatureSpec) -> list[str]:
    """Columns of text that hold numbers, where the model learned numbers: those that were kept from a CSV."""
    texts = [
        name
        for name in spec.numbers
        if name not in (*spec.parsed, *source.hive_columns) and kind_of(source.schema.field(name)) == "text"
    ]
    cells = source.sample(FEW_ROWS, texts)
    return [name for name in texts if are_numbers(cells.column(name), source.decimal)]


def _holds_lists(source: Source, column: Column) -> bool:
    """Whether the cells may be the lists that a model learned; each is looked at when it is read."""
    field = source.schema.field(column.name)
    length = vector_length(field.type)
    assert column.items is not None
    if length is not None:
        return length == column.items.length
    return is_list(field.type) or kind_of(field) in ("text", "empty throughout")


def _check_known(source: Source, spec: FeatureSpec) -> None:
    """Like `source.check`, with what to do about a column that only the model has."""
    names = source.schema.names
    lost = [n for n in spec.source_columns if n not in names]
    try:
        source.check(spec.source_columns)
    except DataError as error:
        hint = error.hint
        if lost and all(_NUMBERED.fullmatch(n) for n in spec.source_columns):
            hint = "the model was learned from a file without a header: add --no-header"
        elif lost and all(_NUMBERED.fullmatch(n) for n in names):
            hint = f"{hint}; if the first line is a header, drop --no-header"
        elif lost and nearest(lost[0], names):
            hint = f'{hint} Rename the column in the file: the model knows it as "{lost[0]}"'
        raise DataError(error.message, hint) from error


def _is_empty(source: Source) -> bool:
    if source.rows is not None:
        return source.rows == 0
    return not source.schema.names or source.sample(1, source.schema.names[:1]).num_rows == 0


def _named(
    source: Source, params: FeatureParams, named: Named, features: Mapping[str, Sequence[Span]]
) -> Selection:
    texts: list[str] = []
    numbers: list[str] = []
    lists: dict[str, Items] = {}
    source.check([name for name in features if name not in source.hive_columns])
    found = lengths(source, [name for name in features if name not in source.hive_columns])
    for name, spans in features.items():
        if name in source.hive_columns:
            raise DataError(
                f'column "{name}" comes from the names of folders and is no feature',
                "leave it out of -c; --keep carries it to the labels",
            )
        column = source.schema.field(name)
        kind = kind_of(column)
        length = found.get(name)
        without = named.without.get(name, ())
        if isinstance(length, int):
            lists[name] = choose_items(name, length, spans, without)
        elif length is not None:
            raise DataError(f'column "{name}" holds {length}', _ONE_LENGTH)
        elif spans or without:
            raise _no_lists(source, name)
        elif kind in ("text", "number") and name in params.onehot:
            texts.append(name)
        elif kind == "text" and name in params.parse:
            continue
        elif kind == "text" and params.categorical == "onehot":
            texts.append(name)
        elif kind == "number":
            numbers.append(name)
        elif kind == "text":
            raise DataError(
                f'column "{name}" is text, not numbers{_example(source, name)}',
                f"{_text_advice(source, [name])[name][0]}, or leave it out of -c",
            )
        else:
            raise DataError(
                f'column "{name}" is {kind}, not numbers',
                f'{_in_numbers(source, name) or "convert it to numbers first"}, or leave "{name}" out of -c',
            )
    levels, crowded = _levels(source, texts)
    if crowded:
        what, what_to_do = _too_many(source, crowded[0])
        raise DataError(
            f'column "{crowded[0]}" is {what}', f'{what_to_do}, or leave "{crowded[0]}" out of -c'
        )
    void = next((n for n in texts if not levels[n]), None)
    if void is not None:
        raise DataError(f'column "{void}" has no text in it', f'leave "{void}" out of -c')
    kinds = {n: source.schema.field(n).type for n in numbers}
    wide = [n for n, kind in kinds.items() if _is_wide(kind) or (not source.typed and pt.is_float64(kind))]
    notes = _rounding(_sample(source, wide)) if wide else []
    spec = _spec(features, levels, lists, params)
    return Selection(spec, [], notes, tuple(params.ids))


def _default(source: Source, params: FeatureParams, named: Named) -> Selection:
    out = _LeftOut()
    chosen: list[str] = []
    texts: list[str] = []
    words: list[str] = []
    lists: dict[str, Items] = {}
    void = _empty(source, params)
    found = lengths(source, _may_list(source, named, params))
    for name in named.without:
        if not isinstance(found.get(name), int):
            raise _no_lists(source, name)
    for column in source.schema:
        name, kind = column.name, kind_of(column)
        length = found.get(name)
        if name in named.exclude:
            out.add(name, "excluded with -x")
        elif name in params.ids:
            out.add(name, "an id, carried to the labels")
        elif name in source.hive_columns:
            out.add(name, "from the names of folders")
        elif name in source.id_columns:
            out.add(name, "an index written by pandas", "it is used when named with -c")
        elif name in source.repeated and not _is_wanted(name, kind, params):
            out.add(name, "several columns have this name", "rename all but one of them to use it")
        elif name in void or kind == "empty throughout":
            known = source.rereadable or kind == "empty throughout"
            later = "" if known else f" in the first rows; {typed('-c', name)} uses it all the same"
            out.add(name, "empty", f"it holds no value{later}")
        elif isinstance(length, int):
            lists[name] = choose_items(name, length, (), named.without.get(name, ()))
        elif length is not None:
            out.add(name, length, _ONE_LENGTH)
        elif kind in ("text", "number") and name in params.onehot:
            chosen.append(name)
            texts.append(name)
        elif kind == "number" or (kind == "text" and name in params.parse):
            chosen.append(name)
        elif kind != "text":
            inner = _in_numbers(source, name)
            out.add(name, f"{kind}, not numbers", inner or "convert it to numbers to use it")
        elif params.categorical == "onehot":
            chosen.append(name)
            texts.append(name)
        elif params.categorical == "error":
            raise DataError(
                f'column "{name}" is text, not numbers{_example(source, name)}',
                f"use {typed('-x', name)}, --categorical ignore, or --categorical onehot",
            )
        else:
            words.append(name)
    for name, (what_to_do, shown) in _text_advice(source, words).items():
        out.add(name, "text", what_to_do, shown)
    source.check([name for name in chosen if name in source.repeated])
    absent = source.absent
    for name in [n for n in chosen if n in absent]:
        out.add(name, f"not in {absent[name]}", "a feature has to be in every file")
    chosen = [n for n in chosen if n not in absent]
    texts = [n for n in texts if n not in absent]
    notes = _identifiers(source, chosen, out)
    for name in [n for n in lists if n in absent]:
        out.add(name, f"not in {absent[name]}", "a feature has to be in every file")
        del lists[name]
    levels, crowded = _levels(source, texts)
    for name in texts:
        if name in crowded:
            out.add(name, *_too_many(source, name))
        elif not levels[name]:
            out.add(name, "text without a value")
    chosen = [n for n in chosen if n not in out.names]
    if chosen:
        for name, items in lists.items():
            out.add(name, f"lists of {items.length} numbers", f"{typed('-c', name)} uses them")
    else:
        chosen = list(lists)
    if not chosen:
        if void and not words and not source.typed:
            _check_rows(source)
        raise DataError(f"{_where(source)}: no column to learn from", _why_none(source, words, out))
    return Selection(_spec(chosen, levels, lists, params), out.pairs, out.notes() + notes, params.ids)


def _too_many(source: Source, name: str) -> tuple[str, str]:
    """What a column is that has too many levels, and what to do about it."""
    if kind_of(source.schema.field(name)) == "number":
        return f"numbers, more than {MAX_LEVELS} different ones", "as numbers they are used without --onehot"
    return f"text with more than {MAX_LEVELS} levels", "group them first to use it"


def _is_wanted(name: str, kind: str, params: FeatureParams) -> bool:
    """Whether a column would be a feature if no other had its name."""
    texts = params.categorical == "onehot" or name in (*params.parse, *params.onehot)
    return kind == "number" or (kind == "text" and texts)


def _in_numbers(source: Source, name: str) -> str | None:
    """The fields of numbers within a column of structs, as an option."""
    found = number_fields(source.schema.field(name))
    return f"name its fields: {typed('-c', *found[:20])}" if found else None


def _no_lists(source: Source, name: str) -> DataError:
    return DataError(
        f'column "{name}" holds no lists of numbers{_example(source, name)}', f'name the column: "{name}"'
    )


def _may_list(source: Source, named: Named, params: FeatureParams) -> list[str]:
    """The columns whose cells may be lists, and may be features."""
    apart = {*named.exclude, *params.ids, *source.hive_columns, *source.absent}
    return _readable(source, [name for name in source.schema.names if name not in apart])


def _empty(source: Source, params: FeatureParams) -> set[str]:
    """The columns without any value.

    Those of which the first rows hold none are read to the end, or until a value turns up; of a stream more
    of its first rows are looked at, since a column without any value would leave no row to learn from.
    """
    apart = {*params.exclude, *params.ids, *source.hive_columns, *source.id_columns, *source.absent}
    names = _readable(source, [f.name for f in source.schema if f.name not in apart and _may_be_void(f)])
    filled = source.filled(names)
    names = [n for n in names if n not in filled]
    if not names:
        return set()
    first = source.sample(FEW_ROWS, names)
    void = [n for n in names if not _holds(first.column(n))]
    if not void or source.rows == first.num_rows:
        return set(void)
    if not source.rereadable:
        more = _sample(source, void)
        return {n for n in void if not _holds(more.column(n))}
    for chunk in source.chunks(void):
        columns = zip(chunk.features.schema.names, chunk.features.columns, strict=True)
        filled = {n for n, column in columns if _holds(column)}
        void = [n for n in void if n not in filled]
        if not void:
            break
    return set(void)


def _check_rows(source: Source) -> None:
    """Where no column holds a value: an error for what is wrong with the rows, if anything is."""
    rows = sum(chunk.features.num_rows for chunk in source.chunks(()))
    if source.bad_rows == rows:
        raise all_bad(_where(source), rows)


def _readable(source: Source, names: list[str]) -> list[str]:
    """Those that have one type in all files: the others are an error only where they are asked for."""

    def fits(some: list[str]) -> bool:
        try:
            source.check(some)
        except DataError:
            return False
        return True

    return names if fits(names) else [n for n in names if fits([n])]


def _may_be_void(column: pa.Field) -> bool:
    return kind_of(column) in ("number", "text") and not pt.is_run_end_encoded(column.type)


def _holds(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether there is a cell that is neither null nor NaN."""
    if column.null_count == len(column):
        return False
    if not pt.is_floating(column.type):
        return True
    cells = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(False)
    return not np.isnan(cells).all()


def _text_advice(source: Source, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What to do with each column of text, and one of its cells."""
    if not names:
        return {}
    readable = _readable(source, [n for n in names if n not in source.absent])
    sample = source.sample(max(100, min(2000, SAMPLE_CELLS // 10 // len(names))), readable)
    commas = [n for n in names if any("(--decimal ,)" in note and f'"{n}"' in note for note in source.notes)]
    known = advice(
        {n: sample.column(n) for n in names if n in sample.column_names}, commas, typed_source=source.typed
    )
    return {n: known.get(n, (ADVICE["category"], "")) for n in names}


def _why_none(source: Source, words: Sequence[str], out: _LeftOut) -> str | None:
    """What to type when no column is left."""
    found = [note for note in source.notes if "(--" in note]
    names = source.schema.names
    if words and names[0].startswith("#"):
        file = shell_word(source.parts[0].name)
        found.append(f"if the first line is a comment, leave it out: tail -n +2 {file} {PIPE}")
    if len(names) == 1 and words:
        cells = [c for c in source.sample(20, names).column(0).to_pylist() if c]
        if cells and all(len(c.split()) > 1 and _numbers_only(c.split()) for c in cells):
            found.append(_separated_by_blanks(source.parts[0].name, [names[0], *cells]))
        for mark in RARE_MARKS:
            if {cell.count(mark) for cell in cells} == {names[0].count(mark)} != {0}:
                found.append(f"the cells look separated by {mark}: add --delimiter {mark}")
    if not found:
        kinds = _text_advice(source, words)
        for name, reason in out.pairs[:5]:
            what_to_do, shown = kinds.get(name, (out.advice.get(name, ""), ""))
            such = f" such as {shown}" if shown else ""
            found.append(f'"{name}": {reason}{such}' + (f" ({what_to_do})" if what_to_do else ""))
    return "; ".join(found) or None


def _separated_by_blanks(file: str, lines: Sequence[str]) -> str:
    """Single blanks may be a delimiter; columns that are aligned by blanks are made a CSV."""
    said = "the cells look separated by blanks: "
    if all("  " not in line and line == line.strip() for line in lines):
        return f"{said}add --delimiter ' '"
    return f"{said}awk -v OFS=, '{{$1=$1}} 1' {shell_word(file)} {PIPE}"


def _numbers_only(cells: Iterable[str]) -> bool:
    try:
        return all(np.isfinite(float(c)) for c in cells)
    except ValueError:
        return False


class _LeftOut:
    """Columns that are no features, with reasons; equal reasons become one note."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self.names: set[str] = set()
        self.advice: dict[str, str] = {}
        self._said: dict[tuple[str, str], list[str]] = {}

    def add(self, name: str, reason: str, what_to_do: str = "", shown: str = "") -> None:
        """shown : a cell of the column, for the note. Without `what_to_do` the person has asked for it."""
        self.pairs.append((name, reason))
        self.names.add(name)
        self.advice[name] = what_to_do
        if what_to_do:
            named = f'"{name}"' + (f" (such as {shown})" if shown else "")
            self._said.setdefault((reason, what_to_do), []).append(named)

    def notes(self) -> list[str]:
        return [
            f"left out {listing(named)}: {reason} ({what_to_do})"
            for (reason, what_to_do), named in self._said.items()
        ]


def _spec(
    names: Iterable[str],
    levels: Mapping[str, Sequence[str]],
    lists: Mapping[str, Items],
    params: FeatureParams,
) -> FeatureSpec:
    columns = tuple(
        Column(
            n,
            tuple(levels[n]) if n in levels else None,
            lists.get(n),
            parse=n in params.parse and n not in levels,
            log=n in params.log,
        )
        for n in names
    )
    _check_logs(params.log, columns)
    spec = FeatureSpec(columns, params.missing)
    if len(set(spec.names)) < len(spec.names):
        twice = next(n for n, times in Counter(spec.names).items() if times > 1)
        raise DataError(
            f'two features are called "{twice}": a column, and a level or an item of another',
            f"use {typed('-x', twice)}",
        )
    return spec


def _check_logs(asked: Sequence[str], columns: Sequence[Column]) -> None:
    """Raise UsageError for a name of `--log` that is no feature, or no number."""
    known = {column.name: column for column in columns}
    for name in asked:
        column = known.get(name)
        if column is None:
            raise UsageError(
                f'--log: "{name}" is no feature', f"use {typed('-c', name)}, or leave it out of --log"
            )
        if column.levels is not None or column.items is not None:
            what = "text" if column.items is None else "lists of numbers"
            raise UsageError(
                f'--log: "{name}" holds {what}, and logarithms are of numbers', "leave it out of --log"
            )


def _identifiers(source: Source, chosen: list[str], out: _LeftOut) -> list[str]:
    """Leave out whole numbers that only count the rows; notes on those beyond 2^53."""
    parts = len(source.parts)
    whole = [n for n in chosen if _may_count(source.schema.field(n).type, source.typed)]
    if not whole:
        return []
    # Most columns fall out in a few rows, so that a wide table is not read for nothing.
    if source.rereadable and len(whole) > 20:
        few = source.sample(FEW_ROWS, whole)
        wide = {n for n in whole if _is_wide(source.schema.field(n).type) or _beyond(few.column(n))}
        whole = [n for n in whole if n in wide or few.num_rows < ID_ROWS or _counts(few.column(n), parts)]
    sample = _sample(source, whole)
    for name in whole:
        column = sample.column(name)
        exact = _exact(source, name, column)
        if _counts(column, parts) or (exact is not column and _counts(exact, parts)):
            out.add(name, "looks like an identifier", "it is used when named with -c")
    used = [n for n in whole if n not in out.names]
    return _rounding(sample.select(used))


def _sample(source: Source, names: list[str]) -> pa.Table:
    """The first rows of some columns, fewer of very many columns: 10,000 must not take gigabytes."""
    return source.sample(min(SAMPLE_ROWS, max(10 * ID_ROWS, SAMPLE_CELLS // max(1, len(names)))), names)


def _may_count(kind: pa.DataType, typed: bool) -> bool:
    return pt.is_integer(kind) or (not typed and pt.is_float64(kind))


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


def _exact(source: Source, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers beyond 2^53 as they are written in a CSV file, where the column's doubles hold such.

    Of a stream, whose text cannot be had twice, `column` itself.
    """
    if not (pt.is_floating(column.type) and source.rereadable and _beyond(column)):
        return column
    cells: list[pa.Array] = []
    for chunk in source.chunks((), [name]):
        assert chunk.kept is not None
        cells.append(pc.utf8_trim_whitespace(chunk.kept.column(0)))
        if sum(map(len, cells)) >= len(column):
            break
    try:
        return pa.chunked_array(cells, pa.string()).slice(0, len(column)).cast(pa.int64())
    except pa.ArrowException:
        return column


def _rounding(sample: pa.Table) -> list[str]:
    names = [n for n in sample.column_names if _beyond(sample.column(n))]
    if not names:
        return []
    return [f"{quoted(names)}: whole numbers beyond 2^53 are rounded to the nearest double"]


def _beyond(column: pa.ChunkedArray) -> bool:
    """Whether there are whole numbers that a double rounds; doubles are whole numbers up to 2^64."""
    if not pt.is_integer(column.type):
        if not pt.is_floating(column.type):
            return False
        column = column.filter(pc.is_finite(column))  # null and NaN are not
    ends = pc.min_max(column).as_py()
    if not any(end is not None and abs(end) > EXACT for end in ends.values()):
        return False
    if pt.is_integer(column.type):
        return True
    x = column.to_numpy()
    return bool((np.abs(x) <= 2.0**64).all() and (x == np.floor(x)).all())


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
            column = worded(batch.column(batch.schema.get_field_index(name)))
            if kind_of_type(column.type) == "number":
                raise DataError(
                    f'column "{name}" is {column.type}: no codes', "write them as text or as whole numbers"
                )
            try:
                levels[name].update(t for t in pc.unique(column).to_pylist() if t is not None)
            except UnicodeDecodeError as error:
                raise DataError(
                    f'column "{name}" holds text that is not UTF-8', f"use {typed('-x', name)}"
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
