"""Record batches -> Parquet or Arrow IPC files, types kept."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from imdh_cli.atomic import output_errors
from imdh_cli.errors import DataError
from imdh_cli.sinks.base import Output, Sink, Tap

GROUP_ROWS = 1 << 20  # rows of a Parquet row group: large enough to compress and to skip
GROUP_BYTES = 1 << 26  # but not more than this in memory


class ParquetSink(Sink):
    """One Parquet file; batches are gathered into row groups."""

    def __init__(self, out: Output, schema: pa.Schema) -> None:
        super().__init__(out, schema)
        self._tap = Tap(out.file)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        try:
            with output_errors(self.name):
                check_parquet(schema)
                self._writer = parquet_writer(self._tap, schema)
        except BaseException:
            self.abort()
            raise

    def _write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._waiting_rows:
            table = pa.Table.from_batches(self._waiting, self.schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0

    def _finish(self) -> None:
        self._write_group()
        self._writer.close()

    def abort(self) -> None:
        self._tap.shut()
        self._waiting = []
        super().abort()


class ArrowSink(Sink):
    """One Arrow IPC file, not compressed, so that it can be memory-mapped.

    Dictionary columns become plain ones: their dictionary may change from batch to batch, which
    this format does not allow.
    """

    def __init__(self, out: Output, schema: pa.Schema) -> None:
        super().__init__(out, pa.schema([_plain(field) for field in schema], schema.metadata))
        self._tap = Tap(out.file)
        try:
            with output_errors(self.name):
                self._writer = pa.ipc.new_file(pa.PythonFile(self._tap, "w"), self.schema)
        except BaseException:
            self.abort()
            raise

    def _write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def _finish(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        self._tap.shut()
        super().abort()


def check_parquet(schema: pa.Schema) -> None:
    """Raises DataError for a column of a type that Parquet does not have."""
    for field in schema:
        try:
            pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
        # Making a writer for no rows is the only way that Arrow has to be asked, and this the error that it
        # answers a type with (unions, intervals, run ends; a nested one by what is in it). A list kept here
        # would be wrong by the next release, and without asking the fault would come after hours of reading.
        except pa.ArrowNotImplementedError as error:
            raise DataError(
                f'column "{field.name}" is {field.type}, which Parquet does not have',
                "write .arrow, or leave the column out",
            ) from error


def parquet_writer(tap: Tap, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet writer onto `tap`."""
    return pq.ParquetWriter(pa.PythonFile(tap, "w"), schema)


def _plain(field: pa.Field) -> pa.Field:
    if pa.types.is_dictionary(field.type):
        return field.with_type(field.type.value_type)
    return field
