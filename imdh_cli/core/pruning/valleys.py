"""The histogram of a split's projections -> how deep a valley is there, and whether it is no accident.

delta   depth: 1 - f(cut) / min(highest f left, highest f right), f the density smoothed as wide as the
        rows of one side are spread: two far groups are not smeared over the gap between them; no finer
        than the noise that rows have (see core.dither), below which a valley is the shape of the noise
E       excess mass of the lesser side (Mueller and Sawitzki 1991): twice n times Hartigan's dip with
        the valley held at the cut. E / sqrt(n) has a null law almost free of n, d and shape, whose
        5 % point over 255 splits is 1.2 to 1.3.
"""

from __future__ import annotations

import numpy as np

from imdh_cli.compiled.histogram import BINS, CENTRES, HALF, HALVED_GAUSSIAN, LEAST_BANDWIDTH, PER_SD

SIGNIFICANT = 1.5  # E / sqrt(n) beyond which a valley is no accident, of the 128 splits of the eighth level;
AT_ROOT = 0.9  # of a root alone, of many rows, with no more noise than
PLAIN = 0.03  # of the variance along it;
OF_FEATURES = 10.0  # and what d / n adds to its square: directions of many features fit the rows they are of
SURE = 2.0  # and beyond which none could doubt it
LAX = 1.25  # what one split in twenty trees reaches by accident
EMPTY = 0.8  # depth of a valley that is nearly empty
RARE = 9  # times the rows of the lesser side: where that is less than n, it stands for n
FEW = 20  # rows beyond a nearly empty valley from which on these are told of: one Gaussian has none such
LEAST_ROWS = 4
BEYOND = HALF  # bins that an end bin is taken to be wide, as it holds all that lies beyond
# With the end bins spread out as far as that: whose bin each is, and what part of it.
_OF_BIN = np.clip(np.arange(BINS + 2 * BEYOND - 2) - BEYOND + 1, 0, BINS - 1)
_PARTS = np.where((_OF_BIN == 0) | (_OF_BIN == BINS - 1), float(BEYOND), 1.0)
_WIDE_CENTRES = (np.arange(len(_OF_BIN)) + 1.5 - HALF - BEYOND) / PER_SD
# How far from these the bins' centres and the cut are, in half bins: a weight is told once for a distance.
_APART = (np.abs(np.append(CENTRES, 0.0)[:, None] - _WIDE_CENTRES) * (2 * PER_SD)).astype(np.intp)
_DISTANCES = np.arange(_APART.max() + 1) / (2 * PER_SD)


def valley_depths(
    histograms: np.ndarray, counts: np.ndarray, noise_shares: np.ndarray | None = None
) -> np.ndarray:
    """delta of each split, (m,), from its histogram (m, 128), its number of rows (m,), and which part of the
    variance is noise (m,)."""
    depths = np.zeros(len(histograms))
    some = np.flatnonzero((counts >= LEAST_ROWS) & (histograms.sum(axis=1) > 0))
    shares = None if noise_shares is None else noise_shares[some]
    for i, h in zip(some, bandwidths(histograms[some], counts[some], shares), strict=True):
        f, at_cut = _smooth(histograms[i], h)
        lesser = min(f[:HALF].max(), f[HALF:].max())
        depths[i] = max(0.0, 1.0 - at_cut / lesser) if lesser > 0 else 0.0
    return depths


def smooth(histogram: np.ndarray, rows: int) -> tuple[np.ndarray, float]:
    """Density of the projections at the 128 bin centres and at the cut, per sd, area 1 in all, by a Gaussian
    kernel of the bandwidth that `bandwidths` gives."""
    return _smooth(histogram, bandwidths(histogram[None], np.array([rows]))[0])


def _smooth(histogram: np.ndarray, h: float) -> tuple[np.ndarray, float]:
    total = max(1.0, float(histogram.sum())) * h * np.sqrt(2.0 * np.pi)
    wide = histogram[_OF_BIN] / _PARTS
    used = np.flatnonzero(wide)
    weights = np.exp(-0.5 * (_DISTANCES / h) ** 2)
    f = weights.take(_APART.take(used, axis=1)) @ (wide[used] / total)
    return f[:-1], float(f[-1])


def bandwidths(
    histograms: np.ndarray, counts: np.ndarray, noise_shares: np.ndarray | None = None
) -> np.ndarray:
    """1.06 n^-0.2 (Silverman) by the sd of rows about the mean of their own side of the cut, where that of a
    Gaussian halved at its mean counts as 1: in sds of all rows, at least LEAST_BANDWIDTH bins; and at least
    the sd of the noise, but for that no more than by the sd of all rows. (m,), from histograms (m, 128),
    their numbers of rows n (m,), and which part of the variance of all rows is noise (m,)."""
    squares = np.zeros(len(histograms))
    for side in (slice(None, HALF), slice(HALF, None)):
        h, at = histograms[:, side], CENTRES[side]
        squares += h @ at**2 - (h @ at) ** 2 / np.maximum(1, h.sum(axis=1))
    within = np.sqrt(np.maximum(squares, 0.0) / np.maximum(1, histograms.sum(axis=1)) / HALVED_GAUSSIAN)
    least: float = LEAST_BANDWIDTH / PER_SD
    silverman = 1.06 * counts.astype(np.float64) ** -0.2
    h = np.maximum(silverman * within, least)
    return h if noise_shares is None else np.maximum(h, np.minimum(silverman, np.sqrt(noise_shares)))


