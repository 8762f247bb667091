"""A path, a folder, a stream or a URI -> one table, read as record batches in input order.

with closing(open_source(["data/"], SourceParams())) as source:
    for chunk in source.chunks(["x", "y"], keep=["id"]):
        ...
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import BinaryIO, cast

import pyarrow as pa

from imdh_cli.errors import DataError, UsageError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk, Opener, Part, Piece, Reader, Source, check_columns, nearest
from imdh_cli.sources.locate import Location, locate
from imdh_cli.sources.peek import HEAD, peeked, told
from imdh_cli.sources.table import TableSource

__all__ = [
    "Chunk",
    "Opener",
    "Part",
    "Piece",
    "Reader",
    "Source",
    "TableSource",
    "check_columns",
    "nearest",
    "open_source",
]


MANY = 100  # files; of more than these, each is looked at briefly


def open_source(locations: Sequence[str], params: SourceParams) -> TableSource:
    """Everything the arguments name, as one table.

    The format is told by `params.format`, else by a file's first bytes, else by its suffix.

    Raises
    ------
    DataError
        For an input that is missing, empty, damaged or of another kind, by name.
    UsageError
        For arguments that contradict each other.
    """
    if not locations:
        raise UsageError("no input was named", "name a file, a folder, or - for stdin")
    located = locate(locations, params.format)
    notes = list(located.notes)
    readers: list[Reader] = []
    try:
        for file in located.files:
            readers.append(_reader(file, params, notes, len(located.files)))
    except BaseException:
        for reader in readers:
            reader.close()
        raise
    return TableSource(readers, [dict(f.keys) for f in located.files], params, notes)


def _reader(file: Location, params: SourceParams, notes: list[str], files: int) -> Reader:
    if file.uri is not None:
        raise UsageError(f"{file.name}: cannot be read yet")
    if file.stream:
        return _stream_reader(file, params, notes)
    path = cast(str, file.path)
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as opened:
            head = opened.read(HEAD)
    except OSError as error:
        raise DataError(
            f"{file.name}: cannot be read: {error.strerror or error}",
            "check the path and its permissions",
        ) from error
    kind = told(head, file.name, params.format)
    if size == 0 and (kind != "csv" or files > 1):
        raise DataError(f"{file.name}: the file is empty (0 bytes)", "leave it out")
    if kind == "parquet":
        from imdh_cli.sources.parquet_file import ParquetPart

        return ParquetPart(file.name, lambda: pa.memory_map(path), params, size=size)
    if kind != "csv":
        from imdh_cli.sources.arrow_file import ArrowPart, ArrowStreamPart

        if kind == "arrow":
            return ArrowPart(file.name, lambda: pa.memory_map(path), params, size=size)
        return ArrowStreamPart(file.name, lambda: open(path, "rb"), params, rereadable=True, size=size)
    from imdh_cli.sources.csv_file import CsvPart

    return CsvPart(file.name, lambda: open(path, "rb"), params, True, path, brief=files > MANY)


def _stream_reader(file: Location, params: SourceParams, notes: list[str]) -> Reader:
    raw = cast(BinaryIO, sys.stdin.buffer if file.path is None else open(file.path, "rb"))  # noqa: SIM115
    head, stream = peeked(raw)
    kind = told(head, file.name, params.format)
    if kind == "parquet":
        from imdh_cli.sources.parquet_file import ParquetPart

        spooled, size = _spool(stream, file.name)
        notes.append(
            f"{file.name}: Parquet cannot be read from front to back, so the stream was first "
            f"written to a temporary file ({size / 1e6:.1f} MB)"
        )
        return ParquetPart(file.name, lambda: pa.memory_map(f"/dev/fd/{spooled.fileno()}"), params, size=size)
    if kind != "csv":
        from imdh_cli.sources.arrow_file import ArrowStreamPart

        return ArrowStreamPart(file.name, lambda: stream, params, rereadable=False)
    from imdh_cli.sources.csv_file import CsvPart

    return CsvPart(file.name, lambda: stream, params, False, None)


def _spool(stream: BinaryIO, name: str) -> tuple[BinaryIO, int]:
    """A stream as a temporary file that has no name and goes away with this program."""
    spooled = tempfile.TemporaryFile(prefix="imdh-")  # noqa: SIM115
    try:
        while block := stream.read(1 << 20):
            spooled.write(block)
        spooled.flush()
    except OSError as error:
        spooled.close()
        raise DataError(
            f"{name}: could not be written to a temporary file in {tempfile.gettempdir()}: "
            f"{error.strerror or error}",
            "set TMPDIR to a folder with room, or write the stream to a file and name that",
        ) from error
    return cast(BinaryIO, spooled), spooled.tell()
