"""Columns of few distinct values, as 0/1, ratings and category codes -> histograms without their gaps.

Between two codes there is no row, and so a cut there looks like one through an empty valley; but that every
value is a code says nothing of clusters. A gap counts for nothing if it would close were each code spread
evenly over the room around it. So before a split is judged, the histogram of its projections is convolved
with what that spreading would do: with a box as wide as the step from code to code, seen along the direction.
Valleys wider than that stay, such as between groups that differ in many coded columns. Below a few cuts there
may be rows of two codes in each of two columns, but only of two of the four pairs: where the modes are as
near as that, the two widest steps are one box. NumPy only.

Where a code is so rare that its step is more than 4 sd of its column, 4 sd are the step: a few far rows
should not blur everybody's gaps.
"""

from __future__ import annotations

import numpy as np

from imdh_cli.compiled.histogram import BINS, HALF, PER_SD

LEAST_BINS = 0.5  # narrower boxes change nothing
BOXES = 3  # the widest steps are boxes of their own, the others together one of the same variance
NEAR = 1.1  # times both widest steps: what lies no farther apart may be that
WIDEST = 1e6  # bins: wider ones are all the same


def without_gaps(
    histograms: np.ndarray, directions: np.ndarray, deviations: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Histograms as if each code had been spread over its step.

    Parameters
    ----------
    histograms : (m, 128), of v.z in bins of 1/16 projected sd
    directions : (m, d)
    deviations : (m,) projected sds
    steps : (d,) in the coordinates of the directions

    Returns
    -------
    (m, 128) float64, or `histograms` itself where no column is coded
    """
    coded = np.flatnonzero(steps)
    if not len(coded):
        return histograms
    spread = histograms.astype(np.float64)
    some = np.flatnonzero((deviations > 0) & (histograms.sum(axis=1) > 0))
    with np.errstate(over="ignore", invalid="ignore"):
        widths = np.abs(directions[np.ix_(some, coded)]) * steps[coded] / (deviations[some, None] / PER_SD)
    widths = -np.sort(-np.nan_to_num(np.minimum(widths, WIDEST), nan=WIDEST), axis=1)
    left, right = histograms[some, :HALF].argmax(axis=1), histograms[some, HALF:].argmax(axis=1)
    both = widths[:, :2].sum(axis=1)
    diagonal = (widths.shape[1] > 1) & (HALF + right - left <= NEAR * both)
    widths[diagonal, 0] = both[diagonal]
    widths[diagonal, 1:2] = 0.0
    rest = np.sqrt((widths[:, BOXES:] ** 2).sum(axis=1))
    for width in (*widths[:, :BOXES].T, rest):
        wide = width >= LEAST_BINS
        spread[some[wide]] = _convolved(spread[some[wide]], width[wide])
    return spread


def _convolved(histograms: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Histograms (g, 128), rows even within a bin, convolved with boxes of widths (g,) bins. What comes to
    lie beyond the ends is lost: in the end bins it would look like a mode."""
    g = len(histograms)
    below = np.zeros((g, BINS + 1))  # rows below each edge
    np.cumsum(histograms, axis=1, out=below[:, 1:])
    area = np.zeros_like(below)  # integral of `below` up to each edge
    np.cumsum((below[:, 1:] + below[:, :-1]) / 2, axis=1, out=area[:, 1:])
    edges = np.arange(BINS + 1.0)

    def integral(at: np.ndarray) -> np.ndarray:
        inside = np.clip(at, 0.0, BINS)
        k = np.minimum(inside.astype(np.int64), BINS - 1)
        part = inside - k
        start, end = np.take_along_axis(below, k, axis=1), np.take_along_axis(below, k + 1, axis=1)
        total: np.ndarray = (
            np.take_along_axis(area, k, axis=1)
            + start * part
            + (end - start) * part**2 / 2
            + below[:, -1:] * np.maximum(at - BINS, 0.0)
        )
        return total

    half = widths[:, None] / 2
    return np.diff((integral(edges + half) - integral(edges - half)) / widths[:, None], axis=1)
