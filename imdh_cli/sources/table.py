"""Many parts -> one table: columns united, types promoted, rows in reading order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk, Part, Piece, Reader, check_columns


class TableSource:
    """All parts as one table; see `base.Source`.

    - Columns are the union of the parts' columns, in order of first appearance, then the Hive keys.
    - Types that differ are promoted: integers to int64, numbers to double, number and text to text.
    - A column that a part does not have is null there when it is passed through. As a feature it is
      an error that names the file: a whole file of missing cells is never meant.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        keys: Sequence[dict[str, str | None]],
        params: SourceParams,
        notes: Sequence[str] = (),
    ) -> None:
        self._readers = list(readers)
        self._keys = list(keys)
        self._params = params
        self._notes = list(notes)
        self.rereadable = all(r.rereadable for r in readers)
        self.parts = [Part(r.name, r.format, r.rows, r.size) for r in readers]
        self.size = _total(r.size for r in readers)
        self.rows = _total(r.rows for r in readers)
        if self.rows is not None and params.max_rows is not None:
            self.rows = min(self.rows, params.max_rows)
        self._conflicts: dict[str, str] = {}
        self._unite()

    # -- what is there

    @property
    def notes(self) -> list[str]:
        return [*self._notes, *(note for r in self._readers for note in r.notes)]

    @property
    def bytes_read(self) -> int:
        return sum(r.bytes_read for r in self._readers)

    @property
    def bad_rows(self) -> int:
        return sum(r.bad_rows for r in self._readers)

    def _unite(self) -> None:
        types: dict[str, pa.Field] = {}
        first: dict[str, str] = {}
        schemas: list[pa.Schema] = []
        for reader in self._readers:
            if any(reader.schema.equals(s) for s in schemas[-3:]):
                continue  # most folders: every file the same
            schemas.append(reader.schema)
            for column in reader.schema:
                old = types.get(column.name)
                if old is None:
                    types[column.name] = column
                    first[column.name] = reader.name
                elif old.type != column.type:
                    self._promote(types, old, column, first[column.name], reader.name)
        self.hive_columns = tuple(dict.fromkeys(k for keys in self._keys for k in keys))
        for key in self.hive_columns:
            types[key] = pa.field(key, pa.string())
        self.schema = pa.schema(list(types.values()))
        self.id_columns = tuple(dict.fromkeys(i for r in self._readers for i in r.id_columns))
        for reader in self._readers:
            if len(reader.schema) < len(types) - len(self.hive_columns):
                there = {*self.hive_columns, *reader.schema.names}
                lost = [n for n in types if n not in there]
                quoted = ", ".join(f'"{n}"' for n in lost[:5]) + (" ..." if len(lost) > 5 else "")
                self._notes.append(f"{reader.name}: has no column {quoted}; other files have")

    def _promote(
        self, types: dict[str, pa.Field], old: pa.Field, new: pa.Field, first: str, second: str
    ) -> None:
        both = promoted(old.type, new.type)
        if both is None:
            self._conflicts.setdefault(
                old.name,
                f'column "{old.name}" is {old.type} in {first} and {new.type} in {second}',
            )
        elif both != old.type:
            types[old.name] = pa.field(old.name, both)

    # -- reading

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        self._check(features, keep)
        return self._chunks(list(features), list(keep))

    def _chunks(self, features: list[str], keep: list[str]) -> Iterator[Chunk]:
        left = self._params.max_rows
        for i, reader in enumerate(self._readers):
            if left is not None and left <= 0:
                return
            own = self._own(i)
            stream = reader.chunks([f for f in features if f in own], [k for k in keep if k in own])
            for chunk in stream:
                chunk = self._adapted(i, chunk, features, keep)
                n = _rows(chunk)
                if left is not None:
                    if n > left:
                        chunk, n = _head(chunk, left), left
                    left -= n
                yield chunk
                if left == 0:
                    break

    def pieces(self, features: Sequence[str]) -> list[Piece] | None:
        self._check(features, ())
        features = list(features)
        pieces: list[Piece] = []
        left = self._params.max_rows
        for i, reader in enumerate(self._readers):
            own = self._own(i)
            inner = reader.pieces([f for f in features if f in own])
            if inner is None:
                if len(self._readers) == 1 or not reader.rereadable or left is not None:
                    return None
                inner = [Piece(reader.rows, reader.size or 1, lambda r=reader: r.chunks(features))]  # type: ignore[misc]
            for piece in inner:
                if left is not None:
                    if piece.rows is None:
                        return None
                    if left == 0:
                        break
                    taken = min(left, piece.rows)
                    left -= taken
                    piece = piece._replace(rows=taken)
                pieces.append(piece._replace(chunks=self._piece_reader(i, piece, features)))
        return pieces

    def _piece_reader(self, i: int, piece: Piece, features: list[str]):  # type: ignore[no-untyped-def]
        def chunks() -> Iterator[Chunk]:
            left = piece.rows
            for chunk in piece.chunks():
                chunk = self._adapted(i, chunk, features, [])
                n = _rows(chunk)
                if left is not None:
                    if n > left:
                        chunk, n = _head(chunk, left), left
                    left -= n
                yield chunk
                if left == 0:
                    return

        return chunks

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        if self._params.max_rows is not None:
            rows = min(rows, self._params.max_rows)
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(n) for n in names])
        tables: list[pa.Table] = []
        for i, reader in enumerate(self._readers):
            own = self._own(i)
            lacking = rows - sum(t.num_rows for t in tables)
            table = reader.sample(lacking, [n for n in names if n in own])
            tables.append(
                pa.table([self._column(i, table, f, table.num_rows) for f in schema], schema=schema)
            )
            if sum(t.num_rows for t in tables) >= rows:
                break
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    # -- helpers

    def _own(self, i: int) -> set[str]:
        """The names that part `i` itself supplies."""
        return set(self._readers[i].schema.names) - set(self.hive_columns)

    def _check(self, features: Sequence[str], keep: Sequence[str]) -> None:
        where = self.parts[0].name if len(self.parts) == 1 else f"{len(self.parts)} files"
        check_columns([*features, *keep], self.schema.names, where)
        for name in [*features, *keep]:
            if name in self._conflicts:
                raise DataError(self._conflicts[name], f'convert one of them, or use -x "{name}"')
        for i, reader in enumerate(self._readers):
            own = self._own(i)
            check_columns([f for f in features if f not in own], reader.schema.names, reader.name)

    def _adapted(self, i: int, chunk: Chunk, features: list[str], keep: list[str]) -> Chunk:
        n = _rows(chunk)
        return Chunk(
            self._batch(i, chunk.features, features, n) if features else chunk.features,
            self._batch(i, chunk.kept, keep, n) if keep else None,
            chunk.bad,
        )

    def _batch(
        self, i: int, batch: pa.RecordBatch | None, names: list[str], n: int
    ) -> pa.RecordBatch:
        fields = [self.schema.field(name) for name in names]
        if batch is not None and batch.schema.equals(pa.schema(fields)):
            return batch
        arrays = [self._column(i, batch, f, n) for f in fields]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _column(self, i: int, batch, field: pa.Field, n: int):  # type: ignore[no-untyped-def]
        if field.name in self.hive_columns:
            return pa.repeat(pa.scalar(self._keys[i].get(field.name), pa.string()), n)
        if batch is None or field.name not in batch.schema.names:
            return pa.nulls(n, field.type)
        column = batch.column(batch.schema.get_field_index(field.name))
        if column.type == field.type:
            return column
        if self._readers[i].format == "csv" and pt.is_string(column.type):
            return column  # text as read
        return column.cast(field.type, safe=not pt.is_floating(field.type))


