"""Per-node summaries -> a nested sequence of prunings -> the cluster of each leaf. NumPy only.

`valleys` judges histograms, `weights` says what a split is worth, `elbow` where a curve bends, `cut` what a
number of clusters means, `choose` which number, `doubt` what forbids to call it clear. Everything here takes
milliseconds and no data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from imdh_cli.core.pruning.choose import Nested, choose, clarity
from imdh_cli.core.pruning.cut import cluster_nodes, cut, labels_of_nodes, largest, removed_at, too_many
from imdh_cli.core.pruning.doubt import doubt_of, leans
from imdh_cli.core.pruning.valleys import (
    SIGNIFICANT,
    excess_mass,
    smooth,
    valley_depths,
    without_piles,
)
from imdh_cli.core.pruning.weights import WEIGHTS, Splits
from imdh_cli.params import PruneParams

__all__ = [
    "SIGNIFICANT",
    "WEIGHTS",
    "Pruning",
    "cluster_nodes",
    "cut",
    "doubt_of",
    "excess_mass",
    "labels_of_nodes",
    "largest",
    "leans",
    "prune",
    "prune_splits",
    "removed_at",
    "smooth",
    "too_many",
    "valley_depths",
    "without_piles",
]


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


def prune(
    counts: np.ndarray,
    means: np.ndarray,
    sums_of_squares: np.ndarray,
    pivots: np.ndarray,
    histograms: np.ndarray,
    params: PruneParams,
    on_piles: np.ndarray | None = None,
    copies: float | np.ndarray = 0.0,
    noise_shares: np.ndarray | None = None,
    shared: np.ndarray | None = None,
) -> Pruning:
    """Order all splits, choose the number of clusters, label the leaves.

    Parameters
    ----------
    counts : (n,) int64
    means, sums_of_squares, pivots : (n, d) float64, in z; sums of squares per feature
    histograms : (m, 128), without the gaps between codes
    params : PruneParams
    on_piles : (m, 128), optional, the part of the histograms that lies on piles (see core.piles)
    copies : c, where n rows count for n / (1 + c n), some being copies (see core.copies), or that of each
        split, (m,) (see core.lookups)
    noise_shares : (m,), optional, which part of the variance along each split is noise (see core.dither)
    shared : (m, 2), optional, see `core.piles.Piles.shared`

    Raises
    ------
    UsageError
        When more clusters are asked for than leaves are in use.
    """
    least = max(1, params.min_size)
    splits = Splits.summarise(
        counts, means, sums_of_squares, pivots, histograms, least, on_piles, copies, noise_shares
    )
    chosen = prune_splits(splits, params)
    doubt = doubt_of(chosen.cluster_of_leaf, histograms, on_piles, noise_shares, shared)
    if chosen.clarity == "clear" and doubt:
        return replace(chosen, clarity="close")
    return chosen


def prune_splits(splits: Splits, params: PruneParams) -> Pruning:
    """`prune` by what is known of the splits."""
    counts = splits.counts
    nested = Nested.of(splits, WEIGHTS[params.weight])
    most_leaves = len(nested.curve)
    votes = np.zeros(most_leaves, dtype=np.int64)
    alternatives: tuple[int, ...] = ()
    most = min(most_leaves, params.max_clusters or most_leaves)
    sure = "given"
    if isinstance(params.clusters, int):
        k = params.clusters
        if k > most_leaves:
            raise too_many(k, nested.order, counts, params.min_size)
    elif params.clusters == "valleys":
        k = min(nested.valleys, most)
    else:
        k, votes = choose(nested, params, most)
        sure, alternatives = clarity(k, splits, nested, params, most)
    nodes, cluster_of_leaf = cut(nested.order, counts, k, params.min_size)
    if sure == "clear" and nodes.max() > len(nested.order):
        sure = "close"  # a cluster at the tree's last level may hold more than one
    return Pruning(
        n_clusters=k,
        clarity=sure,
        alternatives=alternatives,
        largest=most_leaves,
        merge_order=nested.order,
        cluster_of_leaf=cluster_of_leaf,
        cluster_nodes=nodes,
        gains=splits.gains,
        depths=splits.depths,
        excess=splits.excess,
        significant=splits.significant,
        kept=splits.kept,
        total_ss=nested.total_ss,
        credit=nested.curve,
        votes=votes,
        by_size=not splits.kept.any() and bool(replace(splits, min_rows=1).judge(SIGNIFICANT).kept.any()),
    )
