"""The tree's arrays: their start, their freezing, other coordinates, moments merged upwards."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.compiled.memory import aligned, by_node
from imdh_cli.core.statistics import Statistics, merge_moments
from imdh_cli.core.tree import Scaling, Tree, level_of
from tests import naive


def learned(depth: int, Z: np.ndarray, seed: int = 0) -> tuple[naive.Tree, Tree]:
    """A tree taught by the twin, and the package's with the same state."""
    d = Z.shape[1]
    twin = naive.Tree(depth, naive.start_directions(depth, d, seed=seed))
    twin.pass_over(Z)
    tree = Tree.start(depth, d, seed=seed)
    for i, node in twin.splits.items():
        tree.directions[i - 1], tree.pivots[i - 1], tree.learned[i - 1] = node.v, node.m, node.t
        tree.offsets[i - 1], tree.mean_squares[i - 1] = node.b, node.rho2
        tree.variances[i - 1] = node.s2
    tree.anchors[:] = 0.5 * tree.offsets
    for i, leaf in twin.leaves.items():
        tree.pivots[i - 1], tree.learned[i - 1] = leaf.m, leaf.t
    return twin, tree


def scaling(rng: np.random.Generator, d: int) -> Scaling:
    return Scaling(rng.normal(0, 3, d), rng.uniform(0.2, 5, d), np.zeros(d), 10.0)


@pytest.fixture
def blobs():
    rng = np.random.default_rng(0)
    return np.vstack([rng.normal(c, 1, (60, 3)) for c in (-4, 0, 5)])[rng.permutation(180)]


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (4096, 20), (2, 0)])
def test_aligned_arrays_are_zeros_that_begin_with_a_cache_line(shape):
    for _ in range(3):
        array = aligned(*shape)
        assert array.shape == shape
        assert array.flags.carray
        assert array.ctypes.data % 64 == 0 or not array.size
        assert not array.any()
        array += 1.0


@pytest.mark.parametrize("shape", [(511,), (511, 5), (255, 20)])
def test_levels_below_the_third_begin_with_a_cache_line(shape):
    array = by_node(*shape)
    assert array.shape == shape
    assert array.flags.carray
    for node in (8, 16, 32, 128):
        assert array[node - 1 :].ctypes.data % 64 == 0


# --- start and freezing ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("start", ["random", "axis"])
@pytest.mark.parametrize(("depth", "d"), [(1, 1), (3, 2), (4, 20)])
def test_first_directions_are_the_twins(depth, d, start, seed):
    tree = Tree.start(depth, d, start=start, seed=seed)
    V = naive.start_directions(depth, d, start=start, seed=seed)
    np.testing.assert_allclose(tree.directions, V, rtol=1e-14)
    assert tree.depth == depth
    assert len(tree.pivots) == len(tree.learned) == 2 ** (depth + 1) - 1


