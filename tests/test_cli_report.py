"""`imdh report`: what is in the model, for eyes and for programs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from tests.cli import arrays, blobs, descend, imdh, one_line_error, write

ESCAPE = b"\x1b"


class World(NamedTuple):
    X: np.ndarray
    which: np.ndarray
    data: Path
    model: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("report")
    X, which = blobs(5000, k=3, distance=9.0)
    X = X * [1, 100, 0.001] + [0, 5000, -1]
    which = np.where(np.random.default_rng(0).random(5000) < 0.1, 3, which)  # classes that do not agree
    kind = np.array(["ash", "beech", "cedar, \u00e9", "oak"])[which]
    data = write(
        folder / "t.parquet", X, ["height in m", "width", "Gr\u00f6\u00dfe"], kind=kind, number=which
    )
    imdh("fit", data, "-x", "number", "-o", folder / "m.npz")
    return World(X, which, data, folder / "m.npz")


@pytest.fixture(scope="module")
def report(world) -> dict:
    return imdh("report", world.model, "--json").json


def test_the_terminal_report_is_plain_text_when_it_is_no_terminal(world):
    ran = imdh("report", world.model)
    assert ran.err == ""
    assert ESCAPE not in ran.out
    assert b"\r" not in ran.out
    for part in ("5,000 rows, all used; 3 features", "3 clusters, a clear choice", "Gr\u00f6\u00dfe", "Tree"):
        assert part in ran.text
    assert max(map(len, ran.text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("columns", "width"),
    [("0", 80), ("x", 80), ("-5", 80), ("9" * 50, 80), ("1", 60), ("20", 60), ("70", 70)],
)
def test_a_width_that_cannot_be_used_is_not(world, monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    lines = imdh("report", world.model).text.splitlines()
    assert width - 25 < max(map(len, lines)) <= width


def test_json_counts_and_means_are_those_of_the_labelled_rows(world, report):
    label = descend(world.model, world.X).label
    assert report["schema"] == "imdh-report"
    assert report["choice"]["clusters"] == 3
    assert [c["rows"] for c in report["clusters"]] == np.bincount(label)[1:].tolist()
    for cluster in report["clusters"]:
        rows = world.X[label == cluster["cluster"]]
        assert cluster["share"] == pytest.approx(len(rows) / 5000)
        means = [f["mean"] for f in cluster["profile"]]
        np.testing.assert_allclose(means, rows.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose([f["sd"] for f in cluster["profile"]], rows.std(axis=0), rtol=1e-9)
    features = report["data"]["features"]
    assert [f["name"] for f in features] == ["height in m", "width", "Gr\u00f6\u00dfe"]
    np.testing.assert_allclose([f["mean"] for f in features], world.X.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose([f["sd"] for f in features], world.X.std(axis=0), rtol=1e-9)


def test_json_has_no_nan_and_is_the_same_each_time(world):
    def refuse(word: str) -> None:
        raise AssertionError(word)

    one, other = imdh("report", world.model, "--json"), imdh("report", world.model, "--json")
    assert one.out == other.out
    json.loads(one.out, parse_constant=refuse)


def test_csv_has_one_line_for_each_cluster_and_feature(world, report):
    rows = list(csv.DictReader(io.StringIO(imdh("report", world.model, "--csv").text)))
    assert len(rows) == 9
    wanted = [
        (c["cluster"], c["rows"], f["feature"], f["mean"]) for c in report["clusters"] for f in c["profile"]
    ]
    got = [(int(r["cluster"]), int(r["rows"]), r["feature"], float(r["mean"])) for r in rows]
    assert got == wanted


def test_the_tree_names_every_cluster_and_its_rows(world, report):
    text = imdh("report", world.model, "--tree").text
    for cluster in report["clusters"]:
        assert f"cluster {cluster['cluster']}  {cluster['rows']:,} rows" in text


def test_a_node_shows_its_cut_and_both_sides(world):
    text = imdh("report", world.model, "--node", 1).text
    counts = arrays(world.model)["counts"]
    assert "Node 1  5,000 rows" in text
    assert f"node 2: {counts[1]:,} rows" in text
    assert f"node 3: {counts[2]:,} rows" in text
    assert "height in m" in text


@pytest.mark.parametrize(("node", "said"), [(300, "is a leaf"), (1000, "nodes 1 to 511")])
def test_a_node_without_a_split_is_a_usage_error(world, node, said):
    assert said in one_line_error(imdh("report", world.model, "--node", node, status=2).err)


@pytest.mark.parametrize("column", ["kind", "number"])
def test_agreement_with_known_classes_is_what_sklearn_finds(world, column):
    said = imdh("report", world.model, world.data, "--truth", column, "--json").json["truth"]
    label = descend(world.model, world.X).label
    assert said["ari"] == pytest.approx(metrics.adjusted_rand_score(world.which, label), abs=1e-12)
    nmi = metrics.normalized_mutual_info_score(world.which, label)
    assert said["nmi_arithmetic"] == pytest.approx(nmi, abs=1e-12)
    assert np.array_equal(said["table"], pd.crosstab(world.which, label).to_numpy())


def test_truth_is_the_same_from_a_stream_of_csv(world, tmp_path):
    table = pd.read_parquet(world.data)
    text = table.to_csv(index=False).encode()
    words = ["report", world.model, "--truth", "kind", "--json"]
    one = imdh(*words, world.data).json["truth"]
    assert imdh(*words, "-", stdin=text).json["truth"] == one


def test_truth_and_data_need_each_other(world):
    assert "--truth needs DATA" in one_line_error(imdh("report", world.model, "--truth", "x", status=2).err)
    one_line_error(imdh("report", world.model, world.data, "--tree", status=2).err)


def test_a_truth_that_is_no_column_is_a_data_error(world):
    ran = imdh("report", world.model, world.data, "--truth", "kid", status=3)
    assert '"kind"' in ran.err
    one_line_error(ran.err)


def test_small_clusters_are_counted_and_not_described(world):
    said = imdh("report", world.model, "--json", "--min-size", 1600).json
    for cluster in said["clusters"]:
        assert cluster["withheld"] == (cluster["rows"] < 1600) == (cluster["profile"] == [])


@pytest.mark.parametrize("words", [["--json", "--csv"], ["--tree", "--node", 1], ["--csv", "--tree"]])
def test_two_views_at_once_are_a_usage_error(world, words):
    assert "at once" in one_line_error(imdh("report", world.model, *words, status=2).err)


def test_a_report_after_another_choice_is_of_that_choice(world, tmp_path):
    imdh("prune", world.model, "-k", 5, "-o", tmp_path / "five.npz")
    said = imdh("report", tmp_path / "five.npz", "--json").json
    assert (said["choice"]["clusters"], said["choice"]["requested"]) == (5, 5)
    assert said["choice"]["natural"] == 3
    label = descend(tmp_path / "five.npz", world.X).label
    assert [c["rows"] for c in said["clusters"]] == np.bincount(label)[1:].tolist()


def test_a_tiny_cluster_far_away_is_named(tmp_path):
    X, _ = blobs(2000, k=2, d=2)
    X = np.vstack([X, [[1e6, 1e6]] * 5])
    data = write(tmp_path / "t.parquet", X[np.random.default_rng(1).permutation(2005)])
    imdh("fit", data, "-o", tmp_path / "m.npz")
    text = imdh("report", tmp_path / "m.npz").text
    assert "5 rows" in text or " 5   0.2 %" in text, text


def test_a_model_without_clusters_says_so(tmp_path):
    data = write(tmp_path / "t.parquet", np.random.default_rng(0).random((3000, 2)))
    imdh("fit", data, "-o", tmp_path / "m.npz")
    ran = imdh("report", tmp_path / "m.npz")
    assert "no clear number" in ran.text
    said = imdh("report", tmp_path / "m.npz", "--json").json
    assert said["choice"]["clarity"] == "none"
    assert len(said["clusters"]) == 1
