"""One file or stream, wherever it is: its first bytes, and how to open it."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

import pyarrow as pa

from imdh_cli.errors import DataError
from imdh_cli.sources.discover import Location

HEAD = 1024  # bytes looked at to tell a format
Explain = Callable[[BaseException], DataError | None]


@dataclass(frozen=True)
class Stored:
    """What the readers of all formats need to know of a file.

    name : as a person would name it.
    head : its first bytes.
    size : in bytes; None for a stream.
    stream : a binary file from the start; called once when not `rereadable`.
    random : a seekable pyarrow file; None when there is no such thing.
    path : on this machine.
    keys : the `key=value` folders it lies in.
    remote : each seek costs a round trip.
    stamp : size and time of the last change of a file of this machine, before anything was read.
    explain : an error of the place, not of the file, in words; None for one of the file.
    few, many : one of few files, which can as well stay open; one of many, to be looked at briefly.
    """

    name: str
    head: bytes
    size: int | None
    stream: Callable[[], BinaryIO]
    random: Callable[[], pa.NativeFile] | None
    rereadable: bool = True
    path: str | None = None
    keys: tuple[tuple[str, str | None], ...] = ()
    remote: bool = False
    stamp: tuple[int, int] | None = None
    explain: Explain | None = None
    few: bool = False
    many: bool = False

    def broken(self, kind: str, error: BaseException) -> DataError:
        """What went wrong while reading, on one line and with the file's name."""
        elsewhere = self.explain(error) if self.explain is not None else None
        if elsewhere is not None:
            return elsewhere
        said = str(error).strip().splitlines() or [type(error).__name__]
        return DataError(
            f"{self.name}: not a readable {kind} file: {said[0].rstrip('.')}",
            "it may be cut short or damaged: write it again, or leave it out",
        )


def stored_here(file: Location) -> Stored:
    """A file or pipe of this machine, or standard input.

    Raises
    ------
    DataError
        When it cannot be opened.
    """
    try:
        return _stream(file) if file.stream else _file(file, cast(str, file.path))
    except OSError as error:
        raise DataError(
            f"{file.name}: cannot be read: {error.strerror or error}",
            "check the path and its permissions",
        ) from error


def _file(file: Location, path: str) -> Stored:
    stamp = stamp_of(path)
    with open(path, "rb") as opened:
        head = opened.read(HEAD)
    return Stored(
        file.name,
        head,
        os.path.getsize(path),
        lambda: open(path, "rb"),
        lambda: pa.OSFile(os.fsencode(path)),  # a name need not be UTF-8
        path=path,
        keys=file.keys,
        stamp=stamp,
    )


def stamp_of(path: str) -> tuple[int, int]:
    """What changes when a file is written to: its size and the time of its last change."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def changed(file: Stored) -> DataError | None:
    """The error for a file that is not what it was when it was opened; None when it is."""
    if file.path is None or file.stamp is None:
        return None
    try:
        now = stamp_of(file.path)
    except OSError:
        now = None
    if now == file.stamp:
        return None
    what = "was taken away" if now is None else "changed"
    return DataError(f"{file.name}: the file {what} while it was read", "read a copy that rests")


def _stream(file: Location) -> Stored:
    raw = sys.stdin.buffer if file.path is None else open(file.path, "rb")  # noqa: SIM115
    head, stream = peeked(cast(BinaryIO, raw))
    return Stored(file.name, head, None, lambda: stream, None, rereadable=False, keys=file.keys)


def spooled(file: Stored, what: str) -> tuple[Stored, str]:
    """A stream as a temporary file that has no name and ends with the program; and a note on that.

    what : its format, for the note.

    Raises
    ------
    DataError
        When there is no room for it.
    """
    try:
        copy = _Unnamed()
        stream = file.stream()
        with open(copy.fd, "wb", closefd=False) as out:
            while block := stream.read(1 << 20):
                out.write(block)
            size = out.tell()
    except OSError as error:
        raise DataError(
            f"{file.name}: could not be written to a temporary file in {tempfile.gettempdir()}: "
            f"{error.strerror or error}",
            "set TMPDIR to a folder with room, or write the stream to a file and name that",
        ) from error
    note = (
        f"{file.name}: {what} cannot be read from front to back, so the stream was first "
        f"written to a temporary file ({size / 1e6:.1f} MB)"
    )

    def opened() -> pa.NativeFile:
        return pa.OSFile(f"/dev/fd/{copy.fd}")

    return replace(file, size=size, random=opened, rereadable=True, remote=False), note


class _Unnamed:
    """A temporary file without a name: it is gone when nobody holds it, however the program ends."""

    fd = -1

    def __init__(self) -> None:
        self.fd, name = tempfile.mkstemp(prefix="imdh-")
        os.unlink(name)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def peeked(stream: BinaryIO) -> tuple[bytes, BinaryIO]:
    """The first bytes of a stream, and the stream as if nothing had been read."""
    head = b""
    while len(head) < HEAD:
        block = stream.read(HEAD - len(head))
        if not block:
            break
        head += block
    return head, cast(BinaryIO, io.BufferedReader(_Again(head, stream), 1 << 16))


class _Again(io.RawIOBase):
    """Bytes already read, then the rest of the stream."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = memoryview(head)
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        if self._head:
            n = min(len(buffer), len(self._head))
            buffer[:n] = self._head[:n]
            self._head = self._head[n:]
            return n
        read = getattr(self._rest, "readinto1", None) or self._rest.readinto  # type: ignore[attr-defined]
        return read(buffer) or 0

    def close(self) -> None:
        if not self.closed:
            self._rest.close()
        super().close()
