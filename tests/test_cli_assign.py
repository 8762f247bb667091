"""`imdh assign`: row i of the output is row i of the input, labelled as NumPy labels it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imdh_cli.core import pruning
from imdh_cli.model import load, save
from tests.cli import arrays, blobs, descend, imdh, labels, one_line_error, second_choices, write

ROWS = 100_000


class World(NamedTuple):
    folder: Path
    X: np.ndarray
    data: Path  # Parquet of X and an id, in row groups of unequal size
    model: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("assign")
    X, _ = blobs(ROWS, k=5, d=4, distance=7.0)
    table = pa.table({f"x{j + 1}": X[:, j] for j in range(4)} | {"id": np.arange(ROWS)})
    rng = np.random.default_rng(0)
    with pq.ParquetWriter(folder / "t.parquet", table.schema) as writer:
        at = 0
        while at < ROWS:
            rows = int(rng.integers(1, 5000))
            writer.write_table(table.slice(at, rows), row_group_size=rows)
            at += rows
    imdh("fit", folder / "t.parquet", "-o", folder / "m.npz", "--id", "id", "--depth", 6)
    return World(folder, X, folder / "t.parquet", folder / "m.npz")


@pytest.fixture(scope="module")
def small(world) -> tuple[Path, np.ndarray]:
    """The first rows as CSV."""
    X = world.X[:500]
    return write(world.folder / "small.csv", X), X


# --- the labels -----------------------------------------------------------------------------------


def test_labels_node_leaf_margin_and_distance_are_what_numpy_finds(world, tmp_path):
    out = tmp_path / "l.parquet"
    imdh("assign", world.model, world.data, "--with", "node,leaf,margin,distance", "-o", out)
    got = pq.read_table(out).to_pandas()
    m, way = arrays(world.model), descend(world.model, world.X)
    assert list(got.columns) == ["id", "cluster", "node", "leaf", "margin", "distance"]
    np.testing.assert_array_equal(got["id"], np.arange(ROWS))
    np.testing.assert_array_equal(got["cluster"], way.label)
    np.testing.assert_array_equal(got["leaf"], way.leaf)

    # A cluster is the highest node below which every leaf has its label: the row's node lies above its
    # leaf, and the cuts that count for the margin lie above that node.
    node = got["node"].to_numpy()
    first = 1 << (6 - np.floor(np.log2(node)).astype(int))
    for k in range(1, m["cluster_of_leaf"].max() + 1):
        (i,) = np.unique(node[way.label == k])
        below = np.flatnonzero(m["cluster_of_leaf"] == k) + 64
        assert (below >> (6 - int(np.log2(i))) == i).all()
        assert len(below) == first[way.label == k][0]
    above = way.path < node[:, None]
    gaps = np.abs(way.projection - m["thresholds"][way.path - 1]) / m["projection_sd"][way.path - 1]
    np.testing.assert_allclose(got["margin"], np.where(above, gaps, np.inf).min(axis=1), rtol=1e-9, atol=1e-9)

    means = np.stack([way.z[way.label == k].mean(axis=0) for k in range(1, way.label.max() + 1)])
    distance = np.sqrt(((way.z - means[way.label - 1]) ** 2).sum(axis=1))
    np.testing.assert_allclose(got["distance"], distance, rtol=1e-9)


@pytest.fixture(scope="module")
def spread(world) -> tuple[Path, np.ndarray]:
    """Rows as they were learned from, and rows all over the space."""
    rng = np.random.default_rng(1)
    X = np.vstack([world.X[:1500], world.X.mean(axis=0) + 9 * rng.standard_normal((1500, 4))])
    return write(world.folder / "spread.parquet", X), X


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_the_runner_up_lies_beyond_the_nearest_cut(world, spread, tmp_path, k):
    data, X = spread
    model, out = tmp_path / "k.npz", tmp_path / "l.parquet"
    imdh("prune", world.model, "-k", k, "-o", model)
    imdh("assign", model, data, "--with", "runner_up", "-o", out)
    got = pq.read_table(out)["runner_up"]
    assert got.type == pa.int32()
    assert got.to_pylist() == [cluster for cluster, _ in second_choices(model, X)]


def test_a_runner_up_is_another_cluster_where_the_nearest_cut_has_the_same_on_both_sides(
    world, spread, tmp_path
):
    """As a least size can bring about: a node too small to be a cluster goes with one beside it."""
    data, X = spread
    model = load(world.model)
    model.cluster_of_leaf = np.repeat([1, 2, 3, 4], [5, 22, 26, 11]).astype(np.int32)
    model.metadata["choice"]["clusters"] = 4
    save(model, tmp_path / "k.npz")
    imdh("assign", tmp_path / "k.npz", data, "--with", "runner_up,margin", "-o", tmp_path / "l.csv")
    got = pd.read_csv(tmp_path / "l.csv")
    assert got["runner_up"].tolist() == [cluster for cluster, _ in second_choices(tmp_path / "k.npz", X)]
    assert (got["runner_up"] != got["cluster"]).all()


def test_the_path_is_the_nodes_passed_down_to_the_cluster(world, small, tmp_path):
    data, X = small
    imdh("assign", world.model, data, "--with", "path,node", "-k", 7, "-o", tmp_path / "l.csv")
    got = pd.read_csv(tmp_path / "l.csv")
    way = descend(world.model, X)
    for passed, node, path, leaf in zip(got["path"], got["node"], way.path, way.leaf, strict=True):
        nodes = [int(i) for i in passed.split("/")]
        assert nodes[-1] == node
        assert nodes == [*path, leaf][: len(nodes)]
    imdh("assign", world.model, data, "--with", "path", "-k", 1, "-o", tmp_path / "one.csv")
    assert set(pd.read_csv(tmp_path / "one.csv")["path"]) == {1}


@pytest.mark.parametrize("k", [1, 2, 3, 7, 20])
def test_a_cut_at_another_number_is_what_prune_would_give(world, small, tmp_path, k):
    data, X = small
    before = world.model.read_bytes()
    imdh("assign", world.model, data, "-k", k, "-o", tmp_path / "l.csv")
    assert world.model.read_bytes() == before
    imdh("prune", world.model, "-k", k, "-o", tmp_path / "k.npz")
    np.testing.assert_array_equal(labels(tmp_path / "l.csv"), descend(tmp_path / "k.npz", X).label)
    assert arrays(tmp_path / "k.npz")["cluster_of_leaf"].max() == k


def test_cuts_are_nested_and_a_cluster_keeps_its_node_number(world, small, tmp_path):
    """From K to K + 1 one node gives way to its two children, and no other changes."""
    data, _ = small
    seen = []
    for k in range(1, 9):
        imdh("assign", world.model, data, "-k", k, "--with", "node", "-f", "-o", tmp_path / "l.csv")
        table = pd.read_csv(tmp_path / "l.csv")
        assert table.groupby("cluster")["node"].nunique().eq(1).all()
        seen.append(set(table["node"]))
        # Every row is in one of the two.
        if len(seen) > 1 and len(seen[-1]) == k:
            (parent,) = seen[-2] - seen[-1]
            assert seen[-1] - seen[-2] == {2 * parent, 2 * parent + 1}
    assert seen[0] == {1}
    assert len(seen[-1]) == 8


def test_clusters_do_not_change_with_the_data_that_are_labelled(world, tmp_path):
    few = world.X[world.X[:, 0] > np.median(world.X[:, 0])][:300]
    imdh("assign", world.model, write(tmp_path / "few.csv", few), "-o", tmp_path / "l.csv")
    np.testing.assert_array_equal(labels(tmp_path / "l.csv"), descend(world.model, few).label)


def test_columns_are_found_by_name_in_any_order(world, small, tmp_path):
    data, X = small
    other = write(tmp_path / "t.csv", X[:, [3, 1, 0, 2]], ["x4", "x2", "x1", "x3"], more=np.zeros(len(X)))
    for name, table in (("a", data), ("b", other)):
        imdh("assign", world.model, table, "-o", tmp_path / f"{name}.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_whole_numbers_and_float32_are_labelled_as_their_doubles(world, tmp_path):
    X = np.round(world.X[:200])
    table = pa.table({f"x{j + 1}": pa.array(X[:, j]) for j in range(4)})
    table = table.set_column(0, "x1", table.column(0).cast(pa.int16()))
    table = table.set_column(1, "x2", table.column(1).cast(pa.float32()))
    pq.write_table(table, tmp_path / "t.parquet")
    imdh("assign", world.model, tmp_path / "t.parquet", "-o", tmp_path / "l.csv")
    np.testing.assert_array_equal(labels(tmp_path / "l.csv"), descend(world.model, X).label)


# --- where they go --------------------------------------------------------------------------------


def test_every_format_holds_the_same(world, small, tmp_path):
    data, _ = small
    said = imdh("assign", world.model, data, "--with", "leaf,margin", "-q").out
    tables = [pd.read_csv(io.BytesIO(said))]
    for suffix in ("csv", "parquet", "arrow", "csv.gz", "feather"):
        out = tmp_path / f"l.{suffix}"
        ran = imdh("assign", world.model, data, "--with", "leaf,margin", "-o", out)
        assert "500 rows labelled of 500 in" in ran.err
        assert f"wrote {out}" in ran.err
        assert ran.out == b""
        if "csv" in suffix:
            tables.append(pd.read_csv(out))
        elif suffix == "parquet":
            tables.append(pd.read_parquet(out))
        else:
            tables.append(pa.ipc.open_file(out).read_pandas())
    for table in tables[1:]:
        pd.testing.assert_frame_equal(table, tables[0], check_dtype=False, check_exact=True)


def test_one_folder_for_each_cluster(world, tmp_path):
    folder = tmp_path / "by"
    out = tmp_path / "l.parquet"
    words = ["--max-rows", 5000, "--keep-all", "--partition-by-cluster", folder, "-o", out]
    imdh("assign", world.model, world.data, *words)
    label = descend(world.model, world.X[:5000]).label
    assert {p.name for p in folder.iterdir()} == {f"cluster={k}" for k in np.unique(label)}
    files = f"read_parquet('{folder}/*/*.parquet', hive_partitioning = true)"
    got = duckdb.sql(f"select id, cluster from {files} order by id").df()
    np.testing.assert_array_equal(got["id"], np.arange(5000))
    np.testing.assert_array_equal(got["cluster"], label)
    np.testing.assert_array_equal(labels(tmp_path / "l.parquet"), label)


@pytest.mark.parametrize("decimal", [".", ","])
def test_what_was_kept_from_a_csv_is_labelled_again_as_the_numbers_it_was(tmp_path, decimal):
    rng = np.random.default_rng(0)
    at = np.arange(400)
    table = pd.DataFrame({"id": at, "x": rng.normal(size=400) + 20.0 * (at % 2), "n": at % 5})
    table.loc[::50, "x"] = np.nan
    table.to_csv(tmp_path / "t.csv", index=False, decimal=decimal, sep=";", na_rep="NA")
    words = ["--decimal", ","] if decimal == "," else []
    imdh("fit", tmp_path / "t.csv", "-c", "x,n", "-o", tmp_path / "m.npz", "--n-init", "1", "-q", *words)
    by = tmp_path / "by"
    imdh("assign", tmp_path / "m.npz", tmp_path / "t.csv", "--keep-all", "--partition-by-cluster", by, *words)
    if decimal == ",":
        ran = imdh("assign", tmp_path / "m.npz", by, status=3)
        assert 'column "x" is text: it holds "' in ran.err
        assert "hint: add --decimal ," in ran.err
    again = imdh("assign", tmp_path / "m.npz", by, "--keep", "id,cluster", "--name", "found", *words)
    got = pd.read_csv(io.StringIO(again.text))
    assert (got["cluster"] == got["found"]).all()
    assert sorted(got["found"].value_counts()) == [8, 192, 200]
    imdh("report", tmp_path / "m.npz", by, *words)
    words_in_it = pa.table({"x": ["low"] * 40, "n": [1] * 40})
    pq.write_table(words_in_it, tmp_path / "w.parquet")
    assert 'column "x" is text' in imdh("assign", tmp_path / "m.npz", tmp_path / "w.parquet", status=3).err


def test_a_folder_alone_writes_nothing_to_stdout(world, small, tmp_path):
    data, _ = small
    ran = imdh("assign", world.model, data, "--keep", "x1", "--partition-by-cluster", tmp_path / "by")
    assert ran.out == b""
    assert f"wrote {tmp_path}/by" in ran.err


# --- what is kept ---------------------------------------------------------------------------------

LINES = [
    b'x1,code,x2,"a, b",x3,x4',
    b'1.50,007,2,"say ""hi""",3,4',
    b" 2,0x1F,1e2, padded ,.5,4.000",
    b'"3",NA,-0,"two',
    b'lines",3,4',
]