def test_frozen_hyperplanes_are_the_twins(blobs):
    twin, tree = learned(5, naive.standardise(blobs)[0])
    frozen = naive.freeze(twin)
    thresholds, offsets = tree.frozen()
    np.testing.assert_allclose(thresholds, frozen.threshold, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(offsets, frozen.offset, rtol=1e-12, atol=1e-14)


def test_offset_is_threshold_less_projected_mean(blobs):
    _, tree = learned(5, naive.standardise(blobs)[0])
    thresholds, offsets = tree.frozen()
    at_mean = (tree.directions * tree.pivots[:31]).sum(axis=1)
    np.testing.assert_allclose(thresholds - at_mean, offsets, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_rows_equal_to_the_mean_of_a_flat_split_go_right_whatever_the_rounding(size):
    rng = np.random.default_rng(1)
    z = size * rng.standard_normal(50)
    _, tree = learned(2, np.tile(z, (10, 1)))
    thresholds, _ = tree.frozen()
    for order in (np.arange(50), np.arange(50)[::-1], rng.permutation(50)):
        for i in np.flatnonzero(tree.learned[:3]):
            assert (tree.directions[i, order] * z[order]).sum() >= thresholds[i]


# --- other coordinates ----------------------------------------------------------------------------


def test_new_coordinates_leave_the_same_points_on_each_hyperplane(blobs):
    rng = np.random.default_rng(2)
    old, new = scaling(rng, 3), scaling(rng, 3)
    _, tree = learned(4, (blobs - old.center) / old.scale)
    X = rng.normal(0, 5, (40, 3))

    spread = tree.variances > 1e-12

    def margins(at: Scaling) -> np.ndarray:
        gaps = ((X - at.center) / at.scale) @ tree.directions.T - tree.frozen()[0]
        return gaps[:, spread] / np.sqrt(tree.variances[spread])

    before = margins(old)
    tree.re_express(old, new)
    np.testing.assert_allclose(margins(new), before, rtol=1e-6, atol=1e-6)


def test_new_coordinates_are_those_of_the_twin(blobs):
    rng = np.random.default_rng(3)
    old, new = scaling(rng, 3), scaling(rng, 3)
    twin, tree = learned(3, (blobs - old.center) / old.scale)
    tree.re_express(old, new)
    for i, node in twin.splits.items():
        v, b, m, s2 = naive.re_express(
            node.v, node.b, node.m, node.s2, (old.center, old.scale), (new.center, new.scale)
        )
        np.testing.assert_allclose(tree.directions[i - 1], v, rtol=1e-10)
        assert tree.offsets[i - 1] == pytest.approx(b, rel=1e-10)
        assert tree.anchors[i - 1] == pytest.approx(b / 2, rel=1e-10)
        assert tree.variances[i - 1] == pytest.approx(s2, rel=1e-10)
        if node.t:
            np.testing.assert_allclose(tree.pivots[i - 1], m, rtol=1e-9, atol=1e-12)


def test_mean_squares_follow_a_common_change_of_scale(blobs):
    old = Scaling(np.zeros(3), np.ones(3), np.zeros(3), 10.0)
    new = Scaling(np.ones(3), np.full(3, 4.0), np.zeros(3), 10.0)
    _, tree = learned(3, blobs)
    before = tree.mean_squares.copy()
    tree.re_express(old, new)
    np.testing.assert_allclose(tree.mean_squares, before / 16, rtol=1e-12)


def test_moments_in_new_coordinates_are_those_of_the_rows_there(blobs):
    rng = np.random.default_rng(4)
    old, new = scaling(rng, 3), scaling(rng, 3)
    leaf = rng.integers(0, 4, len(blobs))
    leaf[leaf == 3] = 0  # the last leaf stays empty
    statistics = of_rows((blobs - old.center) / old.scale, leaf, 2)
    statistics.re_express(old, new)
    there = of_rows((blobs - new.center) / new.scale, leaf, 2)
    np.testing.assert_allclose(statistics.means, there.means, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(statistics.sums_of_squares, there.sums_of_squares, rtol=1e-9)


def test_there_and_back_is_where_one_was(blobs):
    rng = np.random.default_rng(5)
    old, new = scaling(rng, 3), scaling(rng, 3)
    _, tree = learned(3, blobs)
    before = {name: value.copy() for name, value in vars(tree).items()}
    tree.re_express(old, new)
    tree.re_express(new, old)
    for name in ("directions", "pivots", "offsets", "variances", "anchors"):
        np.testing.assert_allclose(getattr(tree, name), before[name], rtol=1e-9, atol=1e-12)


def test_standardised_rows_are_the_twins(blobs):
    X = blobs.copy()
    X[0] = 1e4
    Z, center, scale = naive.standardise(X)
    np.testing.assert_array_equal(Scaling(center, scale, np.zeros(3), 10.0).apply(X), Z)


def test_a_missing_cell_becomes_the_fill():
    fill = np.array([0.5, -0.5])
    Z = Scaling(np.ones(2), np.ones(2), fill, 10.0).apply(np.array([[np.nan, 3.0]]))
    np.testing.assert_array_equal(Z, [[0.5, 2.0]])


# --- moments --------------------------------------------------------------------------------------


def of_rows(Z: np.ndarray, leaf: np.ndarray, depth: int) -> Statistics:
    """Leaf moments straight from NumPy; leaf: 0 .. 2^depth - 1 of each row."""
    statistics = Statistics.empty(depth, Z.shape[1])
    for i in range(2**depth):
        here = Z[leaf == i]
        statistics.counts[i] = len(here)
        if len(here):
            statistics.means[i] = here.mean(axis=0)
            statistics.sums_of_squares[i] = here.var(axis=0) * len(here)
    return statistics


@given(
    n=st.integers(0, 40),
    d=st.integers(1, 3),
    depth=st.integers(1, 5),
    offset=st.sampled_from([0.0, 1e3, 1e6]),
    seed=st.integers(0, 999),
)
def test_moments_of_every_node_are_those_of_its_rows(n, d, depth, offset, seed):
    rng = np.random.default_rng(seed)
    Z = offset + rng.standard_normal((n, d))
    leaf = rng.integers(0, 2**depth, n)
    counts, means, squares = of_rows(Z, leaf, depth).of_nodes()
    for node in range(1, 2 ** (depth + 1)):
        here = Z[[(2**depth + int(i)) >> (depth - level_of(node)) == node for i in leaf]]
        assert counts[node - 1] == len(here)
        if len(here):
            np.testing.assert_allclose(means[node - 1], here.mean(axis=0), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(squares[node - 1], here.var(axis=0) * len(here), rtol=1e-6, atol=1e-8)
        else:
            assert not means[node - 1].any()
            assert not squares[node - 1].any()


@given(n=st.integers(0, 40), cut=st.integers(0, 40), d=st.integers(1, 3), seed=st.integers(0, 999))
def test_two_countings_merge_into_one(n, cut, d, seed):
    rng = np.random.default_rng(seed)
    Z, leaf = rng.standard_normal((n, d)), rng.integers(0, 4, n)
    merged = of_rows(Z[:cut], leaf[:cut], 2).merged(of_rows(Z[cut:], leaf[cut:], 2))
    together = of_rows(Z, leaf, 2)
    for name in ("counts", "means", "sums_of_squares", "histograms"):
        np.testing.assert_allclose(getattr(merged, name), getattr(together, name), rtol=1e-10, atol=1e-12)


def test_merging_is_the_twins():
    rng = np.random.default_rng(6)
    Z = rng.normal(3, 2, (30, 2))
    parts = []
    for rows in (Z[:12], Z[12:]):
        parts.append(naive.Moments.empty(2))
        for z in rows:
            parts[-1].add(z)
    together = naive.merge(*parts)
    counts, means, squares = merge_moments(
        *((np.array([part.n]), part.mean[np.newaxis], part.ss[np.newaxis]) for part in parts)
    )
    assert counts[0] == together.n
    np.testing.assert_allclose(means[0], together.mean, rtol=1e-14)
    np.testing.assert_allclose(squares[0], together.ss, rtol=1e-13)


# --- node numbers ---------------------------------------------------------------------------------


@given(st.integers(1, 2**15 - 1))
def test_the_root_is_at_level_0(node):
    assert level_of(node) == int(math.log2(node))


def test_axes_to_start_from_go_round_the_features_that_vary():
    tree = Tree.start(2, 4, start="axis", axes=np.array([1, 3]))
    np.testing.assert_array_equal(tree.directions.argmax(axis=1), [1, 3, 1])
    np.testing.assert_array_equal(tree.directions.sum(axis=1), 1.0)
    every = Tree.start(2, 4, start="axis")
    np.testing.assert_array_equal(every.directions.argmax(axis=1), [0, 1, 2])
