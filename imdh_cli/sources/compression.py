"""Bytes as stored -> bytes as written: gzip, zstd and bzip2, told by their first bytes, never by a suffix.

A plain file called `.gz` is read as it is; gzip of several members, as `cat a.gz b.gz` makes, is read
whole. What cannot be read here (xz, zip, ...) is refused by name.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow as pa

from imdh_cli import formats
from imdh_cli.errors import DataError
from imdh_cli.sources.signatures import CODECS, codec_of, is_text, refuse

Read = Callable[[int], bytes]  # up to so many bytes; none at the end only
HEAD = 512  # bytes that are enough to tell; a tar archive says so at 257
_STEP = 1 << 20


class Counted:
    """A binary file; `count` is told of all bytes taken, and bytes can be looked at before that."""

    def __init__(self, file: BinaryIO, name: str, count: Callable[[int], None]) -> None:
        self.file = file
        self.name = name
        self.count = count
        self.closed = False
        self._ahead = b""

    def peek(self, n: int) -> bytes:
        """The next `n` bytes, or all there are; they stay unread."""
        while len(self._ahead) < n:
            more = self._take(n - len(self._ahead))
            if not more:
                break
            self._ahead += more
        return self._ahead[:n]

    def read(self, n: int) -> bytes:
        """Up to `n` bytes; none at the end only."""
        if self._ahead:
            data, self._ahead = self._ahead[:n], self._ahead[n:]
            return data
        return self._take(n)

    def _take(self, n: int) -> bytes:
        try:
            data = self.file.read(n)
        except OSError as error:
            raise cannot_read(self.name, error) from error
        self.count(len(data))
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.file.close()


def unpacked(raw: Counted) -> tuple[Read, str | None]:
    """What to read from, and the codec (None: plain).

    The returned `read(n)` gives up to `n` bytes, none at the end only, and raises DataError for
    compressed data that are damaged or cut short.
    """
    head = raw.peek(HEAD)
    codec = codec_of(head)
    if codec is None:
        refuse(head, raw.name)
        return raw.read, None
    read = by_portions(_zstd(raw) if codec == "zstd" else _members(raw, codec))
    first, _ = filled(read, HEAD)
    refuse(first, raw.name)
    if codec_of(first) is not None:
        raise DataError(f"{raw.name}: compressed twice", "unpack it once first")
    inside = None if is_text(first) else formats.by_magic(first)
    if inside is not None:
        raise DataError(
            f"{raw.name}: this is {inside.a_file} compressed as a whole",
            "unpack it first: it is compressed inside",
        )
    return prefixed(first, read), codec


def prefixed(head: bytes, read: Read) -> Read:
    """`read` as if the bytes of `head` had not been taken from it yet."""
    pending = head

    def again(n: int) -> bytes:
        nonlocal pending
        if not pending:
            return read(n)
        data, pending = pending[:n], pending[n:]
        return data

    return again


def filled(read: Read, n: int, rest: bytes = b"") -> tuple[bytes, bool]:
    """`rest` and `n` more bytes, and whether the end came first. Pipes give less at a time."""
    data = read(n)
    if len(data) == n:
        return (rest + data if rest else data), False
    taken = [rest, data]
    have = len(data)
    while data and have < n:
        data = read(n - have)
        taken.append(data)
        have += len(data)
    # Joining one part alone copies nothing.
    return b"".join(filter(None, taken)), not data


def by_portions(stream: Iterator[bytes]) -> Read:
    """`read(n)` of bytes that come as they like."""
    pending = b""

    def read(n: int) -> bytes:
        nonlocal pending
        while not pending:
            more = next(stream, None)
            if more is None:
                return b""
            pending = more
        data, pending = pending[:n], pending[n:]
        return data

    return read


def _members(raw: Counted, codec: str) -> Iterator[bytes]:
    """What gzip or bzip2 data of one member or more unpack to.

    Arrow's stream stumbles over members of bzip2, and Python's own files are slower, or pass over
    rubbish behind the last member, which may be rows.
    """
    magic = next(magic for magic, name in CODECS if name == codec)
    data = raw.read(_STEP)
    while data:
        if not data.startswith(magic[: len(data)]):
            raise _damaged(raw.name, codec, "something else follows them")
        machine = zlib.decompressobj(31) if codec == "gzip" else bz2.BZ2Decompressor()
        while not machine.eof:
            if not data and getattr(machine, "needs_input", True):
                data = raw.read(_STEP)
            fed = bool(data)
            try:
                out = machine.decompress(data, _STEP)
            except (zlib.error, OSError) as error:
                raise _damaged(raw.name, codec, str(error)) from error
            data = getattr(machine, "unconsumed_tail", b"")
            if out:
                yield out
            elif not fed and not machine.eof:
                raise _cut(raw.name, codec)
        data = machine.unused_data.lstrip(b"\0")  # tapes and some tools fill up with zeros
        while not data:
            data = raw.read(_STEP)
            if not data:
                return
            data = data.lstrip(b"\0")


def _zstd(raw: Counted) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
    while True:
        try:
            data = stream.read(_STEP)
        except OSError as error:
            if "Truncated" in str(error):
                raise _cut(raw.name, "zstd") from error
            raise _damaged(raw.name, "zstd", str(error)) from error
        if not data:
            return
        yield data


def _cut(name: str, codec: str) -> DataError:
    return DataError(
        f"{name}: the {codec} data end too early: the file is cut short", "copy or download it again"
    )


def _damaged(name: str, codec: str, why: str) -> DataError:
    return DataError(f"{name}: the {codec} data are damaged: {why}", "copy or download it again")


def cannot_read(name: str, error: OSError) -> DataError:
    """An error of the system, named."""
    return DataError(
        f"{name}: cannot be read: {error.strerror or error}", "check the path and its permissions"
    )
