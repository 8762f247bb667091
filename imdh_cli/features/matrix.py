"""Chunk -> matrix (n, d) float64, by a FeatureSpec; what is missing is treated and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from imdh_cli.arrow_compute import pc
from imdh_cli.compiled import kernel
from imdh_cli.core.logs import signed_log
from imdh_cli.errors import DataError
from imdh_cli.features.kinds import example, kind_of_type, plain, worded
from imdh_cli.features.spec import Column, FeatureSpec, Items
from imdh_cli.sources.base import Chunk

PORTION = 1 << 18  # cells
LARGEST = 1e100  # a number beyond is no measurement, and its powers overflow: it counts as infinite


@dataclass
class Tally:
    """What became of the rows and cells; two tallies add up.

    rows = used + skipped + bad. The dictionaries count cells by column of the table: missing (null
    or NaN), infinite (or beyond LARGEST), unseen (a text that is no level of the model).
    """

    rows: int = 0
    used: int = 0
    skipped: int = 0
    bad: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    infinite: dict[str, int] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)

    def __iadd__(self, other: Tally) -> Tally:
        self.rows += other.rows
        self.used += other.used
        self.skipped += other.skipped
        self.bad += other.bad
        for mine, theirs in (
            (self.missing, other.missing),
            (self.infinite, other.infinite),
            (self.unseen, other.unseen),
        ):
            for name, n in theirs.items():
                mine[name] = mine.get(name, 0) + n
        return self

    def row_counts(self) -> dict[str, int]:
        """As a model's metadata keep them."""
        return {"read": self.rows, "used": self.used, "skipped": self.skipped, "bad": self.bad}

    def cell_counts(self) -> dict[str, dict[str, int]]:
        """As a model's metadata keep them."""
        return {"missing": self.missing, "infinite": self.infinite, "unseen": self.unseen}


def all_bad(where: str, rows: int) -> DataError:
    """The error for an input without a good row, which `--on-bad-row skip` has made them leave out."""
    said = "its only row is" if rows == 1 else f"all of its {rows:,} rows are"
    return DataError(f"{where}: {said} bad", "without --on-bad-row skip the first one is named")


