"""Columns that tell in steps what another tells finely, as an age group beside the age -> noise that agrees.

Noise of its own would lift the steps of the coarse column off the fine one's: in the sum of both no row lies
where a step ends, a valley at every step that nothing but noise has made. So where the classes of a column
are intervals of another one, it is learned from as the straight line through both: it tells nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

AGREE = 0.9  # the part of the rows, largest class left out, that are of the class which the fine column tells
LEAST_ROWS = 5  # that are not of the largest class
FIRST_ROWS = 256  # a first look is at so many,
FIRST_AGREE = 0.7  # and passes those that agree so far
MOST_COLUMNS = 256  # of a table that is looked at: every column is compared with every other
NAMES = ("columns", "finer", "lines")


@dataclass(frozen=True)
class Coarse:
    """columns (q,) int64, in order; finer (q,) int64, what each goes along with; lines (q, 2), intercept and
    slope of the least squares line of the coarse column by the finer one."""

    columns: np.ndarray
    finer: np.ndarray
    lines: np.ndarray

    @classmethod
    def none(cls) -> Coarse:
        no_column = np.empty(0, dtype=np.int64)
        return cls(no_column, no_column, np.empty((0, 2)))

    @property
    def any(self) -> bool:
        """Whether there are such columns."""
        return len(self.columns) > 0

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
            agree[list(found)] = 0.0
            agree[distinct <= distinct[f]] = 0.0
            best = _finest(X, f, np.flatnonzero(agree >= FIRST_AGREE))
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

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, by the names in a model file; `restored` takes them. None where there are no columns."""
        return {f"coarse_{name}": getattr(self, name) for name in NAMES} if self.any else {}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Coarse:
        """The inverse of `state`."""
        known = "coarse_columns" in state
        return cls(*(state[f"coarse_{name}"] for name in NAMES)) if known else cls.none()


def _agreement(classes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Of rows in the order of each of some columns, (n, g): how many are of the class (n,) that they would be
    of if classes followed one another in that order, the largest left out, (g,). 0 where these are few."""
    told = np.sort(classes)
    values, counts = np.unique(told, return_counts=True)
    some = told != values[np.argmax(counts)]
    if np.count_nonzero(some) < LEAST_ROWS:
        return np.zeros(order.shape[1])
    agree: np.ndarray = (classes[order[some]] == told[some, None]).mean(axis=0)
    return agree


def _finest(X: np.ndarray, f: int, fine: np.ndarray) -> int | None:
    """Of columns that f may go along with, (g,), the one of most values."""
    best, most = None, _distinct(X[:, f])
    for g in fine.tolist():
        here = ~np.isnan(X[:, [f, g]]).any(axis=1)
        order = np.argsort(X[here, g], kind="stable")
        ways = [_agreement(X[here, f], way[:, None])[0] for way in (order, order[::-1])]
        if max(ways) >= AGREE and _distinct(X[here, g]) > most:
            best, most = g, _distinct(X[here, g])
    return best


def _distinct(column: np.ndarray) -> int:
    return len(np.unique(column[~np.isnan(column)]))
