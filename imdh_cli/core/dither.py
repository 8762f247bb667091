"""Columns of values that come again and again, as whole numbers, ratings, codes -> noise to fill their gaps.

Between two whole numbers there is no row, and so a cut there looks like one through an empty valley; but
that values are rounded says nothing of clusters. So while the tree is learned and judged, each such value is
spread evenly over the room around it, halfway to its neighbours: in a column of whole numbers, half a step
to either side. A valley wider than the steps of its column stays one, and a column of 0 and 1 becomes even.
The room of a value is that in a sample of the first rows, where a gap counts for no more than FAR times what
three of four rows have beside them, or than the middle half of the rows: a code of -99999 makes no room.
Codes of kinds of things, and round numbers, get more room (see humps); the columns that a text column makes
are spread over the room between all its levels (see one_hot), a column of classes of another one goes along
with that (see coarse), and what single values have too much is taken as other rows' (see spikes).

The noise is a function of a key, the row's place in the order met, and the column: it depends neither on how
rows came in batches nor on threads. Labels, moments and counts are of the rows as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.histogram import BINS, PER_SD, REACH
from imdh_cli.compiled.native_cache import prepared
from imdh_cli.core import spikes
from imdh_cli.core.coarse import Coarse
from imdh_cli.core.copies import copies_per_row
from imdh_cli.core.humps import are_places, half_way, often_met, room_without_spikes
from imdh_cli.core.lookups import Lookups, may_be_looked_up
from imdh_cli.core.one_hot import OneHot, Seeker
from imdh_cli.core.piles import LEAST_PART, Piles, stand_out, values_of
from imdh_cli.core.spikes import Spikes
from imdh_cli.core.tree import FLAT, FrozenTree, Scaling

SAMPLE_ROWS = 16_384  # that the rooms of values are told from
TIED = 0.9  # of these rows: with no more values than that a column is one of values that come again
FAR = 4.0
TURNED = 64  # columns of these rows at a time
PILED = 0.05  # the part of all rows in piles that makes a column one of these


@dataclass(frozen=True)
class Dither:
    """The room around the values of each column.

    columns : (c,) int64, those that are dithered. origins, per_bin : (c,), a value x is in bin (x - origin)
    * per_bin, 128 of them, the ends clamped. rooms : (c, 128, 2), how far noise goes below and above the
    values of a bin. squares : (c,), the mean square of the noise. piled : (c,) bool, where a part of the
    rows lies on piles. piles : of all columns, those without noise too. one_hot : which of the columns are
    the levels of one, and spread together. coarse : which are classes of another column. spikes : the single
    values that are taken as others. copies : what n rows that are copies count for (see copies). lookups :
    columns of some things, among which a valley along them is judged.
    """

    columns: np.ndarray
    origins: np.ndarray
    per_bin: np.ndarray
    rooms: np.ndarray
    squares: np.ndarray
    piled: np.ndarray
    piles: Piles = field(default_factory=Piles.none)
    one_hot: OneHot = field(default_factory=OneHot.none)
    copies: float = 0.0
    coarse: Coarse = field(default_factory=Coarse.none)
    spikes: Spikes = field(default_factory=Spikes.none)
    lookups: Lookups = field(default_factory=Lookups.none)

    @property
    def any(self) -> bool:
        """Whether some column is dithered."""
        return len(self.columns) > 0

    @classmethod
    def none(cls, piles: Piles | None = None) -> Dither:
        """Of no column."""
        nothing = np.empty(0)
        no_column, no_rooms = nothing.astype(np.int64), np.empty((0, BINS, 2))
        return cls(
            no_column, nothing, nothing, no_rooms, nothing, nothing.astype(np.bool_), piles or Piles.none()
        )

    @classmethod
    def of(cls, X: np.ndarray) -> Dither:
        """By rows (n, d) as they are, of which a sample is taken at even distances."""
        at = np.linspace(0, len(X) - 1, min(len(X), SAMPLE_ROWS)).astype(np.int64)
        found: list[tuple[Any, ...]] = []
        piles, moved, tied, looked_up = [], [], [], []
        places, levels = are_places(X, at), Seeker()
        seen = prepared(np.empty(kernel.SEEN, dtype=np.int64))
        for f, column in _columns(X, at):
            if _hardly_tied(column, seen):
                continue
            values, counts = np.unique(column, return_counts=True)
            often = often_met(counts)
            spiky = spikes.find(values, counts) if often.all() and not places else None
            others = counts if spiky is None else spiky.rest
            if often.all() and len(piled := values_of(values, others)):
                piles.append((f, piled))
            if len(column) == len(at) and np.isin(values, (0.0, 1.0)).all():
                levels.add(f, column)
            noise = _rooms(column, values, counts, often, places)
            if noise is not None:
                tied.append(counts)
                looked_up += [f] if may_be_looked_up(values, len(column)) else []
            if spiky is not None:
                moved.append((f, spiky))
                noise = noise or _Noise(0.0, 0.0, np.zeros((BINS, 2)), 0.0)
                noise = noise._replace(square=noise.square + spiky.square)
            if noise is not None:
                found.append((f, *noise, bool(often.all()) and _piled(others)))
        if not found:
            return cls.none(Piles.of(piles))
        columns, origins, per_bin, rooms, squares, piled = map(np.array, zip(*found, strict=True))
        one_hot = OneHot.none() if places else levels.found(X.shape[1])
        squares[np.searchsorted(columns, one_hot.columns)] = one_hot.squares
        own = cls(
            columns,
            origins,
            per_bin,
            rooms,
            squares,
            piled,
            Piles.of(piles),
            one_hot,
            copies_per_row(X, at, tied),
            spikes=Spikes.of(moved),
            lookups=Lookups.of(X, at, looked_up, columns.tolist()),
        )
        if places:
            return own
        noisy = own.apply(X[at], np.uint64(0), 0)
        coarse = Coarse.of(X[at], noisy, np.setdiff1d(columns, one_hot.columns))
        squares[np.searchsorted(columns, coarse.columns)] = 0.0  # a line has the column's own spread
        return replace(own, coarse=coarse)

    def apply(self, X: np.ndarray, key: np.uint64, first_row: int) -> np.ndarray:
        """X (rows, d) with the noise of rows first_row, first_row + 1 ...; X itself where there is none."""
        if not self.any:
            return X
        out = np.empty_like(X)
        kernel.dither(
            X, self.columns, self.origins, self.per_bin, self.rooms, np.array([key]), first_row, out
        )
        if self.spikes.any:
            self.spikes.apply(X, key, first_row, out)
        if self.one_hot.any:
            self.one_hot.apply(X, key, first_row, out)
        if self.coarse.any:
            self.coarse.apply(X, out)
        return out

    def widened(self, scaling: Scaling) -> Scaling:
        """The coordinates of dithered rows: the noise is part of the spread. Unscaled ones stay."""
        if not self.any or np.isinf(scaling.limit):
            return scaling
        scale = scaling.scale.copy()
        scale[self.columns] = np.sqrt(scale[self.columns] ** 2 + self.squares)
        return replace(scaling, scale=scale)

    def widened_tree(self, tree: FrozenTree, scaling: Scaling) -> FrozenTree:
        """The same hyperplanes in the coordinates of dithered rows, whose centers are the same."""
        if not self.any:
            return tree
        directions = tree.directions * (self.widened(scaling).scale / scaling.scale)
        norms = np.linalg.norm(directions, axis=1)
        return FrozenTree(directions / norms[:, None], tree.thresholds / norms, tree.deviations / norms)

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, by the names in a model file; `restored` takes them. None where there is nothing to
        tell."""
        piles = self.piles.state()
        if not self.any:
            return piles
        return {
            "dither_columns": self.columns,
            "dither_origins": self.origins,
            "dither_per_bin": self.per_bin,
            "dither_rooms": self.rooms,
            "dither_squares": self.squares,
            "dither_piled": self.piled.astype(np.int64),
            **self.one_hot.state(),
            **self.coarse.state(),
            **self.spikes.state(),
            **self.lookups.state(),
            **({"copies": np.array([self.copies])} if self.copies > 0.0 else {}),
            **piles,
        }

    @classmethod
    def restored(cls, state: Mapping[str, np.ndarray]) -> Dither:
        """The inverse of `state`."""
        piles = Piles.restored(state)
        if "dither_columns" not in state:
            return cls.none(piles)
        names = ("columns", "origins", "per_bin", "rooms", "squares", "piled")
        columns, origins, per_bin, rooms, squares, piled = (state[f"dither_{name}"] for name in names)
        one_hot, copies = OneHot.restored(state), float(state.get("copies", [0.0])[0])
        noise = columns, origins, per_bin, rooms, squares, piled > 0
        return cls(
            *noise,
            piles,
            one_hot,
            copies,
            Coarse.restored(state),
            Spikes.restored(state),
            Lookups.restored(state),
        )


