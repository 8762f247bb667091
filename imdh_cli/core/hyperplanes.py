"""A tree under way and the last rows met -> the same tree, cuts moved to hyperplanes small steps do not find.

Where features depend on each other, small steps go where the variance is. A valley across a direction of
little variance they never meet, and leave if they are put there. So now and then the last rows met are walked
down the tree from the root, and at each split a minimum density hyperplane is sought on half of the rows:

    starts    in coordinates in which all directions have the same variance: those of least kurtosis
              (eigenvectors of E |y|^2 y y': Cardoso's FOBI, Tyler's invariant coordinates), since clusters of
              like size flatten a projection; the first principal component; the present direction
    search    L-BFGS, with a wide bandwidth first and narrower ones from there
    judgement on the other half of the rows, where nothing was fitted; of the present cuts on that half too

The cut moves there where the valley has depth and mass and is worth (E delta, as in relocation) several times
all that stands at and below it now. It is then held: it does not learn any more. What is below is looked at
in the same way, with nothing there to be lost, or starts anew. Judged on the rows that it was sought on, a
hyperplane always looks better.

Measured: of 3 to 11 clusters in a few rotated directions, of less variance than all others, none were found
before and most or all are. On real tables most cuts stay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from imdh_cli.compiled import hyperplanes, kernel, valleys
from imdh_cli.compiled.histogram import BINS, HALF, PER_SD
from imdh_cli.compiled.native_cache import prepared
from imdh_cli.core.pruning import SIGNIFICANT
from imdh_cli.core.tree import HELD, Scaling, Tree

LEVELS = 4  # of splits that are looked at
LEAST_ROWS = 1000  # of a node
ROWS_PER_FEATURE = 8  # that a search must have: fewer find a valley in anything
SOUGHT_ROWS = 2000  # at most, and
SOUGHT_CELLS = 80_000
LEAST_JUDGED = 100  # rows of a split whose worth is counted
GAIN = 4.0  # how many times the worth of what it stands for a better cut must have
DEEP = 0.5  # least depth of a valley
MASS = 0.05  # least excess mass, of the rows that it is judged on
BANDWIDTHS = np.array([4.0, 2.0, 1.0])
ITERATIONS = np.array([10, 15, 10])
ALPHA, PENALTY = 0.5, 10.0
FLATTEST = 3  # starts of least kurtosis; those of greatest found nothing more
FLAT = 1e-3  # variance of a principal component, of the first one's, below which there is nothing to see


class Cut(NamedTuple):
    """A hyperplane z.direction = threshold, what it is worth and the depth of its valley."""

    direction: np.ndarray
    threshold: float
    worth: float
    depth: float


def move_to_hyperplanes(tree: Tree, scaling: Scaling, X: np.ndarray) -> int:
    """Move cuts, from the root down, in place.

    X : (rows, d), rows as they were learned from, none of them twice. Returns how many cuts were moved.
    """
    d = X.shape[1]
    Z, clipped = np.empty(X.shape), np.empty(len(X), dtype=np.bool_)
    kernel.standardise(X, scaling.center, scaling.scale, scaling.fill, scaling.limit, Z, clipped)
    rows = np.flatnonzero(~clipped)
    lost = _worth_at_and_below(tree, Z, rows[1::2])
    thresholds, _ = tree.frozen()
    moved = 0
    stack = [(1, rows[::2], rows[1::2], False)]
    while stack:
        node, sought, judged, anew = stack.pop()
        i = node - 1
        if node >= 1 << min(LEVELS, tree.depth) or len(sought) + len(judged) < LEAST_ROWS:
            continue
        if not anew and (tree.learned[i] == 0 or tree.variances[i] == 0.0):
            continue  # what small steps make of it is not known yet
        least = 0.0 if anew else GAIN * lost[node]
        present = Cut(tree.directions[i], float(thresholds[i]), 0.0, 0.0)
        some = sought[:: -(-len(sought) // min(SOUGHT_ROWS, max(1, SOUGHT_CELLS // d)))]
        found = None
        held = tree.learned[i] >= HELD and least > 0.0
        if len(some) >= ROWS_PER_FEATURE * d and least < len(judged) / 2 and not held:  # E is never more
            cuts = minima(Z[some], None if anew else present.direction)
            found = best_cut(cuts, Z[judged], DEEP, MASS) if cuts else None
        if found is not None and found.worth > least:
            here = Z[np.concatenate([sought, judged])]
            tree.put(node, found.direction, found.threshold, here, hold=True)
            moved += 1
            anew, present = True, found
        elif anew:
            continue
        for side, go in ((2 * node, np.less), (2 * node + 1, np.greater_equal)):
            parts = [part[go(Z[part] @ present.direction, present.threshold)] for part in (sought, judged)]
            stack.append((side, *parts, anew))
    return moved


def _worth_at_and_below(tree: Tree, Z: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of each split, by its number, what it and those below are worth together, judged on some rows of Z."""
    m = len(tree.offsets)
    thresholds, _ = tree.frozen()
    worth = np.zeros(2 * m + 2)
    met: list[int] = []
    counts: list[int] = []
    histograms: list[np.ndarray] = []
    held = prepared(Z)
    stack = [(1, np.ascontiguousarray(rows))]
    while stack:
        node, here = stack.pop()
        i = node - 1
        if node > m or len(here) < LEAST_JUDGED or tree.learned[i] == 0 or tree.variances[i] == 0:
            continue
        p = np.empty(len(here))
        valleys.project(held, here, tree.directions[i], p)
        met.append(node)
        counts.append(len(here))
        histograms.append(_histograms(p[:, None], thresholds[i])[0])
        left = p < thresholds[i]
        stack += [(2 * node, here[left]), (2 * node + 1, here[~left])]
    if met:
        worth[met], _ = _judged(np.array(histograms), np.array(counts), SIGNIFICANT)
    for node in reversed(met):
        worth[node] += worth[2 * node] + worth[2 * node + 1]
    return worth


