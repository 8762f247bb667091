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
NEARLY = 1.0 - 1e-6  # of the best worth: edges that are less at most have no part in which is the place
FLAT = 1e-9  # sd of a feature along which there is nothing to see


# Rows of a work array. By edge: rows below, where it is, sums of the middles of the bins below and of these
# squared, E, whether there may be a valley, its depth, what that is at most; work. By bin: counts, end bins
# spread out; density. By distance in half bins: weights.
BELOW, EDGES, SUMS, SQUARES, EXCESSES, MAY_BE, AT_EDGE, AT_MOST, BOXES, LEFT = range(10)
WIDE_BINS, DENSITY, WEIGHT = range(10, 13)
LANES = 16  # levels that are looked at together
# Where their parts of a work array begin: of each level, and of each edge and level.
LAM, LOW, HIGH, MOST = range(0, 4 * LANES, LANES)
RIGHT, REST, EXCESS = range(4 * LANES, (4 + 3 * (BINS + 1)) * LANES, (BINS + 1) * LANES)


class Work(NamedTuple):
    """What `best_places` works in: quantities by edge or by distance, and by edge and level."""

    rows: np.ndarray
    lanes: np.ndarray

    @classmethod
    def new(cls) -> Work:
        return cls(aligned(WEIGHT + 1, 2 * WIDE), aligned(EXCESS + (BINS + 1) * LANES))


def make_work() -> Work:
    """Work arrays for `best_places`."""
    return Work.new()


