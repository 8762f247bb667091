"""A tree under way and what was counted at its splits -> the same tree, cuts moved to where valleys are.

Learning by small steps finds the lowest place near where it began. Where only a few of many features tell
clusters apart, or the valley lies far from the mean, that may be none at all: the cut goes through a cluster,
and the clusters are found below it, each of them twice. But then the valley is known: from the cut's own
histogram, a step aside, or from a split below, which met part of the same rows. So now and then, between two
blocks of rows, each split takes the best place that is known, from the root down:

    worth   E delta, the excess mass of the lesser side in rows times the depth of the valley (see pruning),
            where E is significant, else 0
    aside   the cut moved along its direction to the place within 3 sd that is worth most: if the valley
            is nearly empty there and worth GAIN times as much as here
    below   the cut of the split below that is worth most: if that is GAIN times as much

A cut with a nearly empty valley is then held at its new place and not at the mean: the penalty keeps cuts
out of the tails, and whatever has a deep valley with rows on both sides is no tail. What is below a cut that
moved starts anew, from the directions that it had.

The paper has no such step. It is not part of `--preset paper`.
"""

from __future__ import annotations

import numpy as np

from imdh_cli.compiled import valleys
from imdh_cli.compiled.histogram import HALF, PER_SD
from imdh_cli.core import pruning
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import Tree, level_of, splits_below

GAIN = 4.0  # how many times its own worth a better place must have: 1.5 cost 1 NMI on tables of the world
EMPTY = 0.8  # depth of a valley that is nearly empty
FARTHEST = int(3 * PER_SD)  # bins
LEAST_ROWS = 20


def relocate(tree: Tree, statistics: Statistics) -> int:
    """Move what has a better place, in place.

    Parameters
    ----------
    tree : Tree
        Between two blocks.
    statistics : Statistics
        Of rows that this tree learned from.

    Returns
    -------
    int
        How many cuts were moved. Statistics of before are of no use then.
    """
    counts, means, _ = statistics.of_nodes()
    m = len(tree.offsets)
    worth, depths, aside = _places(statistics.histograms, counts[:m], tree.variances)
    thresholds, _ = tree.frozen()
    thresholds = thresholds + aside * np.sqrt(tree.variances)
    moved = 0
    fixed = np.zeros(m, dtype=bool)  # at and below a cut that moved
    for i in range(m):
        if i and fixed[(i - 1) // 2]:
            fixed[i] = True
            continue
        below = splits_below(i + 1, tree.depth) - 1
        best = int(below[np.argmax(worth[below])]) if len(below) else i
        if worth[best] <= GAIN * worth[i]:
            best = i
        if worth[best] == 0.0 or (best == i and aside[i] == 0.0):
            continue
        direction = tree.directions[best]
        if best != i:
            tree.directions[i] = direction
            tree.variances[i] = _variance_along(direction, i + 1, statistics, means[i])
            tree.learned[i] = min(tree.learned[i], tree.learned[best])
        tree.offsets[i] = thresholds[best] - direction @ tree.pivots[i]
        tree.anchors[i] = tree.offsets[i] if depths[best] >= EMPTY else 0.0
        tree.start_below(i + 1)
        fixed[i] = True
        moved += 1
    return moved


def ends_too_early(statistics: Statistics) -> bool:
    """Whether a split of the last level has a significant valley, nearly empty: what it divides may hold
    more clusters than two. Of fifty planted ones, those that 256 leaves miss are never cut apart."""
    counts, _, _ = statistics.of_nodes()
    m = len(statistics.histograms)
    last = np.flatnonzero(counts[m // 2 : m] > 0) + m // 2
    worth, place, depth = np.empty(len(last)), np.empty(len(last), dtype=np.int64), np.empty(len(last))
    judged = pruning.SIGNIFICANT, EMPTY, 0, valleys.make_work()
    valleys.best_places(statistics.histograms[last], counts[last], *judged, worth, place, depth)
    return bool(worth.any())


def _places(
    histograms: np.ndarray, counts: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best place along each split's own direction, (m,) each: what it is worth, the depth of the valley
    there, and how far it is from the cut in projected sds (0: the cut stays)."""
    m = len(counts)
    worth, depths, aside = np.zeros(m), np.zeros(m), np.zeros(m)
    some = np.flatnonzero((counts >= LEAST_ROWS) & (variances > 0))
    rows, work = (histograms[some], counts[some]), valleys.make_work()
    here, deep, place = np.empty(len(some)), np.empty(len(some)), np.empty(len(some), dtype=np.int64)
    valleys.best_places(*rows, pruning.SIGNIFICANT, 0.0, 0, work, here, place, deep)
    worth[some], depths[some] = here, deep
    there = np.empty(len(some))
    valleys.best_places(*rows, pruning.SIGNIFICANT, EMPTY, FARTHEST, work, there, place, deep)
    better = there > GAIN * here
    worth[some[better]], depths[some[better]] = there[better], deep[better]
    aside[some[better]] = (place[better] - HALF) / PER_SD
    return worth, depths, aside


def _variance_along(direction: np.ndarray, node: int, statistics: Statistics, mean: np.ndarray) -> float:
    """Variance of v.z among the rows of a node: of its leaves' means exactly, and within the leaves, which
    are small, as if features did not depend on each other there."""
    leaves = len(statistics.counts)
    below = level_of(leaves) - level_of(node)
    own = slice((node << below) - leaves, ((node + 1) << below) - leaves)
    counts = statistics.counts[own]
    between = counts @ ((statistics.means[own] - mean) @ direction) ** 2
    within = (statistics.sums_of_squares[own] @ direction**2).sum()
    return float(between + within) / max(1, int(counts.sum()))
