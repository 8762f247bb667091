"""Rows of a source -> the blocks that are learned from, in the order in which they are met.

A schedule can be gone on from: it says how many rows of the source it has taken (`rows`) and what else it
holds (`state`). What is done with a block is not its affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from imdh_cli.rows.shuffle import ShuffleBuffer
from imdh_cli.rows.stream import RowStream
from imdh_cli.workers import prefetch

SEED_ROWS = 1024  # of a stream in order: their moments scale the first rows


class InMemory:
    """Rows that are all here, shuffled whole."""

    def __init__(self, X: np.ndarray, block_rows: int, rng: np.random.Generator | None, start: int) -> None:
        self.rows = start
        self._X = X
        self._block_rows = block_rows
        self._order = np.arange(len(X)) if rng is None else rng.permutation(len(X))

    def __iter__(self) -> Iterator[np.ndarray]:
        for k in range(self.rows, len(self._X), self._block_rows):
            self.rows = k + self._block_rows
            yield self._X.take(self._order[k : k + self._block_rows], axis=0)  # in half the time of X[order]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {}, {}


class InOrder:
    """Rows as they come, without a buffer.

    Blocks end at whole blocks and at 1,024 2^k rows, where the coordinates may change (`doubled`): so where
    an earlier run ended makes no difference to one that goes on. met : rows met before, in other runs too.
    """

    def __init__(self, stream: RowStream, block_rows: int, rows: int, met: int) -> None:
        self.rows = rows
        self.met = met
        self._stream = stream
        self._block_rows = block_rows

    def __iter__(self) -> Iterator[np.ndarray]:
        while (X := self._stream.take(self._until_boundary())) is not None:
            self.rows += len(X)
            self.met += len(X)
            yield X

    @property
    def doubled(self) -> bool:
        """Whether twice as many rows were met as at the last change of the coordinates."""
        return self.met & (self.met - 1) == 0 and self.met >= 2 * SEED_ROWS

    def _until_boundary(self) -> int:
        to_block = self._block_rows - self.met % self._block_rows
        boundary = SEED_ROWS
        while boundary <= self.met:
            boundary *= 2
        return min(to_block, boundary - self.met)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {}, {}


class Buffered:
    """Rows through a shuffle buffer, in full blocks.

    buffer : the first rows. arrived : told of every further block that comes in, before rows go out. ahead :
    whether the next blocks are brought by a thread of their own. rows, state : where an earlier run had come
    to, and what it held.
    """

    def __init__(
        self,
        buffer: np.ndarray,
        stream: RowStream,
        block_rows: int,
        rng: np.random.Generator | None,
        arrived: Callable[[np.ndarray], None] | None = None,
        *,
        ahead: bool = False,
    ) -> None:
        self.rows = 0
        self._ahead = ahead
        self._stream = stream
        self._block_rows = block_rows
        self._shuffle = ShuffleBuffer(buffer, rng)
        self._arrived = arrived
        self._ending = False

    def restore(self, rows: int, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
        """Go on from a state at which `rows` had come in behind the buffer's first ones."""
        self.rows = rows
        self._shuffle.restore(arrays, values)
        self._stream.skip(rows)

    def __iter__(self) -> Iterator[np.ndarray]:
        tail = np.empty((0, self._shuffle.n_features))
        blocks = self._stream.blocks(self._block_rows)
        with closing(prefetch(blocks) if self._ahead else blocks) as coming:
            for X in coming:
                if self._arrived is not None:
                    self._arrived(X)
                self.rows += len(X)
                if len(X) < self._block_rows:
                    tail = X
                    break
                X = np.require(X, requirements=["C", "W"])
                self._shuffle.exchange(X)
                yield X
        self._ending = True
        yield from self._shuffle.rest(tail, self._block_rows)

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """None at the end, when the buffer is being emptied: it takes less than writing it down."""
        return None if self._ending else self._shuffle.state()
