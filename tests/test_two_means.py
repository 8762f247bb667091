"""A tree without any valley, and its cuts moved to those of least squares."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core import learn as learning
from imdh_cli.core import two_means as module
from imdh_cli.core.counter import Counter
from imdh_cli.core.learn import learn
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import Tree
from imdh_cli.core.two_means import move_to_two_means, two_means
from imdh_cli.params import FitParams, LearnParams
from imdh_cli.rows.source import ArrayRows
from tests import naive
from tests.benchmarks import in_process
from tests.test_hyperplanes import hidden, learned, scaling_of, standardised

ROWS = 4000


def overlapping(seed: int, d: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Two Gaussians 2 sd apart along the diagonal: no valley, but more variance. X (n, d), which (n,)."""
    rng = np.random.default_rng(seed)
    which = rng.integers(2, size=ROWS)
    return rng.standard_normal((ROWS, d)) + which[:, None] * 2.0 / np.sqrt(d), which


def counted(tree: Tree, Z: np.ndarray) -> Statistics:
    """As a recount of rows has them."""
    counter = Counter(tree.freeze(), scaling_of(Z.shape[1]))
    counter.update(Z)
    counter.join()
    return counter.statistics()


def moved(X: np.ndarray, **options: int) -> tuple[Tree, int]:
    Z = standardised(X)
    tree = learned(Z, **options)
    return tree, move_to_two_means(tree, scaling_of(Z.shape[1]), Z, counted(tree, Z))


@pytest.mark.parametrize("seed", range(3))
def test_the_cut_is_that_of_k_means(seed):
    rng = np.random.default_rng(seed)
    Z = standardised(
        rng.standard_normal((3000, 4)) @ np.diag([3.0, 1.0, 0.5, 0.5]) @ rng.standard_normal((4, 4))
    )
    ends = module.TAILS * Z.std(axis=0)
    cut = two_means(Z, np.ones(4))
    assert cut is not None
    labels = KMeans(2, n_init=10, random_state=0).fit_predict(np.clip(Z, -ends, ends))
    assert adjusted_rand_score(labels, Z @ cut[0] < cut[1]) > 0.97


@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential"])
def test_the_cut_is_that_of_the_equations(draw):
    rng = np.random.default_rng(3)
    Z = getattr(rng, draw)((400, 3)) @ rng.standard_normal((3, 3))
    cut, (direction, threshold) = two_means(Z, np.ones(3)), naive.two_means(Z, np.ones(3))
    assert cut is not None
    np.testing.assert_allclose(cut[0], direction, atol=1e-9)
    assert cut[1] == pytest.approx(threshold, abs=1e-9)


def test_groups_that_overlap_are_found_where_two_are_asked_for():
    for seed in range(3):
        X, which = overlapping(seed)
        fit = in_process.fit_rows(X, FitParams(seed=seed))
        assert len(np.unique(fit.model.cluster_of_leaf)) == 1
        labels = in_process.labels(in_process.with_clusters(fit.model, 2), X)
        best = X.sum(axis=1) > np.sqrt(8.0)
        assert adjusted_rand_score(which, labels) > adjusted_rand_score(which, best) - 0.03


@pytest.mark.parametrize("d", [1, 4])
def test_parts_differ_as_much_as_those_of_bisecting_k_means(d):
    X = np.random.default_rng(0).standard_normal((5000, d))

    def within(labels: np.ndarray) -> float:
        return sum(X[labels == k].var(axis=0).sum() * np.mean(labels == k) for k in np.unique(labels))

    model = in_process.fit_rows(X, FitParams()).model
    assert model.n_clusters == 1
    ours = within(in_process.labels(in_process.with_clusters(model, 5), X))
    assert ours < 1.02 * within(BisectingKMeans(5, random_state=0).fit_predict(X))


def test_cuts_are_moved_down_to_the_last_level():
    X, _ = overlapping(0)
    tree, count = moved(X)
    assert count == 2**module.LEVELS - 1
    assert not tree.learned[count:].any()
    Z = standardised(X)
    assert tree.variances[0] == pytest.approx((Z @ tree.directions[0]).var())
    left = Z @ tree.directions[0] < tree.frozen()[0][0]
    np.testing.assert_allclose(tree.pivots[1], Z[left].mean(axis=0), atol=1e-12)
    assert tree.learned[1] == left.sum()


def test_rows_with_a_valley_are_left_as_they_were_learned(monkeypatch):
    X, _ = hidden(3, 6, 6)
    before = in_process.fit_rows(X, FitParams()).model
    monkeypatch.setattr(learning, "move_to_two_means", lambda *_: pytest.fail("was called"))
    after = in_process.fit_rows(X, FitParams()).model
    assert after.n_clusters == 3
    np.testing.assert_array_equal(before.directions, after.directions)


def test_reseat_no_leaves_cuts_where_steps_end():
    X, _ = overlapping(0)
    learned = learn(ArrayRows(X), FitParams(learn=LearnParams(reseat="no")))
    assert learned.tree.learned[0] == learned.passes * len(X)


def test_a_cut_along_which_a_valley_shows_stays_and_those_below_it_move():
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((300, 3))
    Z[:, 1] *= 2.0
    Z[:, 0] += 3.0 * rng.integers(2, size=300)
    Z = standardised(Z)
    tree = learned(Z)
    tree.directions[0], tree.pivots[0], tree.offsets[0] = [1.0, 0.0, 0.0], 0.0, 0.0
    direction = tree.directions[:2].copy()
    assert move_to_two_means(tree, scaling_of(3), Z, counted(tree, Z)) > 0
    np.testing.assert_array_equal(tree.directions[0], direction[0])
    assert not np.array_equal(tree.directions[1], direction[1])


@pytest.mark.parametrize(
    "options", [{}, {"recount": "no"}, {"buffer_rows": 1500}, {"buffer_rows": 1500, "recount": "no"}]
)
def test_rows_in_memory_drawn_or_streamed_are_counted_at_the_cuts_that_moved(options):
    X, which = overlapping(0)
    learned = learn(ArrayRows(X), FitParams(**options))
    assert learned.recounted == ("recount" not in options)
    np.testing.assert_array_equal(learned.state.learned_offsets, learned.tree.offsets)
    left = learned.leaves(X) < 1 << learned.tree.freeze().depth - 1
    assert learned.statistics.of_nodes()[0][1] == left.sum()
    assert adjusted_rand_score(which, left) > 0.42  # 0.45 by the best cut


def test_far_rows_are_no_part_of_their_own_and_the_cut_is_near_the_mean():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((2000, 3)) @ np.diag([2.0, 1.0, 1.0])
    Z[:5, 1] = 10.0  # as far as coordinates reach
    cut = two_means(Z, np.array([0.0, 1.0, 0.0]))
    assert cut is not None
    assert abs(cut[0][0]) > 0.9
    left = Z @ cut[0] < cut[1]
    assert 0.2 < left.mean() < 0.8


@pytest.mark.parametrize("shape", [(module.LEAST_ROWS - 1, 3), (2000, 300), (3000, 1)])
def test_few_rows_many_features_and_one_feature_are_no_error(shape):
    _, count = moved(np.random.default_rng(0).standard_normal(shape), depth=3)
    assert (count > 0) == (shape[0] > module.LEAST_ROWS)


def test_rows_all_alike_stay():
    Z = np.zeros((3000, 3))
    assert two_means(Z, np.ones(3)) is None
    tree = learned(Z, depth=3)
    assert move_to_two_means(tree, scaling_of(3), Z, counted(tree, Z)) == 0
