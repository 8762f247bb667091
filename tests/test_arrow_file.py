"""Arrow IPC files and streams: the asked columns in row order, from paths and pipes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest

from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources import arrow_file, open_source
from tests.tables import arrow, arrow_stream, features_of, kept_of, opened, table


def through_pipe(data: bytes, **params: object):  # type: ignore[no-untyped-def]
    """A source that reads these bytes from a pipe, as `imdh fit <(command)` would."""
    reading, writing = os.pipe()

    def write() -> None:
        try:
            with open(writing, "wb") as pipe:
                pipe.write(data)
        except BrokenPipeError:
            pass

    threading.Thread(target=write, daemon=True).start()
    source = open_source([f"/dev/fd/{reading}"], SourceParams(**params))  # type: ignore[arg-type]
    os.close(reading)
    return source


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_comes_back_as_it_was_written(tmp_path: Path, compression: str | None, threads: int) -> None:
    path = arrow(tmp_path / "t.arrow", table(2500), 1000, compression)
    source = opened(path, threads=threads, batch_rows=300)
    assert source.rows == 2500
    chunks = list(source.chunks(["y", "x"], ["word", "id", "x"]))
    assert features_of(chunks) == table(2500).select(["y", "x"])
    assert kept_of(chunks) == table(2500).select(["word", "id", "x"])
    assert max(c.features.num_rows for c in chunks) <= 300


@pytest.mark.parametrize("window", [1, 100, 10_000])
def test_a_batch_is_read_in_windows_in_row_order(
    tmp_path: Path, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_file, "WINDOW", window)
    for compression in (None, "zstd"):
        path = arrow(tmp_path / "t.arrow", table(250), 120, compression)
        source = opened(path, batch_rows=50)
        chunks = list(source.chunks(["x"], ["word", "id"]))
        assert features_of(chunks) == table(250).select(["x"])
        assert kept_of(chunks) == table(250).select(["word", "id"])
        assert [c.origin[1] for c in chunks if c.origin][-1] == 250 - chunks[-1].features.num_rows


MEMORY = """
import sys
import pyarrow.compute as pc
from imdh_cli.params import SourceParams
from imdh_cli.sources import open_source
def peak():  # not ru_maxrss, which begins with the parent's
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
source = open_source([sys.argv[1]], SourceParams(batch_rows=16384))
next(iter(source.chunks(["c0"])))
before = peak()
rows = 0
for chunk in source.chunks(source.schema.names):
    rows += chunk.features.num_rows
    for column in chunk.features:  # mapped pages count when they are looked at
        pc.sum(column)