def noise_key(seed: int, *, epoch: int | None) -> np.uint64:
    """The key of one epoch, or of the recount (None)."""
    leg = [1, 0] if epoch is None else [0, epoch]
    return np.uint64(np.random.SeedSequence([seed, 4, *leg]).generate_state(1, np.uint64)[0])


def _columns(X: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each column of some rows (k,) of X (n, d), without NaN. Some are turned at a time: of 784 columns that
    takes a third of the time."""
    for first in range(0, X.shape[1], TURNED):
        for k, column in enumerate(np.ascontiguousarray(X[rows, first : first + TURNED].T)):
            yield first + k, column[~np.isnan(column)]


def _hardly_tied(column: np.ndarray, seen: Any) -> bool:
    """Whether a column (n,) has so many values that these come not again and again, and none that could be a
    pile. Most columns do, and hashing them, which tells so, takes a sixth of the time of sorting them.

    seen : work of `kernel.count_met`.
    """
    n = len(column)
    most = math.ceil(LEAST_PART * n)
    met = np.empty(1, dtype=np.int64)
    kernel.count_met(column, seen, met)
    if n >= 2 and n - met[0] > TIED * n and met[0] < most - 1:
        return True
    ordered = np.sort(column)
    if n < 2 or 1 + np.count_nonzero(ordered[1:] != ordered[:-1]) <= TIED * n:
        return False
    return not (ordered[most - 1 :] == ordered[: n - most + 1]).any()


class _Noise(NamedTuple):
    """Of one column: origin and bins per unit, rooms (128, 2), mean square, as `Dither` has them."""

    origin: float
    per_bin: float
    rooms: np.ndarray
    square: float


def _rooms(
    column: np.ndarray, values: np.ndarray, counts: np.ndarray, often: np.ndarray, places: bool
) -> _Noise | None:
    """The noise of a column (n,), its values in ascending order (u,) and the rows of each; None where its
    values do not come again, or it has one only. often : see `humps.often_met`. places : see
    `humps.are_places`."""
    if not 2 <= len(values) <= TIED * len(column):
        return None
    shaping, rows_of = values[often], counts[often]
    gaps = np.diff(shaping)
    quartiles = np.quantile(column, (0.25, 0.75))
    beside = rows_of[1:] + rows_of[:-1]
    far = max(FAR * _quantile(gaps, beside, 0.75), quartiles[1] - quartiles[0])
    room = half_way(shaping, far)
    deviation = column.std()
    if not deviation > max(FLAT * np.abs(column).max(), 1e-130):  # no spread that doubles can divide by
        return None
    if not places:
        room = room_without_spikes(shaping, rows_of, room, far)
    room = np.stack([np.interp(values, shaping, side) for side in room.T], axis=1)
    origin, per_bin = column.mean() - REACH * deviation, PER_SD / deviation
    bins = np.clip(np.floor((values - origin) * per_bin), 0, BINS - 1).astype(np.int64)
    rows = np.bincount(bins, counts, BINS)
    used = np.flatnonzero(rows)
    of_bins = np.empty((BINS, 2))
    for side in range(2):
        sums = np.bincount(bins, counts * room[:, side], BINS)
        of_bins[:, side] = np.interp(np.arange(BINS), used, sums[used] / rows[used])
    below, above = of_bins[bins].T
    square = np.average((below**2 - below * above + above**2) / 3, weights=counts)
    return _Noise(origin, per_bin, of_bins, square)


def _piled(counts: np.ndarray) -> bool:
    """Whether single values stand out, by the rows of each value in ascending order (u,)."""
    rows = counts.sum()
    piles = stand_out(counts) & (counts >= LEAST_PART * rows)
    return bool(counts[piles].sum() >= PILED * rows and len(counts) > 2)


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The least value with `share` of the weight at or below it."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])
