"""Rows in any portions -> a uniform sample of a given size, in one reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

FIRST_ROWS, GROWTH = 8192, 8  # that there is room for at first, and how many times as many later


class UniformSample:
    """The rows with the least of random keys, one drawn for each row: every set of `size` rows is as likely.

    At most half as many again are held, and one portion. Which rows they are follows from the seed and the
    order of rows alone, not from the portions they come in.

    Those held lie in one array, in no order: a row that is let go leaves its place to another, so that few
    are moved and no memory is asked for again.
    """

    def __init__(self, size: int, d: int, seed: Sequence[int]) -> None:
        self._size = size
        self._seed = seed
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._bound = 1.0  # rows with greater keys cannot be in the sample
        self._rows = np.empty((0, d))
        self._keys, self._places = np.empty(0), np.empty(0, dtype=np.int64)  # places: among all rows met
        self._held = self._met = 0

    def add(self, X: np.ndarray) -> None:
        """Take in rows (rows, d)."""
        keys = self._rng.random(len(X))
        taken = np.flatnonzero(keys < self._bound)
        start, self._held = self._held, self._held + len(taken)
        self._make_room(len(X))
        here = slice(start, self._held)
        np.take(X, taken, axis=0, out=self._rows[here], mode="clip")
        self._keys[here], self._places[here] = keys[taken], self._met + taken
        self._met += len(X)
        if self._held > self._size + self._size // 2:
            self._reduce()

    def rows(self) -> np.ndarray:
        """The sample (k, d), in the order met; all rows where there were no more than `size`."""
        return self._rows[self._order()]

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, for a checkpoint."""
        order = self._order()
        return {
            "drawn_keys": self._keys[order],
            "drawn_rows": self._rows[order],
            "drawn_met": np.array(self._met),
            "drawn_bound": np.array(self._bound),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state of the same seed."""
        self._keys, self._rows = state["drawn_keys"].copy(), state["drawn_rows"].copy()
        self._held, self._bound = len(self._keys), float(state["drawn_bound"])
        self._places = np.arange(self._held)
        self._met = int(state["drawn_met"])
        self._rng = np.random.Generator(np.random.PCG64(self._seed).advance(self._met))  # a step for each key

    def _make_room(self, portion: int) -> None:
        """For all that are held. Memory not written to costs nothing: soon there is room for the most."""
        have = len(self._keys)
        if self._held <= have:
            return
        most = self._size + self._size // 2 + portion
        rows = max(self._held, min(most, GROWTH * max(have, FIRST_ROWS)))
        for name in ("_rows", "_keys", "_places"):
            old = getattr(self, name)
            new = np.empty((rows, *old.shape[1:]), old.dtype)
            new[:have] = old
            setattr(self, name, new)

    def _reduce(self) -> None:
        """Let go of all but the least."""
        if self._held <= self._size:
            return
        keys = self._keys[: self._held]
        kept = np.zeros(self._held, dtype=np.bool_)
        kept[np.argpartition(keys, self._size)[: self._size]] = True
        free, late = np.flatnonzero(~kept[: self._size]), self._size + np.flatnonzero(kept[self._size :])
        for held in (self._rows, self._keys, self._places):
            held[free] = held[late]
        self._held = self._size
        self._bound = float(self._keys[: self._held].max())

    def _order(self) -> np.ndarray:
        """The sample's places in the arrays, in the order in which its rows were met."""
        self._reduce()
        return np.argsort(self._places[: self._held])
