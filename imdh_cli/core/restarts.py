"""Trees learned from the same rows, each from its own start -> the one to keep.

Small steps end where the start and the order of rows lead them: another seed, another tree. Of several,

    agreement   the mean adjusted Rand index of its clusters with those of the others, on some of the rows
    worth       the sum of G delta over its splits that are significant beyond any doubt (see pruning)

and the one is kept whose agreement times the root of its worth is greatest. Where no tree has such a split,
as in rows of one cluster, it is the one that agrees best. The paper learns one tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from imdh_cli.core import pruning
from imdh_cli.core.partition import adjusted_rand
from imdh_cli.core.pruning.weights import Splits
from imdh_cli.params import PruneParams

if TYPE_CHECKING:
    from imdh_cli.core.learn import Learned

BEYOND_DOUBT = 2.5  # E / sqrt(n) of a split that counts: with 1.5, one false valley in four trees would win
COMPARED_ROWS = 4000  # at most
ALONE = 0.01  # what a tree that none agrees with has for agreement: its valleys are there nevertheless


def best(trees: Sequence[Learned], X: np.ndarray, params: PruneParams) -> tuple[int, Splits]:
    """The place of the tree to keep, the first one of like ones, and what is known of its splits.

    X : (n, d), the rows they were learned from.

    params : how trees are pruned to be compared, by the number of clusters that is chosen for each: so the
    tree that is kept does not depend on the number that is asked for.
    """
    params = replace(params, clusters="auto")
    some = X[:: -(-len(X) // COMPARED_ROWS)]
    splits = [splits_of(tree) for tree in trees]
    own = [replace(each, min_rows=max(1, params.min_size)).judge(pruning.SIGNIFICANT) for each in splits]
    labels = [
        pruning.prune_splits(each, params).cluster_of_leaf[tree.leaves(some)]
        for each, tree in zip(own, trees, strict=True)
    ]
    alike = np.zeros((len(trees), len(trees)))
    for i, j in combinations(range(len(trees)), 2):
        alike[i, j] = alike[j, i] = adjusted_rand(labels[i], labels[j])
    agreement = alike.sum(axis=1) / max(1, len(trees) - 1)
    scores = np.maximum(agreement, ALONE) * np.sqrt([worth(each) for each in splits])
    place = int(np.lexsort((-np.arange(len(trees)), agreement, scores))[-1])
    return place, own[place]


def splits_of(tree: Learned) -> Splits:
    """What is known of a tree's splits: 0.1 s of 1,023 of them."""
    counted = tree.statistics
    return Splits.summarise(
        *counted.of_nodes(),
        tree.tree.pivots,
        counted.histograms,
        1,
        counted.on_piles,
        tree.copies,
        tree.noise_shares,
    )


def worth(splits: Splits) -> float:
    """The sum of G delta over the splits beyond doubt, in z."""
    splits = splits.judge(BEYOND_DOUBT)
    return float((splits.gains * splits.depths)[splits.significant].sum())


def leaf_clusters(tree: Learned, params: PruneParams) -> tuple[np.ndarray, int]:
    """The cluster of each leaf, (2^D,) int32 from 1, and the number that is chosen when none is asked for.

    More clusters than the tree can give are as many as it can give.
    """
    counts, means, squares = tree.statistics.of_nodes()
    arrays = counts, means, squares, tree.tree.pivots, tree.statistics.histograms
    apart = tree.statistics.on_piles, tree.copies, tree.noise_shares
    own = pruning.prune(*arrays, replace(params, clusters="auto"), *apart)
    if params.clusters == "auto":
        return own.cluster_of_leaf, own.n_clusters
    if isinstance(params.clusters, int):
        k = min(params.clusters, own.largest)
        return pruning.cut(own.merge_order, counts, k, params.min_size)[1], own.n_clusters
    return pruning.prune(*arrays, params, *apart).cluster_of_leaf, own.n_clusters