print(rows, peak() - before)
"""


def test_memory_stays_flat_in_one_huge_batch(tmp_path: Path) -> None:
    """256 MB in one record batch; the process holds one window of it, 64 MB, and a chunk."""
    column = np.random.default_rng(0).random(4_000_000)
    content = pa.table({f"c{i}": column for i in range(8)})
    path = arrow(tmp_path / "t.arrow", content, 4_000_000)
    done = subprocess.run([sys.executable, "-c", MEMORY, path], capture_output=True, text=True, check=True)
    rows, grown = done.stdout.split()
    assert int(rows) == 4_000_000
    assert 30 < float(grown) < 110  # MB


def test_feather_version_2_is_an_arrow_file(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(table(100), str(tmp_path / "t.feather"))
    source = opened(tmp_path / "t.feather")
    assert source.parts[0].format == "arrow"
    assert features_of(source.chunks(["id"])) == table(100).select(["id"])


def test_record_batches_are_fragments(tmp_path: Path) -> None:
    path = arrow(tmp_path / "t.arrow", table(250), 100)
    fragments = opened(path, batch_rows=30).fragments(["id"]) or []
    assert [p.rows for p in fragments] == [100, 100, 50]
    chunks = [c for p in reversed(fragments) for c in p.chunks()]
    assert chunks[0].origin == (path, 200)
    assert sorted(features_of(chunks)["id"].to_pylist()) == list(range(250))


def test_each_chunk_says_which_row_it_starts_with(tmp_path: Path) -> None:
    path = arrow(tmp_path / "t.arrow", table(250), 100)
    for chunk in opened(path, batch_rows=30).chunks(["id"]):
        assert chunk.origin == (path, chunk.features["id"][0].as_py())


def test_the_sample_is_the_first_rows(tmp_path: Path) -> None:
    source = opened(arrow(tmp_path / "t.arrow", table(250), 100))
    assert source.sample(150) == table(250).slice(0, 150)
    assert source.sample(10, ["word"]) == table(250).slice(0, 10).select(["word"])


def test_a_file_without_rows_or_batches_is_read(tmp_path: Path) -> None:
    source = opened(arrow(tmp_path / "t.arrow", table(0)))
    assert source.rows == 0
    assert list(source.chunks(["x"])) == []
    assert source.sample().num_rows == 0


def test_a_stream_in_a_file_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.arrows"
    path.write_bytes(arrow_stream(table(250), 100))
    source = opened(path, batch_rows=64)
    assert source.rereadable
    assert source.fragments(["id"]) is None
    assert source.sample(120) == table(250).slice(0, 120)
    for _ in range(2):
        assert features_of(source.chunks(["id", "x"])) == table(250).select(["id", "x"])


@pytest.mark.parametrize("sampled", [0, 1, 100, 120, 1000])
def test_a_piped_stream_serves_its_sample_again(sampled: int) -> None:
    source = through_pipe(arrow_stream(table(250), 100))
    assert not source.rereadable
    if sampled:
        assert source.sample(sampled) == table(250).slice(0, sampled)
        assert source.sample(sampled, ["id"]) == table(250).slice(0, sampled).select(["id"])
    chunks = list(source.chunks(["x"], ["id"]))
    assert kept_of(chunks) == table(250).select(["id"])


def test_a_file_in_a_pipe_is_read_as_the_stream_inside(tmp_path: Path) -> None:
    data = Path(arrow(tmp_path / "t.arrow", table(250), 100)).read_bytes()
    source = through_pipe(data, threads=2)
    assert features_of(source.chunks(["id", "x"])) == table(250).select(["id", "x"])


def test_a_pipe_can_be_read_once() -> None:
    source = through_pipe(arrow_stream(table(10)))
    list(source.chunks(["x"]))
    with pytest.raises(DataError, match="read once"):
        list(source.chunks(["x"]))


def test_a_file_cut_in_a_pipe_is_an_error_not_fewer_rows(tmp_path: Path) -> None:
    data = Path(arrow(tmp_path / "t.arrow", table(250), 100)).read_bytes()
    for cut in (len(data) - 3, len(data) - 200, len(data) // 2):
        with pytest.raises(DataError, match="not a readable Arrow file"):
            list(through_pipe(data[:cut]).chunks(["id"]))


@pytest.mark.parametrize("keep", [8, 500, -1])
def test_a_cut_file_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "t.arrow"
    path.write_bytes(Path(arrow(path, table(250), 100)).read_bytes()[:keep])
    with pytest.raises(DataError, match=r"t\.arrow: not a readable Arrow file"):
        opened(path)


def test_damage_at_random_places_never_gives_another_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    content = table(60).append_column("code", pa.array(["a", "b", "c"] * 20).dictionary_encode())
    good = Path(arrow(tmp_path / "good.arrow", content, 20)).read_bytes()
    stream = arrow_stream(content, 20)
    for i in range(120):
        data = bytearray(stream if i % 2 else good)
        at = int(rng.integers(8, len(data) - 8))
        data[at : at + 4] = rng.bytes(4)
        path = tmp_path / "t.arrow"
        path.write_bytes(data)
        try:
            source = opened(path, format="arrow")
            source.sample(30)
            for chunk in source.chunks(source.schema.names, source.schema.names):
                chunk.features.validate(full=True)
        except DataError as error:
            assert "t.arrow" in error.message  # noqa: PT017


def test_offsets_that_point_anywhere_are_caught(tmp_path: Path) -> None:
    content = pa.table({"word": ["ab"] * 50})
    data = Path(arrow(tmp_path / "t.arrow", content)).read_bytes()
    at = data.index(struct.pack("<4i", 0, 2, 4, 6))
    for offset in (0x7FFFFFFF, -1, 10_000_000):
        for place in (at, at + 100, at + 200):
            broken = data[:place] + struct.pack("<i", offset) + data[place + 4 :]
            (tmp_path / "t.arrow").write_bytes(broken)
            with pytest.raises(DataError, match=r"t\.arrow: not a readable Arrow file"):
                list(opened(tmp_path / "t.arrow").chunks(["word"]))


def test_feather_version_1_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.feather"
    path.write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    with pytest.raises(DataError, match="Feather file of version 1"):
        opened(path)


def test_a_missing_column_and_a_doubled_one_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='no column "z"'):
        opened(arrow(tmp_path / "t.arrow", table(3))).chunks(["x", "z"])
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(DataError, match='2 columns are called "a": columns 1 and 2'):
        opened(arrow(tmp_path / "t.arrow", twice)).chunks(["a"])


def test_dictionaries_that_change_between_batches_are_read_right(tmp_path: Path) -> None:
    parts = [pa.array(["a", "b"]), pa.array(["c", "b"])]
    schema = pa.schema([("code", pa.dictionary(pa.int32(), pa.string()))])
    with pa.OSFile(str(tmp_path / "t.arrows"), "wb") as file, pa.ipc.new_stream(file, schema) as w:
        for part in parts:
            w.write_batch(pa.record_batch([part.dictionary_encode()], schema=schema))
    chunks = list(opened(tmp_path / "t.arrows").chunks(["code"], ["code"]))
    assert [c.features["code"].to_pylist() for c in chunks] == [["a", "b"], ["c", "b"]]
    assert kept_of(chunks)["code"].to_pylist() == ["a", "b", "c", "b"]
    assert kept_of(chunks).schema.field("code").type == pa.string()
