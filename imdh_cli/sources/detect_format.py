"""The first bytes of a file or stream -> its format; other known formats are refused by name."""

from __future__ import annotations

import io
from typing import BinaryIO, Literal, cast

from imdh_cli.errors import DataError
from imdh_cli.sources.compression import codec_of, refuse
from imdh_cli.sources.encoding import byte_order_mark

HEAD = 1024  # bytes looked at
Format = Literal["csv", "parquet", "arrow", "arrow stream"]

# first bytes, what they are, what to do about it
FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"FEA1", "a Feather file of version 1", "write it again with pyarrow.feather.write_feather"),
    (b"PARE", "an encrypted Parquet file", "decrypt it first"),
    (b"ORC", "an ORC file", "convert it to Parquet, for example with DuckDB or Spark"),
    (b"Obj\x01", "an Avro file", "convert it to Parquet, for example with DuckDB or Spark"),
    (b"SQLite format 3\0", "an SQLite database", "export a table as CSV: sqlite3 -csv -header"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "export the table to Parquet, for example with pandas"),
    (b"\x93NUMPY", "a NumPy array", "save it as Parquet, for example with pandas"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook", "save the sheet as CSV"),
    (b"%PDF-", "a PDF document", "give the table as CSV or Parquet"),
    (b"\x89PNG", "a PNG image", "give the table as CSV or Parquet"),
    (b"\xff\xd8\xff", "a JPEG image", "give the table as CSV or Parquet"),
    (b"\x7fELF", "a program", "give the table as CSV or Parquet"),
    (b"\x80\x04\x95", "a Python pickle", "save the table as Parquet"),
    (b"\x80\x05\x95", "a Python pickle", "save the table as Parquet"),
)


def detect_format(head: bytes, name: str, format: str | None = None) -> Format:
    """The format of a file that starts with `head`; `format`, where given, wins over the content.

    Raises
    ------
    DataError
        For a format that is known and not read.
    """
    arrow_stream = head.startswith(b"\xff\xff\xff\xff")  # a continuation marker; never text
    if format is not None:
        return "arrow stream" if format == "arrow" and arrow_stream else _valid(format)
    if arrow_stream:
        return "arrow stream"
    if _is_text(head):  # also a table whose first column is called PAR1
        return _text(head, name)
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"ARROW1"):
        return "arrow"
    for magic, what, hint in FOREIGN:
        if head.startswith(magic):
            raise DataError(f"{name}: this is {what}, which is not read", hint)
    if head.startswith(b"PK\x03\x04") and (b"xl/" in head or name.lower().endswith(".xlsx")):
        raise DataError(f"{name}: this is an Excel workbook, which is not read", "save the sheet as CSV")
    if head[8:12] == b"DUCK":
        raise DataError(
            f"{name}: this is a DuckDB database, which is not read",
            "export a table: COPY t TO 't.parquet'",
        )
    stem = name.lower().rpartition(".")[0]
    if codec_of(head) is not None and _by_suffix(stem) != "csv":
        raise DataError(
            f"{name}: this is a compressed file of a format that is read from many places",
            "unpack it first; Parquet and Arrow files are compressed inside",
        )
    kind = _by_suffix(name)
    if kind == "csv" and _is_binary(head):
        refuse(head, name)
        raise DataError(f"{name}: this is binary data and no table", "give the table as CSV or Parquet")
    return kind


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


def _text(head: bytes, name: str) -> Format:
    if head.startswith(b"version https://git-lfs"):
        raise DataError(f"{name}: this is a Git LFS pointer, not the file itself", "fetch it: git lfs pull")
    kind = _by_suffix(name)
    if head and kind != "csv":
        raise DataError(
            f"{name}: this is text, not a{'n Arrow' if kind.startswith('arrow') else ' Parquet'} file",
            "add --format csv if it is a table, or write the file again",
        )
    return kind


def _valid(format: str) -> Format:
    return cast(Format, format)


def _by_suffix(name: str) -> Format:
    """Of a file whose bytes say nothing: damaged or empty files keep the format they claim."""
    lower = name.lower()
    if lower.endswith((".parquet", ".pq", ".parq")):
        return "parquet"
    if lower.endswith((".arrow", ".feather", ".ipc")):
        return "arrow"
    return "arrow stream" if lower.endswith(".arrows") else "csv"


def _is_text(head: bytes) -> bool:
    """No control characters at the start, which every binary format here has soon."""
    return not _CONTROL.intersection(head[:64]) and not head.startswith(b"%PDF-")


def _is_binary(head: bytes) -> bool:
    """Many control characters beside NUL, which a crash and UTF-16 leave in text, and no compression."""
    if codec_of(head) is not None or byte_order_mark(head) is not None:
        return False
    return sum(map(head.count, _MARKS)) > len(head) // 20


_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\v\f\r")
_MARKS = [bytes([c]) for c in sorted(_CONTROL - {0})]
