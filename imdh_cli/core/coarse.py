"""Columns that tell in steps what another tells finely, as an age group beside the age -> noise that agrees.

Noise of its own would lift the steps of the coarse column off the fine one's: in the sum of both no row lies
where a step ends, a valley at every step that nothing but noise has made. So where the classes of a column
are intervals of another one, it is learned from as the straight line through both: it tells nothing else. So
is one whose classes are some intervals each, as the night of the hour, or a flag of what is within a range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from imdh_cli.core.found_columns import FoundColumns

AGREE = 0.9  # the part of the rows, largest class left out, that are of the class which the fine column tells
LEAST_ROWS = 5  # that are not of the largest class
MOST_STEPS = 6  # of classes that come again, from one to the next in the order of the fine column,
OTHERS = 0.01  # and the part of the rows that are then not of the largest class
FIRST_ROWS = 256  # a first look is at so many,
FIRST_AGREE = 0.7  # and passes those that agree so far
MOST_COLUMNS = 256  # of a table that is looked at: every column is compared with every other


@dataclass(frozen=True)
class Coarse(FoundColumns):
    """columns (q,) int64, in order; finer (q,) int64, what each goes along with; lines (q, 2), intercept and
    slope of the least squares line of the coarse column by the finer one."""

    PREFIX = "coarse_"
    finer: np.ndarray
    lines: np.ndarray

    @classmethod
    def none(cls) -> Coarse:
        no_column = np.empty(0, dtype=np.int64)
        return cls(no_column, no_column, np.empty((0, 2)))

    @classmethod
    def of(cls, X: np.ndarray, noisy: np.ndarray, columns: np.ndarray) -> Coarse:
        """By some rows X (n, d), the same with noise, and the columns that may go along with another.

        Those of many values are looked at first, and what goes along with another leads no third.
        """
        if X.shape[1] > MOST_COLUMNS:
            return cls.none()
        first = X[:: max(1, len(X) // FIRST_ROWS)]
        order = np.argsort(first, axis=0)
        distinct = 1 + (np.diff(np.sort(first, axis=0), axis=0) > 0).sum(axis=0)
        found: dict[int, tuple[int, np.ndarray]] = {}
        for f in sorted(columns.tolist(), key=lambda f: -_distinct(X[:, f])):
            agree = np.maximum(_agreement(first[:, f], order), _agreement(first[:, f], order[::-1]))
            steps = _steps(first[:, f], order)
            may = (agree >= FIRST_AGREE) | ((steps > 0) & (steps <= MOST_STEPS))
            may[list(found)] = False
            may[distinct <= distinct[f]] = False
            best = _finest(X, f, np.flatnonzero(may))
            if best is not None:
                here = ~np.isnan(X[:, [f, best]]).any(axis=1)
                slope, intercept = np.polyfit(noisy[here, best], X[here, f], 1)
                found[f] = best, np.array([intercept, slope])
        if not found:
            return cls.none()
        finer, lines = zip(*(found[f] for f in sorted(found)), strict=True)
        return cls(np.array(sorted(found)), np.array(finer), np.array(lines))

    def apply(self, X: np.ndarray, out: np.ndarray) -> None:
        """The coarse columns of `out` (rows, d), in which the finer ones have their noise. NaN in X (rows, d)
        stays, and where the finer cell is NaN, what is there."""
        for f, finer, (intercept, slope) in zip(self.columns, self.finer, self.lines, strict=True):
            line = intercept + slope * out[:, finer]
            np.copyto(out[:, f], line, where=~np.isnan(line) & ~np.isnan(X[:, f]))


def _agreement(classes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Of rows in the order of each of some columns, (n, g): how many are of the class (n,) that they would be
    of if classes followed one another in that order, the largest left out, (g,). 0 where these are few."""
    told = np.sort(classes)
    some = _others(told)
    if not some.any():
        return np.zeros(order.shape[1])
    agree: np.ndarray = (classes[order[some]] == told[some, None]).mean(axis=0)
    return agree


def _others(classes: np.ndarray) -> np.ndarray:
    """Which rows (n,) bool are not of the largest class; none where that are hardly any."""
    values, counts = np.unique(classes, return_counts=True)
    some: np.ndarray = classes != values[np.argmax(counts)]
    return some if np.count_nonzero(some) >= LEAST_ROWS else np.zeros(len(classes), dtype=bool)


def _steps(classes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """How often the class of rows (n,) changes in the order of each of some columns, (n, g): (g,)."""
    steps: np.ndarray = np.count_nonzero(np.diff(classes[order], axis=0), axis=0)
    return steps


def _finest(X: np.ndarray, f: int, fine: np.ndarray) -> int | None:
    """Of columns that f may go along with, (g,), the one of most values."""
    best, most = None, _distinct(X[:, f])
    for g in fine.tolist():
        here = ~np.isnan(X[:, [f, g]]).any(axis=1)
        order = np.argsort(X[here, g], kind="stable")
        agree = max(_agreement(X[here, f], way[:, None])[0] for way in (order, order[::-1]))
        few = np.count_nonzero(_others(X[here, f])) < OTHERS * len(X)
        stepped = not few and _steps(X[here, f], order[:, None])[0] <= MOST_STEPS
        if (agree >= AGREE or stepped) and _distinct(X[here, g]) > most:
            best, most = g, _distinct(X[here, g])
    return best


def _distinct(column: np.ndarray) -> int:
    return len(np.unique(column[~np.isnan(column)]))
