"""Per-node summaries -> a nested sequence of prunings -> the cluster of each leaf. NumPy only.

Paper: section 3 (pruning and the elbow). What goes beyond it:

    G       gain of a split: SS(j) - SS(2j) - SS(2j+1)
    delta   depth of its valley: 1 - f(cut) / min(highest f left, highest f right), f the smoothed density
            of the projections
    E       excess mass of the lesser side (Mueller and Sawitzki 1991): twice n times Hartigan's dip with
            the valley held at the cut. E / sqrt(n) has a null law almost free of n, d and shape, whose
            5 % point over 255 splits is 1.2 to 1.3.

Sums of squares alone find clusters in one Gaussian; depths alone are noise where rows are few. A split
counts when E says that two modes are there, in the order of what both together are worth.
Everything here takes milliseconds and no data.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from imdh_cli.compiled.histogram import BINS, CENTRES, EDGES, HALF
from imdh_cli.core.tree import level_of
from imdh_cli.errors import UsageError
from imdh_cli.params import PruneParams

SIGNIFICANT = 1.5  # E / sqrt(n) beyond which a valley is no accident
SURE = 2.0  # and beyond which none could doubt it
LAX = 1.25  # what one split in twenty trees reaches by accident
LEAST_ROWS = 4
TINY = 1e-10
MAX_ELBOW = 128  # the largest Kmax that votes


@dataclass(frozen=True)
class Pruning:
    """What was chosen, and all that the choice was made from. Split i is at index i - 1, K at K - 1.

    merge_order (m,) : split numbers in the order they are removed. cluster_of_leaf (2^D,) : 1..K.
    cluster_nodes (K,) : the tree node of each cluster, from left to right. gains, depths, excess (m,) :
    G, delta, E / sqrt(n). significant, kept (m,) : bool. total_ss, credit (largest,) : at K clusters.
    votes (largest,) : how many of the elbow's Kmax chose K. alternatives: other numbers worth a look.
    by_size: no cut is kept, but some would be if smaller clusters were allowed.
    """

    n_clusters: int
    clarity: str  # clear, close, none (no valley is significant) or given
    alternatives: tuple[int, ...]
    largest: int
    merge_order: np.ndarray
    cluster_of_leaf: np.ndarray
    cluster_nodes: np.ndarray
    gains: np.ndarray
    depths: np.ndarray
    excess: np.ndarray
    significant: np.ndarray
    kept: np.ndarray
    total_ss: np.ndarray
    credit: np.ndarray
    votes: np.ndarray
    by_size: bool = False


@dataclass
class _Splits:
    """Per split, shape (m,): what ordering and choosing need."""

    counts: np.ndarray  # of all nodes, (n,)
    squares: np.ndarray  # sums of squares of all nodes, (n,)
    gains: np.ndarray
    charged: np.ndarray  # gains of sums of squares about the learned means: the paper's, may be negative
    depths: np.ndarray
    excess: np.ndarray
    min_rows: int
    significant: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=bool))
    kept: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=bool))

    def judge(self, threshold: float) -> _Splits:
        """The same with `significant` and `kept` by a threshold for E / sqrt(n)."""
        left, right = _children(self.counts)
        significant = (
            (self.counts[: len(self.gains)] >= LEAST_ROWS)
            & (self.excess > threshold)
            & (self.depths > 0.0)
            & (np.minimum(left, right) >= self.min_rows)
        )
        kept = significant.copy()
        for i in range(len(kept) - 1, 0, -1):
            kept[(i - 1) // 2] |= kept[i]
        return replace(self, significant=significant, kept=kept)


def prune(
    counts: np.ndarray,
    means: np.ndarray,
    sums_of_squares: np.ndarray,
    pivots: np.ndarray,
    histograms: np.ndarray,
    params: PruneParams,
) -> Pruning:
    """Order all splits, choose the number of clusters, label the leaves.

    Parameters
    ----------
    counts : (n,) int64
    means, sums_of_squares, pivots : (n, d) float64, in z; sums of squares per feature
    histograms : (m, 128), without the gaps between codes
    params : PruneParams

    Raises
    ------
    UsageError
        When more clusters are asked for than leaves are in use.
    """
    splits = _summarise(counts, means, sums_of_squares, pivots, histograms, params)
    order, clusters_after = _merge_order(splits, params.weight)
    largest = int(clusters_after[0])
    curve, total_ss = _curves(splits, order, clusters_after, params.weight)
    votes = np.zeros(largest, dtype=np.int64)
    alternatives: tuple[int, ...] = ()
    valleys = _valleys(splits, order, clusters_after)
    most = min(largest, params.max_clusters or largest)
    if isinstance(params.clusters, int):
        k, clarity = params.clusters, "given"
        if k > largest:
            raise too_many(k, order, counts, params.min_size)
    elif params.clusters == "valleys":
        k, clarity = min(valleys, most), "given"
    else:
        k, votes = _choose(splits, order, clusters_after, params, most)
        clarity, alternatives = _clarity(k, splits, valleys, params, most)
    nodes, cluster_of_leaf = cut(order, counts, k, params.min_size)
    if clarity == "clear" and nodes.max() > len(order):
        clarity = "close"  # a cluster at the tree's last level may hold more than one
    return Pruning(
        n_clusters=k,
        clarity=clarity,
        alternatives=alternatives,
        largest=largest,
        merge_order=order,
        cluster_of_leaf=cluster_of_leaf,
        cluster_nodes=nodes,
        gains=splits.gains,
        depths=splits.depths,
        excess=splits.excess,
        significant=splits.significant,
        kept=splits.kept,
        total_ss=total_ss,
        credit=curve,
        votes=votes,
        by_size=not splits.kept.any() and bool(replace(splits, min_rows=1).judge(SIGNIFICANT).kept.any()),
    )


def cut(
    merge_order: np.ndarray, counts: np.ndarray, k: int, min_size: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The clusters when splits are removed in order until K are left.

    A terminal node with fewer than min_size rows (at least one) is no cluster: it goes with the nearest
    cluster in its sibling's part of the tree.

    Returns
    -------
    cluster_nodes : (K,) int64, tree nodes from left to right
    cluster_of_leaf : (2^D,) int32, 1..K
    """
    splits = len(merge_order)
    min_rows = max(1, min_size)
    left = _clusters_after(merge_order, counts, min_rows)
    steps = int(np.argmax(left <= k)) if (left <= k).any() else splits
    closed = np.zeros(2 * splits + 2, dtype=bool)  # by node number: no split stands here
    closed[splits + 1 :] = True
    closed[merge_order[:steps]] = True
    enough = np.concatenate([[False], counts >= min_rows])
    for level in range(level_of(splits + 1) - 1, -1, -1):  # a split that divides off too few stands for none
        here = np.arange(1 << level, 2 << level)
        void = closed[2 * here] & closed[2 * here + 1] & ~(enough[2 * here] & enough[2 * here + 1])
        closed[here] |= void
    terminals = []  # from left to right
    stack = [1]
    while stack:
        node = stack.pop()
        if closed[node]:
            terminals.append(node)
        else:
            stack += [2 * node + 1, 2 * node]
    in_use = enough[terminals]
    if not in_use.any():
        in_use[:] = True
    number = np.cumsum(in_use)
    leaves = splits + 1
    depth = level_of(leaves)
    cluster_of_leaf = np.empty(leaves, dtype=np.int32)
    for place, node in enumerate(terminals):
        below = depth - level_of(node)
        first = (node << below) - leaves
        # Left of its sibling: the next cluster to the right, which is the sibling's first; else its last.
        label = number[place] + (1 if not in_use[place] and node % 2 == 0 else 0)
        cluster_of_leaf[first : first + (1 << below)] = label
    return np.array(terminals, dtype=np.int64)[in_use], cluster_of_leaf


