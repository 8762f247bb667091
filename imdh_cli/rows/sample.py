"""Rows in any portions -> a uniform sample of a given size, in one reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


class UniformSample:
    """The rows with the least of random keys, one drawn for each row: every set of `size` rows is as likely.

    At most half as many again are held, and one portion. Which rows they are follows from the seed and the
    order of rows alone, not from the portions they come in.
    """

    def __init__(self, size: int, d: int, seed: Sequence[int]) -> None:
        self._size = size
        self._seed = seed
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._bound = 1.0  # rows with greater keys cannot be in the sample
        self._keys, self._rows = [np.empty(0)], [np.empty((0, d))]
        self._held = self._met = 0

    def add(self, X: np.ndarray) -> None:
        """Take in rows (rows, d)."""
        keys = self._rng.random(len(X))
        self._met += len(X)
        taken = np.flatnonzero(keys < self._bound)
        if len(taken):
            self._keys.append(keys[taken])
            self._rows.append(X[taken])
            self._held += len(taken)
        if self._held > self._size + self._size // 2:
            self._reduce()

    def rows(self) -> np.ndarray:
        """The sample (k, d), in the order met; all rows where there were no more than `size`."""
        self._reduce()
        return self._rows[0]

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, for a checkpoint."""
        self._reduce()
        return {
            "drawn_keys": self._keys[0],
            "drawn_rows": self._rows[0],
            "drawn_met": np.array(self._met),
            "drawn_bound": np.array(self._bound),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state of the same seed."""
        self._keys, self._rows = [state["drawn_keys"]], [state["drawn_rows"]]
        self._held, self._bound = len(self._keys[0]), float(state["drawn_bound"])
        self._met = int(state["drawn_met"])
        self._rng = np.random.Generator(np.random.PCG64(self._seed).advance(self._met))  # a step for each key

    def _reduce(self) -> None:
        keys, rows = np.concatenate(self._keys), np.concatenate(self._rows)
        self._keys, self._rows = [], []
        if len(keys) > self._size:
            least = np.sort(np.argpartition(keys, self._size)[: self._size])
            keys, rows = keys[least], rows[least]
            self._bound = float(keys.max())
        self._keys, self._rows, self._held = [keys], [rows], len(keys)
