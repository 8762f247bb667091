"""Columns whose values come again: the room around each value, the noise, and that gaps are no valleys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core import pruning
from imdh_cli.core.counter import Counter
from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.core.tree import CLIP, FrozenTree, Scaling
from imdh_cli.params import FitParams
from imdh_cli.pipeline.assign import Labeller
from tests import naive
from tests.benchmarks.in_process import fit_rows

KEY = noise_key(3, epoch=0)
ROWS = 20_000


# --- the room around a value ----------------------------------------------------------------------


def known_rooms(values: np.ndarray, dither: Dither, column: int = 0) -> np.ndarray:
    """(u, 2), what the dither holds for each value."""
    k = dither.columns.tolist().index(column)
    bins = np.clip(np.floor((values - dither.origins[k]) * dither.per_bin[k]), 0, 127).astype(int)
    return dither.rooms[k, bins]


@given(
    values=st.lists(
        st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, -99999.0, float("nan")]), min_size=2, max_size=60
    )
)
def test_the_room_of_a_value_reaches_half_way_to_its_neighbours(values):
    column = np.array(values)
    twins = naive.rooms(column)
    dither = Dither.of(column[:, None])
    assert dither.any == (twins is not None)
    if twins is not None and np.nanmax(column) - np.nanmin(column) < 9:  # else two values share a bin
        np.testing.assert_allclose(known_rooms(np.array(list(twins)), dither), list(twins.values()))


def test_values_in_one_bin_have_the_mean_of_their_rooms():
    """Of whole numbers that is the room of each of them."""
    rng = np.random.default_rng(0)
    whole = Dither.of(rng.integers(0, 1000, (ROWS, 1)).astype(float))
    np.testing.assert_allclose(whole.rooms, 0.5, rtol=0.02)
    logs = np.log1p(rng.poisson(20, ROWS))
    rooms = known_rooms(np.log1p(np.arange(10.0, 30.0)), Dither.of(logs[:, None]))
    half = np.diff(np.log1p(np.arange(9.0, 31.0))) / 2
    np.testing.assert_allclose(rooms, np.stack([half[:-1], half[1:]], axis=1), rtol=1e-9)


def test_columns_that_are_not_dithered():
    """One value, all values different, nothing known."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.full(500, 3.0), rng.standard_normal(500), np.full(500, np.nan)])
    dither = Dither.of(X)
    assert not dither.any
    assert dither.apply(X, KEY, 0) is X
    assert dither.state() == {}


def test_a_far_code_makes_no_room():
    """Ten cells of -99999 among ages: those have little more than half a step."""
    X = np.random.default_rng(0).integers(18, 90, (ROWS, 1)).astype(float)
    X[:10] = -99999
    dither = Dither.of(X)
    assert (known_rooms(np.arange(18.0, 90.0), dither) < 0.8).all()
    assert dither.rooms.max() < 20  # of 72 years


@pytest.mark.parametrize(
    ("name", "column", "piled"),
    [
        ("half zeros", lambda rng: np.where(rng.random(ROWS) < 0.5, 0.0, rng.standard_normal(ROWS)), True),
        ("a cut tail", lambda rng: np.maximum(rng.standard_normal(ROWS), -1), True),
        ("whole numbers", lambda rng: np.rint(20 * rng.standard_normal(ROWS)), False),
        ("0/1", lambda rng: (rng.random(ROWS) < 0.03).astype(float), False),
        (
            "ratings",
            lambda rng: rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], ROWS, p=[0.05, 0.1, 0.6, 0.2, 0.05]),
            False,
        ),
    ],
)
def test_piles_are_values_that_stand_out(name, column, piled):
    assert Dither.of(column(np.random.default_rng(1))[:, None]).piled.tolist() == [piled], name


# --- the noise ------------------------------------------------------------------------------------


