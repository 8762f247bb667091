"""What every source is: columns by name, record batches in input order.

A *part* is one file or stream and has a reader; a *source* is all parts in reading order, as one
table. Readers (CSV, Parquet, Arrow) and the source share the same few methods, so a reader of a
single file can be tested, and read, alone.
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from imdh_cli.errors import DataError
from imdh_cli.sources.nested import cells_per_row, is_number
from imdh_cli.words import quoted

Opener = Callable[[], BinaryIO]  # a fresh binary file object, at its start
Repeated = Mapping[str, tuple[int, ...]]  # names that several columns have -> the places of these, from 1 on

DOUBLE = '"'

CELLS = 1 << 22  # of features in a chunk: 32 MB as doubles

# What a damaged file makes pyarrow raise; a forged length is a MemoryError.
BROKEN = (pa.ArrowException, OSError, ValueError, MemoryError)


class Chunk(NamedTuple):
    """Some rows of the input, in input order; rows are never dropped.

    features : the asked feature columns and no others, in the asked order, in the file's own types
        (CSV: float64, or string for a text column).
    kept : the passthrough columns in the asked order, or None when none were asked. CSV: string,
        byte for byte as read; Parquet and Arrow: native types.
    bad : (n,) bool, True for a row that could not be read as a row (ragged, or text where a number
        belongs) and was let through by `on_bad_row="skip"`; its feature cells are null. None: no
        such row.
    origin : the part's name, and the place of the first row in it, from 0 (None: not known). For
        errors.
    place : where a row of the chunk stands in its part, in words: the line of a text, as an editor shows it.
        Found when it is asked for, so only for errors.
    """

    features: pa.RecordBatch
    kept: pa.RecordBatch | None
    bad: np.ndarray | None
    origin: tuple[str, int | None] | None = None
    place: Callable[[int], str] | None = None

    def where(self, row: int) -> str:
        """The part and the place in it of a row of the chunk, for an error."""
        part, first = self.origin or ("the input", None)
        if self.place is not None:
            return f"{part}, {self.place(row)}"
        return part if first is None else f"{part}, row {first + row + 1}"


class Fragment(NamedTuple):
    """A part of the input that can be read alone: a row group, a byte range, a file.

    held : about how many bytes a reading of it holds between two chunks, beside the chunk.
    about : rows, roughly, where `rows` are not known (None: nothing is known).
    """

    rows: int | None
    size: int  # bytes, or any weight that is consistent within one source
    chunks: Callable[[], Iterator[Chunk]]
    held: int = 0
    about: int | None = None


class Part(NamedTuple):
    """One file or stream, as a person would list it."""

    name: str
    format: str  # a name of `formats.FORMATS`
    rows: int | None  # None: not known without reading
    size: int | None  # bytes; None for a stream


class Reader(Protocol):
    """One part: what `CsvPart`, `ParquetPart` and `ArrowPart` have in common.

    typed : cells have types of their own. Otherwise what a column is was told from some of its cells, and
        passthrough columns are the text they are.
    parallel_fragments : several fragments may be read at the same time, each in a thread of its own.
    repeated : names that several columns have. One of each is in the schema; none of them is ever asked for.
    """

    name: str
    format: str
    typed: bool
    parallel_fragments: bool
    schema: pa.Schema
    rows: int | None
    size: int | None
    rereadable: bool
    notes: list[str]
    id_columns: tuple[str, ...]
    bytes_read: int
    bad_rows: int
    repeated: Repeated

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]: ...

    def fragments(self, features: Sequence[str]) -> list[Fragment] | None: ...

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table: ...

    def close(self) -> None: ...


class Source(Protocol):
    """All of the input as one table.

    schema : every column people may name, Hive keys included. CSV columns are float64 or string.
    rows, size : rows and bytes when known without reading.
    rereadable : False for stdin, pipes and process substitution: `chunks` works once.
    typed, parallel_fragments : all parts are; see `Reader`.
    parts : in reading order.
    notes : for the person; may grow while reading.
    bytes_read, bad_rows : of the current reading.
    hive_columns : from `key=value` folders; never features.
    id_columns : known to be an index (pandas metadata).
    absent : columns that some part does not have -> the first such part.
    repeated : names that several columns of a part have -> that part and their places, in words.
    null_values : as `--null-value` says them, the model's too. decimal : the point in numbers.
    derived : columns that `expose` made -> the column of the input and the way to the field within it.
    """

    schema: pa.Schema
    rows: int | None
    size: int | None
    rereadable: bool
    typed: bool
    parallel_fragments: bool
    parts: list[Part]
    hive_columns: tuple[str, ...]
    id_columns: tuple[str, ...]
    absent: dict[str, str]
    repeated: dict[str, str]
    null_values: tuple[str, ...]
    decimal: str
    derived: dict[str, tuple[str, ...]]

    @property
    def notes(self) -> list[str]: ...

    @property
    def bytes_read(self) -> int: ...

    @property
    def bad_rows(self) -> int: ...

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        """Input order, at most `batch_rows` rows each; a column may be in both lists.

        Raises
        ------
        DataError
            For a column that is not there, with the nearest names.
        """
        ...

    def fragments(self, features: Sequence[str]) -> list[Fragment] | None:
        """The input in parts that can be read in any order; None when that is impossible."""
        ...

    def check(self, features: Sequence[str], keep: Sequence[str] = ()) -> None:
        """Raise DataError for what `chunks` could not give, without reading."""
        ...

    def kept_schema(self, keep: Sequence[str]) -> pa.Schema:
        """The schema of `Chunk.kept` for these columns, known before anything is read."""
        ...

    def expose(self, names: Iterable[str]) -> None:
        """Make columns of those names that tell a field within structs: `location.lat`."""
        ...

    def expect(
        self,
        *,
        numbers: Iterable[str] = (),
        texts: Iterable[str] = (),
        lengths: Mapping[str, int] = ...,
        nulls: Iterable[str] = ...,
        parse: Iterable[str] = ...,
    ) -> None:
        """Read these columns as numbers, as text, or as lists of a length, whatever they look like."""
        ...

    def filled(self, names: Sequence[str]) -> set[str]:
        """Of these columns some that hold a value, as far as that is known without reading rows."""
        ...

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows of all or some columns; `chunks` of a stream serves them again."""
        ...

    def close(self) -> None: ...


