"""Rows, as they are -> how often they are copies, which tells among how many rows a valley was seen.

A table of orders that repeats for each the numbers of its customer, or one drawn with replacement, holds the
same row again and again: a customer of 200 orders is a clump of 200 rows, and between clumps are valleys. So
n such rows count for n / (1 + c n), c by the effective number of different ones among some: the exponential
of the entropy of their shares (the Hill number of order 1; Hill, Ecology 1973). That of order 2, by which the
variance of a count goes (Kish's effective sample size), is ruled by the few rows that come most often: of 72
tables of three and five blobs, 300 to 4,000 rows drawn 8,000 and 50,000 times, the number is right in 48 by
it, in 59 by that of order 1. Of 36 of one cluster 4 are taken for several, with order 2 none, and before all.

Rows of few columns of few values are alike, too, and no copies: ratings, codes, a handful of places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEAST_VALUES = 20  # of a column that tells rows from each other, and of rows: fewer are places
COLUMNS = 2  # so many columns at least must tell: of one alone all whole numbers would be copies
MOSTLY = 0.5  # of the pairs of rows that are alike in such a column are so in all
COPIED = 0.9  # of the rows: if there are more different ones, a few copies matter little


def copies_per_row(X: np.ndarray, at: np.ndarray, tied: Sequence[np.ndarray]) -> float:
    """c, where n rows count for n / (1 + c n), by some rows (k,) of X (n, d); 0 where they are no copies.

    tied : of these rows, how many have each value (u,), of each column whose values come again.
    """
    alike = [_alike(counts) for counts in tied if len(counts) > LEAST_VALUES]
    if len(alike) < COLUMNS:
        return 0.0
    rows = X[at] + 0.0  # one zero of two
    _, counts = np.unique(rows.view(f"V{rows.itemsize * rows.shape[1]}"), return_counts=True)
    if not LEAST_VALUES < len(counts) <= COPIED * len(rows):
        return 0.0
    if np.sum(_alike(counts) >= MOSTLY * np.array(alike)) < COLUMNS:
        return 0.0
    return 1.0 / effective_number(counts) - 1.0 / len(rows)


def effective_number(counts: np.ndarray) -> float:
    """How many kinds, all met as often, tell as much as those of which so many rows were met, (u,)."""
    shares = counts / counts.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _alike(counts: np.ndarray) -> float:
    """The chance that two rows are of one kind, by the rows of each kind (u,)."""
    n = float(counts.sum())
    return float((counts * (counts - 1.0)).sum() / (n * (n - 1.0)))
