"""Columns that are looked up from some thing -> among how many things a valley along them was seen.

A row often brings along what belongs to its shop, patient, region or product: how large the shop is, how old
the patient. However many rows there are, such columns hold as many places as there are things. Between places
chance leaves valleys, and a thing of many rows is a clump. So a valley along such columns is judged as among
so many rows as there are things, by their effective number (see copies); one along columns of two kinds of
things, as among their pairs. Groups of things are found where there are things enough to tell them.

seed    a column of some values that come again, at uneven distances: what is rounded has a step
others  columns that are told, with few exceptions, by the value of a seed: those of the same thing. One at
        least has as many values as tell things apart: a seed alone is a price list, or a scale
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from imdh_cli.core.copies import COLUMNS, LEAST_VALUES, effective_number
from imdh_cli.core.found_columns import FoundColumns

ROWS_PER_VALUE = 8  # of a seed, at least
EVEN = 0.4  # the part of the gaps between values that are like the one before, at most: by chance 0.15 are
LIKE = 0.3  # by which part of the gap
TOLD = 1.1  # times the things: the pairs of thing and value of a column that is told by the thing
MOSTLY = 2 / 3  # of the direction of a cut: with that along such columns it is judged by things, of which
PART = 0.05  # each kind with that part of the direction counts
MOST_COLUMNS = 256  # of a table that is looked at


@dataclass(frozen=True)
class Lookups(FoundColumns):
    """columns (r,) int64, in order; groups (r,) int64, the kind of thing that each belongs to; things (r,)
    float64, the effective number of these."""

    PREFIX = "lookup_"
    groups: np.ndarray
    things: np.ndarray

    @classmethod
    def none(cls) -> Lookups:
        no_column = np.empty(0, dtype=np.int64)
        return cls(no_column, no_column, np.empty(0))

    @classmethod
    def of(cls, X: np.ndarray, at: np.ndarray, seeds: list[int], columns: list[int]) -> Lookups:
        """By some rows (k,) of X (n, d), columns that `may_be_looked_up`, and all whose values come again."""
        if not seeds or X.shape[1] > MOST_COLUMNS:
            return cls.none()
        codes = {f: np.unique(X[at, f], return_inverse=True)[1] for f in columns}
        found: dict[int, tuple[int, float]] = {}
        for seed in sorted(seeds, key=lambda f: -codes[f].max()):
            if seed in found:
                continue
            things = codes[seed]
            most = TOLD * (things.max() + 1)
            told = [f for f in columns if f not in found and len(np.unique(_pairs(things, codes[f]))) <= most]
            if sum(codes[f].max() >= LEAST_VALUES for f in told) >= COLUMNS:
                found |= dict.fromkeys(told, (seed, effective_number(np.bincount(things))))
        if not found:
            return cls.none()
        groups, numbers = zip(*(found[f] for f in sorted(found)), strict=True)
        return cls(np.array(sorted(found)), np.unique(groups, return_inverse=True)[1], np.array(numbers))

    def copies_along(self, directions: np.ndarray) -> np.ndarray:
        """Of each direction (m, d), unit, the c of copies: n rows count for n / (1 + c n), (m,)."""
        shares = directions[:, self.columns] ** 2
        number, whole = np.ones(len(directions)), np.zeros(len(directions))
        for group in set(self.groups.tolist()):
            own = self.groups == group
            share = shares[:, own].sum(axis=1)
            whole += share
            number = np.where(share >= PART, number * self.things[own][0], number)
        return np.where(whole >= MOSTLY, 1.0 / number, 0.0)


def may_be_looked_up(values: np.ndarray, rows: int) -> bool:
    """Whether a column of so many rows has values (u,), in ascending order, that a thing may have."""
    if not LEAST_VALUES < len(values) <= rows / ROWS_PER_VALUE:
        return False
    gaps = np.diff(values)
    return bool(np.mean(np.isclose(gaps[1:], gaps[:-1], rtol=LIKE, atol=0.0)) <= EVEN)


def _pairs(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    pairs: np.ndarray = one * (other.max() + 1) + other
    return pairs
