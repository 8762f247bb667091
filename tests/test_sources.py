"""Many files as one table: formats told by content, types promoted, keys, notes, rows in order."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.errors import DataError, UsageError
from imdh_cli.sources.detect_format import detect_format
from imdh_cli.sources.file import peeked
from imdh_cli.sources.promote import promoted
from imdh_cli.sources.signatures import FOREIGN, Foreign
from tests.cli import heeding_modes, program
from tests.tables import arrow, arrow_stream, features_of, kept_of, opened, orc, parquet, table


def csv(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


# -- the format


def test_the_format_is_told_by_content_whatever_the_suffix(tmp_path: Path) -> None:
    for name, data, kind in (
        ("a.csv", Path(parquet(tmp_path / "a", table(5))).read_bytes(), "parquet"),
        ("b.parquet", Path(arrow(tmp_path / "b", table(5))).read_bytes(), "arrow"),
        ("c.txt", arrow_stream(table(5)), "arrow"),
        ("o.bin", Path(orc(tmp_path / "o", table(5))).read_bytes(), "orc"),
        ("d.arrow", b"x,y\n1,2\n", "csv"),
    ):
        (tmp_path / name).write_bytes(data)
        if kind == "csv":  # text says nothing about itself, so the suffix is believed
            with pytest.raises(DataError, match=r"d\.arrow: this is text, not an Arrow file"):
                opened(tmp_path / name)
            assert opened(tmp_path / name, format="csv").parts[0].format == "csv"
        else:
            assert opened(tmp_path / name).parts[0].format == kind


def test_a_format_that_is_given_wins_over_the_content(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", table(5))
    with pytest.raises(DataError, match="not a readable Arrow file"):
        opened(path, format="arrow")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        opened(csv(tmp_path / "t.csv", "x\n1\n"), format="parquet")


@pytest.mark.parametrize("kind", FOREIGN, ids=lambda kind: kind.what)
def test_a_format_that_is_not_read_is_refused_by_name(tmp_path: Path, kind: Foreign) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(bytes(kind.at) + kind.magic + bytes(50) + kind.inside)
    with pytest.raises(DataError, match=r"t\.csv: this is an? .*, which is not read") as caught:
        opened(path)
    assert caught.value.hint


def test_text_in_a_parquet_file_is_told_from_damage(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    for text, said in (("<html>404</html>", "this is text"), (pointer, "Git LFS")):
        with pytest.raises(DataError, match=rf"t\.parquet: {said}|t\.parquet: this is a {said}"):
            opened(csv(tmp_path / "t.parquet", text))


@pytest.mark.parametrize("start", ["<html>", "\ufeff\n<!DOCTYPE html>\n<html lang=en>"])
@pytest.mark.parametrize("name", ["t.csv", "t"])
def test_a_web_page_in_place_of_a_table_is_refused_by_name(tmp_path: Path, name: str, start: str) -> None:
    with pytest.raises(DataError, match=f"{name}: this is a web page and no table") as caught:
        opened(csv(tmp_path / name, f"{start}<p>404, not found</p>\n</html>\n"))
    assert "download" in str(caught.value.hint)


def test_a_compressed_parquet_file_is_refused_by_name(tmp_path: Path) -> None:
    for name, said in (("t.parquet.gz", "a compressed file"), ("t.gz", "a Parquet file compressed")):
        (tmp_path / name).write_bytes(gzip.compress(b"PAR1" + bytes(100)))
        with pytest.raises(DataError, match=f"{name}: this is {said}") as caught:
            opened(tmp_path / name)
        assert "unpack" in str(caught.value.hint)


def test_a_file_name_that_is_no_utf8_is_read(tmp_path: Path) -> None:
    for made, suffix in ((parquet, b"parquet"), (arrow, b"arrow")):
        path = os.fsencode(tmp_path) + b"/\xff\xfe." + suffix
        made(tmp_path / "t", table(5))  # type: ignore[operator]
        os.rename(tmp_path / "t", path)
        source = opened(os.fsdecode(path))
        assert features_of(source.chunks(["id"]))["id"].to_pylist() == list(range(5))


def test_an_excel_workbook_is_not_called_a_zip_file() -> None:
    with pytest.raises(DataError, match="Excel"):
        detect_format(b"PK\x03\x04" + bytes(20), "book.xlsx")


def test_a_table_that_begins_with_a_known_word_is_text() -> None:
    for head in (
        b"ORCHID,x\n1,2\n",
        b"PARENT,x\n1,2\n",
        b"Object,x\n",
        b"PK,x\n1,2\n",
        b"PAR1,ARROW1\n",
        b"species,DUCK\n",
    ):
        assert detect_format(head, "t.csv").name == "csv"


@given(head=st.binary(max_size=5000), steps=st.lists(st.integers(1, 3000), max_size=10))
def test_a_peeked_stream_gives_every_byte(head: bytes, steps: list[int]) -> None:
    class Slow(__import__("io").RawIOBase):  # type: ignore[misc]
        """A pipe that gives a few bytes at a time."""

        def __init__(self) -> None:
            self.at = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            n = min(len(buffer), steps[self.at % len(steps)] if steps else 7, len(head) - self.at)
            buffer[:n] = head[self.at : self.at + n]
            self.at += n
            return n

    first, stream = peeked(Slow())  # type: ignore[arg-type]
    assert first == head[: len(first)]
    assert stream.read() == head


# -- good and bad parts


def test_a_zero_byte_part_among_good_ones_is_named(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "x\n1\n")
    csv(tmp_path / "b.csv", "")
    with pytest.raises(DataError, match=r"b\.csv: the file is empty"):
        opened(tmp_path)


def test_a_corrupt_part_among_good_ones_is_named(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", table(5))
    (tmp_path / "b.parquet").write_bytes(b"PAR1\x15\x00 this is not one")
    with pytest.raises(DataError, match=r"b\.parquet: not a readable Parquet file"):
        opened(tmp_path)


def test_parts_without_rows_are_passed_over(tmp_path: Path) -> None:
    for i, rows in enumerate((0, 5, 0, 3, 0)):
        parquet(tmp_path / f"{i}.parquet", table(rows, start=10 * i))
    source = opened(tmp_path)
    assert source.rows == 8
    ids = features_of(source.chunks(["id"]))["id"].to_pylist()
    assert ids == [10, 11, 12, 13, 14, 30, 31, 32]
    assert source.sample(7)["id"].to_pylist() == ids[:7]
    assert [p.rows for p in source.fragments(["id"]) or []] == [5, 3]


def test_a_lone_file_without_a_byte_has_no_rows(tmp_path: Path) -> None:
    for path in (csv(tmp_path / "t.csv", ""), os.devnull):
        source = opened(path)
        assert source.schema.names == []
        assert list(source.chunks(["whatever"], ["else"])) == []


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    source = opened(csv(tmp_path / "t.csv", "x,y\n"))
    assert source.schema.names == ["x", "y"]
    assert sum(c.features.num_rows for c in source.chunks(["x"])) == 0


def test_a_file_that_must_not_be_read_is_named(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", "x\n1\n")
    os.chmod(path, 0)
    ran = program("fit", path, "-o", tmp_path / "m.npz", status=3, before=heeding_modes())
    assert "t.csv: cannot be read" in ran.err


def test_no_input_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no input"):
        opened()


# -- one table


def test_files_are_read_in_the_order_of_the_arguments(tmp_path: Path) -> None:
    a, b = (parquet(tmp_path / f"{n}.parquet", table(5, start=s)) for n, s in (("a", 0), ("b", 5)))
    source = opened(b, a)
    assert features_of(source.chunks(["id"]))["id"].to_pylist() == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    assert [c.origin for c in source.chunks(["id"])] == [(b, 0), (a, 0)]


def test_columns_are_found_by_name_in_every_file(tmp_path: Path) -> None:
    parquet(tmp_path / "1.parquet", table(5))
    parquet(tmp_path / "2.parquet", table(5, start=5).select(["word", "y", "x", "id"]))
    source = opened(tmp_path)
    assert source.schema.names == ["id", "x", "y", "word"]
    assert kept_of(source.chunks(["y", "x"], ["id"]))["id"].to_pylist() == list(range(10))


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.float32(), pa.int8(), pa.float64()),
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.int8(), pa.int64()),
        (pa.uint64(), pa.uint8(), pa.uint64()),
        (pa.uint64(), pa.int64(), pa.float64()),
        (pa.bool_(), pa.int16(), pa.int64()),
        (pa.decimal128(9, 2), pa.int32(), pa.float64()),
        (pa.null(), pa.int32(), pa.int32()),
        (pa.int32(), pa.string(), pa.string()),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string()),
        (pa.dictionary(pa.int8(), pa.int32()), pa.float64(), pa.float64()),
        (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
        (pa.decimal128(9, 2), pa.decimal128(12, 4), pa.float64()),
        (pa.struct([("a", pa.int32())]), pa.int32(), None),
        (pa.list_(pa.int32()), pa.string(), None),
    ],
    ids=str,
)
def test_types_are_promoted_the_same_in_either_order(
    first: pa.DataType, second: pa.DataType, both: pa.DataType | None
) -> None:
    assert promoted(first, second) == both
    assert promoted(second, first) == both


def test_int32_then_double_is_double_and_the_file_is_named(tmp_path: Path) -> None:
    a = pa.table({"x": pa.array([1, 2], pa.int32()), "k": pa.array([7, 8], pa.int16())})
    b = pa.table({"x": [0.5, 1.5], "k": pa.array([2**40, 9], pa.int64())})
    parquet(tmp_path / "a.parquet", a)
    parquet(tmp_path / "b.parquet", b)
    source = opened(tmp_path)
    chunks = list(source.chunks(["x"], ["k", "x"]))
    truth = duckdb.sql(
        f"select x, k from read_parquet('{tmp_path}/*.parquet', union_by_name=true) order by filename"
    ).fetchall()
    assert features_of(chunks)["x"].to_pylist() == [x for x, _ in truth]
    assert kept_of(chunks)["k"].to_pylist() == [k for _, k in truth]
    assert any("b.parquet" in note and '"x"' in note for note in source.notes)
    assert {c.features.schema.field("x").type for c in chunks} == {pa.float64()}


def test_whole_numbers_are_never_rounded_in_what_is_passed_through(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", pa.table({"k": [2**53 + 1], "x": [1.0]}))
    parquet(tmp_path / "b.parquet", pa.table({"k": [0.5], "x": [1.0]}))
    source = opened(tmp_path)
    assert features_of(source.chunks(["k"]))["k"].to_pylist() == [2.0**53, 0.5]
    with pytest.raises(DataError, match=r'a\.parquet: column "k"'):
        list(source.chunks(["x"], ["k"]))


def test_types_without_a_common_one_are_an_error_only_when_asked_for(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", pa.table({"x": [1.0], "s": [{"a": 1}]}))
    parquet(tmp_path / "b.parquet", pa.table({"x": [2.0], "s": [1]}))
    source = opened(tmp_path)
    assert features_of(source.chunks(["x"]))["x"].to_pylist() == [1.0, 2.0]
    for names in ((["s"], []), (["x"], ["s"])):
        with pytest.raises(DataError, match=r'"s" is struct.*a\.parquet.*int64 in .*b\.parquet'):
            source.chunks(*names)


def test_a_column_absent_in_a_later_file_is_null_when_passed_through(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", pa.table({"x": [1.0], "y": [3.0]}))
    parquet(tmp_path / "b.parquet", pa.table({"x": [2.0], "z": ["w"]}))
    source = opened(tmp_path)
    kept = kept_of(source.chunks(["x"], ["y", "z"]))
    assert kept.to_pydict() == {"y": [3.0, None], "z": [None, "w"]}
    assert set(source.absent) == {"y", "z"}
    assert any('b.parquet: no column "y"' in note for note in source.notes)
    assert any('a.parquet: no column "z"' in note for note in source.notes)
    assert source.sample()["y"].to_pylist() == [3.0, None]


def test_a_feature_absent_in_a_later_file_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", pa.table({"x": [1.0], "y": [3.0]}))
    parquet(tmp_path / "b.parquet", pa.table({"x": [2.0]}))
    for call in (opened(tmp_path).chunks, opened(tmp_path).fragments):
        with pytest.raises(DataError, match=r'b\.parquet: no column "y"') as caught:
            call(["x", "y"])
        assert "-x" in str(caught.value.hint)


def test_many_files_that_lack_a_column_share_a_note(tmp_path: Path) -> None:
    parquet(tmp_path / "0.parquet", table(2))
    for i in range(1, 30):
        parquet(tmp_path / f"{i}.parquet", table(2).select(["id", "x"]))
    notes = opened(tmp_path).notes
    assert len(notes) == 1
    assert "1.parquet and 28 more files" in notes[0]


def test_hive_keys_are_passthrough_columns_of_text(tmp_path: Path) -> None:
    for year, place, start in (("2023", "b", 0), ("2024", "a b", 2)):
        folder = tmp_path / f"year={year}" / f"place={place}"
        folder.mkdir(parents=True)
        parquet(folder / "t.parquet", table(2, start=start))
    (tmp_path / "year=2025").mkdir()
    parquet(tmp_path / "year=2025" / "t.parquet", table(1, start=4))
    source = opened(tmp_path)
    assert source.hive_columns == ("year", "place")
    kept = kept_of(source.chunks(["x"], ["place", "id", "year"]))
    assert kept.to_pydict() == {
        "place": ["b", "b", "a b", "a b", None],
        "id": [0, 1, 2, 3, 4],
        "year": ["2023", "2023", "2024", "2024", "2025"],
    }
    assert source.kept_schema(["place", "id", "year"]) == kept.schema
    only = kept_of(source.chunks(["x"], ["year"]))
    assert only["year"].to_pylist() == kept["year"].to_pylist()


def test_a_hive_key_wins_over_a_column_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "x=5").mkdir()
    parquet(tmp_path / "x=5" / "t.parquet", table(2))
    source = opened(tmp_path)
    assert kept_of(source.chunks(["y"], ["x"]))["x"].to_pylist() == ["5", "5"]
    assert any('"x" is both' in note for note in source.notes)


def test_csv_and_parquet_make_one_table(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "x,code\n1,007\n2.50,b\n")
    parquet(tmp_path / "b.parquet", pa.table({"x": pa.array([3], pa.int8()), "code": ["c"]}))
    source = opened(tmp_path)
    assert source.rows is None
    chunks = list(source.chunks(["x"], ["x", "code"]))
    assert features_of(chunks)["x"].to_pylist() == [1.0, 2.5, 3.0]
    assert kept_of(chunks).to_pydict() == {"x": ["1", "2.50", "3"], "code": ["007", "b", "c"]}
    assert kept_of(chunks).schema == source.kept_schema(["x", "code"])


def test_a_column_that_is_text_in_one_csv_is_text_in_all(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "c,x\n01,1\n2,1\n")
    csv(tmp_path / "b.csv", "c,x\nred,1\nblue,1\n")
    source = opened(tmp_path)
    assert features_of(source.chunks(["c"]))["c"].to_pylist() == ["01", "2", "red", "blue"]
    assert source.sample()["c"].to_pylist() == ["01", "2", "red", "blue"]
    fragments = source.fragments(["c"]) or []
    assert [v for p in fragments for c in p.chunks() for v in c.features["c"].to_pylist()] == [
        "01", "2", "red", "blue",
    ]  # fmt: skip
    assert any("b.csv" in note and '"c"' in note for note in source.notes)


def test_a_column_that_must_hold_numbers_is_read_as_numbers(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", "x\nred\nblue\n3\n")
    source = opened(path, on_bad_row="skip")
    assert source.schema.field("x").type == pa.string()
    source.expect(numbers=["x"])
    assert source.schema.field("x").type == pa.float64()
    (chunk,) = source.chunks(["x"])
    assert chunk.features["x"].to_pylist() == [None, None, 3.0]
    assert chunk.bad is not None
    assert chunk.bad.tolist() == [True, True, False]


def test_progress_and_bad_rows_are_those_of_the_current_reading(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "x,y\n" + "1,2\n" * 500 + "1\n")
    csv(tmp_path / "b.csv", "x,y\n" + "1,2\n" * 500 + "1,2,3\n")
    parquet(tmp_path / "c.parquet", pa.table({"x": [1.0] * 500, "y": [1.0] * 500}))
    source = opened(tmp_path, on_bad_row="skip", batch_rows=100)
    assert source.size is not None
    for _ in range(2):
        seen = [source.bytes_read for _ in source.chunks(["x", "y"])]
        assert seen == sorted(seen)
        assert 0.9 * source.size <= source.bytes_read <= source.size
        assert source.bad_rows == 2
    for _ in range(2):
        for fragment in source.fragments(["x", "y"]) or []:
            assert sum(c.features.num_rows for c in fragment.chunks()) > 0
        assert 0.9 * source.size <= source.bytes_read <= 1.1 * source.size
        assert source.bad_rows == 2


@pytest.mark.parametrize("limit", [0, 1, 4, 5, 6, 10, 99])
def test_no_more_rows_are_read_than_asked_for(tmp_path: Path, limit: int) -> None:
    csv(tmp_path / "a.csv", "id,x\n" + "".join(f"{i},1\n" for i in range(5)))
    parquet(tmp_path / "b.parquet", table(5, start=5).select(["id", "x"]), [2, 3])
    source = opened(tmp_path, max_rows=limit, batch_rows=2)
    ids = [i for c in source.chunks(["id"]) for i in c.features["id"].to_pylist()]
    assert ids == list(range(min(limit, 10)))
    assert source.sample().num_rows == min(limit, 10)


def test_compressed_files_are_fragments_when_there_are_several(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.csv.gz").write_bytes(gzip.compress(f"x\n{i}\n{i + 10}\n".encode()))
    fragments = opened(tmp_path).fragments(["x"]) or []
    assert len(fragments) == 3
    values = [v for p in reversed(fragments) for c in p.chunks() for v in c.features["x"].to_pylist()]
    assert values == [2, 12, 1, 11, 0, 10]
    assert opened(tmp_path / "0.csv.gz").fragments(["x"]) is None


def test_fragments_hold_every_row_once_in_the_types_of_the_table(tmp_path: Path) -> None:
    csv(tmp_path / "a.csv", "id,x\n" + "".join(f"{i},0.5\n" for i in range(1000)))
    narrow = pa.table({"id": pa.array(range(1000, 1500), pa.int32()), "x": pa.array([1] * 500)})
    parquet(tmp_path / "b.parquet", narrow, [100, 400])
    arrow(tmp_path / "c.arrow", table(300, start=1500).select(["x", "id"]), 128)
    source = opened(tmp_path)
    fragments = source.fragments(["x", "id"])
    assert fragments is not None
    assert len(fragments) >= 1 + 2 + 3
    whole = pa.concat_tables([features_of(p.chunks()) for p in fragments])
    assert whole.schema == pa.schema([("x", pa.float64()), ("id", pa.float64())])
    assert whole["id"].to_pylist() == list(range(1800))


def test_a_stream_beside_a_file_has_no_fragments_and_is_read_once(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", "x\n1\n2\n")
    program = (
        "from tests.tables import *\n"
        f"source = opened('-', {path!r})\n"
        "assert not source.rereadable\n"
        "assert source.fragments(['x']) is None\n"
        "assert source.size is None\n"
        "assert source.sample()['x'].to_pylist() == [8.0, 9.0, 1.0, 2.0]\n"
        "print(features_of(source.chunks(['x']))['x'].to_pylist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"x\n8\n9\n", capture_output=True, check=True
    )
    assert done.stdout.strip() == b"[8.0, 9.0, 1.0, 2.0]"


PROGRAM = """
import sys
from tests.tables import *
for location in sys.argv[1:]:
    t = features_of(opened(location).chunks(["id", "x"]))
    print(t.num_rows, int(sum(t["id"].to_pylist())), sum(t["x"].to_pylist()))
