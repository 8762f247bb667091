"""Raw rows -> what is known of each column: moments, whether early and late rows differ.

Rows are (rows, d) float64 with NaN for a cell to be filled. Nothing here depends on how the rows were cut
into blocks, but for `Drift`, whose blocks are what it compares.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.core.sentinels import extremes
from imdh_cli.core.tree import CLIP, FLAT, Scaling

SHIFT_ROWS = 32  # whose mean the sums of a column are taken about
LOOK = 5.0  # sd from the mean: columns without a cell beyond have none far
APART = 50.0  # sd of the others, from their mean: cells beyond are far
FLATTENED = 2.0  # times the sd of the others: from here on far cells flatten a column
MOST_FAR = 0.02  # of the cells; more are a part of the column
EVERYWHERE = 1e120  # a bound that no cell is beyond


class ColumnMoments:
    """Running mean and sum of squares per column, cells of NaN not counted, cells far from the others apart.

    Sums about a fixed value near the column's first rows: an offset costs no digits, and the sums depend
    on the order of the rows alone, not on how they came in blocks.

    count : (d,) int64, all cells. shift : (d,) float64. total, square_sum : (d,), of the cells from `low` to
    `high`. far_count, far_total, far_square : (d,), of the cells beyond; no cell is until `set_reach`.
    """

    def __init__(self, d: int) -> None:
        self.count = np.zeros(d, dtype=np.int64)
        self.shift = np.zeros(d)
        self.total = np.zeros(d)
        self.square_sum = np.zeros(d)
        self.low, self.high = np.full(d, -EVERYWHERE), np.full(d, EVERYWHERE)
        self.far_count = np.zeros(d, dtype=np.int64)
        self.far_total = np.zeros(d)
        self.far_square = np.zeros(d)

    @property
    def mean(self) -> np.ndarray:
        """(d,), of all cells; 0 where nothing was counted."""
        return self.shift + (self.total + self.far_total) / np.maximum(self.count, 1)

    @property
    def square(self) -> np.ndarray:
        """Sum of squares about the mean of all cells, (d,)."""
        return _square(self.count, self.total + self.far_total, self.square_sum + self.far_square)

    @property
    def near(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and sd of the cells that are not far, (d,) each."""
        count = self.count - self.far_count
        square = _square(count, self.total, self.square_sum)
        return self.shift + self.total / np.maximum(count, 1), np.sqrt(square / np.maximum(count, 1))

    @property
    def tails(self) -> np.ndarray:
        """(d,) bool: columns that a few far cells would flatten, so that they are scaled by the others.

        Guarded by test_tails.py. On rows of three clusters told apart by one of three columns, ten cells of
        10,000 hid them from a sd of 2.5 times the others' on.
        """
        few = (self.far_count > 0) & (self.far_count <= MOST_FAR * self.count)
        sd, (mean, near) = self._sd(), self.near
        return few & (near > FLAT * np.abs(mean)) & (sd > FLATTENED * near)

    def set_reach(self, X: np.ndarray) -> None:
        """Say which cells are far: by these rows (n, d), before they and others are counted.

        Those beyond APART sd of the mean of all others. A long tail is not: it goes on from cell to cell.
        """
        whole = ColumnMoments(X.shape[1])
        whole.add(X)
        middle, sd = whole.mean, whole._sd()
        low, high = extremes(X)
        for j in np.flatnonzero(np.maximum(high - middle, middle - low) > LOOK * sd):
            middle[j], sd[j] = _of_most(X[:, j])
        flat = ~(sd > FLAT * np.abs(middle))
        self.low = np.where(flat, -EVERYWHERE, middle - APART * sd)
        self.high = np.where(flat, EVERYWHERE, middle + APART * sd)

    def set_tails(self, X: np.ndarray) -> None:
        """The same of columns that were counted already, of which the rows of X are a sample.

        Where it shows a few cells far off, the others are taken to be as those of the sample.
        """
        sample = ColumnMoments(X.shape[1])
        sample.set_reach(X)
        sample.add(X)
        self.low, self.high = sample.low, sample.high
        share = sample.far_count / np.maximum(sample.count, 1)
        mean, sd = sample.near
        flattened = (share <= MOST_FAR) & (sd > FLAT * np.abs(mean)) & (self._sd() > FLATTENED * sd)
        far = np.where(flattened, np.maximum(np.rint(share * self.count), 1), 0).astype(np.int64)
        near, offset = self.count - far, mean - self.shift
        for whole, part, sums in (
            (self.total, self.far_total, near * offset),
            (self.square_sum, self.far_square, near * (sd**2 + offset**2)),
        ):
            part[flattened] = (whole - sums)[flattened]
            whole[flattened] = sums[flattened]
        self.far_square = np.maximum(self.far_square, 0.0)
        self.far_count = far

    def add(self, X: np.ndarray) -> None:
        """Take in the rows of X (rows, d)."""
        if not len(X):
            return
        if not (self.count > self.far_count).all():
            self._choose_shift(X)
        total, square = self.total.copy(), self.square_sum.copy()
        kernel.column_sums(X, self.shift, self.low, self.high, total, square)
        if np.isnan(total).any():
            self._add_apart(X)
            return
        self.count += len(X)
        self.total, self.square_sum = total, square

    def _add_apart(self, X: np.ndarray) -> None:
        near, far = np.zeros_like(self.count), np.zeros_like(self.count)
        sums = self.total, self.square_sum, far, self.far_total, self.far_square
        kernel.column_sums_apart(X, self.shift, self.low, self.high, near, *sums)
        self.count += near + far
        self.far_count += far

    def _choose_shift(self, X: np.ndarray) -> None:
        """For columns without a number so far: the mean of the first rows, summed about one of them."""
        X = X[:SHIFT_ROWS]
        X = np.where((self.low <= X) & (self.high >= X), X, np.nan)
        first = np.where(np.isnan(X[0]), 0.0, X[0])
        for _ in range(2):  # again, if the first value was far off
            some = ColumnMoments(X.shape[1])
            some.shift = first
            some._add_apart(X)
            first = some.mean
        self._move(np.where(self.count > self.far_count, self.shift, first))

    def _move(self, shift: np.ndarray) -> None:
        """Take the sums about another value."""
        gap = self.shift - shift
        near = self.count - self.far_count
        self.square_sum = self.square_sum + gap * (2.0 * self.total + near * gap)
        self.far_square = self.far_square + gap * (2.0 * self.far_total + self.far_count * gap)
        self.total, self.far_total = self.total + near * gap, self.far_total + self.far_count * gap
        self.shift = shift

    def __iadd__(self, other: ColumnMoments) -> ColumnMoments:
        """Other rows, counted apart: the sums of both, about the shift of the first that has a number."""
        moved = ColumnMoments(len(other.count))
        moved.restore(other.state())
        moved._move(np.where(self.count == 0, other.shift, self.shift))
        self.shift = moved.shift
        self.total, self.square_sum = self.total + moved.total, self.square_sum + moved.square_sum
        self.far_total, self.far_square = self.far_total + moved.far_total, self.far_square + moved.far_square
        self.count, self.far_count = self.count + moved.count, self.far_count + moved.far_count
        return self

    def scaling(self, scale: str) -> Scaling:
        """Coordinates by these moments: the population sd, 1 where it is 0; for `none` the user's units.

        Of columns that a few far cells would flatten, by those of the others.
        """
        d = len(self.count)
        mean = self.mean
        if scale == "none":
            return Scaling(np.zeros(d), np.ones(d), mean, np.inf)
        deviation, tails, (near_mean, near_sd) = self._sd(), self.tails, self.near
        mean, deviation = np.where(tails, near_mean, mean), np.where(tails, near_sd, deviation)
        flat = deviation <= FLAT * np.abs(mean)
        return Scaling(mean, np.where(flat | (deviation == 0), 1.0, deviation), np.zeros(d), CLIP)

    def _sd(self) -> np.ndarray:
        return np.sqrt(self.square / np.maximum(self.count, 1))

    def state(self) -> dict[str, np.ndarray]:
        """The sums, by the names they have in a model file; `restore` takes them."""
        return {
            "column_counts": self.count,
            "column_shifts": self.shift,
            "column_sums": self.total,
            "column_squares": self.square_sum,
            "far_low": self.low,
            "far_high": self.high,
            "far_counts": self.far_count,
            "far_sums": self.far_total,
            "far_squares": self.far_square,
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state; one of an older version has no far cells."""
        d = len(state["column_counts"])
        known = ColumnMoments(d).state() | dict(state)
        self.count, self.shift = known["column_counts"].copy(), known["column_shifts"].copy()
        self.total, self.square_sum = known["column_sums"].copy(), known["column_squares"].copy()
        self.low, self.high = known["far_low"].copy(), known["far_high"].copy()
        self.far_count = known["far_counts"].copy()
        self.far_total, self.far_square = known["far_sums"].copy(), known["far_squares"].copy()


def _square(count: np.ndarray, total: np.ndarray, square_sum: np.ndarray) -> np.ndarray:
    """Sum of squares about the mean, of sums about another value."""
    return np.maximum(square_sum - total**2 / np.maximum(count, 1), 0.0)


def _of_most(x: np.ndarray) -> tuple[float, float]:
    """Mean and sd of the cells that are not far: the middle ones, then all within APART sd of these, and so
    on until there are no more."""
    x = np.sort(x[~np.isnan(x)])
    first = int(MOST_FAR / 2 * len(x))
    inner = slice(first, len(x) - first)
    while True:
        middle, sd = float(x[inner].mean()), float(x[inner].std())
        low, high = np.searchsorted(x, middle - APART * sd), np.searchsorted(x, middle + APART * sd, "right")
        wider = slice(min(inner.start, int(low)), max(inner.stop, int(high)))
        if wider == inner:
            return middle, sd
        inner = wider


class DistinctValues:
    """The distinct values of each column, as long as these are few.

    values : (d, 20) float64, in the order they came. counts : (d,) int64, 21 where there are more.
    """

    def __init__(self, d: int) -> None:
        self.values = np.zeros((d, kernel.MOST_CODES))
        self.counts = np.zeros(d, dtype=np.int64)

    def add(self, X: np.ndarray) -> None:
        """Take in the rows of X (rows, d)."""
        kernel.collect_codes(X, self.values, self.counts)


class Drift:
    """Do early and late rows differ? The share of each column's variance that lies between blocks.

    For rows in random order its expectation is (blocks - 1) / (rows - 1), whatever the distribution.
    unit : rows in a block.
    """

    CLEAR = 0.02  # an excess share from which a person is warned

    def __init__(self, d: int, unit: int) -> None:
        self._unit = unit
        self._all = ColumnMoments(d)
        self._within = np.zeros(d)
        self._blocks = 0

    def add(self, X: np.ndarray) -> None:
        """Take in the next rows of the input, in the order they arrived, as blocks of `unit` rows."""
        for k in range(0, len(X), self._unit):
            block = ColumnMoments(X.shape[1])
            block.add(X[k : k + self._unit])
            self._within += block.square
            self._all.add(X[k : k + self._unit])
            self._blocks += 1

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` takes."""
        mine = {f"drift_{name}": array for name, array in self._all.state().items()}
        return mine | {"drift_within": self._within, "drift_blocks": np.array(self._blocks)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self._all.restore({name: state[f"drift_{name}"] for name in self._all.state()})
        self._within = state["drift_within"].copy()
        self._blocks = int(state["drift_blocks"])

    def excess(self) -> np.ndarray:
        """Per column, (d,): the share, less twice what random order gives."""
        total = self._all.square
        share = 1.0 - np.divide(self._within, total, out=np.ones_like(total), where=total > 0)
        rows = int(self._all.count.max(initial=0))
        return share - 2.0 * max(self._blocks - 1, 0) / max(rows - 1, 1)
