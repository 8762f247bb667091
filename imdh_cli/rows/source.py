"""Whatever has rows -> blocks of them, as often as they are asked for: what learning reads from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

IN_ORDER = -1  # the epoch of rows as they are: to be counted, or held in memory


class RowSource(ABC):
    """Rows of d numbers; NaN is a cell to be filled.

    n_features : d.
    by_any_thread : whether `blocks` may be gone through in another thread than the caller's.
    busy : processor seconds that reading took, by what they were for.
    rereadable : whether `blocks` can be called again, for a further epoch or a recount.
    reorders : whether an epoch of learning has a random order of its own, from all over the input. Otherwise
        rows come as they are, and are shuffled as far as a buffer goes.
    n_rows : how many there are, roughly; None where that is not known.
    """

    n_features: int
    busy: Mapping[str, float] = MappingProxyType({})
    rereadable: bool = True
    by_any_thread: bool = False

    @property
    def reorders(self) -> bool:
        return False

    @property
    def n_rows(self) -> int | None:
        return None

    @property
    def whole(self) -> np.ndarray | None:
        """All rows (n, d) as an array that is only looked at, where they are in memory as one."""
        return None

    @abstractmethod
    def blocks(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        """Matrices (rows, d) float64 of any length, from row `start` of an epoch on (0, 1 ..., or IN_ORDER).

        The rows of an epoch and their order are the same however often it is asked for.
        """

    def state(self) -> dict[str, Any]:
        """Plain values that a run which goes on later needs of this one's first epoch."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: B027 most have nothing to take
        """Take what `state` gave."""


class ArrayRows(RowSource):
    """Rows in memory: an array (n, d), or several."""

    def __init__(self, arrays: np.ndarray | Sequence[np.ndarray]) -> None:
        arrays = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
        if not arrays or any(X.ndim != 2 or X.shape[1] != arrays[0].shape[1] for X in arrays):
            raise ValueError("rows are arrays of two dimensions that have the same number of columns")
        self.n_features = arrays[0].shape[1]
        arrays = [np.require(X, np.float64, ["C"]) for X in arrays]
        # Compiled code that is kept takes arrays that may be written to, whether it does or not.
        self._whole = arrays[0] if len(arrays) == 1 and arrays[0].flags.carray else None
        self._arrays = [X.view() for X in arrays]
        for X in self._arrays:
            X.flags.writeable = False  # the caller's

    @property
    def whole(self) -> np.ndarray | None:
        return self._whole

    @property
    def n_rows(self) -> int:
        return sum(map(len, self._arrays))

    def blocks(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        yield from skip(self._arrays, start)


class StreamRows(RowSource):
    """Matrices that can be read once."""

    rereadable = False

    def __init__(self, matrices: Iterable[np.ndarray], n_features: int) -> None:
        self.n_features = n_features
        self._matrices = matrices

    def blocks(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        yield from skip(self._matrices, start)


def skip(matrices: Iterable[np.ndarray], rows: int) -> Iterator[np.ndarray]:
    """Matrices without their first rows."""
    for X in matrices:
        if rows < len(X):
            yield X[rows:] if rows else X
        rows = max(0, rows - len(X))
