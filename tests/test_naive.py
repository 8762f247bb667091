"""The slow twin itself, held against finite differences, NumPy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import naive

# --- the gradient ---------------------------------------------------------------------------------


def objective(v, b, rows, h, s, rule):
    """Smoothed density of centred rows on the hyperplane (v, b), and the penalty."""
    density = np.mean([naive.phi((b - float(v @ c)) / h) / h for c in rows])
    return density + rule.C * max(abs(b) - rule.alpha * s, 0.0) ** 2


def slope(f, x, step=1e-6):
    return (f(x + step) - f(x - step)) / (2 * step)


@pytest.fixture
def place():
    """A hyperplane, some centred rows and a bandwidth."""
    rng = np.random.default_rng(5)
    v = rng.standard_normal(4)
    return v / np.linalg.norm(v), rng.standard_normal((30, 4)), 0.7


@pytest.mark.parametrize("b", [-1.4, -0.2, 0.0, 0.3, 1.1])
def test_step_of_the_offset_is_the_slope_of_density_and_penalty(place, b):
    v, rows, h = place
    rule = naive.Rule()
    step = np.mean([-naive.pull(b, float(v @ c), h) for c in rows])
    step += naive.penalty_slope(b, 1.2, rule)
    assert step == pytest.approx(slope(lambda x: objective(v, x, rows, h, 1.2, rule), b), rel=1e-6)


@pytest.mark.parametrize("b", [-1.4, 0.0, 0.3])
def test_step_of_the_direction_is_the_gradient_of_the_density(place, b):
    v, rows, h = place
    step = np.mean([naive.pull(b, float(v @ c), h) * c for c in rows], axis=0)
    for j in range(4):
        e = np.eye(4)[j]
        numeric = slope(lambda x, e=e: objective(v + x * e, b, rows, h, 9.0, naive.Rule()), 0.0)
        assert step[j] == pytest.approx(numeric, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("step", ["paper", "scaled"])
def test_one_row_moves_the_split_by_the_rule(step):
    rng = np.random.default_rng(6)
    rule = naive.Rule(step=step, clamp=0.0, rate=0.1)
    v = rng.standard_normal(3)
    v /= np.linalg.norm(v)
    node = naive.Split(v=v, m=np.zeros(3), b=0.4, t=9, rho2=1.1, s2=0.8)
    z = rng.standard_normal(3)
    naive.learn_row(node, z, rule)

    c = z - z / 10  # the mean was 0 after nine rows
    p = v @ c
    rho2 = 1.1 + (c @ c / 3 - 1.1) / 10
    s = math.sqrt(0.8 + (p * p - 0.8) / 11)
    h = s * 11**-0.2
    down_b = slope(lambda x: objective(v, x, [c], h, s, naive.Rule(C=0)), 0.4)
    down_v = [
        slope(lambda x, e=e: objective(v + x * e, 0.4, [c], h, s, naive.Rule(C=0)), 0.0) for e in np.eye(3)
    ]
    unit_b, unit_v = (1, 1) if step == "paper" else (s**3, math.sqrt(rho2))
    pen = 20 * max(0.4 - 0.5 * s, 0)
    w = v - 0.1 * math.sqrt(3) * unit_v * np.array(down_v) / 11
    assert node.b == pytest.approx(0.4 - 0.1 * (pen + unit_b * down_b) / 11, rel=1e-7)
    np.testing.assert_allclose(node.v, w / np.linalg.norm(w), rtol=1e-7)


def test_constant_rows_leave_a_split_as_it_was():
    node = naive.Split(v=np.array([0.6, 0.8]), m=np.zeros(2))
    for _ in range(5):
        assert not naive.learn_row(node, np.array([3.0, -1.0]), naive.Rule())
    assert (node.b, node.s2, node.rho2) == (0.0, 0.0, 0.0)
    assert node.current.sum() == 0


def test_clipped_rows_move_the_split_but_are_in_no_histogram():
    rng = np.random.default_rng(0)
    node = naive.Split(v=np.array([0.6, 0.8]), m=np.zeros(2))
    for z in rng.standard_normal((5, 2)):
        naive.learn_row(node, z, naive.Rule())
    before = node.current.sum(), node.t
    naive.learn_row(node, np.array([0.1, -10.0]), naive.Rule())
    assert (node.current.sum(), node.t) == (before[0], before[1] + 1)


# --- moments and windows --------------------------------------------------------------------------


def test_moments_row_by_row_are_those_of_numpy():
    Z = np.random.default_rng(1).normal(3, 2, (50, 4))
    moments = naive.Moments.empty(4)
    for z in Z:
        moments.add(z)
    np.testing.assert_allclose(moments.mean, Z.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.ss, Z.var(axis=0) * 50, rtol=1e-12)


@pytest.mark.parametrize("cut", [0, 1, 20, 50])
def test_merged_moments_are_those_of_all_rows(cut):
    Z = np.random.default_rng(2).normal(-1, 3, (50, 2))
    parts = []
    for rows in (Z[:cut], Z[cut:]):
        parts.append(naive.Moments.empty(2))
        for z in rows:
            parts[-1].add(z)
    merged = naive.merge(*parts)
    assert merged.n == 50
    np.testing.assert_allclose(merged.mean, Z.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(merged.ss, Z.var(axis=0) * 50, rtol=1e-12)


@pytest.mark.parametrize(
    ("n", "counted"), [(0, 0), (3, 3), (4, 4), (7, 7), (8, 4), (15, 11), (16, 8), (31, 23)]
)
def test_windows_keep_between_half_and_three_quarters_of_the_rows(n, counted):
    Z = np.random.default_rng(3).standard_normal((n, 2))
    tree = naive.Tree(2, naive.start_directions(2, 2), window_rows=4)
    tree.pass_over(Z)
    summary = naive.windowed(tree)
    assert summary.counts[0] == counted
    rows = Z[n - counted :]
    if counted:
        np.testing.assert_allclose(summary.means[0], rows.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(summary.ss[0], rows.var(axis=0) * counted, atol=1e-12)


def test_only_the_last_pass_is_counted_but_every_pass_teaches():
    Z = np.random.default_rng(3).standard_normal((20, 2))
    tree = naive.Tree(2, naive.start_directions(2, 2))
    tree.pass_over(Z)
    tree.pass_over(Z)
    assert naive.windowed(tree).counts[0] == 20
    assert tree.splits[1].t == 40
    assert sum(leaf.t for leaf in tree.leaves.values()) == 40


def test_other_coordinates_leave_the_same_points_on_the_plane():
    rng = np.random.default_rng(4)
    v = rng.standard_normal(3)
    v /= np.linalg.norm(v)
    m, b, s2 = rng.standard_normal(3), 0.3, 2.0
    old = rng.standard_normal(3), rng.uniform(1, 5, 3)
    new = rng.standard_normal(3), rng.uniform(1, 5, 3)
    v1, b1, m1, s21 = naive.re_express(v, b, m, s2, old, new)
    X = rng.standard_normal((20, 3))
    before = (((X - old[0]) / old[1] - m) @ v - b) / math.sqrt(s2)
    after = (((X - new[0]) / new[1] - m1) @ v1 - b1) / math.sqrt(s21)
    np.testing.assert_allclose(after, before, rtol=1e-10)
    assert np.linalg.norm(v1) == pytest.approx(1)


# --- valleys --------------------------------------------------------------------------------------


def histogram(**bins):
    h = np.zeros(128, np.int64)
    for name, count in bins.items():
        h[int(name[1:])] = count
    return h


def test_two_pairs_of_spikes_have_the_valley_of_four_gaussians():
    """Each 4/16 from its side's mean, which is half a Gaussian's sd of sqrt(1 - 2 / pi)."""
    h = histogram(b36=250, b44=250, b83=250, b91=250)
    w = 1.06 * 1000**-0.2 * (4 / 16) / math.sqrt(1 - 2 / math.pi)
    f0 = 2 * sum(math.exp(-0.5 * (b / 16 / w) ** 2) for b in (19.5, 27.5))
    top = sum(math.exp(-0.5 * (b / 16 / w) ** 2) for b in (0, 8, 39, 47))
    assert naive.valley_depth(h, 1000) == pytest.approx(1 - f0 / top, rel=1e-12)


@pytest.mark.parametrize("h", [histogram(b63=50, b64=50), histogram(b3=100), histogram()])
def test_one_mode_is_no_valley(h):
    assert naive.valley_depth(h, 100) == 0.0
    assert naive.excess_mass(h) == pytest.approx(0, abs=1e-9)


def test_fewer_than_four_rows_are_no_valley():
    h = histogram(b40=2, b87=1)
    assert naive.valley_depth(h, 3) == 0.0


def test_excess_mass_of_two_blocks_far_from_the_cut():
    """Rows above lam: all of a block, less what the empty bins up to the cut would swallow."""
    h = np.zeros(128, np.int64)
    h[20:30] = 10  # 34 empty bins to the cut
    h[90:110] = 10  # 26
    by_hand = 0.0
    for lam in (10 * 0.8**level for level in range(1, 33)):
        HL, HR = 10 * (10 - lam), 20 * (10 - lam)
        joined = max(HL - 34 * lam, 0) + max(HR - 26 * lam, 0)
        by_hand = max(by_hand, min(HL, HR, HL + HR - joined))
    assert naive.excess_mass(h) == pytest.approx(by_hand, rel=1e-12)
    assert by_hand > 80


def test_excess_mass_of_a_block_behind_a_floor():
    """At lam = 8 the ten bins of 10 stand 20 above, and the floor of 5 parts them from the cut."""
    h = np.zeros(128, np.int64)
    h[44:54] = 10
    h[54:64] = 5
    h[64:84] = 10
    assert naive.excess_mass(h) == pytest.approx(20.0, rel=1e-12)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=12))
def test_best_interval_is_the_best_of_all(values):
    everyone = [sum(values[i:j]) for i in range(len(values)) for j in range(i, len(values) + 1)]
    assert naive.best_interval(np.array(values, float)) == max(everyone)
    firsts = [sum(values[:j]) for j in range(len(values) + 1)]
    assert naive.best_start(np.array(values, float)) == max(firsts)


# --- pruning --------------------------------------------------------------------------------------


def test_splits_go_bottom_up_and_least_gain_first():
    valley = naive.Valleys(
        gain=np.array([1.0, 5.0, 9.0, 4.0, 3.0, 2.0, 8.0]),
        depth=np.zeros(7),
        excess=np.zeros(7),
        significant=np.zeros(7, bool),
        kept=np.zeros(7, bool),
        cost=np.zeros(7),
        divides=np.ones(7, bool),
    )
    assert naive.removal_order(valley) == [6, 5, 4, 2, 7, 3, 1]


def test_kept_splits_go_last_whatever_they_gain():
    valley = naive.Valleys(
        gain=np.array([1.0, 0.1, 9.0]),
        depth=np.array([0.5, 0.5, 0.5]),
        excess=np.zeros(3),
        significant=np.array([False, True, False]),
        kept=np.array([True, True, False]),
        cost=np.zeros(3),
        divides=np.ones(3, bool),
    )
    assert naive.removal_order(valley) == [3, 2, 1]


def test_empty_leaves_take_the_label_next_to_them():
    counts = np.array([9, 4, 5, 4, 0, 0, 5])  # leaves: 4, 0, 0, 5
    order = [2, 3, 1]
    assert naive.label_leaves(0, order, counts, 2).tolist() == [1, 1, 2, 2]
    assert naive.removals_by_number(order, counts, 2) == {2: 0, 1: 3}


def test_leaves_too_small_join_before_clusters_are_counted():
    counts = np.array([9, 4, 5, 2, 2, 1, 4])  # leaves: 2, 2, 1, 4
    order = [2, 3, 1]
    assert naive.removals_by_number(order, counts, 2, min_size=3) == {2: 1, 1: 3}
    assert naive.label_leaves(1, order, counts, 2, min_size=3).tolist() == [1, 1, 2, 2]


def test_weighted_elbow_stands_where_the_curve_bends():
    Q = [100.0, 50.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]
    assert naive.most_frequent(naive.weighted_votes(Q)) == 3


def test_a_flat_curve_casts_no_vote():
    assert naive.weighted_votes([0.0] * 9) == []
    assert naive.most_frequent([]) is None


def test_angle_of_a_straight_curve_is_a_right_angle():
    for x in (0.25, 0.5, 0.75):
        assert naive.angles(x, 1 - x) == pytest.approx(math.pi / 2, rel=1e-8)


def test_planted_clusters_are_counted():
    rng = np.random.default_rng(8)
    X = np.vstack([rng.normal(c, 1, (400, 2)) for c in ([0, 0], [12, 0], [0, 12])])
    Z, _, _ = naive.standardise(rng.permutation(X))
    tree = naive.Tree(4, naive.start_directions(4, 2))
    tree.pass_over(Z)
    tree.pass_over(Z)
    summary = naive.recount(naive.freeze(tree), Z, naive.pivots(tree))
    choice = naive.prune(summary)
    assert (choice.K, choice.clarity) == (3, "clear")