def excess_mass(histograms: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """E / sqrt(n) of each split, (m,), from its histogram (m, 128) and its number of rows (m,).

    The best sum of h - lam over an interval that ends at an edge is S there less the least S before, where
    S are the running sums of h - lam.
    """
    some = np.flatnonzero((counts >= LEAST_ROWS) & (histograms.max(axis=1, initial=0) > 0))
    excess, h = np.zeros(len(some)), histograms[some]
    edges = np.arange(BINS + 1.0)[:, None]
    edges[[0, -1], 0] += 1 - BEYOND, BEYOND - 1
    rows = np.zeros((BINS + 1, len(some)))  # one split a column: operations on rows are faster
    np.cumsum(h.T, axis=0, out=rows[1:])
    top = np.maximum(h[:, 1:-1].max(axis=1), h[:, [0, -1]].max(axis=1) / BEYOND)
    for level in range(1, 33):
        sums = rows - edges * (top * 0.8**level)
        left, right = sums[: HALF + 1], sums[: HALF - 1 : -1]  # both from the end inwards
        left, right = left - np.minimum.accumulate(left), np.maximum.accumulate(right) - right
        most_left, most_right = left.max(axis=0), right.max(axis=0)
        bridge = most_left + most_right - left[-1] - right[-1]
        np.maximum(excess, np.minimum(np.minimum(most_left, most_right), bridge), out=excess)
    all_of_them = np.zeros(len(histograms))
    all_of_them[some] = excess
    return all_of_them / np.sqrt(np.maximum(counts, 1))


def eased(rows: np.ndarray, features: int, plain: np.ndarray) -> np.ndarray:
    """By what a threshold for E / sqrt(n) is multiplied at each split, (m,): 1 from the eighth level on.

    Its square grows with the level, as that of the largest of twice as many numbers does. rows : (m,), that
    each split stands for. plain : (m,) bool, no noise to speak of along it, no piles and no few rows beyond;
    else 1: the room of values is such that their valleys stay below the threshold, and so do tails. Of 448
    tables of fourteen shapes of one cluster, 200 to 6,000 rows of 2 to 40 features, none has a valley by it.
    """
    levels = len(rows).bit_length()
    level = np.repeat(np.arange(levels), 1 << np.arange(levels))
    squares = AT_ROOT**2 + (SIGNIFICANT**2 - AT_ROOT**2) * level / 7
    squares += OF_FEATURES * features / np.maximum(rows, 1)
    return np.where(plain, np.sqrt(np.minimum(1.0, squares / SIGNIFICANT**2)), 1.0)


def of_few(excess: np.ndarray, depths: np.ndarray, counts: np.ndarray, lesser: np.ndarray) -> np.ndarray:
    """E / sqrt(n) of each split, (m,), with n no more than RARE times the rows of its lesser side where the
    valley is nearly empty: a hundred rows far from twenty thousand are less than their root, and no accident.

    excess (E / sqrt(counts)), depths, counts, lesser : (m,). Beyond cuts into the tails of eight shapes with
    500 to 100,000 rows, 150 draws each, E stayed below 2.4 roots of the rows there, of a Cauchy's below 3.4;
    1.5 by RARE asks for 4.5.
    """
    few = np.where(are_few(depths, counts, lesser), RARE * lesser, counts)
    return excess * np.sqrt(np.maximum(counts, 1) / np.maximum(few, 1))


def are_few(depths: np.ndarray, counts: np.ndarray, lesser: np.ndarray) -> np.ndarray:
    """Whether the lesser side of each split, (m,), has few rows beyond a nearly empty valley."""
    few: np.ndarray = (depths >= EMPTY) & (lesser > 0) & (RARE * lesser < counts)
    return few


def beyond_empty(depths: np.ndarray, lesser: np.ndarray) -> np.ndarray:
    """Of each split, (m,), the rows that stand apart beyond a nearly empty valley; 0 where too few to be told
    of. lesser : (m,), rows of its lesser side."""
    return np.where((depths >= EMPTY) & (lesser >= FEW), lesser, 0)


def without_piles(
    excess: np.ndarray, depths: np.ndarray, histograms: np.ndarray, on_piles: np.ndarray
) -> np.ndarray:
    """E / sqrt(n) of each split, (m,), where a valley counts for no more than in the better of its two parts.

    on_piles : (m, 128), the part of its histogram on a pile. A valley that neither those rows nor the others
    have lies between a pile and the rest. A nearly empty one divides them nevertheless.
    """
    excess = excess.copy()
    some = np.flatnonzero((depths < EMPTY) & on_piles.any(axis=1))
    parts = [part[some] for part in (on_piles, histograms - on_piles)]
    better = np.maximum(*(excess_mass(part, part.sum(axis=1)) for part in parts))
    excess[some] = np.minimum(excess[some], better)
    return excess
