"""Single values that far more rows have than those around them -> draws from the rest of their column.

A default that nobody changed, the 1st and the 15th, a median filled in: a value in the midst of a column that
many rows have stands up like a narrow mode between two valleys, and says nothing of clusters. So what it has
too much is taken as not known: while the tree is learned and judged, so many of its rows, at random, get the
value of another row of the column. One with less than INSIDE of the rest on either side is left as it is, and
so is one in a gap of the rest: it may be a group.

Measured on 96 columns of whole numbers and others, with 1 to 3 such values of 2.5 to 20 times the rows of
those around, each without clusters and with three beside it: 133 of 192 had the right number and 29 a wrong
one that was called clear; with this 179 and 6. Of fifty real tables seven have such columns. Where rows were
moved for spikes of twice the rows around, in all columns that have some, these lost 1.6/1.7 and 0.3/0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.histogram import BINS, HALF, PER_SD
from imdh_cli.core import humps
from imdh_cli.core.piles import LEAST_PART
from imdh_cli.core.pruning.valleys import EMPTY, valley_depths

FACTOR = 3.0  # times the rows of those around that a value must have
MOST = 4  # in a column: of more, values are told in round numbers (see humps)
LEAST_REST = 0.3  # part of the rows that must be left for the rest
INSIDE = 0.05  # part of the rest on either side of a value
POINTS = 129  # at which the distribution of the rest is known
NAMES = ("columns", "values", "moved", "quantiles")


class Found(NamedTuple):
    """In one column: values (k,), the part of the rows of each that is moved (k,), the quantiles of the rest
    (129,), the rows of each value without those that are moved (u,), the mean square of their moves."""

    values: np.ndarray
    moved: np.ndarray
    quantiles: np.ndarray
    rest: np.ndarray
    square: float


@dataclass(frozen=True)
class Spikes:
    """columns (s,) int64, values (s,), moved (s,), quantiles (s, 129) : of each, see `Found`."""

    columns: np.ndarray
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
            np.repeat([own.quantiles for _, own in found], numbers, axis=0),
        )

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return len(self.columns) > 0

    def apply(self, X: np.ndarray, key: np.uint64, first_row: int, out: np.ndarray) -> None:
        """Into `out` (rows, d) what some cells of X are taken as, by the place of its first row."""
        own = self.columns, self.values, self.moved, self.quantiles
        kernel.move_spikes(X, *own, np.array([key]), first_row, out)

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, by the names in a model file; `restored` takes them. None where there is no spike."""
        return {f"spike_{name}": getattr(self, name) for name in NAMES} if self.any else {}

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Spikes:
        """The inverse of `state`."""
        return cls(*(state[f"spike_{name}"] for name in NAMES)) if "spike_columns" in state else cls.none()


def find(values: np.ndarray, counts: np.ndarray) -> Found | None:
    """The spikes of a column, of its values in ascending order (u,) and the rows of each, where they make
    humps; None where there is none, or more than MOST."""
    if len(values) <= humps.SCALE:
        return None
    rows, around = counts.sum(), humps.around(counts)
    spikes = (counts > np.maximum(LEAST_PART * rows, FACTOR * around)) & humps.no_accident(counts, around)
    side_by_side = spikes[1:] & spikes[:-1]  # a narrow mode, and no single value
    spikes[1:] &= ~side_by_side
    spikes[:-1] &= ~side_by_side
    rest = np.where(spikes, around, counts)
    total = rest.sum()
    if not spikes.any() or total < LEAST_REST * rows:
        return None
    up_to = np.cumsum(rest) / total
    spikes &= (up_to - rest / total >= INSIDE) & (up_to <= 1.0 - INSIDE)
    mean = rest @ values / total
    deviation = np.sqrt(rest @ (values - mean) ** 2 / total)
    for i in np.flatnonzero(spikes):
        at = np.clip(np.floor((values - values[i]) / deviation * PER_SD + 0.5) + HALF, 0, BINS - 1)
        histogram = np.bincount(at.astype(np.int64), rest, BINS)
        spikes[i] = valley_depths(histogram[None], np.array([total]))[0] < EMPTY
    if not 0 < np.count_nonzero(spikes) <= MOST:
        return None
    rest = np.where(spikes, around, counts)
    room, smooth = humps.half_way(values), np.minimum(counts, around)
    modes = int(humps.humps(values, counts, room).max())
    if modes <= humps.humps(values, rest, room).max() or humps.are_codes(smooth, modes):
        return None
    if humps.between_round_numbers(values, counts, smooth) is not None:
        return None
    shares = (np.arange(POINTS) + 0.5) / POINTS  # far tails are left out
    quantiles = np.interp(shares, (np.cumsum(rest) - rest / 2) / rest.sum(), values)
    moves = quantiles - values[spikes, None]
    squares = np.mean((moves[:, 1:] ** 2 + moves[:, 1:] * moves[:, :-1] + moves[:, :-1] ** 2) / 3, axis=1)
    too_many = (counts - rest)[spikes]
    return Found(values[spikes], too_many / counts[spikes], quantiles, rest, float(too_many @ squares / rows))