def test_kept_text_is_what_was_read(world, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\n".join(LINES))
    words = [world.model, tmp_path / "t.csv", "--keep", 'code,"a, b",x1,x4', "-o", tmp_path / "l.csv"]
    imdh("assign", *words)
    with (tmp_path / "l.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["code", "a, b", "x1", "x4", "cluster"]
    assert [row[:4] for row in rows] == [
        ["007", 'say "hi"', "1.50", "4"], ["0x1F", " padded ", " 2", "4.000"], ["NA", "two\nlines", "3", "4"]
    ]  # fmt: skip
    X = np.array([[1.5, 2, 3, 4], [2, 100, 0.5, 4], [3, 0, 3, 4]])
    assert [int(row[4]) for row in rows] == descend(world.model, X).label.tolist()


def test_all_columns_kept_and_the_label_is_the_input_with_one_column_more(world, small, tmp_path):
    data, _ = small
    said = imdh("assign", world.model, data, "--keep-all", "-q").text
    assert [line.rsplit(",", 1)[0] for line in said.splitlines()] == data.read_text().splitlines()


def test_ids_of_the_fit_are_kept_where_they_are(world, small):
    data, _ = small
    short = ["--max-rows", 2, "-q"]
    assert imdh("assign", world.model, world.data, *short).text.startswith("id,cluster\n0,")
    assert imdh("assign", world.model, data, *short).text.startswith("cluster\n")
    more = imdh("assign", world.model, world.data, *short, "--id", "x4", "--keep", "x2,id")
    assert more.text.startswith("id,x4,x2,cluster\n")


def test_the_label_column_can_have_any_name(world, small):
    data, _ = small
    assert imdh("assign", world.model, data, "--name", "my group", "-q").text.startswith("my group\n")
    ran = imdh("assign", world.model, data, "--name", "x1", "--keep", "x1", status=2)
    assert 'a column "x1", too' in one_line_error(ran.err)
    one_line_error(imdh("assign", world.model, data, "--name", "leaf", "--with", "leaf", status=2).err)


def test_kept_types_of_a_parquet_file_stay(world, tmp_path):
    table = pa.table(
        {f"x{j}": [0.5, 1.5] for j in range(1, 5)}
        | {
            "when": pa.array([1, None], pa.timestamp("ms", "UTC")),
            "kind": pa.array(["a", None]).dictionary_encode(),
            "parts": [[1, 2], []],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    imdh("assign", world.model, tmp_path / "t.parquet", "--keep-all", "-o", tmp_path / "l.parquet")
    got = pq.read_table(tmp_path / "l.parquet").drop_columns(["cluster"])
    assert got.schema.field("when").type == table.schema.field("when").type
    assert got.to_pylist() == table.to_pylist()


# --- rows that cannot be labelled -----------------------------------------------------------------


def test_a_row_that_cannot_be_labelled_gets_minus_one_in_its_place(world, small, tmp_path):
    _, X = small
    Y = X.copy()
    Y[3, 0], Y[10, 2], Y[499, 3] = np.nan, np.inf, -np.inf
    data = write(tmp_path / "t.parquet", Y)
    out = tmp_path / "l.parquet"
    extra = "node,leaf,margin,distance,runner_up,path"
    ran = imdh("assign", world.model, data, "--with", extra, "-o", out)
    assert "note: 3 of 500 rows (0.6%) left out: 3 with cells missing, infinite or beyond 1e100" in ran.err
    got = pq.read_table(out)
    expected = descend(world.model, X).label
    expected[[3, 10, 499]] = -1
    np.testing.assert_array_equal(got["cluster"], expected)
    for name in extra.split(","):
        assert got[name].is_null().to_numpy().nonzero()[0].tolist() == [3, 10, 499]


def test_bad_rows_of_a_csv_keep_their_place(world, small, tmp_path):
    data, X = small
    lines = data.read_text().splitlines()
    lines[5] = "1,2"
    lines[7] = "1,2,oops,4"
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    ran = imdh("assign", world.model, tmp_path / "t.csv", "--on-bad-row", "skip", "-o", tmp_path / "l.csv")
    expected = descend(world.model, X).label
    expected[[4, 6]] = -1
    np.testing.assert_array_equal(labels(tmp_path / "l.csv"), expected)
    assert "2 that could not be read" in ran.err
    stopped = imdh("assign", world.model, tmp_path / "t.csv", "-o", tmp_path / "n.csv", status=3)
    assert "(row 5): 2 cells where there should be 4" in one_line_error(stopped.err)
    assert not (tmp_path / "n.csv").exists()


def test_no_byte_is_an_error_and_a_header_alone_a_table_without_rows(world, tmp_path):
    for name in ("e.csv", "e.jsonl"):
        (tmp_path / name).write_bytes(b"")
    for words in ([], ["-"], [tmp_path / "e.csv"], [tmp_path / "e.jsonl"]):
        ran = imdh("assign", world.model, *words, "-q", status=3)
        assert "no data rows" in one_line_error(ran.err)
        assert ran.out == b""
    ran = imdh("assign", world.model, stdin=b"x1,x2,x3,x4\n")
    assert ran.text == "cluster\n"
    assert ran.err.startswith("no DATA were named: reading stdin\n")


def test_missing_mean_puts_the_training_mean(world, small, tmp_path):
    _, X = small
    Y = X.copy()
    Y[::5, 1] = np.nan
    data = write(tmp_path / "t.parquet", Y)
    imdh("assign", world.model, data, "--missing", "mean", "-o", tmp_path / "l.csv")
    filled = np.where(np.isnan(Y), arrays(world.model)["center"], Y)
    np.testing.assert_array_equal(labels(tmp_path / "l.csv"), descend(world.model, filled).label)
    one_line_error(imdh("assign", world.model, data, "--missing", "error", status=3).err)


def test_a_missing_feature_is_named_with_the_nearest(world, small, tmp_path):
    _, X = small
    data = write(tmp_path / "t.csv", X, ["x1", "x2", "X 3", "x4"])
    ran = imdh("assign", world.model, data, status=3)
    assert 'no column "x3"' in one_line_error(ran.err)
    assert '"X 3"' in ran.err
    assert ran.out == b""


def test_unseen_levels_are_no_level_and_counted(tmp_path):
    rng = np.random.default_rng(0)
    X, _ = blobs(600)
    kind = rng.choice(["a", "b"], 600)
    data = write(tmp_path / "t.parquet", X, kind=kind)
    imdh("fit", data, "--categorical", "onehot", "-o", tmp_path / "m.npz")
    kind[:7] = "new"
    other = write(tmp_path / "u.parquet", X, kind=kind)
    ran = imdh("assign", tmp_path / "m.npz", other, "-o", tmp_path / "l.csv")
    assert '7 cells of "kind" with a text that the model does not know' in ran.err
    Y = np.column_stack([X, kind == "a", kind == "b"]).astype(float)
    np.testing.assert_array_equal(labels(tmp_path / "l.csv"), descend(tmp_path / "m.npz", Y).label)
    for words in (["fit", other, "--update", tmp_path / "m.npz", "-o", tmp_path / "n.npz"],
                  ["prune", tmp_path / "m.npz", other, "-o", tmp_path / "p.npz"]):  # fmt: skip
        assert '7 cells of "kind" with a text that the model does not know' in imdh(*words).err


# --- the summary ----------------------------------------------------------------------------------


def test_json_agrees_with_the_file(world, small, tmp_path):
    data, _ = small
    said = imdh("assign", world.model, data, "--json", "-o", tmp_path / "l.csv").json
    assert said["rows"] == said["labelled"] == 500
    assert said["skipped"] == said["bad"] == 0
    sizes = np.bincount(labels(tmp_path / "l.csv"), minlength=len(said["cluster_sizes"]) + 1)[1:]
    assert said["cluster_sizes"] == sizes.tolist()
    assert said["output"] == str(tmp_path / "l.csv")


def test_json_goes_to_stderr_when_labels_go_to_stdout(world, small):
    data, X = small
    ran = imdh("assign", world.model, data, "--json")
    assert json.loads(ran.err)["labelled"] == 500
    assert ran.text == "cluster\n" + "".join(f"{k}\n" for k in descend(world.model, X).label)


def test_more_clusters_than_the_tree_has_is_refused_before_anything_is_written(world, small, tmp_path):
    data, _ = small
    largest = pruning.largest(arrays(world.model)["merge_order"], arrays(world.model)["counts"], 1)
    ran = imdh("assign", world.model, data, "-k", largest + 1, status=2)
    assert ran.out == b""
    assert f"only {largest} leaves in use" in one_line_error(ran.err)
    imdh("assign", world.model, data, "-k", largest + 1, "-o", tmp_path / "l.csv", status=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--with", "label"], ["--keep", ""], ["--name", ""], ["-k", 0]])
def test_options_without_sense_are_usage_errors(world, small, words):
    data, _ = small
    one_line_error(imdh("assign", world.model, data, *words, status=2).err)


def test_data_that_cannot_be_read_leave_nothing_on_stdout(world, tmp_path):
    (tmp_path / "t.csv").write_text("x1,x2,x3,x4\n1,2,3,4\n1,word,3,4\n")
    ran = imdh("assign", world.model, tmp_path / "t.csv", status=3)
    assert "line 3 (row 2)" in ran.err
    assert ran.out == b""
