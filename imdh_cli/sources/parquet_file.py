"""Parquet -> record batches of the asked columns, in row order, with flat memory.

The file is read through a small buffer for each column. Measured on 6 million rows of 20 doubles in a
file of 947 MB, the process at its most: with pyarrow's defaults as much as the file and more, since what
was read is kept; memory-mapped 1,095 MB, since mapped pages count while nobody else wants them; buffered
173 MB, in the same time. Only the columns asked for are decoded, and nothing is built per column
beforehand, so 20 columns of 10,000 cost what 20 cost.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from imdh_cli.params import SourceParams
from imdh_cli.sources.base import (
    BROKEN,
    Chunk,
    Fragment,
    check_columns,
    first_rows,
    one_of_each,
    pandas_index,
)
from imdh_cli.sources.file import Stored
from imdh_cli.sources.nested import is_number
from imdh_cli.workers import prefetch

PAGE = 1 << 20  # bytes; the usual size of a page
BATCH = 2 << 20  # bytes decoded at a time, by 8 bytes a cell
WIDE_BATCH = 8 << 20  # where these are few rows: going on with a column costs as much as reading 600 cells
WIDE_ROWS = 2048
MANY_THREADS = 4  # from which on columns are decoded side by side, at a fifth more processor time
FETCH = 256 << 20  # bytes of a remote row group that are held at once, at most
BUFFER = 4 << 20  # bytes fetched for each column of a larger one
NEAR = 64 << 10  # bytes read for each column of a file on this machine; pages are read as they are


class ParquetPart:
    """One Parquet file; the attributes are those of `base.Reader`.

    Parameters
    ----------
    file : Stored
        With a `random`. One of few is kept open, which saves reading its footer again; of 10,000 files in
        a folder not all may be open.
    """

    format = "parquet"
    typed = True
    parallel_fragments = False  # row groups share the open file
    rereadable = True
    bad_rows = 0

    def __init__(self, file: Stored, params: SourceParams) -> None:
        self.name = file.name
        self.size = file.size
        self.notes: list[str] = []
        self.bytes_read = 0
        self._file = file
        self._params = params
        self._footer: pq.FileMetaData | None = None  # of a remote file, read once
        self._live: weakref.ref[pq.ParquetFile] | None = None
        opened = self._open()
        self._held = opened if file.few else None
        try:
            stored: pa.Schema = opened.schema_arrow
            self.schema, self.repeated = one_of_each(stored.remove_metadata())
            self.rows: int | None = opened.metadata.num_rows
            self._flat = opened.metadata.num_columns == len(stored)
            self._groups = opened.num_row_groups
        except BROKEN as error:
            raise self._file.broken("Parquet", error) from error
        self.id_columns = pandas_index(stored)
        self._stored = stored.remove_metadata()

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        check_columns([*features, *keep], self.schema.names, self.name)
        self.bytes_read = 0
        chunks = self._read(features, keep, range(self._groups))
        return prefetch(chunks) if self._params.threads > 1 else chunks

    def fragments(self, features: Sequence[str]) -> list[Fragment]:
        """One fragment for each row group that has rows."""
        check_columns(features, self.schema.names, self.name)
        file = self._open()
        leaves = self._leaves(features)
        big_pages = str(file.metadata.created_by).startswith("DuckDB")
        fragments, row = [], 0
        for i in range(file.num_row_groups):
            group = file.metadata.row_group(i)
            columns = [group.column(j) for j in leaves]
            size = sum(c.total_uncompressed_size for c in columns)
            if group.num_rows:
                held = sum(_held(c, big_pages) for c in columns)
                read = partial(self._read, features, (), [i], row)
                fragments.append(Fragment(group.num_rows, max(size, 1), read, held))
            row += group.num_rows
        return fragments

    def filled(self, names: Sequence[str]) -> set[str]:
        """Columns of numbers that hold one, by the footer: a least one, which is not NaN, in the first row
        group. To see it in the rows takes a page and a dictionary of each column: 0.6 s of 784 columns."""
        numbers = [n for n in names if n in self._stored.names and is_number(self._stored.field(n).type)]
        found: set[str] = set()
        if self._groups:
            group = self._open().metadata.row_group(0)
            for name, leaf in zip(numbers, self._leaves(numbers), strict=True):
                with suppress(*BROKEN):  # kinds that pyarrow does not tell: the rows do
                    known = group.column(leaf).statistics
                    if known is not None and known.has_min_max and known.min == known.min:
                        found.add(name)
        return found

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        chunks = self._read(names, (), range(self._groups if self.rows else 0), batch_rows=min(rows, 65536))
        return first_rows(chunks, self.schema, names, rows)

    def close(self) -> None:
        self._live = self._held = None

    def _read(
        self,
        features: Sequence[str],
        keep: Sequence[str],
        groups: Sequence[int],
        row: int = 0,
        batch_rows: int | None = None,
    ) -> Iterator[Chunk]:
        file = self._open()
        wanted = list(dict.fromkeys([*features, *keep]))
        size = self.size or 0
        at: list[int] | None = None
        try:
            rows = batch_rows or min(self._params.batch_rows, _fitting_rows(self._cells(wanted)))
            for batch in self._batches(file, groups, wanted, rows):
                if at is None:
                    # By position from here on: asking for "a" brings a column "a.b" along.
                    at = [batch.schema.get_field_index(name) for name in wanted]
                    place = dict(zip(wanted, at, strict=True))
                    left, right = [place[n] for n in features], [place[n] for n in keep]
                self.bytes_read += size * batch.num_rows // max(self.rows or 0, 1)
                kept = batch.select(right) if keep else None
                yield Chunk(batch.select(left), kept, None, (self.name, row))
                row += batch.num_rows
        except BROKEN as error:
            raise self._file.broken("Parquet", error) from error

    def _batches(
        self, file: pq.ParquetFile, groups: Sequence[int], names: list[str], rows: int
    ) -> Iterator[pa.RecordBatch]:
        many = self._params.threads >= MANY_THREADS
        # Of a remote file a whole row group is fetched at once, so one at a time.
        for some in [[g] for g in groups] if self._file.remote else [list(groups)]:
            yield from file.iter_batches(rows, row_groups=some, columns=names, use_threads=many)

    def _leaves(self, names: Sequence[str]) -> list[int]:
        """The places of columns among the file's leaves, which nested columns have several of."""
        if self._flat:
            return [self._stored.get_field_index(name) for name in names]
        ends = list(accumulate(_leaf_count(kind) for kind in self._stored.types))
        spans = [(i and ends[i - 1], ends[i]) for i in map(self._stored.get_field_index, names)]
        return [leaf for start, end in spans for leaf in range(start, end)]

    def _cells(self, names: Sequence[str]) -> int:
        """Cells in a row of these columns, items of lists too."""
        if not self._groups or not any(_is_nested(self.schema.field(name).type) for name in names):
            return len(names)
        group = self._open().metadata.row_group(0)
        leaves = [group.column(j) for j in self._leaves(names)]
        return sum(max(1, leaf.num_values // max(1, group.num_rows)) for leaf in leaves)

    def _open(self) -> pq.ParquetFile:
        """The open file, shared by the readings under way and closed after the last of them."""
        file = self._live() if self._live is not None else None
        if file is None:
            random = cast(Callable[[], pa.NativeFile], self._file.random)
            try:
                if self._file.remote:
                    file = self._open_there(random())
                else:
                    file = pq.ParquetFile(random(), pre_buffer=False, buffer_size=NEAR)
            except BROKEN as error:
                raise self._file.broken("Parquet", error) from error
            self._live = weakref.ref(file)
        return file

    def _open_there(self, opened: pa.NativeFile) -> pq.ParquetFile:
        """A row group in few requests where it is not too large, else a buffer for each column."""
        if self._footer is None:
            self._footer = pq.read_metadata(opened)
        groups = map(self._footer.row_group, range(self._footer.num_row_groups))
        large = any(group.total_byte_size > FETCH for group in groups)
        return pq.ParquetFile(
            opened,
            metadata=self._footer,
            pre_buffer=not large,
            buffer_size=BUFFER if large else 0,
        )


def open_part(file: Stored, params: SourceParams) -> ParquetPart:
    """A reader of one file, as `formats.py` names it."""
    return ParquetPart(file, params)


def _fitting_rows(columns: int) -> int:
    """Rows to decode at a time.

    784 columns of 100,000 rows took 4.6 s in batches of 2 MB and 2.2 s in batches of 2,048 rows, with 60 MB
    of 1,450 more.
    """
    wide = 8 * max(columns, 1)
    return max(256, BATCH // wide, min(WIDE_ROWS, WIDE_BATCH // wide))


def _held(column: pq.ColumnChunkMetaData, big_pages: bool) -> int:
    """What an open reader holds of a column chunk: the buffer, a page, and a dictionary twice.

    Measured with 20 doubles and 1,000,000 rows in a group: 6 MB with the pages that most programs
    write; 43 MB when there is a full dictionary too, as pyarrow's defaults make of doubles; 155 MB
    from DuckDB, where a column chunk is one page.
    """
    size = column.total_uncompressed_size
    if big_pages:
        return NEAR + size
    return NEAR + min(size, PAGE * (3 if column.has_dictionary_page else 1))


def _is_nested(kind: pa.DataType) -> bool:
    return pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)


def _leaf_count(kind: pa.DataType) -> int:
    if pa.types.is_nested(kind):
        return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields))
    return 1
