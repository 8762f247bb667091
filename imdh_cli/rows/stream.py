"""Matrices of any length -> the same rows in the portions that are asked for."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import numpy as np


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

    def blocks(self, rows: int) -> Generator[np.ndarray, None, None]:
        """All that is left, `rows` rows at a time; only the last block is shorter."""
        while (X := self.take(rows)) is not None:
            yield X

    def skip(self, rows: int) -> None:
        """Pass over the next rows."""
        while rows > 0 and (X := self.take(min(rows, 65536))) is not None:
            rows -= len(X)

    def put_back(self, X: np.ndarray) -> None:
        """Rows that were taken last are to come again first."""
        self._rest = X if self._rest is None else np.concatenate([X, self._rest])

    def drain(self) -> None:
        """Read to the end, for the sake of what reading does."""
        while self._next() is not None:
            pass
