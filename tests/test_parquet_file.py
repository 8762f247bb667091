"""One Parquet file: the asked columns, in row order, with flat memory and errors that name the file."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imdh_cli.errors import DataError
from tests.tables import features_of, kept_of, opened, parquet, table


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_rows", [1, 7, 1000, 65536])
def test_columns_come_back_as_pyarrow_reads_them(tmp_path: Path, threads: int, batch_rows: int) -> None:
    path = parquet(tmp_path / "t.parquet", table(500), [100, 1, 399])
    source = opened(path, threads=threads, batch_rows=batch_rows)
    chunks = list(source.chunks(["y", "x"], ["word", "id", "x"]))
    whole = pq.read_table(path)
    assert features_of(chunks) == whole.select(["y", "x"]).combine_chunks()
    assert kept_of(chunks) == whole.select(["word", "id", "x"]).combine_chunks()
    assert max(c.features.num_rows for c in chunks) <= batch_rows


@pytest.mark.parametrize("threads", [1, 2])
def test_forty_row_groups_of_uneven_size_keep_the_order(tmp_path: Path, threads: int) -> None:
    sizes = np.random.default_rng(1).integers(0, 400, 40).tolist()
    path = parquet(tmp_path / "t.parquet", table(sum(sizes)), sizes)
    chunks = list(opened(path, threads=threads, batch_rows=64).chunks(["x"], ["id"]))
    assert kept_of(chunks)["id"].to_pylist() == list(range(sum(sizes)))


def test_each_chunk_says_which_row_it_starts_with(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", table(100), [30, 70])
    source = opened(path, batch_rows=16)
    for chunk in source.chunks(["x"], ["id"]):
        assert chunk.origin == (path, chunk.kept["id"][0].as_py())  # type: ignore[index]
    for fragment in source.fragments(["id"]) or []:
        for chunk in fragment.chunks():
            assert chunk.origin == (path, chunk.features["id"][0].as_py())


def test_row_groups_are_fragments_that_can_be_read_in_any_order(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", table(100), [30, 0, 50, 20])
    fragments = opened(path, batch_rows=16).fragments(["id"])
    assert fragments is not None
    assert [p.rows for p in fragments] == [30, 50, 20]
    readers = [p.chunks() for p in fragments]
    seen: list[int] = []
    while readers:  # all at once, one chunk at a time
        for reader in list(readers):
            chunk = next(reader, None)
            if chunk is None:
                readers.remove(reader)
            else:
                seen += chunk.features["id"].to_pylist()
    assert sorted(seen) == list(range(100))
    assert seen != sorted(seen)


def test_rows_and_size_are_known_without_reading(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", table(100))
    source = opened(path)
    assert (source.rows, source.size) == (100, Path(path).stat().st_size)
    assert source.parts == [(path, "parquet", 100, source.size)]


def test_progress_reaches_the_size_of_the_file(tmp_path: Path) -> None:
    source = opened(parquet(tmp_path / "t.parquet", table(1000)), batch_rows=100)
    list(source.chunks(["x"]))
    assert source.size is not None
    assert 0.95 * source.size <= source.bytes_read <= source.size
    list(source.chunks(["x"]))
    assert source.bytes_read <= source.size


def test_only_the_rows_asked_for_are_read(tmp_path: Path) -> None:
    source = opened(parquet(tmp_path / "t.parquet", table(100), [60, 40]), max_rows=70)
    assert source.rows == 70
    assert features_of(source.chunks(["id"]))["id"].to_pylist() == list(range(70))
    fragments = source.fragments(["id"]) or []
    assert [p.rows for p in fragments] == [60, 10]
    seen = [i for p in fragments for c in p.chunks() for i in c.features["id"].to_pylist()]
    assert seen == list(range(70))


def test_the_sample_is_the_first_rows(tmp_path: Path) -> None:
    source = opened(parquet(tmp_path / "t.parquet", table(100), [60, 40]))
    assert source.sample(70) == table(100).slice(0, 70)
    assert source.sample(10, ["word", "x"]) == table(100).slice(0, 10).select(["word", "x"])
    assert source.sample(1000).num_rows == 100


@pytest.mark.parametrize("names", [["nope"], ["x", "nope"]])
def test_a_missing_column_is_an_error_with_the_nearest_names(tmp_path: Path, names: list[str]) -> None:
    content = table(10).rename_columns(["id", "x", "price_eur", "word"])
    source = opened(parquet(tmp_path / "t.parquet", content))
    with pytest.raises(DataError, match=r't\.parquet: no column "Price-eur"') as caught:
        source.chunks(["Price-eur"])
    assert "price_eur" in str(caught.value.hint)
    for call in (source.chunks, source.fragments):
        with pytest.raises(DataError, match='no column "nope"'):
            call(names)
    with pytest.raises(DataError, match='no column "nope"'):
        source.chunks(["x"], ["nope"])


def test_dots_in_a_name_are_part_of_the_name(tmp_path: Path) -> None:
    content = pa.table(
        {
            "a": [1.0, 2.0],
            "a.b": [3.0, 4.0],
            "s": [{"b": 5.0, "c": 6.0}, {"b": 7.0, "c": 8.0}],
            "s.b": [9.0, 10.0],
        }
    )
    source = opened(parquet(tmp_path / "t.parquet", content))
    for names in (["a"], ["a.b"], ["s.b"], ["s.b", "a", "a.b"]):
        assert features_of(source.chunks(names)) == content.select(names)
    assert kept_of(source.chunks(["a"], ["s"])) == content.select(["s"])
    with pytest.raises(DataError, match=r'no column "s\.c"'):
        source.chunks(["s.c"])


def test_two_columns_of_one_name_are_an_error_with_positions_where_they_are_asked_for(tmp_path: Path) -> None:
    content = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "b", "a"])
    path = parquet(tmp_path / "t.parquet", content)
    with pytest.raises(DataError, match=r't\.parquet: 2 columns are called "a": columns 1 and 3'):
        opened(path).chunks(["a"])
    assert features_of(opened(path).chunks(["b"])) == content.select(["b"])


def test_a_file_without_rows_is_read(tmp_path: Path) -> None:
    source = opened(parquet(tmp_path / "t.parquet", table(0)))
    assert source.rows == 0
    assert list(source.chunks(["x"], ["word"])) == []
    assert source.fragments(["x"]) == []
    assert source.sample().num_rows == 0


def test_a_file_of_zero_bytes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.touch()
    with pytest.raises(DataError, match=r"t\.parquet: the file is empty"):
        opened(path)


@pytest.mark.parametrize("keep", [6, 100, -1, -9])
def test_a_cut_file_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "t.parquet"
    parquet(path, table(1000))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"t\.parquet: not a readable Parquet file"):
        opened(path)


def test_damage_in_the_middle_is_named_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(5000), path, compression="gzip")
    data = bytearray(path.read_bytes())
    data[100:2000] = bytes(1900)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"t\.parquet: not a readable Parquet file"):
        list(opened(path, threads=2).chunks(["id", "x"]))


def test_damage_at_random_places_never_gives_another_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    good = Path(parquet(tmp_path / "good.parquet", table(300))).read_bytes()
    path = tmp_path / "t.parquet"
    for _ in range(60):
        data = bytearray(good)
        at = int(rng.integers(4, len(data) - 8))
        data[at : at + 4] = rng.bytes(4)
        path.write_bytes(data)
        try:
            source = opened(path)
            list(source.chunks(source.schema.names))
        except DataError as error:
            assert "t.parquet" in error.message  # noqa: PT017


def test_a_pandas_index_is_known(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index([5, 9], name="key"))
    frame.to_parquet(tmp_path / "named.parquet")
    frame.rename_axis(None).to_parquet(tmp_path / "bare.parquet")
    frame.reset_index().to_parquet(tmp_path / "range.parquet")
    assert opened(tmp_path / "named.parquet").id_columns == ("key",)
    assert opened(tmp_path / "bare.parquet").id_columns == ("__index_level_0__",)
    assert opened(tmp_path / "range.parquet").id_columns == ()


def test_nonsense_in_the_pandas_note_does_no_harm(tmp_path: Path) -> None:
    for note in (b"{", b"[]", b'{"index_columns": 3}', b'{"index_columns": [{"a": 1}]}', b"\xff"):
        content = table(3).replace_schema_metadata({b"pandas": note})
        assert opened(parquet(tmp_path / "t.parquet", content)).id_columns == ()


def test_an_abandoned_reading_leaves_no_thread(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", table(10_000))
    before = threading.active_count()
    chunks = opened(path, threads=2, batch_rows=10).chunks(["x"])
    next(chunks)
    assert threading.active_count() == before + 1
    chunks.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_one_thread_means_no_thread(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", table(1000))
    before = threading.active_count()
    for _ in opened(path, threads=1, batch_rows=10).chunks(["x"]):
        assert threading.active_count() == before


def test_parquet_from_a_pipe_is_written_to_a_temporary_file_with_a_note(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = parquet(tmp_path / "t.parquet", table(1000), [300, 700])
    program = (
        "from tests.tables import *\n"
        "import os\n"
        "source = opened('-')\n"
        "assert source.rereadable and source.rows == 1000\n"
        "for _ in range(2):\n"
        "    assert features_of(source.chunks(['id']))['id'].to_pylist() == list(range(1000))\n"
        "assert len(source.fragments(['id'])) == 2\n"
        "print(*source.notes)\n"
    )
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as pipe:
        done = subprocess.run([sys.executable, "-c", program], stdin=pipe.stdout, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"temporary file" in done.stdout


MEMORY = """
import sys
from imdh_cli.params import SourceParams
from imdh_cli.sources import open_source
def peak():  # not ru_maxrss, which begins with the parent's
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
source = open_source([sys.argv[1]], SourceParams(batch_rows=16384))
next(iter(source.chunks(["c0"])))
before = peak()
rows = sum(chunk.features.num_rows for chunk in source.chunks([f"c{i}" for i in range(8)]))
print(rows, peak() - before)
"""


def test_memory_stays_flat_in_one_huge_row_group(tmp_path: Path) -> None:
    """128 MB of doubles in one row group; the process holds a few batches, pages and buffers."""
    column = pa.array(np.random.default_rng(0).random(2_000_000))
    content = pa.table({f"c{i}": column for i in range(8)})
    path = tmp_path / "t.parquet"
    for options in ({"compression": "none", "use_dictionary": False}, {}):
        pq.write_table(content, path, row_group_size=2_000_000, **options)
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True
        )
        rows, grown = done.stdout.split()
        assert int(rows) == 2_000_000
        assert float(grown) < 50  # MB


def test_a_few_columns_of_a_wide_file_cost_what_they_cost(tmp_path: Path) -> None:
    """Bytes allocated while reading 5 of 2,000 columns: as from a file that holds only the 5."""
    column = pa.array(np.random.default_rng(0).random(2000))
    wide = parquet(tmp_path / "wide.parquet", pa.table({f"c{i}": column for i in range(2000)}))
    slim = parquet(tmp_path / "slim.parquet", pa.table({f"c{i}": column for i in range(5)}))

    def held(path: str) -> int:
        source = opened(path)
        before = pa.total_allocated_bytes()
        most = 0
        for chunk in source.chunks([f"c{i}" for i in range(5)]):
            assert chunk.features.num_columns == 5
            most = max(most, pa.total_allocated_bytes() - before)
        return most

    assert held(wide) < held(slim) + 100_000
