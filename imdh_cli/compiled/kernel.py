"""Blocks of standardised rows -> tree arrays, in place. All compiled code, nothing else.

Paper: section 2 (the update rule) and algorithm 1 (one row down the tree). The paper's letters:

    v  direction (unit)     b  offset from the mean     m  mean of the rows met (mu)    t  rows met
    p  v.(z - m)            s  projected sd             h  bandwidth = delta s (t+1)^-q
    rho2  mean square per coordinate                    C, alpha, r, q, delta: see params.LearnParams

A node's state depends only on the sequence of rows that reach it. `learn` uses that twice. At tick k it
takes row k down level 0, row k - 1 down level 1, row k - 2 down level 2 ..., eight different nodes at once,
so that the square roots, quotients and exponentials of eight steps are one vector operation each. And where
a stage has fewer levels than that, rows in subtrees that are apart are taken down together: two streams of
four levels, four of two. Every node still meets its rows one by one in their order: the arrays are those of
the plain double loop (tests/naive.py), and the same whatever the blocks, the streams and however the levels
are shared among threads.

Measured on one thread, depth 8, in million rows a second, plain loop -> this: 1.27 -> 4.3 at d = 20,
1.27 -> 4.8 at d = 5, 0.86 -> 2.0 at d = 100. A tick costs 50 ns and each row in it 20 to 25 (d = 20), so that
levels 0 to 3 take 135 ns a row, levels 4 to 7 160 as one stream and 130 as two. What made the difference
was the number of instructions, which run at three a cycle, and where cache lines begin (tree.aligned,
tree.by_node). Tried and not better: rows padded to whole vectors, four accumulators by hand, the plain loop
with `exp` and `pow` replaced alone, sixteen lanes, three streams of five levels, rows sorted by node, rows
that follow each other at a distance (6 % at d = 784, half the speed at d = 100), learning the mean in a
second sweep, a step that is taken also where it is nothing, histograms counted at the end of a block, leaves
learned and counted in one sweep (3 ns of 18), shorter blocks; for wide rows two or four lanes at a time, one
row through all levels before the next (7 % faster at d = 784, not at 3,072, 1.5 times as long at d = 100),
rows of a subtree together, the step of a direction taken when its node is met the next time, in one sweep
with that row's. There the sweeps take the time, of which three quarters of the rows need the second. A
reach of 5 or 4 h would spare some of them: 2 and 7 % at d = 784, 8 and 4 % slower at d = 100, where it
leaves the processor to guess. The same code for AVX2 alone (NUMBA_CPU_NAME=haswell) takes 7 to 17 % longer.

Flags: sums may be reordered and contracted; tests for NaN stay (`fastmath=True` would drop them), and no
NaN comes this far: `standardise` replaces them. Functions are separate so that each is compiled once, and
in one file because a cached function does not notice an edit in another one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from imdh_cli.compiled.histogram import BINS, PER_SD
from imdh_cli.compiled.memory import aligned
from imdh_cli.compiled.native_cache import compiled as _compiled

FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
MOST_CODES = 20  # distinct values of a column that are kept
SEEN_BITS = 21  # of a hash: of 16,384 different values 64 fall on the bit of another
SEEN = 1 << (SEEN_BITS - 6)
TOGETHER = 16  # rows that `descend` takes down the tree side by side
TURNED = 8  # rows that `turn` makes at a time
LANES = 8  # rows that `learn` takes a step with at once: a vector of float64 in AVX-512, two in AVX2
CANCELLED = 0.9  # |v - g c|^2 below which it is measured: by the formula the rounding of |v| would grow
LEAST_H = 1e-70  # bandwidths below this are none: their squares would leave the range of float64
# |b - p| / h beyond which a row moves no hyperplane: phi is under 1e-16, or, where the paper's steps are
# not free of units and a tiny h makes them huge, under 1e-297.
REACHES = {True: 8.5, False: 37.0}

# Where the quantities of the lanes begin in the work array of `learn`: entry P + j is lane j's.
P, C2, B, RHO2, S2, INV_T, INV_T1, H_PER_S, STEP, INV_H2, BIN, G, A, SHRINK = range(0, 14 * LANES, LANES)
NATURAL = (1 << 62) - 1  # `index & NATURAL` tells the compiler that an index is not counted from the end

# Entries of the `rule` vector, filled by `make_rule`.
ALPHA, PENALTY2, RATE_B, RATE_V, CLAMP, DELTA, INV_D, SCALED, REACH = range(9)

# (t+1)^-q and (t+1)^-r from tables: the top 11 bits of the mantissa, the octave, and a cubic for the rest.
_MANTISSAS, _OCTAVES = 2048, 64
_REST = (1 << 41) - 1
_EXPONENT = _MANTISSAS + _OCTAVES  # where a row of the tables has the exponent, and behind it
_INVERSES = _EXPONENT + 1  # 2^-52 / mantissa

LOG2E = 1.4426950408889634
# 2^f for |f| <= 1/2 to a relative 7e-15: the coefficients of its Taylor polynomial
E1, E2, E3, E4, E5, E6, E7, E8, E9, E10, E11 = (math.log(2.0) ** n / math.factorial(n) for n in range(1, 12))
INV_SQRT_2PI = 0.3989422804014327


class Rows(NamedTuple):
    """A block of rows, stream by stream on its way down.

    Z : (rows, d) float64, finite. order : (rows,) int64, each stream in the order in which its rows are to be
    met. starts : (streams + 1,) int64, where each stream begins in `order`, and the end. node : (rows,)
    int64, the node each row stands at, all of one level. clipped : (rows,) bool, rows that go into no
    histogram.
    """

    Z: np.ndarray
    order: np.ndarray
    starts: np.ndarray
    node: np.ndarray
    clipped: np.ndarray


class Splits(NamedTuple):
    """What is learned of the m splits and n nodes of a tree: see core.tree.Tree.

    directions (m, d), pivots (n, d), learned (n,) int64, offsets, mean_squares, variances (m,). anchors :
    (m,), the offsets about which the penalty and the clamp are, not changed. histograms : (m, 128) int64.
    """

    directions: np.ndarray
    pivots: np.ndarray
    learned: np.ndarray
    offsets: np.ndarray
    mean_squares: np.ndarray
    variances: np.ndarray
    anchors: np.ndarray
    histograms: np.ndarray


class Leaves(NamedTuple):
    """What is learned and counted of rows at leaves: pivots (n, d), learned (n,) int64 of all nodes; counts
    (leaves,) int64, means, squares (leaves, d)."""

    pivots: np.ndarray
    learned: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    squares: np.ndarray


class Rule(NamedTuple):
    """The constants of the update rule (9,), of `make_rule`, and tables of powers, of `make_powers`."""

    constants: np.ndarray
    powers: np.ndarray


class Lanes(NamedTuple):
    """What `learn` works in, one for each thread: quantities (14 * 8,), the rows of a tick (8,) int64."""

    work: np.ndarray
    rows: np.ndarray

    @classmethod
    def new(cls) -> Lanes:
        return cls(aligned(SHRINK + LANES), aligned(LANES, dtype=np.int64))


def compiled_before(*names: str) -> bool:
    """Whether the functions of these names are kept as compiled code, so that no call need compile."""
    return all(globals()[name].is_kept() for name in names)


def make_rule(
    d: int,
    *,
    alpha: float,
    penalty: float,
    bandwidth: float,
    rate: float,
    clamp: float,
    scaled: bool,
) -> np.ndarray:
    """The constants of the update rule for d features, as the vector that `learn` reads, shape (9,)."""
    rule = np.empty(9)
    rule[ALPHA] = alpha
    rule[PENALTY2] = 2.0 * penalty
    rule[RATE_B] = rate
    rule[RATE_V] = rate * math.sqrt(d)
    rule[CLAMP] = clamp * alpha if clamp > 0 else 1e300
    rule[DELTA] = bandwidth
    rule[INV_D] = 1.0 / d
    rule[SCALED] = 1.0 if scaled else 0.0
    rule[REACH] = REACHES[scaled]
    return rule


def make_powers(q: float, r: float) -> np.ndarray:
    """Tables for t^-q and t^-r, shape (2, 2048 + 64 + 1 + 2048), read by `learn`."""
    powers = np.empty((2, _INVERSES + _MANTISSAS))
    mantissas = 1.0 + np.arange(_MANTISSAS) / _MANTISSAS
    for row, exponent in zip(powers, (q, r), strict=True):
        row[:_MANTISSAS] = mantissas**-exponent
        row[_MANTISSAS:_EXPONENT] = 2.0 ** (-exponent * np.arange(_OCTAVES))
        row[_EXPONENT] = exponent
        row[_INVERSES:] = 2.0**-52 / mantissas
    return powers


@_compiled(inline="always")
def _power(t, table):
    """t^-a for t >= 1 from a row of `make_powers`, to a relative 6e-14, without log and exp."""
    bits = np.float64(t).view(np.int64)
    i = (bits >> 41) & (_MANTISSAS - 1)
    octave = ((bits >> 52) - 1023) & (_OCTAVES - 1)
    x = np.float64(bits & _REST) * table[_INVERSES + i]
    a = table[_EXPONENT]
    rest = 1.0 - a * x * (1.0 - (a + 1.0) / 2.0 * x * (1.0 - (a + 2.0) / 3.0 * x))
    return table[i] * table[_MANTISSAS + octave] * rest


@_compiled(inline="always")
def _bin(u):
    """Bin of (p - b) / s, as a float64: 1/16 wide on [-4, 4], the ends clamped into the end bins."""
    return min(max(np.floor(u * PER_SD) + BINS // 2, 0.0), BINS - 1.0)


@_compiled(fastmath=FASTMATH, forceinline=True)
def _step_lanes(work, rule):
    """The scalar part of one step, for all lanes at once, in place.

    work : (14 * 8,) float64. In: P, C2 = |z - m|^2, B, RHO2 and S2 before the step, INV_T = 1 / t,
    INV_T1 = 1 / (t+1), H_PER_S = delta (t+1)^-q, STEP = (t+1)^-r, A the offset that the penalty is about.
    Out: B, RHO2, S2 after the step, INV_H2 = 1 / h^2 (0: no bandwidth, no step), BIN of (p - b) / s before
    it, G the factor of the step along z - m, SHRINK = 1 / |v - g c| (0: to be measured), P after it.
    The loop becomes vector instructions. Its length is read from the array, since a constant makes the
    compiler unroll it into scalar code, and the array is flat, so that it sees the distances between the
    quantities and need not look for overlaps.
    """
    scaled = rule[SCALED] != 0.0
    for j in range(work.shape[0] - SHRINK):
        p, c2, b = work[P + j], work[C2 + j], work[B + j]
        rho2 = work[RHO2 + j] + (c2 * rule[INV_D] - work[RHO2 + j]) * work[INV_T + j]
        s2 = work[S2 + j] + (p * p - work[S2 + j]) * work[INV_T1 + j]
        s = math.sqrt(s2)
        h_per_s = work[H_PER_S + j]
        h2 = s2 * (h_per_s * h_per_s)
        alive = h2 > LEAST_H * LEAST_H
        inv_h2 = (1.0 if alive else 0.0) / (h2 if alive else 1.0)
        x2 = (b - p) * (b - p) * inv_h2
        near = x2 < rule[REACH] * rule[REACH]
        # e = exp(-x^2 / 2), as a power of two: the whole part in the exponent, a polynomial of the rest
        y = -0.5 * LOG2E * (x2 if near else 0.0)
        n = np.rint(y)
        f = y - n
        f2 = f * f
        f4 = f2 * f2
        low = 1.0 + f * E1 + f2 * (E2 + f * E3)
        mid = E4 + f * E5 + f2 * (E6 + f * E7)
        top = E8 + f * E9 + f2 * (E10 + f * E11)
        e = (low + f4 * (mid + f4 * top)) * np.int64(np.int64(n + 1023.0) << 52).view(np.float64)
        # k = (b - p) phi((b - p) / h) / h^3 = w e; what needs no e is computed while e is not there yet
        w = (b - p) * inv_h2 * (s * h_per_s * inv_h2) * INV_SQRT_2PI if near else 0.0
        step, a = work[STEP + j], work[A + j]
        free = rule[ALPHA] * s
        pull = rule[PENALTY2] * (max(b - a - free, 0.0) + min(b - a + free, 0.0))
        push = (s2 * s * w if scaled else w) * e
        far = rule[CLAMP] * s
        moved = min(max(b - rule[RATE_B] * (pull - push) * step, a - far), a + far)
        g = (rule[RATE_V] * (math.sqrt(rho2) if scaled else 1.0) * step * w) * e
        left = 1.0 - g * (2.0 * p - g * c2)  # |v - g c|^2
        shrink = 1.0 / math.sqrt(max(left, CANCELLED))
        # A quotient of its own: (p - b) / h times h / s errs where bins meet.
        work[BIN + j] = _bin((p - b) / (s if alive else 1.0))
        work[B + j] = moved if alive else b
        work[RHO2 + j] = rho2
        work[S2 + j] = s2
        work[INV_H2 + j] = inv_h2
        work[G + j] = g
        work[SHRINK + j] = shrink if left > CANCELLED else 0.0
        work[P + j] = (p - g * c2) * shrink


@_compiled(fastmath=FASTMATH)
def _step_measured(z, m, g, v):
    """v -= g (z - m), v /= |v| with the length measured, in place; returns v.(z - m)."""
    square = 0.0
    for f in range(v.shape[0]):
        v[f] -= g * (z[f] - m[f])
        square += v[f] * v[f]
    if square == 0.0:  # v was g c to the last bit: it stays
        for f in range(v.shape[0]):
            v[f] = g * (z[f] - m[f])
            square += v[f] * v[f]
    shrink = 1.0 / math.sqrt(square)
    p = 0.0
    for f in range(v.shape[0]):
        v[f] *= shrink
        p += v[f] * (z[f] - m[f])
    return p


@_compiled(fastmath=FASTMATH)
def learn(block, splits, rule, lanes, levels, counting):
    """Take a block of rows down some levels of splits, learning as they go, in place.

    block : Rows. Its streams stand in subtrees that are apart, so that no node meets rows of two; streams
    times levels is at most 8. On return `node` is the one each row went to, `levels` below. splits : Splits.
    rule : Rule. lanes : Lanes. counting : bool, whether histograms are kept.
    """
    Z, order, starts, node = block.Z, block.order, block.starts, block.node
    directions, pivots, learned = splits.directions, splits.pivots, splits.learned
    powers, work, rows = rule.powers, lanes.work, lanes.rows
    d = Z.shape[1]
    longest = 0
    for s in range(starts.shape[0] - 1):
        longest = max(longest, starts[s + 1] - starts[s])
    for tick in range(longest + levels - 1):
        n = 0
        for s in range(starts.shape[0] - 1):
            oldest = starts[s] + tick + 1 - levels
            for k in range(max(oldest, starts[s]), min(oldest + levels, starts[s + 1])):
                rows[n] = order[k]
                n += 1
        for j in range(n):
            row = rows[j] & NATURAL
            i = (node[row] - 1) & NATURAL
            t = learned[i] + 1
            learned[i] = t
            inv_t = 1.0 / t
            p = 0.0
            c2 = 0.0
            for f in range(d):
                z = Z[row, f]
                m = pivots[i, f] + (z - pivots[i, f]) * inv_t
                pivots[i, f] = m
                c = z - m
                p += directions[i, f] * c
                c2 += c * c
            t1 = t + 1.0
            inv_t1 = 1.0 / t1
            work[P + j] = p
            work[C2 + j] = c2
            work[INV_T + j] = inv_t
            work[INV_T1 + j] = inv_t1
            work[H_PER_S + j] = rule.constants[DELTA] * _power(t1, powers[0])
            work[STEP + j] = inv_t1 if powers[1, _EXPONENT] == 1.0 else _power(t1, powers[1])
            work[B + j] = splits.offsets[i]
            work[RHO2 + j] = splits.mean_squares[i]
            work[S2 + j] = splits.variances[i]
            work[A + j] = splits.anchors[i]
        _step_lanes(work, rule.constants)
        for j in range(n):
            row = rows[j] & NATURAL
            i = (node[row] - 1) & NATURAL
            splits.offsets[i] = work[B + j]
            splits.mean_squares[i] = work[RHO2 + j]
            splits.variances[i] = work[S2 + j]
            # From before the row's own step: else each row pushes the cut away from itself and digs a
            # valley (one Gaussian in d = 50 looked like 6 to 27 clusters).
            if counting and work[INV_H2 + j] > 0.0 and not block.clipped[row]:
                splits.histograms[i, np.int64(work[BIN + j]) & NATURAL] += 1
            g = work[G + j]
            if g != 0.0:
                shrink = work[SHRINK + j]
                if shrink > 0.0:
                    for f in range(d):
                        directions[i, f] = (directions[i, f] - g * (Z[row, f] - pivots[i, f])) * shrink
                else:
                    work[P + j] = _step_measured(Z[row], pivots[i], g, directions[i])
            node[row] = 2 * (i + 1) + (1 if work[P + j] >= work[B + j] else 0)


@_compiled(fastmath=FASTMATH, forceinline=True)
def _count_leaf(Z, row, i, counts, means, sums_of_squares):
    """Take a row in at leaf i, from 0 (Welford)."""
    i = i & NATURAL
    counts[i] += 1
    inv_n = 1.0 / counts[i]
    for f in range(Z.shape[1]):
        before = Z[row, f] - means[i, f]
        means[i, f] += before * inv_n
        sums_of_squares[i, f] += before * (Z[row, f] - means[i, f])


@_compiled(fastmath=FASTMATH)
def learn_leaves(Z, node, leaves, counting):
    """Take in rows that have come to the leaves of a tree, in place.

    Z : (rows, d). node : (rows,) int64, where they are. leaves : Leaves. counting : bool, whether counts and
    moments are kept.
    """
    d = Z.shape[1]
    first_leaf = leaves.counts.shape[0]
    for row in range(Z.shape[0]):
        i = (node[row] - 1) & NATURAL
        leaves.learned[i] += 1
        inv_t = 1.0 / leaves.learned[i]
        for f in range(d):
            leaves.pivots[i, f] += (Z[row, f] - leaves.pivots[i, f]) * inv_t
        if counting:
            _count_leaf(Z, row, node[row] - first_leaf, leaves.counts, leaves.means, leaves.squares)


@_compiled(fastmath=FASTMATH)
def count_leaves(Z, node, first_leaf, counts, means, sums_of_squares):
    """Count, mean and sum of squares per feature of the rows in each leaf (Welford), in place.

    node : (rows,) int64, leaves as node numbers, the first being first_leaf. counts (leaves,) int64;
    means, sums_of_squares (leaves, d) float64.
    """
    for row in range(Z.shape[0]):
        _count_leaf(Z, row, node[row] - first_leaf, counts, means, sums_of_squares)


@_compiled(fastmath=FASTMATH)
def recount(Z, clipped, marks, directions, thresholds, deviations, leans, node, histograms, on_piles):
    """Take rows down the frozen tree to its leaves and count the splits' histograms.

    Z : (rows, d). clipped : (rows,) bool. marks : (rows,) int64, the bits of the columns in which a row lies
    on a pile. deviations : (m,) projected sd. leans : (m,) int64, the bit of the column that a split leans
    on, or -1. In place: node (rows,) int64, the leaf each row reached; histograms (m, 128) int64; on_piles
    likewise, of marked rows, and empty where no split leans on a column.
    """
    rows, d = Z.shape
    splits = directions.shape[0]
    for row in range(rows):
        i = 0
        while i < splits:
            gap = -thresholds[i]
            for f in range(d):
                gap += directions[i, f] * Z[row, f]
            if deviations[i] > 0.0 and not clipped[row]:
                place = np.int64(_bin(gap / deviations[i]))
                histograms[i, place] += 1
                if leans[i] >= 0 and (marks[row] >> leans[i]) & 1:
                    on_piles[i, place] += 1
            i = 2 * i + (2 if gap >= 0.0 else 1)
        node[row] = i + 1


@_compiled(fastmath=FASTMATH)
def descend(Z, stop, directions, thresholds, deviations, node, margin):
    """The node at which each row stops: the second pass.

    Z : (rows, d). stop : (n,) bool, the nodes at which a row has arrived (clusters, or leaves).
    node : (rows,) int64, out. margin : (rows,) float64, out, the least |v.z - threshold| / s on the way
    (inf where no cut was met); an empty array asks for none.
    Some rows go down together, level by level: while the product of one waits for its last sum, that of the
    next begins. 28 ns a row of 20 that stops at level 4.6; one row after another takes 57.
    """
    rows, d = Z.shape
    wanted = margin.shape[0] > 0
    for first in range(0, rows, TOGETHER):
        end = min(rows, first + TOGETHER)
        for row in range(first, end):
            node[row] = 0
            if wanted:
                margin[row] = np.inf
        under_way = True
        while under_way:
            under_way = False
            for row in range(first, end):
                i = node[row] & NATURAL
                if stop[i]:
                    continue
                gap = -thresholds[i]
                for f in range(d):
                    gap += directions[i, f] * Z[row, f]
                if wanted and deviations[i] > 0.0:
                    margin[row] = min(margin[row], abs(gap) / deviations[i])
                node[row] = 2 * i + (2 if gap >= 0.0 else 1)
                under_way = True
        for row in range(first, end):
            node[row] += 1


@_compiled(fastmath=FASTMATH)
def second_choice(Z, node, label, directions, thresholds, deviations, other, gaps):
    """The node at which each row would stop beyond the nearest cut that parts it from another cluster.

    Z : (rows, d). node : (rows,) int64, where each row stopped, of `descend`. label : (n,) int32, the cluster
    of a node at which rows stop, 0 above those. Out: other (rows,) int64, 0 where there is no such cut;
    gaps (rows,) float64, |v.z - threshold| / s of the cut, inf where there is none.
    Across a cut the row goes down as any other row there. It may meet its own cluster again (which has a node
    on both sides, one of them too small to be a cluster): then the next nearest cut is taken.
    """
    rows, d = Z.shape
    for row in range(rows):
        gaps[row] = np.inf
        passed = 0  # cuts behind which its own cluster lies, as bits, the lowest cut first
        other[row] = 0
        while other[row] == 0:
            nearest = np.inf
            beyond = 0
            bit = 1
            cut = 0
            i = node[row]
            while i > 1:
                split = (i >> 1) - 1
                if (passed & bit) == 0 and deviations[split] > 0.0:
                    gap = -thresholds[split]
                    for f in range(d):
                        gap += directions[split, f] * Z[row, f]
                    gap = abs(gap) / deviations[split]
                    if gap <= nearest:
                        nearest = gap
                        beyond = i ^ 1
                        cut = bit
                i >>= 1
                bit <<= 1
            if beyond == 0:
                break
            i = beyond - 1
            while label[i] == 0:
                gap = -thresholds[i]
                for f in range(d):
                    gap += directions[i, f] * Z[row, f]
                i = 2 * i + (2 if gap >= 0.0 else 1)
            if label[i] != label[node[row] - 1]:
                other[row] = i + 1
                gaps[row] = nearest
            passed |= cut


@_compiled()
def standardise(X, center, scale, fill, limit, Z, clipped):
    """z = clip((x - center) / scale, -limit, limit), and where x is NaN the column's `fill`.

    X : (rows, d) float64, no infinity. center, scale, fill : (d,). Out: Z (rows, d), clipped (rows,) bool,
    whether a coordinate of the row was cut to the limit. A quotient, not a product with 1 / scale: so that
    NumPy's recipe gives the same bits.
    """
    rows, d = X.shape
    for row in range(rows):
        beyond = 0
        for f in range(d):
            x = X[row, f]
            z = (x - center[f]) / scale[f]
            z = fill[f] if x != x else z
            z = min(max(z, -limit), limit)
            beyond |= 1 if abs(z) >= limit else 0  # a running maximum would keep this from becoming vectors
            Z[row, f] = z
        clipped[row] = beyond != 0


@_compiled()
def turn(cells, starts, most, X, broken):
    """Columns that lie apart in memory -> rows.

    cells : float64, from where the first column in memory begins. starts : (d,) int64, how many cells behind
    that each column begins. Out: X (rows, d), broken (rows,) bool, whether a cell of the row is NaN or beyond
    `most`.
    Eight rows at a time: a cache line of each column. One row after another takes 3 times as long at d = 20.
    """
    rows, d = X.shape
    for top in range(0, rows, TURNED):
        end = min(rows, top + TURNED)
        if end - top == TURNED:
            for f in range(d):
                at = starts[f] + top
                for j in range(TURNED):
                    X[top + j, f] = cells[(at + j) & NATURAL]
        else:
            for f in range(d):
                for row in range(top, end):
                    X[row, f] = cells[(starts[f] + row) & NATURAL]
        for row in range(top, end):
            beyond = 0
            for f in range(d):
                beyond |= 0 if abs(X[row, f]) <= most else 1
            broken[row] = beyond != 0


@_compiled()
def swap_rows(buffer, slots, rows):
    """Exchange rows[k] with buffer[slots[k]], in place. buffer (size, d), slots (k,) int64, rows (k, d)."""
    d = buffer.shape[1]
    for k in range(slots.shape[0]):
        i = slots[k]
        for f in range(d):
            kept = buffer[i, f]
            buffer[i, f] = rows[k, f]
            rows[k, f] = kept


@_compiled()
def move_up(rows, kept):
    """rows[k] = rows[kept[k]], in place. rows (n, d), kept (k,) int64, ascending."""
    for k in range(kept.shape[0]):
        row = kept[k] & NATURAL
        if row != k:
            for f in range(rows.shape[1]):
                rows[k, f] = rows[row, f]


@_compiled()
def column_sums(X, shift, low, high, total, square):
    """Add to the sums of x - shift and of (x - shift)^2 of each column, in place, row by row.

    X : (rows, d). shift, low, high, total, square : (d,) float64. A cell that is NaN, or beyond low and high,
    makes the sums of its column NaN. Without reordering: the sums do not depend on how the rows were cut into
    blocks.
    """
    rows, d = X.shape
    for row in range(rows):
        for f in range(d):
            x = X[row, f]
            y = x - shift[f]
            y = y if x >= low[f] else np.nan
            y = y if x <= high[f] else np.nan
            total[f] += y
            square[f] += y * y


@_compiled()
def column_sums_apart(X, shift, low, high, count, total, square, far_count, far_total, far_square):
    """As `column_sums`, over the cells that are neither NaN nor beyond, and apart over those beyond.

    count, far_count : (d,) int64, how many these are; they are added to, too.
    """
    rows, d = X.shape
    for row in range(rows):
        for f in range(d):
            x = X[row, f]
            y = x - shift[f]
            if x >= low[f] and x <= high[f]:
                count[f] += 1
                total[f] += y
                square[f] += y * y
            elif x == x:
                far_count[f] += 1
                far_total[f] += y
                far_square[f] += y * y


@_compiled()
def _uniform(key, place):
    """The random number of a place: that of SplitMix64 after place + 1 steps from the key, in 53 bits."""
    s = key + (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    s = (s ^ (s >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    s = (s ^ (s >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((s ^ (s >> np.uint64(31))) >> np.uint64(11)) * 1.1102230246251565e-16


@_compiled()
def dither(X, columns, origins, per_bin, rooms, key, first_row, out):
    """Add noise to some columns: each value is spread evenly over the room around it (see core.dither).

    X : (rows, d), NaN stays. columns : (c,) int64. origins, per_bin : (c,). rooms : (c, 128, 2).
    key : (1,) uint64. first_row : int. out : (rows, d). The random number of row i and column f is that of
    place i d + f.
    """
    rows, d = X.shape
    for row in range(rows):
        for f in range(d):
            out[row, f] = X[row, f]
        counter = np.uint64(first_row + row) * np.uint64(d)
        for k in range(columns.shape[0]):
            f = columns[k]
            x = X[row, f]
            if x != x:
                continue
            u = _uniform(key[0], counter + np.uint64(f))
            place = np.int64(min(max(np.floor((x - origins[k]) * per_bin[k]), 0.0), BINS - 1.0)) & NATURAL
            below = rooms[k, place, 0]
            out[row, f] = x + (u * (below + rooms[k, place, 1]) - below)


@_compiled()
def move_spikes(X, columns, values, moved, quantiles, key, first_row, out):
    """Take some cells that hold a spike's value as others (see core.spikes).

    X, out : (rows, d). columns (s,) int64, values (s,) : of each spike. moved : (s,), the part of its cells,
    in (0, 1]. quantiles : (s, 129), of what they are taken from. key, first_row : see `dither`; the key is
    inverted, so that what a cell is taken as does not depend on the noise of its value.
    """
    rows, d = X.shape
    for row in range(rows):
        counter = np.uint64(first_row + row) * np.uint64(d)
        for k in range(columns.shape[0]):
            f = columns[k]
            if X[row, f] != values[k]:
                continue
            u = _uniform(~key[0], counter + np.uint64(f))
            if u < moved[k]:
                place = u / moved[k] * (quantiles.shape[1] - 1)
                low = np.int64(place)
                step = quantiles[k, low + 1] - quantiles[k, low]
                out[row, f] = quantiles[k, low] + (place - low) * step


class Simplices(NamedTuple):
    """Groups of one-hot columns (see core.one_hot).

    first (g + 1,) int64 : where the levels of each begin. columns (e,) int64 : of each level; ~f, with f any
    column of the group, for that of rows that have none. parts (e,) : which part of what is left of the
    stick is a level's own. own, other, later (e,) : mean pieces (see core.one_hot.Simplex).
    """

    first: np.ndarray
    columns: np.ndarray
    parts: np.ndarray
    own: np.ndarray
    other: np.ndarray
    later: np.ndarray


@_compiled()
def dither_one_hot(X, simplices, key, first_row, out):
    """Spread each row over the part of a simplex that belongs to its level, in the columns of one-hot groups.

    X, out : (rows, d). key, first_row : see `dither`; the level of rows without a column has the inverted
    key. Rows that have no level, or two, are left as they are in `out`.
    """
    rows, d = X.shape
    first, columns = simplices.first, simplices.columns
    for row in range(rows):
        counter = np.uint64(first_row + row) * np.uint64(d)
        for g in range(first.shape[0] - 1):
            begin, levels = first[g], first[g + 1] - first[g]
            level, none, not_zero = -1, -1, 0
            for k in range(levels):
                f = columns[begin + k]
                if f < 0:
                    none = k
                elif X[row, f] != 0.0:
                    not_zero += 1
                    level = k if X[row, f] == 1.0 else -1
            if not_zero == 0:
                level = none
            if level < 0 or not_zero > 1:
                continue
            # The corner x of a point is told level by level: a piece of this one is made of the means of rows
            # of those before, of its own and of those to come, and all of x sum up to 1.
            left, told, before = 1.0, 0.0, 0.0
            for k in range(levels):
                at = begin + k
                f, to_come = columns[at], levels - 1 - k
                x = 1.0 - told
                if to_come > 0:
                    w = 1.0 - _uniform(~key[0] if f < 0 else key[0], counter + np.uint64(max(f, ~f)))
                    if k < level:
                        w = simplices.parts[at] + (1.0 - simplices.parts[at]) * w
                    elif k == level:
                        w = simplices.parts[at] * w
                    rest = left * math.exp(math.log(w) / to_come)
                    x = left - rest - simplices.other[at] * x - before
                    x /= simplices.own[at] - simplices.other[at]
                    left = rest
                told += x
                before += x * simplices.later[at]
                if f >= 0:
                    out[row, f] = x


@_compiled()
def count_met(column, seen, met):
    """How many cells of a column (n,) have a value that was met before, or perhaps some more: values that
    fall on one bit of a hash table are not told apart. No cell is NaN.

    seen : (SEEN,) int64, work. met : (1,) int64, out.
    """
    seen[:] = 0
    n = 0
    for k in range(column.shape[0]):
        bits = np.float64(column[k] + 0.0).view(np.uint64)  # -0.0 is 0.0
        place = (bits * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - SEEN_BITS)
        word = np.int64(place >> np.uint64(6)) & NATURAL
        bit = np.int64(1) << np.int64(place & np.uint64(63))
        n += 1 if seen[word] & bit else 0
        seen[word] |= bit
    met[0] = n


@_compiled()
def collect_codes(X, codes, counts):
    """Add to the distinct values of each column, in place, while they are at most 20; NaN is none.

    X : (rows, d). codes : (d, 20) float64. counts : (d,) int64, how many of them there are, 21 for more.
    """
    rows, d = X.shape
    for f in range(d):
        n = counts[f]
        last = 0
        for row in range(rows):
            if n > MOST_CODES:
                break
            x = X[row, f]
            if x != x or (n > 0 and x == codes[f, last]):
                continue
            last = 0
            while last < n and x != codes[f, last]:
                last += 1
            if last == n:
                if n < MOST_CODES:
                    codes[f, n] = x
                else:
                    last = 0
                n += 1
        counts[f] = n
