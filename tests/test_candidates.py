"""Cuts moved to single features by a sample of the last rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from imdh_cli.compiled import valleys
from imdh_cli.core.candidates import Sample, move_to_features
from imdh_cli.core.tree import CLIP, Scaling, Tree
from imdh_cli.params import FitParams
from imdh_cli.pipeline.assign import Labeller
from tests import naive
from tests.benchmarks.in_process import fit_rows


def in_one_column(n: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """X (n, d), k Gaussians 9 sd apart in the first column only, and which (n,)."""
    rng = np.random.default_rng([seed, n, d])
    which = rng.integers(0, k, n)
    X = rng.standard_normal((n, d))
    X[:, 0] += 9.0 * which
    return X, which


def test_no_more_than_the_last_rows_are_had_where_so_few_are_asked_for():
    sample = Sample(4096)  # of 1024 rows
    for first in (0.0, 800.0):
        sample.add(np.repeat(np.arange(first, first + 800.0)[:, np.newaxis], 4096, axis=1))
    assert sorted(sample.rows(600)[:, 0]) == list(range(1000, 1600))
    assert len(sample.rows(5000)) == len(sample.rows()) == 1024


@given(parts=st.lists(st.integers(0, 3000), max_size=8))
def test_a_sample_holds_the_last_rows(parts):
    X = np.broadcast_to(np.random.default_rng(0).standard_normal((sum(parts), 1)), (sum(parts), 4096))
    sample = Sample(4096)  # of 1024 rows
    bounds = np.cumsum([0, *parts])
    for low, high in pairwise(bounds):
        sample.add(X[low:high])
    np.testing.assert_array_equal(np.sort(sample.rows()[:, 0]), np.sort(X[-1024:, 0]))
    again = Sample(4096)
    again.restore(sample.state())
    again.add(X[:5])
    sample.add(X[:5])
    np.testing.assert_array_equal(again.rows(), sample.rows())


@given(seed=st.integers(0, 999), deep=st.sampled_from([0.0, 0.8]))
def test_the_best_place_of_a_histogram_is_that_of_all_of_them(seed, deep):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(30, 3000))
    x = np.concatenate([rng.normal(0, rng.uniform(0.1, 1), n), rng.normal(rng.uniform(0, 6), 0.5, n // 2)])
    x = rng.uniform(0.5, 2) * (x - x.mean()) / x.std()
    h = np.bincount(np.clip(np.floor(16 * x) + 64, 0, 127).astype(int), minlength=128)[None]
    least = 1.6 * np.sqrt(len(x))
    rows = np.array([len(x)])
    excess, depth = naive.at_all_edges(h[0], len(x))
    value = np.where((excess > least) & (depth >= deep), excess * depth, 0.0)
    value[:16], value[113:] = 0.0, 0.0
    worth, place, depths = np.empty(1), np.empty(1, np.int64), np.empty(1)
    valleys.best_places(h, rows, 1.6, deep, 48, valleys.make_work(), worth, place, depths)
    assert worth[0] == pytest.approx(value.max(), rel=1e-6)
    if worth[0] > 0:
        assert value[place[0]] == pytest.approx(worth[0], rel=1e-6)
        assert depths[0] == pytest.approx(depth[place[0]], rel=1e-9)


@pytest.mark.parametrize(("d", "k", "seed", "hold"), [(2, 2, 0, False), (3, 2, 1, True), (6, 2, 2, False)])
def test_moves_are_the_twins(d, k, seed, hold):
    X, _ = in_one_column(600, d, k, seed)
    Z, center, scale = naive.standardise(X)
    tree = Tree.start(3, d, seed=seed)
    twin = naive.Tree(3, naive.start_directions(3, d, seed=seed))
    twin.pass_over(Z[:300])
    for i, node in twin.splits.items():
        tree.learned[i - 1], tree.offsets[i - 1], tree.variances[i - 1] = node.t, node.b, node.s2
        tree.pivots[i - 1], tree.directions[i - 1], tree.mean_squares[i - 1] = node.m, node.v, node.rho2
    its = naive.move_to_features(twin, Z, hold=hold)
    assert len(its) > 0
    scaling, none = Scaling(center, scale, np.zeros(d), CLIP), np.empty(0, np.int64)
    assert move_to_features(tree, scaling, X, none, hold=hold) == len(its)
    for i, node in twin.splits.items():
        np.testing.assert_allclose(tree.directions[i - 1], node.v, atol=1e-12)
        np.testing.assert_allclose(tree.pivots[i - 1], node.m, atol=1e-9)
        assert tree.learned[i - 1] == node.t
        for mine, theirs in ((tree.offsets, node.b), (tree.variances, node.s2), (tree.anchors, node.anchor)):
            assert mine[i - 1] == pytest.approx(theirs, abs=1e-9)


def test_features_that_are_no_candidates_are_let_alone():
    X, _ = in_one_column(2000, 3, 2)
    scaling = Scaling(X.mean(axis=0), X.std(axis=0), np.zeros(3), CLIP)
    tree = Tree.start(2, 3)
    assert move_to_features(tree, scaling, X, np.array([0])) == 0
    assert move_to_features(tree, scaling, X, np.array([1, 2])) == 1


def test_what_small_steps_lose_in_many_columns_is_held():
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, 4000)
    X = rng.standard_normal((4000, 200))
    X[:, :3] += 5.7 * np.eye(3)[which]
    made = fit_rows(X, FitParams(n_init=1))
    assert made.pruning.n_clusters == 3
    assert adjusted_rand_score(which, Labeller(made.model, None)(X)["cluster"]) > 0.97


@pytest.mark.parametrize(("d", "k"), [(10, 2), (10, 3), (50, 2), (50, 3)])
def test_clusters_in_one_of_many_columns_are_found(d, k):
    X, which = in_one_column(20_000, d, k)
    made = fit_rows(X, FitParams(n_init=1))
    assert made.pruning.n_clusters == k
    assert adjusted_rand_score(which, Labeller(made.model, None)(X)["cluster"]) > 0.99