def promoted(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that holds both; None when there is none."""
    if a == b:
        return a
    if pt.is_dictionary(a):
        return promoted(a.value_type, b)
    if pt.is_dictionary(b):
        return promoted(a, b.value_type)
    if pt.is_null(a) or pt.is_null(b):
        return b if pt.is_null(a) else a
    if _is_number(a) and _is_number(b):
        if _is_whole(a) and _is_whole(b):
            wide = pt.is_uint64(a) or pt.is_uint64(b)
            signed = pt.is_signed_integer(a) or pt.is_signed_integer(b)
            return pa.float64() if wide and signed else pa.uint64() if wide else pa.int64()
        return pa.float64()
    if (_is_number(a) or _is_text(a)) and (_is_number(b) or _is_text(b)):
        large = pt.is_large_string(a) or pt.is_large_string(b)
        return pa.large_string() if large else pa.string()
    both = [pa.schema([("x", a)]), pa.schema([("x", b)])]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _is_whole(t: pa.DataType) -> bool:
    return pt.is_integer(t) or pt.is_boolean(t)


def _is_number(t: pa.DataType) -> bool:
    return _is_whole(t) or pt.is_floating(t) or pt.is_decimal(t)


def _is_text(t: pa.DataType) -> bool:
    return pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t)


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(c for c in known if c is not None)


def _rows(chunk: Chunk) -> int:
    return chunk.kept.num_rows if chunk.kept is not None else chunk.features.num_rows


def _head(chunk: Chunk, n: int) -> Chunk:
    return Chunk(
        chunk.features.slice(0, n),
        None if chunk.kept is None else chunk.kept.slice(0, n),
        None if chunk.bad is None else chunk.bad[:n],
    )
