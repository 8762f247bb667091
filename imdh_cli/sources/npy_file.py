"""A NumPy matrix (`.npy`) -> record batches of one column of lists, `x`: row i of the matrix is its cell i.

Rows are read by their place in the file, a few MB at a time. The file is not mapped: mapped pages count as
memory of the process. 400,000 rows of 100 doubles took 0.30 s of processor time, and 0.60 s as Parquet; the
process had 259 MB at most, as for 100,000.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import (
    BROKEN,
    CELLS,
    Chunk,
    Fragment,
    Repeated,
    check_columns,
    first_rows,
    repeated,
)
from imdh_cli.sources.file import Stored
from imdh_cli.workers import prefetch

COLUMN = "x"
FRAGMENT = 8 << 20  # bytes
_HEADER = 1 << 16  # bytes that hold any header


class NpyPart:
    """One `.npy` file; the attributes are those of `base.Reader`.

    Parameters
    ----------
    file : Stored
        With a `random`.

    Raises
    ------
    DataError
        For an array that is no matrix of real numbers, or is not all there.
    """

    format = "npy"
    typed = True
    parallel_fragments = True
    rereadable = True
    bad_rows = 0
    id_columns: tuple[str, ...] = ()
    repeated: Repeated = repeated(())

    def __init__(self, file: Stored, params: SourceParams) -> None:
        self.name = file.name
        self.size = file.size
        self.notes: list[str] = []
        self.bytes_read = 0
        self._file = file
        self._params = params
        try:
            with self._open() as opened:
                head = io.BytesIO(opened.read(_HEADER))
                held = opened.size()
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, self._by_columns, self._dtype = read[np.lib.format.read_magic(head)](head)
        except (*BROKEN, KeyError) as error:
            raise file.broken("NumPy", error) from error
        self._start = head.tell()
        if len(shape) != 2 or self._dtype.kind not in "biuf" or not shape[1]:
            kind = "x".join(map(str, shape)) + f" of {self._dtype}"
            raise DataError(
                f"{self.name}: an array {kind}, and no matrix of numbers",
                _as_matrix(self._dtype, len(shape), math.prod(shape)),
            )
        self._n, self._d = map(int, shape)
        if held < self._start + self._n * self._d * self._dtype.itemsize:
            raise file.broken("NumPy", ValueError("it ends before the last row"))
        self.rows: int | None = self._n
        self._kind = _arrow_type(self._dtype)
        self.schema: pa.Schema = pa.schema({COLUMN: pa.list_(self._kind, self._d)})

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        check_columns([*features, *keep], self.schema.names, self.name)
        self.bytes_read = 0
        chunks = self._read(features, keep, 0, self._n)
        return prefetch(chunks) if self._params.threads > 1 else chunks

    def fragments(self, features: Sequence[str]) -> list[Fragment]:
        """Ranges of rows."""
        check_columns(features, self.schema.names, self.name)
        rows = max(1, FRAGMENT // (self._d * self._dtype.itemsize))
        return [
            Fragment(
                stop - start,
                (stop - start) * self._d * self._dtype.itemsize,
                partial(self._read, features, (), start, stop),
            )
            for start in range(0, self._n, rows)
            if (stop := min(self._n, start + rows))
        ]

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        return first_rows(self._read(names, (), 0, min(rows, self._n)), self.schema, names, rows)

    def close(self) -> None:
        """Nothing is held between readings."""

    def _read(self, features: Sequence[str], keep: Sequence[str], start: int, stop: int) -> Iterator[Chunk]:
        rows = max(1, min(self._params.batch_rows, CELLS // self._d))
        try:
            with self._open() as opened:
                for row in range(start, stop, rows):
                    n = min(rows, stop - row)
                    batch = pa.record_batch([self._lists(opened, row, n)], schema=self.schema)
                    kept = batch.select(keep) if keep else None
                    self.bytes_read += n * self._d * self._dtype.itemsize
                    yield Chunk(batch.select(features), kept, None, (self.name, row))
        except BROKEN as error:
            raise self._file.broken("NumPy", error) from error

    def _lists(self, opened: pa.NativeFile, row: int, n: int) -> pa.FixedSizeListArray:
        item = self._dtype.itemsize
        if self._by_columns:
            places = (self._start + item * (j * self._n + row) for j in range(self._d))
            parts = [np.frombuffer(_exactly(opened, place, n * item), self._dtype) for place in places]
            cells = np.stack(parts, axis=1).ravel()
        else:
            place = self._start + item * row * self._d
            cells = np.frombuffer(_exactly(opened, place, n * self._d * item), self._dtype)
        plain = cells.astype(self._kind.to_pandas_dtype(), copy=False)
        return pa.FixedSizeListArray.from_arrays(pa.array(plain, self._kind), self._d)

    def _open(self) -> pa.NativeFile:
        return cast(Callable[[], pa.NativeFile], self._file.random)()


def open_part(file: Stored, params: SourceParams) -> NpyPart:
    """A reader of one file, as `formats.py` names it."""
    return NpyPart(file, params)


def _as_matrix(dtype: np.dtype, axes: int, cells: int) -> str:
    """What to type to save an array as a matrix of real numbers."""
    if dtype.names is not None:
        return "save it as a table, for example with pandas: pandas.DataFrame(X).to_parquet(FILE)"
    if dtype.kind == "c":
        return "save real and imaginary parts: np.save(FILE, np.hstack([X.real, X.imag]))"
    if dtype.kind == "O":
        return "save numbers: np.save(FILE, X.astype(float)), or, where cells are text, a table as Parquet"
    if dtype.kind not in "biuf":
        return "save a table of text or dates as Parquet, for example with pandas"
    if not cells or not axes:
        return "save a matrix with a row for each item"
    return "save a matrix with a row for each item: np.save(FILE, X.reshape(len(X), -1))"


def _exactly(opened: pa.NativeFile, place: int, n: int) -> bytes:
    data: bytes = opened.read_at(n, place)
    if len(data) < n:
        raise ValueError("it ends before the last row")
    return data


def _arrow_type(dtype: np.dtype) -> pa.DataType:
    """The same type of this machine's byte order; a double for longer floats, which Arrow does not have."""
    return pa.float64() if dtype.itemsize > 8 else pa.from_numpy_dtype(dtype.newbyteorder("="))
