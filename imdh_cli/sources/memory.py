"""A table in memory (Arrow, pandas, Polars, a DuckDB relation ...), or batches as they come -> a source,
without a copy to a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.interchange

from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk, Fragment, check_columns, chunks_of, first_rows, one_of_each
from imdh_cli.sources.table import TableSource


class MemoryPart:
    """One table; the attributes are those of `base.Reader`."""

    format = "arrow"
    typed = True
    parallel_fragments = True
    rereadable = True
    bad_rows = 0
    id_columns: tuple[str, ...] = ()

    def __init__(self, table: pa.Table, params: SourceParams, name: str) -> None:
        self.name = name
        self.schema: pa.Schema
        self.schema, self.repeated = one_of_each(table.schema.remove_metadata())
        self.rows: int | None = table.num_rows
        self.size: int | None = table.nbytes
        self.notes: list[str] = []
        self.bytes_read = 0
        self._table = table
        self._params = params

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        check_columns([*features, *keep], self.schema.names, self.name)
        self.bytes_read = 0
        return self._read(features, keep, self._table, 0)

    def fragments(self, features: Sequence[str]) -> list[Fragment] | None:
        """One fragment for each batch that the table is of."""
        check_columns(features, self.schema.names, self.name)
        fragments, row = [], 0
        for batch in self._table.select(list(features)).to_batches():
            if batch.num_rows:
                read = partial(self._read, features, (), pa.Table.from_batches([batch]), row)
                fragments.append(Fragment(batch.num_rows, max(batch.nbytes, 1), read))
            row += batch.num_rows
        return fragments

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        return first_rows(self._read(names, (), self._table, 0), self.schema, names, rows)

    def close(self) -> None:
        """The table is the caller's."""

    def _read(
        self, features: Sequence[str], keep: Sequence[str], table: pa.Table, row: int
    ) -> Iterator[Chunk]:
        wanted: list[str] | list[int] = list(dict.fromkeys([*features, *keep])) or [0]
        for batch in table.select(wanted).to_batches(max_chunksize=self._params.batch_rows):
            yield from chunks_of(batch, features, keep, self._params.batch_rows, (self.name, row))
            row += batch.num_rows
            self.bytes_read += batch.nbytes


class BatchesPart(MemoryPart):
    """Record batches as they come, each a chunk; they can be read once."""

    rereadable = False

    def __init__(self, batches: Iterator[pa.RecordBatch], first: pa.RecordBatch, name: str) -> None:
        super().__init__(pa.Table.from_batches([first]), SourceParams(), name)
        self._batches = itertools.chain([first], batches)
        self.rows = self.size = None

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        check_columns([*features, *keep], self.schema.names, self.name)
        for batch in self._batches:
            kept = batch.select(list(keep)) if keep else None
            yield Chunk(batch.select(list(features)), kept, None, (self.name, None))

    def fragments(self, features: Sequence[str]) -> list[Fragment] | None:
        return None


def batches_source(
    batches: Iterator[pa.RecordBatch], params: SourceParams | None = None, name: str = "the table"
) -> TableSource | None:
    """Batches of one schema as a source, whose places among all rows are not known; None for none."""
    first = next(batches, None)
    if first is None:
        return None
    return TableSource(
        [BatchesPart(batches, first, name)], [{}], SourceParams() if params is None else params
    )


def table_source(*tables: Any, params: SourceParams | None = None, name: str = "the table") -> TableSource:
    """Anything `as_arrow` takes, as a source; several tables are parts of one."""
    params = SourceParams() if params is None else params
    parts = [MemoryPart(as_arrow(table), params, name) for table in tables]
    return TableSource(parts, [{}] * len(parts), params)


def as_arrow(table: Any) -> pa.Table:
    """A table of Arrow, or whatever gives one: `__arrow_c_stream__`, or `__dataframe__`.

    Raises
    ------
    DataError
        For what is no table.
    """
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    try:
        if hasattr(table, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(table).read_all()
        if hasattr(table, "__dataframe__"):
            return pa.interchange.from_dataframe(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"a {type(table).__name__} that gives no table: {error}") from error
    raise DataError(
        f"a {type(table).__name__} is no table",
        "give a table of pyarrow, pandas or Polars, or what else has __arrow_c_stream__",
    )
