"""One CSV file or stream -> record batches: numbers as float64, everything else as the text it is.

The text is cut into blocks that begin and end with a record (`records.py`), and each block is parsed
alone (`blocks.py`), so row numbers are exact, blocks can be parsed in several threads, and a byte range
that `fragments` gives holds the very rows that `chunks` gives.

Rules that are not obvious:

- A blank line is a row with an empty cell in a table of one column, and no row in a wider one.
- Columns are typed from a sample: the start of the file and, where it can be sought in, places further
  on. See `Evidence.numeric`.
- A byte order mark decides the encoding, whatever was asked for.
- A row with too many or too few cells, or with text where a number belongs, is an error; under
  `on_bad_row="skip"` it stays and is marked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import pyarrow as pa

from imdh_cli.errors import DataError, UsageError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk, Fragment, Opener, check_columns
from imdh_cli.sources.compression import Read, cannot_read, filled, prefixed
from imdh_cli.sources.csv.errors import fault_error, open_quote, spent, too_long, unparsed
from imdh_cli.sources.csv.inference import HEAD, ROWS, SAMPLE, Survey, begin, readable, whole_records
from imdh_cli.sources.csv.numbers import USUAL_NULLS
from imdh_cli.sources.csv.parser import BlockParser, Fault, Layout, Rows, rows_of
from imdh_cli.sources.csv.scanner import Block, RecordTooLong, Scanner, UnclosedQuote, blocks, line_count
from imdh_cli.sources.encoding import Encoding, encoding_of
from imdh_cli.sources.file import Stored
from imdh_cli.sources.nulls import Nulls
from imdh_cli.sources.text_file import OpenText, TextFile
from imdh_cli.workers import ordered_map

BLOCK = 2 << 20  # bytes parsed at a time
PIECE = 1 << 20
LEAST, MOST = 64, 4096  # fragments


class CsvPart:
    """One CSV file or stream. Satisfies `base.Reader`.

    Parameters
    ----------
    name : str
        As errors should name it.
    opener : callable
        Gives a fresh binary file at its start; called once only when not `rereadable`.
    path : str, optional
        Of a file on this machine. Only such a file is sampled in several places and cut into fragments.
    brief : bool
        Look at the first 64 KB only: for one file of very many.

    Raises
    ------
    DataError
        For what can be told from the first bytes: a header that does not do, a format not read.
    UsageError
        For an option that makes no sense.
    """

    format = "csv"
    typed = False
    parallel_fragments = True
    id_columns: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        opener: Opener,
        params: SourceParams,
        rereadable: bool,
        path: str | None = None,
        *,
        brief: bool = False,
    ) -> None:
        if params.decimal not in (".", ","):
            raise UsageError(f"--decimal {params.decimal!r}: neither . nor ,", "try --decimal ,")
        self.name = name
        self.rereadable = rereadable
        self.rows: int | None = None  # 0 for a file without even a header
        self.size = None if path is None or not rereadable else _size(path, name)
        self.schema: pa.Schema = pa.schema([])
        self.bad_rows = 0  # in the current reading
        self.bytes_read = 0  # of the file, as stored, in the current reading
        self._params = params
        self._text = TextFile(
            name, opener, encoding_of(params.encoding), self._count, path if rereadable else None
        )
        self._stream: OpenText | None = None  # a stream's text behind `_head`, until it is read
        self._head = b""  # what was read of it, from the first row
        self._cuts: tuple[float, list[tuple[int, int]]] | None = None  # for `fragments`
        self.notes: list[str] = []
        self._layout: Layout
        self._free = True  # no model has told which columns are numbers
        self._look(brief)

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        """All rows in order, or the first `params.max_rows`; faults behind those are not noticed.

        Raises
        ------
        DataError
            At once for a column that is not there or a stream that has been read; from the iterator
            for a row that cannot be used, after the rows before it.
        """
        if self.rows == 0:
            return iter(())
        if not self.rereadable and self._stream is None:
            raise spent(self.name)
        return self._in_order(self._parser(features, keep))

    def fragments(self, features: Sequence[str]) -> list[Fragment] | None:
        """Byte ranges, each of whole records; None when the file cannot be sought in.

        One pass over the bytes, without parsing them, the first time. 64 fragments at least, so that a small
        file in an unlucky order can be met in a better one; of 1 MB each in larger files.
        """
        if self.rows == 0:
            return []
        if not self._text.seekable or self.size is None or self._params.max_rows is not None:
            return None
        parser = self._parser(features, ())
        try:
            if self._cuts is None:
                self._cuts = self._cut(self.size)
        except (UnclosedQuote, RecordTooLong):
            return None  # read in order it is found again, and the line is known
        per_byte, cuts = self._cuts
        return [
            Fragment(None, size, partial(self._fragment, parser, start, size), about=round(per_byte * size))
            for start, size in cuts
        ]

    def _cut(self, size: int) -> tuple[float, list[tuple[int, int]]]:
        """Lines per byte at the start, and start and size of each range."""
        per_byte = 0.0
        cuts: list[tuple[int, int]] = []
        fragment = max(1, min(size // LEAST, PIECE), size // MOST)
        for block in blocks(self._range(0, size), self._scanner, fragment):
            if not cuts:
                per_byte = line_count(block.data.to_pybytes()) / block.data.size
            cuts.append((block.offset, block.data.size))
        return per_byte, cuts

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows of some columns, fewer where they are very wide. Faults become nulls.

        A stream keeps the bytes, and `chunks` gives the rows again.
        """
        names = self.schema.names if columns is None else list(columns)
        check_columns(names, self.schema.names, self.name)
        schema = pa.schema(self.schema.field(n) for n in names)
        if self.rows == 0:
            return schema.empty_table()
        text, ended = self._first_text(rows)
        whole = readable(whole_records(text, self._layout.delimiter, ended), self._text.charset)
        if not whole:
            return schema.empty_table()
        layout = replace(self._layout, encoding=Encoding("utf-8", "utf-8"), skip=True)
        parser = BlockParser(layout, _types(self.schema), names, ())
        parsed = parser(Block(pa.py_buffer(whole), 0, b'"' in whole, False))
        assert isinstance(parsed, Rows)
        return pa.Table.from_batches([parsed.features.slice(0, rows)])

    def expect(
        self, *, numbers: Iterable[str] = (), texts: Iterable[str] = (), nulls: Iterable[str] = ()
    ) -> None:
        """Read these columns as numbers, or as text, whatever the sample looked like.

        In a column of words that are to be numbers, true is 1 and false is 0.
        """
        numbers = list(numbers)
        types = {**dict.fromkeys(numbers, pa.float64()), **dict.fromkeys(texts, pa.string())}
        check_columns(types, self.schema.names, self.name)
        self._free = self._free and not numbers
        words = {n for n in numbers if self.schema.field(n).type == pa.string()}
        more = Nulls.of(nulls, self._layout.names)
        self._layout = replace(
            self._layout,
            truths=self._layout.truths | words,
            nulls=tuple(dict.fromkeys((*self._layout.nulls, *more.everywhere))),
            column_nulls={**self._layout.column_nulls, **more.columns},
        )
        self.schema = pa.schema((f.name, types.get(f.name, f.type)) for f in self.schema)

    def close(self) -> None:
        """Let go of a stream that was not read."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _look(self, brief: bool) -> None:
        """The dialect, and the types of the columns."""
        text = self._text.open()
        try:
            self._dialect, head, ended = begin(self._text, text.read, self._params, brief)
        except BaseException:
            text.close()
            raise
        self.notes += [*self._text.notes, *self._dialect.notes]
        self._scanner = Scanner(self._dialect.delimiter)
        head = head[self._dialect.start :]
        if self.rereadable or not self._dialect.names:
            text.close()
        else:
            self._head, self._stream = head, text
        nulls = Nulls.of(self._params.null_values or (), self._dialect.names)
        self.repeated = self._dialect.repeated
        self._layout = Layout(
            names=self._dialect.names,
            delimiter=self._dialect.delimiter,
            decimal=self._params.decimal,
            encoding=self._text.encoding,
            nulls=tuple(dict.fromkeys((*USUAL_NULLS, *nulls.everywhere))),
            column_nulls=nulls.columns,
            skip=self._params.on_bad_row == "skip",
            header=self._params.header,
        )
        if not self._dialect.names:
            self.rows = 0
            return
        survey = Survey(self._text, self._layout, self._dialect)
        survey.see_start(head, ended)
        if not ended and not brief and self._text.seekable and self.size is not None:
            survey.see_places(self.size)
        self.schema = survey.schema()
        self._layout = replace(self._layout, truths=survey.truths())
        self.notes += survey.notes()

    def _parser(self, features: Sequence[str], keep: Sequence[str]) -> BlockParser:
        check_columns((*features, *keep), self.schema.names, self.name)
        return BlockParser(self._layout, _types(self.schema), features, keep)

    def _from_first_row(self) -> OpenText:
        """The text of the rows. A stream's can be had once."""
        if not self.rereadable:
            if self._stream is None:
                raise spent(self.name)
            text, self._stream = self._stream, None
            head, self._head = self._head, b""
            return text._replace(read=prefixed(head, text.read))
        if self._text.seekable:
            return self._text.open_at(self._dialect.start)
        text = self._text.open()
        filled(text.read, self._dialect.start)
        return text

    def _first_text(self, rows: int) -> tuple[bytes, bool]:
        """Text of as many rows, or of SAMPLE bytes, and whether that is all."""
        text = self._from_first_row()
        try:
            head, ended = filled(text.read, HEAD)
            while not ended and len(head) < SAMPLE and head.count(b"\n") <= rows:
                head, ended = filled(text.read, len(head), head)
        except BaseException:
            text.close()
            raise
        if self.rereadable:
            text.close()
        else:
            self._head, self._stream = head, text
        return head, ended

    def _in_order(self, parser: BlockParser) -> Iterator[Chunk]:
        self.bad_rows = self.bytes_read = 0
        text = self._from_first_row()
        try:
            yield from self._numbered(parser, text, None, self._params.max_rows, self._params.threads)
        finally:
            text.close()

    def _fragment(self, parser: BlockParser, offset: int, size: int) -> Iterator[Chunk]:
        read = self._range(offset, offset + size, exact=True)
        return self._numbered(parser, OpenText(read, lambda: None), offset, None, 1)

    def _range(self, start: int, stop: int, *, exact: bool = False) -> Read:
        """Bytes of the rows, counted from the first row's start; `exact`: all of them must be there."""
        place = start

        def read(n: int) -> bytes:
            nonlocal place
            data = self._text.read_at(self._dialect.start + place, min(n, stop - place))
            if exact and not data and place < stop:
                raise DataError(
                    f"{self.name}: the file became shorter while it was read", "read a copy that rests"
                )
            place += len(data)
            return data

        return read

    def _before(self, offset: int, rows: int, lines: int) -> tuple[int, int]:
        """Rows and line ends before a place that has so many before it from a byte on.

        Those before the byte are counted now: when an error in a fragment has to be placed.
        """
        count = BlockParser(replace(self._layout, skip=True), {}, (), ())
        lines += self._dialect.lines
        if offset:
            for block in blocks(self._range(0, offset), self._scanner, BLOCK):
                counted = count(block)
                if isinstance(counted, Rows):
                    rows += counted.features.num_rows
                    lines += counted.lines
        return rows, lines

    def _place(self, block: Block, offset: int, rows: int, lines: int, start: int, row: int) -> str:
        """The line and the number of a row of a chunk that begins `start` rows after its block."""
        row += start
        rows, lines = self._before(offset, rows, lines)
        data = block.data.to_pybytes()
        place, _ = next(islice(rows_of(self._scanner, data, self._layout), row, None))
        return f"line {lines + line_count(data[:place]) + 1} (row {rows + row + 1})"

    def _numbered(
        self, parser: BlockParser, text: OpenText, offset: int | None, limit: int | None, threads: int
    ) -> Iterator[Chunk]:
        """Chunks of the rows of a text: of all of it, or of a fragment `offset` bytes after the first row."""
        rows = lines = 0
        left = limit if limit is not None else 1 << 62

        # Setting up a column costs about as much as parsing it in 64 rows; memory counts too.
        size = max(BLOCK, min(ROWS // 2 * self._dialect.first_end, SAMPLE))
        parsed = ordered_map(parser, blocks(text.read, self._scanner, size, text.back), threads)
        try:
            for block, found in parsed:
                while isinstance(found, Fault):
                    if found.row < left:
                        before = self._before(offset or 0, rows, lines)
                        raise fault_error(found, self.name, self._layout, *before, free=self._free)
                    # Nobody asked for the row at fault, only for rows before it.
                    block = block._replace(data=block.data.slice(0, found.offset))
                    found = parser(block)
                self._account(block, found, offset, rows)
                place = partial(self._place, block, offset or 0, rows, lines)
                yield from self._sliced(found, rows if offset is None else None, left, place)
                n = found.features.num_rows
                rows, lines, left = rows + n, lines + found.lines, left - n
                if left <= 0:
                    return
        except UnclosedQuote as error:
            before = self._before(offset or 0, rows, lines)
            raise open_quote(self.name, before[1] + error.lines + 1) from None
        except RecordTooLong:
            raise too_long(self.name, self._before(offset or 0, rows, lines)[1] + 1) from None
        except pa.ArrowException as error:
            raise unparsed(self.name, self._before(offset or 0, rows, lines)[0], error) from error
        finally:
            parsed.close()

    def _count(self, n: int) -> None:
        self.bytes_read += n

    def _account(self, block: Block, found: Rows, offset: int | None, rows: int) -> None:
        if offset is not None:
            self._count(block.data.size)
        if block.nul and not any("NUL" in note for note in self.notes):
            after = f" after row {rows}" if offset is None else ""
            self.notes.append(f"{self.name}: NUL bytes{after}: the file may be damaged (a crash leaves them)")

    def _sliced(
        self, found: Rows, first: int | None, left: int, place: Callable[[int, int], str]
    ) -> Iterator[Chunk]:
        total = min(found.features.num_rows, left)
        for start in range(0, total, self._params.batch_rows):
            n = min(self._params.batch_rows, total - start)
            bad = None if found.bad is None else found.bad[start : start + n]
            if bad is not None:
                count = int(bad.sum())
                self.bad_rows += count
                bad = bad if count else None
            kept = None if found.kept is None else found.kept.slice(start, n)
            origin = (self.name, None if first is None else first + start)
            yield Chunk(found.features.slice(start, n), kept, bad, origin, partial(place, start))


def open_part(file: Stored, params: SourceParams) -> CsvPart:
    """A reader of one file, as `formats.py` names it."""
    part = CsvPart(file.name, file.stream, params, file.rereadable, file.path, brief=file.many)
    part.size = file.size if part.size is None else part.size
    return part


def _size(path: str, name: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise cannot_read(name, error) from error


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in schema}