def chunks_of(
    batch: pa.RecordBatch,
    features: Sequence[str] | Sequence[int],
    keep: Sequence[str] | Sequence[int],
    rows: int,
    origin: tuple[str, int],
) -> Iterator[Chunk]:
    """A batch as chunks of at most so many rows, and CELLS, each; `origin` is the place of its first row."""
    rows = min(rows, max(1, CELLS // max(1, cells_per_row(batch.schema, features))))
    left, right = batch.select(features), batch.select(keep) if keep else None
    for start in range(0, batch.num_rows, rows):
        kept = None if right is None else right.slice(start, rows)
        yield Chunk(left.slice(start, rows), kept, None, (origin[0], origin[1] + start))


def first_rows(chunks: Iterator[Chunk], schema: pa.Schema, names: Sequence[str], rows: int) -> pa.Table:
    """The features of the first so many rows: what `Reader.sample` gives."""
    batches: list[pa.RecordBatch] = []
    lacking = rows if names else 0
    while lacking > 0 and (chunk := next(chunks, None)) is not None:
        batches.append(chunk.features.slice(0, lacking))
        lacking -= batches[-1].num_rows
    return pa.Table.from_batches(batches, pa.schema([schema.field(name) for name in names]))


def typed(option: str, *names: str) -> str:
    """An option with column names as a shell and `cli.command.Names` take them."""
    cells = (f'"{name.replace(DOUBLE, DOUBLE * 2)}"' if set(name) & set(',"') else name for name in names)
    return f"{option} {shlex.quote(','.join(cells))}"


def nearest(name: str, names: Iterable[str], n: int = 3) -> list[str]:
    """The names most like `name`, best first; case and surrounding blanks count for little."""
    by_fold: dict[str, str] = {}
    for other in names:
        by_fold.setdefault(other.strip().casefold(), other)
    wanted = name.strip().casefold()
    found = difflib.get_close_matches(wanted, by_fold, n=n, cutoff=0.6)
    if len(wanted) >= 2:  # "lat" is not much like "latitude", but its beginning, or a step within it
        found += [f for f in by_fold if f.startswith(wanted) or wanted in re.split(r"[^0-9a-z]+", f)]
    return [by_fold[f] for f in dict.fromkeys(found)][:n]


def as_spelled(name: str, names: Collection[str]) -> str:
    """The one of `names` that is this one in another Unicode form, accents composed or not; else itself."""
    if name in names or name.isascii():
        return name
    form = unicodedata.normalize("NFC", name)
    same = [other for other in names if not other.isascii() and unicodedata.normalize("NFC", other) == form]
    return same[0] if len(same) == 1 else name


def check_columns(wanted: Iterable[str], names: Sequence[str], where: str) -> None:
    """Raise DataError for the first columns of `wanted` that are not among `names`.

    pyarrow's readers give batches with no columns, and no error, for a name they do not know.
    """
    present = set(names)
    lost = [w for w in dict.fromkeys(wanted) if w not in present]
    if not lost:
        return
    near = [n for w in lost[:5] for n in nearest(w, names)]
    same = next(((w, other) for w in lost if (other := as_spelled(w, names)) != w), None)
    if same is not None:
        hint = (
            f'"{same[1]}" is spelled with other characters (another Unicode normal form): rename the column'
        )
    elif near:
        hint = f"did you mean {quoted(list(dict.fromkeys(near)), last='or')}?"
    else:
        hint = f"the columns are {quoted(names, 9)}" if names else "there are no columns"
    word = "column" if len(lost) == 1 else "columns"
    raise DataError(f"{where}: no {word} {quoted(lost)}", hint)


def repeated(names: Sequence[str]) -> Repeated:
    """The names that several columns have, and their places; ValueError for a name that is no UTF-8."""
    if len(set(names)) == len(names):
        return MappingProxyType({})
    places: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(name, []).append(i + 1)
    return {name: tuple(at) for name, at in places.items() if len(at) > 1}


def one_of_each(schema: pa.Schema) -> tuple[pa.Schema, Repeated]:
    """The columns without those that have the name of another; and these names.

    Of several the first that holds numbers stands for all: nobody should have to look for the one that would
    have been a feature.
    """
    several = repeated(schema.names)
    if not several:
        return schema, several
    chosen: dict[str, pa.Field] = {}
    for column in schema:
        known = chosen.setdefault(column.name, column)
        if is_number(column.type) and not is_number(known.type):
            chosen[column.name] = column
    return pa.schema(list(chosen.values())), several


def pandas_index(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that pandas wrote as its index."""
    try:
        about = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        index = about.get("index_columns", [])
        return tuple(n for n in index if isinstance(n, str) and n in schema.names)
    except (ValueError, AttributeError, TypeError):
        return ()
