"""Compressed input is told by its first bytes, never by a suffix; what is not read is refused by name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.compression import Counted, unpacked
from imdh_cli.sources.csv.file import CsvPart
from imdh_cli.sources.signatures import codec_of
from tests.csv_files import numbers, saved, stream

ROWS = b"".join(b"%d,%d\n" % (i, i * i) for i in range(20_000))
HALF = ROWS.index(b"\n", len(ROWS) // 2) + 1
TABLE = b"x,y\n" + ROWS
SQUARES = {"x": [float(i) for i in range(20_000)], "y": [float(i * i) for i in range(20_000)]}


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


PACKERS = {"gzip": gzip.compress, "bz2": bz2.compress, "zstd": zstd}


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
@pytest.mark.parametrize("make", [stream, saved])
def test_compressed_rows_are_read(pack: Any, make: Any, tmp_path: Path) -> None:
    part = stream(pack(TABLE)) if make is stream else saved(tmp_path, pack(TABLE))
    assert numbers(part) == SQUARES


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_members_one_after_another_are_read_whole(pack: Any) -> None:
    members = [b"x,y\n", b"", ROWS[:HALF], ROWS[HALF : HALF + 1], ROWS[HALF + 1 :]]
    assert numbers(stream(b"".join(map(pack, members)))) == SQUARES


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_zeros_behind_the_last_member_are_padding(pack: Any) -> None:
    assert numbers(stream(pack(TABLE) + bytes(3000))) == SQUARES


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
@pytest.mark.parametrize("lost", [1, 9, 5000])
def test_a_file_cut_short_is_an_error_that_names_it(pack: Any, lost: int) -> None:
    with pytest.raises(DataError, match=r"t\.csv: the (gzip|bz2|zstd) data end too early") as caught:
        numbers(stream(pack(TABLE)[:-lost]))
    assert caught.value.hint


@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_anything_else_behind_the_data_is_an_error(pack: Any) -> None:
    with pytest.raises(DataError, match=r"t\.csv: the .* data are damaged"):
        numbers(stream(pack(TABLE) + b"30000,1\n"))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])  # zstd need not hold a checksum
def test_damaged_data_are_an_error(pack: Any) -> None:
    data = bytearray(pack(TABLE))
    for at in range(len(data) // 2, len(data) // 2 + 40):
        data[at] ^= 0xA5
    with pytest.raises(DataError, match=r"t\.csv: the .* data"):
        numbers(stream(bytes(data)))


def test_a_plain_file_called_gz_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(TABLE)
    part = CsvPart("t.csv.gz", lambda: path.open("rb"), SourceParams(), True, str(path))
    assert numbers(part) == SQUARES


def test_a_table_whose_header_begins_like_bzip2_is_a_table() -> None:
    assert numbers(stream(b"BZh1,y\n1,2\n")) == {"BZh1": [1.0], "y": [2.0]}


def zipped(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, TABLE)
    return out.getvalue()


def tarred() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        about = tarfile.TarInfo("t.csv")
        about.size = len(TABLE)
        archive.addfile(about, io.BytesIO(TABLE))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lzma.compress(TABLE), "xz"),
        (zipped("t.csv"), "zip"),
        (tarred(), "tar"),
        (gzip.compress(tarred()), "tar"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "7-Zip"),
        (pa.Codec("lz4").compress(TABLE, asbytes=True), "lz4"),
        (gzip.compress(gzip.compress(TABLE)), "compressed twice"),
    ],
    ids=["xz", "zip", "tar", "tar.gz", "7z", "lz4", "twice"],
)
def test_what_is_not_read_is_refused_by_name(data: bytes, said: str) -> None:
    with pytest.raises(DataError, match=rf"t\.csv: .*{said}") as caught:
        stream(data)
    assert caught.value.hint


def test_bytes_are_counted_as_stored(tmp_path: Path) -> None:
    data = gzip.compress(TABLE)
    part = saved(tmp_path, data)
    for _ in range(2):
        numbers(part)
        assert part.bytes_read == part.size == len(data)


def test_a_little_data_that_unpack_to_much_take_little_memory() -> None:
    data = gzip.compress(bytes(50 << 20))
    read, _ = unpacked(Counted(io.BytesIO(data), "t.csv", lambda n: None))
    assert max(len(read(1 << 30)) for _ in range(10)) <= 1 << 20


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"t\.csv: cannot be read: Is a directory"):
        CsvPart("t.csv", lambda: tmp_path.open("rb"), SourceParams(), True, str(tmp_path))


def test_an_error_of_the_disk_while_unpacking_is_named() -> None:
    class Failing(io.BytesIO):
        def read(self, n: int | None = -1) -> bytes:
            if self.tell() > 20_000:
                raise OSError(5, "Input/output error")
            return super().read(min(n or 0, 4096))

    with pytest.raises(DataError, match=r"^t\.csv: cannot be read: Input/output error$"):
        numbers(CsvPart("t.csv", lambda: Failing(zstd(TABLE)), SourceParams(), False))


def test_the_codec_is_told_by_the_first_bytes() -> None:
    assert codec_of(b"") is None
    assert codec_of(TABLE) is None
    assert {codec_of(pack(TABLE)) for pack in PACKERS.values()} == {"gzip", "bz2", "zstd"}
    assert codec_of(b"\x50\x2a\x4d\x18" + bytes(8)) == "zstd"  # a skippable frame in front
