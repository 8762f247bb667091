"""Arrow IPC files (`.arrow`, Feather version 2) and streams -> record batches of the asked columns.

A file is memory-mapped, so that a single huge record batch is used where it lies. Mapped pages count as
memory of the process until they are unmapped, so the file is mapped anew after every WINDOW bytes: of a
file of 480 MB in one batch, 250 MB of them asked for, the process then holds 64 MB and not all.

A stream is read from front to back; a file that comes through a pipe is read as the stream that it holds
inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from struct import error as StructError
from struct import unpack_from
from typing import BinaryIO, cast

import pyarrow as pa

from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import (
    BROKEN,
    Chunk,
    Fragment,
    check_columns,
    chunks_of,
    first_rows,
    one_of_each,
    pandas_index,
)
from imdh_cli.sources.file import Stored, peeked
from imdh_cli.sources.nested import cells_per_row
from imdh_cli.workers import prefetch

MAGIC = b"ARROW1"
CONTINUATION = b"\xff\xff\xff\xff"  # a stream begins with
WINDOW = 64 << 20  # bytes that are mapped and looked at before they are let go


class ArrowPart:
    """One Arrow IPC file; the attributes are those of `base.Reader`.

    Parameters
    ----------
    file : Stored
        With a `random`.
    """

    format = "arrow"
    typed = True
    parallel_fragments = False
    rereadable = True
    bad_rows = 0

    def __init__(self, file: Stored, params: SourceParams) -> None:
        self.name = file.name
        self.size = file.size
        self.notes: list[str] = []
        self.bytes_read = 0
        self._path = file.path
        self._random = cast(Callable[[], pa.NativeFile], file.random)
        self._broken = file.broken
        self._params = params
        try:
            with self._open() as opened:
                reader = pa.ipc.open_file(opened)
                self._batches: int = reader.num_record_batches
                self._lies_open = file.path is not None and not _is_packed(opened)
                self.rows: int | None = _count_rows(reader)
                self.id_columns = pandas_index(reader.schema)
                self._stored = reader.schema.remove_metadata()
                self.schema: pa.Schema
                self.schema, self.repeated = one_of_each(self._stored)
        except BROKEN as error:
            raise self._broken("Arrow", error) from error

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        check_columns([*features, *keep], self.schema.names, self.name)
        self.bytes_read = 0
        chunks = self._read(features, keep, range(self._batches))
        return prefetch(chunks) if self._params.threads > 1 else chunks

    def fragments(self, features: Sequence[str]) -> list[Fragment]:
        """One fragment for each record batch that has rows."""
        check_columns(features, self.schema.names, self.name)
        fragments = []
        for i, (at, rows) in enumerate(self._places()):
            size = 8 * rows * cells_per_row(self.schema, features)
            held = min(size, WINDOW) if self._lies_open else size
            if rows:
                fragments.append(Fragment(rows, size, partial(self._read, features, (), [i], at), held))
        return fragments

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        return first_rows(self._read(names, (), range(self._batches)), self.schema, names, rows)

    def close(self) -> None:
        """Nothing is held between readings."""

    def _read(
        self,
        features: Sequence[str],
        keep: Sequence[str],
        batches: Sequence[int],
        row: int = 0,
    ) -> Iterator[Chunk]:
        take = _Take(self._stored, features, keep)
        # Where a column need not be unpacked it costs nothing to have it, and pyarrow makes room for
        # all of a batch when it is to take some columns of it.
        options = pa.ipc.IpcReadOptions() if self._lies_open else take.options
        try:
            for batch in self._windows(batches, options):
                _check(batch, sorted(set().union(*take.places(batch))))
                yield from take(batch, self._params.batch_rows, self.name, row)
                row += batch.num_rows
                self.bytes_read += (self.size or 0) * batch.num_rows // max(self.rows or 0, 1)
        except BROKEN as error:
            raise self._broken("Arrow", error) from error

    def _windows(self, batches: Sequence[int], options: pa.ipc.IpcReadOptions) -> Iterator[pa.RecordBatch]:
        """The record batches, in slices that do not share a mapping for long."""
        reader, mapped = None, 0
        for i in batches:
            start, rest = 0, 1
            while rest > 0:
                if reader is None or mapped >= WINDOW:
                    reader, mapped = pa.ipc.open_file(self._open(), options=options), 0
                batch = reader.get_batch(i)
                # Not nbytes, which follows offsets that have not been checked yet.
                wide = max(1, batch.get_total_buffer_size() // max(1, batch.num_rows))
                rows = max(1, WINDOW // wide) if self._lies_open else batch.num_rows
                part = batch.slice(start, rows)
                start, rest = start + rows, batch.num_rows - start - rows
                mapped += wide * part.num_rows
                del batch
                yield part
                del part

    def _open(self) -> pa.NativeFile:
        if self._path is not None:
            return pa.memory_map(os.fsencode(self._path))
        return self._random()

    def _places(self) -> list[tuple[int, int]]:
        """First row and number of rows of each record batch; one column is looked at."""
        places, at = [], 0
        try:
            with self._open() as opened:
                one = pa.ipc.IpcReadOptions(included_fields=[0])
                reader = pa.ipc.open_file(opened, options=one)
                for i in range(self._batches):
                    rows = reader.get_batch(i).num_rows
                    places.append((at, rows))
                    at += rows
        except BROKEN as error:
            raise self._broken("Arrow", error) from error
        return places


class ArrowStreamPart:
    """One Arrow IPC stream, or a file in a pipe; the attributes are those of `base.Reader`."""

    format = "arrow"
    typed = True
    parallel_fragments = False
    bad_rows = 0
    rows: int | None = None

    def __init__(self, file: Stored, params: SourceParams) -> None:
        self.name = file.name
        self.size = file.size
        self.rereadable = file.rereadable
        self.notes: list[str] = []
        self.bytes_read = 0
        self._stream = file.stream
        self._broken = file.broken
        self._params = params
        self._begun: Iterator[pa.RecordBatch] | None = None  # a stream that is read once
        self._sampled: list[pa.RecordBatch] = []  # its first batches, to be served again
        schema, batches = self._open()
        if not self.rereadable:
            self._begun = batches
        try:
            self.id_columns = pandas_index(schema)
            self._stored = schema.remove_metadata()
            self.schema: pa.Schema
            self.schema, self.repeated = one_of_each(self._stored)
        except BROKEN as error:
            raise self._broken("Arrow", error) from error

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        check_columns([*features, *keep], self.schema.names, self.name)
        self.bytes_read = 0
        chunks = self._read(features, keep)
        return prefetch(chunks) if self._params.threads > 1 else chunks

    def fragments(self, features: Sequence[str]) -> None:
        """A stream has no fragments that can be read alone."""
        return

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        if self.rereadable:
            source, self._sampled = self._open()[1], []
        else:
            source = self._begun or iter(())
        have = sum(b.num_rows for b in self._sampled)
        while have < rows and (batch := next(source, None)) is not None:
            self._sampled.append(batch)
            have += batch.num_rows
        table = pa.Table.from_batches(self._sampled) if self._sampled else self._stored.empty_table()
        if self.rereadable:
            self._sampled = []
        return table.select(names).slice(0, rows).replace_schema_metadata(None)

    def close(self) -> None:
        self._begun, self._sampled = None, []

    def _read(self, features: Sequence[str], keep: Sequence[str]) -> Iterator[Chunk]:
        take = _Take(self._stored, features, keep)
        row = 0
        for batch in self._all():
            self.bytes_read += batch.nbytes
            yield from take(batch, self._params.batch_rows, self.name, row)
            row += batch.num_rows

    def _all(self) -> Iterator[pa.RecordBatch]:
        if self.rereadable:
            yield from self._open()[1]
            return
        if self._begun is None:
            raise DataError(f"{self.name}: a stream can be read once", "write it to a file first")
        source, self._begun = self._begun, None
        while self._sampled:
            yield self._sampled.pop(0)
        yield from source

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        head, file = peeked(self._stream())
        inside = head.startswith(MAGIC)
        try:
            if inside:
                file.read(8)  # the magic and its padding; a stream follows, then the footer
            stream = pa.ipc.open_stream(pa.PythonFile(file))
            return stream.schema, self._iterate(stream, file, inside)
        except BROKEN as error:
            file.close()
            raise self._broken("Arrow", error) from error

    def _iterate(
        self, stream: pa.RecordBatchReader, file: BinaryIO, inside: bool
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in stream:
                _check(batch, range(batch.num_columns))
                yield batch
            tail = b""
            while inside and (block := file.read(1 << 16)):
                tail = (tail + block)[-len(MAGIC) :]
            if inside and tail != MAGIC:
                raise ValueError("it ends before its footer")
        except BROKEN as error:
            raise self._broken("Arrow", error) from error
        finally:
            file.close()


def open_part(file: Stored, params: SourceParams) -> ArrowPart | ArrowStreamPart:
    """A reader of one file, as `formats.py` names it."""
    is_stream = file.head.startswith(CONTINUATION) or (
        file.name.lower().endswith(".arrows") and not file.head.startswith(MAGIC)
    )
    return ArrowStreamPart(file, params) if is_stream or file.random is None else ArrowPart(file, params)


def _check(batch: pa.RecordBatch, columns: Sequence[int]) -> None:
    """Raise ArrowInvalid for damage: the buffers of a damaged file may point anywhere.

    Offsets and dictionary indices are checked one by one, which takes as long as reading them once.
    """
    for i in columns:
        column = batch.column(i)
        column.validate(full=not pa.types.is_primitive(column.type))


def _is_packed(file: pa.NativeFile) -> bool:
    """Whether the record batches are compressed; also when that cannot be told.

    pyarrow does not say. The first record batch's message is a FlatBuffer: a table points back to its
    list of fields, and the header's fourth field is there when there is compression.
    """
    try:
        file.seek(8)
        for message in pa.ipc.MessageReader.open_stream(file):
            if message.type == "record batch":
                data = memoryview(message.metadata)
                (root,) = unpack_from("<I", data, 0)
                header = root + _field(data, root, 2)
                header += unpack_from("<I", data, header)[0]
                return _field(data, header, 3) != 0
    except (*BROKEN, StructError):
        pass
    return True


def _field(data: memoryview, table: int, number: int) -> int:
    """Where a FlatBuffer table has a field, from the table on; 0: it has not."""
    fields = table - unpack_from("<i", data, table)[0]
    (size,) = unpack_from("<H", data, fields)
    at = 4 + 2 * number
    return int(unpack_from("<H", data, fields + at)[0]) if at < size else 0


class _Take:
    """A batch -> chunks of the asked columns, at most so many rows each."""

    def __init__(self, schema: pa.Schema, features: Sequence[str], keep: Sequence[str]) -> None:
        self._features, self._keep = list(features), list(keep)
        fields = sorted(schema.get_field_index(name) for name in {*features, *keep})
        # No field at all would mean all of them.
        self.options = pa.ipc.IpcReadOptions(included_fields=fields or [0], use_threads=False)
        self._places: tuple[list[int], list[int]] | None = None

    def places(self, batch: pa.RecordBatch) -> tuple[list[int], list[int]]:
        """Of the features and of what is passed through, found once."""
        if self._places is None:
            find = batch.schema.get_field_index
            self._places = [find(n) for n in self._features], [find(n) for n in self._keep]
        return self._places

    def __call__(self, batch: pa.RecordBatch, rows: int, name: str, row: int) -> Iterator[Chunk]:
        left, right = self.places(batch)
        return chunks_of(batch, left, right, rows, (name, row))


def _count_rows(reader: pa.RecordBatchReader) -> int:
    if hasattr(reader, "count_rows"):
        return int(reader.count_rows())
    return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
