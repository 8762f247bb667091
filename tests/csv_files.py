"""CSV parts from bytes, and their columns put together, for the tests."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk
from imdh_cli.sources.csv.file import CsvPart


def stream(data: bytes, **params: Any) -> CsvPart:
    """A part that can be read once, as from a pipe."""
    return CsvPart("t.csv", lambda: io.BytesIO(data), SourceParams(**params), False)


def saved(folder: Path, data: bytes, **params: Any) -> CsvPart:
    """A part of a file on disk."""
    path = folder / "t.csv"
    path.write_bytes(data)
    return CsvPart("t.csv", lambda: path.open("rb"), SourceParams(**params), True, str(path))


def written(rows: Sequence[Sequence[Any]], **dialect: Any) -> bytes:
    """What Python's csv module writes, in UTF-8."""
    text = io.StringIO(newline="")
    csv.writer(text, **dialect).writerows(rows)
    return text.getvalue().encode()


def read_by_csv(data: bytes, delimiter: str = ",") -> list[list[str]]:
    """What Python's csv module reads; records without a cell are left out, as they are no rows."""
    text = io.StringIO(data.decode(), newline="")
    return [row for row in csv.reader(text, delimiter=delimiter) if row]


def numbers(part: CsvPart, names: Sequence[str] | None = None) -> dict[str, list[float | None]]:
    """Feature columns; by default all numeric ones."""
    if names is None:
        names = [f.name for f in part.schema if f.type == pa.float64()]
    return columns(part.chunks(names), names)


def columns(chunks: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {n: [] for n in names}
    for chunk in chunks:
        for name in names:
            found[name] += chunk.features.column(name).to_pylist()
    return found


def texts(part: CsvPart, names: Sequence[str] | None = None) -> list[list[str | None]]:
    """Kept columns as rows of cells; by default all of them."""
    names = part.schema.names if names is None else list(names)
    rows: list[list[str | None]] = []
    for chunk in part.chunks((), names):
        assert chunk.kept is not None
        rows += [list(cells) for cells in zip(*chunk.kept.to_pydict().values(), strict=True)]
    return rows


def bad_rows(chunks: Sequence[Chunk]) -> list[int]:
    """Numbers, from 0, of the rows marked bad."""
    found, start = [], 0
    for chunk in chunks:
        if chunk.bad is not None:
            found += [start + int(i) for i in chunk.bad.nonzero()[0]]
        start += chunk.features.num_rows
    return found


def error(part: CsvPart, features: Sequence[str] = (), keep: Sequence[str] = ()) -> DataError:
    """The error that reading ends with."""
    with pytest.raises(DataError) as caught:
        list(part.chunks(features, keep))
    return caught.value
