"""Rows of one node -> the place where a cut along one of their features is worth most. Compiled.

What E and delta are is said in core.pruning; here they are had for many features in one call.
"""

from __future__ import annotations

import math

import numpy as np

from imdh_cli.compiled.histogram import BINS, HALF, PER_SD
from imdh_cli.compiled.kernel import FASTMATH, NATURAL
from imdh_cli.compiled.native_cache import compiled as _compiled

BEYOND = HALF  # as in core.pruning.valleys
WIDE = BINS + 2 * BEYOND - 2
LEVELS = 32
RATIO = 0.8
SLACK = 0.3  # by which a depth told from boxes may be less than that of the smoothed density
TOGETHER = 24  # features
FLAT = 1e-9  # sd of a feature along which there is nothing to see


def make_work() -> np.ndarray:
    """Work array for `best_places`."""
    return np.zeros((12, 2 * WIDE))


@_compiled(forceinline=True)
def _excess_at(below, edges, top, reach, left, right, rest, excess):
    """E at the edges within `reach` of the middle of one histogram, and the largest of them.

    below, edges : (129,), rows below each edge, and where it is. left, right, rest : (129,), work. excess :
    (129,), in and out, the largest so far.
    """
    best = 0.0
    lam = top
    for _ in range(LEVELS):
        lam *= RATIO
        low = 0.0
        most = 0.0
        for e in range(BINS + 1):  # the best interval that ends at e, and the best that ends at or before it
            s = below[e] - edges[e] * lam
            low = s if e == 0 else min(low, s)
            left[e] = s - low
        high = below[BINS] - edges[BINS] * lam
        for e in range(BINS, -1, -1):
            s = below[e] - edges[e] * lam
            high = max(high, s)
            right[e] = high - s
            most = max(most, right[e])
            rest[e] = most
        most = 0.0
        for e in range(BINS + 1):
            most = max(most, left[e])
            if abs(e - HALF) > reach:
                continue
            other = rest[e]
            value = min(min(most, other), most + other - left[e] - right[e])
            excess[e] = max(excess[e], value)
            best = max(best, value)
    return best


@_compiled(forceinline=True)
def _may_be_deep(below, edges, width, least, deep, reach, left, right):
    """Whether a cut with enough rows on either side may have a valley so deep, as told from boxes of `width`
    bins about each edge: it takes a tenth of the time, and most features have none."""
    n = below[BINS]
    half = width // 2
    most = 0.0
    for e in range(BINS + 1):
        low, high = max(e - half, 0), min(e + half, BINS)
        left[e] = (below[high] - below[low]) / (edges[high] - edges[low])
        most = max(most, left[e])
        right[e] = most
    most = 0.0
    for e in range(BINS, -1, -1):
        most = max(most, left[e])
        enough = abs(e - HALF) <= reach and min(below[e], n - below[e]) > least
        if enough and left[e] <= (1.0 - deep) * min(most, right[e]):
            return True
    return False


@_compiled()
def best_places(H, rows, significant, deep, reach, work, worth, place, depth):
    """Of each histogram (g, 128) int64 the place worth most.

    rows : (g,) int64, those of the node. significant : what E / sqrt(rows) must exceed. deep : what the depth
    must reach. reach : bins about the middle, either side, among which a place is sought. work : of
    `make_work`. Out, (g,): worth (0: none), place (an edge), depth.
    """
    below, left, right, excess, rest = work[0], work[1], work[2], work[3], work[4]
    at_edge, before, behind, weight = work[5], work[6], work[7], work[8]
    density, edges, wide = work[9], work[10], work[11]
    for e in range(BINS + 1):
        edges[e] = e
    edges[0] -= BEYOND - 1.0
    edges[BINS] += BEYOND - 1.0
    n = 0
    h = 1.0
    width = 2
    first, last = HALF - reach, HALF + reach
    for j in range(H.shape[0]):
        worth[j] = 0.0
        place[j] = HALF
        depth[j] = 0.0
        top = 0.0
        for b in range(BINS):
            below[b + 1] = below[b] + H[j, b]
            top = max(top, H[j, b] / (BEYOND if b == 0 or b == BINS - 1 else 1.0))
        if top == 0.0:
            continue
        if rows[j] != n:
            n = rows[j]
            h = 1.06 * float(n) ** -0.2 * PER_SD
            width = max(2, 2 * int(1.7 * h + 0.5))
            for k in range(2 * WIDE):  # by distance in half bins
                weight[k] = math.exp(-0.5 * (0.5 * k / h) ** 2)
        least = significant * math.sqrt(n)
        excess[:] = 0.0
        if deep > 0.0 and not _may_be_deep(below, edges, width, least, deep - SLACK, reach, left, right):
            continue
        if _excess_at(below, edges, top, reach, left, right, rest, excess) <= least:
            continue
        for i in range(WIDE):
            b = min(max(i - BEYOND + 1, 0), BINS - 1)
            wide[i] = H[j, b] / (BEYOND if b == 0 or b == BINS - 1 else 1.0)
        for b in range(BINS):
            total = 0.0
            for i in range(WIDE):
                total += wide[i] * weight[2 * abs(b + BEYOND - 1 - i)]
            density[b] = total
        most = 0.0
        for b in range(BINS):
            most = max(most, density[b])
            before[b + 1] = most
        most = 0.0
        for b in range(BINS - 1, -1, -1):
            most = max(most, density[b])
            behind[b] = most
        value = 0.0
        low, high = 0, 0
        for e in range(first, last + 1):
            if excess[e] <= least:
                continue
            total = 0.0
            for i in range(WIDE):
                total += wide[i] * weight[abs(2 * (e + BEYOND - 1 - i) - 1)]
            lesser = min(before[e], behind[e])
            delta = max(0.0, 1.0 - total / lesser) if lesser > 0.0 else 0.0
            at_edge[e] = delta
            if delta < deep:
                continue
            here = excess[e] * delta
            if here > value * (1.0 + 1e-9):
                value, low, high = here, e, e
            elif here >= value * (1.0 - 1e-9) and value > 0.0:
                high = e
        if value > 0.0:
            place[j] = (low + high + 1) // 2
            if excess[place[j]] <= least or at_edge[place[j]] < deep:
                place[j] = low
            worth[j] = excess[place[j]] * at_edge[place[j]]
            depth[j] = at_edge[place[j]]


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
