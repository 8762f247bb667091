"""What every sink is: batches in, one output that appears on `close` and not before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import BinaryIO, Protocol

import pyarrow as pa

from imdh_cli.atomic import output_errors
from imdh_cli.errors import DataError


class Output(Protocol):
    """Where bytes go: an `AtomicFile` or standard output."""

    name: str
    straight: bool

    @property
    def file(self) -> BinaryIO: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class StandardOutput:
    """Standard output as an `Output`: it cannot be taken back, and it is not closed."""

    name = "standard output"
    straight = True

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def commit(self) -> None:
        """Send what is still held."""
        with output_errors(self.name):
            self.file.flush()

    def abort(self) -> None:
        """Nothing to take back."""


class Sink(ABC):
    """Takes record batches of one schema. A context manager: closes on success, else aborts.

    A subclass writes: `_write` a batch, `_finish` what comes last.

    Parameters
    ----------
    out : where the bytes go
    schema : columns and types as they are written
    """

    def __init__(self, out: Output, schema: pa.Schema) -> None:
        self._out = out
        self.schema = schema
        self.rows = 0

    @property
    def name(self) -> str:
        """The output, as messages call it."""
        return self._out.name

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; types that differ from the schema's are cast where nothing is lost.

        Raises OutputError (the disk is full), DataError (a value does not fit the schema),
        BrokenPipeError (nobody reads any more).
        """
        with output_errors(self.name):
            self._write(conform(batch, self.schema))
        self.rows += batch.num_rows

    def close(self) -> None:
        """Write what is left and let the output appear. Raises OutputError."""
        try:
            with output_errors(self.name):
                self._finish()
            self._out.commit()
        finally:
            self.abort()

    def abort(self) -> None:
        """Leave nothing. May be called at any time, any number of times."""
        self._out.abort()

    @abstractmethod
    def _write(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    def __enter__(self) -> Sink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class Tap:
    """The file object pyarrow writes to: after `shut`, what it still writes goes nowhere.

    pyarrow's writers write an ending when they are destroyed; an aborted output must not get one.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file: BinaryIO | None = file

    def shut(self) -> None:
        """From now on swallow everything."""
        self._file = None

    def write(self, data: bytes) -> int:
        """All of `data`, or an exception."""
        if self._file is not None:
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Flushing is the output's own affair."""

    def close(self) -> None:
        """So is closing."""

    def readable(self) -> bool:
        """No."""
        return False

    def writable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """No."""
        return False


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with the names and types of `schema`. Raises DataError where a value does not fit."""
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise ValueError(f"columns {batch.schema.names} written to an output of {schema.names}")
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            # The output's types are those of its first rows, and a later file may bring others. Arrow can be
            # asked neither whether a type leads to another (NotImplemented: a list to a number) nor whether
            # every value fits (Invalid: 0.5 as int32): it casts, or raises one of these. Both are the input's
            # doing, so the column is named; any other error is ours, and passes.
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DataError(
                    f'column "{field.name}" changes from {field.type} to {column.type}'
                    " in the course of the input"
                ) from error
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
