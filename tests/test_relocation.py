"""Cuts moved to where valleys are known to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from imdh_cli.compiled import valleys
from imdh_cli.core import learner as learner_module
from imdh_cli.core import pruning, thread_pipeline
from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.counter import Counter
from imdh_cli.core.learner import Learner
from imdh_cli.core.relocation import ends_too_early, relocate
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import CLIP, Scaling, Tree, splits_below
from imdh_cli.params import PAPER_PRESET, FitParams, LearnParams
from tests import naive

BLOCK = 64


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks and first windows of 64 rows; cuts are moved until 512 rows."""
    monkeypatch.setattr(thread_pipeline, "BLOCK_ROWS", BLOCK)
    monkeypatch.setattr(learner_module, "WINDOW_ROWS", BLOCK)
    monkeypatch.setattr(learner_module, "SETTLED_ROWS", 8 * BLOCK)


def blobs(n: int, d: int, *, gap: float = 9.0, share: float = 0.5, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Two Gaussians, apart in the first of d columns only. X (n, d), and which (n,)."""
    rng = np.random.default_rng([seed, n, d])
    which = rng.random(n) < share
    X = rng.standard_normal((n, d))
    X[:, 0] += gap * which
    return X, which


def learner_for(X: np.ndarray, *, depth: int = 8, seed: int = 0, reseats: str = "yes") -> Learner:
    _, center, scale = naive.standardise(X)
    params = FitParams(learn=LearnParams(depth=depth, reseat=reseats))
    tree = Tree.start(depth, X.shape[1], seed=seed)
    return Learner(
        tree, Scaling(center, scale, np.zeros(X.shape[1]), 10.0), ColumnMoments(X.shape[1]), params, 1
    )


def partial_fit(learner: Learner, X: np.ndarray) -> None:
    block = thread_pipeline.block_rows(X.shape[1])
    for k in range(0, len(X), block):
        learner.partial_fit(X[k : k + block])
    learner.join()


def assert_same_tree(tree: Tree, twin: naive.Tree) -> None:
    for i, node in twin.splits.items():
        assert tree.learned[i - 1] == node.t
        for mine, its in (
            (tree.directions, node.v),
            (tree.pivots, node.m),
            (tree.offsets, node.b),
            (tree.variances, node.s2),
            (tree.mean_squares, node.rho2),
            (tree.anchors, node.anchor),
        ):
            np.testing.assert_allclose(mine[i - 1], its, rtol=1e-8, atol=1e-9)
    for i, leaf in twin.leaves.items():
        assert tree.learned[i - 1] == leaf.t
        np.testing.assert_allclose(tree.pivots[i - 1], leaf.m, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("d", "share"),
    [pytest.param(2, 0.2, marks=pytest.mark.long), (3, 0.4)],
)
def test_moves_are_the_twins(small_blocks, d, share):
    """And so is what is learned afterwards from them."""
    moved = 0
    for seed in range(4):
        X, _ = blobs(400, d, share=share, seed=seed)
        learner = learner_for(X, depth=2, seed=seed, reseats="no")
        twin = naive.Tree(2, naive.start_directions(2, d, seed=seed), window_rows=BLOCK)
        Z = naive.standardise(X)[0]
        for _ in range(2):
            learner.begin_epoch(0, counting=True)
            partial_fit(learner, X)
            twin.pass_over(Z)
            its = len(naive.relocate(twin))
            assert relocate(learner.tree, learner.statistics()) == its
            assert_same_tree(learner.tree, twin)
            moved += its
    assert moved > 0


@given(st.lists(st.integers(0, 60), min_size=128, max_size=128), st.integers(1, 127))
def test_excess_mass_and_depth_at_all_edges_are_those_at_each(histogram, edge):
    """Of the twin, which the compiled search is held against."""
    h = np.array(histogram)
    if not h.any():
        return
    excess, depth = naive.at_all_edges(h, 500)
    assert excess[edge] == pytest.approx(naive.excess_mass(h, edge), abs=1e-9)
    assert depth[edge] == pytest.approx(naive.valley_depth(h, 500, edge), abs=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("place", [0, 16, 64, 127])
def test_far_from_all_rows_there_is_no_valley(place):
    """The density is 0 there to the last bit."""
    h, n = np.zeros((1, 128), np.int64), np.array([1_000_000])
    h[0, place] = n[0]
    assert not pruning.valley_depths(h, n).any()
    worth, at, depth = np.empty(1), np.empty(1, np.int64), np.empty(1)
    for reach in (0, 48, 64):
        valleys.best_places(h, n, 0.0, 0.0, reach, valleys.make_work(), worth, at, depth)
        assert not worth.any()
        assert not depth.any()


def test_an_empty_tail_hides_no_valley():
    """Of many rows the density is nought at 3 sd on one side: the valley aside is found all the same."""
    tree = taught()
    found = counted({1: histogram((-2.4, 0.1, 900_000), (-0.4, 0.1, 300_000))})
    assert relocate(tree, found) == 1
    assert -2.0 < tree.offsets[0] < -0.8


def histogram(*modes: tuple[float, float, int]) -> np.ndarray:
    """(128,): Gaussian modes of (middle, sd, rows), in projected sds from the cut."""
    rng = np.random.default_rng(0)
    at = np.concatenate([rng.normal(middle, sd, rows) for middle, sd, rows in modes])
    return np.bincount(np.clip(np.floor(at * 16) + 64, 0, 127).astype(int), minlength=128)


def counted(histograms: dict[int, np.ndarray], depth: int = 2, d: int = 2) -> Statistics:
    """Statistics whose counts agree with the histograms of the splits, from the leaves up."""
    statistics = Statistics.empty(depth, d)
    for i, h in histograms.items():
        statistics.histograms[i - 1] = h
    statistics.counts[:] = statistics.histograms[0].sum() // 2**depth
    statistics.sums_of_squares[:] = statistics.counts[:, None]
    return statistics


def taught(depth: int = 2, d: int = 2) -> Tree:
    tree = Tree.start(depth, d)
    tree.learned[:] = 1000
    tree.variances[:] = 1.0
    tree.mean_squares[:] = 1.0
    return tree


@pytest.mark.parametrize(
    ("last", "early"),
    [((-1, 0.2, 800, 1, 0.2, 800), True), ((-1, 0.6, 800, 1, 0.6, 800), False), ((0, 1, 900), False)],
)
@pytest.mark.parametrize("split", [2, 3])
def test_a_tree_ends_too_early_where_its_last_level_finds_an_empty_valley(last, early, split):
    found = counted({1: histogram((-1, 0.2, 800), (1, 0.2, 800))})
    assert not ends_too_early(found)
    modes = [last[k : k + 3] for k in range(0, len(last), 3)]
    found.histograms[split - 1] = histogram(*modes)
    counts, means, squares = found.of_nodes()
    summary = naive.Summary(counts, means, squares, means, found.histograms)
    assert ends_too_early(found) == naive.ends_too_early(summary) == early


def test_a_deeper_tree_is_the_twins():
    """Learned from on: what is new starts as in a tree that had been as deep."""
    rng = np.random.default_rng(0)
    Z = naive.standardise(rng.standard_normal((300, 3)) + 4 * rng.integers(0, 3, (300, 1)))[0]
    twin = naive.Tree(1, naive.start_directions(1, 3))
    twin.pass_over(Z)
    twin = naive.deeper(twin, naive.start_directions(3, 3))
    scaling = Scaling(np.zeros(3), np.ones(3), np.zeros(3), CLIP)
    learner = Learner(Tree.start(1, 3), scaling, ColumnMoments(3), FitParams(learn=LearnParams(depth=1)), 1)
    learner.begin_epoch(0, counting=False)
    learner.partial_fit(Z)
    learner.join()
    learner.tree = learner.tree.deeper(2, seed=0)
    twin.pass_over(Z[:40])
    learner.begin_epoch(1, counting=False)
    learner.partial_fit(Z[:40])
    learner.join()
    nodes = {**twin.splits, **twin.leaves}
    np.testing.assert_allclose(learner.tree.pivots, [nodes[i].m for i in range(1, 16)], atol=1e-9)
    np.testing.assert_allclose(learner.tree.directions, [twin.splits[i].v for i in range(1, 8)], atol=1e-9)
    assert learner.tree.learned.tolist() == [nodes[i].t for i in range(1, 16)]


def test_a_cut_goes_aside_to_the_valley_of_its_own_histogram():
    tree = taught()
    before = tree.directions.copy()
    assert relocate(tree, counted({1: histogram((0, 0.3, 9000), (3, 0.3, 3000))})) == 1
    assert 1.0 < tree.offsets[0] < 2.0
    assert tree.anchors[0] == tree.offsets[0]
    np.testing.assert_array_equal(tree.directions, before)
    assert not tree.learned[1:].any()


def test_a_shallow_valley_aside_is_left_alone():
    """The penalty has its reasons: it keeps cuts out of tails."""
    tree = taught()
    assert relocate(tree, counted({1: histogram((0, 0.6, 9000), (2.0, 0.6, 3000))})) == 0
    assert not tree.offsets.any()


def test_a_valley_in_the_far_tail_is_left_alone():
    tree = taught()
    assert relocate(tree, counted({1: histogram((0, 0.3, 9000), (3.9, 0.05, 3000))})) in (0, 1)
    assert abs(tree.offsets[0]) <= 3.0


def test_a_cut_without_a_valley_takes_that_of_the_best_split_below():
    tree = taught()
    tree.pivots[0] = [0.5, -0.5]
    tree.pivots[2] = [1.0, 2.0]
    tree.offsets[2] = 0.25
    below = tree.directions[2].copy()
    threshold = tree.frozen()[0][2]
    two = histogram((-1, 0.2, 3000), (1, 0.2, 3000))
    assert relocate(tree, counted({1: histogram((0, 1, 12000)), 3: two})) == 1
    np.testing.assert_array_equal(tree.directions[0], below)
    assert tree.offsets[0] + below @ tree.pivots[0] == pytest.approx(threshold)
    assert tree.anchors[0] == tree.offsets[0]


def test_a_good_cut_stays():
    tree = taught()
    before = tree.directions.copy()
    two = histogram((-1, 0.2, 6000), (1, 0.2, 6000))
    assert relocate(tree, counted({1: two, 2: histogram((-1, 0.2, 3000), (1, 0.2, 3000))})) == 0
    np.testing.assert_array_equal(tree.directions, before)
    assert (tree.learned == 1000).all()


def test_nothing_counted_moves_nothing():
    assert relocate(taught(), Statistics.empty(2, 2)) == 0


@given(node=st.integers(1, 31), depth=st.integers(1, 6))
def test_splits_below_are_the_descendants(node, depth):
    expected = [j for j in range(node + 1, 2**depth) if naive._is_below(j, node)]
    assert list(splits_below(node, depth)) == expected


# --- what it is for -------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 10])
@pytest.mark.parametrize("seed", range(3))
def test_two_blobs_apart_in_one_of_many_columns_are_two(d, seed):
    X, which = blobs(3000, d, seed=seed)
    learner = learner_for(X, seed=seed)
    for number in range(6):
        learner.begin_epoch(number, counting=True)
        partial_fit(learner, X[np.random.default_rng([seed, number]).permutation(len(X))])
    counter = Counter(learner.tree.freeze(), learner.scaling)
    counter.update(X)
    statistics = counter.statistics()
    counts, means, squares = statistics.of_nodes()
    tree = learner.tree
    found = pruning.prune(counts, means, squares, tree.pivots, statistics.histograms, FitParams().prune)
    assert found.n_clusters == 2
    side = learner.scaling.apply(X) @ tree.directions[0] >= tree.frozen()[0][0]
    assert adjusted_rand_score(which, side) > 0.99


def test_a_cut_far_from_the_mean_is_held_there():
    """A tenth of the rows, whose valley lies beyond the distance that the penalty leaves free."""
    X, which = blobs(20_000, 2, share=0.1)
    learner = learner_for(X)
    for number in range(4):
        learner.begin_epoch(number, counting=True)
        partial_fit(learner, X)
    tree = learner.tree
    assert abs(tree.offsets[0]) > 0.8 * np.sqrt(tree.variances[0])
    side = learner.scaling.apply(X) @ tree.directions[0] >= tree.frozen()[0][0]
    assert adjusted_rand_score(which, side) > 0.99


@pytest.mark.parametrize("since", [0, 39, 40])
def test_few_rows_after_a_move_the_tree_and_the_windows_of_before_leave(small_blocks, monkeypatch, since):
    """Both are the twin's; and after more rows, those of the tree that moved."""
    monkeypatch.setattr(learner_module, "TRIED_ROWS", 40)
    monkeypatch.setattr(learner_module, "WINDOW_ROWS", 4 * BLOCK)
    earlier = 0
    for seed in range(2):
        X, _ = blobs(4 * BLOCK + since, 2, share=0.4, seed=seed)
        learner = learner_for(X, depth=2, seed=seed)
        learner.begin_epoch(0, counting=True)
        partial_fit(learner, X)
        twin = naive.Tree(2, naive.start_directions(2, 2, seed=seed), window_rows=4 * BLOCK)
        leaves = naive.pass_over_and_move(twin, naive.standardise(X)[0], settled=8 * BLOCK, tried=40)
        finished = learner.finished()
        assert_same_tree(finished.tree, leaves)
        assert_same_tree(learner.tree, twin)
        counts, means, squares = finished.statistics().of_nodes()
        summary = naive.windowed(leaves)
        np.testing.assert_array_equal(counts, summary.counts)
        np.testing.assert_array_equal(finished.statistics().histograms, summary.histograms)
        np.testing.assert_allclose(means, summary.means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(squares, summary.ss, rtol=1e-9, atol=1e-9)
        earlier += leaves is not twin
    assert earlier == 0 if since >= 40 else earlier > 0


def test_windows_of_a_tree_that_moved_are_forgotten(small_blocks, monkeypatch):
    """Their counts are of another tree."""
    X, _ = blobs(BLOCK + 10, 2)
    monkeypatch.setattr(learner_module, "relocate", lambda *_: 1)
    learner = learner_for(X, depth=3)
    learner.begin_epoch(0, counting=True)
    partial_fit(learner, X)
    assert learner.statistics().counts.sum() == 10


def test_nothing_moves_in_late_windows_or_later_passes_or_where_it_is_not_wanted(small_blocks, monkeypatch):
    X, _ = blobs(40 * BLOCK, 2)
    asked = []
    monkeypatch.setattr(learner_module, "relocate", lambda *_: asked.append(1) or 0)
    for reseats, number, expected in (("yes", 0, 4), ("yes", 1, 1), ("no", 0, 0), ("no", 1, 0)):
        asked.clear()
        learner = learner_for(X, depth=3, reseats=reseats)
        learner.begin_epoch(number, counting=True)
        partial_fit(learner, X)
        assert len(asked) == expected


def test_the_papers_preset_moves_nothing():
    assert PAPER_PRESET.learn.reseat == "no"
