"""One file or stream of JSON lines -> record batches: a record a line, numbers as float64.

A line end cannot stand within a record, so the text is cut into blocks behind line ends, and pyarrow parses
each with the types given. Only where that fails is the block read again, line by line, to take what pyarrow
does not and to find the first cell at fault.

Rules that are not obvious:

- What a field holds is told from the start of the file and, where it can be sought in, places further on.
  Fields that turn up in none of them are not seen. A field that a record does not have is null.
- Numbers are doubles, true is 1 and false is 0. A text that is a number, or a spelling of a missing one, is
  taken as such where the others are numbers; any other value there is a bad row.
- Fields passed through are text: whole numbers with all their digits, lists and objects as JSON.
- Blank lines are no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise

import pyarrow as pa

from imdh_cli.errors import PIPE, DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk, Fragment, Repeated, check_columns, repeated
from imdh_cli.sources.compression import Read, filled, prefixed
from imdh_cli.sources.csv.dialect import undecodable
from imdh_cli.sources.csv.errors import shown, spent, too_long, word_hint
from imdh_cli.sources.csv.scanner import MAX_RECORD
from imdh_cli.sources.encoding import encoding_of
from imdh_cli.sources.file import Stored
from imdh_cli.sources.jsonl.inference import DOUBLE, Evidence, Record, loads
from imdh_cli.sources.jsonl.parser import Fault, Parser, Rows
from imdh_cli.sources.nulls import Nulls
from imdh_cli.sources.signatures import shell_word
from imdh_cli.sources.text_file import OpenText, TextFile
from imdh_cli.words import quoted
from imdh_cli.workers import ordered_map

BLOCK = 2 << 20  # bytes parsed at a time
HEAD = 1 << 20  # bytes that the types are told from
PLACE = 256 << 10  # bytes looked at in each further place
LEAST, LARGEST = 64 << 10, 1 << 20  # bytes of a fragment
FRAGMENTS, MOST = 64, 4096  # as many where they are not too small, and no more


class JsonPart:
    """One file or stream of JSON lines; the attributes are those of `base.Reader`.

    Raises
    ------
    DataError
        For a first line that is no JSON object.
    """

    format = "jsonl"
    typed = False
    parallel_fragments = True
    id_columns: tuple[str, ...] = ()
    repeated: Repeated = repeated(())  # a record's own fault

    def __init__(self, file: Stored, params: SourceParams) -> None:
        self.name = file.name
        self.size = file.size
        self.rereadable = file.rereadable
        self.rows: int | None = None
        self.notes: list[str] = []
        self.bytes_read = 0
        self.bad_rows = 0
        self._params = params
        self._null_values = params.null_values or ()
        path = file.path if file.rereadable else None
        encoding = encoding_of(params.encoding)
        self._text = TextFile(file.name, file.stream, encoding, self._count, path)
        self._stream: OpenText | None = None  # a stream's text behind `_head`, until it is read
        self._head = b""
        self._fields: dict[str, Evidence] = {}
        self._look(brief=file.many)
        self.schema = pa.schema([(name, seen.type()) for name, seen in self._fields.items()])

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        parser = self._parser(features, keep)
        if not self.rereadable and self._stream is None:
            raise spent(self.name)
        self.bad_rows = self.bytes_read = 0
        return self._in_order(parser)

    def fragments(self, features: Sequence[str]) -> list[Fragment] | None:
        """Byte ranges that end behind line ends; None when the file cannot be sought in."""
        parser = self._parser(features, ())
        if not self._text.seekable or self.size is None or self._params.max_rows is not None:
            return None
        size = self.size - self._text.mark
        step = max(LEAST, min(LARGEST, size // FRAGMENTS), size // MOST)
        edges = [0]
        while edges[-1] < size:
            edges.append(self._line_end(min(edges[-1] + step, size)))
        return [
            Fragment(
                None,
                stop - start,
                partial(self._fragment, parser, start, stop),
                about=round(self._per_byte * (stop - start)),
            )
            for start, stop in pairwise(edges)
        ]

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows of some columns, of HEAD bytes at the least. Faults become nulls."""
        names = self.schema.names if columns is None else list(columns)
        check_columns(names, self.schema.names, self.name)
        text = self._from_start()
        head, ended = filled(text.read, HEAD)
        while not ended and len(head) < 16 * HEAD and head.count(b"\n") <= rows:
            head, ended = filled(text.read, len(head), head)
        if self.rereadable:
            text.close()
        else:
            self._head, self._stream = head, text
        whole = head if ended else head[: head.rfind(b"\n") + 1]
        readable = whole.decode(self._text.charset, "replace").encode()
        parser = replace(self._parser(names, ()), skip=True, encoding=None)
        parsed = parser(readable)
        assert isinstance(parsed, Rows)
        return pa.Table.from_batches([parsed.features.slice(0, rows)])

    def expect(
        self, *, numbers: Iterable[str] = (), texts: Iterable[str] = (), nulls: Iterable[str] = ()
    ) -> None:
        """Read these columns as numbers, or as text, whatever the sample looked like."""
        types = {**dict.fromkeys(numbers, DOUBLE), **dict.fromkeys(texts, pa.string())}
        check_columns(types, self.schema.names, self.name)
        self._null_values = (*self._null_values, *nulls)
        self.schema = pa.schema([(f.name, types.get(f.name, f.type)) for f in self.schema])

    def close(self) -> None:
        """Let go of a stream that was not read."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # -- what is in it

    def _look(self, *, brief: bool) -> None:
        text = self._text.open()
        try:
            head, ended = filled(text.read, HEAD >> 4 if brief else HEAD)
            while not ended and b"\n" not in head.strip() and len(head) <= MAX_RECORD:
                head, ended = filled(text.read, len(head), head)
            self._see(head if ended else head[: head.rfind(b"\n") + 1], first=True)
        except BaseException:
            text.close()
            raise
        self.notes += self._text.notes
        self._per_byte = head.count(b"\n") / max(1, len(head))
        if self.rereadable:
            text.close()
        else:
            self._head, self._stream = head, text
        if not ended and not brief and self._text.seekable and self.size is not None:
            for place in (self.size // 4, self.size // 2, 3 * self.size // 4, self.size - PLACE):
                if place > HEAD:
                    text_there = self._text.read_at(place, PLACE)
                    lines = text_there[text_there.find(b"\n") + 1 : text_there.rfind(b"\n") + 1]
                    self._see(lines, first=False)
        if not self._fields:
            self.rows = 0

    def _see(self, text: bytes, *, first: bool) -> None:
        for k, line in enumerate(text.decode(self._text.charset, "replace").split("\n")):
            if not line.strip():
                continue
            try:
                record = loads(line)
            except (ValueError, RecursionError) as error:
                record = error
            if isinstance(record, Record):
                for name, value in record.items():
                    self._fields.setdefault(name, Evidence()).see(value)
                if record.twice and not self.notes:
                    said = (
                        f"{quoted(sorted(record.twice))} with several values in a record cannot be used there"
                    )
                    self.notes.append(f"{self.name}: {said}")
            elif first:
                raise _no_lines(self.name, k + 1, line)
            first = False

    # -- reading

    def _parser(self, features: Sequence[str], keep: Sequence[str]) -> Parser:
        check_columns((*features, *keep), self.schema.names, self.name)
        return Parser(
            {name: self.schema.field(name).type for name in features},
            tuple(keep),
            {name: seen.stored() for name, seen in self._fields.items()},
            Nulls.of(self._null_values, self.schema.names),
            skip=self._params.on_bad_row == "skip",
            encoding=self._text.encoding if self._text.encoding.kind == "single" else None,
        )

    def _from_start(self) -> OpenText:
        if self.rereadable:
            return self._text.open()
        if self._stream is None:
            raise spent(self.name)
        text, self._stream = self._stream, None
        head, self._head = self._head, b""
        return text._replace(read=prefixed(head, text.read))

    def _in_order(self, parser: Parser) -> Iterator[Chunk]:
        text = self._from_start()
        try:
            yield from self._numbered(parser, text.read, 0, self._params.threads)
        finally:
            text.close()

    def _fragment(self, parser: Parser, start: int, stop: int) -> Iterator[Chunk]:
        place = start

        def read(n: int) -> bytes:
            nonlocal place
            data = self._text.read_at(place, min(n, stop - place))
            place += len(data)
            self._count(len(data))
            return data

        return self._numbered(parser, read, start, 1)

    def _numbered(self, parser: Parser, read: Read, offset: int, threads: int) -> Iterator[Chunk]:
        rows = lines = 0
        left = self._params.max_rows if self._params.max_rows is not None else 1 << 62
        parsed = ordered_map(parser, self._blocks(read), threads)
        try:
            for block, found in parsed:
                if isinstance(found, Fault) and found.row >= left:
                    # Nobody asked for the record at fault, only for records before it.
                    found = parser(b"".join(block.splitlines(keepends=True)[: found.line]))
                if isinstance(found, Fault | UnicodeDecodeError):
                    before = self._lines_before(offset) + lines
                    raise self._error(found, before, rows if not offset else None)
                total = min(found.features.num_rows, left)
                for start in range(0, total, self._params.batch_rows):
                    n = min(self._params.batch_rows, total - start)
                    bad = None if found.bad is None else found.bad[start : start + n]
                    self.bad_rows += 0 if bad is None else int(bad.sum())
                    kept = None if found.kept is None else found.kept.slice(start, n)
                    origin = (self.name, None if offset else rows + start)
                    place = partial(self._place, block, offset, lines, start)
                    yield Chunk(found.features.slice(start, n), kept, bad, origin, place)
                rows, lines, left = rows + total, lines + found.lines, left - total
                if left <= 0:
                    return
        finally:
            parsed.close()

    def _blocks(self, read: Read) -> Iterator[bytes]:
        rest = b""
        while True:
            data, ended = filled(read, max(BLOCK, len(rest)), rest)
            end = len(data) if ended else data.rfind(b"\n") + 1
            if end:
                yield data[:end]
            elif len(data) > MAX_RECORD:
                raise too_long(self.name, 1)
            if ended:
                return
            rest = data[end:]

    def _line_end(self, place: int) -> int:
        """Behind the first line end from a place on; the end of the file when there is none."""
        while data := self._text.read_at(place, 1 << 16):
            found = data.find(b"\n")
            if found >= 0:
                return place + found + 1
            place += len(data)
        return place

    def _lines_before(self, offset: int) -> int:
        """Counted when an error in a fragment has to be placed."""
        return sum(
            self._text.read_at(at, min(BLOCK, offset - at)).count(b"\n") for at in range(0, offset, BLOCK)
        )

    def _place(self, block: bytes, offset: int, lines: int, start: int, row: int) -> str:
        """The line of a row of a chunk that begins `start` records after its block."""
        records = (k for k, line in enumerate(block.split(b"\n")) if line.strip())
        line = next(islice(records, start + row, None))
        return f"line {self._lines_before(offset) + lines + line + 1}"

    def _error(self, fault: Fault | UnicodeDecodeError, lines: int, rows: int | None) -> DataError:
        if isinstance(fault, UnicodeDecodeError):
            line = lines + fault.object.count(b"\n", 0, fault.start) + 1
            return undecodable(f"{self.name}, line {line}", self._text.encoding.name, fault)
        place = f"{self.name}, line {lines + fault.line + 1}"
        if fault.error is not None:
            return DataError(f"{place}: {fault.error}", "mend the line, or add --on-bad-row skip")
        what = f"{place}, column {shown(fault.column)}: {shown(fault.value)} is not a number"
        return DataError(what, word_hint(fault.column, fault.value, free=True))

    def _count(self, n: int) -> None:
        self.bytes_read += n


def open_part(file: Stored, params: SourceParams) -> JsonPart:
    """A reader of one file, as `formats.py` names it."""
    return JsonPart(file, params)


def _no_lines(name: str, line: int, text: str) -> DataError:
    """The error for a file whose first line is no record."""
    start = text.lstrip()
    if start.startswith("["):
        return DataError(
            f"{name}: a JSON array, and not a record a line", f"jq -c '.[]' {shell_word(name)} {PIPE}"
        )
    if start.startswith("{"):
        return DataError(
            f"{name}: JSON over several lines, and not a record a line", f"jq -c . {shell_word(name)} {PIPE}"
        )
    return DataError(f"{name}, line {line}: no JSON object", 'write a record a line: {"x": 1, "y": 2}')
