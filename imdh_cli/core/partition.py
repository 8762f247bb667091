"""Rows in the leaves of a pruned tree: their clusters, and the sides of its cuts; how alike two
partitions are. NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from imdh_cli.core.pruning import labels_of_nodes


class Partition(NamedTuple):
    """Rows in the leaves of a pruned tree. leaf : (n,) int64, tree nodes. cluster_of_leaf : (2^D,), 1..K.

    found: the number of clusters that is chosen for the tree when none is asked for.
    """

    leaf: np.ndarray
    cluster_of_leaf: np.ndarray
    found: int

    @property
    def cluster(self) -> np.ndarray:
        """(n,) 1..K."""
        labels: np.ndarray = self.cluster_of_leaf[self.leaf - len(self.cluster_of_leaf)]
        return labels

    @property
    def cuts(self) -> np.ndarray:
        """The splits that tell clusters apart, by number."""
        return np.flatnonzero(labels_of_nodes(self.cluster_of_leaf)[0] == 0) + 1

    def sides(self, nodes: np.ndarray, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Which rows meet each of some splits and go left, and right: (nodes, rows) float32, 0 or 1."""
        leaf, depth = self.leaf[rows], len(self.cluster_of_leaf).bit_length() - 1
        below = depth - np.floor(np.log2(nodes)).astype(np.int64)  # levels from the split to the leaves
        child = leaf[None, :] >> (below - 1)[:, None]
        left, right = (child == (2 * nodes + side)[:, None] for side in (0, 1))
        return left.astype(np.float32), right.astype(np.float32)


def adjusted_rand(a: np.ndarray, b: np.ndarray) -> float:
    """Hubert and Arabie's index of two partitions (n,) of some rows, from 0 up and below 2^31."""
    both = np.unique(a.astype(np.int64) << 32 | b, return_counts=True)[1]
    return adjusted_rand_of_counts(both, np.bincount(a), np.bincount(b))


def adjusted_rand_of_counts(both: np.ndarray, in_a: np.ndarray, in_b: np.ndarray) -> float:
    """The same by the rows of each pair of parts and of each part of one and of the other, (parts,) int.

    In exact whole numbers: n^2 pairs overflow 64 bits.
    """
    together, pairs_a, pairs_b = (sum(map(_pairs, counts.tolist())) for counts in (both, in_a, in_b))
    every = _pairs(int(in_a.sum()))
    # (together - expected) / (mean - expected), everything times 2 * every
    top = 2 * (together * every - pairs_a * pairs_b)
    bottom = (pairs_a + pairs_b) * every - 2 * pairs_a * pairs_b
    return top / bottom if bottom else 1.0


def _pairs(n: int) -> int:
    return n * (n - 1) // 2