"""


@pytest.mark.parametrize(
    ("command", "readings"),
    [
        ("{run} <(cat {csv}) <(gzip -c {csv}) <(cat {parquet}) <(cat {arrow}) <(cat {orc})", 5),
        ("{run} /dev/stdin /dev/stdin < {parquet}", 2),
        ("cat {csv} | {run} /dev/stdin", 1),
        ("gzip -c {csv} | {run} -", 1),
    ],
)
def test_pipes_of_every_kind_are_read(tmp_path: Path, command: str, readings: int) -> None:
    content = table(300).select(["id", "x"])
    rows = "".join(f"{r['id']},{r['x']!r}\n" for r in content.to_pylist())
    paths = {
        "csv": csv(tmp_path / "t.csv", "id,x\n" + rows),
        "parquet": parquet(tmp_path / "t.parquet", content),
        "arrow": arrow(tmp_path / "t.arrow", content),
        "orc": orc(tmp_path / "t.orc", content),
    }
    script = tmp_path / "read.py"
    script.write_text(PROGRAM)
    run = f"PYTHONPATH={Path(__file__).parents[1]} {sys.executable} {script}"
    done = subprocess.run(["bash", "-c", command.format(run=run, **paths)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = f"300 {sum(range(300))} {sum(content['x'].to_pylist())!r}"
    assert done.stdout.splitlines() == [expected] * readings


@given(
    cuts=st.lists(st.integers(0, 60), max_size=4),
    kinds=st.lists(st.sampled_from(["csv", "parquet", "arrow", "orc"]), min_size=5, max_size=5),
    batch_rows=st.integers(1, 70),
    threads=st.integers(1, 2),
)
def test_any_partition_of_the_rows_into_files_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    cuts: list[int],
    kinds: list[str],
    batch_rows: int,
    threads: int,
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    whole = table(60).select(["id", "x", "y"])
    edges = [0, *sorted(cuts), 60]
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        content = whole.slice(start, stop - start)
        if kinds[i] == "csv":
            lines = [",".join(map(repr, row.values())) for row in content.to_pylist()]
            csv(folder / f"part-{i}.csv", "\n".join(["id,x,y", *lines, ""]))
        elif kinds[i] == "parquet":
            parquet(folder / f"part-{i}.parquet", content, [content.num_rows])
        elif kinds[i] == "arrow":
            arrow(folder / f"part-{i}.arrow", content, 7)
        else:
            orc(folder / f"part-{i}.orc", content, 7)
    source = opened(folder, batch_rows=batch_rows, threads=threads)
    got = features_of(source.chunks(["y", "x", "id"]))
    assert np.array_equal(got["id"].to_numpy(), np.arange(60))
    for name in ("x", "y"):
        assert np.array_equal(got[name].to_numpy(), whole[name].to_numpy())
    fragments = source.fragments(["id"])
    assert fragments is not None
    ids = [i for p in fragments for c in p.chunks() for i in c.features["id"].to_pylist()]
    assert ids == list(range(60))


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"\x89PNG\r\n\x1a\n" + bytes(100), "a PNG image"), (bytes(range(1, 32)) * 9, "binary data")],
)
def test_what_is_no_table_is_called_so(data, what, tmp_path):
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(DataError, match=what):
        opened(tmp_path / "t.csv")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("how", ["longer", "shorter", "gone", "replaced"])
def test_a_file_that_changes_while_it_is_read_is_named(kind, how, tmp_path):
    path = tmp_path / f"t.{kind}"
    data = b"x,y\n" + b"1,2\n" * 9000
    if kind == "parquet":
        parquet(path, pa.table({"x": np.arange(9000.0) % 7, "y": np.arange(9000.0)}))
        data = path.read_bytes()
    path.write_bytes(data)
    source = opened(path, batch_rows=1000)
    chunks = source.chunks(["x", "y"])
    next(chunks)
    if how == "gone":
        path.unlink()
    elif how == "replaced":
        os.utime(path, ns=(1, 1))
    else:
        path.write_bytes(data + b"3,4\n" if how == "longer" else data[: len(data) // 2])
    what = "was taken away" if how == "gone" else "changed"
    with pytest.raises(DataError, match=f"t.{kind}: the file {what} while it was read"):
        list(chunks)


def test_a_file_that_changes_between_two_readings_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "1,2\n" * 9000)
    source = opened(path)
    fragments = source.fragments(["x"])
    path.write_text("x,y\n" + "1,2\n" * 100)
    with pytest.raises(DataError, match="changed while it was read"):
        [list(fragment.chunks()) for fragment in fragments or ()]


def test_files_behind_the_first_are_looked_at_briefly(tmp_path):
    for i in range(25):
        (tmp_path / f"{i:02}.csv").write_text("x\n1\n2\n")
    assert opened(tmp_path).sample().num_rows == 50
