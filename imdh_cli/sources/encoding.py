"""Bytes in any encoding -> UTF-8 bytes, so that one parser and one scanner see them.

Three ways, told apart by `kind`:

- "utf-8": nothing to do; blocks are validated as they are parsed.
- "single": one byte is one character and ASCII means ASCII (latin-1, cp1252, ...). Line ends and quotes
  are found in the file's own bytes; each block is converted where it is parsed, in its thread.
- "stream": everything else (UTF-16, Shift-JIS, ...). Converted from the front while reading.

A byte that does not decode is found by the parser wherever it stands: a stream puts `MARK`, which is
never valid UTF-8, in its place.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from imdh_cli.errors import UsageError
from imdh_cli.sources.compression import Read, by_portions

MARK = b"\xff"
_STEP = 1 << 20
# The longer mark first: UTF-32's little-endian one begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Encoding:
    """name : as Python's codecs know it; kind : "utf-8", "single" or "stream"."""

    name: str
    kind: str


def encoding_of(name: str) -> Encoding:
    """The encoding of a name.

    Raises
    ------
    UsageError
        For a name that is no text encoding.
    """
    try:
        info = codecs.lookup(name)
        "".encode(info.name)  # a LookupError for what is no text encoding (base64, rot13)
        if info.incrementaldecoder is None:
            raise LookupError(name)
    except (LookupError, ValueError, UnicodeError) as error:
        raise UsageError(
            f"--encoding {name}: no such text encoding", "for example utf-8, latin-1, cp1252, utf-16"
        ) from error
    if info.name in ("utf-8", "utf-8-sig"):
        return Encoding("utf-8", "utf-8")
    return Encoding(info.name, "single" if _single(info.name) else "stream")


def _single(name: str) -> bool:
    """Whether one byte is always one character, and an ASCII byte the ASCII character."""
    try:
        if bytes(range(128)).decode(name) != "".join(map(chr, range(128))):
            return False
        return all(len(_first(name, byte)) == 1 for byte in range(128, 256))
    except (UnicodeError, LookupError):
        return False


def _first(name: str, byte: int) -> str:
    return codecs.getincrementaldecoder(name)("replace").decode(bytes([byte]), final=False)


def byte_order_mark(head: bytes) -> tuple[str, int] | None:
    """The encoding that a byte order mark tells, and the mark's length."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name, len(mark)
    return None


def looks_like_utf16(head: bytes) -> str | None:
    """The UTF-16 that every other byte being NUL tells, for a file without a mark."""
    sample = head[:1000]
    half = len(sample) // 2
    if half < 2:
        return None
    if sample[1::2].count(0) > 0.6 * half and sample[0::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if sample[0::2].count(0) > 0.6 * half and sample[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None


def converted(read: Read, encoding: str) -> Read:
    """UTF-8 bytes from those in `encoding`; what does not decode becomes MARK."""
    return by_portions(_converted(read, encoding))


def _converted(read: Read, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(_MARKED)
    try:
        while data := read(_STEP):
            yield decoder.decode(data).encode("utf-8", _MARKED)
        yield decoder.decode(b"", final=True).encode("utf-8", _MARKED)
    except UnicodeError:  # what a codec cannot go on from
        yield MARK


def to_utf8(data: pa.Buffer, encoding: Encoding) -> pa.Buffer:
    """A block in a single-byte encoding -> UTF-8; UnicodeDecodeError where it does not decode."""
    return pa.py_buffer(data.to_pybytes().decode(encoding.name).encode())


def check_utf8(data: pa.Buffer) -> None:
    """Raise UnicodeDecodeError with the place of the first byte that is not UTF-8.

    Arrow's validation lets go of the interpreter and takes 0.06 ms per MB of ASCII.
    """
    offsets = pa.py_buffer((0).to_bytes(8, "little") + data.size.to_bytes(8, "little"))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, data]).validate(full=True)
    except pa.ArrowInvalid:
        data.to_pybytes().decode("utf-8")
        raise  # not reached: Python and Arrow agree on what is UTF-8


def _mark(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    assert isinstance(error, UnicodeEncodeError)
    return MARK, error.end


_MARKED = "imdh-mark"
codecs.register_error(_MARKED, _mark)
