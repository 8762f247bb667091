"""The method again, slowly: written from the equations, for the tests to compare the package with.

In: rows Z, (n, d) float64, finite, already standardised. Out: the state of every split, the moments
of every node, the histograms, and the choice of clusters. One row, one node, one number at a time
where that is clearer; no code is shared with the package, and speed is nobody's wish here.

Nodes are the paper's: root 1, children 2i and 2i + 1, splits 1 .. 2^D - 1, leaves 2^D up to
2^(D+1) - 1. Arrays over nodes hold node i in row i - 1. A row goes left (to 2i) iff its projection
is below the cut.

Letters (paper, sections 2 and 3):
    v direction, b offset from the mean, m mean, t rows met, c = z - m, p = v.c, s projected sd,
    s2 its square, rho2 mean square of a coordinate, h bandwidth, delta its factor, q its decay,
    r decay of the learning rate, C penalty, alpha free distance of the cut from the mean (in s),
    phi standard normal density, D depth, SS sum of squares, G gain, K number of clusters.

Readings of what the equations leave open:
    * sign(0) = 0; a clamp of 0 is no clamp; with alpha = 0 and a clamp the offset is held at 0.
    * A row is clipped when a coordinate is exactly 10 or -10, and only where there is a clip.
    * Windows turn over after the row that makes their count, so 16384 leave 8193 to 16384.
    * The smoothed histogram puts each bin's rows at its middle; f(0) is at the cut itself, the
      greatest values on the left and the right are sought at the middles of the bins.
    * n_j is the number of rows of the node, also where clipped rows are missing from its histogram; where
      noise has brought more rows into the histogram than the node has, it is the number of those.
    * The end bins of a histogram hold all rows beyond 4 s: they are taken to be 64 bins wide, rows even.
    * A split that divides off fewer than min_size rows (at least one) makes no two clusters: it is
      never significant, for a min_size above one it goes as soon as its children are terminal, and K
      clusters are the first state with K terminals in use once such splits have gone. S counts the
      kept splits that do divide.
    * Equal keys are removed in order of the node's number, smallest first.
    * The weight says what the curve adds up: the credit of the valleys, and then at most S + 1
      clusters, or the gains of "ss", and then as many as the elbow says.
    * An elbow whose curve is flat (no credit below Kmax) casts no vote. Without any vote for two or
      more clusters the number is S + 1.
    * Where at least 0.8 of the V significant valleys have a depth of at least 0.8, the number by valleys and
      their own elbow is at least V + 1, whatever the votes.
    * An elbow's tie goes to the smaller K. Kmax is never more than the leaves in use or the clusters
      allowed.
    * A terminal node out of use takes the label of the nearest one in its sibling's subtree: the
      leftmost in use if the sibling is on the right, the rightmost if on the left; if the
      sibling's subtree has none in use, the same question is asked of the parent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

Array = np.ndarray
BINS = 128  # of 1/16 on [-4, 4]: the split is between bins 63 and 64
CLIP = 10.0
WINDOW_ROWS = 8192


# --- standardisation ------------------------------------------------------------------------------


def standardise(X: Array) -> tuple[Array, Array, Array]:
    """Z, center, scale: z = clip((x - center) / scale, -10, 10), population sd, 0 becomes 1."""
    center = X.mean(axis=0)
    scale = np.sqrt(((X - center) ** 2).mean(axis=0))
    scale[scale == 0] = 1.0
    return np.clip((X - center) / scale, -CLIP, CLIP), center, scale


def start_directions(depth: int, d: int, *, seed: int = 0, start: str = "random") -> Array:
    """First directions (m, d): seeded normal draws of unit length, or axis (i - 1) mod d."""
    m = 2**depth - 1
    if start == "axis":
        V = np.zeros((m, d))
        for i in range(1, m + 1):
            V[i - 1, (i - 1) % d] = 1.0
        return V
    V = np.random.default_rng([seed, 1]).standard_normal((m, d))
    for i in range(m):
        V[i] /= math.sqrt(sum(x * x for x in V[i]))
    return V


# --- the learning rule (paper, section 2) ---------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """The constants of the rule; the defaults are the method's."""

    delta: float = 1.0
    q: float = 0.2
    r: float = 1.0
    C: float = 10.0
    alpha: float = 0.5
    rate: float = 1.0
    clamp: float = 5.0
    step: str = "scaled"  # "paper": the factors s^3 and sqrt(rho2) are 1
    clip: bool = True  # False: rows were not clipped, so a coordinate of 10 is just a 10


@dataclass
class Moments:
    """Count, mean and per-feature sum of squares about the mean, one row at a time (Welford)."""

    n: int
    mean: Array
    ss: Array

    @classmethod
    def empty(cls, d: int) -> Moments:
        return cls(0, np.zeros(d), np.zeros(d))

    def add(self, z: Array) -> None:
        self.n += 1
        before = z - self.mean
        self.mean = self.mean + before / self.n
        self.ss = self.ss + before * (z - self.mean)


def merge(a: Moments, b: Moments) -> Moments:
    """Moments of two sets of rows together (Chan)."""
    n = a.n + b.n
    if n == 0:
        return Moments.empty(len(a.mean))
    apart = b.mean - a.mean
    return Moments(n, a.mean + apart * (b.n / n), a.ss + b.ss + apart**2 * (a.n * b.n / n))


@dataclass
class Split:
    """State of one split node."""

    v: Array
    m: Array
    b: float = 0.0
    t: int = 0
    rho2: float = 0.0
    s2: float = 0.0
    anchor: float = 0.0  # the offset the penalty is about
    current: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    previous: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))


@dataclass
class Leaf:
    """State of one leaf: the mean of every row that came, and the moments of two windows."""

    m: Array
    current: Moments
    previous: Moments
    t: int = 0


