"""Labelled batches -> a folder of Parquet files, one per cluster, whole or not at all.

FOLDER/cluster=3/part-0.parquet is Hive's layout: the label is in the folder's name and not in the
file. Rows keep their order within a cluster; rows without a cluster are in cluster=-1.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from imdh_cli.atomic import Target, exchange, local_paths, output_errors
from imdh_cli.errors import OutputError, UsageError
from imdh_cli.sinks.base import Sink, Tap
from imdh_cli.sinks.tables import check_parquet, parquet_writer

_GATHER = 1 << 27  # bytes held for all clusters together
_GROUP_ROWS = 1 << 20
_OLD = ".old"  # ends the hidden name of a folder that is being replaced


class PartitionSink(Sink):
    """A folder with one Parquet file per cluster.

    The files are written into a hidden folder beside the target, which is renamed on `close`.
    No file stays open between row groups, so there may be more clusters than open files.
    """

    def __init__(
        self, folder: Target, schema: pa.Schema, cluster_column: str, *, force: bool = False
    ) -> None:
        if len(schema) < 2:
            raise UsageError(
                "a folder per cluster needs columns to put into it", "add --keep-all or --keep A,B"
            )
        self.schema = pa.schema([_movable(field) for field in schema], schema.metadata)
        self.rows = 0
        self._name = os.fspath(folder)
        self._force = force
        self._target = os.path.realpath(folder)
        self._key = cluster_column
        self._file_schema = self.schema.remove(self.schema.get_field_index(cluster_column))
        check_parquet(self._file_schema)
        self._parts: dict[int, _Part] = {}
        self._waiting_bytes = 0
        self._temporary: str | None = _hidden(self._target)
        with output_errors(self._name):
            os.mkdir(self._temporary)

    @property
    def name(self) -> str:
        return self._name

    def _write(self, batch: pa.RecordBatch) -> None:
        at = self.schema.get_field_index(self._key)
        labels = batch.column(at).to_numpy(zero_copy_only=False)
        for label, rows in _by_cluster(labels, batch.remove_column(at)):
            part = self._part(label)
            part.add(rows)
            self._waiting_bytes += rows.nbytes
            if part.waiting_rows >= _GROUP_ROWS:
                self._waiting_bytes -= part.flush()
        while self._waiting_bytes > _GATHER:
            largest = max(self._parts.values(), key=lambda part: part.waiting_bytes)
            self._waiting_bytes -= largest.flush()

    def _part(self, label: int) -> _Part:
        if label not in self._parts:
            assert self._temporary is not None
            # Hive's escapes, so that a name with a slash or an equals sign stays one folder.
            folder = os.path.join(self._temporary, f"{quote(self._key, safe=' ')}={label}")
            os.mkdir(folder)
            self._parts[label] = _Part(os.path.join(folder, "part-0.parquet"), self._file_schema)
        return self._parts[label]

    def close(self) -> None:
        try:
            with output_errors(self._name):
                self._finish()
                self._publish()
        finally:
            self.abort()

    def _finish(self) -> None:
        for part in self._parts.values():
            part.close()

    def _publish(self) -> None:
        """Put the new folder in the old one's place; the old one comes back if that fails."""
        assert self._temporary is not None
        if not os.path.lexists(self._target) or not os.listdir(self._target):
            os.rename(self._temporary, self._target)
            self._temporary = None
        elif not self._force:
            kept, self._temporary = self._temporary, None
            raise OutputError(
                f"{self._name} appeared while this run was writing it; nothing was replaced",
                f"the finished folder is {kept}",
            )
        elif exchange(self._temporary, self._target):
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None
        else:
            # Not in one step: after a kill between the two, `_put_back` has the folder again.
            old = _hidden(self._target, _OLD)
            os.rename(self._target, old)
            try:
                os.rename(self._temporary, self._target)
            except BaseException:
                os.rename(old, self._target)
                raise
            self._temporary = None
            shutil.rmtree(old, ignore_errors=True)
        with suppress(OSError):
            _sync_folder(os.path.dirname(self._target))

    def abort(self) -> None:
        for part in self._parts.values():
            part.shut()
        self._parts = {}
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