@_compiled(forceinline=True)
def _excess_at(below, edges, top, reach, lanes, excess):
    """E at the edges within `reach` of the middle of one histogram, and the largest of them.

    below, edges : (129,), rows below each edge, and where it is. lanes : work, flat, so that the compiler
    sees how far apart its parts are. excess : (129,), out. LANES levels are swept together, as vectors: a
    level waits for its own last step.
    """
    first, last = HALF - reach, HALF + reach
    for at in range(EXCESS + LANES * first, EXCESS + LANES * (last + 1)):
        lanes[at] = 0.0
    lam = top
    for _ in range(LEVELS // LANES):
        for j in range(LANES):
            lam *= RATIO
            lanes[LAM + j] = lam
            lanes[LOW + j] = 1e300
            lanes[HIGH + j] = -1e300
            lanes[MOST + j] = 0.0
        for e in range(BINS, first - 1, -1):  # the best interval that begins at e, or at or behind it
            rows, edge = below[e], edges[e]
            for j in range(lanes.shape[0] - EXCESS - LANES * BINS):
                s = rows - edge * lanes[LAM + j]
                high = max(lanes[HIGH + j], s)
                most = max(lanes[MOST + j], high - s)
                lanes[HIGH + j] = high
                lanes[MOST + j] = most
                lanes[RIGHT + LANES * e + j] = high - s
                lanes[REST + LANES * e + j] = most
        for j in range(LANES):
            lanes[MOST + j] = 0.0
        for e in range(first):  # the best one that ends at or before e
            rows, edge = below[e], edges[e]
            for j in range(lanes.shape[0] - EXCESS - LANES * BINS):
                s = rows - edge * lanes[LAM + j]
                low = min(lanes[LOW + j], s)
                lanes[LOW + j] = low
                lanes[MOST + j] = max(lanes[MOST + j], s - low)
        for e in range(first, last + 1):  # and what those on both sides are worth
            rows, edge = below[e], edges[e]
            for j in range(lanes.shape[0] - EXCESS - LANES * BINS):
                s = rows - edge * lanes[LAM + j]
                low = min(lanes[LOW + j], s)
                left = s - low
                most, other = max(lanes[MOST + j], left), lanes[REST + LANES * e + j]
                lanes[LOW + j] = low
                lanes[MOST + j] = most
                both = most + other - left - lanes[RIGHT + LANES * e + j]
                lesser = min(min(most, other), both)
                lanes[EXCESS + LANES * e + j] = max(lanes[EXCESS + LANES * e + j], lesser)
    best = 0.0
    for e in range(first, last + 1):
        here = 0.0
        for j in range(LANES):
            here = max(here, lanes[EXCESS + LANES * e + j])
        excess[e] = here
        best = max(best, here)
    return best


@_compiled(forceinline=True)
def _may_be_deep(below, edges, width, least, deep, reach, boxes, left, may_be):
    """Where a cut with enough rows on either side may have a valley so deep, as told from boxes of `width`
    bins about each edge: it takes a tenth of the time, and most features have none. Returns whether anywhere.

    may_be : (129,), out, 1 at such edges. boxes, left : (129,), work.
    """
    n = below[BINS]
    half = width // 2
    inner = max(0, BINS - 1 - 2 * half)  # edges whose boxes end before the end bins: a vector
    low, high, box = below[1 : 1 + inner], below[1 + 2 * half :], boxes[half + 1 : half + 1 + inner]
    for k in range(box.shape[0]):
        box[k] = (high[k] - low[k]) / width
    most = 0.0
    for e in range(BINS + 1):
        if e <= half or e >= BINS - half:
            begin, end = max(e - half, 0), min(e + half, BINS)
            boxes[e] = (below[end] - below[begin]) / (edges[end] - edges[begin])
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


@_compiled(forceinline=True)
def _bandwidth_at(e, of_halved, w):
    """The bandwidth for a cut at an edge, in bins, as in core.pruning.valleys."""
    below, sums, squares = w[BELOW], w[SUMS], w[SQUARES]
    low, n = below[e], below[BINS]
    spread = squares[BINS]
    if low > 0.0:
        spread -= sums[e] * sums[e] / low
    if n > low:
        spread -= (sums[BINS] - sums[e]) ** 2 / (n - low)
    return max(of_halved * math.sqrt(max(0.0, spread) / n), LEAST_BANDWIDTH)


@_compiled(forceinline=True)
def _weigh(h, first, step, weight):
    """Weights by distance in half bins, in place, those beyond bins of which one is under 1e-17 left out.
    Returns how many bins that are."""
    far = min(int(9.0 * h) + 2, WIDE - 1)
    for k in range(first, 2 * far + 2, step):
        weight[k] = math.exp(-0.5 * (0.5 * k / h) ** 2)
    return far


@_compiled()
def _smooth(far, wide, weight, density):
    """The density in all bins, in place."""
    density[:BINS] = 0.0
    for k in range(-far, far + 1):  # all bins at once, a vector
        part = weight[2 * abs(k)]
        shift = BEYOND - 1 + k
        begin, end = max(0, -shift), min(BINS, WIDE - shift)
        of, to = wide[begin + shift : end + shift], density[begin:end]
        for b in range(to.shape[0]):
            to[b] += of[b] * part


@_compiled(forceinline=True)
def _at_edge(e, far, wide, weight):
    """The density at an edge."""
    total = 0.0
    at = e + BEYOND - 1
    for i in range(max(0, at - far), min(WIDE, at + far + 1)):
        total += wide[i] * weight[abs(2 * (at - i) - 1)]
    return total


@_compiled()
def _depth_at(e, of_halved, w):
    """delta of a cut at an edge, as in core.pruning.valleys. of_halved : bandwidth by the sd about a side's
    mean."""
    wide, weight, density = w[WIDE_BINS], w[WEIGHT], w[DENSITY]
    far = _weigh(_bandwidth_at(e, of_halved, w), 0, 1, weight)
    _smooth(far, wide, weight, density)
    most_left, most_right = 0.0, 0.0
    for b in range(e):
        most_left = max(most_left, density[b])
    for b in range(e, BINS):
        most_right = max(most_right, density[b])
    lesser = min(most_left, most_right)
    return max(0.0, 1.0 - _at_edge(e, far, wide, weight) / lesser) if lesser > 0.0 else 0.0


@_compiled(forceinline=True)
def _most_depths(first, last, enough, of_halved, w):
    """What cuts at some edges have for a depth at most, and which of them is worth most by that.

    Their bandwidths differ little. A density (not divided by its area) is nowhere less with the widest of
    them, and nowhere more with the narrowest, so that two of them tell what else each edge has two for: a
    tenth of the edges is left to be looked at. enough : E of these edges.
    """
    excess, left, at_most = w[EXCESSES], w[LEFT], w[AT_MOST]
    wide, weight, density = w[WIDE_BINS], w[WEIGHT], w[DENSITY]
    narrowest, widest = math.inf, 0.0
    for e in range(first, last + 1):
        if excess[e] >= enough:
            h = _bandwidth_at(e, of_halved, w)
            narrowest, widest = min(narrowest, h), max(widest, h)
    far = _weigh(widest, 0, 2, weight)
    _smooth(far, wide, weight, density)
    left[0] = 0.0
    for b in range(BINS):
        left[b + 1] = max(left[b], density[b])
    far = _weigh(narrowest, 1, 2, weight)
    likely, most, right = first, -1.0, 0.0
    for e in range(last, first - 1, -1):
        for b in range(e, BINS if e == last else e + 1):
            right = max(right, density[b])
        if excess[e] >= enough:
            at_most[e] = 1.0 - _at_edge(e, far, wide, weight) / min(left[e], right)
            if excess[e] * at_most[e] > most:
                likely, most = e, excess[e] * at_most[e]
    return likely


@_compiled()
def best_places(H, rows, significant, deep, reach, work, worth, place, depth):
    """Of each histogram (g, 128) int64 the place worth most.

    rows : (g,) int64, those of the node. significant : what E / sqrt(rows) must exceed. deep : what the depth
    must reach. reach : bins about the middle, either side, among which a place is sought. work : of
    `make_work`. Out, (g,): worth (0: none), place (an edge), depth.
    """
    w = work.rows
    below, edges, sums, squares = w[BELOW], w[EDGES], w[SUMS], w[SQUARES]
    excess, may_be, at_edge, at_most = w[EXCESSES], w[MAY_BE], w[AT_EDGE], w[AT_MOST]
    boxes, left, wide = w[BOXES], w[LEFT], w[WIDE_BINS]
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
            rows_here = float(H[j, b])
            below[b + 1] = below[b] + rows_here
            top = max(top, rows_here / (BEYOND if b == 0 or b == BINS - 1 else 1.0))
        if top == 0.0:
            continue
        n = rows[j]
        of_halved = 1.06 * float(n) ** -0.2 / math.sqrt(HALVED_GAUSSIAN)
        width = max(2, 2 * int(0.5 * of_halved * PER_SD + 0.5))
        least = significant * math.sqrt(n)
        may_be[:] = 1.0
        if deep > 0.0 and not _may_be_deep(
            below, edges, width, least, deep - SLACK, reach, boxes, left, may_be
        ):
            continue
        if _excess_at(below, edges, top, reach, work.lanes, excess) <= least:
            continue
        for b in range(BINS):
            rows_here, x = float(H[j, b]), b + 0.5 - HALF
            sums[b + 1] = sums[b] + rows_here * x
            squares[b + 1] = squares[b] + rows_here * x * x
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
        at_edge[largest] = _depth_at(largest, of_halved, w)
        if at_edge[largest] >= deep:
            sure = excess[largest] * at_edge[largest]
        likely, better = largest, 0.0
        if reach > 0:
            enough = max(least, sure * (1.0 - 1e-9))
            likely = _most_depths(first, last, enough, of_halved, w)
            if likely != largest:
                at_edge[likely] = _depth_at(likely, of_halved, w)
            if at_edge[likely] >= deep:
                better = excess[likely] * at_edge[likely] * NEARLY
        value = 0.0
        low, high = 0, 0
        for e in range(first, last + 1):
            if excess[e] <= least or excess[e] < max(sure, value) * (1.0 - 1e-9):
                continue
            if reach > 0 and (at_most[e] < deep * NEARLY or excess[e] * at_most[e] < better):
                continue
            if e != largest and e != likely:
                at_edge[e] = _depth_at(e, of_halved, w)
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
                there = _depth_at(middle, of_halved, w)
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