def largest(merge_order: np.ndarray, counts: np.ndarray, min_size: int = 1) -> int:
    """The largest number of clusters that a cut can give."""
    return int(_clusters_after(merge_order, counts, max(1, min_size))[0])


def too_many(k: int, merge_order: np.ndarray, counts: np.ndarray, min_size: int = 1) -> UsageError:
    """What to raise when more clusters are asked for than there can be: whether the tree is too small for
    them or the least size of a cluster too large."""
    most = largest(merge_order, counts, min_size)
    leaves = largest(merge_order, counts)
    if most < leaves:
        return UsageError(
            f"{k} clusters were asked for, but --min-size {min_size} leaves room for only {most}",
            f"use -k {most}{' or fewer' if most > 1 else ''}, or fit or prune with a smaller --min-size",
        )
    return UsageError(
        f"{k} clusters were asked for, but the tree has only "
        f"{leaves} {'leaf' if leaves == 1 else 'leaves'} in use",
        f"use -k {leaves}{' or fewer' if leaves > 1 else ''}, or fit a deeper tree with --depth",
    )


def removed_at(merge_order: np.ndarray, counts: np.ndarray, min_size: int = 1) -> np.ndarray:
    """At index K - 1: the split whose removal leads from K clusters to K - 1; 0 for K = 1."""
    after = _clusters_after(merge_order, counts, max(1, min_size))
    removed = np.zeros(int(after[0]), dtype=np.int64)
    for step in np.flatnonzero(after[1:] < after[:-1]):
        removed[after[step] - 1] = merge_order[step]
    return removed