def test_noise_is_the_twins():
    """SplitMix64 of the row's place and the column; cells without a number and other columns stay."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 200), rng.standard_normal(200), rng.integers(0, 2, 200)]).astype(
        float
    )
    X[::9, 0] = np.nan
    dither = Dither.of(X)
    assert dither.columns.tolist() == [0, 2]
    got = dither.apply(X, KEY, 70)
    for i, f in np.ndindex(X.shape):
        if f == 1 or np.isnan(X[i, f]):
            np.testing.assert_equal(got[i, f], X[i, f])
        else:
            below, above = known_rooms(X[i, f], dither, f)
            u = naive.uniform(int(KEY), (70 + i) * 3 + f)
            assert got[i, f] == pytest.approx(X[i, f] - below + u * (below + above), abs=1e-12)


@given(cut=st.integers(0, 50))
def test_noise_does_not_depend_on_the_blocks(cut):
    X = np.random.default_rng(0).integers(0, 3, (50, 2)).astype(float)
    dither = Dither.of(X)
    whole = dither.apply(X, KEY, 5)
    parts = [dither.apply(X[:cut], KEY, 5), dither.apply(X[cut:], KEY, 5 + cut)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_noise_is_even_and_its_square_is_known():
    X = np.random.default_rng(0).integers(0, 2, (ROWS, 3)).astype(float)
    dither = Dither.of(X)
    noise = dither.apply(X, KEY, 0) - X
    assert np.abs(noise).max() <= 0.5
    for f in range(3):
        counts, _ = np.histogram(noise[:, f], 20, (-0.5, 0.5))
        assert np.abs(counts - ROWS / 20).max() < 5 * np.sqrt(ROWS / 20)
    np.testing.assert_allclose((noise**2).mean(axis=0), dither.squares, rtol=0.05)
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.03
    assert not np.array_equal(noise, dither.apply(X, noise_key(3, epoch=1), 0) - X)


def test_a_state_holds_all():
    X = np.random.default_rng(0).integers(0, 2, (50, 2)).astype(float)
    dither = Dither.of(X)
    again = Dither.restored(dither.state())
    np.testing.assert_array_equal(again.apply(X, KEY, 0), dither.apply(X, KEY, 0))
    np.testing.assert_array_equal(again.piled, dither.piled)
    assert not Dither.restored({}).any


def test_counted_are_the_rows_as_they_are_and_judged_those_with_noise():
    """A cut at 0.3 through 0/1: all zeros are left of it, of the rows with noise three tenths of all."""
    X = np.random.default_rng(0).integers(0, 2, (ROWS, 1)).astype(float)
    scaling = Scaling(np.zeros(1), np.ones(1), np.zeros(1), CLIP)
    tree = FrozenTree(np.ones((1, 1)), np.array([0.3]), np.array([0.5]))
    counter = Counter(tree, scaling, dither=Dither.of(X))
    counter.update(X)
    counter.join()
    statistics = counter.statistics()
    assert statistics.counts.tolist() == [(X == 0).sum(), (X == 1).sum()]
    assert statistics.means.ravel().tolist() == [0.0, 1.0]
    left = statistics.histograms[0, :64].sum() / ROWS
    assert left == pytest.approx(0.4, abs=0.02)  # from -0.5 to 0.3, of 2


# --- what it is for -------------------------------------------------------------------------------


def whole_numbers(values: int):
    return lambda rng, d: rng.integers(0, values, (ROWS, d))


NULLS = {
    "2 values": whole_numbers(2),
    "5 values": whole_numbers(5),
    "24 values": whole_numbers(24),
    "72 values": whole_numbers(72),
    "500 values": whole_numbers(500),
    "rounded normal": lambda rng, d: np.rint(20 * rng.standard_normal((ROWS, d))),
    "counts": lambda rng, d: rng.poisson(8, (ROWS, d)),
    "logarithms of counts": lambda rng, d: np.log1p(rng.poisson(8, (ROWS, d))),
}


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("kind", NULLS)
def test_whole_numbers_are_one_cluster(kind, d):
    X = NULLS[kind](np.random.default_rng(d), d).astype(float)
    chosen = fit_rows(X, FitParams(n_init=1)).pruning
    assert (chosen.n_clusters, chosen.clarity) == (1, "none")


def assert_found(X: np.ndarray, which: np.ndarray, clusters: int, least: float = 0.99) -> None:
    """So many clusters are chosen, and they are those planted, to an adjusted Rand index above `least`."""
    made = fit_rows(X, FitParams(n_init=1))
    assert made.pruning.n_clusters == clusters
    assert adjusted_rand_score(which, Labeller(made.model, None)(X)["cluster"]) > least


@pytest.mark.parametrize("step", [0.05, 0.5, 1.5])
def test_rounding_that_is_small_against_clusters_changes_nothing(step):
    """Nor does noise of half a step."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 4, ROWS)
    X = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[which] + rng.standard_normal((ROWS, 2))
    rounded = step * np.rint(X / step)
    for rows in (rounded, rounded + rng.uniform(-step / 2, step / 2, X.shape)):
        assert_found(rows, which, 4)


def test_coded_columns_of_noise_do_not_spoil_three_blobs():
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, 6000)
    blobs = np.array([[0, 0], [9, 0], [0, 9]])[which] + rng.standard_normal((6000, 2))
    X = np.column_stack([blobs, rng.integers(0, 2, (6000, 3)), rng.integers(1, 6, (6000, 1))]).astype(float)
    assert_found(X, which, 3)


def test_groups_that_differ_in_many_coded_columns_are_found():
    rng = np.random.default_rng(0)
    which = rng.integers(0, 2, 6000)
    X = (rng.random((6000, 20)) < np.where(which[:, None], 0.9, 0.1)).astype(float)
    assert_found(X, which, 2, 0.95)


def test_what_lies_beyond_a_histogram_is_no_mode():
    """A pile and a tail, even up to 8 sd from the cut: the end bin does not look like a mode."""
    h = np.zeros((1, 128), np.int64)
    h[0, 63], h[0, 64:127], h[0, 127] = 10_000, 100, 100 * 64
    assert pruning.excess_mass(h, np.array([h.sum()]))[0] == pytest.approx(0, abs=1e-9)
    assert pruning.valley_depths(h, np.array([h.sum()]))[0] < 0.05
    h[0, 64:127] = 0  # and one beyond empty room does
    assert pruning.excess_mass(h, np.array([h.sum()]))[0] > 10
