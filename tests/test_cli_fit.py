"""`imdh fit`: from files and streams to a model file, and what is said about it."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

from tests.cli import (
    ROOT,
    arrays,
    assert_same_arrays,
    blobs,
    csv_text,
    descend,
    imdh,
    labels,
    metadata,
    one_line_error,
    shell,
    write,
)

DRIFT = "early and late rows differ"


class World(NamedTuple):
    """One table in several formats, and a model of it."""

    folder: Path
    X: np.ndarray
    which: np.ndarray
    parquet: Path
    csv: Path
    model: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("fit")
    X, which = blobs(3000, k=4)
    more = {"id": np.arange(1000, 4000), "kind": [f"kind {i}" for i in which]}
    parquet = write(folder / "f.parquet", X, **more)
    csv = write(folder / "f.csv", X, **more)
    imdh("fit", parquet, "-o", folder / "m.npz")
    return World(folder, X, which, parquet, csv, folder / "m.npz")


def fit_rows(folder: Path, X: np.ndarray, *words: object, name: str = "t.csv", status: int = 0):
    """Write X, fit it; the model's path and what was said."""
    data = write(folder / name, X)
    model = folder / "model.npz"
    ran = imdh("fit", data, "-o", model, "-f", *words, status=status)  # type: ignore[arg-type]
    return model, ran


def found(model: Path, X: np.ndarray) -> np.ndarray:
    return descend(model, X).label


# --- the same table, however it comes -------------------------------------------------------------


def test_csv_and_parquet_give_the_same_model_and_labels(world, tmp_path):
    imdh("fit", world.csv, "-o", tmp_path / "m.npz")
    assert_same_arrays(world.model, tmp_path / "m.npz")
    for data in (world.csv, world.parquet):
        imdh("assign", world.model, data, "-o", tmp_path / f"{data.suffix[1:]}.csv")
    assert (tmp_path / "csv.csv").read_bytes() == (tmp_path / "parquet.csv").read_bytes()


def test_several_files_give_the_model_of_one(world, tmp_path):
    whole = pq.read_table(world.parquet)
    for k, (low, high) in enumerate([(0, 1000), (1000, 1001), (1001, 3000)]):
        pq.write_table(whole.slice(low, high - low), tmp_path / f"part-{k}.parquet")
    imdh("fit", tmp_path, "-o", tmp_path / "m.npz")
    assert_same_arrays(world.model, tmp_path / "m.npz")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_stream_gives_the_model_of_the_file(world, tmp_path, pack):
    data = pack(world.csv.read_bytes())
    imdh("fit", "-", "-o", tmp_path / "dash.npz", stdin=data)
    imdh("fit", "-o", tmp_path / "none.npz", stdin=data)
    assert_same_arrays(world.model, tmp_path / "dash.npz")
    assert_same_arrays(world.model, tmp_path / "none.npz")


def test_pipes_of_the_shell_work(world, tmp_path):
    """In and out: a model on stdout is the model, written as a stream."""
    (tmp_path / "f.csv.gz").write_bytes(gzip.compress(world.csv.read_bytes()))
    ran = shell("zcat f.csv.gz | imdh fit - --n-init 1 -o - -q | cat > m.npz", tmp_path)
    assert (ran.status, ran.err) == (0, "")
    assert_same_arrays(world.model, tmp_path / "m.npz")


@pytest.mark.parametrize("more", [["--passes", 2], ["--passes", 3, "--recount", "yes"]])
def test_more_passes_over_a_stream_keep_its_rows_with_a_note_and_leave_nothing(
    world, tmp_path, monkeypatch, more
):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    words = [*more, "--shuffle", "buffer", "--buffer-rows", 300]
    ran = imdh("fit", "-", "-o", tmp_path / "dash.npz", *words, stdin=world.csv.read_bytes())
    imdh("fit", world.csv, "-o", tmp_path / "file.npz", *words)
    assert f"kept in {tmp_path / 'tmp'}" in ran.err
    assert_same_arrays(tmp_path / "file.npz", tmp_path / "dash.npz")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_stream_that_finds_no_room_to_be_kept_is_told_where(world, tmp_path):
    (tmp_path / "tmp").mkdir()
    line = f"ulimit -f 2; TMPDIR={tmp_path}/tmp imdh fit - --passes 2 -o m.npz < {world.csv}"
    ran = shell(line, tmp_path)
    assert ran.status == 1
    assert f"error: the stream could not be kept in {tmp_path}/tmp: File too large" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]


