"""The exported SQL, run by DuckDB over the rows of a source, against the labels of `assign`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.errors import DataError, UsageError
from imdh_cli.export.sql import query
from imdh_cli.features import Tally, extract
from imdh_cli.features.kinds import plain
from imdh_cli.model import Cut, Model, walk
from imdh_cli.pipeline.assign import Labeller
from imdh_cli.pipeline.feature_rows import OnProgress, Progress, name_of
from imdh_cli.sources.base import Source

TABLE, LABEL = "imdh_data", "imdh_label"
ROUNDING = 2.0**-53  # of one operation, relatively


@dataclass(frozen=True)
class Comparison:
    """What became of the rows.

    differ : rows of another label than `assign` gives. near : those of them that lie within rounding of a
    cut. first : the first of the others: its number from 1, the label of `assign`, that of the SQL.
    """

    rows: int
    differ: int
    near: int
    first: tuple[int, int, int] | None


def compare(
    model: Model,
    source: Source,
    *,
    clusters: int | None = None,
    missing: str | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Label every row of a source twice; rows that could not be read are passed over.

    Parameters
    ----------
    clusters, missing : as of `query`

    Raises
    ------
    UsageError
        DuckDB is not installed, or as `query`.
    DataError
        As reading and extracting do, or DuckDB cannot take a column.
    """
    duckdb = _duckdb()
    policy = missing or model.spec.missing
    spec = replace(model.spec, missing="mean" if policy == "mean" else "skip")
    text = query(model, "duckdb", clusters=clusters, missing=spec.missing, table=TABLE, name=LABEL)
    labeller, root, tally = Labeller(model, clusters), walk(model, clusters), Tally()
    name = name_of(source)
    differ = near = 0
    first: tuple[int, int, int] | None = None
    connection = duckdb.connect(config={"threads": threads})
    try:
        for chunk in source.chunks(spec.source_columns):
            row = tally.rows
            X, used = extract(chunk, spec, tally, first_row=row, source_name=name)
            expected = labeller(X)["cluster"]
            expected[~used] = -1
            read = np.ones(len(used), dtype=np.bool_) if chunk.bad is None else ~chunk.bad
            found = _labels(duckdb, connection, chunk.features.filter(pa.array(read)), text)
            apart = np.flatnonzero(read)[found != expected[read]]
            close = used[apart]
            close[close] = within_rounding(model, root, X[apart[close]])
            differ, near = differ + len(apart), near + int(close.sum())
            if first is None and not close.all():
                i = int(apart[np.argmin(close)])
                first = (row + i + 1, int(expected[i]), int(found[read[:i].sum()]))
            if on_progress is not None:
                on_progress(Progress("comparing", tally.rows, source.rows, source.bytes_read, source.size))
    finally:
        connection.close()
    return Comparison(tally.rows - tally.bad, differ, near, first)


def within_rounding(model: Model, root: Cut | int, X: np.ndarray) -> np.ndarray:
    """Which rows meet a cut so near that the order of summation may decide, (rows,) bool.

    That is |v.z - t| <= 2 u (|v|.|z| + |t|), u = 2^-53. Of rows put on cuts on purpose, with 2 to 100
    columns, the farthest that fell on another side in DuckDB or PostgreSQL was at 1.5.

    X : (rows, d) float64, the user's units, NaN where a missing cell counts as the mean
    """
    Z = model.scaling.apply(X)
    near = np.zeros(len(Z), dtype=np.bool_)
    todo: list[tuple[Cut | int, np.ndarray]] = [(root, np.arange(len(Z)))]
    while todo:
        cut, rows = todo.pop()
        if not isinstance(cut, Cut) or not len(rows):
            continue
        gap = Z[rows] @ cut.direction - cut.threshold
        size = np.abs(Z[rows]) @ np.abs(cut.direction) + abs(cut.threshold)
        near[rows] |= np.abs(gap) <= 2.0 * ROUNDING * size
        todo += [(cut.left, rows[gap < 0.0]), (cut.right, rows[gap >= 0.0])]
    return near


def _labels(duckdb: Any, connection: Any, rows: pa.RecordBatch, text: str) -> np.ndarray:
    """(rows,) the labels of the SQL, in the order of the rows."""
    arrays = [_readable(column) for column in rows.columns]
    try:
        connection.register(TABLE, pa.Table.from_arrays(arrays, names=rows.schema.names))
        labels = connection.execute(f"SELECT {LABEL} FROM ({text})").fetchnumpy()[LABEL]
    except duckdb.Error as error:
        said = " ".join(str(error).split())
        raise DataError(f"DuckDB cannot label these rows: {said[:300]}") from error
    return np.asarray(labels, dtype=np.int64)


def _readable(column: pa.Array) -> pa.Array:
    """The same values in a type that DuckDB takes from Arrow."""
    column = plain(column)
    if pt.is_fixed_size_list(column.type) and pt.is_float16(column.type.value_type):
        return column.cast(pa.list_(pa.float32(), column.type.list_size))
    if pt.is_float16(column.type):
        return column.cast(pa.float32())
    return column.cast(pa.float64()) if pt.is_decimal256(column.type) else column


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise UsageError("--check runs the query in DuckDB", "pip install 'imdh[sql]'") from error
    return duckdb
