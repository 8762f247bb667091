"""`imdh report --drift`: what has moved since the model was made, against NumPy and SciPy on the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from imdh_cli.errors import ExitStatus
from imdh_cli.report.drift import index_by_chance, stability_index
from tests.cli import arrays, blobs, csv_text, descend, imdh, one_line_error, write
from tests.test_report_page import Parsed
from tests.test_report_summary import SCHEMA, check


class World(NamedTuple):
    X: np.ndarray  # learned from
    Y: np.ndarray  # later: fewer of the first cluster, the second column moved, some values far out
    data: Path
    later: Path
    model: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("drift")
    unit = np.array([1.0, 100.0, 0.001])
    X, _ = blobs(6000, k=3, distance=5.0)
    Y, which = blobs(5000, k=3, distance=5.0, seed=1)
    Y = Y[(which > 0) | (np.random.default_rng(0).random(5000) < 0.2)]
    Y[:, 1] -= 0.9
    Y[:40, 2] = 1e4
    X, Y = X * unit, Y * unit
    X[:7, 0] = 60.0
    data, later = write(folder / "t.parquet", X), write(folder / "later.parquet", Y)
    imdh("fit", data, "-k", 3, "-o", folder / "m.npz")
    return World(X, Y, data, later, folder / "m.npz")


@pytest.fixture(scope="module")
def drift(world) -> dict:
    return imdh("report", world.model, world.later, "--drift", "--json").json["drift"]


def test_shares_and_the_index_are_those_of_the_labelled_rows(world, drift):
    then, now = (np.bincount(descend(world.model, rows).label)[1:] for rows in (world.X, world.Y))
    p, q = then / then.sum(), now / now.sum()
    assert [c["rows_then"] for c in drift["clusters"]] == then.tolist()
    assert [c["rows_now"] for c in drift["clusters"]] == now.tolist()
    np.testing.assert_allclose([c["share_then"] for c in drift["clusters"]], p, rtol=1e-12)
    np.testing.assert_allclose([c["share_now"] for c in drift["clusters"]], q, rtol=1e-12)
    np.testing.assert_allclose([c["psi"] for c in drift["clusters"]], (q - p) * np.log(q / p), rtol=1e-9)
    assert drift["psi"] == pytest.approx(((q - p) * np.log(q / p)).sum(), rel=1e-9)
    assert drift["psi"] > 0.25
    assert drift["level"] == "large"


def test_an_empty_cluster_counts_as_half_a_row():
    then, now = np.array([10, 90, 0]), np.array([0, 50, 50])
    p, q = np.array([0.1, 0.9, 0.005]), np.array([0.005, 0.5, 0.5])
    np.testing.assert_allclose(stability_index(then, now), (q - p) * np.log(q / p))


@pytest.mark.parametrize("clusters", [2, 3, 10, 100])
def test_the_index_by_chance_is_the_point_of_a_chi_square(clusters):
    point = stats.chi2.ppf(0.99, clusters - 1) * (1 / 3000 + 1 / 500)
    assert index_by_chance(clusters, 3000, 500) == pytest.approx(point, rel=0.01)
    assert index_by_chance(1, 3000, 500) == 0.0


def test_without_drift_the_index_and_the_distances_stay_below_chance_about_99_times_of_100(world):
    model = arrays(world.model)
    label = descend(world.model, world.X).label
    rng = np.random.default_rng(2)
    then = np.bincount(label, minlength=4)[1:]
    chance = index_by_chance(3, len(label), 500)
    draws = [rng.multinomial(500, then / then.sum()) for _ in range(2000)]
    # The model's shares are themselves a sample, which the bound allows for: here they are the truth.
    above = np.mean([stability_index(then, now).sum() > chance for now in draws])
    assert 0.001 < above < 0.02
    assert len(model["counts"]) == 511


def projections(model: Path, X: np.ndarray, node: int) -> np.ndarray:
    """(v . z - threshold) / s of the rows that meet a node, without those that were clipped."""
    m, way = arrays(model), descend(model, X)
    level = node.bit_length() - 1
    here = (way.path[:, level] == node) & (np.abs(way.z).max(axis=1) < 10)
    return (way.projection[here, level] - m["thresholds"][node - 1]) / m["projection_sd"][node - 1]


def test_distances_at_the_splits_are_scipys_within_a_bin(world, drift):
    assert len(drift["splits"]) == 2
    for split in drift["splits"]:
        then, now = (projections(world.model, rows, split["node"]) for rows in (world.X, world.Y))
        exact = stats.ks_2samp(then, now).statistic
        edges = np.arange(-4, 4.01, 1 / 16)
        edges[[0, -1]] = -np.inf, np.inf
        shares = [np.histogram(u, edges)[0] / len(u) for u in (then, now)]
        assert split["ks"] == pytest.approx(np.abs(np.cumsum(shares[0] - shares[1])).max(), abs=1e-12)
        assert split["ks"] - 1e-12 <= exact <= split["ks"] + np.max(shares)
        assert split["chance"] == pytest.approx(
            stats.kstwobign.ppf(0.99) * np.sqrt(1 / len(then) + 1 / len(now)), rel=1e-3
        )
        path = [
            descend(world.model, rows).path[:, split["node"].bit_length() - 1] for rows in (world.X, world.Y)
        ]
        assert split["rows_then"] == (path[0] == split["node"]).sum()
        assert split["rows_now"] == (path[1] == split["node"]).sum()


def test_features_are_those_of_the_rows_whatever_lies_far_out(world, drift):
    then, now = world.X, world.Y
    for key, expected in (
        ("mean_then", then.mean(axis=0)),
        ("mean_now", now.mean(axis=0)),
        ("sd_then", then.std(axis=0)),
        ("sd_now", now.std(axis=0)),
        ("shift", (now.mean(axis=0) - then.mean(axis=0)) / then.std(axis=0)),
        ("stretch", now.std(axis=0) / then.std(axis=0) - 1),
    ):
        np.testing.assert_allclose([f[key] for f in drift["features"]], expected, rtol=1e-8, err_msg=key)


def test_a_column_in_other_units_is_told_with_its_mean_and_sd(world, tmp_path):
    X = world.X.copy()
    X[:, 1] = (X[:, 1] + 1e5) * 1000
    report = imdh("report", world.model, write(tmp_path / "u.parquet", X), "--drift", "--json").json
    told = report["drift"]["features"][1]
    assert told["mean_now"] == pytest.approx(X[:, 1].mean(), rel=1e-12)
    assert told["sd_now"] == pytest.approx(X[:, 1].std(), rel=1e-9)
    said = [f["message"] for f in report["drift"]["findings"]]
    assert any(f"{X[:, 1].mean():,.0f}" in m.replace(".00", "") for m in said if m.startswith("x2: mean")), (
        said
    )


def test_missing_cells_stand_at_the_mean_then_and_now(tmp_path):
    X, _ = blobs(2000)
    X[::3, 0] = np.nan
    imdh("fit", write(tmp_path / "t.parquet", X), "--missing", "mean", "-k", 3, "-o", tmp_path / "m.npz")
    X[::2, 0] = np.nan
    ran = imdh("report", tmp_path / "m.npz", write(tmp_path / "u.parquet", X), "--drift", "--json")
    filled = np.where(np.isnan(X[:, 0]), arrays(tmp_path / "m.npz")["center"][0], X[:, 0])
    told = ran.json["drift"]["features"][0]
    assert told["mean_now"] == pytest.approx(filled.mean(), rel=1e-9)
    assert told["sd_now"] == pytest.approx(filled.std(), rel=1e-9)


def test_rows_beyond_10_sd_are_counted_then_and_now(world, drift):
    shares = [(np.abs(descend(world.model, rows).z).max(axis=1) >= 10).mean() for rows in (world.X, world.Y)]
    assert shares[0] == 7 / 6000
    assert [drift["clipped"]["then"], drift["clipped"]["now"]] == pytest.approx(shares, abs=1e-12)


def test_the_report_is_as_its_schema_describes(world):
    check(imdh("report", world.model, world.later, "--drift", "--json").json, SCHEMA)


def test_what_moved_most_comes_first(world, drift):
    sizes = [finding["size"] for finding in drift["findings"]]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) >= 1.0
    messages = [finding["message"] for finding in drift["findings"]]
    parts = {c["cluster"]: c["psi"] for c in drift["clusters"]}
    assert messages[0].startswith("x3: sd ")  # 40 values at ten million sds
    moved = [message for message in messages if message.startswith("cluster ")]
    assert moved[0].startswith(f"cluster {max(parts, key=parts.get)}: ")
    assert any(message.startswith("x2: mean") for message in messages)
    text = imdh("report", world.model, world.later, "--drift").text
    assert f"PSI {drift['psi']:.3f}, the clusters' shares have moved" in text
    assert "Tree" not in text
    flat = " ".join(text.split())
    for finding in drift["findings"]:
        assert f"! {finding['message']}" in flat


def test_a_column_that_moved_is_named_first_where_the_clusters_hold(tmp_path):
    X, _ = blobs(4000)
    X[:, 2] = np.random.default_rng(3).standard_normal(len(X))
    imdh("fit", write(tmp_path / "t.parquet", X), "-k", 3, "-o", tmp_path / "m.npz")
    X[:, 2] += 0.5
    ran = imdh("report", tmp_path / "m.npz", write(tmp_path / "u.parquet", X), "--drift", "--json")
    drift = ran.json["drift"]
    assert drift["level"] == "none"
    assert drift["findings"][0]["message"].startswith("x3: mean")
    assert "not all is as it was" in drift["sentence"]


def test_the_same_rows_have_not_moved(world):
    drift = imdh("report", world.model, world.data, "--drift", "--json").json["drift"]
    assert drift["psi"] == 0.0
    assert drift["findings"] == []
    assert {s["ks"] for s in drift["splits"]} == {0.0}
    np.testing.assert_allclose([f["shift"] for f in drift["features"]], 0.0, atol=1e-12)


def test_few_rows_have_moved_no_more_than_by_chance(world, tmp_path):
    rows = world.X[np.random.default_rng(0).permutation(len(world.X))[:25]]
    drift = imdh("report", world.model, write(tmp_path / "few.csv", rows), "--drift", "--json").json["drift"]
    assert drift["chance"] > 0.25
    assert drift["level"] == "none"


def test_missing_cells_and_unseen_levels_then_and_now(tmp_path):
    X, which = blobs(2000)
    kind = np.array(["ash", "beech", "cedar"])[which]
    X[:20, 0] = np.nan
    fit = ["--categorical", "onehot", "--missing", "mean"]
    imdh("fit", write(tmp_path / "t.parquet", X, kind=kind), *fit, "-o", tmp_path / "m.npz")
    X[:500, 0] = np.nan
    X[700, 1] = np.inf
    kind = np.where(np.arange(2000) < 300, "oak", kind)
    later = write(tmp_path / "u.parquet", X, kind=kind)
    drift = imdh("report", tmp_path / "m.npz", later, "--drift", "--json").json["drift"]
    cells = {(c["column"], c["kind"]): (c["then"], c["now"]) for c in drift["cells"]}
    assert cells == {
        ("x1", "missing"): (0.01, 0.25),
        ("x2", "infinite"): (0.0, 0.0005),
        ("kind", "unseen"): (0.0, 0.15),
    }
    assert drift["left_out"] == {"then": 0.0, "now": 0.0}
    first = [f["message"] for f in drift["findings"][:2]]
    assert first == [
        "x1: missing cells: 1.0 % then, 25.0 % now",
        "kind: unseen levels: 0.0 % then, 15.0 % now",
    ]
    skipped = imdh("report", tmp_path / "m.npz", later, "--drift", "--missing", "skip", "--json").json[
        "drift"
    ]
    assert skipped["left_out"] == {"then": 0.0, "now": 501 / 2000}
    assert skipped["rows"] == {"read": 2000, "used": 1499}


def test_without_scaling_nothing_is_clipped_and_a_constant_has_no_shift(tmp_path):
    X, _ = blobs(1500)
    X[:, 2] = 4.0
    imdh("fit", write(tmp_path / "t.parquet", X), "--scale", "none", "-o", tmp_path / "m.npz")
    X[:, 2] = 5.0
    drift = imdh("report", tmp_path / "m.npz", write(tmp_path / "u.parquet", X), "--drift", "--json").json[
        "drift"
    ]
    assert drift["clipped"] is None
    assert drift["features"][2]["shift"] is None
    assert drift["features"][2]["mean_now"] == 5.0
    assert drift["findings"][0]["message"] == "x3: 4 throughout then, not so now"


def test_5_more_drift_than_allowed(world):
    words = ["report", world.model, world.later, "--drift"]
    ran = imdh(*words, "--fail-above", 0.1, status=ExitStatus.DRIFTED)
    assert "more than --fail-above 0.1 allows" in one_line_error(ran.err)
    assert ran.text == imdh(*words, "--fail-above", 9).text == imdh(*words).text
    assert json.loads(imdh(*words, "--json", "--fail-above", 0, status=5).out)["drift"]["psi"] > 0.0


def test_assign_has_the_same_index_without_a_second_reading(world, drift, tmp_path):
    said = imdh("assign", world.model, world.later, "--json", "-o", tmp_path / "l.csv").json["drift"]
    assert said == {"psi": drift["psi"], "clusters": drift["clusters"]}
    said = imdh("assign", world.model, world.data, "--json", "-k", 7, "-o", tmp_path / "m.csv").json["drift"]
    assert said["psi"] == 0.0
    assert len(said["clusters"]) == 7
    header = (",".join(f"x{j}" for j in (1, 2, 3)) + "\n").encode()
    assert imdh("assign", world.model, "--json", "-o", tmp_path / "n.csv", stdin=header).json["drift"] is None


def test_a_stream_is_read_once_for_drift_classes_and_samples(world, drift, tmp_path):
    label = descend(world.model, world.Y).label
    table = {f"x{j + 1}": world.Y[:, j] for j in range(3)} | {"kind": label}
    text = csv_text(pa.table(table)).encode()
    words = ["--drift", "--truth", "kind", "--json", "--html", tmp_path / "page.html"]
    ran = imdh("report", world.model, "-", *words, stdin=text).json
    assert ran["drift"] == drift
    assert ran["truth"]["ari"] == 1.0


def test_the_page_holds_the_figures(world, drift):
    page = imdh("report", world.model, world.later, "--drift", "--html", "-").text
    part = Parsed(page[page.index('<section id="drift"') : page.index('<section id="overview"')])
    values = {float(e[1]["value"]) for e in part.all("data")}
    for c in drift["clusters"]:
        assert {c["share_then"], c["share_now"], c["psi"]} <= values
    for f in drift["features"]:
        assert {f["mean_then"], f["mean_now"], f["sd_then"], f["sd_now"]} <= values
    assert {s["ks"] for s in drift["splits"]} <= values
    assert [e[2] for e in part.all("li")] == [finding["message"] for finding in drift["findings"]]
    assert 'id="drift"' not in imdh("report", world.model, "--html", "-").text


def test_the_treatment_of_threads_and_batches_changes_no_figure(world, drift):
    for words in (["--threads", 1], ["--batch-rows", 37]):
        got = imdh("report", world.model, world.later, "--drift", "--json", *words).json["drift"]
        assert got == drift