def test_the_model_file_holds_no_time_and_no_folder(world, tmp_path):
    """The same file elsewhere, later: the same bytes."""
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "f.parquet"
    other.write_bytes(world.parquet.read_bytes())
    imdh("fit", other, "-o", tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_bytes() == world.model.read_bytes()


# --- what the model says --------------------------------------------------------------------------


def test_labels_of_the_model_file_are_the_planted_clusters(world):
    assert adjusted_rand_score(world.which, found(world.model, world.X)) > 0.999


def test_center_and_scale_are_means_and_population_sds(world):
    m = arrays(world.model)
    np.testing.assert_allclose(m["center"], world.X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(m["scale"], world.X.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("shuffle", ["auto", "buffer", "none"])
@pytest.mark.parametrize("passes", ["1", "2"])
def test_center_and_scale_are_exact_for_streams_larger_than_the_buffer(tmp_path, shuffle, passes):
    rng = np.random.default_rng(1)
    X = rng.normal([0.0, 1e6, -3e-4], [1.0, 10.0, 1e-6], (30_000, 3))
    X[:, 0] += np.linspace(0, 50, len(X))  # later rows are elsewhere
    model, _ = fit_rows(tmp_path, X, "--buffer-rows", 700, "--shuffle", shuffle, "--passes", passes,
                        name="t.parquet")  # fmt: skip
    m = arrays(model)
    sd = duckdb.sql(f"select stddev_pop(x1), stddev_pop(x2), stddev_pop(x3) from '{tmp_path}/t.parquet'")
    np.testing.assert_allclose(m["center"], X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(m["scale"], sd.fetchall()[0], rtol=1e-9)


@pytest.mark.parametrize("words", [(), ("--passes", 1, "--recount", "no"), ("--buffer-rows", 500)])
def test_leaf_counts_add_up_to_the_rows_counted(world, tmp_path, words):
    model = tmp_path / "m.npz"
    imdh("fit", world.csv, "-o", model, *words)
    counts, rows = arrays(model)["counts"], metadata(model)["rows"]
    assert counts[255:].sum() == counts[0] == rows["counted"]
    assert rows["read"] == rows["used"] == 3000
    np.testing.assert_array_equal(counts[:255], counts[1::2] + counts[2::2])


def test_a_recount_counts_every_row_where_numpy_sends_it(world):
    m, way = arrays(world.model), descend(world.model, world.X)
    np.testing.assert_array_equal(m["counts"][255:], np.bincount(way.leaf - 256, minlength=256))
    for leaf in np.unique(way.leaf)[:20]:
        rows = way.z[way.leaf == leaf]
        np.testing.assert_allclose(m["means"][leaf - 1], rows.mean(axis=0), rtol=1e-9, atol=1e-12)
        squares = ((rows - rows.mean(axis=0)) ** 2).sum(axis=0)
        np.testing.assert_allclose(m["sums_of_squares"][leaf - 1], squares, rtol=1e-6, atol=1e-9)


def test_the_seed_decides_and_repeats(world, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        imdh("fit", world.parquet, "--seed", seed, "-o", tmp_path / f"{name}.npz")
    assert_same_arrays(tmp_path / "a.npz", tmp_path / "b.npz")
    assert not np.array_equal(
        arrays(tmp_path / "a.npz")["directions"], arrays(tmp_path / "c.npz")["directions"]
    )


def test_every_parameter_is_kept_in_the_model(world, tmp_path):
    line = (
        "--depth 5 -k 3 --min-size 2 --alpha 0.25 --penalty 7 --bandwidth 0.9 --bandwidth-decay 0.3 "
        "--learning-decay 0.9 --rate 1.5 --clamp 3 --step paper --reseat no --passes 3 --n-init 1 "
        "--recount no --dither no --weight ss --elbow paper --scale none --shuffle none "
        "--buffer-rows 1000 --seed 9"
    )
    imdh("fit", world.parquet, "-o", tmp_path / "m.npz", *line.split())
    assert metadata(tmp_path / "m.npz")["parameters"] == {
        "learn": {"depth": 5, "alpha": 0.25, "penalty": 7.0, "bandwidth": 0.9, "bandwidth_decay": 0.3,
                  "learning_decay": 0.9, "rate": 1.5, "clamp": 3.0, "step": "paper", "start": "random",
                  "reseat": "no", "dither": "no"},
        "prune": {"clusters": 3, "weight": "ss", "elbow": "paper", "min_size": 2, "max_clusters": None},
        "passes": 3, "n_init": 1, "recount": "no", "scale": "none", "shuffle": "none", "buffer_rows": 1000,
        "seed": 9, "sample": None,
    }  # fmt: skip
    m = arrays(tmp_path / "m.npz")
    assert m["directions"].shape == (31, 3)
    assert set(m["center"]) == {0.0}
    assert set(m["scale"]) == {1.0}


def test_an_option_beside_the_preset_wins_over_it(world, tmp_path):
    imdh("fit", world.parquet, "-o", tmp_path / "m.npz", "--preset", "paper", "--alpha", 0.4, "--depth", 4)
    parameters = metadata(tmp_path / "m.npz")["parameters"]
    learn = parameters["learn"]
    assert (learn["alpha"], learn["depth"]) == (0.4, 4)
    assert (learn["step"], learn["start"], learn["clamp"]) == ("paper", "axis", 1.0)
    assert learn["reseat"] == "no"
    assert (parameters["passes"], parameters["recount"], parameters["prune"]["elbow"]) == (1, "yes", "paper")


# --- what is said ---------------------------------------------------------------------------------


def test_the_summary_tells_rows_clusters_and_where_the_model_is(world, tmp_path):
    ran = imdh("fit", world.csv, "-o", tmp_path / "m.npz")
    assert ran.out == b""
    for part in ("3,000 rows used of 3,000", "3 features", "4 clusters, a clear choice", "rows/s", "MB",
                 f"wrote {tmp_path}/m.npz"):  # fmt: skip
        assert part in ran.err
    assert 'left out "id": looks like an identifier' in ran.err
    assert 'left out "kind": text' in ran.err


def test_quiet_says_nothing(world, tmp_path):
    ran = imdh("fit", world.csv, "-q", "-o", tmp_path / "m.npz")
    assert (ran.out, ran.err) == (b"", "")


def test_json_on_stdout_agrees_with_the_model(world, tmp_path):
    said = imdh("fit", world.csv, "--json", "-o", tmp_path / "m.npz").json
    m, meta = arrays(tmp_path / "m.npz"), metadata(tmp_path / "m.npz")
    assert said["model"] == str(tmp_path / "m.npz")
    assert said["rows"] == meta["rows"]
    assert said["features"] == m["feature_names"].tolist() == ["x1", "x2", "x3"]
    assert [name for name, _ in said["left_out_columns"]] == ["kind", "id"]
    assert said["leaves_in_use"] == (m["counts"][255:] > 0).sum()
    assert said["choice"] == meta["choice"]
    assert said["cluster_sizes"] == np.bincount(found(world.model, world.X))[1:].tolist()
    assert said["seconds"] > 0
    assert said["rows_per_second"] > 0
    assert said["peak_memory_mb"] > 10


def test_a_dry_run_shows_the_plan_and_writes_nothing(world, tmp_path):
    ran = imdh("fit", world.parquet, "-x", "x2", "-n", "-o", tmp_path / "m.npz")
    for part in ("f.parquet", "parquet, 3,000 rows", "features (2)", "x1  double", "left out (3)",
                 "x2  excluded with -x", "memory: about"):  # fmt: skip
        assert part in ran.text
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_in_json(world):
    plan = imdh("fit", world.csv, "-n", "--json").json
    assert [(f["name"], f["format"], f["rows"]) for f in plan["files"]] == [(str(world.csv), "csv", None)]
    assert plan["files"][0]["bytes"] == world.csv.stat().st_size
    assert [f["name"] for f in plan["features"]] == ["x1", "x2", "x3"]
    assert {f["name"]: f["reason"] for f in plan["left_out"]} == {
        "kind": "text", "id": "looks like an identifier"
    }  # fmt: skip
    assert plan["memory_mb"] > plan["tree_mb"] + plan["buffer_mb"] + plan["sample_mb"]


def test_a_plan_tells_the_depth_and_what_it_and_samples_take(world):
    def plan(*words):
        return imdh("fit", world.parquet, "-n", "--json", "--n-init", 1, *words).json

    auto, kept, deeper = plan(), plan("--depth", 8), plan("--depth", 10)
    assert (auto["depth"], kept["depth"]) == ("8, or 10 if clusters are left", 8)
    assert plan("--passes", 1)["depth"] == 8
    assert kept["tree_mb"] < auto["tree_mb"] == deeper["tree_mb"]
    drawn = plan("--passes", 1, "--recount", "no")["sample_mb"] - plan("--passes", 1)["sample_mb"]
    assert drawn == pytest.approx(8 * 3 * 3000 / 1e6)  # all rows, since there are fewer than are drawn


@pytest.mark.long
def test_a_depth_that_is_asked_for_is_kept_to(tmp_path):
    data = ROOT / "sample_data" / "cities.parquet"
    words = ["-c", "latitude,longitude", "-q", "-f", "-o", tmp_path / "m.npz"]
    imdh("fit", data, *words, "--n-init", 4)  # one tree alone does not grow here
    assert metadata(tmp_path / "m.npz")["parameters"]["learn"]["depth"] == 10
    imdh("fit", data, *words, "--depth", 8)
    assert metadata(tmp_path / "m.npz")["parameters"]["learn"]["depth"] == 8


def test_max_rows_reads_the_first_rows(world, tmp_path):
    write(tmp_path / "head.parquet", world.X[:1000])
    imdh("fit", tmp_path / "head.parquet", "-o", tmp_path / "head.npz")
    for data in (world.parquet, world.csv):
        imdh("fit", data, "--max-rows", 1000, "-f", "-o", tmp_path / "m.npz")
        assert_same_arrays(tmp_path / "head.npz", tmp_path / "m.npz")


# --- which columns --------------------------------------------------------------------------------


def test_named_columns_are_the_features_in_the_order_named(world, tmp_path):
    imdh("fit", world.csv, "-c", "x3,x1", "-o", tmp_path / "m.npz")
    m = arrays(tmp_path / "m.npz")
    assert m["feature_names"].tolist() == ["x3", "x1"]
    np.testing.assert_allclose(m["center"], world.X[:, [2, 0]].mean(axis=0), rtol=1e-9)


def test_names_with_spaces_commas_quotes_and_other_letters(tmp_path):
    X, which = blobs(500)
    names = ["größe in m²", 'the "price", in €', "長さ"]
    data = write(tmp_path / "ж t.parquet", X, names)
    model = tmp_path / "modèle 1.npz"
    imdh("fit", data, "-c", '長さ,größe in m²,"the ""price"", in €"', "-o", model)
    assert arrays(model)["feature_names"].tolist() == [names[2], names[0], names[1]]
    assert adjusted_rand_score(which, found(model, X[:, [2, 0, 1]])) > 0.99
    imdh("assign", model, data, "--keep", "長さ", "--name", "Gruppe Ω", "-o", tmp_path / "l.csv")
    assert (tmp_path / "l.csv").read_text().startswith("長さ,Gruppe Ω\n")


def test_onehot_levels_are_features_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "red"], 800)
    X = np.column_stack([rng.standard_normal(800), 0.1 * rng.standard_normal(800)])
    data = write(tmp_path / "t.csv", X, colour=colour)
    imdh("fit", data, "--categorical", "onehot", "-o", tmp_path / "m.npz")
    m = arrays(tmp_path / "m.npz")
    assert m["feature_names"].tolist() == ["x1", "x2", "colour=blue", "colour=red"]
    np.testing.assert_allclose(m["center"][2:], [(colour == "blue").mean(), (colour == "red").mean()])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-c", "x1,x9"], 'no column "x9"'),
        (["-x", "X3"], 'no column "X3"'),
        (["-c", "kind"], '"kind" is text'),
        (["--categorical", "error"], '"kind" is text'),
        (["-x", "x1,x2,x3"], "no column to learn from"),
    ],
)
def test_columns_that_cannot_be_features_are_data_errors(world, tmp_path, words, said):
    assert said in one_line_error(imdh("fit", world.csv, *words, "-o", tmp_path / "m.npz", status=3).err)


@pytest.mark.parametrize("words", [["-c", "x1", "-x", "x1"], ["-c", "x1,x1"], ["-c", ""], ["-c", "x1,"]])
def test_columns_named_against_each_other_are_usage_errors(world, tmp_path, words):
    one_line_error(imdh("fit", world.csv, *words, "-o", tmp_path / "m.npz", status=2).err)


# --- cells without a number -----------------------------------------------------------------------


def holed(X: np.ndarray, every: int) -> pa.Table:
    """X with a missing, NaN or infinite cell in each `every`-th row."""
    Y = X.copy()
    Y[::every, 0] = np.nan
    Y[1::every, 1] = np.inf
    columns = {f"x{j + 1}": pa.array(Y[:, j]) for j in range(X.shape[1])}
    mask = np.zeros(len(Y), dtype=bool)
    mask[2::every] = True
    columns["x3"] = pa.array(Y[:, 2], mask=mask)
    return pa.table(columns)


def test_rows_with_holes_are_left_out_and_counted(world, tmp_path):
    pq.write_table(holed(world.X, 100), tmp_path / "t.parquet")
    ran = imdh("fit", tmp_path / "t.parquet", "-o", tmp_path / "m.npz")
    assert "note: 90 of 3,000 rows (3.0%) left out" in ran.err
    meta = metadata(tmp_path / "m.npz")
    assert meta["missing"] == {"x1": 30, "x3": 30}
    assert meta["infinite"] == {"x2": 30}
    assert meta["rows"] == {"read": 3000, "used": 2910, "skipped": 90, "bad": 0, "counted": 2910}
    whole = np.delete(world.X, np.r_[0:3000:100, 1:3000:100, 2:3000:100], axis=0)
    write(tmp_path / "whole.parquet", whole)
    imdh("fit", tmp_path / "whole.parquet", "-o", tmp_path / "whole.npz")
    assert_same_arrays(tmp_path / "whole.npz", tmp_path / "m.npz")


def test_many_rows_left_out_are_a_warning(world, tmp_path):
    pq.write_table(holed(world.X, 20), tmp_path / "t.parquet")
    assert "warning: 450 of 3,000 rows (15.0%)" in imdh(
        "fit", tmp_path / "t.parquet", "-o", tmp_path / "m.npz"
    ).err  # fmt: skip


def test_missing_mean_uses_every_row(world, tmp_path):
    pq.write_table(holed(world.X, 20), tmp_path / "t.parquet")
    imdh("fit", tmp_path / "t.parquet", "--missing", "mean", "-o", tmp_path / "m.npz")
    m, meta = arrays(tmp_path / "m.npz"), metadata(tmp_path / "m.npz")
    assert meta["rows"]["used"] == meta["rows"]["counted"] == 3000
    np.testing.assert_allclose(m["center"][0], np.delete(world.X[:, 0], np.r_[0:3000:20]).mean(), rtol=1e-9)


def test_missing_error_stops_at_the_first(world, tmp_path):
    pq.write_table(holed(world.X, 100), tmp_path / "t.parquet")
    ran = imdh("fit", tmp_path / "t.parquet", "--missing", "error", "-o", tmp_path / "m.npz", status=3)
    assert 'row 1, column "x1"' in one_line_error(ran.err)
    assert not (tmp_path / "m.npz").exists()


def test_no_row_that_can_be_used_is_an_error_that_names_the_column(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,\n2,\n3,\n" * 9)
    ran = imdh("fit", tmp_path / "t.csv", "-c", "a,b", "-o", tmp_path / "m.npz", status=3)
    assert "none of its 27 rows can be used" in one_line_error(ran.err)
    assert '"b"' in ran.err


@pytest.mark.parametrize("columns", [[], ["-c", "a"]])
def test_rows_that_are_all_too_short_are_named_in_a_file_and_in_a_stream(tmp_path, columns):
    text = "a,b,c\n1,2\n3,4\n"
    (tmp_path / "t.csv").write_text(text)
    out = ["-o", tmp_path / "m.npz", *columns]
    for data, name in ((tmp_path / "t.csv", f"{tmp_path}/t.csv"), ("-", "stdin")):
        ran = imdh("fit", data, *out, stdin=text.encode(), status=3)
        said = one_line_error(ran.err)
        assert said == f"{name}, line 2 (row 1): 2 cells where there should be 3"
        ran = imdh("fit", data, *out, "--on-bad-row", "skip", stdin=text.encode(), status=3)
        assert one_line_error(ran.err) == f"{name}: all of its 2 rows are bad"


def test_a_comment_before_the_header_of_a_stream_is_recognised(tmp_path):
    ran = imdh("fit", "-", "-o", tmp_path / "m.npz", stdin=b"# c\na,b\n1,2\n", status=3)
    assert "the header is on line 2, below a comment" in one_line_error(ran.err)
    assert "grep -v '^#'" in ran.err


def test_a_stream_of_empty_cells_is_called_empty(tmp_path):
    ran = imdh("fit", "-", "-o", tmp_path / "m.npz", stdin=b"a,b\n,\n,\n", status=3)
    assert one_line_error(ran.err) == "stdin: no column to learn from"
    assert '"a": empty' in ran.err


@pytest.mark.parametrize("text", ["", "a,b\n"])
def test_no_rows_is_an_error(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    ran = imdh("fit", tmp_path / "t.csv", "-o", tmp_path / "m.npz", status=3)
    assert "no data rows" in one_line_error(ran.err)


# --- hard tables ----------------------------------------------------------------------------------


def test_more_clusters_than_leaves_names_the_largest_possible(tmp_path):
    X = np.arange(10.0).reshape(5, 2)[[0, 3, 1, 4, 2]]
    _, ran = fit_rows(tmp_path, X, "-k", 8, "-c", "x1,x2", status=2)
    assert "8 clusters" in one_line_error(ran.err)
    assert "-k 5" in ran.err


def test_more_clusters_than_the_depth_gives_is_said_before_reading(tmp_path):
    ran = imdh("fit", tmp_path / "not there.csv", "-k", 17, "--depth", 4, status=2)
    assert "16" in one_line_error(ran.err)


def test_five_rows_can_be_five_clusters(tmp_path):
    X = np.array([[0.0, 0], [50, 1], [0, 90], [10, 10], [99, 99]])
    model, _ = fit_rows(tmp_path, X, "-k", 5, "-c", "x1,x2")
    assert sorted(found(model, X)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("rows", "value"), [(1, 7.1), (2, 1e9), (300, 0.0), (300, 7.1)])
def test_identical_rows_are_one_cluster(tmp_path, rows, value):
    X = np.full((rows, 2), value)
    model, ran = fit_rows(tmp_path, X, "-c", "x1,x2")
    assert "no clear number of clusters" in ran.err
    assert set(found(model, X)) == {1}
    assert arrays(model)["scale"].tolist() == [1.0, 1.0]
    assert "use -k 1" in fit_rows(tmp_path, X, "-c", "x1,x2", "-k", 2, status=2)[1].err


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_two_distinct_rows_can_be_told_apart(tmp_path, offset):
    X = np.tile([[1.0, 2.0], [3.0, 5.0]], (200, 1)) + offset
    model, _ = fit_rows(tmp_path, X, "-k", 2)
    label = found(model, X)
    assert set(label) == {1, 2}
    assert adjusted_rand_score(np.tile([0, 1], 200), label) == 1.0


@pytest.mark.parametrize("d", [1, 2, 10])
def test_a_uniform_cube_is_one_cluster_and_said_to_be(tmp_path, d):
    X = np.random.default_rng(d).random((4000, d))
    _, ran = fit_rows(tmp_path, X, name="t.parquet")
    assert "no clear number of clusters" in ran.err


def test_blobs_are_found_beside_five_points_a_million_away(tmp_path):
    X, which = blobs(2000, k=2, d=2)
    X = np.vstack([X, [[1e6, 1e6]] * 5])
    X[-5:] += np.random.default_rng(0).standard_normal((5, 2))
    order = np.random.default_rng(1).permutation(len(X))
    model, ran = fit_rows(tmp_path, X[order], name="t.parquet")
    label = found(model, X)
    assert adjusted_rand_score(which, label[:2000]) > 0.99, ran.err
    assert len(set(label[-5:])) == 1
    assert ran.err.count("5 cells (0.2 %) far from all others") == 2  # too few for a cluster, and told of


def odd_columns(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    late = np.ones(rows)
    late[1000:] = rng.standard_normal(rows - 1000)
    return {
        "constant": np.full(rows, 3.7),
        "huge constant": np.full(rows, -1e100),
        "seconds": 1.7e9 + rng.random(rows),
        "cauchy": rng.standard_cauchy(rows),
        "rare": (rng.random(rows) < 0.02).astype(float),
        "late": late,
    }


@pytest.mark.parametrize("name", list(odd_columns(2000)))
def test_an_odd_column_does_not_spoil_the_clusters(tmp_path, name):
    X, which = blobs(6000, k=3, d=4)
    X = np.column_stack([X, odd_columns(6000)[name]])
    model, ran = fit_rows(tmp_path, X, "-k", 3, "-c", "x1,x2,x3,x4,x5", name="t.parquet")
    assert adjusted_rand_score(which, found(model, X)) > 0.95, ran.err
    scale, sd = arrays(model)["scale"][4], X[:, 4].std()
    np.testing.assert_allclose(scale, 1.0 if "constant" in name else sd, rtol=1e-9)


def test_a_table_of_many_columns_is_learned_in_its_order(tmp_path):
    X, which = blobs(1500, d=600, distance=60)
    words = ["--shuffle", "none", "--passes", 1, "--depth", 3, "-k", 3]
    model, _ = fit_rows(tmp_path, X, *words, name="t.parquet")
    assert adjusted_rand_score(which, found(model, X)) > 0.9


# --- the order of rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("sorted_", [True, False])
def test_a_sorted_stream_is_warned_of_and_a_shuffled_one_is_not(tmp_path, sorted_):
    X, _ = blobs(25_000)
    if sorted_:
        X = X[np.argsort(X[:, 0])]
    text = csv_text(pa.table({f"x{j + 1}": X[:, j].round(4) for j in range(3)})).encode()
    ran = imdh("fit", "-", "--buffer-rows", 2000, "-o", tmp_path / "m.npz", stdin=text)
    assert (f'warning: {DRIFT} in "x1"' in ran.err) == sorted_
    assert (DRIFT in ran.err) == sorted_


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_sorted_file_larger_than_the_buffer_is_learned_as_well_as_a_shuffled_one(tmp_path, suffix):
    X, which = blobs(25_000)
    order = np.argsort(which, kind="stable")
    model, ran = fit_rows(tmp_path, X[order].round(4), "--buffer-rows", 1000, name=f"t.{suffix}")
    assert DRIFT not in ran.err
    assert adjusted_rand_score(which, found(model, X)) > 0.99


def test_the_labels_of_the_output_are_those_of_the_summary(world, tmp_path):
    said = imdh("fit", world.csv, "--json", "-o", tmp_path / "m.npz").json
    imdh("assign", tmp_path / "m.npz", world.csv, "-o", tmp_path / "l.csv")
    assert np.bincount(labels(tmp_path / "l.csv"))[1:].tolist() == said["cluster_sizes"]


@pytest.mark.parametrize("threads", [1, 2])
def test_verbose_tells_what_every_stage_has_taken(world, tmp_path, threads):
    """Some of the process's own seconds; two threads share the levels out, and the rows of the recount."""
    start = time.process_time()
    ran = imdh("fit", world.csv, "-v", "--threads", threads, "--n-init", 1, "-o", tmp_path / "m.npz")
    seconds = time.process_time() - start
    (line,) = [x for x in ran.err.splitlines() if x.startswith("processor seconds: ")]
    busy = {name: float(x) for name, x in re.findall(r"(?:: |, )([a-z0-9 ]+) (\d+\.\d+)", line)}
    levels = ["levels 1 to 8"] if threads == 1 else ["levels 1 to 4", "levels 5 to 8"]
    judged = ["descend"] if threads == 1 else ["descend 1", "descend 2"]
    assert {"mix and shuffle", "standardise", *levels, "leaves", *judged, "count"} <= set(busy)
    assert 0 < sum(busy.values()) < seconds + 0.005 * len(busy)
