"""Named arrays <-> an .npz file, written the same way every time, read as a stranger's.

Writing: entries in the order given, stored, with a fixed date: equal arrays give equal bytes.
Reading trusts nothing: no pickle, no evaluation of headers (a regular expression reads them),
names and sizes settled before an array is allocated, memory bounded by the size of the file.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, BinaryIO, NamedTuple

import numpy as np

from imdh_cli.atomic import AtomicFile, Target, output_errors
from imdh_cli.errors import ModelError

MAX_ENTRIES = 256
MAX_DIRECTORY = 1 << 16  # bytes of a zip's table of contents; MAX_ENTRIES need a third of it
MAX_HEADER = 4096  # bytes of an .npy header; numpy writes 118
MAX_PIPED = 1 << 28  # bytes read of a model that comes through a pipe
FREE_BYTES = 1 << 26  # a compressed file may hold this much, or INFLATION times its size
INFLATION = 20
_BLOCK = 1 << 20
_LARGE = 1 << 30
_DATE = (1980, 1, 1, 0, 0, 0)
_HEADER = re.compile(
    rb"\{'descr': '([<>=|][A-Za-z]\d{0,9})', 'fortran_order': (False|True),"
    rb" 'shape': \((|\d{1,18},|\d{1,18}(?:, \d{1,18}){1,3})\), \} *\n"
)


class Header(NamedTuple):
    """What an array says of itself before its numbers are read."""

    dtype: str  # numpy's short form: "<f8", "<i8", "<U12"
    shape: tuple[int, ...]


def write_arrays(
    path: Target,
    arrays: Mapping[str, np.ndarray],
    *,
    force: bool = False,
    inputs: Sequence[Target] = (),
    mode: int | None = None,
) -> None:
    """Write an .npz whole or not at all, in the order of `arrays`; no object arrays.

    `force`, `inputs`, `mode` and the errors raised are those of `atomic.AtomicFile`.
    """
    with (
        AtomicFile(path, force=force, inputs=inputs, mode=mode) as out,
        output_errors(out.name),
        zipfile.ZipFile(out.file, "w") as archive,
    ):
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy", _DATE)
            entry.external_attr = 0o600 << 16
            entry.create_system = 3  # Unix, wherever it is written
            with archive.open(entry, "w", force_zip64=array.nbytes > _LARGE) as stream:
                np.lib.format.write_array(stream, _plain(array), allow_pickle=False)


class ArrayFile:
    """The arrays of an open .npz: their headers first, their numbers when asked for."""

    def __init__(self, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> None:
        self._archive = archive
        self._entries = entries
        self.headers: dict[str, Header] = {}
        self._starts: dict[str, int] = {}
        for name, entry in entries.items():
            with archive.open(entry) as stream:
                self.headers[name], self._starts[name] = _read_header(stream, name, entry.file_size)

    def read(self, name: str) -> np.ndarray:
        """The array `name`, of the type and shape its header tells."""
        with self._archive.open(self._entries[name]) as stream:
            stream.read(self._starts[name])
            return _read_body(stream, name, self.headers[name])


@contextmanager
def open_arrays(source: Target | BinaryIO) -> Iterator[ArrayFile]:
    """Open an .npz of any origin; only headers are read until arrays are asked for.

    Parameters
    ----------
    source : path, or a binary file that can be sought

    Raises
    ------
    ModelError
        Here or while arrays are read: the file is missing, no zip, damaged, too large for what it
        holds, or holds anything but plain arrays of numbers and text in C order.
    """
    with _opened(source) as file, _zip_errors(), _archive(file) as (archive, entries):
        yield ArrayFile(archive, entries)


@contextmanager
def _opened(source: Target | BinaryIO) -> Iterator[BinaryIO]:
    """A file that can be sought; a pipe is first taken into memory, up to a limit."""
    if not isinstance(source, (str, os.PathLike)):
        yield source
        return
    name = os.fspath(source)
    try:
        with open(name, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file = _from_pipe(file)  # type: ignore[assignment]
            yield file
    except FileNotFoundError as error:
        raise ModelError("no such file", "imdh fit DATA -o MODEL makes one") from error
    except IsADirectoryError as error:
        raise ModelError("is a folder, not a model file", "name the file that imdh fit -o wrote") from error
    except OSError as error:
        said = f"cannot be read: {error.strerror or error}"
        raise ModelError(said, "check the path and its permissions") from error


def _from_pipe(pipe: BinaryIO) -> BinaryIO:
    start = pipe.read(4)
    if start != b"PK\x03\x04":
        raise ModelError(*_NOT_A_MODEL)
    content = start + pipe.read(MAX_PIPED)
    if len(content) > MAX_PIPED:
        raise ModelError("too large to be read from a pipe", "save it to a file first")
    return io.BytesIO(content)


_NOT_A_MODEL = ("not a model file", "a model is what imdh fit -o MODEL.npz writes")


@contextmanager
def _zip_errors() -> Iterator[None]:
    """Whatever the zip reader says of a damaged file, as one ModelError."""
    try:
        yield
    except ModelError:
        raise
    except zipfile.BadZipFile as error:
        raise ModelError(f"damaged: {_one_line(error)}", "copy the file again") from error
    except (EOFError, zlib.error, struct.error, OSError, IndexError, KeyError) as error:
        raise ModelError(f"damaged: {_one_line(error)}", "copy the file again") from error
    # RuntimeError: what zipfile does not read, such as newer versions, patched data, strong encryption.
    # ValueError: names that are no UTF-8, offsets of 2^63; OverflowError: these in a model from a pipe.
    # MemoryError: arrays that the file does hold and the machine has no room for.
    except (RuntimeError, ValueError, OverflowError, MemoryError) as error:
        raise ModelError(f"cannot be read: {_one_line(error)}") from error


@contextmanager
def _archive(file: BinaryIO) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":
        raise ModelError(*_NOT_A_MODEL)
    size = file.seek(0, os.SEEK_END)
    guarded = _Guarded(file)
    with zipfile.ZipFile(guarded) as archive:
        guarded.limit = None
        yield archive, _entries(archive, size)


def _entries(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The arrays' entries by name; their number, names and sizes are settled here."""
    entries: dict[str, zipfile.ZipInfo] = {}
    packed = unpacked = 0
    for entry in archive.infolist():
        name = entry.filename.removesuffix(".npy")
        if name == entry.filename or not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
            raise ModelError(f"holds {entry.filename[:80]!r}, which is no array of a model")
        if name in entries:
            raise ModelError(f"holds {name} twice")
        if entry.flag_bits & 0x1:
            raise ModelError(f"{name} is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ModelError(f"{name} is compressed by a method that models do not use")
        if entry.compress_type == zipfile.ZIP_STORED and entry.compress_size != entry.file_size:
            raise ModelError(f"damaged: {name} has two sizes")
        entries[name] = entry
        packed += entry.compress_size
        unpacked += entry.file_size
    if len(entries) > MAX_ENTRIES:
        raise ModelError(f"holds {len(entries)} arrays")
    if packed > size:  # entries that share bytes: the oldest trick of a zip bomb
        raise ModelError(f"damaged: {size} bytes cannot hold the {packed} its parts claim")
    if unpacked > size and unpacked > max(FREE_BYTES, INFLATION * size):
        raise ModelError(f"{size} bytes that unpack to {unpacked}: refused as a zip bomb")
    return entries


def _read_header(stream: IO[bytes], name: str, size: int) -> tuple[Header, int]:
    """The header of an .npy entry and the offset of its numbers; the entry must hold just these."""
    start = stream.read(10)
    if len(start) < 10 or start[:6] != b"\x93NUMPY":
        raise ModelError(f"{name} is no .npy array")
    if start[6:8] != b"\x01\x00":
        raise ModelError(f"{name} is an .npy array of version {start[6]}.{start[7]}")
    length = int.from_bytes(start[8:10], "little")
    if length > MAX_HEADER:
        raise ModelError(f"{name} has a header of {length} bytes")
    text = stream.read(length)
    found = _HEADER.fullmatch(text)
    if len(text) < length or found is None:
        raise ModelError(f"{name} has a header that cannot be read")
    dtype = found[1].decode("ascii")
    if dtype.startswith("|O"):
        raise ModelError(f"{name} holds Python objects, which are never loaded")
    if found[2] == b"True":
        raise ModelError(f"{name} is in Fortran order")
    shape = tuple(int(n) for n in found[3].split(b",") if n.strip())
    if not re.fullmatch(r"<[iu][248]|<f[48]|\|[bui]1|<U\d{1,8}", dtype):
        raise ModelError(f"{name} has the type {dtype}, which models do not use")
    each = 4 * int(dtype[2:]) if dtype.startswith("<U") else np.dtype(dtype).itemsize
    claimed = math.prod(shape) * each
    if claimed != size - 10 - length:
        raise ModelError(f"damaged: {name} claims {claimed} bytes and has {size - 10 - length}")
    return Header(dtype, shape), 10 + length


def _read_body(stream: IO[bytes], name: str, header: Header) -> np.ndarray:
    array = np.empty(header.shape, np.dtype(header.dtype))
    if array.nbytes:
        room = array.reshape(-1).view(np.uint8)
        filled = 0
        while filled < len(room):
            block = stream.read(min(_BLOCK, len(room) - filled))
            if not block:
                raise ModelError(f"damaged: {name} is cut short")
            room[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
            filled += len(block)
    if stream.read(1):  # also makes the zip reader compare the checksum
        raise ModelError(f"damaged: {name} is longer than it says")
    return array


def _plain(array: np.ndarray) -> np.ndarray:
    """C order, little-endian: the form every model has on every machine."""
    array = np.asarray(array, order="C")
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


class _Guarded:
    """A file whose single reads are limited while the zip reader takes in the table of contents."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.limit: int | None = 2 * MAX_DIRECTORY
        self.seek, self.tell = file.seek, file.tell
        self.seekable = lambda: True

    def read(self, size: int = -1) -> bytes:
        if self.limit is None:
            return self._file.read(size)
        if size > self.limit:
            raise ModelError("has a table of contents too long for a model")
        got = self._file.read(self.limit + 1 if size < 0 else size)
        if len(got) > self.limit:
            raise ModelError("has a table of contents too long for a model")
        return got
