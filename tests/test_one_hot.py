"""Columns that are the levels of one: which they are, the noise between the levels, and what it is for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core import one_hot as one_hot_columns
from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.core.one_hot import MOST_LEVELS
from imdh_cli.params import FitParams
from imdh_cli.pipeline.assign import Labeller
from tests import naive
from tests.benchmarks.in_process import fit_rows

KEY = noise_key(3, epoch=0)
ROWS = 20_000


def one_hot(codes: np.ndarray, *, dropped: bool = False) -> np.ndarray:
    """A column for each code, or for each but the first."""
    return (codes[:, None] == np.arange(int(dropped), codes.max() + 1)).astype(float)


def texts(rng: np.random.Generator, rows: int, columns: int, **how: bool) -> np.ndarray:
    """Of as many text columns, of 3 to 6 levels of unlike shares each."""
    drawn = [rng.choice(L, rows, p=rng.dirichlet(np.full(L, 2.0))) for L in rng.integers(3, 7, columns)]
    return np.hstack([one_hot(codes, **how) for codes in drawn])


def noisy(X: np.ndarray) -> tuple[Dither, np.ndarray]:
    dither = Dither.of(X)
    return dither, dither.apply(X, KEY, 0)


# --- which columns --------------------------------------------------------------------------------


def test_groups_are_neighbours_that_are_never_1_together():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, ROWS), rng.integers(0, 4, ROWS)
    flag, number = rng.integers(0, 2, ROWS), rng.standard_normal(ROWS)
    X = np.column_stack([one_hot(a), flag, one_hot(b, dropped=True), number])
    found = Dither.of(X).one_hot
    assert found.columns.tolist() == [0, 1, 2, 4, 5, 6]
    assert found.groups.tolist() == [0, 0, 0, 1, 1, 1]
    np.testing.assert_allclose(found.shares, [1 / 3] * 3 + [1 / 4] * 3, atol=0.02)


@pytest.mark.parametrize(("levels", "found"), [(MOST_LEVELS, MOST_LEVELS), (MOST_LEVELS + 1, 0)])
def test_a_group_is_whole_or_none(levels, found):
    codes = np.arange(ROWS) % levels
    X = np.column_stack([one_hot(codes), np.random.default_rng(1).standard_normal(ROWS)])
    assert len(Dither.of(X).one_hot.columns) == found


def test_a_level_without_rows_ends_no_group():
    codes = np.random.default_rng(0).choice([0, 2, 4], ROWS)
    X = np.column_stack([np.zeros(ROWS), one_hot(codes), np.random.default_rng(1).standard_normal(ROWS)])
    assert Dither.of(X).one_hot.columns.tolist() == [1, 3, 5]


def test_noise_is_the_same_in_many_threads():
    codes = np.random.default_rng(0).integers(0, 5, 200_000)
    X = np.column_stack([one_hot(codes), np.random.default_rng(1).standard_normal(len(codes))])
    dither = Dither.of(X)
    once = dither.apply(X, KEY, 0)
    with ThreadPoolExecutor(8) as threads:
        for made in threads.map(lambda _: dither.apply(X, KEY, 0), range(16)):
            np.testing.assert_array_equal(made, once)


def test_the_levels_of_a_single_column_are_places_and_stay_clusters():
    X = one_hot(np.random.default_rng(0).integers(0, 5, 6000))
    assert not Dither.of(X).one_hot.any
    assert fit_rows(X, FitParams(n_init=1)).pruning.n_clusters == 5


# --- the noise ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropped", [False, True])
def test_rows_are_those_of_the_twin(dropped):
    """The map takes the mean of the pieces of each level's rows to its corner."""
    codes = np.random.default_rng(0).choice(4, ROWS, p=[0.15, 0.2, 0.4, 0.25])
    X = np.column_stack([np.random.default_rng(1).standard_normal(ROWS), one_hot(codes, dropped=dropped)])
    dither, Y = noisy(X)
    shares = dict(zip(dither.one_hot.columns.tolist(), dither.one_hot.shares, strict=True))
    none = 99  # the level without a column
    if dropped:
        shares[none] = 1.0 - sum(shares.values())
    columns = [none, 1, 2, 3] if dropped else [1, 2, 3, 4]
    inverted = ~int(KEY) & (1 << 64) - 1

    def pieces(i: int) -> list[float]:
        d = X.shape[1]
        u = {f: naive.uniform(int(KEY), i * d + f) for f in shares if f != none}
        u[none] = naive.uniform(inverted, i * d + 1)
        return naive.stick(shares, columns[codes[i]], u)

    made = np.array([pieces(i) for i in range(4000)])
    means = np.array([made[codes[:4000] == level].mean(axis=0) for level in range(4)])
    wanted = made @ np.linalg.inv(means)
    np.testing.assert_allclose(Y[:4000, 1:], wanted[:, int(dropped) :], atol=0.1)  # means of 600 rows
    weights, *_ = np.linalg.lstsq(made, Y[:4000, 1:], rcond=None)
    np.testing.assert_allclose(made @ weights, Y[:4000, 1:], atol=1e-12)  # a linear map of the twin's


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("levels", [3, 5, 12, 100])
def test_frequent_alike_levels_are_spread_evenly_over_a_simplex(levels, dropped):
    """In which each of L coordinates has the law Beta(1, L - 1)."""
    codes = np.random.default_rng(levels).permutation(np.arange(ROWS // levels * levels) % levels)
    X = np.column_stack(
        [one_hot(codes, dropped=dropped), np.random.default_rng(1).standard_normal(len(codes))]
    )
    dither, Y = noisy(X)
    (simplex,) = dither.one_hot._simplices()
    hot = Y[:, :-1]
    points = np.column_stack([hot, 1.0 - hot.sum(axis=1)])[:, [f if f >= 0 else -1 for f in simplex.columns]]
    means, _ = one_hot_columns._moments(simplex.parts)
    for coordinate in (points @ means).T:
        assert stats.kstest(coordinate, stats.beta(1, levels - 1).cdf).statistic < 2.3 / np.sqrt(len(codes))


@pytest.mark.parametrize("dropped", [False, True])
def test_the_noise_of_a_level_has_the_mean_0_and_its_square_is_known(dropped):
    rng = np.random.default_rng(0)
    codes = rng.choice(4, ROWS, p=[0.1, 0.2, 0.6, 0.1])
    X = np.column_stack([one_hot(codes, dropped=dropped), one_hot(rng.integers(0, 3, ROWS), dropped=dropped)])
    dither, Y = noisy(X)
    for level in range(4):
        noise = (Y - X)[codes == level]
        assert np.abs(noise.mean(axis=0) / noise.std(axis=0)).max() < 4 / np.sqrt(len(noise))
    np.testing.assert_allclose(((Y - X) ** 2).mean(axis=0), dither.squares, rtol=0.05)
    between = np.corrcoef((Y - X).T)[: 4 - dropped, 4 - dropped :]
    assert np.abs(between).max() < 0.03  # groups know nothing of each other


def test_rows_of_no_single_level_have_the_noise_of_any_column():
    codes = np.random.default_rng(0).integers(0, 3, ROWS)
    X = np.column_stack([one_hot(codes), np.random.default_rng(1).standard_normal(ROWS)])
    dither = Dither.of(X)
    odd = np.array([[0.0, 0, 0, 1], [1, 1, 0, 1], [0.5, 0, 1, 1], [np.nan, 1, 0, 1]])
    got = dither.apply(odd, KEY, 7) - odd
    known = ~np.isnan(odd)
    expected = np.array(
        [[naive.uniform(int(KEY), (7 + i) * 4 + f) - 0.5 for f in range(4)] for i in range(4)]
    )
    np.testing.assert_allclose(got[:, :3][known[:, :3]], expected[:, :3][known[:, :3]], atol=0.01)
    assert np.isnan(got[~known]).all()


def test_a_state_holds_the_groups():
    X = texts(np.random.default_rng(0), 500, 3, dropped=True)
    dither = Dither.of(X)
    again = Dither.restored(dither.state())
    np.testing.assert_array_equal(again.apply(X, KEY, 5), dither.apply(X, KEY, 5))


# --- what it is for -------------------------------------------------------------------------------


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("numbers", [0, 4])
def test_text_columns_that_tell_nothing_are_one_cluster(numbers, dropped):
    rng = np.random.default_rng(numbers)
    X = np.hstack([texts(rng, ROWS, 3, dropped=dropped), rng.standard_normal((ROWS, numbers))])
    assert fit_rows(X, FitParams(n_init=1)).pruning.n_clusters == 1


def test_text_columns_do_not_spoil_three_blobs():
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, ROWS)
    blobs = np.array([[0, 0], [7, 7], [14, 0]])[which] + rng.standard_normal((ROWS, 2))
    X = np.hstack([blobs, texts(rng, ROWS, 3)])
    made = fit_rows(X, FitParams(n_init=1))
    assert made.pruning.n_clusters == 3
    assert adjusted_rand_score(which, Labeller(made.model, None)(X)["cluster"]) > 0.99
