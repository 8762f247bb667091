"""Raw rows -> what is known of each column: moments, whether early and late rows differ.

Rows are (rows, d) float64 with NaN for a cell to be filled. Nothing here depends on how the rows were cut
into blocks, but for `Drift`, whose blocks are what it compares.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.core.tree import CLIP, FLAT, Scaling

SHIFT_ROWS = 32  # whose mean the sums of a column are taken about


class ColumnMoments:
    """Running mean and sum of squares per column, cells of NaN not counted.

    Sums about a fixed value near the column's first rows: an offset costs no digits, and the sums depend
    on the order of the rows alone, not on how they came in blocks.

    count : (d,) int64. shift, total, square_sum : (d,) float64.
    """

    def __init__(self, d: int) -> None:
        self.count = np.zeros(d, dtype=np.int64)
        self.shift = np.zeros(d)
        self.total = np.zeros(d)
        self.square_sum = np.zeros(d)

    @property
    def mean(self) -> np.ndarray:
        """(d,), 0 where nothing was counted."""
        return self.shift + self.total / np.maximum(self.count, 1)

    @property
    def square(self) -> np.ndarray:
        """Sum of squares about the mean, (d,)."""
        return np.maximum(self.square_sum - self.total**2 / np.maximum(self.count, 1), 0.0)

    def add(self, X: np.ndarray) -> None:
        """Take in the rows of X (rows, d)."""
        if not len(X):
            return
        if not self.count.all():
            self._choose_shift(X)
        total, square = self.total.copy(), self.square_sum.copy()
        kernel.column_sums(X, self.shift, total, square)
        if np.isnan(total).any():
            kernel.column_sums_known(X, self.shift, self.count, self.total, self.square_sum)
            return
        self.count += len(X)
        self.total, self.square_sum = total, square

    def _choose_shift(self, X: np.ndarray) -> None:
        """For columns without a number so far: the mean of the first rows, summed about one of them."""
        X = X[:SHIFT_ROWS]
        first = np.where(np.isnan(X[0]), 0.0, X[0])
        for _ in range(2):  # again, if the first value was far off
            count = np.zeros_like(self.count)
            total, square = np.zeros_like(first), np.zeros_like(first)
            kernel.column_sums_known(X, first, count, total, square)
            first = first + total / np.maximum(count, 1)
        self.shift = np.where(self.count == 0, first, self.shift)

    def __iadd__(self, other: ColumnMoments) -> ColumnMoments:
        """Other rows, counted apart: the sums of both, about the shift of the first that has a number."""
        new = self.count == 0
        shift = np.where(new, other.shift, self.shift)
        gap = other.shift - shift
        self.square_sum = self.square_sum + other.square_sum + gap * (2.0 * other.total + other.count * gap)
        self.total = self.total + other.total + other.count * gap
        self.count = self.count + other.count
        self.shift = shift
        return self

    def scaling(self, scale: str) -> Scaling:
        """Coordinates by these moments: the population sd, 1 where it is 0; for `none` the user's units."""
        d = len(self.count)
        mean = self.mean
        if scale == "none":
            return Scaling(np.zeros(d), np.ones(d), mean, np.inf)
        deviation = np.sqrt(self.square / np.maximum(self.count, 1))
        flat = deviation <= FLAT * np.abs(mean)
        return Scaling(mean, np.where(flat | (deviation == 0), 1.0, deviation), np.zeros(d), CLIP)

    def state(self) -> dict[str, np.ndarray]:
        """The sums, by the names they have in a model file; `restore` takes them."""
        return {
            "column_counts": self.count,
            "column_shifts": self.shift,
            "column_sums": self.total,
            "column_squares": self.square_sum,
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state."""
        self.count, self.shift = state["column_counts"].copy(), state["column_shifts"].copy()
        self.total, self.square_sum = state["column_sums"].copy(), state["column_squares"].copy()


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
