"""Columns that are classes of a finer one: which are seen, and noise that agrees with it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.params import FitParams
from tests.benchmarks import in_process

ROWS = 4000
KEY = noise_key(3, epoch=0)
FINE = {
    "continuous": lambda rng: rng.standard_normal(ROWS),
    "ages": lambda rng: np.rint(rng.gamma(6.0, 7.0, ROWS)),
    "amounts": lambda rng: np.round(rng.lognormal(3.0, 1.0, ROWS), 2),
}


def classes(x: np.ndarray, n: int) -> np.ndarray:
    """Which of n parts of equal numbers of rows each value lies in, 0 .. n - 1."""
    return np.searchsorted(np.quantile(x, np.arange(1, n) / n), x, "right").astype(float)


@pytest.mark.parametrize("way", [1.0, -1.0])
@pytest.mark.parametrize("n", [2, 5, 12])
@pytest.mark.parametrize("fine", FINE)
def test_classes_become_the_line_of_least_squares(fine, n, way):
    rng = np.random.default_rng(n)
    x = FINE[fine](rng)
    X = np.column_stack([way * classes(x, n), rng.standard_normal(ROWS), x])
    dither = Dither.of(X)
    assert dither.coarse.columns.tolist() == [0]
    assert dither.coarse.finer.tolist() == [2]
    out = dither.apply(X, KEY, 0)
    slope, intercept = scipy.stats.linregress(x, X[:, 0])[:2]
    np.testing.assert_allclose(out[:, 0], intercept + slope * out[:, 2], atol=0.02 * n)
    np.testing.assert_array_equal(out[:, 1], X[:, 1])


IN_STEPS = {
    "night": (lambda rng: rng.integers(0, 24, ROWS), lambda x: (x >= 22) | (x < 6)),
    "season": (lambda rng: rng.integers(1, 13, ROWS), lambda x: x % 12 // 3),
    "in range": (lambda rng: np.rint(rng.gamma(12, 10, ROWS)), lambda x: (x >= 70) & (x <= 140)),
    "fare": (lambda rng: rng.uniform(5, 91, ROWS), lambda x: np.select([x < 15, x < 65], [2.0, 4.0], 2.4)),
}


@pytest.mark.parametrize("name", IN_STEPS)
def test_classes_that_come_again_along_the_finer_column_are_seen(name):
    """The column and its classes were up to five clusters, called clear."""
    column, of = IN_STEPS[name]
    x = column(np.random.default_rng(0)).astype(float)
    X = np.column_stack([x, of(x)]).astype(float)
    coarse = Dither.of(X).coarse
    assert (coarse.columns.tolist(), coarse.finer.tolist()) == ([1], [0])
    assert in_process.fit_rows(X, FitParams(n_init=1)).model.n_clusters == 1


@pytest.mark.parametrize(
    "coarse",
    [
        lambda x, rng: rng.integers(0, 5, ROWS),
        lambda x, rng: np.rint(x + 0.5 * rng.standard_normal(ROWS)),
        lambda x, rng: rng.permutation(8)[classes(x, 8).astype(int)],
        lambda x, rng: rng.random(ROWS) < 0.001,
        lambda x, rng: np.floor(8 * x) % 2,
    ],
    ids=["of nothing", "with much noise", "out of order", "hardly any", "in many steps"],
)
def test_what_is_no_class_keeps_noise_of_its_own(coarse):
    rng = np.random.default_rng(1)
    x = rng.standard_normal(ROWS)
    assert not Dither.of(np.column_stack([x, coarse(x, rng)]).astype(float)).coarse.any


def test_classes_that_a_few_rows_do_not_keep_to():
    """As rounded degrees of two scales."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(ROWS)
    X = np.column_stack([x, classes(x, 5)])
    moved = rng.random(ROWS) < 0.04
    X[moved, 1] = rng.integers(0, 5, moved.sum())
    assert Dither.of(X).coarse.columns.tolist() == [1]


def test_of_several_the_finest_is_gone_along_with():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(ROWS)
    X = np.column_stack([classes(x, 2), classes(x, 6), x, classes(x, 30)])
    coarse = Dither.of(X).coarse
    assert coarse.columns.tolist() == [0, 1, 3]
    assert coarse.finer.tolist() == [2, 2, 2]


def test_missing_cells():
    rng = np.random.default_rng(4)
    x = rng.standard_normal(ROWS)
    X = np.column_stack([x, classes(x, 4)])
    gone, unknown = rng.random((2, ROWS)) < 0.05
    X[gone, 0], X[unknown, 1] = np.nan, np.nan
    dither = Dither.of(X)
    assert dither.coarse.any
    out = dither.apply(X, KEY, 0)
    assert np.isnan(out[unknown, 1]).all()
    assert np.isfinite(out[gone & ~unknown, 1]).all()


def test_a_state_holds_them():
    x = np.random.default_rng(5).standard_normal(ROWS)
    X = np.column_stack([x, classes(x, 4)])
    dither = Dither.of(X)
    again = Dither.restored(dither.state())
    assert again.coarse.any
    np.testing.assert_array_equal(again.apply(X, KEY, 0), dither.apply(X, KEY, 0))


@pytest.mark.parametrize("n", [3, 5])
def test_a_column_beside_its_classes_is_one_cluster(n):
    rng = np.random.default_rng(n)
    x = rng.uniform(-2.0, 2.0, 5000)
    width = 4.0 / n
    X = np.column_stack([x, np.floor(x / width), rng.standard_normal(5000), rng.gamma(3.0, 1.0, 5000)])
    assert in_process.fit_rows(X, FitParams(seed=0, n_init=1)).pruning.n_clusters == 1


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_beside_the_classes_of_one_of_their_columns(groups):
    """8 sd apart in two columns; the classes, 5 sd wide, cut through some of them."""
    rng = np.random.default_rng(groups)
    which = rng.integers(0, groups, 5000)
    places = 8.0 * np.column_stack([rng.permutation(groups), rng.permutation(groups), np.zeros(groups)])
    X = places[which] + rng.standard_normal((5000, 3))
    fit = in_process.fit_rows(np.column_stack([X, np.floor(X[:, 0] / 5.0)]), FitParams(seed=0, n_init=1))
    assert fit.pruning.n_clusters == groups
