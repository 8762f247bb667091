"""Fragments of the input -> rows in a well mixed order, and rows in the portions that are asked for.

Stochastic gradients assume rows in random order; people's files are sorted. A fragment (a row group, a byte
range) can be read alone but only from front to back. So many fragments are open at once and a random one of
them gives the next few rows: what reaches the shuffle buffer comes from all over the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

OPEN_BYTES = 110 << 20  # what fragments that are open at once may hold; one may be, whatever it holds
MOST_OPEN = 64
BATCH_BYTES = 8 << 20  # of an open fragment's batch and its matrix


class RowStream:
    """Matrices of any length -> the same rows in the portions asked for."""

    def __init__(self, matrices: Iterable[np.ndarray]) -> None:
        self._matrices = iter(matrices)
        self._rest: np.ndarray | None = None

    def _next(self) -> np.ndarray | None:
        X, self._rest = self._rest, None
        while X is None or not len(X):
            X = next(self._matrices, None)
            if X is None:
                return None
        return X

    def fill(self, out: np.ndarray) -> int:
        """Copy the next rows into `out`; how many there were."""
        have = 0
        while have < len(out) and (X := self._next()) is not None:
            n = min(len(X), len(out) - have)
            out[have : have + n] = X[:n]
            self._rest = X[n:]
            have += n
        return have

    def take(self, rows: int) -> np.ndarray | None:
        """The next `rows` rows, fewer at the end, None after it; a view where that is possible."""
        X = self._next()
        if X is None:
            return None
        if len(X) >= rows:
            self._rest = X[rows:]
            return X[:rows]
        parts, have = [X], len(X)
        while have < rows and (X := self._next()) is not None:
            part = X[: rows - have]
            self._rest = X[len(part) :]
            parts.append(part)
            have += len(part)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All that is left, `rows` rows at a time; only the last block is shorter."""
        while (X := self.take(rows)) is not None:
            yield X


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
