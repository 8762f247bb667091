"""Values that hold far more rows than their neighbours: which they are, how their splits are judged, and that
a pile and the rest of its column are no more than that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.core import pruning
from imdh_cli.core.counter import Counter
from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.core.piles import Piles, values_of
from imdh_cli.core.sentinels import Sentinels
from imdh_cli.core.tree import CLIP, FrozenTree, Scaling
from imdh_cli.engines.parts import Counts
from imdh_cli.features import Tally
from imdh_cli.model.model import load, save
from imdh_cli.params import FitParams
from imdh_cli.pipeline.prune import reprune
from imdh_cli.report.summary import summarise
from tests import naive
from tests.benchmarks.in_process import fit_rows

ROWS = 20_000
NAN = float("nan")


# --- which values ---------------------------------------------------------------------------------


@given(
    rows=st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 1.0, 2.5, 7.0, NAN]), st.integers(1, 60)), max_size=9)
)
def test_piles_are_the_twins(rows):
    column = np.repeat([value for value, _ in rows], [n for _, n in rows])
    twins = naive.pile_values(column)
    piles = Dither.of(column[:, None]).piles
    assert piles.values.tolist() == twins
    assert piles.columns.tolist() == [0] * len(twins)


def half_zeros(rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(ROWS) < 0.5, 0.0, rng.standard_normal(ROWS))


def cut_tails(rng: np.random.Generator) -> np.ndarray:
    return np.clip(rng.standard_normal(ROWS), -1, 1)


@pytest.mark.parametrize(
    ("column", "piles"),
    [
        (half_zeros, [0.0]),
        (cut_tails, [-1.0, 1.0]),
        (lambda rng: np.minimum(rng.standard_normal(ROWS), 2.0), [2.0]),
        (lambda rng: np.rint(20 * rng.standard_normal(ROWS)), []),
        (lambda rng: rng.poisson(2.0, ROWS).astype(float), []),
        (lambda rng: (rng.random(ROWS) < 0.03).astype(float), []),
    ],
)
def test_piles_are_values_that_stand_out_by_their_count(column, piles):
    counted = np.unique(column(np.random.default_rng(0)), return_counts=True)
    assert values_of(*counted).tolist() == piles


def test_a_split_leans_on_the_column_of_its_largest_component():
    piles = Piles(np.array([0, 2, 2]), np.array([0.0, -1.0, 1.0]))
    V = np.array([[0.8, 0.6, 0.0], [0.0, 0.8, 0.6], [0.3, 0.9, 0.3], [0.0, 1.0, 0.0], [0.6, 0.0, -0.8]])
    columns, leans = piles.leaning(V)
    assert columns.tolist() == [0, 2]
    assert [None if k < 0 else int(columns[k]) for k in leans] == [naive.leans_on(v, [0, 2]) for v in V]
    X = np.array([[0.0, 5.0, 1.0], [0.1, 0.0, -1.0], [NAN, 0.0, 0.5]])
    assert piles.marks(X, columns).tolist() == [3, 2, 0]


# --- how their splits are judged ------------------------------------------------------------------


def test_counted_are_the_rows_on_the_pile_that_a_split_leans_on():
    """With their noise, and whatever the blocks."""
    rng = np.random.default_rng(0)
    X = np.column_stack([half_zeros(rng), rng.integers(0, 3, ROWS)])[:400].astype(float)
    V = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    tree = FrozenTree(V, np.array([0.1, 0.2, 0.7]), np.array([0.5, 0.4, 0.6]))
    scaling, dither = Scaling(np.zeros(2), np.ones(2), np.zeros(2), CLIP), Dither.of(X)
    assert dither.columns.tolist() == [0, 1]
    counter = Counter(tree, scaling, dither=dither, seed=4)
    for part in (X[:150], X[150:]):
        counter.update(part)
    counter.join()
    wide = dither.widened_tree(tree, scaling)
    Z = dither.widened(scaling).apply(dither.apply(X, noise_key(4, epoch=None), 0))
    frozen = naive.Frozen(2, wide.directions, wide.thresholds, wide.thresholds, wide.deviations)
    on = np.column_stack([X[:, 0] == 0.0, np.zeros(len(X), bool)])
    found = counter.statistics().on_piles
    assert found is not None
    np.testing.assert_array_equal(found, naive.recount_on_piles(frozen, Z, on))
    assert (found.sum(axis=1) > 0).tolist() == [True, True, False]


def test_counters_of_parts_add_up():
    X = half_zeros(np.random.default_rng(0))[:, None]
    tree = FrozenTree(np.ones((1, 1)), np.zeros(1), np.ones(1))
    scaling, dither = Scaling(np.zeros(1), np.ones(1), np.zeros(1), CLIP), Dither.of(X)

    def counted(rows: np.ndarray, first: int) -> Counter:
        counter = Counter(tree, scaling, dither=dither, first_row=first)
        counter.update(rows)
        return counter

    one, other, whole = counted(X[:7000], 0), counted(X[7000:], 7000), counted(X, 0)
    one += other
    np.testing.assert_array_equal(one.statistics().on_piles, whole.statistics().on_piles)
    travelled = Counts.unpack(Counts(one.statistics(), Tally(), Sentinels(1).state()).pack())
    np.testing.assert_array_equal(travelled.statistics.on_piles, whole.statistics().on_piles)
    again = Counter(tree, scaling, dither=dither)
    again.restore(one.state())
    np.testing.assert_array_equal(again.statistics().on_piles, whole.statistics().on_piles)


def test_a_valley_between_a_pile_and_the_rest_counts_for_nothing_unless_it_is_empty():
    u = np.random.default_rng(0).standard_normal(ROWS)
    rest = np.bincount(np.clip(np.floor(16 * u) + 90, 0, 127).astype(int), minlength=128)
    pile = np.zeros_like(rest)
    pile[20] = 10_000
    H, on, n = (rest + pile)[None], pile[None], np.array([ROWS + 10_000])
    excess = pruning.excess_mass(H, n)
    assert excess[0] > 5
    judged = [
        pruning.without_piles(excess, np.array([depth]), H, some)[0]
        for depth, some in ((0.5, on), (0.9, on), (0.5, np.zeros_like(on)))
    ]
    assert judged[0] < 1
    assert judged[1:] == [excess[0], excess[0]]


# --- what it is for -------------------------------------------------------------------------------


def inflated(share: float, draw) -> object:
    return lambda rng: np.where(rng.random(ROWS) < share, 0.0, draw(rng))


KINDS = {
    "half zeros": half_zeros,
    "cut tails": cut_tails,
    "cut at the top": lambda rng: np.minimum(rng.standard_normal(ROWS), 1.6),
    "money, mostly none": inflated(0.6, lambda rng: np.exp(3 + rng.standard_normal(ROWS))),
    "three in ten are 0": inflated(0.3, lambda rng: rng.gamma(2, 50, ROWS)),
    "zero-inflated counts": inflated(0.5, lambda rng: rng.poisson(2, ROWS)),
}


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.long), 10])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pile_and_the_rest_are_all_there_is(kind, d):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((ROWS, d))
    X[:, 0] = KINDS[kind](rng)
    assert fit_rows(X, FitParams(n_init=1)).pruning.n_clusters <= 3


def test_a_pile_beyond_a_gap_is_a_cluster(tmp_path):
    """The model holds what that was judged by."""
    rng = np.random.default_rng(0)
    X = np.column_stack([half_zeros(rng), rng.standard_normal(ROWS)])
    X[:, 0] = np.where(X[:, 0] == 0, 0.0, 1000 + 100 * X[:, 0])
    made = fit_rows(X, FitParams(n_init=1))
    assert (made.pruning.n_clusters, made.pruning.clarity) == (2, "close")
    assert "as 0, are told from the rest" in summarise(made.model).choice.sentence
    save(made.model, tmp_path / "m.npz")
    again, chosen = reprune(load(tmp_path / "m.npz"), FitParams().prune)
    np.testing.assert_array_equal(chosen.excess, made.pruning.excess)
    assert "histograms_on_piles" in again.extras


def test_clusters_beside_a_column_with_a_pile_are_found():
    rng = np.random.default_rng(0)
    centres = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    rows = centres[rng.integers(0, 4, ROWS)] + rng.standard_normal((ROWS, 2))
    assert fit_rows(np.column_stack([rows, half_zeros(rng)]), FitParams(n_init=1)).pruning.n_clusters == 4


def test_no_more_rows_share_a_value_than_is_said():
    """Of two sides, drawn, one of which has one value and the other some rows of it; or none is known."""
    rng = np.random.default_rng(0)
    piles = Piles(np.array([1, 1]), np.array([0.0, 3.0]))
    directions = np.array([[0.0, 1.0], [0.9, np.sqrt(0.19)], [0.6, 0.8]])
    for away, spread, part in [(3, 0.5, 0.0), (3, 0.5, 0.4), (1, 2, 0.1), (0.1, 1, 0.5)]:
        counts, means, squares = np.zeros(7, dtype=np.int64), np.zeros((7, 2)), np.zeros((7, 2))
        other = np.where(rng.random(1000) < part, 0.0, rng.normal(away, spread, 1000))
        for i, x in ((1, np.zeros(500)), (2, other), (5, other), (6, other)):
            counts[i], means[i, 1], squares[i, 1] = len(x), x.mean(), len(x) * x.var()
        shared = piles.shared(directions, counts, means, squares)
        assert shared[0, 0] == 0.0
        assert shared[0, 1] >= np.mean(other == 0.0)
        assert shared[0, 1] == pytest.approx(1 / (1 + other.mean() ** 2 / other.var()))
        assert shared[1].tolist() == [1.0, 1.0]
        assert shared[2] == pytest.approx([1.0, 1.0])
    assert (Piles.none().shared(directions, counts, means, squares) == 1.0).all()


@pytest.mark.parametrize("seed", range(2))
def test_zeros_told_from_a_rest_that_has_another_pile_are_not_clear(seed):
    rng = np.random.default_rng(seed)
    hours = np.where(rng.random(ROWS) < 0.5, 40, np.clip(np.rint(rng.normal(36, 9, ROWS)), 10, 90))
    others = rng.standard_normal((ROWS, 3))
    made = fit_rows(
        np.column_stack([np.where(rng.random(ROWS) < 0.3, 0, hours), others]), FitParams(n_init=1)
    )
    assert (made.pruning.n_clusters, made.pruning.clarity) == (2, "close")
    assert "as 0, are told from the rest" in summarise(made.model).choice.sentence
    assert reprune(made.model, FitParams().prune)[1].clarity == "close"


def test_clusters_beside_a_column_that_is_0_more_often_in_some_are_clear():
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, ROWS)
    zeros = np.where(rng.random(ROWS) < np.array([0.95, 0.5, 0.7])[group], 0, rng.gamma(2, 20, ROWS))
    X = np.column_stack([9.0 * (group[:, None] == np.arange(3)) + rng.standard_normal((ROWS, 3)), zeros])
    made = fit_rows(X, FitParams(n_init=1))
    assert (made.pruning.n_clusters, made.pruning.clarity) == (3, "clear")
