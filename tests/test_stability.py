"""`imdh report --stability`: closed cases, brute force, scikit-learn, and what it shows."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core.partition import Partition
from imdh_cli.model import load
from imdh_cli.pipeline.refits import Pool, refit, refits
from imdh_cli.report.stability import adjusted_rand, agreements, assess, similarities
from tests.cli import arrays, blobs, csv_text, descend, imdh, write
from tests.test_report_page import Parsed
from tests.test_report_summary import SCHEMA, check


def parted(labels: np.ndarray, clusters: int, depth: int = 3, found: int = 0) -> Partition:
    """Rows with labels 1..K, each cluster one of the first leaves of a tree (the last one has the rest)."""
    of_leaf = np.minimum(np.arange(1, 2**depth + 1), clusters).astype(np.int32)
    return Partition(2**depth + np.asarray(labels) - 1, of_leaf, found or clusters)


def brute_force(own: np.ndarray, other: np.ndarray) -> list[float]:
    """Jaccard similarity of each cluster to its best match, by sets of rows."""
    sets = [{*np.flatnonzero(other == k).tolist()} for k in np.unique(other)]
    similar = []
    for k in np.unique(own):
        mine = {*np.flatnonzero(own == k).tolist()}
        similar.append(max(len(mine & theirs) / len(mine | theirs) for theirs in sets))
    return similar


# --- the measures ---------------------------------------------------------------------------------


def test_similarities_are_those_of_sets_of_rows():
    rng = np.random.default_rng(0)
    own, other = rng.integers(1, 7, 500), rng.integers(1, 5, 500)
    np.testing.assert_allclose(similarities(own, other, 6), brute_force(own, other), rtol=1e-12)
    assert similarities(np.array([1, 1, 3]), np.array([1, 1, 1]), 3).tolist() == [2 / 3, 0.0, 1 / 3]


@pytest.mark.parametrize("clusters", [(1, 1), (1, 4), (5, 3), (40, 60)])
def test_the_adjusted_rand_index_is_scikit_learns(clusters):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(1, k + 1, 700) for k in clusters)
    assert adjusted_rand(a, b) == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)
    assert adjusted_rand(a, a) == 1.0


def agreement(model: Partition, refit: Partition, node: int) -> float:
    """As it is defined, by sets of rows."""

    def sides(p: Partition, node: int) -> tuple[set[int], set[int]]:
        found: tuple[set[int], set[int]] = (set(), set())
        for row, leaf in enumerate(p.leaf.tolist()):
            path = [leaf >> k for k in range(leaf.bit_length())][::-1]
            if node in path[:-1]:
                found[path[path.index(node) + 1] - 2 * node].add(row)
        return found

    left, right = sides(model, node)
    best = 0.0
    for cut in refit.cuts.tolist():
        one, other = (side & (left | right) for side in sides(refit, cut))
        for a, b in ((one, other), (other, one)):
            best = max(best, min(len(left & a) / len(left | a), len(right & b) / len(right | b)))
    return best


def test_agreements_are_those_of_sets_of_rows(monkeypatch):
    monkeypatch.setattr("imdh_cli.report.stability.BLOCK", 200)  # a few rows at a time
    rng = np.random.default_rng(2)
    of_leaf = np.array([1, 1, 2, 3, 4, 4, 4, 5], dtype=np.int32)
    model, other = (Partition(rng.integers(8, 16, 120), of_leaf, 5) for _ in range(2))
    model = model._replace(leaf=np.where(rng.random(120) < 0.7, other.leaf, model.leaf))
    nodes = np.array([1, 2, 3, 5])
    expected = [agreement(model, other, node) for node in nodes]
    np.testing.assert_allclose(agreements(model, other, nodes), expected, rtol=1e-6)
    assert 0.3 < min(expected) < max(expected) < 1.0


def test_the_order_in_which_a_tree_parts_clusters_does_not_matter():
    """A | (B | C) and (A | B) | C have the cut between B and C in common, but not that before A."""
    leaf = np.repeat([2, 6, 7], 50)  # of the nodes of a tree of depth 2
    of_leaf = np.array([1, 1, 2, 3], dtype=np.int32)
    model = Partition(np.where(leaf == 2, 4, leaf), of_leaf, 3)
    other = Partition(np.repeat([4, 5, 6], 50), np.array([1, 2, 3, 3], dtype=np.int32), 3)
    assert agreements(model, other, np.array([1, 3])).tolist() == [0.5, 1.0]


# --- closed cases ---------------------------------------------------------------------------------


def test_a_planted_cluster_that_is_half_the_time_merged():
    sizes = [100, 60, 40]
    own = np.repeat([1, 2, 3], sizes)
    merged = np.minimum(own, 2)
    runs = [parted(own, 3), parted(merged, 2)] * 10
    s = assess(parted(own, 3), runs, [1, 2], [None] * 3, rows_each=100, seed=0)
    assert [c.jaccard for c in s.clusters] == pytest.approx([1.0, (1 + 0.6) / 2, (1 + 0.4) / 2])
    assert [c.lowest for c in s.clusters] == pytest.approx([1.0, 0.6, 0.4])
    assert [c.recovered for c in s.clusters] == [20, 10, 10]
    assert [c.dissolved for c in s.clusters] == [0, 0, 10]
    assert [c.reading for c in s.clusters] == ["highly stable", "stable", "a pattern"]
    assert s.found == ((2, 10), (3, 10))
    assert "Cluster 3 shows a pattern" in s.sentence
    ari = adjusted_rand_score(own, merged)
    assert s.ari_model == pytest.approx((1 + ari) / 2)
    assert s.ari_between == pytest.approx((90 + 100 * ari) / 190)
    assert {split.node: split.returned for split in s.splits} == {1: None, 2: 0.5}


def test_one_refit_has_no_other_to_be_compared_with():
    own = np.repeat([1, 2], 10)
    s = assess(parted(own, 2), [parted(own, 2)], [4], [None, None], rows_each=10, seed=0)
    assert s.ari_between is None
    assert s.ari_model == 1.0


def test_a_cluster_without_a_row_of_the_sample_has_no_similarity():
    own = np.repeat([1, 3], 10)
    s = assess(parted(own, 3), [parted(own, 3)], [], [None] * 3, rows_each=10, seed=0)
    assert s.clusters[1].jaccard is s.clusters[1].lowest is None
    assert s.clusters[1].reading == "no row in the sample"


def test_far_blobs_always_come_back(tmp_path):
    data = write(tmp_path / "t.parquet", blobs(3000, k=2, distance=20.0)[0])
    imdh("fit", data, "-o", tmp_path / "m.npz")
    s = imdh("report", tmp_path / "m.npz", data, "--stability", 6, "--json").json["stability"]
    assert [c["jaccard"] for c in s["clusters"]] == [1.0, 1.0]
    assert {c["reading"] for c in s["clusters"]} == {"highly stable"}
    assert s["splits"] == [{"node": 1, "returned": 1.0}]
    assert s["found"] == [{"clusters": 2, "times": 6}]
    assert s["ari_model"] == s["ari_between"] == 1.0
    assert (s["refits"], s["rows_each"], s["sample"]) == (6, 1500, 3000)


def test_one_gaussian_cut_in_two_by_force_comes_back_as_seldom_as_by_k_means(tmp_path):
    X = np.random.default_rng(0).standard_normal((4000, 20))
    data = write(tmp_path / "t.parquet", X)
    imdh("fit", data, "-k", 2, "-o", tmp_path / "m.npz")
    s = imdh("report", tmp_path / "m.npz", data, "--stability", 8, "--json").json["stability"]
    rng = np.random.default_rng(1)
    fits = [KMeans(2, n_init=1, random_state=k).fit(rng.choice(X, len(X))) for k in range(12)]
    pairs = combinations([fit.predict(X) + 1 for fit in fits], 2)
    by_k_means = np.mean([similarities(a, b, 2) for a, b in pairs])
    assert np.mean([c["jaccard"] for c in s["clusters"]]) == pytest.approx(by_k_means, abs=0.12)
    assert {c["reading"] for c in s["clusters"]} == {"not to be trusted"}
    assert s["splits"][0]["returned"] < 0.3
    assert "not to be trusted" in s["sentence"]
    assert s["found"] == [{"clusters": 1, "times": 8}]


# --- the rows and the refits ----------------------------------------------------------------------


def pooled(X: np.ndarray, portions: list[int], rows: int, seed: int = 0) -> np.ndarray:
    pool = Pool(X.shape[1], seed, rows)
    for part in np.split(X, np.cumsum(portions)[:-1]):
        pool.add(part)
    return pool.rows()


@pytest.mark.parametrize("rows", [5, 100, 999, 1000, 5000])
def test_the_rows_kept_depend_on_no_portions_and_are_in_their_order(rows):
    X = np.arange(2000.0).reshape(1000, 2)
    kept = pooled(X, [1000], rows)
    assert len(kept) == min(rows, 1000)
    assert (np.diff(kept[:, 0]) > 0).all()
    assert set(kept[:, 0]) <= set(X[:, 0])
    for portions in ([1] * 1000, [3, 500, 0, 497], [999, 1]):
        np.testing.assert_array_equal(pooled(X, portions, rows), kept)


def test_every_row_is_kept_as_often_as_any_other():
    X = np.arange(60.0)[:, None]
    times = np.zeros(60)
    for seed in range(600):
        times[pooled(X, [7, 20, 33], 15, seed).ravel().astype(int)] += 1
    expected = 600 * 15 / 60
    assert ((times - expected) ** 2 / (expected * 0.75)).sum() < 100  # chi-square of 59: 1 in 1000 is above


class World(NamedTuple):
    X: np.ndarray
    data: Path
    model: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("stability")
    X, _ = blobs(3000, k=4, distance=4.5)
    data = write(folder / "t.parquet", X)
    imdh("fit", data, "-k", 5, "--depth", 5, "-o", folder / "m.npz")
    imdh("prune", folder / "m.npz", "--rename", "1=West")
    return World(X, data, folder / "m.npz")


@pytest.fixture(scope="module")
def stability(world) -> dict:
    return imdh("report", world.model, world.data, "--stability", 5, "--json").json["stability"]


@pytest.mark.parametrize("clusters", [5, "auto", "valleys"])
def test_a_refit_is_a_fit_of_its_rows(world, tmp_path, clusters):
    half, sample = world.X[::2], world.X[1::2]
    imdh(
        "fit",
        write(tmp_path / "h.parquet", half),
        "-k",
        clusters,
        "--depth",
        5,
        "--seed",
        7,
        "-o",
        tmp_path / "h.npz",
    )
    params = load(tmp_path / "h.npz").params
    assert params.seed == 7
    got = refit(half, params, sample)
    way = descend(tmp_path / "h.npz", sample)
    np.testing.assert_array_equal(got.leaf, way.leaf)
    np.testing.assert_array_equal(got.cluster, way.label)
    imdh("prune", tmp_path / "h.npz", "-k", "auto")
    assert got.found == arrays(tmp_path / "h.npz")["cluster_of_leaf"].max()


def test_more_clusters_than_a_refit_has_leaves_are_as_many_as_it_has(world):
    model = load(world.model)
    params = replace(model.params, prune=replace(model.params.prune, clusters=32))
    got = refit(world.X[:20], params, world.X)
    assert 1 < got.cluster_of_leaf.max() <= 20


def test_a_least_size_shrinks_with_the_rows(world):
    model = load(world.model)
    model.metadata["parameters"]["prune"] |= {"min_size": 300, "clusters": "auto"}
    (got,) = refits(world.X, world.X, model, 1, seed=0)
    assert np.bincount(got.cluster)[1:].min() >= 200  # 150 of the 1,500 that were learned from


def test_the_figures_depend_on_the_seed_alone(world, stability):
    words = ["report", world.model, world.data, "--stability", 5, "--json"]
    for more in (["--threads", 1], ["--batch-rows", 100]):
        assert imdh(*words, *more).json["stability"] == stability
    other = imdh(*words, "--seed", 1).json["stability"]
    assert other["seed"] == 1
    assert other["clusters"] != stability["clusters"]


def test_the_number_of_refits_may_be_left_out_before_the_data(world, stability):
    model, data = world.model, world.data
    for words in ([model, data, "--stability"], [model, "--stability", data]):
        assert imdh("report", *words, "--json").json["stability"]["refits"] == 20
    for words in ([model, "--stability", 5, data], [model, data, "--stability=5"]):
        assert imdh("report", *words, "--json").json["stability"] == stability


def test_a_stream_is_read_once(world, stability):
    text = csv_text(pa.table({f"x{j + 1}": world.X[:, j] for j in range(3)})).encode()
    ran = imdh("report", world.model, "-", "--stability", 5, "--drift", "--json", stdin=text).json
    assert ran["stability"] == stability
    assert ran["drift"]["psi"] == 0.0


def test_rows_with_holes_are_learned_from_as_the_model_says(tmp_path):
    X, _ = blobs(1500)
    X[::9, 1] = np.nan
    data = write(tmp_path / "t.parquet", X)
    imdh("fit", data, "--missing", "mean", "-o", tmp_path / "m.npz")
    s = imdh("report", tmp_path / "m.npz", data, "--stability", 2, "--json").json["stability"]
    assert s["sample"] == 1500
    assert pq.read_metadata(data).num_rows == 1500


# --- what is shown --------------------------------------------------------------------------------


def test_json_is_as_its_schema_describes(world):
    check(imdh("report", world.model, world.data, "--stability", 2, "--json").json, SCHEMA)


def test_the_terminal_shows_a_line_for_each_cluster_and_cut(world, stability):
    text = imdh("report", world.model, world.data, "--stability", 5).text
    part = text[text.index("Stability") :]
    assert "Tree" not in text
    for c in stability["clusters"]:
        (line,) = [line for line in part.splitlines() if line.startswith(f"{c['cluster']}  ")]
        assert line.rstrip().endswith(c["reading"])
        assert f"{int(100 * c['jaccard'] + 1e-9) / 100:.2f}" in line
        assert ("West" in line) == (c["cluster"] == 1)
    for split in stability["splits"]:
        assert f"{split['node']} {100 * split['returned']:.1f} %" in " ".join(part.split())
    assert " ".join(stability["sentence"].split()) in " ".join(part.split())


def test_csv_has_the_similarity_of_each_cluster_as_its_last_column(world, stability):
    text = imdh("report", world.model, world.data, "--stability", 5, "--csv").text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0])[-1] == "jaccard"
    got = {int(row["cluster"]): float(row["jaccard"]) for row in rows}
    assert got == {c["cluster"]: c["jaccard"] for c in stability["clusters"]}
    assert "jaccard" not in imdh("report", world.model, "--csv").text


def test_the_page_has_a_bar_for_each_cluster(world, stability):
    page = imdh("report", world.model, world.data, "--stability", 5, "--html", "-").text
    part = Parsed(page[page.index('<section id="stability"') : page.index('<section id="overview"')])
    values = [float(e[1]["value"]) for e in part.all("data")]
    expected = [stability["ari_model"], stability["ari_between"]]
    expected += [value for c in stability["clusters"] for value in (c["jaccard"], c["lowest"])]
    assert values[: len(expected)] == expected
    assert sorted(values[len(expected) :]) == sorted(split["returned"] for split in stability["splits"])
    bars = [e[1]["style"] for e in part.all("span") if "bar" in e[1].get("class", "").split()]
    assert bars == [f"width:{100 * c['jaccard']:.1f}%" for c in stability["clusters"]]


def test_progress_is_shown_on_a_terminal(world):
    ran = imdh("report", world.model, world.data, "--stability", 3, terminal=True)
    assert "refitting" in ran.err
