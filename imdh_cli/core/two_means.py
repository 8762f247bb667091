"""A tree without any valley and its rows -> the same tree, its cuts moved to those of least squares.

Rows without a valley are one cluster, and the cuts of their tree lie where small steps happened to end: often
beside the end of one feature. A number of clusters may be asked for nevertheless, to have segments or because
the groups overlap. Then rows are best divided as bisecting k-means does it, from the root down:

    start   at the mean across the direction of most variance
    steps   Lloyd's: half way between the means of the two parts, of rows cut to TAILS sds of each feature, so
            that a few far ones are no part of their own
    place   half way between the means, but within BALANCED sds of the mean of all

A cut along which a valley shows, though it may be an accident, stays: it is the better guess. The paper has
no such step.
"""

from __future__ import annotations

import numpy as np

from imdh_cli.compiled.histogram import HALF
from imdh_cli.core.pruning import excess_mass, valley_depths
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import Scaling, Tree

LEVELS = 5  # of splits that are moved
LEAST_ROWS = 30  # of a node
MOST_ROWS = 16_384  # that are looked at, and of a node
SOUGHT_ROWS = 4000
SOUGHT_CELLS = 1_000_000
TURNS = 30  # of the start towards the direction of most variance
STEPS = 15
TAILS = 2.5
BALANCED = 0.7
FARTHEST = 1e60  # place of a cut whose square can be told
# Of a valley that stays, at least: E / sqrt(n), depth, rows of the lesser side as a part of all.
WEAK, SHALLOW, SLIGHT = 0.5, 0.2, 0.05


def move_to_two_means(tree: Tree, scaling: Scaling, X: np.ndarray, counted: Statistics) -> int:
    """Move cuts, from the root down, in place.

    X : (rows, d), in the units of the user. counted : rows at this tree. Returns how many cuts were moved.
    """
    thresholds, _ = tree.frozen()
    if not (np.abs(thresholds) <= FARTHEST).all():
        return 0  # learning diverged, or values are too large to be unscaled
    Z = scaling.apply(X[:: -(-len(X) // MOST_ROWS)])
    stays = _has_weak_valley(counted)
    moved = 0
    stack = [(1, Z, False)]
    while stack:
        node, here, anew = stack.pop()
        i = node - 1
        if node >= 1 << min(LEVELS, tree.depth) or len(here) < LEAST_ROWS:
            continue
        direction, threshold = tree.directions[i], float(thresholds[i])
        if anew or not stays[i]:
            found = two_means(here, direction)
            if found is None:
                continue
            direction, threshold = found
            tree.put(node, direction, threshold, here, hold=False)
            moved, anew = moved + 1, True
        left = np.einsum("ij,j->i", here, direction) < threshold
        stack += [(2 * node, here[left], anew), (2 * node + 1, here[~left], anew)]
    return moved


def _has_weak_valley(counted: Statistics) -> np.ndarray:
    """Of each split that may be moved, (at most 2^LEVELS - 1,): it has a valley that may be an accident."""
    H = counted.histograms[: (1 << LEVELS) - 1]
    rows, lesser = H.sum(axis=1), np.minimum(H[:, :HALF].sum(axis=1), H[:, HALF:].sum(axis=1))
    weak: np.ndarray = excess_mass(H, rows) >= WEAK
    return weak & (valley_depths(H, rows) >= SHALLOW) & (lesser >= SLIGHT * rows)


def two_means(Z: np.ndarray, towards: np.ndarray) -> tuple[np.ndarray, float] | None:
    """The cut of rows Z (n, d) into two parts of least squares that is found from the direction of most
    variance, sought from `towards` (d,): its direction (d,), unit, and threshold; None of rows all alike."""
    mean = Z.mean(axis=0)
    most = max(LEAST_ROWS, min(SOUGHT_ROWS, SOUGHT_CELLS // Z.shape[1]))
    Y = Z[:: -(-len(Z) // most)] - mean
    ends = TAILS * Y.std(axis=0)
    Y = np.clip(Y, -ends, ends)
    # By einsum, which has one thread: BLAS adds up in another order where it has more.
    direction = towards
    for _ in range(TURNS):
        turned = np.einsum("ij,i->j", Y, np.einsum("ij,j->i", Y, direction))
        length = np.linalg.norm(turned)
        if length == 0.0:
            return None
        direction = turned / length
    left = np.einsum("ij,j->i", Y, direction) < 0.0
    middle, sd = 0.0, 0.0
    for _ in range(STEPS):
        if left.all() or not left.any():
            return None
        means = Y[left].mean(axis=0), Y[~left].mean(axis=0)
        apart = means[1] - means[0]
        direction = apart / np.linalg.norm(apart)
        middle = float(direction @ (means[0] + means[1])) / 2.0
        p = np.einsum("ij,j->i", Y, direction)
        sd = float(p.std())
        before, left = left, p < middle
        if np.array_equal(before, left):
            break
    middle = min(max(middle, -BALANCED * sd), BALANCED * sd)
    return direction, middle + float(direction @ mean)
