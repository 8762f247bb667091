"""A source -> matrices of its used rows, counted, with progress; and rows kept to be met again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from imdh_cli.errors import DataError, OutputError
from imdh_cli.features import FeatureSpec, Tally, extract
from imdh_cli.sources.base import Chunk, Source


@dataclass(frozen=True)
class Progress:
    """Where a pass is. rows: read in this pass. read, size: bytes, size None where unknown."""

    task: str
    rows: int
    total_rows: int | None
    read: int
    size: int | None


OnProgress = Callable[[Progress], None]


class Reader:
    """The used rows of a source as matrices (rows, d), with what became of the others in `tally`."""

    def __init__(
        self, source: Source, spec: FeatureSpec, on_progress: OnProgress | None, task: str = "learning"
    ) -> None:
        self.source = source
        self.spec = spec
        self.tally = Tally()
        self.task = task
        self._on_progress = on_progress

    def restart(self, task: str) -> None:
        """Count from zero again."""
        self.tally = Tally()
        self.task = task

    def rows(self) -> Iterator[np.ndarray]:
        """All used rows in input order."""
        return self.matrices(self.source.chunks(self.spec.source_columns))

    def matrices(self, chunks: Iterable[Chunk]) -> Iterator[np.ndarray]:
        """The used rows of some chunks."""
        for chunk in chunks:
            X, used = extract(
                chunk, self.spec, self.tally, first_row=self.tally.rows, source_name=name_of(self.source)
            )
            if self._on_progress is not None:
                s = self.source
                self._on_progress(Progress(self.task, self.tally.rows, s.rows, s.bytes_read, s.size))
            yield X if used.all() else X[used]


class Spool:
    """Rows of a stream kept in a temporary file that has no name, to be met again."""

    def __init__(self, d: int) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="imdh-")  # noqa: SIM115
        self._d = d

    def keep(self, matrices: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The same matrices, written down as they pass.

        Raises
        ------
        OutputError
            When there is no room for them.
        """
        for X in matrices:
            with self._room():
                self._file.write(np.ascontiguousarray(X).data)
            yield X
        with self._room():
            self._file.flush()

    def rows(self) -> Iterator[np.ndarray]:
        """All rows kept, from the first."""
        self._file.seek(0)
        while True:
            X = np.fromfile(self._file, dtype=np.float64, count=8192 * self._d)
            if not len(X):
                return
            yield X.reshape(-1, self._d)

    def close(self) -> None:
        """Give the room back."""
        with suppress(OSError):  # what it still holds may find no room
            self._file.close()

    @staticmethod
    @contextmanager
    def _room() -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(
                f"the stream could not be kept in {tempfile.gettempdir()}: {error.strerror or error}",
                "set TMPDIR to a folder with room, or use --passes 1 --recount no",
            ) from error


def name_of(source: Source) -> str:
    """The source in a message: its first part."""
    return source.parts[0].name if source.parts else "the input"


def no_rows(tally: Tally, source: Source) -> DataError:
    """The error for an input of which no row can be used."""
    name = name_of(source)
    if tally.rows == 0:
        return DataError(f"{name}: no data rows", "a model is learned from rows")
    lost = {c: tally.missing.get(c, 0) + tally.infinite.get(c, 0) for c in tally.missing | tally.infinite}
    worst = max(lost, key=lambda c: lost[c], default=None)
    hint = "use --missing mean, or choose columns with -c"
    if worst is not None:
        hint = (
            f'column "{worst}" is empty, infinite or beyond 1e100 in {lost[worst]} of {tally.rows} rows: '
            "leave it out with -x, or use --missing mean"
        )
    return DataError(f"{name}: none of its {tally.rows} rows can be used", hint)