def phi(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def pull(b: float, p: float, h: float) -> float:
    """k: minus the slope, in b, of the density phi((b - p) / h) / h of one row at the cut."""
    return (b - p) * phi((b - p) / h) / h**3


def penalty_slope(b: float, s: float, rule: Rule, anchor: float = 0.0) -> float:
    """Slope in b of C (|b - anchor| - alpha s)_+^2."""
    return 2 * rule.C * float(np.sign(b - anchor)) * max(abs(b - anchor) - rule.alpha * s, 0.0)


def bin_of(u: float) -> int:
    return int(min(max(math.floor(16 * u) + 64, 0), BINS - 1))


def learn_row(node: Split, z: Array, rule: Rule) -> bool:
    """One row at one split, in place; True if it goes on to the left child."""
    d = len(z)
    node.t += 1
    t = node.t
    node.m = node.m + (z - node.m) / t
    c = z - node.m
    p = float(node.v @ c)
    node.rho2 += (float(c @ c) / d - node.rho2) / t
    node.s2 += (p * p - node.s2) / (t + 1)
    s = math.sqrt(node.s2)
    if s > 0 and not is_clipped(z, rule):  # everything as it was before the row's own step
        node.current[bin_of((p - node.b) / s)] += 1
    h = rule.delta * s * (t + 1) ** -rule.q
    if h > 0:
        k = pull(node.b, p, h)
        pen = penalty_slope(node.b, s, rule, node.anchor)
        unit_b, unit_v = (1.0, 1.0) if rule.step == "paper" else (s**3, math.sqrt(node.rho2))
        node.b -= rule.rate * (pen - unit_b * k) / (t + 1) ** rule.r
        if rule.clamp > 0:
            limit = rule.clamp * rule.alpha * s
            node.b = min(max(node.b, node.anchor - limit), node.anchor + limit)
        v = node.v - rule.rate * math.sqrt(d) * unit_v * k * c / (t + 1) ** rule.r
        node.v = v / math.sqrt(float(v @ v))
        p = float(node.v @ c)
    return p < node.b


def is_clipped(z: Array, rule: Rule) -> bool:
    return rule.clip and bool(np.any(np.abs(z) == CLIP))


class Tree:
    """The tree while it learns: `pass_over` once for each pass, in the order the rows are met."""

    def __init__(self, depth: int, V: Array, rule: Rule | None = None, window_rows: int = WINDOW_ROWS):
        d = V.shape[1]
        self.depth, self.d, self.rule, self.window_rows = depth, d, rule or Rule(), window_rows
        first_leaf = 2**depth
        self.splits = {i: Split(V[i - 1].copy(), np.zeros(d)) for i in range(1, first_leaf)}
        self.leaves = {
            i: Leaf(np.zeros(d), Moments.empty(d), Moments.empty(d))
            for i in range(first_leaf, 2 * first_leaf)
        }

    def pass_over(self, Z: Array) -> None:
        """Learn from every row of Z; the windows start anew."""
        self._turn_over()
        self._turn_over()
        turn = self.window_rows
        for met, z in enumerate(Z, start=1):
            self._learn(z)
            if met == turn:
                self._turn_over()
                turn *= 2

    def _learn(self, z: Array) -> None:
        i = 1
        while i in self.splits:
            i = 2 * i if learn_row(self.splits[i], z, self.rule) else 2 * i + 1
        leaf = self.leaves[i]
        leaf.t += 1
        leaf.m = leaf.m + (z - leaf.m) / leaf.t
        leaf.current.add(z)

    def _turn_over(self) -> None:
        for node in self.splits.values():
            node.previous, node.current = node.current, np.zeros(BINS, np.int64)
        for leaf in self.leaves.values():
            leaf.previous, leaf.current = leaf.current, Moments.empty(self.d)


# --- summaries ------------------------------------------------------------------------------------


@dataclass
class Summary:
    """What pruning works from; n nodes, m splits."""

    counts: Array  # (n,) int64
    means: Array  # (n, d)
    ss: Array  # (n, d) per feature, about the mean
    pivots: Array  # (n, d) the learned means
    histograms: Array  # (m, 128) int64
    on_piles: Array | None = None  # (m, 128) int64, of the rows on a pile of the column a split leans on
    copies: Array | float = 0.0  # c, or (m,) of each split: n rows count for n / (1 + c n)


def pivots(tree: Tree) -> Array:
    """(n, d): the mean learned at every node, leaves too."""
    nodes: dict[int, Split | Leaf] = {**tree.splits, **tree.leaves}
    return np.array([nodes[i].m for i in range(1, len(nodes) + 1)])


def windowed(tree: Tree) -> Summary:
    """Summary of the last two windows of the last pass."""
    leaves = {i: merge(leaf.previous, leaf.current) for i, leaf in tree.leaves.items()}
    histograms = [tree.splits[i].previous + tree.splits[i].current for i in range(1, 2**tree.depth)]
    return _summary(leaves, pivots(tree), np.array(histograms))


def _summary(leaves: dict[int, Moments], pivots: Array, histograms: Array) -> Summary:
    """Every other node's moments, merged from its children's, bottom up."""
    nodes = dict(leaves)
    for i in range(min(leaves) - 1, 0, -1):
        nodes[i] = merge(nodes[2 * i], nodes[2 * i + 1])
    rows = [nodes[i] for i in range(1, len(nodes) + 1)]
    return Summary(
        counts=np.array([x.n for x in rows], np.int64),
        means=np.array([x.mean for x in rows]),
        ss=np.array([x.ss for x in rows]),
        pivots=pivots,
        histograms=histograms,
    )


# --- the tree frozen ------------------------------------------------------------------------------


@dataclass
class Frozen:
    """Hyperplanes that no longer move: left iff v.z < threshold."""

    depth: int
    v: Array  # (m, d)
    threshold: Array  # (m,)
    offset: Array  # (m,) threshold - v.m
    s: Array  # (m,)


def freeze(tree: Tree) -> Frozen:
    """Cuts b + v.m. Where the projections have no spread the cut is put below them for certain."""
    V, thresholds, offsets, sds = [], [], [], []
    for i in range(1, 2**tree.depth):
        node = tree.splits[i]
        s = math.sqrt(node.s2)
        threshold, offset = node.b + float(node.v @ node.m), node.b
        size = 1 + abs(threshold)
        if s <= 1e-12 * size:
            threshold -= 1e-10 * size
            offset -= 1e-10 * size
        V.append(node.v)
        thresholds.append(threshold)
        offsets.append(offset)
        sds.append(s)
    return Frozen(tree.depth, np.array(V), np.array(thresholds), np.array(offsets), np.array(sds))


def path_of(frozen: Frozen, z: Array) -> list[int]:
    """Nodes a row visits, root to leaf."""
    path = [1]
    while path[-1] < 2**frozen.depth:
        i = path[-1]
        left = float(frozen.v[i - 1] @ z) < frozen.threshold[i - 1]
        path.append(2 * i if left else 2 * i + 1)
    return path


def recount(frozen: Frozen, Z: Array, pivots: Array, rule: Rule | None = None) -> Summary:
    """Summary of all rows under the frozen tree, moments straight from the rows of each node."""
    rule = rule or Rule()
    m, n = 2**frozen.depth - 1, 2 ** (frozen.depth + 1) - 1
    members: list[list[int]] = [[] for _ in range(n)]
    histograms = np.zeros((m, BINS), np.int64)
    for row, z in enumerate(Z):
        for i in path_of(frozen, z):
            members[i - 1].append(row)
            if i <= m and frozen.s[i - 1] > 0 and not is_clipped(z, rule):
                distance = float(frozen.v[i - 1] @ z) - frozen.threshold[i - 1]
                histograms[i - 1, bin_of(distance / frozen.s[i - 1])] += 1
    d = Z.shape[1]
    means = np.array([Z[rows].mean(axis=0) if rows else np.zeros(d) for rows in members])
    ss = np.array([((Z[rows] - mean) ** 2).sum(axis=0) for rows, mean in zip(members, means, strict=True)])
    counts = np.array([len(rows) for rows in members], np.int64)
    return Summary(counts, means, ss.reshape(n, d), pivots, histograms)


def pile_values(column: Array) -> list[float]:
    """Values with a hundredth of all rows, and with over ten times the mean of their neighbours, two on
    either side. Of two values none is a pile."""
    rows = Counter(float(x) for x in column if not math.isnan(x))
    values = sorted(rows)
    found = []
    for k, value in enumerate(values):
        beside = [rows[x] for x in values[max(k - 2, 0) : k] + values[k + 1 : k + 3]]
        stands_out = len(values) > 2 and rows[value] > 10 * sum(beside) / len(beside)
        if stands_out and rows[value] >= 0.01 * sum(rows.values()):
            found.append(value)
    return found


def leans_on(v: Array, piled: Sequence[int]) -> int | None:
    """Of the columns with piles the one of the largest component, if its square is at least a quarter."""
    best = max(piled, key=lambda f: abs(v[f]), default=None)
    return best if best is not None and v[best] ** 2 >= 0.25 else None


def recount_on_piles(frozen: Frozen, Z: Array, on: Array, rule: Rule | None = None) -> Array:
    """(m, 128): the histograms of `recount`, of those rows alone that lie on a pile, on (n, d) bool, of the
    column that a split leans on."""
    m = 2**frozen.depth - 1
    piled = [f for f in range(Z.shape[1]) if on[:, f].any()]
    out = np.zeros((m, BINS), np.int64)
    for i in range(1, m + 1):
        column = leans_on(frozen.v[i - 1], piled)
        if column is not None:
            here = [row for row in range(len(Z)) if on[row, column] and i in path_of(frozen, Z[row])]
            out[i - 1] = recount(frozen, Z[here], np.zeros((2 * m + 1, Z.shape[1])), rule).histograms[i - 1]
    return out


def re_express(
    v: Array, b: float, m: Array, s2: float, old: tuple[Array, Array], new: tuple[Array, Array]
) -> tuple[Array, float, Array, float]:
    """One split in other coordinates: the same points of the user's space on the plane.

    old, new : (center, scale) with x = center + scale * z. Returns v, b, m, s2 of the new z.
    """
    (center0, scale0), (center1, scale1) = old, new
    w = v * scale1 / scale0
    length = math.sqrt(float(w @ w))
    return w / length, b / length, (center0 + scale0 * m - center1) / scale1, s2 / length**2


# --- how deep, and how sure, a valley is ----------------------------------------------------------


def middles() -> Array:
    """Middles of the bins, in units of s from the cut."""
    return (np.arange(BINS) - 63.5) / 16


def widened(histogram: Array) -> Array:
    """(254,): the histogram with its two end bins in 64 bins of equal content each, [-7.94, 7.94] s."""
    ends = np.ones(64) / 64
    return np.concatenate([histogram[0] * ends, histogram[1:-1], histogram[-1] * ends])


def smoothed(histogram: Array, x: float, width: float) -> float:
    """f(x): the histogram smoothed by a Gaussian of this width, up to a factor."""
    places = (np.arange(254) - 126.5) / 16
    return float((widened(histogram) * np.exp(-0.5 * ((x - places) / width) ** 2)).sum())


def width_by_sides(histogram: Array, n: int, edge: int) -> float:
    """1.06 n^-0.2 by the sd about the mean of a row's own side, a Gaussian's being 1; at least 3/4 bin."""
    sides = [np.repeat(middles()[side], histogram[side]) for side in (slice(0, edge), slice(edge, 128))]
    about = np.concatenate([places - places.mean() for places in sides if len(places)])
    return max(1.06 * n**-0.2 * math.sqrt(np.mean(about**2) / (1 - 2 / math.pi)), 0.75 / 16)


def valley_depth(histogram: Array, n: int, edge: int = 64, noise: float = 0.0) -> float:
    """delta_j = max(0, 1 - f(cut) / min(greatest f on the left, greatest f on the right)).

    The cut is before bin `edge`. noise: the part of the variance that is noise that rows learn with; f is
    no finer than its sd, if that is less than 1.06 n^-0.2.
    """
    if n < 4 or not histogram.any():
        return 0.0
    width = max(width_by_sides(histogram, n, edge), min(math.sqrt(noise), 1.06 * n**-0.2))
    f = [smoothed(histogram, a, width) for a in middles()]
    lower = min(max(f[:edge]), max(f[edge:]))
    return max(0.0, 1 - smoothed(histogram, (edge - 64) / 16, width) / lower) if lower > 0 else 0.0


def best_interval(values: Array) -> float:
    """Greatest sum over an interval, the empty one too: to each end from where the sum before was least."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return float((sums - np.minimum.accumulate(sums)).max())


def best_start(values: Array) -> float:
    """Greatest sum over an interval that begins at the first value, the empty one too."""
    return max(0.0, float(np.cumsum(values).max()))


def excess_mass(histogram: Array, edge: int = 64) -> float:
    """E_j: how many rows would have to move for the valley at the cut, before bin `edge`, to be gone."""
    E = 0.0
    if not histogram.any():
        return E
    wide = widened(histogram)
    for level in range(1, 33):
        above = wide - wide.max() * 0.8**level
        left, right = above[: edge + 63], above[edge + 63 :]
        HL, HR = best_interval(left), best_interval(right)
        CL, CR = best_start(left[::-1]), best_start(right)
        E = max(E, min(HL, HR, HL + HR - CL - CR))
    return E


def at_all_edges(histogram: Array, n: int) -> tuple[Array, Array]:
    """E and delta for a cut before each of the 129 edges, 0 at both ends: as above, but much faster.

    The best sum over an interval that ends at an edge is the running sum S there less the least S before.
    """
    E, wide = np.zeros(255), widened(histogram)
    for level in range(1, 33):
        S = np.concatenate([[0.0], np.cumsum(wide - wide.max() * 0.8**level)])
        CL, CR = S - np.minimum.accumulate(S), np.maximum.accumulate(S[::-1])[::-1] - S
        HL, HR = np.maximum.accumulate(CL), np.maximum.accumulate(CR[::-1])[::-1]
        E = np.maximum(E, np.minimum(np.minimum(HL, HR), HL + HR - CL - CR))
    delta = [0.0, *(valley_depth(histogram, n, edge) for edge in range(1, BINS)), 0.0]
    return np.concatenate([[0.0], E[64:191], [0.0]]), np.array(delta)


# --- minimum density hyperplanes of all rows at once ----------------------------------------------


def density_on_hyperplane(
    v: Array, b: float, Y: Array, h: float, alpha: float = 0.5, C: float = 10.0
) -> float:
    """F(v, b) = mean phi((b - p_i / s) / h) / h + C max(|b| - alpha, 0)^2 of centred rows Y, p_i = v.y_i."""
    p = [float(v @ y) for y in Y]
    s = math.sqrt(sum(x * x for x in p) / len(p))
    density = sum(phi((b - x / s) / h) / h for x in p) / len(p)
    return density + C * max(abs(b) - alpha, 0.0) ** 2


# --- columns that are looked up from a thing ------------------------------------------------------


def effective_number(counts: Array) -> float:
    """exp(- sum p ln p), p the shares of the counts."""
    return math.exp(-sum(c / counts.sum() * math.log(c / counts.sum()) for c in counts if c))


def copies_along(v: Array, kinds: dict[int, tuple[int, float]]) -> float:
    """c of a cut across v. kinds: the kind of thing of each column that is looked up, and how many of these
    things there are, N. Where two thirds of |v|^2 lie on such columns 1 / (N N' ...), over the kinds with a
    twentieth at least; else 0."""
    share: dict[int, float] = {}
    for column, (kind, _) in kinds.items():
        share[kind] = share.get(kind, 0.0) + v[column] ** 2
    if sum(share.values()) < 2 / 3:
        return 0.0
    numbers = {kind: number for kind, number in kinds.values() if share[kind] >= 0.05}
    return 1.0 / math.prod(numbers.values())


# --- rows without a valley ------------------------------------------------------------------------


def two_means(Z: Array, v: Array) -> tuple[Array, float]:
    """The cut v.z = t of least squares into two parts, Lloyd's from the mean across the first component.

    Of y_i = z_i - mean, cut to 2.5 sds of each feature: thirty times v <- normed sum (v.y_i) y_i; parts by
    the sign of v.y_i; then fifteen times m, M = means of the parts, v <- normed M - m, parts by the sign of
    v.y_i - v.(m + M) / 2. t is that place, within 0.7 sd of v.y about 0, and v.mean.
    """
    mean, sd = Z.mean(axis=0), Z.std(axis=0)
    Y = np.array([[min(max(y, -2.5 * s), 2.5 * s) for y, s in zip(z - mean, sd, strict=True)] for z in Z])
    for _ in range(30):
        v = np.sum([float(v @ y) * y for y in Y], axis=0)
        v = v / math.sqrt(float(v @ v))
    place = 0.0
    for _ in range(16):
        below = [y for y in Y if float(v @ y) < place]
        above = [y for y in Y if float(v @ y) >= place]
        m, M = np.mean(below, axis=0), np.mean(above, axis=0)
        v = (M - m) / math.sqrt(float((M - m) @ (M - m)))
        place = float(v @ (m + M)) / 2
    p = np.array([float(v @ y) for y in Y])
    return v, min(max(place, -0.7 * p.std()), 0.7 * p.std()) + float(v @ mean)


# --- cuts moved to where a valley is known --------------------------------------------------------


def worth(histogram: Array, n: int, edge: int, least: float = 1.5, deep: float = 0.0) -> float:
    """E delta of a cut before bin `edge` where E is significant and the valley deep enough, else 0."""
    if min(histogram[:edge].sum(), histogram[edge:].sum()) <= least * math.sqrt(n):
        return 0.0  # E is never more than the rows of one side
    E = excess_mass(histogram, edge)
    if least * math.sqrt(n) >= E:
        return 0.0
    delta = valley_depth(histogram, n, edge)
    return E * delta if delta >= deep else 0.0


def humps(histogram: Array, rows: int | None = None) -> int:
    """One, and one more for each valley with E > 1.25 sqrt(n): that worth most, then those on its sides."""
    rows = int(histogram.sum()) if rows is None else rows
    values = {edge: worth(histogram, rows, edge, least=1.25) for edge in range(1, 128)}
    at = max(values, key=lambda edge: values[edge])
    if values[at] == 0.0:
        return 1
    left = np.arange(128) < at
    return sum(humps(np.where(side, histogram, 0), rows) for side in (left, ~left))


def best_edge(histogram: Array, n: int) -> int:
    """Where along its direction a cut is best: 64 (where it is), or an edge within 3 sd at which the valley
    is nearly empty (0.8) and worth four times as much."""
    values = {edge: worth(histogram, n, edge) for edge in range(64 - 48, 64 + 48 + 1)}
    best = max(values, key=lambda edge: values[edge])
    better = values[best] > 4 * values[64] and valley_depth(histogram, n, best) >= 0.8
    return best if better else 64


def relocate(tree: Tree) -> list[int]:
    """Every split, from the root down, to the best place known from the last windows. Returns what moved.

    A split below one that moved starts anew from the direction it had, and is not asked.
    """
    summary = windowed(tree)
    frozen = freeze(tree)
    edge, value = {}, {}
    for i, node in tree.splits.items():
        n, histogram = int(summary.counts[i - 1]), summary.histograms[i - 1]
        known = n >= 20 and node.s2 > 0 and histogram.any()
        edge[i] = best_edge(histogram, n) if known else 64
        value[i] = worth(histogram, n, edge[i]) if known else 0.0
    moved: list[int] = []
    for i, node in tree.splits.items():
        if any(_is_below(i, top) for top in moved):
            continue
        below = [j for j in tree.splits if j != i and _is_below(j, i)]
        best = max(below, key=lambda j: value[j], default=i)
        if value[best] <= 4 * value[i]:
            best = i
        if value[best] == 0 or (best == i and edge[i] == 64):
            continue
        n, donor = int(summary.counts[best - 1]), tree.splits[best]
        depth = valley_depth(summary.histograms[best - 1], n, edge[best])
        threshold = frozen.threshold[best - 1] + (edge[best] - 64) / 16 * frozen.s[best - 1]
        if best != i:
            node.v = donor.v.copy()
            node.t = min(node.t, donor.t)
            node.s2 = _variance_along(node.v, i, tree, summary)
        node.b = threshold - float(node.v @ node.m)
        node.anchor = node.b if depth >= 0.8 else 0.0
        _start_anew_below(i, tree)
        moved.append(i)
    return moved


def pass_over_and_move(tree: Tree, Z: Array, *, settled: int, tried: int) -> Tree:
    """The first pass, with moves where windows of the first `settled` rows end; returns the tree that leaves.

    What was counted before a move was counted under other cuts: it is forgotten, and of the tree that moved
    nothing is known yet. So until that has met `tried` rows, the tree of before leaves, with its windows.
    """
    former: Tree | None = None
    since, turn = 0, tree.window_rows
    for met, z in enumerate(Z, start=1):
        tree._learn(z)
        since += 1
        if since >= tried:
            former = None
        if met == turn:
            tree._turn_over()
            turn *= 2
            before = deepcopy(tree)
            if met <= settled and relocate(tree):
                former, since = former or before, 0
                tree._turn_over()
    return former or tree


def _variance_along(v: Array, i: int, tree: Tree, summary: Summary) -> float:
    """Of the projections of a node's rows, as if features were independent within each leaf."""
    total, rows = 0.0, 0
    for leaf in tree.leaves:
        if _is_below(leaf, i):
            n = int(summary.counts[leaf - 1])
            rows += n
            total += n * float(v @ (summary.means[leaf - 1] - summary.means[i - 1])) ** 2
            total += float(v**2 @ summary.ss[leaf - 1])
    return total / max(rows, 1)


def _start_anew_below(i: int, tree: Tree) -> None:
    for j, split in tree.splits.items():
        if j != i and _is_below(j, i):
            tree.splits[j] = Split(split.v, np.zeros(tree.d), current=split.current, previous=split.previous)
    for j, leaf in tree.leaves.items():
        if _is_below(j, i):
            tree.leaves[j] = Leaf(np.zeros(tree.d), leaf.current, leaf.previous)


def ends_too_early(summary: Summary) -> bool:
    """Whether a split of the last level has a significant valley (1.5) that is nearly empty (0.8): then the
    tree grows by two levels before the next epoch, once."""
    m = len(summary.histograms)
    for i in range((m + 1) // 2, m + 1):
        n, histogram = int(summary.counts[i - 1]), summary.histograms[i - 1]
        if n >= 4 and excess_mass(histogram) > 1.5 * math.sqrt(n) and valley_depth(histogram, n) >= 0.8:
            return True
    return False


def deeper(tree: Tree, V: Array) -> Tree:
    """The same splits above new ones, whose first directions are those of V (m', d)."""
    grown = Tree(int(math.log2(len(V) + 1)), V, tree.rule, tree.window_rows)
    for i, split in tree.splits.items():
        grown.splits[i] = replace(split, current=grown.splits[i].current, previous=grown.splits[i].previous)
    return grown


# --- cuts moved to single features ----------------------------------------------------------------


def move_to_features(tree: Tree, Z: Array, without: Sequence[int] = (), hold: bool = False) -> list[int]:
    """Every split, from the root down, to the feature along which a cut is worth four times as much, judged
    on the rows of Z (n, d) that stand there. Returns what moved.

    A place within 3 sd of the mean, with a valley nearly empty (0.8) and significant for the best of d: E
    beyond sqrt(1.6^2 + ln(d) / 5) sqrt(n). It is looked at twice: in the histogram about the mean, whose
    place of greatest worth is the candidate, and in that about the cut. Below what moved no cut is known.
    hold: what moved counts as learned from 10^12 rows, so that it stays.
    """
    rule, frozen, moved = tree.rule, freeze(tree), []
    least = math.sqrt(1.6**2 + math.log(Z.shape[1]) / 5)
    waiting = [(1, list(range(len(Z))), False)]
    while waiting:
        i, rows, fresh = waiting.pop()
        used = [row for row in rows if not is_clipped(Z[row], rule)]
        if i not in tree.splits or len(used) < 200:
            continue
        node = tree.splits[i]
        known = not fresh and node.t > 0 and node.s2 > 0
        cut, v = frozen.threshold[i - 1], frozen.v[i - 1]
        own = 0.0
        if known:
            own = worth(histogram_of(Z[used] @ v - cut, math.sqrt(node.s2)), len(used), 64)
        mean, sd = Z[used].mean(axis=0), Z[used].std(axis=0)
        places = {}
        for f in set(range(Z.shape[1])) - set(without):
            if sd[f] > 1e-9:
                h = histogram_of(Z[used, f] - mean[f], sd[f])
                values = {e: worth(h, len(used), e, least, 0.8) for e in range(64 - 48, 64 + 48 + 1)}
                e = max(values, key=lambda e: values[e])
                places[f] = values[e], mean[f] + sd[f] * (e - 64) / 16
        for f in sorted(places, key=lambda f: -places[f][0])[:8]:
            value, at = places[f]
            h = histogram_of(Z[used, f] - at, sd[f])
            if value <= 4 * own or worth(h, len(used), 64, least, 0.8) <= 4 * own:
                continue
            _start_anew_below(i, tree)
            node.v, cut = np.eye(Z.shape[1])[f], at
            if hold or not known:
                node.m, node.t, node.rho2 = mean, 10**12 if hold else len(used), float((sd**2).mean())
            node.s2, node.b = sd[f] ** 2, at - node.m[f]
            node.anchor = node.b
            moved.append(i)
            break
        if known or moved[-1:] == [i]:
            goes_left = Z[rows] @ node.v < cut
            for child, side in ((2 * i, goes_left), (2 * i + 1, ~goes_left)):
                waiting.append(
                    (child, [r for r, s in zip(rows, side, strict=True) if s], fresh or i in moved)
                )
    return moved


def histogram_of(distances: Array, sd: float) -> Array:
    h = np.zeros(BINS, np.int64)
    for distance in distances:
        h[bin_of(distance / sd)] += 1
    return h


# --- noise for values that come again -------------------------------------------------------------


def uniform(key: int, place: int) -> float:
    """The random number of a place: SplitMix64 (Steele, Lea and Flood 2014), jumped ahead."""
    wrap = (1 << 64) - 1
    s = (key + (place + 1) * 0x9E3779B97F4A7C15) & wrap
    s = ((s ^ (s >> 30)) * 0xBF58476D1CE4E5B9) & wrap
    s = ((s ^ (s >> 27)) * 0x94D049BB133111EB) & wrap
    return ((s ^ (s >> 31)) >> 11) / 2**53


def rooms(column: Array) -> dict[float, tuple[float, float]] | None:
    """How far the noise of each value of a sample goes below and above; None where values do not come again.

    Half the gap to the neighbour, beyond the first and the last as far as within. No gap counts for more than
    4 times the least that 3 of 4 rows have beside them at most, or than the interquartile range.
    """
    rows = Counter(float(x) for x in column if not math.isnan(x))
    values = sorted(rows)
    if not 2 <= len(values) <= 0.9 * sum(rows.values()):
        return None
    gaps = [b - a for a, b in pairwise(values)]
    beside = [rows[a] + rows[b] for a, b in pairwise(values)]
    total, below, most = sum(beside), 0, 0.0
    for k in sorted(range(len(gaps)), key=lambda k: gaps[k]):
        below, most = below + beside[k], gaps[k]
        if below >= 0.75 * total:
            break
    low, high = np.quantile(column[~np.isnan(column)], [0.25, 0.75])
    gaps = [min(gap, max(4 * most, float(high - low))) for gap in gaps]
    return {v: (([gaps[0], *gaps])[k] / 2, ([*gaps, gaps[-1]])[k] / 2) for k, v in enumerate(values)}


def spikes(column: Array) -> dict[float, tuple[float, Array]]:
    """Of the values with three times the median of the rows m_i of the five around, 1 % of all and 4 roots of
    their own more than that, but two side by side: those in the midst of the rest (all rows, of these only
    m_i), with a twentieth of it on either side and a depth of 0.8 nowhere, four at most; and the two ends, if
    both. The part of their rows that is moved, and to where: quantiles of the rest, or evenly outwards, as
    densely as in the tenth of the rest that is nearest.

    That a column has more humps with them than without, and no codes and no round numbers, is not asked.
    """
    values, rows = np.unique(column, return_counts=True)
    n, last = len(column), len(values) - 1
    near = [[abs(j) if j <= last else 2 * last - j for j in range(i - 2, i + 3)] for i in range(last + 1)]
    m = [sorted(rows[j] for j in five)[2] for five in near]
    up = [r > max(0.01 * n, 3 * a) and r - a > 4 * math.sqrt(r) for r, a in zip(rows, m, strict=True)]
    alone = [up[i] and not (i and up[i - 1]) and not (i < last and up[i + 1]) for i in range(last + 1)]

    def rest_without(some: Sequence[int]) -> Array:
        return np.array([m[i] if i in some else rows[i] for i in range(last + 1)])

    rest = rest_without([i for i in range(last + 1) if alone[i]])
    midst = []
    for i in range(last + 1):
        if alone[i] and min(rest[:i].sum(), rest[i + 1 :].sum()) >= 0.05 * rest.sum():
            sd = math.sqrt(np.cov(values, fweights=rest, ddof=0))
            bins = np.clip(np.floor((values - values[i]) / sd * 16 + 0.5) + 64, 0, 127).astype(int)
            if valley_depth(np.bincount(bins, rest, 128).astype(int), int(rest.sum())) < 0.8:
                midst.append(i)
    taken = (midst if len(midst) <= 4 else []) + ([0, last] if alone[0] and alone[last] else [])
    rest = rest_without(taken)
    shares = (np.arange(129) + 0.5) / 129

    def quantiles(at: Array | list[float]) -> Array:
        return np.interp(at, (np.cumsum(rest) - rest / 2) / rest.sum(), values)

    found = {}
    for i in taken:
        moved, to = rows[i] - m[i], quantiles(shares)
        if i in (0, last):
            inner = quantiles([0.1 if i == 0 else 0.9])[0]
            width = min(moved * abs(inner - values[i]) / (0.1 * rest.sum()), (values[-1] - values[0]) / 2)
            to = values[i] + width * shares * (-1 if i == 0 else 1)
        found[float(values[i])] = moved / rows[i], to
    return found


def stick(shares: dict[int, float], level: int, u: dict[int, float]) -> list[float]:
    """The pieces of a stick for a row of one level: each of L, the frequent ones first, has of what is left
    a part by the law Beta(1, levels to come), which its own rows have the largest of. u : the random number
    of each."""
    order = sorted(shares, key=lambda f: -shares[f])
    volume = {f: 0.5 * shares[f] + 0.5 / len(shares) for f in order}
    left, pieces = 1.0, []
    for k, f in enumerate(order[:-1]):
        own = volume[f] / sum(volume[g] for g in order[k:])
        w = 1.0 - u[f]
        if level == f:
            w = own * w
        elif level in order[k:]:
            w = own + (1 - own) * w
        pieces.append(left * (1 - w ** (1 / (len(order) - 1 - k))))
        left -= pieces[-1]
    return [*pieces, left]


# --- the order of pruning -------------------------------------------------------------------------


@dataclass
class Valleys:
    """Per split j (index j - 1): what the order and the number of clusters are decided by."""

    gain: Array
    depth: Array
    excess: Array  # E_j / sqrt(n_j)
    significant: Array  # bool
    kept: Array  # bool: significant itself or below
    cost: Array  # what removing it adds to the curve: t_j, or the gain of weight "ss"
    divides: Array  # bool: both children have rows enough for a cluster


def node_ss(summary: Summary, weight: str) -> Array:
    """(n,): sum of squares of each node; of weight "ss" about the learned means."""
    total = summary.ss.sum(axis=1)
    if weight == "ss":
        total = total + summary.counts * ((summary.means - summary.pivots) ** 2).sum(axis=1)
    return total


def least_excess(threshold: float, j: int, n: float, d: int, plain: bool = True) -> float:
    """What E / sqrt(n) must exceed at node j: t min(1, sqrt(0.81 + 1.44 level / 7 + 10 d / n) / 1.5), or t
    where that is 2 or more, and where a part of the variance is noise or rows lie on piles."""
    if threshold >= 2.0 or not plain:
        return threshold
    return threshold * min(
        1.0, math.sqrt(0.81 + 1.44 * (j.bit_length() - 1) / 7 + 10 * d / max(n, 1.0)) / 1.5
    )


def valleys(
    summary: Summary, *, threshold: float = 1.5, weight: str = "valley", min_size: int = 1
) -> Valleys:
    m = len(summary.histograms)
    SS, exact = node_ss(summary, weight), node_ss(summary, "valley")
    out = Valleys(
        gain=np.zeros(m),
        depth=np.zeros(m),
        excess=np.zeros(m),
        significant=np.zeros(m, bool),
        kept=np.zeros(m, bool),
        cost=np.zeros(m),
        divides=np.zeros(m, bool),
    )
    for j in range(m, 0, -1):
        histogram = summary.histograms[j - 1]
        n = max(int(summary.counts[j - 1]), int(histogram.sum()))
        left, right = 2 * j - 1, 2 * j  # rows of the children 2j and 2j + 1
        out.divides[j - 1] = min(summary.counts[left], summary.counts[right]) >= max(1, min_size)
        gain = SS[j - 1] - SS[left] - SS[right]
        out.gain[j - 1] = gain if weight == "ss" else max(gain, 0.0)
        out.depth[j - 1] = valley_depth(histogram, n)
        lesser = min(summary.counts[left], summary.counts[right])
        of = min(n, 9 * lesser) if out.depth[j - 1] >= 0.8 and lesser else n  # a few rows far from many
        out.excess[j - 1] = excess_mass(histogram) / math.sqrt(of) if n else 0.0
        if summary.on_piles is not None and out.depth[j - 1] < 0.8 and summary.on_piles[j - 1].any():
            # A valley that neither the rows on a pile nor the others have lies between a pile and the rest.
            parts = [summary.on_piles[j - 1], histogram - summary.on_piles[j - 1]]
            of_parts = [excess_mass(part) / math.sqrt(max(part.sum(), 1)) for part in parts]
            out.excess[j - 1] = min(out.excess[j - 1], max(of_parts))
        alike = 1 + np.broadcast_to(summary.copies, m)[j - 1] * summary.counts[0]
        out.excess[j - 1] /= math.sqrt(alike)
        plain = (summary.on_piles is None or not summary.on_piles[j - 1].any()) and of == n
        least = least_excess(threshold, j, summary.counts[j - 1] / alike, summary.means.shape[1], plain)
        clear = summary.counts[j - 1] >= 4 and out.excess[j - 1] > least and out.depth[j - 1] > 0
        out.significant[j - 1] = clear and out.divides[j - 1]
        below = [c for c in (2 * j, 2 * j + 1) if c <= m]
        out.kept[j - 1] = out.significant[j - 1] or any(out.kept[c - 1] for c in below)
        if weight == "ss":
            out.cost[j - 1] = gain
        elif out.significant[j - 1]:
            rest = exact[left] + exact[right]
            ratio = min(exact[j - 1] / rest, 1e6) if rest > 0 else 1e6
            out.cost[j - 1] = out.depth[j - 1] * n * math.log(ratio)
    return out


def kept_tree(summaries: Sequence[Summary], agreements: Sequence[float], threshold: float = 2.5) -> int:
    """Which of several trees of the same rows is kept: agreement x sqrt(worth), then agreement, decide.

    agreements: the mean adjusted Rand index of each tree's clusters with those of the others. Worth: the sum
    of G delta over the splits significant by the stricter test.
    """
    scores = []
    for summary, agreement in zip(summaries, agreements, strict=True):
        v = valleys(summary, threshold=threshold)
        worth = sum(v.gain[j] * v.depth[j] for j in range(len(v.gain)) if v.significant[j])
        scores.append((max(agreement, 0.01) * math.sqrt(worth), agreement))
    return scores.index(max(scores))


def removal_order(valley: Valleys, weight: str = "valley", min_size: int = 1) -> list[int]:
    """Splits in the order they are removed: always one whose children are both terminal."""
    m = len(valley.gain)

    def key(j: int) -> tuple[float, ...]:
        G, delta = valley.gain[j - 1], valley.depth[j - 1]
        if min_size > 1 and not valley.divides[j - 1]:
            return (-1, G if weight == "ss" or not valley.kept.any() else G * (0.001 + delta), j)
        if weight == "ss":
            return (0, G, j)
        plain = G * (0.001 + delta) if valley.kept.any() else G
        if not valley.kept[j - 1]:
            return (0, plain, 0.0, j)
        return (1, G * delta if valley.significant[j - 1] else 0.0, plain, j)

    order: list[int] = []
    removed: set[int] = set()
    while len(order) < m:
        terminal = {*removed, *range(m + 1, 2 * m + 2)}
        ready = [
            j for j in range(1, m + 1) if j not in removed and 2 * j in terminal and 2 * j + 1 in terminal
        ]
        j = min(ready, key=key)
        order.append(j)
        removed.add(j)
    return order


def terminals(order: Sequence[int], removals: int, depth: int) -> list[int]:
    """Terminal nodes, left to right, once the first `removals` splits of the order are gone."""
    gone = set(order[:removals])

    def walk(i: int) -> list[int]:
        if i >= 2**depth or i in gone:
            return [i]
        return walk(2 * i) + walk(2 * i + 1)

    return walk(1)


def in_use(nodes: Sequence[int], counts: Array, min_size: int = 1) -> list[int]:
    return [i for i in nodes if counts[i - 1] >= max(1, min_size)]


def removals_by_number(order: Sequence[int], counts: Array, depth: int, min_size: int = 1) -> dict[int, int]:
    """{K: fewest removals with K terminals in use}, from the state with most terminals in use on."""
    numbers = [
        max(1, len(in_use(terminals(order, removals, depth), counts, min_size)))
        for removals in range(len(order) + 1)
    ]
    first: dict[int, int] = {}
    for removals in range(numbers.index(max(numbers)), len(order) + 1):
        first.setdefault(numbers[removals], removals)
    return first


def label_leaves(removals: int, order: Sequence[int], counts: Array, depth: int, min_size: int = 1) -> Array:
    """(2^D,) labels 1..K of the leaves, left to right, after so many removals."""
    nodes = terminals(order, removals, depth)
    used = in_use(nodes, counts, min_size)
    label = {i: k for k, i in enumerate(used, start=1)}
    for i in nodes:
        if i not in label:
            label[i] = label.get(_stand_in(i, used) or 0, 1)
    return np.array([label[_ancestor(leaf, nodes)] for leaf in range(2**depth, 2 ** (depth + 1))])


def _ancestor(i: int, nodes: Sequence[int]) -> int:
    known = set(nodes)
    while i not in known:
        i //= 2
    return i


def _is_below(i: int, top: int) -> bool:
    while i > top:
        i //= 2
    return i == top


def _stand_in(i: int, used: Sequence[int]) -> int | None:
    """The terminal in use that speaks for node i, which is out of use; used is left to right."""
    while i > 1:
        there = [j for j in used if _is_below(j, i ^ 1)]
        if there:
            return there[0] if i % 2 == 0 else there[-1]
        i //= 2
    return None


# --- the number of clusters -----------------------------------------------------------------------

TINY = 1e-10


def angles(x: float, y: float) -> float:
    """The paper's elbow: the angle between the two chords that meet at (x, y)."""
    return math.atan(x / (1 - y + TINY)) + math.atan(y / (1 - x + TINY))


def weighted_angles(x: float, y: float) -> float:
    return (angles(x, y) + math.pi / 2) * (2 + x * x + y * y + (1 - x) ** 2 + (1 - y) ** 2)


def weighted_votes(Q: Sequence[float]) -> list[int]:
    """Q[K - 1] = Q(K). One vote for each Kmax = 3 .. min(128, L)."""
    votes = []
    for Kmax in range(3, min(128, len(Q)) + 1):
        span = Q[0] - Q[Kmax - 1]
        if span <= 0:
            continue
        values = []
        for K in range(1, Kmax + 1):
            values.append(weighted_angles((K - 1) / (Kmax - 1), (Q[K - 1] - Q[Kmax - 1]) / span))
        votes.append(1 + values.index(min(values)))
    return votes


def paper_votes(Q: Sequence[float]) -> list[int]:
    """Q[K - 1] = Q(K). A vote for each of 30 values of Kmax; never 1."""
    L = len(Q)
    votes = []
    for Kmax in (min(math.ceil(x), L) for x in np.linspace(10, L, 30)):
        if Kmax < 2:
            continue
        least, greatest = min(Q[:Kmax]), max(Q[:Kmax])
        if greatest <= least:
            continue
        values = []
        for K in range(2, Kmax + 1):
            y = (Q[K - 1] - least) / (greatest - least)
            values.append(angles((K - 1) / (Kmax - 1), y))
        votes.append(2 + values.index(min(values)))
    return votes


def most_frequent(votes: Sequence[int]) -> int | None:
    """The number of at least 2 with most votes, the smallest on ties; None without any."""
    count = Counter(k for k in votes if k >= 2)
    return min(count, key=lambda k: (-count[k], k)) if count else None


@dataclass
class Choice:
    K: int
    clarity: str
    alternatives: tuple[int, ...]
    S: int
    V: int
    largest: int  # L
    order: list[int]
    cluster_of_leaf: Array
    valley: Valleys
    total_ss: Array  # (L,)
    Q: Array  # (L,)
    votes: list[int]


def prune(
    summary: Summary,
    *,
    clusters: int | str = "auto",
    weight: str = "valley",
    elbow: str = "weighted",
    min_size: int = 1,
    max_clusters: int | None = None,
    threshold: float = 1.5,
) -> Choice:
    """From summaries to clusters."""
    m = len(summary.histograms)
    depth = int(math.log2(m + 1))
    valley = valleys(summary, threshold=threshold, weight=weight, min_size=min_size)
    order = removal_order(valley, weight, min_size)
    removals = removals_by_number(order, summary.counts, depth, min_size)
    L, SS = max(removals), node_ss(summary, "valley")
    total: list[float] = []
    Q: list[float] = []
    for K in range(1, L + 1):
        total.append(sum(SS[i - 1] for i in terminals(order, removals[K], depth)))
        Q.append(sum(valley.cost[j - 1] for j in order[: removals[K]]))
    S, V = int((valley.kept & valley.divides).sum()), int(valley.significant.sum())
    most = min(L, max_clusters or L)
    votes: list[int] = []
    if clusters == "auto" and weight == "valley" and S == 0:
        K = 1
    elif clusters == "auto":
        votes = paper_votes(Q[:most]) if elbow == "paper" else weighted_votes(Q[:most])
        K = min(most_frequent(votes) or max(S + 1, 2), most)
        if weight == "valley":
            found = [j for j in range(1, m + 1) if valley.significant[j - 1]]
            last = [j for j in found if not any(i != j and _is_below(i, j) for i in found)]
            if elbow == "weighted" and (_empty(found, 0.8, valley) or _empty(last, 2 / 3, valley)):
                K = max(K, min(V + 1, most))
            K = min(K, S + 1)
    elif clusters == "valleys":
        K = min(S + 1, most)
    else:
        K = int(clusters)
    choice = Choice(
        K=K,
        clarity="given",
        alternatives=(),
        S=S,
        V=V,
        largest=L,
        order=order,
        cluster_of_leaf=label_leaves(removals[K], order, summary.counts, depth, min_size),
        valley=valley,
        total_ss=np.array(total),
        Q=np.array(Q),
        votes=votes,
    )
    if clusters == "auto" and threshold == 1.5:
        stricter = prune(
            summary,
            weight=weight,
            elbow=elbow,
            min_size=min_size,
            max_clusters=max_clusters,
            threshold=2.0,
        )
        laxer = prune(
            summary,
            weight=weight,
            elbow=elbow,
            min_size=min_size,
            max_clusters=max_clusters,
            threshold=1.25,
        )
        at_bottom = any(
            i >= 2**depth and summary.counts[i - 1] >= max(1, min_size)
            for i in terminals(order, removals[K], depth)
        )
        choice = _judged(choice, stricter.K, laxer.S + 1, at_bottom)
        if choice.clarity == "clear" and divides_off_a_pile(choice.cluster_of_leaf, summary):
            choice = replace(choice, clarity="close")
    return choice


def divides_off_a_pile(cluster_of_leaf: Array, summary: Summary) -> bool:
    """A cut between clusters of which one side's rows are on a pile, nine of ten, and the other's are not."""
    m = len(summary.histograms)
    for j in range(1, m + 1) if summary.on_piles is not None else ():
        below = [leaf for leaf in range(m + 1, 2 * m + 2) if leaf == j or _is_below(leaf, j)]
        if len({cluster_of_leaf[leaf - m - 1] for leaf in below}) == 1:
            continue
        parts = [
            summary.on_piles[j - 1, side].sum() / max(summary.histograms[j - 1, side].sum(), 1)
            for side in (slice(0, 64), slice(64, 128))
        ]
        if max(parts) >= 0.9 and min(parts) <= 1 - 0.9:
            return True
    return False


def _empty(splits: Sequence[int], part: float, valley: Valleys) -> bool:
    return bool(splits) and float(np.mean([valley.depth[j - 1] >= 0.8 for j in splits])) >= part


def _judged(choice: Choice, K2: int, S125: int, at_bottom: bool) -> Choice:
    """Clarity, and the other numbers worth showing: clear if all readings give the same number.

    Also not clear where a cluster is a leaf of the full tree, which could not be split any further.
    """
    K, S, V = choice.K, choice.S, choice.V
    if S == 0:
        return replace(choice, clarity="none")
    others = {S + 1, V + 1, K2, S125} - {K}
    if not others and not at_bottom:
        return replace(choice, clarity="clear")
    return replace(choice, clarity="close", alternatives=tuple(sorted(others)))
