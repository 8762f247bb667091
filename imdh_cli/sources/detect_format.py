"""The first bytes of a file or stream -> its format; other known formats are refused by name."""

from __future__ import annotations

import re
import zlib

from imdh_cli import formats
from imdh_cli.errors import DataError
from imdh_cli.formats import Format
from imdh_cli.sources.encoding import byte_order_mark
from imdh_cli.sources.signatures import codec_of, is_text, refuse


def detect_format(head: bytes, name: str, asked: str | None = None) -> Format:
    """The format of a file that starts with `head`; the one asked for wins over the content.

    Files whose bytes say nothing, damaged or empty, keep the format that their name claims.

    Raises
    ------
    DataError
        For a format that is known and not read.
    """
    if asked is not None:
        return formats.by_name(asked)
    if is_text(head):  # also a table whose first column is called PAR1
        return _text(head, name)
    found = formats.by_magic(head)
    if found is not None:
        return found
    codec = codec_of(head)
    if codec is None and head.startswith(b"PK\x03\x04") and name.lower().endswith(".xlsx"):
        head += b"xl/"  # which may stand farther on
    if codec is None:
        refuse(head, name)
    elif not formats.by_suffix(name).text:
        raise DataError(
            f"{name}: this is a compressed file of a format that is read from many places",
            "unpack it first; Parquet and Arrow files are compressed inside",
        )
    elif codec == "gzip":
        return _text(_unzipped(head), name)
    claimed = formats.by_suffix(name)
    if claimed.text and codec is None and _is_binary(head):
        raise DataError(f"{name}: this is binary data and no table", "give the table as CSV or Parquet")
    return claimed


def holds_table(head: bytes) -> bool:
    """Whether the first bytes alone tell a format that is read."""
    return not is_text(head) and formats.by_magic(head) is not None


def _text(head: bytes, name: str) -> Format:
    if head.startswith(b"version https://git-lfs"):
        raise DataError(f"{name}: this is a Git LFS pointer, not the file itself", "fetch it: git lfs pull")
    claimed = formats.by_suffix(name)
    if head and not claimed.text:
        raise DataError(
            f"{name}: this is text, not {claimed.a_file}",
            "add --format csv if it is a table, or write the file again",
        )
    return formats.by_name("jsonl") if _RECORD.match(head) else claimed


def _unzipped(head: bytes) -> bytes:
    """What the first bytes of a gzip file unpack to; nothing where they are damaged."""
    try:
        return zlib.decompressobj(31).decompress(head)
    except zlib.error:
        return b""


def _is_binary(head: bytes) -> bool:
    """Many control characters beside NUL, which a crash and UTF-16 leave in text."""
    if byte_order_mark(head) is not None:
        return False
    return sum(map(head.count, _MARKS)) > len(head) // 20


# A first record or, where the file is no JSON lines, what its reader explains.
_RECORD = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*(?:"(?:[^"\\]|\\.)*"\s*:|\})')
_MARKS = [bytes([c]) for c in range(1, 32) if c not in b"\t\n\v\f\r"]
