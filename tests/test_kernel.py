"""The compiled rule against its slow twin, closed forms and the paper's invariants."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.compiled import kernel
from imdh_cli.core.learner import streams
from tests import naive

RTOL = 1e-9


# --- the kernel, driven plainly -------------------------------------------------------------------


@dataclass
class Arrays:
    """The kernel's arrays of one tree, and what it found on one block."""

    depth: int
    directions: np.ndarray
    pivots: np.ndarray
    learned: np.ndarray
    offsets: np.ndarray
    mean_squares: np.ndarray
    variances: np.ndarray
    anchors: np.ndarray
    histograms: np.ndarray
    leaf: np.ndarray | None = None


def new_arrays(depth: int, V: np.ndarray) -> Arrays:
    m, d = V.shape
    n = 2 * m + 1
    return Arrays(
        depth,
        V.copy(),
        np.zeros((n, d)),
        np.zeros(n, np.int64),
        np.zeros(m),
        np.zeros(m),
        np.zeros(m),
        np.zeros(m),
        np.zeros((m, 128), np.int64),
    )


def learn(
    arrays: Arrays,
    Z: np.ndarray,
    rule: naive.Rule,
    *,
    block: int = 10**9,
    levels: int = kernel.LANES,
    many: bool = True,
) -> Arrays:
    """Take Z down the whole tree, `block` rows and `levels` levels at a call; many: streams, where it can."""
    vector = kernel.make_rule(
        Z.shape[1],
        alpha=rule.alpha,
        penalty=rule.C,
        bandwidth=rule.delta,
        rate=rule.rate,
        clamp=rule.clamp,
        scaled=rule.step == "scaled",
    )
    constants = kernel.Rule(vector, kernel.make_powers(rule.q, rule.r))
    lanes = kernel.Lanes.new()
    splits = kernel.Splits(**{name: getattr(arrays, name) for name in kernel.Splits._fields})
    n_leaves, d = len(arrays.offsets) + 1, Z.shape[1]
    uncounted = np.zeros(n_leaves, np.int64), np.zeros((n_leaves, d)), np.zeros((n_leaves, d))
    at_leaves = kernel.Leaves(arrays.pivots, arrays.learned, *uncounted)
    leaves = []
    for start in range(0, len(Z), block):
        rows = np.ascontiguousarray(Z[start : start + block])
        clipped = (np.abs(rows) >= naive.CLIP).any(axis=1) & rule.clip
        node = np.ones(len(rows), np.int64)
        for first in range(0, arrays.depth, levels):
            last = min(first + levels, arrays.depth)
            count = min(kernel.LANES // (last - first), 1 << first) if many else 1
            order, starts = streams(node, first, count)
            kernel.learn(
                kernel.Rows(rows, order, starts, node, clipped), splits, constants, lanes, last - first, True
            )
        kernel.learn_leaves(rows, node, at_leaves, False)
        leaves.append(node)
    arrays.leaf = np.concatenate(leaves) if leaves else np.zeros(0, np.int64)
    return arrays


def assert_same_state(arrays: Arrays, tree: naive.Tree, rtol: float = RTOL) -> None:
    """Every number of every node of a whole run."""
    size = np.abs(arrays.pivots).max(initial=0.0)
    for i, node in tree.splits.items():
        assert_same_split(arrays, i, node, size, rtol)
        np.testing.assert_array_equal(arrays.histograms[i - 1], node.current, err_msg=f"split {i}")
    for i, leaf in tree.leaves.items():
        assert arrays.learned[i - 1] == leaf.t
        assert_near(arrays.pivots[i - 1], leaf.m, rtol * size, f"mean of leaf {i}")


def assert_same_split(arrays: Arrays, i: int, node: naive.Split, size: float, rtol: float) -> None:
    """Means are compared on the scale of the rows, offsets on that of the projections."""
    where = f"of split {i} after {node.t} rows"
    assert arrays.learned[i - 1] == node.t, where
    assert_near(arrays.pivots[i - 1], node.m, rtol * size, f"mean {where}")
    assert_near(arrays.directions[i - 1], node.v, rtol, f"direction {where}")
    assert_near(arrays.mean_squares[i - 1], node.rho2, rtol * node.rho2, f"mean square {where}")
    assert_near(arrays.variances[i - 1], node.s2, rtol * node.s2, f"variance {where}")
    assert_near(arrays.offsets[i - 1], node.b, rtol * math.sqrt(node.s2), f"offset {where}")


def assert_near(ours: np.ndarray, twins: np.ndarray | float, atol: float, what: str) -> None:
    worst = np.abs(ours - twins).max()
    assert worst <= atol, f"{what}: {worst} apart, {atol} allowed"


def copy_split(arrays: Arrays, i: int, node: naive.Split) -> None:
    """Put the kernel's split i where the twin's stands."""
    arrays.directions[i - 1] = node.v
    arrays.pivots[i - 1] = node.m
    arrays.learned[i - 1] = node.t
    arrays.offsets[i - 1] = node.b
    arrays.mean_squares[i - 1] = node.rho2
    arrays.variances[i - 1] = node.s2
    arrays.anchors[i - 1] = node.anchor


def both(depth: int, Z: np.ndarray, rule: naive.Rule, seed: int = 0) -> tuple[Arrays, naive.Tree]:
    V = naive.start_directions(depth, Z.shape[1], seed=seed)
    tree = naive.Tree(depth, V, rule, window_rows=10**9)
    tree.pass_over(Z)
    return learn(new_arrays(depth, V), Z, rule), tree


# --- the kernel and its twin ----------------------------------------------------------------------


def gaussians(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = rng.standard_normal((n, d))
    X[::3] += 3.0
    return X


def constant(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = gaussians(rng, n, d)
    X[:, d // 2 :] = 7.0
    return X


def duplicates(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return gaussians(rng, 10, d)[rng.integers(0, 10, n)]


def two_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return gaussians(rng, 2, d)[rng.integers(0, 2, n)]


def sparse(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return (rng.random((n, d)) < 0.02).astype(float)


def far(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return 1e8 + gaussians(rng, n, d)


def tiny(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return 1e-12 * gaussians(rng, n, d)


def huge(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return 1e12 * gaussians(rng, n, d)


TABLES = [gaussians, constant, duplicates, two_rows, sparse, far, tiny, huge]


DEPTH = 3


@pytest.mark.parametrize("step", ["scaled", "paper"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("n", [0, 1, 2, 5, 100, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("d", [1, 2, 20, 200])
def test_each_row_teaches_the_kernel_what_it_teaches_the_twin(d, n, table, step):
    """Each row from the twin's state: in many features a run doubles every rounding.

    There the twin's own end moves by 0.1 when its start is moved by 1e-15.
    """
    X = table(np.random.default_rng([d, n]), n, d)
    Z = naive.standardise(X)[0] if n else X
    rule = naive.Rule(step=step)
    V = naive.start_directions(DEPTH, d)
    tree, arrays = naive.Tree(DEPTH, V, rule, window_rows=10**9), new_arrays(DEPTH, V)
    for z in Z:
        node, path = 1, []
        while node in tree.splits:
            path.append(node)
            copy_split(arrays, node, tree.splits[node])
            left = naive.learn_row(tree.splits[node], z, rule)
            node = 2 * node + (0 if left else 1)
        learn(arrays, z[np.newaxis], rule)
        assert arrays.leaf[0] == node
        for i in path:
            assert_same_split(arrays, i, tree.splits[i], 1.0, RTOL)
    for i, split in tree.splits.items():
        np.testing.assert_array_equal(arrays.histograms[i - 1], split.current)


@pytest.mark.parametrize("step", ["scaled", "paper"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("d", "n", "depth"), [(2, 1000, 4), (20, 300, 1), (20, 30, 4), (200, 5, 4)])
def test_a_whole_run_ends_where_the_twin_ends(d, n, depth, table, step):
    X = table(np.random.default_rng([d, n]), n, d)
    Z = naive.standardise(X)[0]
    assert_same_state(*both(depth, Z, naive.Rule(step=step)))


@pytest.mark.parametrize(
    "rule",
    [
        naive.Rule(delta=0.5, q=0.3, r=0.8),
        naive.Rule(C=1.0, alpha=0.1, clamp=0.0),
        naive.Rule(alpha=0.1, step="paper", rate=2.50663, C=3.98942, clamp=1.0),
        naive.Rule(rate=0.2, alpha=0.0),
    ],
)
def test_every_constant_of_the_rule_means_what_it_means_to_the_twin(rule):
    Z = naive.standardise(gaussians(np.random.default_rng(9), 100, 3))[0]
    assert_same_state(*both(3, Z, rule))


@pytest.mark.parametrize("table", [tiny, huge])
def test_rows_in_their_own_units_teach_the_same(table):
    Z = table(np.random.default_rng(3), 500, 3)
    assert_same_state(*both(4, Z, naive.Rule(clip=False)))


def test_a_far_offset_costs_only_its_digits():
    """Rows at 1e8 with unit spread and no centring: their own rounding is 1e-8 of the spread."""
    Z = far(np.random.default_rng(3), 500, 3)
    arrays, tree = both(1, Z, naive.Rule(clip=False))
    assert_same_state(arrays, tree, rtol=1e-6)
    v = arrays.directions[0]
    assert math.sqrt(arrays.variances[0]) == pytest.approx((Z @ v).std(), rel=0.2)


@pytest.mark.parametrize("step", ["scaled", "paper"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("d", [1, 2, 20, 200])
def test_blocks_and_groups_of_levels_change_no_bit(d, table, step):
    """Eight rows at once, down one path or in subtrees apart, are what row by row would be."""
    Z = naive.standardise(table(np.random.default_rng(d), 300, d))[0]
    rule = naive.Rule(step=step)
    V = naive.start_directions(9, d)
    at_once = learn(new_arrays(9, V), Z, rule)
    for block, levels, many in [
        (10**9, 1, False),
        (10**9, 1, True),
        (1, 8, True),
        (7, 3, True),
        (128, 4, True),
    ]:
        again = learn(new_arrays(9, V), Z, rule, block=block, levels=levels, many=many)
        for name in vars(again):
            np.testing.assert_array_equal(getattr(again, name), getattr(at_once, name), name)


@pytest.mark.parametrize("step", ["scaled", "paper"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_directions_stay_unit_vectors(d, table, step):
    """In few features a step may all but cancel the direction; what is left is mostly rounding."""
    for seed in range(10):
        Z = naive.standardise(table(np.random.default_rng([seed, d]), 1000, d))[0]
        V = naive.start_directions(6, d, seed=seed)
        arrays = learn(new_arrays(6, V), Z, naive.Rule(step=step))
        np.testing.assert_allclose(np.linalg.norm(arrays.directions, axis=1), 1, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-162, 1e-155, 1e-120, 1e-60, 1e60, 1e100])
def test_no_scale_makes_a_number_that_is_none(scale):
    Z = scale * gaussians(np.random.default_rng(0), 300, 3)
    for step in ("scaled", "paper"):
        arrays = learn(new_arrays(4, naive.start_directions(4, 3)), Z, naive.Rule(step=step, clip=False))
        assert np.isfinite(arrays.directions).all()
        assert np.isfinite(arrays.offsets).all()


# --- the gradient and closed forms ----------------------------------------------------------------


def smoothed_density(v, b, c, h):
    """Density phi((b - v.c) / h) / h of one centred row on the hyperplane."""
    return math.exp(-0.5 * ((b - v @ c) / h) ** 2) / (h * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("b", [-0.9, -0.3, 0.0, 0.2, 0.8])
@pytest.mark.parametrize("d", [2, 7])
@pytest.mark.parametrize("anchor", [0.0, 1.1])
def test_one_step_is_down_the_gradient_of_density_and_penalty(d, b, anchor):
    """From a state of nine rows; slopes by finite differences, paper's units."""
    rng = np.random.default_rng(d)
    rule = naive.Rule(step="paper", clamp=0.0, rate=0.05)
    arrays = new_arrays(1, naive.start_directions(1, d))
    v = arrays.directions[0].copy()
    arrays.learned[0], arrays.offsets[0] = 9, b
    arrays.mean_squares[0], arrays.variances[0], arrays.anchors[0] = 1.0, 0.8, anchor
    z = rng.standard_normal(d)
    c = 0.9 * z  # the mean was 0
    s = math.sqrt(0.8 + ((v @ c) ** 2 - 0.8) / 11)
    h = s * 11**-0.2

    def objective(v, b):
        return smoothed_density(v, b, c, h) + 10 * max(abs(b - anchor) - 0.5 * s, 0) ** 2

    e = 1e-6
    down_b = (objective(v, b + e) - objective(v, b - e)) / (2 * e)
    down_v = np.array([(objective(v + e * x, b) - objective(v - e * x, b)) / (2 * e) for x in np.eye(d)])
    learn(arrays, z[np.newaxis], rule)
    w = v - 0.05 * math.sqrt(d) * down_v / 11
    assert arrays.offsets[0] == pytest.approx(b - 0.05 * down_b / 11, abs=1e-9)
    np.testing.assert_allclose(arrays.directions[0], w / np.linalg.norm(w), atol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 20, 200])
def test_two_point_masses_end_on_two_sides(d):
    rng = np.random.default_rng(d)
    which = rng.integers(0, 2, 400)
    Z = naive.standardise(rng.standard_normal((2, d))[which])[0]
    arrays = learn(new_arrays(1, naive.start_directions(1, d)), Z, naive.Rule())
    late = arrays.leaf[200:]
    assert len(set(late[which[200:] == 0])) == len(set(late[which[200:] == 1])) == 1
    assert late[which[200:] == 0][0] != late[which[200:] == 1][0]
    v, m = arrays.directions[0], arrays.pivots[0]
    low, high = sorted((Z[which == 0][0] @ v, Z[which == 1][0] @ v))
    assert low < arrays.offsets[0] + v @ m < high


@pytest.mark.parametrize("seed", range(3))
def test_the_cut_goes_to_the_plane_between_two_gaussians(seed):
    """Means -2.5 and 2.5 on the first axis, unit spread, d = 5: the plane x_1 = 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20_000, 5))
    X[:, 0] += rng.choice([-2.5, 2.5], len(X))
    arrays = learn(new_arrays(1, naive.start_directions(1, 5, seed=seed)), X, naive.Rule())
    v = arrays.directions[0]
    assert abs(v[0]) > 0.98
    assert abs(arrays.offsets[0] + v @ arrays.pivots[0]) < 0.3


def test_the_density_at_the_cut_is_the_least_of_the_mixture():
    """Closed form of the projected density: half a Gaussian on each side of the plane x_1 = 0."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((20_000, 3))
    X[:, 0] += rng.choice([-2.5, 2.5], len(X))
    arrays = learn(new_arrays(1, naive.start_directions(1, 3)), X, naive.Rule())
    v, cut = arrays.directions[0], arrays.offsets[0] + arrays.directions[0] @ arrays.pivots[0]
    at_cut = np.mean([naive.phi(cut - side * 2.5 * v[0]) for side in (-1, 1)])
    least, highest = naive.phi(2.5), 0.5 * naive.phi(0)
    assert least <= at_cut < least + 0.1 * (highest - least)


# --- counting -------------------------------------------------------------------------------------


@given(
    n=st.integers(0, 60),
    d=st.integers(1, 4),
    depth=st.integers(1, 4),
    levels=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_rows_are_neither_lost_nor_doubled_on_the_way_down(n, d, depth, levels, seed):
    """levels: how many different values a column has, 0 for as many as rows."""
    rng = np.random.default_rng(seed)
    Z = rng.integers(0, levels, (n, d)).astype(float) if levels else rng.standard_normal((n, d))
    arrays = learn(new_arrays(depth, naive.start_directions(depth, d, seed=seed)), Z, naive.Rule())
    m = 2**depth - 1
    assert arrays.learned[0] == n
    for i in range(1, m + 1):
        assert arrays.learned[i - 1] == arrays.learned[2 * i - 1] + arrays.learned[2 * i]
        assert arrays.histograms[i - 1].sum() <= arrays.learned[i - 1]
    reached = np.bincount(arrays.leaf, minlength=2 * m + 2)[m + 1 :]
    np.testing.assert_array_equal(reached, arrays.learned[m:])


@pytest.mark.parametrize("learning", [False, True])
def test_leaf_moments_are_those_of_numpy(learning):
    rng = np.random.default_rng(2)
    Z = rng.normal(2, 3, (200, 4))
    node = rng.integers(8, 15, 200)  # leaf 15 stays empty
    counts, means, ss = np.zeros(8, np.int64), np.zeros((8, 4)), np.zeros((8, 4))
    learned, pivots = np.zeros(15, np.int64), np.zeros((15, 4))
    for rows in (slice(0, 90), slice(90, 200)):
        if learning:
            leaves = kernel.Leaves(pivots, learned, counts, means, ss)
            kernel.learn_leaves(Z[rows], node[rows], leaves, True)
        else:
            kernel.count_leaves(Z[rows], node[rows], 8, counts, means, ss)
    for leaf in range(8, 15):
        here = Z[node == leaf]
        assert counts[leaf - 8] == len(here)
        np.testing.assert_allclose(means[leaf - 8], here.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(ss[leaf - 8], here.var(axis=0) * len(here), rtol=1e-12)
    assert (counts[7], means[7].any(), ss[7].any()) == (0, False, False)
    if learning:
        np.testing.assert_array_equal(learned[7:], counts)
        np.testing.assert_allclose(pivots[7:], means, rtol=1e-12)


@pytest.fixture(scope="module")
def frozen():
    """A frozen tree of three levels and its rows, some of them clipped."""
    rng = np.random.default_rng(7)
    X = gaussians(rng, 400, 3)
    X[::50] *= 1e3
    Z = naive.standardise(X)[0]
    tree = naive.Tree(3, naive.start_directions(3, 3))
    tree.pass_over(Z)
    return naive.freeze(tree), Z, tree


def test_recount_is_that_of_the_twin(frozen):
    tree, Z, learned = frozen
    node, histograms = np.zeros(len(Z), np.int64), np.zeros((7, 128), np.int64)
    clipped = (np.abs(Z) == 10).any(axis=1)
    assert clipped.any()
    on = np.random.default_rng(1).random((len(Z), 3)) < 0.3
    columns = [naive.leans_on(v, [0, 2]) for v in tree.v]  # those with piles: bits 0 and 1 of a row's mark
    leans = np.array([{0: 0, 2: 1, None: -1}[column] for column in columns])
    assert {*leans.tolist()} == {-1, 0, 1}
    marks, on_piles = on[:, 0] + 2 * on[:, 2], np.zeros_like(histograms)
    kernel.recount(Z, clipped, marks, tree.v, tree.threshold, tree.s, leans, node, histograms, on_piles)
    by_hand = naive.recount(tree, Z, naive.pivots(learned))
    assert node.tolist() == [naive.path_of(tree, z)[-1] for z in Z]
    np.testing.assert_array_equal(histograms, by_hand.histograms)
    on[:, 1] = False
    np.testing.assert_array_equal(on_piles, naive.recount_on_piles(tree, Z, on))


def test_rows_stop_where_they_should_and_know_their_margin(frozen):
    tree, Z, _ = frozen
    stop = np.zeros(15, bool)
    stop[[1, 5, 6]] = True  # nodes 2, 6 and 7
    node, margin = np.zeros(len(Z), np.int64), np.zeros(len(Z))
    kernel.descend(Z, stop, tree.v, tree.threshold, tree.s, node, margin)
    for row, z in enumerate(Z):
        path = naive.path_of(tree, z)[: 2 if naive.path_of(tree, z)[1] == 2 else 3]
        assert node[row] == path[-1]
        gaps = [abs(tree.v[i - 1] @ z - tree.threshold[i - 1]) / tree.s[i - 1] for i in path[:-1]]
        assert margin[row] == pytest.approx(min(gaps), rel=1e-9)


def test_a_row_that_meets_no_cut_is_infinitely_inside(frozen):
    tree, Z, _ = frozen
    node, margin = np.zeros(len(Z), np.int64), np.zeros(len(Z))
    kernel.descend(Z, np.ones(15, bool), tree.v, tree.threshold, tree.s, node, margin)
    assert set(node) == {1}
    assert np.isinf(margin).all()


def test_a_row_goes_down_alone_as_it_does_among_others(frozen):
    tree, Z, _ = frozen
    stop = np.zeros(15, bool)
    stop[[1, 5, *range(7, 15)]] = True
    node, margin = np.zeros(len(Z), np.int64), np.zeros(len(Z))
    kernel.descend(Z, stop, tree.v, tree.threshold, tree.s, node, margin)
    for row in range(37):
        one, near = np.zeros(1, np.int64), np.zeros(1)
        kernel.descend(Z[row : row + 1], stop, tree.v, tree.threshold, tree.s, one, near)
        assert (one[0], near[0]) == (node[row], margin[row])


# --- standardisation and small tools --------------------------------------------------------------


def test_standardisation_has_the_bits_of_numpys():
    X = np.random.default_rng(1).normal(5, 3, (300, 4)) * [1, 1e9, 1e-9, 1]
    X[::40] *= 100
    Z, center, scale = naive.standardise(X)
    out, clipped = np.empty_like(X), np.zeros(len(X), bool)
    kernel.standardise(X, center, scale, np.zeros(4), 10.0, out, clipped)
    np.testing.assert_array_equal(out, Z)
    np.testing.assert_array_equal(clipped, (np.abs(Z) == 10).any(axis=1))
    assert 0 < clipped.sum() < len(X)


def test_missing_cells_get_the_fill_of_their_column():
    X = np.array([[1.0, np.nan], [np.nan, 4.0]])
    out, clipped = np.empty_like(X), np.zeros(2, bool)
    fill = np.array([0.25, -0.5])
    kernel.standardise(X, np.ones(2), np.full(2, 2.0), fill, 10.0, out, clipped)
    np.testing.assert_array_equal(out, [[0.0, -0.5], [0.25, 1.5]])


def test_without_a_limit_no_row_is_clipped():
    X = np.array([[10.0, 1e300]])
    out, clipped = np.empty_like(X), np.zeros(1, bool)
    kernel.standardise(X, np.zeros(2), np.ones(2), np.zeros(2), np.inf, out, clipped)
    np.testing.assert_array_equal(out, X)
    assert not clipped[0]


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 100])
@pytest.mark.parametrize("d", [1, 2, 20])
def test_columns_that_lie_apart_become_rows(rows, d):
    rng = np.random.default_rng(rows)
    cells = rng.normal(size=d * (rows + 5))
    starts = rng.permutation(d) * (rows + 5) + 3
    odd = rng.choice(rows, min(rows, 3), replace=False)
    cells[starts[rng.integers(d)] + odd] = [np.nan, -np.inf, 2e100][: len(odd)]
    X, broken = np.empty((rows, d)), np.zeros(rows, bool)
    kernel.turn(cells, starts, 1e100, X, broken)
    np.testing.assert_array_equal(X, np.stack([cells[k : k + rows] for k in starts], axis=1))
    assert np.flatnonzero(broken).tolist() == sorted(odd)


def test_column_moments_skip_missing_cells():
    X = np.random.default_rng(1).normal(5, 3, (50, 2))
    X[::7, 1] = np.nan
    shift = np.array([5.0, 4.0])
    count, total, square = np.zeros(2, np.int64), np.zeros(2), np.zeros(2)
    far, bounds = (np.zeros(2, np.int64), np.zeros(2), np.zeros(2)), (np.full(2, -99.0), np.full(2, 99.0))
    for rows in (X[:20], X[20:]):  # added to what is there
        kernel.column_sums_apart(rows, shift, *bounds, count, total, square, *far)
    np.testing.assert_array_equal(count, (~np.isnan(X)).sum(axis=0))
    np.testing.assert_allclose(total, np.nansum(X - shift, axis=0), rtol=1e-12)
    np.testing.assert_allclose(square, np.nansum((X - shift) ** 2, axis=0), rtol=1e-12)


def test_rows_are_swapped_one_after_the_other():
    buffer, rows = np.zeros((2, 1)), np.array([[1.0], [2.0], [3.0]])
    kernel.swap_rows(buffer, np.array([0, 0, 1]), rows)
    assert buffer.ravel().tolist() == [2.0, 3.0]
    assert rows.ravel().tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("exponent", [0.0, 0.2, 0.5, 1.0, 3.0])
def test_powers_from_tables_are_powers(exponent):
    powers = kernel.make_powers(exponent, exponent)
    for t in [1, 2, 3, 7, 1000, 1001, 123_456_789, 2**40 + 12_345]:
        assert kernel._power(float(t), powers[0]) == pytest.approx(t**-exponent, rel=1e-13)


@pytest.mark.parametrize(("n", "values"), [(0, 1), (1, 1), (300, 10), (16_384, 40), (16_384, 10**6)])
def test_cells_that_come_again_are_counted_and_hardly_any_others(n, values):
    rng = np.random.default_rng(n + values)
    column = rng.standard_normal(values)[rng.integers(0, values, n)]
    seen, met = np.empty(kernel.SEEN, dtype=np.int64), np.empty(1, dtype=np.int64)
    kernel.count_met(column, seen, met)
    again = n - len(np.unique(column))
    by_chance = (n - again) ** 2 / 2 / 2**kernel.SEEN_BITS
    assert again <= met[0] <= again + by_chance + 5 * math.sqrt(by_chance + 1)


def test_the_two_zeros_are_one_value():
    seen, met = np.empty(kernel.SEEN, dtype=np.int64), np.empty(1, dtype=np.int64)
    kernel.count_met(np.array([0.0, -0.0, 1.0]), seen, met)
    assert met[0] == 1
