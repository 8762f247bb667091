"""`imdh prune`: another number of clusters from the model alone; with data, counted exactly first."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from tests.cli import (
    arrays,
    assert_same_arrays,
    blobs,
    descend,
    heeding_modes,
    imdh,
    metadata,
    one_line_error,
    program,
    write,
)

CHANGED = {"merge_order", "cluster_of_leaf"}  # the arrays that pruning may change
COUNTED = {"counts", "means", "sums_of_squares", "histograms"}  # and those of a recount


class World(NamedTuple):
    X: np.ndarray
    which: np.ndarray
    data: Path
    model: Path  # not to be changed
    windowed: Path  # learned in one pass and not recounted


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("prune")
    X, which = blobs(20_000, k=4, distance=9.0)
    data = write(folder / "t.parquet", X)
    once = ["--passes", 1, "--recount", "no", "--shuffle", "none"]
    imdh("fit", data, "-o", folder / "m.npz", "--depth", 6)
    imdh("fit", data, "-o", folder / "w.npz", "--depth", 6, *once)
    for name in ("m.npz", "w.npz"):
        (folder / name).chmod(0o444)
    return World(X, which, data, folder / "m.npz", folder / "w.npz")


@pytest.fixture
def model(world, tmp_path) -> Path:
    """A copy that may be changed."""
    path = tmp_path / "model.npz"
    path.write_bytes(world.model.read_bytes())
    return path


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def same(a: Path, b: Path, but: set[str]) -> None:
    one, other = arrays(a), arrays(b)
    for name in one.keys() - but:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_the_model_is_replaced_in_place_by_default(world, model):
    inode = model.stat().st_ino
    ran = imdh("prune", model, "-k", 3)
    assert f"3 clusters, as asked for; wrote {model}" in ran.err
    assert model.stat().st_ino != inode  # a new file under the old name: whole or not at all
    assert [p.name for p in model.parent.iterdir()] == ["model.npz"]
    assert arrays(model)["cluster_of_leaf"].max() == 3
    same(model, world.model, CHANGED)


def test_an_output_leaves_the_model_as_it_is(world, model, tmp_path):
    imdh("prune", model, "-k", 3, "-o", tmp_path / "three.npz")
    assert model.read_bytes() == world.model.read_bytes()
    assert arrays(tmp_path / "three.npz")["cluster_of_leaf"].max() == 3
    one_line_error(imdh("prune", model, "-k", 5, "-o", tmp_path / "three.npz", status=2).err)
    imdh("prune", model, "-k", 5, "-o", tmp_path / "three.npz", "--force")
    assert arrays(tmp_path / "three.npz")["cluster_of_leaf"].max() == 5


def test_there_and_back_gives_the_same_bytes(world, model):
    imdh("prune", model, "-k", 9)
    assert model.read_bytes() != world.model.read_bytes()
    imdh("prune", model, "-k", "auto")
    assert model.read_bytes() == world.model.read_bytes()


def test_nothing_asked_nothing_written(world, model):
    inode = model.stat().st_ino
    ran = imdh("prune", model)
    assert model.stat().st_ino == inode
    assert ran.err == "4 clusters, a clear choice\n"
    imdh("prune", model, "--table", "-q")
    imdh("prune", model, "--json", "-q")
    assert model.stat().st_ino == inode


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_table_only_shows_unless_an_output_is_named(world, model, tmp_path, as_json):
    before = model.read_bytes()
    ran = imdh("prune", model, "-k", 2, "--table", *as_json)
    assert model.read_bytes() == before
    assert ran.err.splitlines()[0] == "2 clusters, as asked for; nothing written (-o FILE writes it)"
    imdh("prune", model, world.data, "--table", *as_json, "-q")
    assert model.read_bytes() == before
    ran = imdh("prune", model, "-k", 2, "--table", *as_json, "-o", tmp_path / "two.npz")
    assert f"wrote {tmp_path / 'two.npz'}" in ran.err
    assert arrays(tmp_path / "two.npz")["cluster_of_leaf"].max() == 2


def test_every_number_can_be_had_and_they_are_nested(world, model, tmp_path):
    largest = len(table(imdh("prune", model, "--table", "-q").text))
    assert largest == (arrays(model)["counts"][63:] > 0).sum()
    finer = None
    for k in [largest, largest - 1, 20, 5, 4, 3, 2, 1]:
        imdh("prune", model, "-k", k, "-f", "-o", tmp_path / "k.npz")
        label = descend(tmp_path / "k.npz", world.X).label
        assert sorted(set(label)) == list(range(1, k + 1))
        if finer is not None:  # each finer cluster lies in one coarser
            assert len(set(zip(finer.tolist(), label.tolist(), strict=True))) == finer.max()
        finer = label


def test_too_many_clusters_name_the_largest_possible(world, model):
    largest = int((arrays(model)["counts"][63:] > 0).sum())
    before = model.read_bytes()
    ran = imdh("prune", model, "-k", largest + 1, status=2)
    assert f"only {largest} leaves" in one_line_error(ran.err)
    assert model.read_bytes() == before


def test_the_table_tells_the_sums_of_squares_that_numpy_finds(world, tmp_path):
    rows = {int(row["k"]): row for row in table(imdh("prune", world.model, "--table", "-q").text)}
    assert list(rows) == list(range(len(rows), 0, -1))
    order = arrays(world.model)["merge_order"]
    for k in (1, 2, 3, 4, 10, len(rows)):
        imdh("prune", world.model, "-k", k, "-f", "-o", tmp_path / "k.npz")
        way = descend(tmp_path / "k.npz", world.X)
        total = sum(
            ((way.z[way.label == c] - way.z[way.label == c].mean(axis=0)) ** 2).sum() for c in range(1, k + 1)
        )
        assert float(rows[k]["total_ss"]) == pytest.approx(total, rel=1e-5)
    assert [row["chosen"] for row in rows.values()].count("*") == 1
    assert rows[4]["chosen"] == "*"
    removed = [int(row["removed_split"]) for row in rows.values() if row["removed_split"]]
    assert removed == [split for split in order if split in removed]
    assert removed[-1] == order[-1] == 1
    assert 0.7 < float(rows[2]["valley_depth"]) <= 1
    assert sum(int(row["votes"]) for row in rows.values()) > 0
    gain = float(rows[1]["total_ss"]) - float(rows[2]["total_ss"])
    assert float(rows[2]["ss_gain"]) == pytest.approx(gain, rel=1e-4)
    worth = np.log(float(rows[1]["total_ss"]) / float(rows[2]["total_ss"])) * len(world.X)
    assert float(rows[2]["weight"]) == pytest.approx(float(rows[2]["valley_depth"]) * worth, rel=1e-4)


def test_by_sums_of_squares_a_split_is_worth_what_it_takes_away(world):
    """About the means that were learned, which in large nodes are nearly those of the rows."""
    rows = table(imdh("prune", world.model, "--table", "--weight", "ss", "-q").text)[-6:-1]
    weights = [float(row["weight"]) for row in rows]
    assert weights == pytest.approx([float(row["ss_gain"]) for row in rows], rel=0.02)


def test_the_table_as_json_is_the_table(world):
    rows = table(imdh("prune", world.model, "--table", "-q").text)
    said = imdh("prune", world.model, "--table", "--json", "-q").json
    assert [str(row["k"]) for row in said] == [row["k"] for row in rows]
    for row, other in zip(said, rows, strict=True):
        assert row["total_ss"] == pytest.approx(float(other["total_ss"]), rel=1e-5)
        assert row["removed_split"] == (int(other["removed_split"]) if other["removed_split"] else None)


def test_json_is_the_choice_that_was_written(model):
    said = imdh("prune", model, "-k", 7, "--json", "-q").json
    assert said == metadata(model)["choice"]
    assert (said["requested"], said["clusters"], said["clarity"]) == (7, 7, "given")


def test_what_is_not_asked_for_stays_as_it_was_fitted(world, tmp_path):
    imdh("fit", world.data, "--depth", 6, "--weight", "ss", "--min-size", 50, "-o", tmp_path / "m.npz")
    imdh("prune", tmp_path / "m.npz", "-k", 5)
    asked = metadata(tmp_path / "m.npz")["parameters"]["prune"]
    assert asked == {"clusters": 5, "weight": "ss", "elbow": "weighted", "min_size": 50, "max_clusters": None}


@pytest.mark.parametrize("words", [["-k", 12], ["-k", "valleys"], ["--weight", "ss", "--elbow", "paper"]])
def test_no_cluster_is_smaller_than_min_size(world, model, words):
    imdh("prune", model, "--min-size", 900, *words)
    sizes = np.bincount(descend(model, world.X).label)[1:]
    assert sizes.min() >= 900


def test_max_clusters_limits_what_is_chosen(world, model):
    imdh("prune", model, "--max-clusters", 3)
    assert arrays(model)["cluster_of_leaf"].max() <= 3
    assert metadata(model)["choice"]["requested"] == "auto"


def test_data_are_counted_exactly_under_the_tree_as_it_is(world, tmp_path):
    before = arrays(world.windowed)
    assert metadata(world.windowed)["rows"]["counted"] < len(world.X)
    imdh("prune", world.windowed, world.data, "-o", tmp_path / "m.npz")
    m, way = arrays(tmp_path / "m.npz"), descend(world.windowed, world.X)
    assert metadata(tmp_path / "m.npz")["statistics"] == "recounted"
    assert metadata(tmp_path / "m.npz")["rows"]["counted"] == len(world.X)
    np.testing.assert_array_equal(m["counts"][63:], np.bincount(way.leaf - 64, minlength=64))
    np.testing.assert_allclose(m["means"][0], way.z.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(m["sums_of_squares"][0], (way.z**2).sum(axis=0), rtol=1e-9)
    for i in (1, 2, 3, 5, 40):  # histograms of (v . z - threshold) / s, bins of 1/16 on [-4, 4]
        on_way = way.path == i
        u = (way.projection[on_way] - before["thresholds"][i - 1]) / before["projection_sd"][i - 1]
        inside = (np.abs(way.z[on_way.any(axis=1)]) < 10).all(axis=1)
        bins = np.clip(np.floor(16 * u[inside]) + 64, 0, 127).astype(int)
        assert np.abs(m["histograms"][i - 1] - np.bincount(bins, minlength=128)).sum() <= 2  # on an edge
    same(tmp_path / "m.npz", world.windowed, CHANGED | COUNTED)


def test_counting_the_training_data_again_is_what_fit_does(world, tmp_path):
    imdh("prune", world.model, world.data, "-o", tmp_path / "m.npz")
    assert_same_arrays(world.model, tmp_path / "m.npz")


def test_other_data_can_be_counted(world, tmp_path):
    X = world.X[world.which != 2]
    imdh("prune", world.model, write(tmp_path / "t.csv", X), "-o", tmp_path / "m.npz")
    assert arrays(tmp_path / "m.npz")["counts"][0] == len(X)
    label = descend(tmp_path / "m.npz", X).label
    assert adjusted_rand_score(world.which[world.which != 2], label) > 0.99


def test_data_in_place_and_through_stdin(world, model):
    text = write(model.parent / "t.csv", world.X[:500]).read_bytes()
    imdh("prune", model, "-", stdin=text)
    assert arrays(model)["counts"][0] == 500


def test_data_without_the_features_leave_the_model_alone(model, tmp_path):
    before = model.read_bytes()
    (tmp_path / "t.csv").write_text("x1,x2,y3\n1,2,3\n")
    ran = imdh("prune", model, tmp_path / "t.csv", status=3)
    assert 'no column "x3"' in one_line_error(ran.err)
    (tmp_path / "t.csv").write_text("x1,x2,x3\n")
    assert "no data rows" in one_line_error(imdh("prune", model, tmp_path / "t.csv", status=3).err)
    assert model.read_bytes() == before


def test_a_symbolic_link_stays_a_link(model):
    link = model.parent / "link.npz"
    link.symlink_to("model.npz")
    imdh("prune", link, "-k", 2)
    assert link.is_symlink()
    assert arrays(model)["cluster_of_leaf"].max() == 2


def test_a_folder_that_cannot_be_written_leaves_the_model_alone(model):
    before = model.read_bytes()
    model.parent.chmod(0o555)
    try:
        ran = program("prune", model, "-k", 2, status=1, before=heeding_modes())
        one_line_error(ran.err)
        assert "permission denied" in ran.err
        assert model.read_bytes() == before
    finally:
        model.parent.chmod(0o755)


def test_a_file_that_is_no_model_is_a_model_error(world, tmp_path):
    (tmp_path / "m.npz").write_bytes(world.model.read_bytes()[:-100])
    for path in (tmp_path / "m.npz", world.data, tmp_path / "none.npz"):
        one_line_error(imdh("prune", path, "-k", 2, status=4).err)
