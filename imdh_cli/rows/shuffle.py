"""Rows in any order -> rows in a well mixed one: from all over the input, and through a buffer.

Stochastic gradients assume rows in random order; people's files are sorted. A fragment (a row group, a byte
range) can be read alone but only from front to back. So many fragments are open at once and a random one of
them gives the next few rows: what reaches the shuffle buffer comes from all over the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.rows.stream import RowStream

OPEN_BYTES = 110 << 20  # what fragments that are open at once may hold; one may be, whatever it holds
MOST_OPEN = 64
BATCH_BYTES = 8 << 20  # of an open fragment's batch and its matrix


def open_at_once(fragments: Iterable[tuple[int | None, int, int]], d: int) -> int:
    """How many fragments may be open within OPEN_BYTES: the batch that each decodes, and what it holds.

    fragments : of each the rows (None: not known), its size and what its open reader holds, in bytes.
    d : features.
    """
    each = max(
        min(4 * size if rows is None else 16 * rows * d, BATCH_BYTES) + held for rows, size, held in fragments
    )
    return int(np.clip(OPEN_BYTES // max(1, each), 1, MOST_OPEN))


def interleave(
    fragments: Sequence[tuple[int, Callable[[], Iterable[np.ndarray]]]],
    rng: np.random.Generator,
    *,
    at_once: int,
    run_rows: int,
) -> Iterator[np.ndarray]:
    """Rows of all fragments, `run_rows` at a time from a random open fragment.

    fragments : (weight, matrices) each. They are opened in random order, and drawn in proportion to their
    weight so that all that are open end at about the same time. How the matrices of a fragment are cut
    does not matter.
    """
    waiting = [fragments[i] for i in rng.permutation(len(fragments))][::-1]
    streams: list[RowStream] = []
    weights: list[int] = []
    draws = np.empty(0)
    at = 0
    while waiting or streams:
        while waiting and len(streams) < at_once:
            weight, matrices = waiting.pop()
            streams.append(RowStream(matrices()))
            weights.append(max(1, weight))
        bounds = np.cumsum(weights) / sum(weights)
        ended = None
        while ended is None:
            if at == len(draws):
                draws, at = rng.random(1024), 0
            # All draws at once, since there is one for every few rows.
            chosen = np.searchsorted(bounds, draws[at:], side="right")
            for k in np.minimum(chosen, len(streams) - 1).tolist():
                at += 1
                X = streams[k].take(run_rows)
                if X is None:
                    ended = k
                    break
                yield X
        del streams[ended], weights[ended]


class ShuffleBuffer:
    """Rows in, the same rows out in a seeded random order as far as `size` rows allow.

    Each block that comes in takes the places of as many rows, which go out. The places are a random
    permutation of the buffer, a new one when it is used up: so each row waits for `size` rows on average
    and at most for twice as many. With shuffle off the places are in order and the buffer is a queue.
    """

    def __init__(self, first: np.ndarray, rng: np.random.Generator | None) -> None:
        self._buffer = first
        self._rng = rng
        self._slots = np.empty(0, dtype=np.int64)

    @property
    def n_features(self) -> int:
        return self._buffer.shape[1]

    def _permutation(self, n: int) -> np.ndarray:
        return np.arange(n) if self._rng is None else self._rng.permutation(n)

    def exchange(self, X: np.ndarray) -> None:
        """Swap the rows of X (at most the buffer's size) with rows that waited, in place."""
        while len(self._slots) < len(X):
            again = self._permutation(len(self._buffer))
            self._slots = np.concatenate([self._slots, again])
        kernel.swap_rows(self._buffer, self._slots[: len(X)], X)
        self._slots = self._slots[len(X) :]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The rows that wait, the places to come, and the generator's state."""
        generator = None if self._rng is None else self._rng.bit_generator.state
        return {"buffer": self._buffer, "slots": self._slots}, {"generator": generator}

    def restore(self, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._buffer[:] = arrays["buffer"]
        self._slots = arrays["slots"].copy()
        if self._rng is not None:
            self._rng.bit_generator.state = values["generator"]

    def rest(self, tail: np.ndarray, rows: int) -> Iterator[np.ndarray]:
        """What waits, and a last partial block that came in, in blocks of `rows` rows."""
        if self._rng is None:
            oldest = int(self._slots[0]) if len(self._slots) else 0
            yield from RowStream([self._buffer[oldest:], self._buffer[:oldest], tail]).blocks(rows)
            return
        n = len(self._buffer)
        order = self._rng.permutation(n + len(tail))
        for k in range(0, len(order), rows):
            pick = order[k : k + rows]
            X = self._buffer.take(pick, axis=0, mode="clip")
            late = pick >= n
            X[late] = tail[pick[late] - n]
            yield X
