"""No number leaves that was counted under another cut than the one that leaves, unless a word says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core import learn as learning
from imdh_cli.core.learn import Learned, learn
from imdh_cli.core.pruning import Pruning
from imdh_cli.model import load
from imdh_cli.model.build import prune
from imdh_cli.params import FitParams
from imdh_cli.rows.source import ArrayRows, StreamRows
from tests.cli import imdh

CENTRES = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
ONCE = FitParams(passes=1, recount="no", n_init=1)


def same(n: int) -> np.ndarray:
    return np.full((n, 2), 5.0)


def four(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, n])
    return CENTRES[rng.integers(0, 4, n)] + rng.standard_normal((n, 2))


def whole_numbers(n: int) -> np.ndarray:
    """Two groups, in which every value comes again: rows are learned from with noise."""
    rng = np.random.default_rng(n)
    return np.where(rng.random((n, 1)) < 0.5, rng.integers(18, 40, (n, 2)), rng.integers(44, 70, (n, 2)))


INPUTS = {
    "a stretch of one value, then blobs": np.concatenate([same(100_000), four(3000)]),
    "blobs, then a stretch": np.concatenate([four(3000), same(100_000)]),
    "a stretch within": np.concatenate([four(50_000), same(50_000), four(10_000)]),
    "stretches in turn": np.concatenate([same(26_000), four(26_000), same(26_000), four(26_000)]),
    "two values": np.repeat([[0.0, 0.0], [1.0, 1.0]], 60_000, axis=0),
    "one value here and there": np.random.default_rng(0).permutation(
        np.concatenate([same(100_000), four(3000)])
    ),
    "sorted": (lambda X: X[np.argsort(X[:, 0])])(four(110_000)),
    "moving": four(110_000) + np.linspace(0.0, 30.0, 110_000)[:, np.newaxis],
    "whole numbers": whole_numbers(110_000).astype(float),
}


def counted_and_labelled(learned: Learned, X: np.ndarray) -> tuple[Pruning, np.ndarray, np.ndarray]:
    """What was chosen, the rows counted in each cluster, and those of X that are labelled so."""
    chosen = prune(learned, FitParams().prune)
    length = chosen.n_clusters + 1
    counted = np.bincount(chosen.cluster_of_leaf, learned.statistics.counts, length)[1:]
    labels = chosen.cluster_of_leaf[learned.leaves(X)]
    return chosen, counted.astype(int), np.bincount(labels, minlength=length)[1:]


@pytest.mark.parametrize("name", INPUTS)
def test_clusters_of_more_rows_than_are_counted_again_hold_what_is_said(monkeypatch, name):
    """As of more than a million rows, met once: from an array, and from a stream in other portions."""
    X = INPUTS[name]
    monkeypatch.setattr(learning, "AGAIN_ROWS", len(X) // 2)
    params = FitParams(buffer_rows=20_000)
    monkeypatch.setattr(learning, "COUNTED_ROWS", len(X))
    whole = learn(ArrayRows(X), params)
    assert (whole.passes, whole.counted) == (1, "sampled")
    _, counted, labelled = counted_and_labelled(whole, X)
    np.testing.assert_array_equal(counted, labelled)
    monkeypatch.setattr(learning, "COUNTED_ROWS", 10_000)
    parts = np.array_split(X.copy(), 7)  # a stream is the learner's to shuffle in
    sampled = learn(StreamRows(parts, 2), params, threads=2)
    _, counted, labelled = counted_and_labelled(sampled, X)
    assert sampled.statistics.counts.sum() == 10_000
    assert labelled.all()
    expected = labelled * (10_000 / len(X))
    assert (np.abs(counted - expected) <= 5 * np.sqrt(expected) + 1).all()


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("n", [100, 3000, 20_000])
def test_without_a_recount_rows_in_memory_are_counted_as_they_are_labelled(n, passes):
    X = four(n)
    learned = learn(ArrayRows(X), replace(ONCE, passes=passes, n_init=2))
    _, counted, labelled = counted_and_labelled(learned, X)
    np.testing.assert_array_equal(counted, labelled)


def planted(n: int, k: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, k, d])
    which = rng.integers(0, k, n)
    return 12.0 * rng.standard_normal((k, d))[which] + rng.standard_normal((n, d)), which


def learned_once(X: np.ndarray, way: str) -> Learned:
    in_order = replace(ONCE, shuffle="none")
    if way == "updated":
        return learn(ArrayRows(X[6000:]), ONCE, learn(ArrayRows(X[:6000]), in_order).state)
    if way == "recounted":
        return learn(ArrayRows(X), replace(in_order, recount="yes"))
    return learn(ArrayRows(X), in_order if way == "in order" else ONCE)


@pytest.mark.parametrize("way", ["shuffled", "in order", "recounted", "updated"])
@pytest.mark.parametrize("n", [8192, 8193, 8300, 9000, 16_384])
def test_clusters_are_found_and_counted_however_shortly_after_cuts_were_moved(n, way):
    """As with a few rows more or less; cuts may be moved after 8,192 rows and 16,384."""
    agreement = []
    for k, d, seed in ((3, 5, 1), (5, 3, 0), (7, 10, 0)):
        X, which = planted(n, k, d, seed)
        learned = learned_once(X, way)
        assert learned.statistics.counts.sum() >= 1024
        chosen, counted, labelled = counted_and_labelled(learned, X)
        shares = counted / counted.sum() - labelled / n
        assert np.abs(shares).max() < 0.05
        agreement.append(adjusted_rand_score(which, chosen.cluster_of_leaf[learned.leaves(X)]))
    assert np.mean(agreement) > 0.9
    assert min(agreement) > 0.6


# --- the words ------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    X = four(17_000)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def cautions(model) -> dict[str, str]:
    return {w["code"]: w["message"] for w in imdh("report", model, "--json").json["warnings"]}


def test_that_cuts_still_moved_is_said(table, tmp_path):
    model, updated = tmp_path / "m.npz", tmp_path / "u.npz"
    once = ("--shuffle", "none", "--passes", 1, "--recount", "no")
    done = imdh("fit", table, *once, "-o", model)
    assert "rows in each of the last 8,808, counted while cuts still moved: " in done.err
    assert "of the last 8,808 rows of 17,000, counted while cuts still moved" in cautions(model)["windowed"]
    imdh("fit", table, "-o", model, "-f")
    assert not cautions(model).keys() & {"windowed", "sampled"}
    done = imdh("fit", table, "--update", model, "-o", updated)
    assert "rows in each, counted while cuts still moved: " in done.err
    assert "figures were counted while cuts still moved" in cautions(updated)["windowed"]
    imdh("prune", updated, table, "-o", updated, "-f")
    assert "windowed" not in cautions(updated)


def test_that_a_sample_was_counted_is_said(monkeypatch, table, tmp_path):
    monkeypatch.setattr(learning, "AGAIN_ROWS", 5000)
    monkeypatch.setattr(learning, "COUNTED_ROWS", 2000)
    model = tmp_path / "m.npz"
    done = imdh("fit", table, "--buffer-rows", 4000, "-o", model)
    assert "rows in each of a sample of 2,000: " in done.err
    assert load(model).metadata["statistics"] == "sampled"
    assert "a random sample of 2,000 rows of 17,000" in cautions(model)["sampled"]
    imdh("prune", model, table, "-o", model, "-f")
    assert load(model).counts[0] == 17_000
    assert "sampled" not in cautions(model)