class _Part:
    """One cluster's file: rows that wait, and a writer that opens the file only while it writes."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._appender = _Appender(path)
        self._tap = Tap(self._appender)  # type: ignore[arg-type]
        self._schema = schema
        try:
            self._writer = parquet_writer(self._tap, schema)
            self._appender.release()
        except BaseException:  # else Arrow's writer closes itself later, into a file that is gone
            self.shut()
            raise
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_rows = self.waiting_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes

    def flush(self) -> int:
        """Write what waits as a row group. Returns the bytes that waited."""
        freed = self.waiting_bytes
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting = []
        self.waiting_rows = self.waiting_bytes = 0
        self._appender.release()
        return freed

    def close(self) -> None:
        self.flush()
        self._writer.close()
        self._appender.release(sync=True)
        _sync_folder(os.path.dirname(self._appender.path))

    def shut(self) -> None:
        self._tap.shut()
        with suppress(OSError):  # what the file still holds may find no room, and is not wanted
            self._appender.release()


class _Appender:
    """A file that is opened at its end when something is written, and can be released any time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def write(self, data: bytes) -> int:
        if self._file is None:
            self._file = open(self.path, "ab")  # noqa: SIM115
        return self._file.write(data)

    def release(self, *, sync: bool = False) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        with file:
            if sync:
                file.flush()
                os.fsync(file.fileno())


def check_partitions(folder: Target, *, force: bool, inputs: Sequence[Target]) -> None:
    """Refuse a folder that cannot or must not be written. Raises UsageError, OutputError."""
    name = os.fspath(folder)
    target = os.path.realpath(folder)
    _put_back(target)
    for location in inputs:
        for real in map(os.path.realpath, local_paths(location)):
            if os.path.exists(real) and os.path.commonpath([real, target]) == target:
                raise UsageError(f"{name} holds the input {os.fspath(location)}", "choose another folder")
    if os.path.lexists(target) and not os.path.isdir(target):
        raise UsageError(f"{name} is a file, not a folder", "choose another name")
    if os.path.isdir(target):
        with output_errors(name):
            strangers = [inside for inside in os.listdir(target) if not _is_ours(target, inside)]
            full = bool(os.listdir(target))
        if strangers:
            raise UsageError(
                f"{name} holds other things ({strangers[0]}) and is not replaced",
                "choose another folder",
            )
        if full and not force:
            raise UsageError(f"{name} exists", "add --force to replace it, or choose another name")
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise OutputError(f"cannot write {name}: no such folder: {parent}", f"mkdir -p {parent}")


def _is_ours(folder: str, name: str) -> bool:
    inside = os.path.join(folder, name)
    return (
        re.fullmatch(r"[^=]+=-?\d+", name) is not None
        and os.path.isdir(inside)
        and not os.path.islink(inside)
        and all(re.fullmatch(r"part-\d+\.parquet", file) for file in os.listdir(inside))
    )


def _by_cluster(labels: np.ndarray, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each label of the batch with its rows, in their order."""
    order = np.argsort(labels, kind="stable")
    found, starts = np.unique(labels[order], return_index=True)
    moved = batch.take(pa.array(order))
    ends = [*starts[1:].tolist(), len(labels)]
    for label, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
        yield label, moved.slice(start, end - start)


def _movable(field: pa.Field) -> pa.Field:
    """Arrow cannot yet pick rows out of its view types; their plain forms hold the same."""
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return field.with_type(plain.get(field.type, field.type))


def _hidden(target: str, end: str = ".tmp") -> str:
    folder, base = os.path.split(target)
    return os.path.join(folder, f".{base[:200]}.{os.urandom(6).hex()}{end}")


def _put_back(target: str) -> None:
    """Give a folder its name again if a run was killed while it had none."""
    folder, base = os.path.split(target)
    left = sorted(glob.glob(f".{glob.escape(base[:200])}.*{_OLD}", root_dir=folder, include_hidden=True))
    if len(left) == 1 and not os.path.lexists(target):
        with suppress(OSError):
            os.rename(os.path.join(folder, left[0]), target)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
