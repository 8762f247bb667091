"""Rows counted at the leaves and splits of a tree -> moments of every node; parts counted apart merge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.histogram import BINS
from imdh_cli.compiled.memory import aligned
from imdh_cli.core.tree import Scaling


@dataclass
class Statistics:
    """What pruning works from: moments of the rows counted in each leaf, histograms of each split.

    counts : (2^D,) int64. means, sums_of_squares : (2^D, d) float64, per feature, in z.
    histograms : (m, 128) int64 of (v.z - threshold) / s, bins of 1/16 on [-4, 4]. on_piles : the same of the
    rows on a pile of the column that a split leans on (see piles); None where nobody looked.
    """

    counts: np.ndarray
    means: np.ndarray
    sums_of_squares: np.ndarray
    histograms: np.ndarray
    on_piles: np.ndarray | None = None

    @classmethod
    def empty(cls, depth: int, d: int, *, piles: bool = False) -> Statistics:
        leaves = 2**depth
        return cls(
            counts=np.zeros(leaves, dtype=np.int64),
            means=aligned(leaves, d),
            sums_of_squares=aligned(leaves, d),
            histograms=aligned(leaves - 1, BINS, dtype=np.int64),
            on_piles=np.zeros((leaves - 1, BINS), dtype=np.int64) if piles else None,
        )

    def count_leaves(self, Z: np.ndarray, leaf: np.ndarray) -> None:
        """Take in rows (rows, d) that have come to the leaves (rows,), the numbers of tree nodes."""
        kernel.count_leaves(Z, leaf, len(self.counts), self.counts, self.means, self.sums_of_squares)

    def merged(self, other: Statistics) -> Statistics:
        """Both together (Chan, Golub and LeVeque's update), as a new object."""
        counts, means, squares = merge_moments(
            (self.counts, self.means, self.sums_of_squares),
            (other.counts, other.means, other.sums_of_squares),
        )
        piles = None
        if self.on_piles is not None and other.on_piles is not None:
            piles = self.on_piles + other.on_piles
        return Statistics(counts, means, squares, self.histograms + other.histograms, piles)

    def re_express(self, old: Scaling, new: Scaling) -> None:
        """Move to the coordinates of `new`, in place. Histograms are free of units and stay."""
        ratio = new.scale / old.scale
        self.means[:] = (self.means - (new.center - old.center) / old.scale) / ratio
        self.means[self.counts == 0] = 0.0
        self.sums_of_squares /= ratio**2

    def of_nodes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts (n,), means (n, d) and sums of squares (n, d) of every node, merged from its children."""
        leaves = len(self.counts)
        nodes = 2 * leaves - 1
        counts = np.zeros(nodes, dtype=np.int64)
        means = np.zeros((nodes, self.means.shape[1]))
        squares = np.zeros_like(means)
        counts[leaves - 1 :], means[leaves - 1 :] = self.counts, self.means
        squares[leaves - 1 :] = self.sums_of_squares
        size = leaves // 2
        while size:
            left = slice(2 * size - 1, 4 * size - 1, 2)
            right = slice(2 * size, 4 * size - 1, 2)
            here = slice(size - 1, 2 * size - 1)
            counts[here], means[here], squares[here] = merge_moments(
                (counts[left], means[left], squares[left]),
                (counts[right], means[right], squares[right]),
            )
            size //= 2
        return counts, means, squares


Moments = tuple[np.ndarray, np.ndarray, np.ndarray]


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Counts (g,), means (g, d), sums of squares (g, d) of the union of each pair of groups."""
    counts = a[0] + b[0]
    share = b[0] / np.maximum(counts, 1)
    gap = b[1] - a[1]
    means = np.where((a[0] == 0)[:, None], b[1], a[1] + gap * share[:, None])
    squares = a[2] + b[2] + gap**2 * (a[0] * share)[:, None]
    return counts, means, squares