def minima(Z: np.ndarray, present: np.ndarray | None = None) -> list[Cut]:
    """Minimum density hyperplanes of rows Z (n, d), from several starts, not judged.

    present : (d,), a direction to start from as well.
    """
    n, d = Z.shape
    mean = Z.mean(axis=0)
    Z = Z - mean
    C = np.empty((d, d))
    hyperplanes.second_moments(Z, np.ones(n), C)
    variances, components = np.linalg.eigh(C)
    some = variances > max(FLAT * variances[-1], 1e-300)
    if not some.any():
        return []
    variances, components = variances[some][::-1], components[:, some][:, ::-1]
    to_white = components / np.sqrt(variances)
    Y = np.ascontiguousarray(Z @ to_white)
    r = Y.shape[1]
    C = np.empty((r, r))
    hyperplanes.second_moments(Y, np.einsum("ij,ij->i", Y, Y), C)
    starts = [*np.linalg.eigh(C)[1].T[:FLATTEST], np.eye(r)[0]]
    if present is not None:
        starts.append((components * np.sqrt(variances)).T @ present)
    W = np.zeros((len(starts), r + 1))
    W[:, :r] = starts
    W = W[np.linalg.norm(W, axis=1) > 1e-12]
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    values = np.empty(len(W))
    hyperplanes.minimise(
        Y, W, BANDWIDTHS * n**-0.2, ITERATIONS, ALPHA, PENALTY, *hyperplanes.make_work(n, r), values
    )
    V = W[:, :r] @ to_white.T
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    offsets = W[:, r] * (Z @ V.T).std(axis=0)
    return [Cut(v, float(b + v @ mean), 0.0, 0.0) for v, b in zip(V, offsets, strict=True)]


def best_cut(cuts: list[Cut], Z: np.ndarray, deep: float = 0.0, mass: float = 0.0) -> Cut:
    """The cut worth most for rows Z (n, d), judged: worth 0 where none is significant and has that depth and
    that excess mass, as a part of the rows."""
    U = Z @ np.array([cut.direction for cut in cuts]).T
    H = _histograms(U, np.array([cut.threshold for cut in cuts]))
    least = max(SIGNIFICANT, mass * float(np.sqrt(len(Z))))  # of E / sqrt(n)
    worth, depths = _judged(H, np.full(len(cuts), len(Z)), least, deep)
    best = int(np.argmax(worth))
    return cuts[best]._replace(worth=float(worth[best]), depth=float(depths[best]))


def _histograms(U: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Of projections (n, g), in their own sds about the cuts: (g, 128) int64."""
    g = U.shape[1]
    U = (U - thresholds) / np.maximum(U.std(axis=0), 1e-12)
    bins = np.clip(np.floor(U * PER_SD) + HALF, 0, BINS - 1).astype(np.int64) + BINS * np.arange(g)
    return np.bincount(bins.ravel(), minlength=g * BINS).reshape(g, BINS)


def _judged(
    H: np.ndarray, rows: np.ndarray, least: float, deep: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Worth and depth of the cuts in the middle of histograms (g, 128), of so many rows each."""
    g = len(H)
    worth, depths, place = np.empty(g), np.empty(g), np.empty(g, dtype=np.int64)
    valleys.best_places(H, rows, least, deep, 0, valleys.make_work(), worth, place, depths)
    return worth, depths
