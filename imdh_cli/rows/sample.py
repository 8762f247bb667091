"""Rows in any portions -> a uniform sample of a given size, in one reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from imdh_cli.compiled import kernel

ROOM_BYTES, GROWTH = 256 << 20, 8  # that there is room for at first, and how many times as many later
LIKELY, SPARE = 2.0, 100  # times the sample, and rows, that are expected below the bound of `bound_for`
SURE = 1.1  # times the sample where all rows seem to be used: a hundred standard deviations of a million


class UniformSample:
    """The rows with the least of random keys, one drawn for each row: every set of `size` rows is as likely.

    At most half as many again are held, and one portion, in the order met. Which rows they are follows from
    the seed and the order of rows alone, not from the portions they come in.

    bound : rows with greater keys are not looked at: see `bound_for`.
    """

    def __init__(self, size: int, d: int, seed: Sequence[int], *, bound: float = 1.0) -> None:
        self._size = size
        self._seed = seed
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._expecting = bound < 1.0
        self._bound = bound  # rows with greater keys cannot be in the sample
        self._rows = np.empty((0, d))
        self._keys = np.empty(0)
        self._held = self._met = 0

    @property
    def complete(self) -> bool:
        """Whether these are the rows that a bound of 1 would have kept."""
        return self._held >= min(self._size, self._met) or not self._expecting

    def add(self, X: np.ndarray) -> None:
        """Take in rows (rows, d)."""
        keys = self._rng.random(len(X))
        taken = np.flatnonzero(keys < self._bound)
        here = slice(self._held, self._held + len(taken))
        self._make_room(here.stop, len(X))
        np.take(X, taken, axis=0, out=self._rows[here], mode="clip")
        self._keys[here] = keys[taken]
        self._held = here.stop
        self._met += len(X)
        if self._held > self._size + self._size // 2:
            self._reduce()

    def expect(self, rows: int) -> None:
        """So many rows come in all: others than are likely to be in the sample are not held from now on."""
        bound = bound_for(self._size, rows, SURE)
        if bound < self._bound:
            self._keep(np.flatnonzero(self._keys[: self._held] < bound))
            self._bound, self._expecting = bound, True

    def rows(self) -> np.ndarray:
        """The sample (k, d), in the order met; all rows where there were no more than `size`. It lies where
        the sample does."""
        self._reduce()
        return self._rows[: self._held]

    def state(self) -> dict[str, np.ndarray]:
        """As arrays, for a checkpoint."""
        rows = self.rows()
        return {
            "drawn_keys": self._keys[: self._held],
            "drawn_rows": rows,
            "drawn_met": np.array(self._met),
            "drawn_bound": np.array(self._bound),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state of the same seed."""
        self._keys, self._rows = state["drawn_keys"].copy(), state["drawn_rows"].copy()
        self._held, self._bound = len(self._keys), float(state["drawn_bound"])
        self._met = int(state["drawn_met"])
        self._rng = np.random.Generator(np.random.PCG64(self._seed).advance(self._met))  # a step for each key

    def _make_room(self, held: int, portion: int) -> None:
        """For all that are held. Memory not written to costs nothing: soon there is room for the most."""
        have, d = self._rows.shape
        if held <= have:
            return
        most = self._size + self._size // 2 + portion
        rows = max(held, min(most, max(GROWTH * have, ROOM_BYTES // (8 * d))))
        for name in ("_rows", "_keys"):
            old = getattr(self, name)
            new = np.empty((rows, *old.shape[1:]))
            new[: self._held] = old[: self._held]
            setattr(self, name, new)

    def _reduce(self) -> None:
        """Let go of all but the least."""
        if self._held <= self._size:
            return
        keys = self._keys[: self._held]
        self._bound = float(np.partition(keys, self._size - 1)[self._size - 1])
        self._keep(np.flatnonzero(keys <= self._bound)[: self._size])

    def _keep(self, kept: np.ndarray) -> None:
        """Let go of all rows but some, (k,) int64, ascending."""
        self._held = len(kept)
        self._keys[: self._held] = self._keys[kept]
        kernel.move_up(self._rows, kept)


def bound_for(size: int, rows: int, likely: float = LIKELY) -> float:
    """A bound below which there are keys enough, as a rule, if half of so many rows are met: then no more
    than twice the sample is copied. Without it that goes on until the least keys are known to be among those
    held."""
    return min(1.0, (likely * size + SPARE) / max(rows, 1))
