"""The last rows met and a tree under way -> the same tree, cuts moved to single features where better.

Small steps find the valley near where they began. Where one of many features tells clusters apart that is
none at all: the direction is a mixture of all of them. So the last rows met are kept, and now and then
walked down the tree from the root: at each split, each feature has a place where a cut would be worth most
(the worth of relocation), judged on the rows that stand there, as the present cut is. If that is worth GAIN
times as much, the cut moves there, and what is below starts anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from imdh_cli.compiled import kernel, valleys
from imdh_cli.compiled.histogram import BINS, HALF, PER_SD
from imdh_cli.compiled.native_cache import prepared
from imdh_cli.core.pruning import SIGNIFICANT
from imdh_cli.core.tree import HELD, Scaling, Tree

SAMPLE_ROWS = 16_384
SAMPLE_BYTES = 32 << 20
LEAST_ROWS = 200  # of a node whose features are looked at
GAIN = 4.0  # how many times the worth of the present cut a better one must have
DEEP = 0.8  # the least depth of a valley along one feature
EMPTY = 0.8
TRIES = 8  # of the best features, until one is as good when looked at again
REACH = 48  # bins from the mean within which a place is sought


def sample_rows(d: int) -> int:
    """How many rows of d features a `Sample` holds."""
    return max(1024, min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * d)))


class Sample:
    """The last rows met, as they were learned from. Blocks are held, not copied, until rows are asked for."""

    def __init__(self, d: int) -> None:
        self._size = sample_rows(d)
        self._blocks = [np.empty((0, d))]
        self._met = 0
        self._due_at = SAMPLE_ROWS

    def add(self, X: np.ndarray) -> None:
        """Take in the next rows, which are not to be changed."""
        X = X[-self._size :]
        self._met += len(X)
        self._blocks.append(X)
        while sum(map(len, self._blocks[1:])) >= self._size:
            del self._blocks[0]

    def is_due(self, between_epochs: bool) -> bool:
        """Whether the tree should be looked through: between epochs, and in the first one when it holds all
        rows it can and at four times as many rows; each time costs as much as learning from 30,000 rows."""
        due = between_epochs or self._met >= self._due_at
        if due:
            self._due_at = 4 * max(self._met, self._due_at)
        return due

    def rows(self, last: int | None = None) -> np.ndarray:
        """What is held, as in a ring; or where fewer are wanted, the `last` rows met."""
        X = np.concatenate(self._blocks)[-self._size :]
        if last is None or last >= len(X):
            return np.roll(X, self._met, axis=0)
        return X[len(X) - last :]

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, for a checkpoint."""
        return {"sample_rows": self.rows(), "sample_met": np.array([self._met, self._due_at])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self._met, self._due_at = map(int, state["sample_met"])
        self._blocks = [np.roll(state["sample_rows"], -self._met, axis=0)]


def significant(features: int) -> float:
    """E / sqrt(n) beyond which the best of so many features is no accident."""
    return float(np.sqrt(1.6**2 + np.log(features) / 5.0))


def move_to_features(
    tree: Tree, scaling: Scaling, X: np.ndarray, without: np.ndarray, *, hold: bool = False
) -> int:
    """Move cuts, from the root down, in place.

    X : (rows, d), rows as they were learned from. without : features that are no candidates: what lies on a
    pile is a group along that feature, and none beside others. hold : those that move do not learn any more.
    Returns how many cuts were moved.
    """
    rows, d = X.shape
    Z, clipped = np.empty((rows, d)), np.empty(rows, dtype=np.bool_)
    kernel.standardise(X, scaling.center, scaling.scale, scaling.fill, scaling.limit, Z, clipped)
    thresholds, _ = tree.frozen()
    m = len(tree.offsets)
    mean, deviation, scale, H = np.empty(d), np.empty(d), np.empty(d), np.empty((d, BINS), dtype=np.int64)
    counted, work = np.empty(1, dtype=np.int64), prepared(valleys.make_work())
    worth, place, depths = np.empty(d), np.empty(d, dtype=np.int64), np.empty(d)
    all_rows = prepared(Z), prepared(clipped)
    told = [prepared(array) for array in (mean, deviation, scale, H, counted)]
    sought = [prepared(array) for array in (worth, place, depths)]
    moved = 0
    stack = [(1, np.arange(rows), False)]
    while stack:
        node, here, fresh = stack.pop()
        i = node - 1
        if node > m or len(here) < LEAST_ROWS:
            continue
        valleys.feature_histograms(all_rows[0], here, all_rows[1], *told)
        n = int(counted[0])
        if n < LEAST_ROWS:
            continue
        known = not fresh and tree.learned[i] > 0 and tree.variances[i] > 0
        valleys.best_places(told[3], counted.repeat(d), significant(d), DEEP, REACH, work, *sought)
        worth[without] = 0.0
        p = np.empty(len(here))
        valleys.project(all_rows[0], here, tree.directions[i], p)
        cut = thresholds[i]
        own = 0.0
        counted_rows = ~clipped[here] if worth.any() else np.empty(0, dtype=np.bool_)
        if known and len(counted_rows):
            u = (p[counted_rows] - cut) / np.sqrt(tree.variances[i])
            own, _ = _judge(u, n, SIGNIFICANT, 0.0, work)
        took = False
        for best in np.argsort(-worth, kind="stable")[:TRIES].tolist():
            if worth[best] <= GAIN * own:
                break
            # Again about the cut, as the present one is judged: about the mean, end bins hold more of a tail.
            at = mean[best] + deviation[best] * (place[best] - HALF) / PER_SD
            u = (Z[here[counted_rows], best] - at) / deviation[best]
            value, depth = _judge(u, n, significant(d), DEEP, work)
            if value > GAIN * own:
                took, cut = True, at
                break
        if took:
            moved += 1
            tree.directions[i] = 0.0
            tree.directions[i, best] = 1.0
            tree.start_below(node)
            if hold or not known:
                tree.pivots[i], tree.learned[i] = mean, HELD if hold else n
                tree.mean_squares[i] = (deviation**2).mean()
            tree.variances[i] = deviation[best] ** 2
            tree.offsets[i] = cut - tree.pivots[i, best]
            tree.anchors[i] = tree.offsets[i] if depth >= EMPTY else 0.0
            p = Z[here, best]
        elif not known:
            continue
        left = p < cut
        stack += [(2 * node, here[left], fresh or took), (2 * node + 1, here[~left], fresh or took)]
    return moved


def _judge(u: np.ndarray, n: int, least: float, deep: float, work: Any) -> tuple[float, float]:
    """Worth and depth of a cut at 0 of projections u (n,) in sds; 0 where E <= least sqrt(n)."""
    bins = np.clip(np.floor(u * PER_SD) + HALF, 0, BINS - 1).astype(np.int64)
    H = np.bincount(bins, minlength=BINS)[None]
    worth, place, depth = np.empty(1), np.empty(1, dtype=np.int64), np.empty(1)
    valleys.best_places(H, np.array([n]), least, deep, 0, work, worth, place, depth)
    return float(worth[0]), float(depth[0])
