"""Single values that far more rows have than those around them -> draws from what they stand for.

A default that nobody changed, the 15th of a month, a median filled in: a value in the midst of a column that
many rows have stands up like a narrow mode between two valleys, and says nothing of clusters. So what it has
too much is taken as not known: while the tree is learned and judged, so many of its rows, at random, get the
value of another row of the column. One with less than INSIDE of the rest on either side is left as it is, and
so is one in a gap of the rest: it may be a group.

A column that is cut at both ends, as by a scale from 0 to 100 or a sensor's range, has its rows beyond at
these, and its middle looks like a valley between. What the two have too much is spread evenly outwards, as
densely as rows lie inside. (At one end alone such rows are a pile, which may be a group: see piles.)

Measured on 96 columns of whole numbers and others, with 1 to 3 values in the midst of 2.5 to 20 times the
rows around, each without clusters and with three beside it: 133 of 192 had the right number and 29 a wrong
one that was called clear; with this 178 and 6. On 20 columns cut at both ends, alone, beside others and
beside three clusters: 33 of 80 and 40 wrong and clear, with this 80 and 0. Of fifty real tables twelve have
such columns. Where rows were moved for spikes of twice the rows around, in all columns that have some, twenty
of these lost 1.6/1.7; five lost 3/3 where ends went along with values in the midst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.histogram import BINS, HALF, PER_SD
from imdh_cli.core import humps
from imdh_cli.core.found_columns import FoundColumns
from imdh_cli.core.piles import LEAST_PART
from imdh_cli.core.pruning.valleys import EMPTY, valley_depths

FACTOR = 3.0  # times the rows of those around that a value must have
MOST = 4  # in a column: of more, values are told in round numbers (see humps)
LEAST_REST = 0.3  # part of the rows that must be left for the rest
INSIDE = 0.05  # part of the rest on either side of a value
END = 0.1  # part of the rest that tells how densely rows lie near an end
POINTS = 129  # at which the distribution of the rest is known


class Found(NamedTuple):
    """In one column: values (k,), the part of the rows of each that is moved (k,), the quantiles of what they
    are drawn from (k, 129), the rows of each value of the column without those that are moved (u,), the mean
    square of the moves."""

    values: np.ndarray
    moved: np.ndarray
    quantiles: np.ndarray
    rest: np.ndarray
    square: float


@dataclass(frozen=True)
class Spikes(FoundColumns):
    """columns (s,) int64, values (s,), moved (s,), quantiles (s, 129) : of each, see `Found`."""

    PREFIX = "spike_"
    values: np.ndarray
    moved: np.ndarray
    quantiles: np.ndarray

    @classmethod
    def none(cls) -> Spikes:
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty((0, POINTS)))

    @classmethod
    def of(cls, found: Sequence[tuple[int, Found]]) -> Spikes:
        """By what was found in some columns, in order."""
        if not found:
            return cls.none()
        numbers = [len(own.values) for _, own in found]
        return cls(
            np.repeat([f for f, _ in found], numbers),
            np.concatenate([own.values for _, own in found]),
            np.concatenate([own.moved for _, own in found]),
            np.concatenate([own.quantiles for _, own in found]),
        )

    def apply(self, X: np.ndarray, key: np.uint64, first_row: int, out: np.ndarray) -> None:
        """Into `out` (rows, d) what some cells of X are taken as, by the place of its first row."""
        own = self.columns, self.values, self.moved, self.quantiles
        kernel.move_spikes(X, *own, np.array([key]), first_row, out)


def find(values: np.ndarray, counts: np.ndarray) -> Found | None:
    """The spikes of a column, of its values in ascending order (u,) and the rows of each, where they make
    humps; None where there is none. In the midst there are no more than MOST."""
    if len(values) <= humps.SCALE:
        return None
    around = humps.around(counts)
    spikes = _standing_up(counts, around)
    rest = np.where(spikes, around, counts)
    if not spikes.any() or rest.sum() < LEAST_REST * counts.sum():
        return None
    both_ends = spikes[0] and spikes[-1]
    spikes &= _in_the_midst(values, rest, spikes)
    if np.count_nonzero(spikes) > MOST:
        spikes[:] = False
    spikes[[0, -1]] = both_ends
    rest = np.where(spikes, around, counts)
    if not spikes.any() or not _make_humps(values, counts, rest, around):
        return None
    too_many = (counts - rest)[spikes]
    quantiles = _drawn_from(values, rest, too_many, both_ends)
    moves = quantiles - values[spikes, None]
    squares = np.mean((moves[:, 1:] ** 2 + moves[:, 1:] * moves[:, :-1] + moves[:, :-1] ** 2) / 3, axis=1)
    square = float(too_many @ squares / counts.sum())
    return Found(values[spikes], too_many / counts[spikes], quantiles, rest, square)


def _standing_up(counts: np.ndarray, around: np.ndarray) -> np.ndarray:
    """Which values have many more rows than those around, (u,) bool, but for two side by side: these are a
    narrow mode."""
    least = np.maximum(LEAST_PART * counts.sum(), FACTOR * around)
    spikes = (counts > least) & humps.no_accident(counts, around)
    both = spikes[1:] & spikes[:-1]
    spikes[1:] &= ~both
    spikes[:-1] &= ~both
    return spikes


def _in_the_midst(values: np.ndarray, rest: np.ndarray, spikes: np.ndarray) -> np.ndarray:
    """Which of the spikes (u,) bool have enough of the rest (u,) on either side and around, (u,) bool."""
    total = rest.sum()
    up_to = np.cumsum(rest) / total
    inside = spikes & (up_to - rest / total >= INSIDE) & (up_to <= 1.0 - INSIDE)
    at = (values - values[0]) / (values[-1] - values[0])
    at /= np.sqrt(rest @ (at - rest @ at / total) ** 2 / total)
    for i in np.flatnonzero(inside):
        bins = np.clip(np.floor((at - at[i]) * PER_SD + 0.5) + HALF, 0, BINS - 1).astype(np.int64)
        histogram = np.bincount(bins, rest, BINS)
        inside[i] = valley_depths(histogram[None], np.array([total]))[0] < EMPTY
    return inside


def _make_humps(values: np.ndarray, counts: np.ndarray, rest: np.ndarray, around: np.ndarray) -> bool:
    """Whether a column has more humps by the rows of its values (u,) than by the rest (u,), and is neither
    one of codes nor of round numbers."""
    room, smooth = humps.half_way(values), np.minimum(counts, around)
    modes = int(humps.humps(values, counts, room).max())
    if modes <= humps.humps(values, rest, room).max() or humps.are_codes(smooth, modes):
        return False
    return humps.between_round_numbers(values, counts, smooth) is None


def _drawn_from(values: np.ndarray, rest: np.ndarray, too_many: np.ndarray, both_ends: bool) -> np.ndarray:
    """What the rows that spikes have too many of (k,) are drawn from: quantiles (k, 129)."""
    shares = (np.arange(POINTS) + 0.5) / POINTS  # far tails are left out
    total = rest.sum()
    up_to = (np.cumsum(rest) - rest / 2) / total
    quantiles = np.repeat([np.interp(shares, up_to, values)], len(too_many), axis=0)
    if both_ends:
        near = np.interp([END, 1.0 - END], up_to, values)
        for k, end in ((0, values[0]), (-1, values[-1])):
            width = min(too_many[k] * abs(near[k] - end) / (END * total), (values[-1] - values[0]) / 2)
            quantiles[k] = end + np.copysign(width, end - near[k]) * shares
    return quantiles
