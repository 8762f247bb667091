"""Single values that stand up in the midst of a column: which are seen, and what they are taken as."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core import humps, spikes
from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.params import FitParams
from tests import naive
from tests.benchmarks.in_process import fit_rows, labels

ROWS = 6000
KEY = noise_key(3, epoch=0)
COLUMNS = {
    "continuous": lambda rng: rng.normal(50, 12, ROWS),
    "days": lambda rng: rng.integers(1, 31, ROWS).astype(float),
    "amounts": lambda rng: np.round(rng.lognormal(3, 0.8, ROWS), 1),
}


def with_spikes(column: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """The column, in a third of the rows one of two of its values, and these."""
    low, high = np.sort(column)[[ROWS // 4, 17 * ROWS // 20]]
    u = np.random.default_rng(9).random(ROWS)
    return np.select([u < 0.15, u < 0.35], [low, high], column), [low, high]


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_spikes_become_rows_like_the_rest(name):
    """As many as are too many; what is left is as frequent as its neighbours."""
    column = COLUMNS[name](np.random.default_rng(0))
    X, values = with_spikes(column)
    dither = Dither.of(X[:, None])
    assert dither.spikes.columns.tolist() == [0, 0]
    assert dither.spikes.values.tolist() == values
    assert not dither.piles.values.size
    out = X[:, None].copy()
    dither.spikes.apply(X[:, None], KEY, 0, out)
    moved = out[:, 0] != X
    assert np.isin(X[moved], values).all()
    assert scipy.stats.ks_2samp(out[moved, 0], column).pvalue > 0.01
    noisy = dither.apply(X[:, None], KEY, 0)[:, 0]
    assert scipy.stats.ks_2samp(noisy, column + noisy - out[:, 0]).pvalue > 0.01
    assert ((noisy - X) ** 2).mean() == pytest.approx(dither.squares[0], rel=0.1)


@pytest.mark.parametrize("unit", [1e-250, 1e-160, 1e100])
def test_they_are_seen_in_any_unit(unit):
    for column in (
        with_spikes(COLUMNS["continuous"](np.random.default_rng(0)))[0],
        CUT["sensor"](np.random.default_rng(0)),
    ):
        in_units, spiky = (spikes.find(*np.unique(x, return_counts=True)) for x in (unit * column, column))
        np.testing.assert_allclose(in_units.values, unit * spiky.values, rtol=1e-12)
        np.testing.assert_allclose(in_units.quantiles, unit * spiky.quantiles, rtol=1e-9)


@pytest.mark.parametrize("name", [*COLUMNS, "scale", "sensor", "both"])
def test_spikes_are_those_of_the_twin(name):
    rng = np.random.default_rng(6)
    column = CUT[name](rng) if name in CUT else with_spikes(COLUMNS.get(name, CUT["sensor"])(rng))[0]
    found, expected = spikes.find(*np.unique(column, return_counts=True)), naive.spikes(column)
    assert found.values.tolist() == sorted(expected)
    for value, moved, quantiles in zip(found.values, found.moved, found.quantiles, strict=True):
        assert moved == pytest.approx(expected[value][0])
        np.testing.assert_allclose(quantiles, expected[value][1], rtol=1e-9)


def test_which_rows_are_moved_and_to_where_is_as_by_the_twin():
    X, values = with_spikes(COLUMNS["continuous"](np.random.default_rng(1)))
    X = np.column_stack([X, X[::-1]])
    own, rows = Dither.of(X).spikes, X[70:270]
    out = rows.copy()
    own.apply(rows, KEY, 70, out)
    for i, f in np.ndindex(rows.shape):
        expected = rows[i, f]
        if expected in values:
            k = np.flatnonzero((own.columns == f) & (own.values == expected))[0]
            u = naive.uniform(int(~KEY), (70 + i) * 2 + f) / own.moved[k]
            if u < 1.0:
                expected = np.interp(u * (spikes.POINTS - 1), np.arange(spikes.POINTS), own.quantiles[k])
        assert out[i, f] == pytest.approx(expected)


def some(rng: np.random.Generator, part: float, of: object, others: object) -> np.ndarray:
    """(rows,) of one kind in a part of the rows, of another in the others."""
    return np.where(rng.random(ROWS) < part, of, others)


NONE = {
    "at one end": lambda rng: np.maximum(rng.normal(50, 12, ROWS), 40),
    "in a gap": lambda rng: some(rng, 0.3, 50.0, rng.choice([20, 80], ROWS) + rng.normal(size=ROWS)),
    "hardly a rest": lambda rng: some(rng, 0.8, 50.0, rng.normal(50, 12, ROWS)),
    "not much more": lambda rng: some(rng, 0.05, 15.0, rng.integers(0, 31, ROWS)),
    "narrow mode": lambda rng: some(rng, 0.4, rng.choice([15.0, 16.0], ROWS), rng.integers(0, 31, ROWS)),
    "ratings": lambda rng: rng.choice(5, ROWS, p=[0.1, 0.1, 0.6, 0.1, 0.1]).astype(float),
    "codes": lambda rng: rng.choice(20, ROWS, p=rng.dirichlet(np.full(20, 0.3))).astype(float),
    "round": lambda rng: some(
        rng, 0.4, 10 * np.rint(rng.normal(5, 2, ROWS)), np.rint(rng.normal(50, 20, ROWS))
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_spike(name):
    values, counts = np.unique(NONE[name](np.random.default_rng(4)), return_counts=True)
    assert spikes.find(values, counts) is None


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("name", COLUMNS)
def test_defaults_and_filled_in_values_are_no_clusters(name, groups):
    """Two in a column: there were up to 15 clusters, and 9 for three blobs, called clear."""
    rng = np.random.default_rng(2)
    column, _ = with_spikes(COLUMNS[name](rng))
    which = rng.integers(0, groups, ROWS)
    X = np.column_stack([column, 8 * np.eye(3)[which][:, :2] + rng.standard_normal((ROWS, 2))])
    model = fit_rows(X, FitParams(n_init=1)).model
    assert model.n_clusters == groups
    if groups > 1:
        assert adjusted_rand_score(which, labels(model, X)) > 0.98


CUT = {
    "scale": lambda rng: np.clip(np.rint(rng.normal(50, 42, ROWS)), 0, 100),
    "sensor": lambda rng: np.clip(rng.standard_normal(ROWS), -0.8, 1.0),
    "amounts": lambda rng: np.clip(rng.lognormal(0, 0.7, ROWS), 0.5, 2),
}


@pytest.mark.parametrize("name", CUT)
def test_rows_at_two_ends_are_spread_outwards_as_densely_as_inside(name):
    X = CUT[name](np.random.default_rng(3))
    dither = Dither.of(X[:, None])
    low, high = X.min(), X.max()
    assert dither.spikes.values.tolist() == [low, high]
    noisy = dither.apply(X[:, None], KEY, 0)[:, 0]
    for out, end, inside in ((-noisy, -low, -X), (noisy, high, X)):
        beyond = out[out > end]
        near = np.quantile(inside[inside < end], 0.9)
        density = (inside[inside < end] >= near).sum() / (end - near)
        assert len(beyond) / (beyond.max() - end) == pytest.approx(density, rel=0.12)
        assert scipy.stats.kstest((beyond - end) / (beyond.max() - end), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("name", CUT)
def test_columns_cut_at_both_ends_are_no_clusters(name, groups):
    """They were two, called clear."""
    rng = np.random.default_rng(2)
    which = rng.integers(0, groups, ROWS)
    column = CUT[name](rng)
    X = np.column_stack([column, 8 * np.eye(3)[which][:, :2] + rng.standard_normal((ROWS, 2))])
    assert fit_rows(X, FitParams(n_init=1)).model.n_clusters == groups
    assert fit_rows(column[:, None], FitParams(n_init=1)).model.n_clusters == 1


def test_room_half_way_to_neighbours():
    np.testing.assert_array_equal(
        humps.half_way(np.array([0.0, 1, 3, 13]), 4.0), [[0.5, 0.5], [0.5, 1], [1, 2], [2, 2]]
    )
