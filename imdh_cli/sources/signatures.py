"""First bytes -> what a file is, where it is none of the formats that are read: one table of magic bytes.

Those of the formats that are read stand with them (`imdh_cli/formats.py`).
"""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from typing import NamedTuple
from urllib.parse import quote as urlquote

from imdh_cli.errors import PIPE, DataError
from imdh_cli.formats import PACKED, SUFFIXES


class Foreign(NamedTuple):
    """What is known and not read.

    magic : its bytes at `at`.
    what, hint : for the error; {file} stands for the file's name, as a shell takes it,
        {inside} for a table or file in it, {python} for the Python that runs this.
    inside : bytes that also have to stand somewhere in the first ones.
    """

    magic: bytes
    what: str
    hint: str
    at: int = 0
    inside: bytes = b""


_AS_PARQUET = "convert it to Parquet, for example with DuckDB or Spark"
_AS_TABLE = "give the table as CSV or Parquet"
_EXCEL = (
    "save the sheet as CSV, or, with pandas and openpyxl: "
    "{python} -c 'import pandas, sys; pandas.read_excel(sys.argv[1]).to_csv(sys.stdout, index=False)' {file} "
    + PIPE
)

_FEATHER = (
    "{python} -c 'import pyarrow.csv, pyarrow.feather, sys; "
    "pyarrow.csv.write_csv(pyarrow.feather.read_table(sys.argv[1]), sys.stdout.buffer)' {file} " + PIPE
)
_PICKLE = (
    "if it is from somebody you trust, since a pickle runs code: {python} -c 'import pandas, sys; "
    "pandas.DataFrame(pandas.read_pickle(sys.argv[1])).to_csv(sys.stdout, index=False)' {file} " + PIPE
)
_HDF = (
    "with pandas and tables: {python} -c 'import pandas, sys; "
    "pandas.read_hdf(sys.argv[1]).to_csv(sys.stdout, index=False)' {file} " + PIPE
)
_NPZ = (
    "{python} -c 'import io, numpy, sys; out = io.BytesIO(); a = numpy.load(sys.argv[1]); "
    "numpy.save(out, a[a.files[0]]); sys.stdout.buffer.write(out.getvalue())' {file} " + PIPE
)

FOREIGN: tuple[Foreign, ...] = (
    Foreign(b"FEA1", "a Feather file of version 1", _FEATHER),
    Foreign(b"PARE", "an encrypted Parquet file", "decrypt it first"),
    Foreign(b"Obj\x01", "an Avro file", _AS_PARQUET),
    Foreign(
        b"SQLite format 3\0",
        "an SQLite database",
        f"sqlite3 -csv -header {{file}} 'SELECT * FROM \"{{inside}}\"' {PIPE}",
    ),
    Foreign(
        b"DUCK",
        "a DuckDB database",
        f"duckdb -readonly -csv {{file}} 'FROM TABLE' {PIPE}, with the name of a table",
        at=8,
    ),
    Foreign(b"\x89HDF\r\n\x1a\n", "an HDF5 file", _HDF),
    Foreign(b"PK\x03\x04", "an Excel workbook", _EXCEL, inside=b"xl/"),
    Foreign(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Excel workbook", "save the sheet as CSV"),
    Foreign(b"%PDF-", "a PDF document", _AS_TABLE),
    Foreign(b"\x89PNG", "a PNG image", _AS_TABLE),
    Foreign(b"\xff\xd8\xff", "a JPEG image", _AS_TABLE),
    Foreign(b"\x7fELF", "a program", _AS_TABLE),
    Foreign(b"\x80\x02", "a Python pickle", _PICKLE),
    Foreign(b"\x80\x03", "a Python pickle", _PICKLE),
    Foreign(b"\x80\x04\x95", "a Python pickle", _PICKLE),
    Foreign(b"\x80\x05\x95", "a Python pickle", _PICKLE),
    Foreign(
        b"PK\x03\x04", "a zip of NumPy arrays", f"save one matrix, such as its first: {_NPZ}", inside=b".npy"
    ),
    Foreign(b"\xfd7zXZ\x00", "an xz file", f"unpack it first: xz -dc {{file}} {PIPE}"),
    Foreign(b"PK\x03\x04", "a zip file", f"unpack it first: unzip -p {{file}} {{inside}} {PIPE}"),
    Foreign(b"PK\x05\x06", "an empty zip file", "name a file that holds data"),
    Foreign(b"7z\xbc\xaf\x27\x1c", "a 7-Zip file", f"unpack it first: 7z e -so {{file}} {PIPE}"),
    Foreign(b"Rar!\x1a\x07", "a rar file", "unpack it first"),
    Foreign(b"\x04\x22\x4d\x18", "an lz4 file", f"unpack it first: lz4 -dc {{file}} {PIPE}"),
    Foreign(b"\x1f\x9d", "a compress (.Z) file", f"unpack it first: uncompress -c {{file}} {PIPE}"),
    Foreign(
        b"ustar",
        "a tar archive",
        f"unpack it, or, if there is one file in it: tar -xOf {{file}} {PIPE}",
        at=257,
    ),
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
    if head[:100].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        raise DataError(
            f"{name}: this is a web page and no table",
            "it may tell of an error or ask to log in: look at it in a browser, and download the table again",
        )
    for kind in FOREIGN:
        # A table may well begin with the letters of a magic, such as PARENT.
        here = head.startswith(kind.magic, kind.at) and not is_text(head[max(0, kind.at - 64) :])
        if here and kind.inside in head:
            raise DataError(f"{name}: this is {kind.what}, which is not read", _hint(kind, name))


def shell_word(name: str) -> str:
    """A file's name for a command; a stream has none."""
    return "FILE" if name == "stdin" else shlex.quote(name)


def _hint(kind: Foreign, name: str) -> str:
    hint = kind.hint
    if "{inside}" in hint:
        found = _members(name) if kind.what == "a zip file" else _tables(name)
        # A zip of one file is named by itself; of several, tables of one kind are not to be run together.
        first = found[0] if found else "TABLE"
        if kind.what == "a zip file":
            first = shlex.quote(first) if len(found) > 1 else ""
        hint = hint.replace("{inside}", first).replace("  ", " ")
    return hint.replace("{file}", shell_word(name)).replace("{python}", shlex.quote(sys.executable))


def _members(name: str) -> list[str]:
    """The tables in a zip file, or else its files; nothing where they cannot be listed."""
    import zipfile

    try:
        with zipfile.ZipFile(name) as archive:
            files = [f for f in archive.namelist() if not f.endswith("/") and not f.startswith("__MACOSX")]
    except (OSError, ValueError, zipfile.BadZipFile):
        return []
    tables = [f for f in files if f.lower().endswith(tuple(s + p for s in SUFFIXES for p in ("", *PACKED)))]
    return tables or files


def _tables(name: str) -> list[str]:
    """The tables of an SQLite database; nothing where they cannot be listed."""
    import sqlite3

    try:
        with closing(sqlite3.connect(f"file:{urlquote(name)}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")
            return [table for (table,) in found if not table.startswith("sqlite_")]
    except (sqlite3.Error, ValueError):
        return []
