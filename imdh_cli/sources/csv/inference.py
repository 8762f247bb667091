"""The first bytes of a CSV file, and some further on -> its dialect and the types of its columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.types as pt

from imdh_cli.params import SourceParams
from imdh_cli.sources.compression import Read, filled
from imdh_cli.sources.csv.dialect import Dialect, dialect_of, given_delimiter
from imdh_cli.sources.csv.errors import too_long
from imdh_cli.sources.csv.numbers import Evidence
from imdh_cli.sources.csv.parser import Layout, unmarked
from imdh_cli.sources.csv.scanner import MAX_RECORD, Scanner, UnclosedQuote
from imdh_cli.sources.text_file import TextFile
from imdh_cli.words import quoted

HEAD = 1 << 20  # bytes that the dialect and the types are told from
BRIEF = 64 << 10
PLACE = 256 << 10  # bytes looked at in each further place
SAMPLE = 16 << 20  # bytes that a sample, or the rows of a very wide table, may take
ROWS = 64  # that a look should hold if need be
VERY_WIDE = 5000  # columns: looking at them costs more than the bytes do
RAGGED = 0.1  # of the rows: with more of them, a place in the middle was not entered at a record's start


def begin(text: TextFile, read: Read, params: SourceParams, brief: bool) -> tuple[Dialect, bytes, bool]:
    """The dialect, the text it was told from, and whether that is all.

    The text holds some whole rows, however wide they are. A file without any record has a dialect
    without names.
    """
    head, ended = filled(read, BRIEF if brief else HEAD)
    while True:
        # Wide rows first make the head longer, then it is looked at: once, if all goes well.
        wanted = min(ROWS * (_first_line(head) + 1), SAMPLE)
        if not ended and len(head) < wanted:
            head, ended = filled(read, wanted - len(head), head)
        dialect = dialect_of(
            head,
            name=text.name,
            encoding=text.charset,
            delimiter=given_delimiter(params.delimiter),
            decimal=params.decimal,
            header=params.header,
            complete=ended,
        ) or Dialect(b",", (), 0, 0, 0)
        if ended or _enough(head, dialect):
            return dialect, head, ended
        if len(head) > MAX_RECORD:
            raise too_long(text.name, 1)
        head, ended = filled(read, len(head), head)


class Survey:
    """What the cells of each column are, as far as has been seen."""

    def __init__(self, text: TextFile, layout: Layout, dialect: Dialect) -> None:
        self._text = text
        self._layout = layout
        self._dialect = dialect
        self._evidence = {n: Evidence() for n in layout.names}

    def see_start(self, rows: bytes, ended: bool) -> None:
        """Rows from the first one on."""
        self._see(rows, ended, from_start=True)

    def see_places(self, size: int) -> None:
        """Places further on: a column may be empty, or whole numbers, for as long as it likes."""
        wide = max(PLACE, 8 * self._dialect.first_end)
        starts = [size // 4, size // 2, 3 * size // 4, size - wide]
        if len(self._layout.names) > VERY_WIDE:
            starts = starts[-1:]
        for start in starts:
            if start < HEAD:
                continue
            # Where a record begins is known from the front only. Nearly always a newline ends one;
            # where it does not, the rows do not fit and are not looked at.
            text = self._text.read_at(start, wide)
            self._see(text[text.find(b"\n") + 1 :], False, from_start=False)

    def schema(self) -> pa.Schema:
        """float64 for columns of numbers, string for the others.

        A column with neither name nor cells is what a delimiter at the end of each line makes. It is
        text, so that it is no feature by itself: rows that lack one are left out.
        """

        def number(name: str) -> bool:
            seen = self._evidence[name]
            return seen.numeric and (name not in self._dialect.nameless or seen.numbers > 0)

        types: dict[str, pa.DataType] = {}
        for name in self._evidence:
            own = name.partition("\x00")[0]  # see `Dialect.repeated`
            kind = pa.float64() if number(name) else pa.string()
            types[own] = kind if pt.is_floating(kind) else types.get(own, kind)
        return pa.schema(list(types.items()))

    def truths(self) -> frozenset[str]:
        """Columns of true and false, which are 1 and 0."""
        return frozenset(name for name, evidence in self._evidence.items() if evidence.truth)

    def notes(self) -> list[str]:
        """Text columns whose cells are numbers but for a decimal comma."""
        commas = [
            n
            for n, e in self._evidence.items()
            if not e.numeric and e.commas > 0.9 * e.words and e.groups < e.commas
        ]
        if not commas:
            return []
        return [
            f"{self._text.name}: {quoted(commas)}: these look like numbers with a decimal comma (--decimal ,)"
        ]

    def _see(self, text: bytes, ended: bool, *, from_start: bool) -> None:
        """Arrow infers a type for each column; only those that are no plain numbers are read as text."""
        whole = readable(whole_records(text, self._layout.delimiter, ended), self._text.charset)
        if not whole:
            return
        table, ragged = _read(whole, self._layout, [])
        if not from_start and ragged > RAGGED * (ragged + table.num_rows):
            return
        words = []
        for field, column in zip(table.schema, table.columns, strict=True):
            if pt.is_integer(field.type) or pt.is_floating(field.type):
                self._evidence[field.name].numbers += len(column) - column.null_count
            elif not pt.is_null(field.type):
                words.append(field.name)
        if words:
            table, _ = _read(whole, self._layout, words)
            for name, column in zip(table.column_names, table.columns, strict=True):
                nulls = pa.array([*self._layout.nulls, *self._layout.column_nulls.get(name, ())], pa.string())
                self._evidence[name].see(column.combine_chunks(), nulls, self._layout.decimal)


def whole_records(text: bytes, delimiter: bytes, ended: bool) -> bytes:
    """`text` without the half record at its end, and without what an unclosed quote has swallowed."""
    scanner = Scanner(delimiter)
    try:
        end = scanner.last_end(text)
        return text if ended else text[:end]
    except UnclosedQuote as error:
        return text[: scanner.last_end(text[: error.offset])]


def readable(text: bytes, charset: str) -> bytes:
    """UTF-8 whatever the bytes are: a sample is no place to complain about one of them."""
    return text.decode(charset, "replace").encode()


def _first_line(head: bytes) -> int:
    """The length of the first line that is not blank, about."""
    blank = len(head) - len(head.lstrip(b"\r\n"))
    ends = [head.find(b"\n", blank), head.find(b"\r", blank)]
    return min((e for e in ends if e >= 0), default=len(head))


def _enough(head: bytes, dialect: Dialect) -> bool:
    """Whether a head holds the first record and a whole row after it."""
    if not dialect.names or dialect.first_end >= len(head):
        return False
    return len(head) >= SAMPLE or bool(whole_records(head[dialect.start :], dialect.delimiter, False))


def _read(text: bytes, layout: Layout, include: list[str]) -> tuple[pa.Table, int]:
    """The fitting rows and the number of others; `include` as text, or all columns as Arrow infers."""
    ragged = 0

    def note(row: object) -> str:
        nonlocal ragged
        ragged += 1
        return "skip"

    table = pacsv.read_csv(
        pa.BufferReader(unmarked(pa.py_buffer(text))),
        pacsv.ReadOptions(use_threads=False, block_size=2**31 - 1, column_names=list(layout.names)),
        pacsv.ParseOptions(
            delimiter=layout.delimiter.decode(),
            newlines_in_values=True,
            ignore_empty_lines=not layout.single,
            invalid_row_handler=note,
        ),
        pacsv.ConvertOptions(
            include_columns=include,
            column_types=dict.fromkeys(include, pa.string()),
            null_values=list(layout.nulls),
            strings_can_be_null=True,
            decimal_point=layout.decimal,
            true_values=[],  # true and false are words
            false_values=[],
        ),
    )
    return table, ragged
