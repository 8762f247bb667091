"""A block of CSV text -> the asked columns of its rows, parsed alone and in any thread.

The usual block is one call of Arrow's parser with the types given. Only where that fails is the block
read again, as text, to find the first cell at fault; nothing is done row by row before that.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from imdh_cli.arrow_compute import pc
from imdh_cli.sources.csv.numbers import null_numbers, to_numbers
from imdh_cli.sources.csv.scanner import Block, Scanner, line_count
from imdh_cli.sources.encoding import Encoding, check_utf8, to_utf8

# Arrow reads a buffer up to this size as one block, without copying it.
_ONE_BLOCK = 2**31 - 1
_PORTION = 1 << 16


class Rows(NamedTuple):
    """What a block holds.

    features, kept, bad : as in `Chunk`.
    lines : line ends in the block.
    """

    features: pa.RecordBatch
    kept: pa.RecordBatch | None
    bad: np.ndarray | None
    lines: int


@dataclass(frozen=True)
class Fault:
    """The first row of a block that cannot be used.

    row, offset : of the row, and of its first byte, from the start of the block.
    line : line ends before it.
    column, value : the cell, for text where a number belongs.
    cells : how many cells the row has, for a ragged row.
    undecodable : the error, for bytes that do not decode.
    nul : the row holds a NUL byte.
    alone : no other row of the block has a word where a number belongs.
    """

    row: int
    offset: int
    line: int
    column: str = ""
    value: str = ""
    cells: int | None = None
    undecodable: UnicodeDecodeError | None = None
    nul: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Layout:
    """What has to be known of a file to parse its blocks.

    nulls : the spellings of a missing value in all columns; column_nulls : in one.
    skip : rows that cannot be used become null rows marked bad; otherwise they are a Fault.
    header : the names come from the file.
    truths : columns in which true is 1 and false is 0.
    """

    names: tuple[str, ...]
    delimiter: bytes
    decimal: str
    encoding: Encoding
    nulls: tuple[str, ...]
    skip: bool
    header: bool = True
    truths: frozenset[str] = frozenset()
    column_nulls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def single(self) -> bool:
        """In a table of one column a blank line is a row whose cell is empty; elsewhere it is none."""
        return len(self.names) == 1


class BlockParser:
    """Parses blocks for one choice of columns. Has no state of its own: threads share it."""

    def __init__(
        self,
        layout: Layout,
        types: Mapping[str, pa.DataType],
        features: Sequence[str],
        keep: Sequence[str],
    ) -> None:
        self.layout = layout
        self.types = types
        self.features = list(features)
        self.keep = list(keep)
        self.scanner = Scanner(layout.delimiter)
        self._nulls = pa.array(layout.nulls, pa.string())
        self._null_numbers = null_numbers(layout.nulls, layout.decimal)
        self._read_options = pacsv.ReadOptions(
            use_threads=False, block_size=_ONE_BLOCK, column_names=list(layout.names)
        )
        self._numeric = [f for f in dict.fromkeys(features) if types[f] != pa.string()]
        texts = [f for f in dict.fromkeys(features) if types[f] == pa.string()]
        # A cell "NA" is missing in a feature and two letters in a kept column, so the two are read
        # apart where they meet: in one column, or as text side by side.
        shared = set(features) if not texts else set(layout.names)
        alone = [k for k in dict.fromkeys(keep) if k not in shared]
        self._late = [k for k in dict.fromkeys(keep) if k in shared]
        first = [*self._numeric, *texts, *alone] or [layout.names[0]]
        self._first = self._convert({n: types[n] for n in self._numeric}, first, bool(texts))
        self._second = self._convert({}, self._late, False)
        self._as_text = self._convert({}, self._numeric, True)
        self._others = self._convert({}, [*texts, *alone] or [layout.names[0]], bool(texts))

    def __call__(self, block: Block) -> Rows | Fault:
        """The rows of a block, or its first fault."""
        single_byte = self.layout.encoding.kind == "single"
        try:
            data = to_utf8(block.data, self.layout.encoding) if single_byte else block.data
            if not single_byte:
                check_utf8(data)
        except UnicodeDecodeError as error:
            fault = self._undecodable(block, error)
            before = self(block._replace(data=block.data.slice(0, fault.offset)))
            return before if isinstance(before, Fault) else fault
        ragged: list[tuple[int, int]] = []
        wrong: dict[str, Wrong] = {}
        columns: dict[str, pa.Array] = {}
        try:
            columns, n = self._read(data, block.quoted, self._first, ragged)
        except pa.ArrowInvalid:
            ragged.clear()
            columns, n = self._read(data, block.quoted, self._others, ragged)
            columns |= self._slowly(data, block.quoted, wrong)
        if len(self._null_numbers):
            for name in self._numeric:
                missing = pc.is_in(columns[name], value_set=self._null_numbers)
                columns[name] = pc.if_else(missing, None, columns[name])
        if not self.layout.skip and (ragged or wrong):
            return self._first_fault(block, ragged, wrong)
        kept = None
        if self.keep:
            late = self._read(data, block.quoted, self._second, [])[0] if self._late else {}
            kept = _batch({**columns, **late}, self.keep, n)
        features = _batch(columns, self.features, n)
        bad = None
        if ragged or wrong:
            features, kept, bad = _with_bad(features, kept, [r for r, _ in ragged], wrong)
        return Rows(features, kept, bad, _lines(data))

    def _convert(
        self, types: Mapping[str, pa.DataType], include: list[str], null_text: bool
    ) -> pacsv.ConvertOptions:
        return pacsv.ConvertOptions(
            check_utf8=False,  # the block has been
            column_types={n: types.get(n, pa.string()) for n in include},
            include_columns=include,
            null_values=list(self.layout.nulls),
            strings_can_be_null=null_text,
            decimal_point=self.layout.decimal,
        )

    def _read(
        self, data: pa.Buffer, quoted: bool, convert: pacsv.ConvertOptions, ragged: list
    ) -> tuple[dict[str, pa.Array], int]:
        """Columns by name and their length; rows with too many or too few cells go to `ragged`."""

        def note(row: Any) -> str:
            ragged.append((row.number - 1, row.actual_columns))
            return "skip"

        if not data.size:
            return {n: pa.array([], t) for n, t in convert.column_types.items()}, 0
        table = pacsv.read_csv(
            pa.BufferReader(unmarked(data)),
            read_options=self._read_options,
            parse_options=pacsv.ParseOptions(
                delimiter=self.layout.delimiter.decode(),
                quote_char='"' if quoted else False,
                newlines_in_values=True,
                ignore_empty_lines=not self.layout.single,
                invalid_row_handler=note,
            ),
            convert_options=convert,
        )
        # By place: looking a column up by its name takes time in the number of columns.
        columns = dict(zip(table.column_names, map(_whole, table.columns), strict=True))
        return columns, table.num_rows

    def _slowly(self, data: pa.Buffer, quoted: bool, wrong: dict[str, Wrong]) -> dict[str, pa.Array]:
        """The numeric features by way of text; the cells that are no numbers go to `wrong`."""
        if not self._numeric:
            return {}
        text, _ = self._read(data, quoted, self._as_text, [])
        numbers = {}
        for name in self._numeric:
            numbers[name], mask = to_numbers(
                text[name], self._nulls_of(name), self.layout.decimal, truths=name in self.layout.truths
            )
            if mask is not None:
                wrong[name] = Wrong(mask, text[name])
        return numbers

    def _nulls_of(self, name: str) -> pa.Array:
        own = self.layout.column_nulls.get(name)
        return self._nulls if own is None else pa.array([*self.layout.nulls, *own], pa.string())

    def _first_fault(self, block: Block, ragged: list[tuple[int, int]], wrong: dict[str, Wrong]) -> Fault:
        column, value, cells = "", "", None
        row = _ONE_BLOCK
        if ragged:
            row, cells = ragged[0]
        taken = np.array([r for r, _ in ragged], dtype=np.int64)
        for name, (mask, text) in wrong.items():
            at = int(mask.argmax())
            place = int(_skipping(taken, np.array([at]))[0])
            if place < row:
                row, column, value, cells = place, name, text[at].as_py(), None
        data = block.data.to_pybytes()
        start, end = next(islice(rows_of(self.scanner, data, self.layout), row, None))
        alone = not ragged and all(bool(m[row]) and m.sum() == 1 for m, _ in wrong.values())
        nul = b"\x00" in data[start:end]
        return Fault(row, start, line_count(data[:start]), column, value, cells, nul=nul, alone=alone)

    def _undecodable(self, block: Block, error: UnicodeDecodeError) -> Fault:
        data = block.data.to_pybytes()
        row, start = 0, 0
        for row, (start, end) in enumerate(rows_of(self.scanner, data, self.layout)):  # noqa: B007
            if end >= error.start:
                break
        return Fault(row, start, line_count(data[:start]), undecodable=error)


def rows_of(scanner: Scanner, data: bytes, layout: Layout) -> Iterator[tuple[int, int]]:
    """Start and end of the records that are rows. Slow: for errors."""
    return (record for record in scanner.records(data) if layout.single or record[1] > record[0])


class Wrong(NamedTuple):
    """The cells of a column that are no numbers, and all its cells as text."""

    mask: np.ndarray
    text: pa.Array


def unmarked(data: pa.Buffer) -> pa.Buffer:
    """The same text for Arrow, which takes a byte order mark off whatever it is given to parse."""
    if bytes(memoryview(data)[:3]) != codecs.BOM_UTF8:
        return data
    return pa.py_buffer(codecs.BOM_UTF8 + data.to_pybytes())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _batch(columns: Mapping[str, pa.Array], names: Sequence[str], n: int) -> pa.RecordBatch:
    if not names:
        empty = pa.Array.from_buffers(pa.struct([]), n, [None], children=[])
        return pa.RecordBatch.from_struct_array(empty)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))


def _skipping(taken: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The numbers of rows among all rows, from their places among the rows not `taken` (ascending)."""
    # The row at place p comes after as many taken rows as have no more than p others before them.
    return places + np.searchsorted(taken - np.arange(len(taken)), places, side="right")


def _with_bad(
    features: pa.RecordBatch,
    kept: pa.RecordBatch | None,
    ragged: list[int],
    wrong: dict[str, Wrong],
) -> tuple[pa.RecordBatch, pa.RecordBatch | None, np.ndarray]:
    """Ragged rows put back as rows of nulls, and the features of rows with a wrong cell made null."""
    n = features.num_rows
    bad = np.zeros(n + len(ragged), dtype=bool)
    bad[ragged] = True
    place = np.zeros(len(bad), dtype=np.int64)
    place[~bad] = np.arange(n)
    if kept is not None:
        kept = kept.take(pa.array(place, mask=bad))
    whole = np.flatnonzero(~bad)
    for mask, _ in wrong.values():
        bad[whole[mask]] = True
    return features.take(pa.array(place, mask=bad)), kept, bad


def _lines(data: pa.Buffer) -> int:
    letters = np.frombuffer(data, dtype=np.uint8)
    # In portions: a temporary array of a whole block is new memory each time, and that costs more.
    newlines = sum(
        np.count_nonzero(letters[i : i + _PORTION] == 10) for i in range(0, len(letters), _PORTION)
    )
    return int(newlines) or int(np.count_nonzero(letters == 13))
