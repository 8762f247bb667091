"""ORC -> record batches of the asked columns, in row order, a stripe at a time.

A stripe is the least that pyarrow decodes, of the columns asked for: what most programs write has 64 MB of
it, and holds as much of it as is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.orc as orc

from imdh_cli.params import SourceParams
from imdh_cli.sources.base import BROKEN, Chunk, Fragment, check_columns, chunks_of, first_rows, one_of_each
from imdh_cli.sources.file import Stored
from imdh_cli.sources.nested import cells_per_row
from imdh_cli.workers import prefetch


class OrcPart:
    """One ORC file; the attributes are those of `base.Reader`.

    Parameters
    ----------
    file : Stored
        With a `random`.
    """

    format = "orc"
    typed = True
    parallel_fragments = False
    rereadable = True
    bad_rows = 0
    id_columns: tuple[str, ...] = ()

    def __init__(self, file: Stored, params: SourceParams) -> None:
        self.name = file.name
        self.size = file.size
        self.notes: list[str] = []
        self.bytes_read = 0
        self._file = file
        self._params = params
        self._stripe_rows: list[int] | None = None
        try:
            opened = self._open()
            self.schema: pa.Schema
            self.schema, self.repeated = one_of_each(opened.schema.remove_metadata())
            self.rows: int | None = opened.nrows
            self._stripes: int = opened.nstripes
        except BROKEN as error:
            raise file.broken("ORC", error) from error

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        check_columns([*features, *keep], self.schema.names, self.name)
        self.bytes_read = 0
        chunks = self._read(features, keep, range(self._stripes))
        return prefetch(chunks) if self._params.threads > 1 else chunks

    def fragments(self, features: Sequence[str]) -> list[Fragment]:
        """One fragment for each stripe."""
        check_columns(features, self.schema.names, self.name)
        fragments, row = [], 0
        for i, rows in enumerate(self._rows_of_stripes()):
            size = 8 * rows * cells_per_row(self.schema, features)
            fragments.append(Fragment(rows, size, partial(self._read, features, (), [i], row), size))
            row += rows
        return fragments

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        names = self.schema.names if columns is None else list(columns)
        return first_rows(self._read(names, (), range(self._stripes)), self.schema, names, rows)

    def close(self) -> None:
        """Nothing is held between readings."""

    def _read(
        self, features: Sequence[str], keep: Sequence[str], stripes: Sequence[int], row: int = 0
    ) -> Iterator[Chunk]:
        wanted = list(dict.fromkeys([*features, *keep])) or self.schema.names[:1]
        try:
            opened = self._open()
            for i in stripes:
                stripe = opened.read_stripe(i, columns=wanted)
                yield from chunks_of(stripe, features, keep, self._params.batch_rows, (self.name, row))
                row += stripe.num_rows
                self.bytes_read += (self.size or 0) * stripe.num_rows // max(self.rows or 0, 1)
        except BROKEN as error:
            raise self._file.broken("ORC", error) from error

    def _rows_of_stripes(self) -> list[int]:
        """How many rows each stripe has, which pyarrow tells of what it has read: of the smallest column."""
        if self._stripe_rows is None:
            narrow = min(self.schema, key=lambda field: _width(field.type)).name
            try:
                opened = self._open()
                self._stripe_rows = [
                    opened.read_stripe(i, columns=[narrow]).num_rows for i in range(self._stripes)
                ]
            except BROKEN as error:
                raise self._file.broken("ORC", error) from error
        return self._stripe_rows

    def _open(self) -> orc.ORCFile:
        return orc.ORCFile(cast(Callable[[], pa.NativeFile], self._file.random)())


def open_part(file: Stored, params: SourceParams) -> OrcPart:
    """A reader of one file, as `formats.py` names it."""
    return OrcPart(file, params)


def _width(kind: pa.DataType) -> int:
    """Bits of a cell; more than of any number where that is not fixed."""
    return int(kind.bit_width) if pa.types.is_primitive(kind) else 1 << 10
