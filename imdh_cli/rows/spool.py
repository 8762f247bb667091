"""Rows that can be read once -> rows that can be read again, kept in a temporary file without a name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np

from imdh_cli.errors import OutputError
from imdh_cli.rows.source import RowSource, skip

PORTION_ROWS = 8192


class SpooledRows(RowSource):
    """The rows of a source, written down while they are read for the first time.

    Raises
    ------
    OutputError
        When there is no room for them.
    """

    def __init__(self, rows: RowSource) -> None:
        self.n_features = rows.n_features
        self.busy = rows.busy
        self._rows = rows
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="imdh-")  # noqa: SIM115
        self._first: Iterator[np.ndarray] | None = None

    def blocks(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        """The first call reads the source; a further one first reads what that left, then all again."""
        if self._first is None:
            self._first = self._keep(self._rows.blocks(epoch))
            yield from skip(self._first, start)
            return
        for _ in self._first:
            pass
        self._file.seek(0)
        yield from skip(self._kept(), start)

    def state(self) -> dict[str, Any]:
        return self._rows.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._rows.restore(state)

    def close(self) -> None:
        """Give the room back."""
        with suppress(OSError):  # what it still holds may find no room
            self._file.close()

    def _keep(self, matrices: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for X in matrices:
            with _room():
                self._file.write(np.ascontiguousarray(X).data)
            yield X
        with _room():
            self._file.flush()

    def _kept(self) -> Iterator[np.ndarray]:
        while True:
            X = np.fromfile(self._file, dtype=np.float64, count=PORTION_ROWS * self.n_features)
            if not len(X):
                return
            yield X.reshape(-1, self.n_features)


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"the stream could not be kept in {tempfile.gettempdir()}: {error.strerror or error}",
            "set TMPDIR to a folder with room, or use --passes 1 --recount no",
        ) from error