def extract(
    chunk: Chunk,
    spec: FeatureSpec,
    tally: Tally,
    *,
    first_row: int | None = 0,
    source_name: str = "data",
    room: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The matrix of a chunk; `tally` is added to, in place.

    Parameters
    ----------
    chunk : Chunk
        Its features are `spec.source_columns`, in that order.
    first_row, source_name : int or None, str
        Where the chunk begins, for errors, when the chunk does not say so itself; None: not known.
    room : ndarray of shape (most, d), optional
        Where X is made if it has as many rows: fresh memory costs as much as filling it.

    Returns
    -------
    X : ndarray of shape (n, d), float64, C order
        Finite, but for NaN where a cell is missing and `spec.missing` is "mean". Rows that are not
        used hold zeros. Columns of `spec.logs` hold signed logarithms.
    used : ndarray of shape (n,), bool
        False for a bad row and, with "skip", for a row with a missing or infinite cell.

    Raises
    ------
    DataError
        For a cell that is missing when `spec.missing` is "error", and for text in a numeric column.
    """
    batch = chunk.features
    n = batch.num_rows
    origin = chunk.origin or (source_name, first_row)
    chunk = chunk._replace(origin=origin)
    X = np.empty((n, len(spec.names))) if room is None or len(room) < n else room[:n]
    suspect, unseen = _fill(X, batch, spec, origin[0])
    for name, count in unseen.items():
        tally.unseen[name] = tally.unseen.get(name, 0) + count
    return X, _judge(X, suspect, spec, tally, chunk.where, chunk.bad)


def judge(X: np.ndarray, spec: FeatureSpec, tally: Tally, source_name: str) -> np.ndarray:
    """What `extract` does to the cells it has turned, for a matrix (n, d) of columns of numbers alone, in
    place. Returns (n,) bool, the rows that are used."""
    return _judge(X, _broken(X), spec, tally, lambda row: source_name)


def _judge(
    X: np.ndarray,
    suspect: np.ndarray,
    spec: FeatureSpec,
    tally: Tally,
    where: Callable[[int], str],
    bad: np.ndarray | None = None,
) -> np.ndarray:
    """suspect : (n,) bool, rows that may have a cell that is missing or infinite. where : a row is, for an
    error. bad : (n,) bool, rows that could not be read."""
    n = len(X)
    tally.rows += n
    used = np.ones(n, dtype=np.bool_) if bad is None else ~bad
    tally.bad += n - int(used.sum())
    suspects = np.flatnonzero(used & suspect)
    if len(suspects):
        _treat(X, used, suspects, spec, tally, where)
    if len(suspects) or bad is not None:
        X[~used] = 0.0
    if spec.logs.any():
        X[:, spec.logs] = signed_log(X[:, spec.logs])
    tally.used += int(used.sum())
    return used


def _treat(
    X: np.ndarray,
    used: np.ndarray,
    suspects: np.ndarray,
    spec: FeatureSpec,
    tally: Tally,
    where: Callable[[int], str],
) -> None:
    """Count what is missing or infinite in these rows and apply the policy, in place."""
    rows = X[suspects]
    finite = np.abs(rows) <= LARGEST
    broken = ~finite.all(axis=1)  # not every row that was suspected
    if spec.missing == "error" and broken.any():
        k = int(np.argmax(broken))
        raise _missing_cell(rows[k], where(int(suspects[k])), spec)
    owners = np.array(spec.owners)
    for i in np.unique(owners[~finite.all(axis=0)]):
        # A column of texts or of lists counts once a row, not once for each level or item.
        cells, fine = rows[:, owners == i], finite[:, owners == i]
        missing = np.isnan(cells)
        _count(tally.missing, spec.columns[i].name, int(missing.any(axis=1).sum()))
        _count(tally.infinite, spec.columns[i].name, int((~fine & ~missing).any(axis=1).sum()))
    if spec.missing == "mean":
        rows[~finite] = np.nan
        X[suspects] = rows
    else:
        used[suspects[broken]] = False
        tally.skipped += int(broken.sum())


def _count(counts: dict[str, int], name: str, n: int) -> None:
    if n:
        counts[name] = counts.get(name, 0) + n


def _missing_cell(cells: np.ndarray, where: str, spec: FeatureSpec) -> DataError:
    j = int(np.argmin(np.abs(cells) <= LARGEST))
    column = spec.columns[spec.owners[j]]
    name = column.name if column.items is None else spec.names[j]
    what = "missing" if np.isnan(cells[j]) else "infinite"
    what = f"beyond {LARGEST:g}" if np.isfinite(cells[j]) else what
    return DataError(
        f'{where}, column "{name}": the value is {what}',
        "use --missing skip or --missing mean",
    )


def _fill(
    X: np.ndarray, batch: pa.RecordBatch, spec: FeatureSpec, name: str
) -> tuple[np.ndarray, dict[str, int]]:
    """X, in place, with NaN for null. Returns (n,) bool, the rows that may hold a cell that is missing or
    infinite, and the counts of unseen texts."""
    if len(spec.numbers) == len(spec.columns):
        return _numbers(X, batch, spec.source_columns, name), {}
    unseen: dict[str, int] = {}
    plain = [i for i, c in enumerate(spec.columns) if c.levels is None and c.items is None]
    numeric = np.empty((batch.num_rows, len(plain)))
    if plain:
        _numbers(numeric, batch.select(plain), spec.numbers, name)
    j = k = 0
    for i, column in enumerate(spec.columns):
        block = X[:, j : j + column.width]
        if column.items is not None:
            _lists(batch.column(i), column.items, block)
        elif column.levels is not None:
            _count(unseen, column.name, _one_hot(batch.column(i), column, block, name))
        else:
            block[:, 0] = numeric[:, k]
            k += 1
        j += column.width
    return _broken(X), unseen


def _broken(X: np.ndarray) -> np.ndarray:
    """(n,) bool, the rows that may hold a cell that is missing or infinite: a sum of squares is below a bound
    only if its terms are, and the test is False for NaN."""
    return ~(np.einsum("ij,ij->i", X, X) <= LARGEST**2)


def _lists(column: pa.FixedSizeListArray, items: Items, block: np.ndarray) -> None:
    """Fill the columns of one column of lists, in place: their buffer of values is a matrix."""
    values = column.values.slice(column.offset * items.length, len(column) * items.length)
    if values.type not in _PLAIN:
        values = values.cast(pa.float64(), safe=False)
    matrix = values.to_numpy(zero_copy_only=False).reshape(len(column), items.length)
    j = 0
    for start, stop in items.ranges:
        block[:, j : j + stop - start] = matrix[:, start:stop]
        j += stop - start
    if column.null_count:
        block[column.is_null().to_numpy(False)] = np.nan


def _numbers(X: np.ndarray, batch: pa.RecordBatch, names: Sequence[str], where: str) -> np.ndarray:
    """X, in place. Returns (n,) bool, the rows with a cell that is missing or infinite.

    Columns of doubles are turned from where they lie: 0.6 ns a value at d = 20. Others are first gathered by
    Arrow, in portions that stay in the cache, which doubles that; Arrow's own tensor of rows takes 2.0.
    """
    n, d = X.shape
    broken = np.empty(n, dtype=np.bool_)
    if not n:
        return broken
    types = set(batch.schema.types)
    if not types <= _PLAIN:
        arrays = [
            c if c.type in _PLAIN else _as_double(c, name, where)
            for name, c in zip(names, batch.columns, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
        types = set(batch.schema.types)
    found = _in_memory(batch.columns) if types == _DOUBLES else None
    if found is not None:
        kernel.turn(*found, LARGEST, X, broken)
        return broken
    rows = max(1, PORTION // d)
    for k in range(0, n, rows):
        columns = batch.slice(k, rows).to_tensor(null_to_nan=True, row_major=False).to_numpy().T
        cells = np.ascontiguousarray(columns, np.float64)
        starts = np.arange(d) * cells.shape[1]
        kernel.turn(cells.reshape(-1), starts, LARGEST, X[k : k + rows], broken[k : k + rows])
    return broken


def _in_memory(columns: Sequence[pa.Array]) -> tuple[np.ndarray, np.ndarray] | None:
    """Columns of doubles as `kernel.turn` takes them: the memory from the first of them to the end of the
    last, and how many cells from there each begins. None where there are nulls."""
    if any(c.null_count for c in columns):
        return None
    begin = np.array([c.buffers()[1].address + 8 * c.offset for c in columns])
    if (begin % 8).any():  # as data of other libraries may lie
        return None
    first = int(begin.min())
    starts = (begin - first) // 8
    span = {"data": (first, False), "shape": (int(starts.max()) + len(columns[0]),)}
    memory = SimpleNamespace(__array_interface__=span | {"typestr": "=f8", "version": 3})
    return np.asarray(memory), starts


_DOUBLES = {pa.float64()}
_PLAIN = frozenset(
    [pa.float64(), pa.float32(), pa.int64(), pa.int32(), pa.int16(), pa.int8()]
    + [pa.uint64(), pa.uint32(), pa.uint16(), pa.uint8()]
)


def _as_double(column: pa.Array, name: str, where: str) -> pa.Array:
    kind = kind_of_type(column.type)
    if kind == "number":
        return plain(column).cast(pa.float64(), safe=False)
    if kind == "empty throughout":
        return pa.nulls(len(column), pa.float64())
    if kind != "text":
        raise DataError(
            f'{where}: column "{name}" is {kind}; the model needs numbers there',
            "convert it to numbers first",
        )
    raise DataError(
        f'{where}: column "{name}" is text{example(column)}; the model needs numbers there',
        "write the column as numbers",
    )


def _one_hot(column: pa.Array, spec: Column, block: np.ndarray, where: str) -> int:
    """Fill the columns of one text column, in place; the number of unseen texts."""
    values = worded(column)
    if kind_of_type(values.type) not in ("text", "empty throughout"):
        raise DataError(
            f'{where}: column "{spec.name}" is {values.type}; the model needs text there',
            "write the column as the text it was learned from",
        )
    lost = values.is_null().to_numpy(zero_copy_only=False)
    at = pc.index_in(values.cast(pa.string()), value_set=pa.array(spec.levels, pa.string()))
    index = at.fill_null(-1).to_numpy()
    block[:] = index[:, None] == np.arange(len(spec.levels or ()))
    block[lost] = np.nan
    return int(((index < 0) & ~lost).sum())
