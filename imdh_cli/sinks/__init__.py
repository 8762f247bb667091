"""Labelled batches -> CSV, Parquet, Arrow or standard output, whole or not at all.

`open_sink` chooses by the name of the target. Row i written is row i of the output, always.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pyarrow as pa

from imdh_cli.atomic import AtomicFile, Target, check_target, is_special, standard_output
from imdh_cli.errors import UsageError
from imdh_cli.sinks.base import Sink, StandardOutput
from imdh_cli.sinks.partitions import PartitionSink, check_partitions
from imdh_cli.sinks.tables import ArrowSink, ParquetSink
from imdh_cli.sinks.text import TextSink

_TEXT = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PACKED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_TABLES: dict[str, Callable[[AtomicFile, pa.Schema], Sink]] = {
    ".parquet": ParquetSink,
    ".pq": ParquetSink,
    ".arrow": ArrowSink,
    ".feather": ArrowSink,
    ".ipc": ArrowSink,
}


def open_sink(
    target: Target, schema: pa.Schema, *, force: bool = False, inputs: Sequence[Target] = ()
) -> Sink:
    """Open an output for batches of `schema`.

    Parameters
    ----------
    target : "-" for CSV on standard output, else a path. Its suffix says what is written: .csv or
        .tsv (also .gz, .zst, .bz2), .parquet, .arrow or .feather; pipes and devices get CSV unless
        their name says otherwise.
    schema : columns and types of every batch to come
    force : may an existing file be replaced?
    inputs : what the run reads, which is never written to

    Raises
    ------
    UsageError
        The target exists and `force` is off, is an input, or has no known suffix.
    OutputError
        It cannot be written.
    DataError
        A column cannot be written in this format.
    """
    name = os.fspath(target)
    if name == "-":
        return TextSink(StandardOutput(standard_output(inputs)), schema, delimiter=",")
    stem, packed = _unpacked(name)
    suffix = os.path.splitext(stem)[1].lower()
    if suffix in _TABLES and not packed:
        return _TABLES[suffix](AtomicFile(target, force=force, inputs=inputs), schema)
    if suffix in _TEXT or is_special(target):
        out = AtomicFile(target, force=force, inputs=inputs)
        return TextSink(out, schema, delimiter=_TEXT.get(suffix, ","), packed=packed)
    check_target(target, force=force, inputs=inputs)  # what is wrong with the place comes first
    raise UsageError(
        f"{name}: the name does not say what to write",
        "end it in .csv, .tsv, .parquet, .arrow or .feather (.csv.gz and .csv.zst work, too)",
    )


def open_partitions(
    folder: Target,
    schema: pa.Schema,
    cluster_column: str,
    *,
    force: bool = False,
    inputs: Sequence[Target] = (),
) -> Sink:
    """Open a folder of Parquet files, one per cluster: FOLDER/cluster=3/part-0.parquet.

    Raises UsageError, OutputError as `open_sink`; with `force` only a folder that holds nothing but
    such files is replaced.
    """
    check_partitions(folder, force=force, inputs=inputs)
    return PartitionSink(folder, schema, cluster_column, force=force)


def _unpacked(name: str) -> tuple[str, str | None]:
    stem, suffix = os.path.splitext(name)
    packed = _PACKED.get(suffix.lower())
    return (stem, packed) if packed else (name, None)


__all__ = ["Sink", "open_partitions", "open_sink"]
