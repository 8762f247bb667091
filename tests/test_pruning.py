"""Pruning against the slow twin, closed forms, planted partitions and data without clusters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.core import pruning, thread_pipeline
from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.counter import Counter
from imdh_cli.core.learner import Learner
from imdh_cli.core.pruning import valleys
from imdh_cli.core.pruning.valleys import bandwidths
from imdh_cli.core.pruning.weights import Splits
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import Scaling, Tree
from imdh_cli.errors import UsageError
from imdh_cli.params import PAPER_PRESET, FitParams, PruneParams
from tests import naive
from tests.benchmarks.in_process import fit_rows

# --- summaries to prune ---------------------------------------------------------------------------


def random_summary(seed: int, depth: int, rows: int, *, valleys: bool = True) -> naive.Summary:
    """Rows thrown into leaves, some leaves empty; histograms with and without valleys."""
    rng = np.random.default_rng(seed)
    leaves, d = 2**depth, 3
    open_leaves = rng.permutation(leaves)[: rng.integers(1, leaves + 1)]
    share = rng.exponential(size=len(open_leaves)) ** 2
    leaf = rng.choice(open_leaves, rows, p=share / share.sum())
    Z = rng.standard_normal((leaves, d))[leaf] * 2 + rng.standard_normal((rows, d)) * 0.5
    nodes = {}
    for i in range(leaves):
        nodes[leaves + i] = naive.Moments.empty(d)
        for z in Z[leaf == i]:
            nodes[leaves + i].add(z)
    histograms = np.zeros((leaves - 1, 128), np.int64)
    means = rng.standard_normal((2 * leaves - 1, d))
    summary = naive._summary(nodes, means, histograms)
    summary.pivots = summary.means + 0.2 * means
    for j in range(leaves - 1):
        apart = rng.choice([0.0, 0.8, 1.5]) if valleys else 0.0
        u = rng.choice([-apart, apart], summary.counts[j]) + 0.4 * rng.standard_normal(summary.counts[j])
        np.add.at(histograms[j], [naive.bin_of(x) for x in u], 1)
    summary.on_piles = histograms.copy()  # the lesser mode of two, or some rows of either, or none
    summary.on_piles[:, 64:] = 0
    summary.on_piles[::3] = rng.binomial(histograms[::3], 0.3)
    summary.on_piles[2::3] = 0
    summary.copies = rng.integers(0, 3, leaves - 1) / max(rows, 1) if seed % 2 else 0.0
    return summary


def prune(summary: naive.Summary, **params) -> pruning.Pruning:
    return pruning.prune(
        summary.counts,
        summary.means,
        summary.ss,
        summary.pivots,
        summary.histograms,
        PruneParams(**params),
        summary.on_piles,
        summary.copies,
    )


def assert_same_choice(ours: pruning.Pruning, twins: naive.Choice) -> None:
    valley = twins.valley
    np.testing.assert_allclose(ours.depths, valley.depth, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(ours.significant, valley.significant)
    np.testing.assert_array_equal(ours.kept, valley.kept)
    assert ours.merge_order.tolist() == twins.order
    assert ours.largest == twins.largest
    scale = 1e-9 * max(1.0, np.abs(twins.Q).max())
    np.testing.assert_allclose(ours.credit, twins.Q, rtol=1e-9, atol=scale)
    np.testing.assert_allclose(ours.total_ss, twins.total_ss, rtol=1e-9)
    assert np.flatnonzero(ours.votes).tolist() == sorted({k - 1 for k in twins.votes})
    assert ours.votes.sum() == len(twins.votes)
    assert ours.n_clusters == twins.K
    assert (ours.clarity, ours.alternatives) == (twins.clarity, twins.alternatives)
    np.testing.assert_array_equal(ours.cluster_of_leaf, twins.cluster_of_leaf)


PARAMS = [
    {},
    {"clusters": "valleys"},
    {"clusters": 2},
    {"max_clusters": 4},
    {"min_size": 10},
    {"min_size": 60},
    {"elbow": "paper"},
    {"weight": "ss", "elbow": "paper"},
    {"weight": "ss"},
    {"weight": "ss", "elbow": "paper", "min_size": 10},
]


@pytest.mark.parametrize("params", PARAMS, ids=str)
@pytest.mark.parametrize(
    ("depth", "rows"), [(2, 60), (4, 800), pytest.param(5, 2000, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("seed", range(2))
def test_every_choice_is_the_twins(depth, rows, seed, params):
    summary = random_summary(seed, depth, rows)
    if "clusters" in params and (summary.counts[2**depth - 1 :] > 0).sum() == 1:
        params = {}
    assert_same_choice(prune(summary, **params), naive.prune(summary, **params))


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5])
def test_a_handful_of_rows_is_pruned_as_by_the_twin(rows):
    summary = random_summary(0, 3, rows)
    assert_same_choice(prune(summary), naive.prune(summary))


def test_excess_and_gains_are_the_twins():
    summary = random_summary(5, 5, 3000)
    ours, twins = prune(summary), naive.valleys(summary)
    enough = summary.counts[:31] >= 4
    np.testing.assert_allclose(ours.excess[enough], twins.excess[enough], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.gains, twins.gain, rtol=1e-9, atol=1e-9)


@given(
    left=st.lists(st.integers(0, 30), min_size=64, max_size=64),
    right=st.lists(st.integers(0, 30), min_size=64, max_size=64),
)
def test_excess_mass_is_the_twins_on_any_histogram(left, right):
    histogram = np.array(left + right, np.int64)
    n = max(4, int(histogram.sum()))
    ours = pruning.excess_mass(histogram[np.newaxis], np.array([n]))
    assert ours[0] * math.sqrt(n) == pytest.approx(naive.excess_mass(histogram), abs=1e-8)


# --- closed forms ---------------------------------------------------------------------------------


def test_smoothing_one_spike_gives_the_narrowest_gaussian():
    histogram = np.zeros(128, np.int64)
    histogram[80] = 400
    f, at_cut = pruning.smooth(histogram, 400)
    h, centres = 0.75 / 16, (np.arange(128) - 63.5) / 16
    expected = [naive.phi((x - centres[80]) / h) / h for x in centres]
    np.testing.assert_allclose(f, expected, rtol=1e-10)
    assert at_cut == pytest.approx(naive.phi(centres[80] / h) / h, rel=1e-10)


def test_two_pairs_of_spikes_have_the_valley_of_four_gaussians():
    """Each 4/16 from its side's mean, which is half a Gaussian's sd of sqrt(1 - 2 / pi)."""
    histogram = np.zeros((1, 128), np.int64)
    histogram[0, [36, 44, 83, 91]] = 250
    w = 1.06 * 1000**-0.2 * (4 / 16) / math.sqrt(1 - 2 / math.pi)

    def at(*bins):
        return sum(math.exp(-0.5 * (b / 16 / w) ** 2) for b in bins)

    expected = 1 - 2 * at(19.5, 27.5) / at(0, 8, 39, 47)
    assert pruning.valley_depths(histogram, np.array([1000]))[0] == pytest.approx(expected)


@pytest.mark.parametrize("noise", [0.0, 1e-4, 0.02, 0.5])
def test_no_valley_is_told_finer_than_the_noise(noise):
    rng = np.random.default_rng(8)
    histogram = np.bincount(rng.normal(np.where(rng.random(900) < 0.5, 54, 74), 3).astype(int), minlength=128)
    depth = pruning.valley_depths(histogram[None], np.array([900]), np.array([noise]))[0]
    assert depth == pytest.approx(naive.valley_depth(histogram, 900, noise=noise))
    without = pruning.valley_depths(histogram[None], np.array([900]))[0]
    assert (depth < without) == (noise > 1e-3)


@pytest.mark.parametrize("rows", [400, 20_000])
def test_a_gaussian_is_smoothed_by_silvermans_bandwidth(rows):
    edges = np.arange(-64, 65) / 16
    histogram = rows * np.diff(scipy.stats.norm.cdf(edges))
    assert bandwidths(histogram[None], np.array([rows])) == pytest.approx(1.06 * rows**-0.2, rel=2e-3)


@pytest.mark.parametrize("d", [1, 5])
def test_the_gain_of_a_split_is_the_squared_distance_of_its_halves(d):
    """n/4 |a - b|^2 for halves of n/2 rows about a and b."""
    rng = np.random.default_rng(d)
    halves = rng.standard_normal((100, d)), rng.standard_normal((100, d)) + 3
    parts = {}
    for i, rows in enumerate(halves):
        parts[2 + i] = naive.Moments.empty(d)
        for z in rows:
            parts[2 + i].add(z)
    summary = naive._summary(parts, np.zeros((3, d)), np.zeros((1, 128), np.int64))
    apart = halves[0].mean(axis=0) - halves[1].mean(axis=0)
    assert prune(summary).gains[0] == pytest.approx(50 * (apart @ apart), rel=1e-10)


# --- every number of clusters ---------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    depth=st.integers(1, 5),
    rows=st.integers(1, 400),
    min_size=st.integers(0, 30),
)
def test_any_number_of_clusters_is_nested_in_the_next(seed, depth, rows, min_size):
    """Labels are 1..K from left to right, K clusters are K + 1 with two of them joined."""
    summary = random_summary(seed, depth, rows)
    order = prune(summary, min_size=min_size).merge_order
    largest = pruning.largest(order, summary.counts, min_size)
    finer = None
    for k in range(largest, 0, -1):
        nodes, labels = pruning.cut(order, summary.counts, k, min_size)
        assert len(nodes) == k
        assert labels[0] == 1
        assert labels[-1] == k
        assert set(np.diff(labels)) <= {0, 1}
        if finer is not None:
            pairs = set(zip(finer.tolist(), labels.tolist(), strict=True))
            assert len(pairs) == k + 1  # no cluster of the finer partition is divided
        finer = labels


def highest(node: int, used: list[int]) -> int:
    """The highest node of which `node` is the only part in use: the number stays whatever K."""
    while node > 1 and [i for i in used if naive._is_below(i, node // 2)] == [node]:
        node //= 2
        used = [node if naive._is_below(i, node) else i for i in used]
    return node


@pytest.mark.parametrize("min_size", [1, 12, 40])
@pytest.mark.parametrize("seed", range(6))
def test_every_cut_is_the_twins(seed, min_size):
    summary = random_summary(seed, 4, 500)
    twins = naive.prune(summary, min_size=min_size)
    removals = naive.removals_by_number(twins.order, summary.counts, 4, min_size)
    order = np.array(twins.order)
    assert pruning.largest(order, summary.counts, min_size) == twins.largest
    for k in range(1, twins.largest + 1):
        labels = naive.label_leaves(removals[k], twins.order, summary.counts, 4, min_size)
        nodes, ours = pruning.cut(order, summary.counts, k, min_size)
        np.testing.assert_array_equal(ours, labels)
        used = naive.in_use(naive.terminals(twins.order, removals[k], 4), summary.counts, min_size)
        assert nodes.tolist() == [highest(i, used) for i in used]


@pytest.mark.parametrize("min_size", [5, 50])
@pytest.mark.parametrize("seed", range(5))
def test_no_cluster_is_smaller_than_asked(seed, min_size):
    summary = random_summary(seed, 4, 500)
    result = prune(summary, clusters="auto", min_size=min_size)
    largest = prune(summary, clusters=result.largest, min_size=min_size)
    rows = np.bincount(largest.cluster_of_leaf, summary.counts[15:])[1:]
    assert (rows >= min_size).all()


def test_more_clusters_than_leaves_in_use_is_refused_with_the_largest():
    summary = random_summary(3, 3, 100)
    largest = prune(summary).largest
    with pytest.raises(UsageError, match=f"only {largest} leaves in use"):
        prune(summary, clusters=largest + 1)
    assert prune(summary, clusters=largest).n_clusters == largest


def test_max_clusters_is_kept():
    summary = random_summary(1, 5, 3000)
    assert prune(summary).n_clusters > 3
    assert prune(summary, max_clusters=3).n_clusters <= 3
    assert prune(summary, clusters="valleys", max_clusters=3).n_clusters <= 3


def test_the_table_knows_which_split_joins_two_clusters():
    summary = random_summary(2, 4, 500)
    order = prune(summary).merge_order
    removed = pruning.removed_at(order, summary.counts)
    assert removed[0] == 0
    for k in range(2, len(removed) + 1):
        nodes, _ = pruning.cut(order, summary.counts, k)
        fewer, _ = pruning.cut(order, summary.counts, k - 1)
        (joined,) = set(fewer.tolist()) - set(nodes.tolist())
        assert naive._is_below(int(removed[k - 1]), joined)


@given(seed=st.integers(0, 999), depth=st.integers(1, 5))
def test_rows_may_stop_where_all_leaves_below_agree(seed, depth):
    labels = np.sort(np.random.default_rng(seed).integers(1, 4, 2**depth)).astype(np.int32)
    label, stop = pruning.labels_of_nodes(labels)
    for node in range(1, 2 ** (depth + 1)):
        below = depth - int(math.log2(node))
        first = (node << below) - 2**depth
        here = set(labels[first : first + 2**below].tolist())
        assert stop[node - 1] == (len(here) == 1)
        assert label[node - 1] == (here.pop() if len(here) == 1 else 0)


@pytest.mark.parametrize(("few", "far", "stands"), [(100, 14.0, True), (15, 14.0, False), (100, 5.0, False)])
def test_few_rows_count_beyond_an_empty_gap(few, far, stands):
    x = np.random.default_rng(0).standard_normal(20_000 + few)
    x[:few] += far
    tree = Tree.start(1, 1)
    tree.directions[0], tree.variances[0], tree.learned[0] = 1.0, x.var(), len(x)
    tree.offsets[0] = far / 2 + 0.5
    counter = Counter(tree.freeze(), Scaling(np.zeros(1), np.ones(1), np.zeros(1), np.inf), 1)
    counter.update(x[:, None])
    counter.join()
    statistics = counter.statistics()
    arrays = *statistics.of_nodes(), tree.pivots, statistics.histograms
    assert pruning.prune(*arrays, PruneParams()).n_clusters == 1 + stands


@pytest.mark.parametrize("seed", range(4))
def test_the_nodes_of_clusters_can_be_told_from_the_labels(seed):
    summary = random_summary(seed, 4, 500)
    result = prune(summary)
    found = pruning.cluster_nodes(result.cluster_of_leaf, summary.counts)
    inside = [naive._is_below(int(a), int(b)) for a, b in zip(result.cluster_nodes, found, strict=True)]
    assert all(inside)


# --- whole trees ----------------------------------------------------------------------------------


def fit(
    X: np.ndarray, params: FitParams | None = None, *, recount: bool = True
) -> tuple[pruning.Pruning, np.ndarray]:
    """Two passes and a recount (or one pass and its windows); the labels of the rows of X."""
    params = params or FitParams()
    _, center, scale = naive.standardise(X)
    scaling = Scaling(center, scale, np.zeros(X.shape[1]), 10.0)
    learn = params.learn
    tree = Tree.start(learn.levels, X.shape[1], start=learn.start, seed=params.seed)
    learner = Learner(tree, scaling, ColumnMoments(X.shape[1]), params, 1)
    passes = 1 if params.passes == 1 or not recount else 2
    for number in range(passes):
        learner.begin_epoch(number, counting=True)
        partial_fit(learner, X)
    statistics = counted(learner, X) if recount else learner.statistics()
    counts, means, squares = statistics.of_nodes()
    result = pruning.prune(counts, means, squares, tree.pivots, statistics.histograms, params.prune)
    Z, at = scaling.apply(X), np.ones(len(X), np.int64)
    thresholds = tree.frozen()[0]
    for _ in range(learn.levels):
        left = np.einsum("ij,ij->i", tree.directions[at - 1], Z) < thresholds[at - 1]
        at = 2 * at + ~left
    return result, result.cluster_of_leaf[at - 2**learn.levels]


def counted(learner: Learner, X: np.ndarray) -> Statistics:
    counter = Counter(learner.tree.freeze(), learner.scaling)
    counter.update(X)
    return counter.statistics()


def partial_fit(learner: Learner, X: np.ndarray) -> None:
    block = thread_pipeline.block_rows(X.shape[1])
    for k in range(0, len(X), block):
        learner.partial_fit(X[k : k + block])
    learner.join()


def uniform_cube(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.random((n, d))


def gaussian(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d))


def ball(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.random((n, 1)) ** (1 / d)


def lognormal(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return np.exp(rng.standard_normal((n, d)))


@pytest.mark.parametrize("recount", [True, False])
@pytest.mark.parametrize("shape", [uniform_cube, gaussian, ball, lognormal])
@pytest.mark.parametrize("d", [2, 10, 50])
def test_data_of_one_fragment_are_one_cluster(d, shape, recount):
    for seed in range(2):
        X = shape(np.random.default_rng([seed, d]), 6000, d)
        result, labels = fit(X, recount=recount)
        assert (result.n_clusters, result.clarity) == (1, "none")
        assert set(labels) == {1}


def planted(seed: int, k: int, d: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Well-separated Gaussians: weights up to 1:20, spreads up to 1:5, at least 6 sd between means."""
    rng = np.random.default_rng([seed, k, d])
    spreads = rng.uniform(1, 5, k)
    centres: list[np.ndarray] = []
    side = 10.0 * k ** (1 / d)
    while len(centres) < k:
        centre = rng.uniform(-side, side, d) * 3
        near = [np.linalg.norm(centre - c) for c in centres]
        gaps = [6 * (spreads[len(centres)] + s) for s in spreads[: len(centres)]]
        if all(a > b for a, b in zip(near, gaps, strict=True)):
            centres.append(centre)
        else:
            side *= 1.01
    weights = np.exp(rng.uniform(0, np.log(20), k))
    which = rng.choice(k, n, p=weights / weights.sum())
    X = np.array(centres)[which] + spreads[which, np.newaxis] * rng.standard_normal((n, d))
    return X, which


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("k", "d"), [(3, 2), (3, 10), (3, 50), (7, 10), (7, 50)])
def test_planted_clusters_are_found_and_told_apart(k, d, seed):
    X, which = planted(seed, k, d, 10_000)
    result, labels = fit(X)
    assert result.n_clusters == k
    for cluster in range(k):
        found = np.bincount(labels[which == cluster])
        assert found.max() > 0.97 * found.sum()


