"""Minimum density hyperplanes sought on the last rows, and cuts moved to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.metrics import adjusted_rand_score

from imdh_cli.compiled import hyperplanes as compiled
from imdh_cli.core import hyperplanes
from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.hyperplanes import best_cut, minima, move_to_hyperplanes
from imdh_cli.core.learner import Learner
from imdh_cli.core.thread_pipeline import block_rows
from imdh_cli.core.tree import Scaling, Tree
from imdh_cli.params import FitParams, LearnParams
from tests import naive
from tests.benchmarks import in_process

ROWS = 4000
H = 0.4


def hidden(k: int, d: int, q: int, *, rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """k Gaussians, 7 sd apart in q rotated directions, the others of more variance. X (n, d), which (n,)."""
    rng = np.random.default_rng([seed, k, d, q])
    centres: list[np.ndarray] = []
    size = 2.0
    while len(centres) < k:
        centre = size * rng.standard_normal(q)
        if all(np.linalg.norm(centre - other) >= 7.0 for other in centres):
            centres.append(centre)
        size *= 1.02
    which = rng.integers(k, size=rows)
    near = np.array(centres)[which] + rng.standard_normal((rows, q))
    far = near.std() * rng.uniform(1.0, 10.0, d - q) * rng.standard_normal((rows, d - q))
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return np.hstack([near, far]) @ rotation, which


def standardised(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def scaling_of(d: int) -> Scaling:
    return Scaling(np.zeros(d), np.ones(d), np.zeros(d), 10.0)


def learned(Z: np.ndarray, *, depth: int = 8, seed: int = 0) -> Tree:
    """A tree that small steps alone have made of these rows."""
    d = Z.shape[1]
    params = FitParams(learn=LearnParams(depth=depth, reseat="no"))
    learner = Learner(Tree.start(depth, d, seed=seed), scaling_of(d), ColumnMoments(d), params, 1)
    learner.begin_epoch(0, counting=False)
    for k in range(0, len(Z), block_rows(d)):
        learner.partial_fit(Z[k : k + block_rows(d)])
    learner.join()
    return learner.tree


def centred(seed: int, n: int = 300, d: int = 4) -> np.ndarray:
    """Two clusters along the second column."""
    rng = np.random.default_rng([seed, 5])
    Y = rng.standard_normal((n, d)) * [3.0, 1.0, 0.5, 1.0]
    Y[:, 1] += 6.0 * (rng.random(n) < 0.4)
    return Y - Y.mean(axis=0)


@pytest.mark.parametrize("offset", [0.0, 0.3, -1.2])
def test_the_value_is_that_of_the_equation_and_the_gradient_that_of_its_differences(offset):
    Y = centred(0)
    w = np.append(np.random.default_rng(1).standard_normal(4), offset)
    gradient = np.empty(5)
    of_rows, _ = compiled.make_work(*Y.shape)

    def F(w: np.ndarray) -> float:
        return naive.density_on_hyperplane(w[:4], w[4], Y, H)

    assert compiled._value(Y, w, H, 0.5, 10.0, of_rows, gradient) == pytest.approx(F(w), rel=1e-12)
    step = 1e-5
    differences = [(F(w + step * e) - F(w - step * e)) / (2 * step) for e in np.eye(5)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_minimum_is_that_of_another_implementation(seed):
    Y = centred(seed)
    start = np.array([0.5, 1.0, 0.0, 0.2, 0.0])
    W, values = start[None].copy(), np.empty(1)
    work = compiled.make_work(*Y.shape)
    again = 10  # a search ends where a step gains less than a thousandth
    compiled.minimise(Y, W, np.full(again, H), np.full(again, 50), 0.5, 10.0, *work, values)

    def F(w: np.ndarray) -> tuple[float, np.ndarray]:
        gradient = np.empty(5)
        return compiled._value(Y, w, H, 0.5, 10.0, work[0], gradient), gradient

    other = minimize(F, start, jac=True, method="L-BFGS-B", options={"maxiter": 200, "ftol": 1e-12})
    assert values[0] == pytest.approx(other.fun, rel=2e-3)
    v = W[0, :4] / np.linalg.norm(W[0, :4])
    assert abs(v @ other.x[:4]) / np.linalg.norm(other.x[:4]) > 0.99


def test_rows_of_no_spread_stop_the_search():
    W, values = np.array([[1.0, 0.0, 0.0]]), np.empty(1)
    Y = np.zeros((10, 2))
    compiled.minimise(Y, W, np.array([H]), np.array([5]), 0.5, 10.0, *compiled.make_work(10, 2), values)
    np.testing.assert_array_equal(W, [[1.0, 0.0, 0.0]])


def test_second_moments():
    rng = np.random.default_rng(0)
    Y, weights = rng.standard_normal((50, 3)), rng.random(50)
    C = np.empty((3, 3))
    compiled.second_moments(Y, weights, C)
    np.testing.assert_allclose(C, np.einsum("i,ij,ik->jk", weights, Y, Y) / 50, atol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_a_direction_of_little_variance_that_tells_clusters_apart_is_found(seed):
    X, which = hidden(2, 12, 1, seed=seed)
    Z = standardised(X)
    cut = best_cut(minima(Z[::2]), Z[1::2])
    assert cut.worth > 0
    assert adjusted_rand_score(which, Z @ cut.direction < cut.threshold) > 0.98


def test_a_judged_cut_has_the_worth_and_the_depth_of_the_equations():
    Z = centred(3, n=1000)
    cut = hyperplanes.Cut(np.array([0.0, 1.0, 0.0, 0.0]), 0.3, 0.0, 0.0)
    found = best_cut([cut], Z)
    u = (Z[:, 1] - 0.3) / Z[:, 1].std()
    histogram = np.bincount([naive.bin_of(x) for x in u], minlength=128)
    assert found.depth == pytest.approx(naive.valley_depth(histogram, 1000))
    assert found.worth == pytest.approx(naive.excess_mass(histogram) * found.depth)


@pytest.mark.parametrize("draw", ["standard_normal", "standard_exponential", "random"])
def test_one_cluster_is_not_cut(draw):
    for seed in range(5):
        Z = standardised(getattr(np.random.default_rng(seed), draw)((ROWS, 6)))
        assert move_to_hyperplanes(learned(Z, seed=seed), scaling_of(6), Z) == 0


def test_the_cuts_that_move_are_held_and_those_below_with_them_are_looked_at():
    X, which = hidden(3, 10, 2)
    Z = standardised(X)
    tree = learned(Z)
    assert move_to_hyperplanes(tree, scaling_of(10), Z) >= 2
    thresholds, _ = tree.frozen()
    left = Z @ tree.directions[0] < thresholds[0]
    purest = [max(np.mean(left[which == k]), np.mean(~left[which == k])) for k in range(3)]
    assert min(purest) > 0.97
    assert tree.learned[0] == hyperplanes.HELD
    np.testing.assert_allclose(tree.pivots[0], Z.mean(axis=0), atol=1e-12)
    assert tree.variances[0] == pytest.approx((Z @ tree.directions[0]).var())
    assert hyperplanes.HELD in tree.learned[1:3]
    assert not tree.learned[15:].any()


def test_learning_on_does_not_move_a_cut_that_is_held():
    X, _ = hidden(3, 10, 2)
    Z = standardised(X)
    tree = learned(Z)
    move_to_hyperplanes(tree, scaling_of(10), Z)
    direction, (thresholds, _) = tree.directions[0].copy(), tree.frozen()
    learner = Learner(tree, scaling_of(10), ColumnMoments(10), FitParams(), 1)
    learner.begin_epoch(0, counting=False)
    learner.partial_fit(Z)
    learner.join()
    assert learner.tree.directions[0] @ direction == pytest.approx(1.0, abs=1e-9)
    assert learner.tree.frozen()[0][0] == pytest.approx(thresholds[0], abs=1e-4)


def test_good_cuts_stay():
    Z = centred(0, n=ROWS)
    Z /= Z.std(axis=0)
    tree = learned(Z)
    before = tree.directions.copy()
    assert move_to_hyperplanes(tree, scaling_of(4), Z) == 0
    np.testing.assert_array_equal(tree.directions, before)


@pytest.mark.parametrize("shape", [(hyperplanes.LEAST_ROWS - 1, 3), (2000, 300), (3000, 1)])
def test_few_rows_many_features_and_one_feature_are_no_error(shape):
    Z = np.random.default_rng(0).standard_normal(shape)
    assert move_to_hyperplanes(learned(Z, depth=3), scaling_of(shape[1]), Z) == 0


def test_constant_columns_and_rows_all_alike_are_no_error():
    Z = np.zeros((3000, 3))
    assert move_to_hyperplanes(learned(Z, depth=3), scaling_of(3), Z) == 0
    assert minima(Z) == []
    Z[:, 0] = np.random.default_rng(0).standard_normal(3000)
    assert move_to_hyperplanes(learned(Z, depth=3), scaling_of(3), Z) == 0


@pytest.mark.parametrize(("k", "d", "q"), [(3, 10, 2), (7, 16, 5)])
def test_clusters_in_directions_of_little_variance_are_all_found(k, d, q):
    X, which = hidden(k, d, q, rows=6000)
    model = in_process.fit_rows(X, FitParams()).model
    assert model.n_clusters == k
    assert adjusted_rand_score(which, in_process.labels(model, X)) > 0.98