def labels_of_nodes(cluster_of_leaf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the way down may end: at the highest nodes below which all leaves are of one cluster.

    Returns
    -------
    label : (n,) int32, the cluster of such a node (and of all below it), 0 where leaves differ
    stop : (n,) bool, label > 0
    """
    leaves = len(cluster_of_leaf)
    label = np.zeros(2 * leaves - 1, dtype=np.int32)
    label[leaves - 1 :] = cluster_of_leaf
    for level in range(level_of(leaves) - 1, -1, -1):
        here = np.arange((1 << level) - 1, (2 << level) - 1)
        left, right = label[2 * here + 1], label[2 * here + 2]
        label[here] = np.where(left == right, left, 0)
    return label, label > 0


def cluster_nodes(cluster_of_leaf: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The tree node of each cluster 1..K, (K,) int64: of the nodes that cover it, the one with most rows.

    A cluster covers more than one when a node too small to be a cluster goes with it.
    """
    label, stop = labels_of_nodes(cluster_of_leaf)
    above = np.concatenate([[False], np.repeat(stop[: len(stop) // 2], 2)])
    nodes = np.zeros(int(cluster_of_leaf.max()), dtype=np.int64)
    for i in np.flatnonzero(stop & ~above):
        k = label[i] - 1
        if nodes[k] == 0 or counts[i] > counts[nodes[k] - 1]:
            nodes[k] = i + 1
    return nodes


def valley_depths(histograms: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """delta of each split, (m,), from its histogram (m, 128) and its number of rows (m,)."""
    depths = np.zeros(len(histograms))
    for i in np.flatnonzero((counts >= LEAST_ROWS) & (histograms.sum(axis=1) > 0)):
        f, at_cut = smooth(histograms[i], counts[i])
        lesser = min(f[:HALF].max(), f[HALF:].max())
        depths[i] = max(0.0, 1.0 - at_cut / lesser) if lesser > 0 else 0.0
    return depths


def depths_everywhere(histogram: np.ndarray, rows: int) -> np.ndarray:
    """delta of one histogram (128,), not empty, for a cut at each of its 129 edges; 0 at the ends."""
    f = _density(histogram, rows, CENTRES)
    left, right = np.maximum.accumulate(f)[:-1], np.maximum.accumulate(f[::-1])[-2::-1]
    at_edges = _density(histogram, rows, EDGES[1:-1])
    lesser = np.minimum(left, right)  # 0 where one side is empty, and far from all rows
    depths = np.zeros(BINS + 1)
    depths[1:-1] = np.maximum(
        0.0, 1.0 - np.divide(at_edges, lesser, out=np.ones_like(lesser), where=lesser > 0)
    )
    return depths


def smooth(histogram: np.ndarray, rows: int) -> tuple[np.ndarray, float]:
    """Density of the projections at the 128 bin centres and at the cut, per sd, area 1 in all."""
    f = _density(histogram, rows, np.append(CENTRES, 0.0))
    return f[:-1], float(f[-1])


def _density(histogram: np.ndarray, rows: int, at: np.ndarray) -> np.ndarray:
    """Density at places (g,) by a Gaussian kernel of bandwidth 1.06 rows^-0.2 projected sd (Silverman)."""
    h = 1.06 * float(rows) ** -0.2
    total = max(1.0, float(histogram.sum())) * h * np.sqrt(2.0 * np.pi)
    used = np.flatnonzero(histogram)
    density: np.ndarray = np.exp(-0.5 * ((at[:, None] - CENTRES[None, used]) / h) ** 2) @ (
        histogram[used] / total
    )
    return density


def excess_mass(histograms: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """E / sqrt(n) of each split, (m,), from its histogram (m, 128) and its number of rows (m,)."""
    excess = np.zeros(len(histograms))
    some = np.flatnonzero((counts >= LEAST_ROWS) & (histograms.max(axis=1, initial=0) > 0))
    excess[some] = excess_everywhere(histograms[some])[:, HALF]
    return excess / np.sqrt(np.maximum(counts, 1))


def excess_everywhere(histograms: np.ndarray) -> np.ndarray:
    """E, in rows, for a cut at each of the 129 edges of the bins of histograms (g, 128): (g, 129).

    The best sum of h - lam over an interval that ends at an edge is S there less the least S before, where
    S are the running sums of h - lam.
    """
    edges = np.arange(BINS + 1.0)[:, None]
    rows = np.zeros((BINS + 1, len(histograms)))  # one split a column: operations on rows are faster
    np.cumsum(histograms.T, axis=0, out=rows[1:])
    top = histograms.max(axis=1, initial=0)
    excess = np.zeros_like(rows)
    for level in range(1, 33):
        sums = rows - edges * (top * 0.8**level)
        touching_left = sums - np.minimum.accumulate(sums)
        touching_right = np.maximum.accumulate(sums[::-1])[::-1] - sums
        left = np.maximum.accumulate(touching_left)
        right = np.maximum.accumulate(touching_right[::-1])[::-1]
        bridge = left + right - touching_left - touching_right
        np.maximum(excess, np.minimum(np.minimum(left, right), bridge), out=excess)
    return excess.T


def _children(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of an array over nodes (n,): the values of every split's left and right child, (m,) each."""
    return values[1::2], values[2::2]


def _summarise(
    counts: np.ndarray,
    means: np.ndarray,
    sums_of_squares: np.ndarray,
    pivots: np.ndarray,
    histograms: np.ndarray,
    params: PruneParams,
) -> _Splits:
    m = len(histograms)
    squares = sums_of_squares.sum(axis=1)
    about_pivots = squares + counts * ((means - pivots) ** 2).sum(axis=1)
    gains = []
    for ss in (squares, about_pivots):
        left, right = _children(ss)
        gains.append(ss[:m] - left - right)
    return _Splits(
        counts=counts,
        squares=squares,
        gains=np.maximum(gains[0], 0.0),
        charged=gains[1],
        depths=valley_depths(histograms, counts[:m]),
        excess=excess_mass(histograms, counts[:m]),
        min_rows=max(1, params.min_size),
    ).judge(SIGNIFICANT)


def _merge_order(splits: _Splits, weight: str) -> tuple[np.ndarray, np.ndarray]:
    """All splits in the order they are removed (a heap over pre-terminal ones), and clusters left.

    First those that divide off too few rows for a min_size above one. Then, by `ss`, the least charged
    gain. By `valley`, the splits that are not kept, least G (0.001 + delta) first; then the kept ones, least
    G delta first (0 where not significant itself).
    """
    m = len(splits.gains)
    left, right = _children(splits.counts)
    void = (np.minimum(left, right) < splits.min_rows) & (splits.min_rows > 1)
    worth = splits.gains * (0.001 + splits.depths)
    if weight == "ss":
        keys = list(zip(np.where(void, 0, 1), splits.charged, splits.charged, strict=True))
    else:
        rank = np.where(void, 0, np.where(splits.kept, 2, 1))
        valley = np.where(splits.significant, splits.gains * splits.depths, 0.0)
        first = np.where(splits.kept, valley, worth)
        keys = list(zip(rank, first, worth, strict=True))
    order = np.empty(m, dtype=np.int64)
    waiting = np.zeros(m + 1, dtype=np.int64)  # children that are still split
    waiting[1 : (m + 1) // 2] = 2
    heap = [(keys[i - 1], i) for i in range((m + 1) // 2, m + 1)]
    heapq.heapify(heap)
    for step in range(m):
        _, node = heapq.heappop(heap)
        order[step] = node
        parent = node // 2
        if parent:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                heapq.heappush(heap, (keys[parent - 1], parent))
    return order, _clusters_after(order, splits.counts, splits.min_rows)


def _clusters_after(order: np.ndarray, counts: np.ndarray, min_rows: int) -> np.ndarray:
    """Terminal nodes with at least min_rows rows after 0, 1, 2 ... m removals, (m + 1,), at least 1.

    While splits that divide off too few rows go, small leaves join into large ones: the count of the
    state in which those are gone stands for all the states before it.
    """
    after = _in_use_after(order, counts, min_rows)
    after = np.maximum.accumulate(after[::-1])[::-1]
    return np.maximum(after, 1)


def _in_use_after(order: np.ndarray, counts: np.ndarray, min_rows: int) -> np.ndarray:
    """Terminal nodes with at least min_rows rows after 0, 1, 2 ... m removals, (m + 1,), as they are."""
    in_use = counts >= min_rows
    left, right = _children(in_use.astype(np.int64))
    change = in_use[: len(order)] - left - right
    leaves = int(np.count_nonzero(in_use[len(order) :]))
    return leaves + np.concatenate([[0], np.cumsum(change[order - 1])])


def _curves(
    splits: _Splits, order: np.ndarray, clusters_after: np.ndarray, weight: str
) -> tuple[np.ndarray, np.ndarray]:
    """Per K = 1 .. largest: what removing splits down to K has cost, and the total sum of squares.

    By `valley` the cost of a significant split is delta n ln(SS / (SS_left + SS_right)), a likelihood
    gain: free of the node's own spread, so that one wide cluster does not own the curve.
    """
    m = len(splits.gains)
    left, right = _children(splits.squares)
    if weight == "ss":
        cost = splits.charged
    else:
        inside = left + right
        ratio = np.divide(splits.squares[:m], inside, out=np.full(m, 1e6), where=inside > 0)
        logs = np.log(np.clip(ratio, 1.0, 1e6))
        cost = np.where(splits.significant, splits.depths * splits.counts[:m] * logs, 0.0)
    largest = int(clusters_after[0])
    spent = np.concatenate([[0.0], np.cumsum(cost[order - 1])])
    lost = np.concatenate([[0.0], np.cumsum(splits.gains[order - 1])])
    start = splits.squares[m:].sum()
    steps = np.array([int(np.argmax(clusters_after <= k)) for k in range(1, largest + 1)])
    steps[-1] = int(np.argmax(_in_use_after(order, splits.counts, splits.min_rows)))  # small leaves joined
    return spent[steps], start + lost[steps]


def _valleys(splits: _Splits, order: np.ndarray, clusters_after: np.ndarray) -> int:
    """Clusters when exactly the kept splits stand (S + 1)."""
    removed = np.zeros(len(order) + 1, dtype=bool)
    removed[1:] = ~splits.kept
    in_use = 0
    stack = [1]
    while stack:
        node = stack.pop()
        if node > len(order) or removed[node]:
            in_use += bool(splits.counts[node - 1] >= splits.min_rows)
        else:
            stack += [2 * node, 2 * node + 1]
    return max(1, in_use)


def _choose(
    splits: _Splits,
    order: np.ndarray,
    clusters_after: np.ndarray,
    params: PruneParams,
    most: int,
) -> tuple[int, np.ndarray]:
    """The automatic number of clusters, and the votes for each."""
    largest = int(clusters_after[0])
    valleys = _valleys(splits, order, clusters_after)
    curve, _ = _curves(splits, order, clusters_after, params.weight)
    votes = np.zeros(largest, dtype=np.int64)
    by_valley = params.weight == "valley"
    if by_valley and not splits.kept.any():
        return 1, votes
    elbow = _paper_elbow if params.elbow == "paper" else _weighted_elbow
    for k in elbow(curve, most):
        votes[k - 1] += 1
    eligible = votes[1:most]
    k = int(np.argmax(eligible)) + 2 if eligible.any() else min(most, max(valleys, 2))
    if by_valley:
        k = min(k, valleys)
    return min(k, most), votes


def _weighted_elbow(curve: np.ndarray, most: int) -> list[int]:
    """One vote for each Kmax: the sharpest corner, corners far from the ends' tangents weighing less."""
    votes = []
    for k_max in range(3, min(MAX_ELBOW, most) + 1):
        q = curve[:k_max]
        if q[0] <= q[-1]:
            continue
        x = np.arange(k_max) / (k_max - 1)
        y = (q - q[-1]) / (q[0] - q[-1])
        angle = np.arctan(x / (1 - y + TINY)) + np.arctan(y / (1 - x + TINY)) + np.pi / 2
        ends = 2 + x**2 + y**2 + (1 - x) ** 2 + (1 - y) ** 2
        votes.append(int(np.argmin(angle * ends)) + 1)
    return votes


def _paper_elbow(curve: np.ndarray, most: int) -> list[int]:
    """The paper's equation (elbow) for 30 values of Kmax from 10 to all, K = 1 never chosen."""
    votes = []
    for k_max in np.minimum(np.ceil(np.linspace(10, most, 30)).astype(int), most):
        q = curve[:k_max]
        spread = q.max() - q.min()
        if k_max < 2 or spread <= 0:
            continue
        x = np.arange(k_max) / (k_max - 1)
        y = (q - q.min()) / spread
        angle = np.arctan(x / (1 - y + TINY)) + np.arctan(y / (1 - x + TINY))
        votes.append(int(np.argmin(angle[1:])) + 2)
    return votes


def _clarity(
    k: int, splits: _Splits, valleys: int, params: PruneParams, most: int
) -> tuple[str, tuple[int, ...]]:
    """Whether other readings of the same summaries give the same number, and those that do not.

    All significant valleys; those without cuts through a cluster; the choice by a stricter test; all
    valleys by a laxer one. Of planted clusters said to be clear, 97 of 100 have the planted number.
    """
    if not splits.kept.any():
        return "none", ()
    sure, lax = splits.judge(SURE), splits.judge(LAX)
    at_sure, _ = _choose(sure, *_merge_order(sure, params.weight), params, most)
    at_lax = _valleys(lax, *_merge_order(lax, params.weight))
    without_cuts_through = int(np.count_nonzero(splits.significant)) + 1
    others = {valleys, without_cuts_through, at_sure, at_lax} - {k}
    return ("close" if others else "clear"), tuple(sorted(others))
