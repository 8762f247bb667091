"""First bytes -> what a file is, where it is none of the formats that are read: one table of magic bytes.

Those of the formats that are read stand with them (`imdh_cli/formats.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from imdh_cli.errors import DataError


class Foreign(NamedTuple):
    """What is known and not read.

    magic : its bytes at `at`.
    what, hint : for the error.
    inside : bytes that also have to stand somewhere in the first ones.
    """

    magic: bytes
    what: str
    hint: str
    at: int = 0
    inside: bytes = b""


_AS_PARQUET = "convert it to Parquet, for example with DuckDB or Spark"
_AS_TABLE = "give the table as CSV or Parquet"

FOREIGN: tuple[Foreign, ...] = (
    Foreign(b"FEA1", "a Feather file of version 1", "write it again with pyarrow.feather.write_feather"),
    Foreign(b"PARE", "an encrypted Parquet file", "decrypt it first"),
    Foreign(b"Obj\x01", "an Avro file", _AS_PARQUET),
    Foreign(b"SQLite format 3\0", "an SQLite database", "export a table as CSV: sqlite3 -csv -header"),
    Foreign(b"DUCK", "a DuckDB database", "export a table: COPY t TO 't.parquet'", at=8),
    Foreign(b"\x89HDF\r\n\x1a\n", "an HDF5 file", "export the table to Parquet, for example with pandas"),
    Foreign(b"PK\x03\x04", "an Excel workbook", "save the sheet as CSV", inside=b"xl/"),
    Foreign(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook", "save the sheet as CSV"),
    Foreign(b"%PDF-", "a PDF document", _AS_TABLE),
    Foreign(b"\x89PNG", "a PNG image", _AS_TABLE),
    Foreign(b"\xff\xd8\xff", "a JPEG image", _AS_TABLE),
    Foreign(b"\x7fELF", "a program", _AS_TABLE),
    Foreign(b"\x80\x04\x95", "a Python pickle", "save the table as Parquet"),
    Foreign(b"\x80\x05\x95", "a Python pickle", "save the table as Parquet"),
    Foreign(b"\xfd7zXZ\x00", "an xz file", "unpack it first: xz -dc FILE | imdh ... -"),
    Foreign(b"PK\x03\x04", "a zip file", "unpack it first: unzip -p FILE | imdh ... -"),
    Foreign(b"PK\x05\x06", "an empty zip file", "name a file that holds data"),
    Foreign(b"7z\xbc\xaf\x27\x1c", "a 7-Zip file", "unpack it first: 7z e -so FILE | imdh ... -"),
    Foreign(b"Rar!\x1a\x07", "a rar file", "unpack it first"),
    Foreign(b"\x04\x22\x4d\x18", "an lz4 file", "unpack it first: lz4 -dc FILE | imdh ... -"),
    Foreign(b"\x1f\x9d", "a compress (.Z) file", "unpack it first: uncompress -c FILE | imdh ... -"),
    Foreign(b"ustar", "a tar archive", "unpack it, or tar -xOf FILE | imdh ... -", at=257),
)

CODECS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bz2"))
_BZ2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_CONTROL = frozenset(range(32)) - frozenset(b"\t\n\v\f\r")


def codec_of(head: bytes) -> str | None:
    """The codec that the first bytes tell: "gzip", "zstd", "bz2", or None for plain bytes."""
    for magic, codec in CODECS:
        # A CSV may begin with the letters BZh; bzip2 goes on with a level and a block's mark.
        if head.startswith(magic) and (codec != "bz2" or head[4:10] in _BZ2_BLOCKS):
            return codec
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return "zstd"  # a skippable frame, as pzstd writes in front
    return None


def is_text(head: bytes) -> bool:
    """No control characters at the start, which every binary format here has soon."""
    return not _CONTROL.intersection(head[:64]) and not head.startswith(b"%PDF-")


def refuse(head: bytes, name: str) -> None:
    """Raise DataError when the first bytes are of a kind known and not read."""
    for kind in FOREIGN:
        # A table may well begin with the letters of a magic, such as PARENT.
        here = head.startswith(kind.magic, kind.at) and not is_text(head[max(0, kind.at - 64) :])
        if here and kind.inside in head:
            raise DataError(f"{name}: this is {kind.what}, which is not read", kind.hint)
