"""Rows of one node -> the place where a cut along one of their features is worth most. Compiled.

What E and delta are is said in core.pruning; here they are had for many features in one call.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from imdh_cli.compiled.histogram import BINS, HALF, HALVED_GAUSSIAN, LEAST_BANDWIDTH, PER_SD
from imdh_cli.compiled.kernel import FASTMATH, NATURAL
from imdh_cli.compiled.memory import aligned
from imdh_cli.compiled.native_cache import compiled as _compiled

BEYOND = HALF  # as in core.pruning.valleys
WIDE = BINS + 2 * BEYOND - 2
LEVELS = 32
RATIO = 0.8
SLACK = 0.3  # by which a depth told from boxes may be less than that of the smoothed density
TOGETHER = 24  # features
FLAT = 1e-9  # sd of a feature along which there is nothing to see


LANES = 8  # levels that are looked at together
# Where their parts of a work array begin: of each level, and of each edge and level.
LAM, LOW, HIGH, MOST = range(0, 4 * LANES, LANES)
LEFT, RIGHT, REST = range(4 * LANES, (4 + 3 * (BINS + 1)) * LANES, (BINS + 1) * LANES)


class Work(NamedTuple):
    """What `best_places` works in: quantities by edge or by distance, and by edge and level."""

    rows: np.ndarray
    lanes: np.ndarray

    @classmethod
    def new(cls) -> Work:
        return cls(aligned(12, 2 * WIDE), aligned(REST + (BINS + 1) * LANES))


def make_work() -> Work:
    """Work arrays for `best_places`."""
    return Work.new()


@_compiled(forceinline=True)
def _excess_at(below, edges, top, reach, lanes, excess):
    """E at the edges within `reach` of the middle of one histogram, and the largest of them.

    below, edges : (129,), rows below each edge, and where it is. lanes : work, flat, so that the compiler
    sees how far apart its parts are. excess : (129,), in and out, the largest so far. Eight levels are swept
    together, as a vector: a level waits for its own last step.
    """
    best = 0.0
    lam = top
    for _ in range(LEVELS // LANES):
        for j in range(LANES):
            lam *= RATIO
            lanes[LAM + j] = lam
            lanes[LOW + j] = 1e300
            lanes[HIGH + j] = -1e300
            lanes[MOST + j] = 0.0
        for e in range(BINS + 1):  # the best interval that ends at e
            rows, edge = below[e], edges[e]
            for j in range(lanes.shape[0] - REST - LANES * BINS):
                s = rows - edge * lanes[LAM + j]
                low = min(lanes[LOW + j], s)
                lanes[LOW + j] = low
                lanes[LEFT + LANES * e + j] = s - low
        for e in range(BINS, -1, -1):  # that begins at e, and the best that begins at or behind it
            rows, edge = below[e], edges[e]
            for j in range(lanes.shape[0] - REST - LANES * BINS):
                s = rows - edge * lanes[LAM + j]
                high = max(lanes[HIGH + j], s)
                most = max(lanes[MOST + j], high - s)
                lanes[HIGH + j] = high
                lanes[MOST + j] = most
                lanes[RIGHT + LANES * e + j] = high - s
                lanes[REST + LANES * e + j] = most
        for j in range(LANES):
            lanes[MOST + j] = 0.0
        for e in range(HALF + reach + 1):
            for j in range(lanes.shape[0] - REST - LANES * BINS):
                left = lanes[LEFT + LANES * e + j]
                most, other = max(lanes[MOST + j], left), lanes[REST + LANES * e + j]
                lanes[MOST + j] = most
                both = most + other - left - lanes[RIGHT + LANES * e + j]
                lanes[LOW + j] = min(min(most, other), both)
            if e >= HALF - reach:
                for j in range(LANES):
                    excess[e] = max(excess[e], lanes[LOW + j])
                best = max(best, excess[e])
    return best


@_compiled(forceinline=True)
def _may_be_deep(below, edges, width, least, deep, reach, boxes, left, may_be):
    """Where a cut with enough rows on either side may have a valley so deep, as told from boxes of `width`
    bins about each edge: it takes a tenth of the time, and most features have none. Returns whether anywhere.

    may_be : (129,), out, 1 at such edges. boxes, left : (129,), work.
    """
    n = below[BINS]
    half = width // 2
    most = 0.0
    for e in range(BINS + 1):
        low, high = max(e - half, 0), min(e + half, BINS)
        boxes[e] = (below[high] - below[low]) / (edges[high] - edges[low])
        most = max(most, boxes[e])
        left[e] = most
    most = 0.0
    some = False
    for e in range(BINS, -1, -1):
        most = max(most, boxes[e])
        enough = abs(e - HALF) <= reach and min(below[e], n - below[e]) > least
        here = enough and boxes[e] <= (1.0 - deep) * min(most, left[e])
        may_be[e] = 1.0 if here else 0.0
        some |= here
    return some


@_compiled()
def _depth_at(e, below, sums, squares, of_halved, wide, weight, density):
    """delta of a cut at an edge, as in core.pruning.valleys.

    below, sums, squares : (129,), rows below each edge, and the sums of their bins' middles and of these
    squared. of_halved : bandwidth by the sd about a side's mean. wide : (254,). weight, density : work.
    """
    low, n = below[e], below[BINS]
    spread = squares[BINS]
    if low > 0.0:
        spread -= sums[e] * sums[e] / low
    if n > low:
        spread -= (sums[BINS] - sums[e]) ** 2 / (n - low)
    h = max(of_halved * math.sqrt(max(0.0, spread) / n), LEAST_BANDWIDTH)
    far = min(int(9.0 * h) + 2, WIDE - 1)  # bins beyond which a weight is under 1e-17
    for k in range(2 * far + 2):  # by distance in half bins
        weight[k] = math.exp(-0.5 * (0.5 * k / h) ** 2)
    for b in range(BINS):
        density[b] = 0.0
    for k in range(-far, far + 1):  # all bins at once, a vector
        part = weight[2 * abs(k)]
        shift = BEYOND - 1 + k
        for b in range(max(0, -shift), min(BINS, WIDE - shift)):
            density[b] += wide[(b + shift) & NATURAL] * part
    most_left, most_right, total = 0.0, 0.0, 0.0
    for b in range(e):
        most_left = max(most_left, density[b])
    for b in range(e, BINS):
        most_right = max(most_right, density[b])
    at = e + BEYOND - 1
    for i in range(max(0, at - far), min(WIDE, at + far + 1)):
        total += wide[i] * weight[abs(2 * (at - i) - 1)]
    lesser = min(most_left, most_right)
    return max(0.0, 1.0 - total / lesser) if lesser > 0.0 else 0.0


@_compiled()
def best_places(H, rows, significant, deep, reach, work, worth, place, depth):
    """Of each histogram (g, 128) int64 the place worth most.

    rows : (g,) int64, those of the node. significant : what E / sqrt(rows) must exceed. deep : what the depth
    must reach. reach : bins about the middle, either side, among which a place is sought. work : of
    `make_work`. Out, (g,): worth (0: none), place (an edge), depth.
    """
    w = work.rows
    below, sums, squares, excess, may_be = w[0], w[1], w[2], w[3], w[4]
    at_edge, boxes, left, weight = w[5], w[6], w[7], w[8]
    density, edges, wide = w[9], w[10], w[11]
    for e in range(BINS + 1):
        edges[e] = e
    edges[0] -= BEYOND - 1.0
    edges[BINS] += BEYOND - 1.0
    first, last = HALF - reach, HALF + reach
    for j in range(H.shape[0]):
        worth[j] = 0.0
        place[j] = HALF
        depth[j] = 0.0
        top = 0.0
        for b in range(BINS):
            rows_here, x = float(H[j, b]), b + 0.5 - HALF
            below[b + 1] = below[b] + rows_here
            sums[b + 1] = sums[b] + rows_here * x
            squares[b + 1] = squares[b] + rows_here * x * x
            top = max(top, rows_here / (BEYOND if b == 0 or b == BINS - 1 else 1.0))
        if top == 0.0:
            continue
        n = rows[j]
        of_halved = 1.06 * float(n) ** -0.2 / math.sqrt(HALVED_GAUSSIAN)
        width = max(2, 2 * int(0.5 * of_halved * PER_SD + 0.5))
        least = significant * math.sqrt(n)
        excess[:] = 0.0
        may_be[:] = 1.0
        if deep > 0.0 and not _may_be_deep(
            below, edges, width, least, deep - SLACK, reach, boxes, left, may_be
        ):
            continue
        if _excess_at(below, edges, top, reach, work.lanes, excess) <= least:
            continue
        for i in range(WIDE):
            b = min(max(i - BEYOND + 1, 0), BINS - 1)
            wide[i] = H[j, b] / (BEYOND if b == 0 or b == BINS - 1 else 1.0)
        # A depth is dear, and 1 at most: an edge is worth no more than E. First that of the largest E.
        largest, sure = first, 0.0
        for e in range(first, last + 1):
            excess[e] *= may_be[e]
            if excess[e] > excess[largest]:
                largest = e
        if excess[largest] <= least:
            continue
        at_edge[largest] = _depth_at(largest, below, sums, squares, of_halved, wide, weight, density)
        if at_edge[largest] >= deep:
            sure = excess[largest] * at_edge[largest]
        value = 0.0
        low, high = 0, 0
        for e in range(first, last + 1):
            if excess[e] <= least or excess[e] < max(sure, value) * (1.0 - 1e-9):
                continue
            if e != largest:
                at_edge[e] = _depth_at(e, below, sums, squares, of_halved, wide, weight, density)
            if at_edge[e] < deep:
                continue
            here = excess[e] * at_edge[e]
            if here > value * (1.0 + 1e-9):
                value, low, high = here, e, e
            elif here >= value * (1.0 - 1e-9) and value > 0.0:
                high = e
        if value > 0.0:
            middle = (low + high + 1) // 2
            delta = at_edge[low]
            if middle != low and excess[middle] > least:
                there = _depth_at(middle, below, sums, squares, of_halved, wide, weight, density)
                if there >= deep:
                    low, delta = middle, there
            place[j], worth[j], depth[j] = low, excess[low] * delta, delta


@_compiled(fastmath=FASTMATH)
def project(Z, rows, direction, out):
    """v.z of some rows. Z : (n, d). rows : (k,) int64. direction : (d,). out : (k,)."""
    d = Z.shape[1]
    for k in range(rows.shape[0]):
        row = rows[k] & NATURAL
        p = 0.0
        for f in range(d):
            p += direction[f] * Z[row, f]
        out[k] = p


@_compiled()
def feature_histograms(Z, rows, clipped, mean, deviation, scale, H, counted):
    """Histograms of the features of some rows about their mean, in bins of 1/16 of their sd.

    Z : (n, d). rows : (k,) int64. clipped : (n,) bool, rows that count for nothing. scale : (d,), work.
    Out: mean, deviation (d,), H (d, 128) int64, nothing where a feature has no spread, counted (1,) int64, of
    how many rows.
    """
    d = Z.shape[1]
    mean[:] = 0.0
    deviation[:] = 0.0
    H[:] = 0
    n = 0
    for k in range(rows.shape[0]):
        row = rows[k]
        if clipped[row]:
            continue
        n += 1
        for f in range(d):
            mean[f] += Z[row, f]
            deviation[f] += Z[row, f] * Z[row, f]
    counted[0] = n
    if n == 0:
        return
    for f in range(d):
        mean[f] /= n
        deviation[f] = math.sqrt(max(0.0, deviation[f] / n - mean[f] * mean[f]))
        scale[f] = PER_SD / deviation[f] if deviation[f] > FLAT else 0.0
    for first in range(0, d, TOGETHER):  # histograms that the nearest cache holds
        for k in range(rows.shape[0]):
            row = rows[k] & NATURAL
            if clipped[row]:
                continue
            for f in range(first, min(first + TOGETHER, d)):
                u = (Z[row, f] - mean[f]) * scale[f] + HALF
                H[f, np.int64(min(max(u, 0.0), BINS - 1.0)) & NATURAL] += 1
    for f in range(d):
        if scale[f] == 0.0:
            H[f, :] = 0
