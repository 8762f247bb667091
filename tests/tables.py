"""Small tables for the tests of sources and features: made here, written in any format."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from imdh_cli.params import SourceParams
from imdh_cli.sources import Chunk, TableSource, open_source


def table(rows: int, seed: int = 0, start: int = 0) -> pa.Table:
    """An id, two numbers and a text; row i says i in every column."""
    rng = np.random.default_rng(seed)
    at = np.arange(start, start + rows)
    return pa.table(
        {
            "id": at,
            "x": at + rng.random(rows) / 2,
            "y": rng.normal(size=rows),
            "word": [f"w{i % 7}" for i in at],
        }
    )


def parquet(path: Path, content: pa.Table, groups: Sequence[int] | None = None) -> str:
    """Write a Parquet file with row groups of these sizes."""
    with pq.ParquetWriter(path, content.schema) as writer:
        at = 0
        for rows in groups or [content.num_rows]:
            writer.write_table(content.slice(at, rows), row_group_size=max(rows, 1))
            at += rows
    return str(path)


def arrow(path: Path, content: pa.Table, rows: int = 1000, compression: str | None = None) -> str:
    """Write an Arrow IPC file with record batches of so many rows."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, content.schema, options=options) as writer,
    ):
        writer.write_table(content, max_chunksize=rows)
    return str(path)


def arrow_stream(content: pa.Table, rows: int = 1000) -> bytes:
    """An Arrow IPC stream."""
    file = io.BytesIO()
    with pa.ipc.new_stream(file, content.schema) as writer:
        writer.write_table(content, max_chunksize=rows)
    return file.getvalue()


def orc(path: Path, content: pa.Table, rows: int = 1000) -> str:
    """Write an ORC file with stripes of so many rows."""
    pyarrow.orc.write_table(content, str(path), stripe_size=1, batch_size=rows)
    return str(path)


def opened(*locations: str | Path, **params: object) -> TableSource:
    """A source with everything default but these."""
    return open_source([str(x) for x in locations], SourceParams(**params))  # type: ignore[arg-type]


def features_of(chunks: Iterable[Chunk]) -> pa.Table:
    """All feature columns, as one table."""
    return pa.Table.from_batches([c.features for c in chunks]).combine_chunks()


def kept_of(chunks: Iterable[Chunk]) -> pa.Table:
    """All passthrough columns, as one table."""
    return pa.Table.from_batches([c.kept for c in chunks if c.kept is not None]).combine_chunks()
