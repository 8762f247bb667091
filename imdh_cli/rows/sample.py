"""Rows in any portions -> a uniform sample of a given size, in one reading."""

from __future__ import annotations

import numpy as np


class UniformSample:
    """The rows with the least of random keys, one drawn for each row: every set of `size` rows is as likely.

    At most twice `size` rows are held. Which rows they are follows from the generator and the order of rows
    alone, not from the portions they come in.
    """

    def __init__(self, size: int, d: int, rng: np.random.Generator) -> None:
        self._size = size
        self._rng = rng
        self._bound = 1.0  # rows with greater keys cannot be in the sample
        self._keys, self._rows = [np.empty(0)], [np.empty((0, d))]
        self._held = 0

    def add(self, X: np.ndarray) -> None:
        """Take in rows (rows, d)."""
        keys = self._rng.random(len(X))
        taken = np.flatnonzero(keys < self._bound)
        if len(taken):
            self._keys.append(keys[taken])
            self._rows.append(X[taken])
            self._held += len(taken)
        if self._held > 2 * self._size:
            self._reduce()

    def rows(self) -> np.ndarray:
        """The sample (k, d), in the order met; all rows where there were no more than `size`."""
        self._reduce()
        return self._rows[0]

    def _reduce(self) -> None:
        keys, rows = np.concatenate(self._keys), np.concatenate(self._rows)
        if len(keys) > self._size:
            least = np.sort(np.argpartition(keys, self._size)[: self._size])
            keys, rows = keys[least], rows[least]
            self._bound = float(keys.max())
        self._keys, self._rows, self._held = [keys], [rows], len(keys)