def test_a_planted_number_is_clear_and_a_given_one_is_given():
    X, _ = planted(0, 3, 10, 10_000)
    assert fit(X)[0].clarity == "clear"
    params = FitParams(prune=PruneParams(clusters=5))
    result, labels = fit(X, params)
    assert (result.n_clusters, result.clarity) == (5, "given")
    assert set(labels) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("seed", range(2))
def test_the_papers_rules_find_two_blobs_too(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((6000, 10))
    X[::2] += 3
    params = replace(PAPER_PRESET, seed=seed)
    result, _ = fit(X, params)
    assert 2 <= result.n_clusters <= 4


@pytest.mark.parametrize("weight", ["valley", "ss"])
def test_whole_trees_are_pruned_as_by_the_twin(weight):
    """A tree of the kernel's, recounted and pruned by the twin from the rows."""
    X, _ = planted(1, 4, 3, 3000)
    Z, center, scale = naive.standardise(X)
    scaling = Scaling(center, scale, np.zeros(3), 10.0)
    learner = Learner(Tree.start(4, 3), scaling, ColumnMoments(3), FitParams(), 1)
    learner.begin_epoch(0, counting=False)
    partial_fit(learner, X)
    tree, statistics = learner.tree, counted(learner, X)
    thresholds, offsets = tree.frozen()
    frozen = naive.Frozen(4, tree.directions, thresholds, offsets, np.sqrt(tree.variances))
    summary = naive.recount(frozen, Z, tree.pivots)
    counts, means, squares = statistics.of_nodes()
    np.testing.assert_array_equal(counts, summary.counts)
    elbow = "paper" if weight == "ss" else "weighted"
    ours = pruning.prune(
        counts,
        means,
        squares,
        tree.pivots,
        statistics.histograms,
        PruneParams(weight=weight, elbow=elbow),
    )
    assert_same_choice(ours, naive.prune(summary, weight=weight, elbow=elbow))


def test_a_least_size_that_leaves_no_room_is_named():
    summary = random_summary(3, 3, 100)
    with pytest.raises(UsageError, match="--min-size 90 leaves room for only 1") as refused:
        prune(summary, clusters=2, min_size=90)
    assert "smaller --min-size" in str(refused.value.hint)
    with pytest.raises(UsageError, match=r"only 1 leaf in use"):
        prune(random_summary(3, 3, 1), clusters=2)


def test_a_least_size_that_forbids_every_valley_is_told_from_no_valley():
    summary = next(s for seed in range(50) if prune(s := random_summary(seed, 4, 500)).significant.any())
    assert not prune(summary).by_size
    assert prune(summary, min_size=500).by_size
    assert not prune(random_summary(0, 4, 500, valleys=False), min_size=500).by_size


def corners(sides: list[float], rows: int = 4000) -> naive.Summary:
    """Gaussians at the corners of a box, cut apart along one side after the other, and each once through."""
    d = len(sides)
    rng = np.random.default_rng(0)
    Z = rng.integers(2, size=(rows, d)) * sides + rng.standard_normal((rows, d))
    splits = 2 ** (d + 1) - 1
    axis = np.array([int(j + 1).bit_length() - 1 for j in range(splits)])
    V = np.eye(d)[axis % d]
    threshold = np.where(axis < d, np.array(sides)[axis % d] / 2, np.nan)
    for j in np.flatnonzero(axis == d):  # the mean of its corner along the first side
        threshold[j] = sides[0] * (j + 1 - splits // 2 - 1 >= 2 ** (d - 1))
    deviation = np.where(axis < d, np.sqrt(1 + (np.array(sides)[axis % d] / 2) ** 2), 1.0)
    frozen = naive.Frozen(d + 1, V, threshold, threshold, deviation)
    return naive.recount(frozen, Z, np.zeros((2 * splits + 1, d)))


def test_clusters_with_gaps_between_them_are_all_counted():
    """The curve alone bends where the gaps get smaller."""
    summary = corners([40.0, 12.0, 7.0])
    found = prune(summary)
    assert (found.n_clusters, found.clarity) == (8, "clear")
    assert 1 < np.argmax(found.votes) + 1 < 8
    assert_same_choice(found, naive.prune(summary))


def test_a_gap_below_cuts_that_divide_off_few_rows_is_counted():
    """The first cut divides off five rows, without a valley; only with it can the gap below it stand."""
    rng = np.random.default_rng(0)
    Z = np.concatenate(
        [np.full(5, 9.0), 0.5 * rng.choice([-1.0, 1.0], 2000) + 0.1 * rng.standard_normal(2000)]
    )
    threshold = np.array([4.0, 0.0, 20.0])
    frozen = naive.Frozen(2, np.ones((3, 1)), threshold, threshold, np.array([0.02, 0.5, 1.0]))
    summary = naive.recount(frozen, Z[:, None], np.zeros((7, 1)))
    found = prune(summary)
    assert found.significant.tolist() == [False, True, False]
    assert found.n_clusters == 3
    assert_same_choice(found, naive.prune(summary))


def test_thresholds_are_less_where_fewer_splits_are_looked_at():
    plain = np.ones(1023, dtype=bool)
    plain[5] = False
    factors = valleys.eased(np.full(1023, 10**9), 3, plain)
    for j in (1, 2, 3, 7, 100, 200, 1000):
        assert 1.5 * factors[j - 1] == pytest.approx(naive.least_excess(1.5, j, 10**9, 3))
    assert factors[5] == factors[127] == factors[-1] == 1.0
    assert factors[0] == pytest.approx(0.6)
    few = valleys.eased(np.array([100, 0, 50]), 3, plain[:3])
    assert few[0] == pytest.approx(naive.least_excess(1.5, 1, 100, 3) / 1.5)
    assert few[1] == 1.0


@pytest.mark.parametrize(("noise", "pile", "counts"), [(0.0, 0, True), (0.2, 0, False), (0.0, 1, False)])
def test_a_valley_that_counts_at_a_root_counts_not_along_noise_and_piles(noise, pile, counts):
    rng = np.random.default_rng(0)
    u = rng.choice([-0.86, 0.86], 600) + 0.52 * rng.standard_normal(600)
    histogram = np.bincount([naive.bin_of(x) for x in u], minlength=128)[None]
    rows = np.array([600, (u < 0).sum(), (u >= 0).sum()])
    moments = np.zeros((3, 2)), np.ones((3, 2)) * rows[:, None], np.zeros((3, 2))
    on_piles = pile * np.minimum(histogram, 1)
    splits = Splits.summarise(rows, *moments, histogram, 1, on_piles, 0.0, np.array([noise]))
    assert 0.95 < splits.excess[0] < 1.5
    assert splits.significant[0] == counts
    assert not splits.judge(valleys.SURE).significant[0]


@pytest.mark.parametrize("seed", range(3))
def test_two_groups_of_few_rows_are_found_and_one_is_none(seed):
    rng = np.random.default_rng([seed, 600, 2])
    which, X = rng.integers(0, 2, 600), rng.standard_normal((600, 2))
    assert fit_rows(X, FitParams(seed=seed)).pruning.n_clusters == 1
    X[:, 0] += 3.5 * which
    assert fit_rows(X, FitParams(seed=seed)).pruning.n_clusters == 2
