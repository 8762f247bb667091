"""The same rows, options and seed give the same bytes, whatever the threads, batches and files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.core import learner as learner_module
from imdh_cli.core import thread_pipeline
from tests.cli import arrays, assert_same_arrays, blobs, imdh, write

ROWS, BUFFER, BLOCK = 2000, 400, 128


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks and windows of few rows and processors enough: all turns of a large run in a small one."""
    monkeypatch.setattr(thread_pipeline, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(learner_module, "WINDOW_ROWS", BLOCK)
    monkeypatch.setattr("imdh_cli.rows.schedule.SEED_ROWS", BLOCK // 2)
    monkeypatch.setattr("imdh_cli.runtime.usable_threads", lambda: 8)


class World(NamedTuple):
    folder: Path
    groups: Path  # Parquet, many row groups
    one: Path  # Parquet, one row group
    csv: Path
    files: Path  # a folder of Parquet files


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("determinism")
    X, _ = blobs(ROWS, k=5, d=3, distance=6.0)
    X = X[np.argsort(X[:, 0])]
    X[:, 2] = np.round(X[:, 2])  # whole numbers are learned from with noise
    X[::97, 1] = np.nan
    write(folder / "groups.parquet", X)
    table = pq.read_table(folder / "groups.parquet")
    pq.write_table(table, folder / "one.parquet")
    write(folder / "t.csv", X)
    (folder / "files").mkdir()
    for k, low in enumerate(range(0, ROWS, 500)):
        pq.write_table(table.slice(low, 500), folder / "files" / f"part-{k}.parquet")
    return World(folder, *(folder / name for name in ("groups.parquet", "one.parquet", "t.csv", "files")))


def fitted(data: Path, folder: Path, *words: object, stdin: bytes = b"") -> Path:
    model = folder / f"{len(list(folder.iterdir()))}.npz"
    source = "-" if stdin else data
    imdh("fit", source, "-o", model, "--depth", 6, "-q", *words, stdin=stdin)  # type: ignore[arg-type]
    return model


# Every way in which rows are met: at once, mixed from fragments, through the buffer, as they come; in one
# pass whose statistics are windows, or in several with a recount.
WAYS = {
    "in memory": [],
    "in memory, of three trees": ["--n-init", 3],
    "in memory, one pass": ["--passes", 1, "--recount", "no"],
    "fragments": ["--buffer-rows", BUFFER],
    "fragments, one pass": ["--buffer-rows", BUFFER, "--passes", 1, "--recount", "no"],
    "buffer": ["--buffer-rows", BUFFER, "--shuffle", "buffer"],
    "as they come": ["--buffer-rows", BUFFER, "--shuffle", "none", "--passes", 1, "--recount", "no"],
    "filled": ["--buffer-rows", BUFFER, "--missing", "mean", "--scale", "none"],
    "the paper's": ["--buffer-rows", BUFFER, "--preset", "paper"],
}


@pytest.mark.parametrize(
    "data", ["groups", *(pytest.param(other, marks=pytest.mark.long) for other in ("files", "csv"))]
)
@pytest.mark.parametrize("way", WAYS)
def test_threads_and_batches_do_not_matter(world, tmp_path, way, data):
    path = getattr(world, data)
    first = fitted(path, tmp_path, *WAYS[way], "--threads", 1)
    for threads, batch in [(2, 65536), (3, 17), (8, 333)]:
        other = fitted(path, tmp_path, *WAYS[way], "--threads", threads, "--batch-rows", batch)
        assert_same_arrays(first, other)
        assert first.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("data", ["one", pytest.param("csv", marks=pytest.mark.long)])
def test_batches_of_one_row_do_not_matter(world, tmp_path, data):
    path = getattr(world, data)
    words = ["--buffer-rows", BUFFER, "--max-rows", 1000]
    first = fitted(path, tmp_path, *words)
    assert_same_arrays(first, fitted(path, tmp_path, *words, "--batch-rows", 1))


@pytest.mark.parametrize("way", ["in memory", "in memory, one pass", "buffer", "as they come", "filled"])
def test_formats_and_the_number_of_files_do_not_matter_where_order_is_kept(world, tmp_path, way):
    words = [*WAYS[way], "--shuffle", "none"] if way == "filled" else WAYS[way]
    first = fitted(world.one, tmp_path, *words)
    for path in (world.groups, world.files, world.csv):
        assert_same_arrays(first, fitted(path, tmp_path, *words))


@pytest.mark.parametrize("way", ["in memory", "in memory, one pass", "buffer", "as they come"])
def test_a_stream_is_as_good_as_its_file(world, tmp_path, way):
    passes = WAYS[way] if "--passes" in WAYS[way] else [*WAYS[way], "--passes", 2, "--recount", "yes"]
    first = fitted(world.csv, tmp_path, *passes)
    text = world.csv.read_bytes()
    assert_same_arrays(first, fitted(world.csv, tmp_path, *passes, stdin=text))
    slow = fitted(world.csv, tmp_path, *passes, "--threads", 3, "--batch-rows", 100, stdin=text)
    assert_same_arrays(first, slow)


def test_rows_left_out_do_not_matter(world, tmp_path):
    table = pq.read_table(world.one)
    whole = table.filter(pa.compute.is_finite(table["x2"]))
    assert whole.num_rows < table.num_rows
    pq.write_table(whole, tmp_path / "whole.parquet")
    words = [*WAYS["as they come"], "-c", "x1,x2,x3"]
    model = fitted(tmp_path / "whole.parquet", tmp_path, *words)
    assert_same_arrays(fitted(world.one, tmp_path, *words), model)


def test_another_seed_gives_another_tree(world, tmp_path):
    for way in ("in memory", "fragments", "buffer"):
        one = fitted(world.groups, tmp_path, *WAYS[way])
        assert_same_arrays(one, fitted(world.groups, tmp_path, *WAYS[way], "--seed", 0))
        other = fitted(world.groups, tmp_path, *WAYS[way], "--seed", 1)
        assert not np.array_equal(arrays(one)["thresholds"], arrays(other)["thresholds"])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_labels_are_the_same_bytes(world, tmp_path, suffix):
    model = fitted(world.groups, tmp_path)
    said = set()
    for k, (threads, batch) in enumerate([(1, 65536), (2, 1000), (3, 1), (8, 333)]):
        out = tmp_path / f"{k}.{suffix}"
        imdh("assign", model, world.groups, "--with", "node,leaf,margin,distance", "--keep", "x2", "-o", out,
             "--max-rows", 1000, "--threads", threads, "--batch-rows", batch)  # fmt: skip
        if suffix == "csv":
            said.add(out.read_bytes())
        else:  # how rows are grouped in the file may depend on the batches
            table = pq.read_table(out) if suffix == "parquet" else pa.ipc.open_file(out).read_all()
            said.add(str(table.combine_chunks().to_pydict()))
    assert len(said) == 1


def test_a_recount_is_the_same_bytes(world, tmp_path):
    model = fitted(world.groups, tmp_path, *WAYS["fragments, one pass"])
    outs = []
    for threads, batch in [(1, 65536), (3, 7)]:
        for data in (world.csv, world.groups):
            outs.append(tmp_path / f"r{len(outs)}.npz")
            imdh("prune", model, data, "-o", outs[-1], "--threads", threads, "--batch-rows", batch)
    for other in outs[1:]:
        assert_same_arrays(outs[0], other)


@given(
    rows=st.integers(1, 900),
    buffer=st.integers(1, 500),
    batch=st.integers(1, 900),
    threads=st.integers(1, 5),
    shuffle=st.sampled_from(["auto", "buffer", "none"]),
    passes=st.integers(1, 3),
    recount=st.sampled_from(["yes", "no"]),
)
def test_no_combination_matters(
    world, tmp_path_factory, rows, buffer, batch, threads, shuffle, passes, recount
):
    folder = tmp_path_factory.mktemp("any")
    words = ["--max-rows", rows, "--buffer-rows", buffer, "--shuffle", shuffle, "--passes", passes,
             "--recount", recount, "--missing", "mean"]  # fmt: skip
    one = fitted(world.groups, folder, *words, "--threads", 1)
    other = fitted(world.groups, folder, *words, "--threads", threads, "--batch-rows", batch)
    assert one.read_bytes() == other.read_bytes()
