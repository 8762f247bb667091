"""Many parts -> one table: columns united, types promoted, rows in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.arrow_compute import pc
from imdh_cli.errors import DataError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk, Fragment, Part, Reader, Repeated, check_columns, typed
from imdh_cli.sources.csv.numbers import USUAL_NULLS, all_numbers, spelled_plainly, to_numbers
from imdh_cli.sources.nested import field_within, is_list, take_field, to_vectors
from imdh_cli.sources.nulls import Nulls
from imdh_cli.sources.promote import promoted
from imdh_cli.words import listing, quoted

Schemas = tuple[pa.Schema, pa.Schema]  # of the features and of what is passed through


class TableSource:
    """All parts as one table; see `base.Source`.

    - Columns are the union of the parts' columns, in order of first appearance, then the Hive keys
      (a key wins over a column of the same name).
    - Types that differ are promoted: whole numbers to int64, numbers to double, number and text to
      text. What has no common type is an error only when it is asked for.
    - A column that a part does not have is null there when it is passed through. As a feature it is
      an error that names the file: a whole file of missing cells is never meant. `absent` tells
      which columns those are, so that a default choice can leave them out.
    - Several columns of one name are one column here, and an error only when that is asked for.
    - A field within structs is a column once it was asked for by `expose`. Lists that `expect` was told the
      length of are fixed-size lists among the features, and what they are among the columns passed through.
    - Passthrough columns of a dictionary type are decoded: dictionaries differ from batch to batch,
      which not every output can hold.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        keys: Sequence[dict[str, str | None]],
        params: SourceParams,
        notes: Sequence[str] = (),
        changed: Sequence[Callable[[], DataError | None]] = (),
    ) -> None:
        self._readers = list(readers)
        self._changed = list(changed)  # of each part: the error when it is not what it was
        self._keys = list(keys)
        self._params = params
        self._own_notes = list(notes)
        self.rereadable = all(r.rereadable for r in readers)
        self.typed = all(r.typed for r in readers)
        self.parallel_fragments = all(r.parallel_fragments for r in readers)
        self.parts = [Part(r.name, r.format, r.rows, r.size) for r in readers]
        self.size = _total(r.size for r in readers)
        self.rows = _total(r.rows for r in readers)
        if self.rows is not None and params.max_rows is not None:
            self.rows = min(self.rows, params.max_rows)
        self.hive_columns = tuple(dict.fromkeys(k for keys in self._keys for k in keys))
        self.id_columns = tuple(dict.fromkeys(i for r in self._readers for i in r.id_columns))
        self.derived: dict[str, tuple[str, ...]] = {}
        self._lengths: dict[str, int] = {}
        self._parse: frozenset[str] = frozenset()
        self.null_values = params.null_values or ()
        self.decimal = params.decimal
        self._restart()
        self.schema = pa.schema([])
        self._unite()

    # -- what is there

    @property
    def notes(self) -> list[str]:
        inner = (note for r in self._readers for note in r.notes)
        return list(dict.fromkeys([*self._own_notes, *self._union_notes, *inner]))

    @property
    def bytes_read(self) -> int:
        return self._bytes

    @property
    def bad_rows(self) -> int:
        return self._bad

    def kept_schema(self, keep: Sequence[str]) -> pa.Schema:
        """The schema of `Chunk.kept`; with a part without types, everything is text."""
        self.check((), keep)
        return pa.schema([(k, _decoded(self._type(k)) if self.typed else pa.string()) for k in keep])

    def expose(self, names: Iterable[str]) -> None:
        """Make columns of those names that tell a field within structs: `location.lat`."""
        for name in names:
            if name not in self.schema.names and (found := field_within(self.schema, name)) is not None:
                field, self.derived[name] = found
                self.schema = self.schema.append(field)

    def expect(
        self,
        *,
        numbers: Iterable[str] = (),
        texts: Iterable[str] = (),
        lengths: Mapping[str, int] = MappingProxyType({}),
        nulls: Iterable[str] = (),
        parse: Iterable[str] = (),
    ) -> None:
        """Read these columns as numbers, as text, or as lists of a length, whatever they look like.

        Only files without types (CSV) follow; a word among numbers, and a list of another length, is then a
        bad row. nulls : more of what `--null-value` says. parse : columns whose text is read as numbers.
        """
        self.null_values = tuple(dict.fromkeys([*self.null_values, *nulls]))
        numbers, texts = list(numbers), list(texts)
        texts += [
            name for name in lengths if not is_list(self._type(name))
        ]  # JSON arrays in a column of text
        self._lengths, self._parse = dict(lengths), frozenset(parse)
        numbers = [name for name in numbers if name not in self._parse]
        texts += self._parse
        for reader in self._readers:
            if hasattr(reader, "expect"):
                there = set(reader.schema.names)
                reader.expect(
                    numbers=[n for n in numbers if n in there],
                    texts=[t for t in texts if t in there],
                    nulls=self.null_values,
                )
        self._unite()

    def check(self, features: Sequence[str], keep: Sequence[str] = ()) -> None:
        """Raise DataError for what cannot be read: no such column, not in every file, no one type."""
        if not self.schema.names:
            return
        where = self.parts[0].name if len(self.parts) == 1 else f"{len(self.parts)} files"
        check_columns([*features, *keep], self.schema.names, where)
        for name in map(self._own, [*features, *keep]):
            if name in self.repeated:
                raise DataError(self.repeated[name], self._apart(name))
            if name in self._conflicts:
                raise DataError(self._conflicts[name], f"convert one of them, or use {typed('-x', name)}")
            if name in self.absent and name in set(map(self._own, features)):
                raise DataError(
                    f'{self.absent[name]}: no column "{name}", which other files have',
                    f"leave the file out, or the column: {typed('-x', name)}",
                )

    # -- reading

    def chunks(self, features: Sequence[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        self.check(features, keep)
        chunks = _first_rows(self._chunks(list(features), list(keep)), self._params.max_rows)
        return self._finished(chunks, features)

    def fragments(self, features: Sequence[str]) -> list[Fragment] | None:
        self.check(features)
        self._restart()
        features = list(features)
        schemas = self._schemas(features, [])
        fragments: list[Fragment] = []
        left = self._params.max_rows
        for i, reader in enumerate(self._readers):
            if left == 0:
                break
            self._as_text(i, features)
            inner = reader.fragments(self._of(i, features))
            if inner is None:
                if len(self._readers) == 1 or not reader.rereadable:
                    return None
                whole = partial(self._begin, i, self._of(i, features))
                inner = [Fragment(reader.rows, reader.size or 1, whole)]
            for fragment in inner:
                if left is not None:
                    if fragment.rows is None:
                        return None
                    fragment = fragment._replace(rows=min(left, fragment.rows))
                    left -= fragment.rows or 0
                if fragment.rows != 0:
                    chunks = self._fragment_chunks(i, fragment, schemas)
                    fragments.append(fragment._replace(chunks=chunks))
        return fragments

    def filled(self, names: Sequence[str]) -> set[str]:
        """Of these columns some that hold a value, as far as that is known of the first file without reading
        rows."""
        told = getattr(self._readers[0], "filled", None) if self._readers else None
        if told is None or self._nulls() or self._params.max_rows is not None:
            return set()
        found: set[str] = told(self._of(0, names))
        return found

    def sample(self, rows: int = 20_000, columns: Sequence[str] | None = None) -> pa.Table:
        if self._params.max_rows is not None:
            rows = min(rows, self._params.max_rows)
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(n) for n in names])
        tables: list[pa.Table] = []
        lacking = rows
        for i, reader in enumerate(self._readers):
            if lacking <= 0:
                break
            self._as_text(i, names)
            table = reader.sample(lacking, self._of(i, names))
            lacking -= table.num_rows
            columns_ = [self._column(i, table, f, table.num_rows, exact=False) for f in schema]
            tables.append(pa.table(columns_, schema=schema))
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        nulls = self._nulls()
        if not nulls:
            return table
        batches = [_with_nulls(batch, nulls) for batch in table.to_batches()]
        return pa.Table.from_batches(batches, table.schema)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def _chunks(self, features: list[str], keep: list[str]) -> Iterator[Chunk]:
        if not self.schema.names:
            return  # an input without a single byte has no rows, whatever is asked for
        self._restart()
        schemas = self._schemas(features, keep)
        for i in range(len(self._readers)):
            self._as_text(i, features)
            chunks = self._begin(i, self._of(i, features), self._of(i, keep))
            yield from self._fitted(i, chunks, schemas, 0)

    def _fragment_chunks(self, i: int, fragment: Fragment, schemas: Schemas) -> Callable[[], Iterator[Chunk]]:
        def chunks() -> Iterator[Chunk]:
            fitted = self._fitted(i, fragment.chunks(), schemas, None)
            return self._finished(_first_rows(fitted, fragment.rows), schemas[0].names)

        return chunks

    def _begin(self, i: int, features: list[str], keep: Sequence[str] = ()) -> Iterator[Chunk]:
        chunks = self._readers[i].chunks(features, keep)
        self._seen[i] = 0
        return chunks

    # -- one part's columns -> the table's

    def _unite(self) -> None:
        """The schema of all parts, and notes on where they differ."""
        self._layouts: list[pa.Schema] = []  # the different schemas
        self._repeated: list[Repeated] = []  # of each layout
        self._layout_of: list[int] = []  # of each part, the place in `_layouts`
        first: list[str] = []  # of each layout, the first part that has it
        for reader in self._readers:
            # Most folders hold one schema, so the last few are compared and no more.
            recent = range(max(len(self._layouts) - 8, 0), len(self._layouts))
            layout = (reader.schema, reader.repeated)
            at = next((k for k in recent if (self._layouts[k], self._repeated[k]) == layout), None)
            if at is None:
                at = len(self._layouts)
                self._layouts.append(reader.schema)
                self._repeated.append(reader.repeated)
                first.append(reader.name)
            self._layout_of.append(at)
        self._names = [frozenset(s.names) - set(self.hive_columns) for s in self._layouts]
        self._conflicts: dict[str, str] = {}
        self._union_notes: list[str] = []
        self._note_repeated(first)
        self._merge(first)

    def _merge(self, first: list[str]) -> None:
        fields: dict[str, pa.Field] = {}
        origin: dict[str, str] = {}
        for schema, name in zip(self._layouts, first, strict=True):
            drifted: dict[tuple[str, str], list[str]] = {}
            for new in schema:
                old = fields.setdefault(new.name, new)
                origin.setdefault(new.name, name)
                if old.type == new.type:
                    continue
                both = promoted(old.type, new.type)
                if both is None:
                    self._conflicts.setdefault(
                        new.name,
                        f'column "{new.name}" is {old.type} in {origin[new.name]} and {new.type} in {name}',
                    )
                    continue
                fields[new.name] = pa.field(new.name, both)
                words = f"{new.type}, in {origin[new.name]} {old.type}", f"{both}"
                drifted.setdefault(words, []).append(new.name)
            for (types, both_), columns in drifted.items():
                self._union_notes.append(f"{name}: {quoted(columns)}: {types}; read as {both_}")
        for key in self.hive_columns:
            if key in fields:
                self._union_notes.append(
                    f'"{key}" is both a column and a key=value folder: the folder counts'
                )
            fields[key] = pa.field(key, pa.string())
        self.schema = pa.schema(list(fields.values()))
        self.expose(list(self.derived))
        self._note_absent(first)

    def _note_repeated(self, first: list[str]) -> None:
        self.repeated: dict[str, str] = {}
        for names, part in zip(self._repeated, first, strict=True):
            places = {n: f"columns {listing(list(map(str, at)))}" for n, at in names.items()}
            for name, at in names.items():
                said = f'{part}: {len(at)} columns are called "{name}": {places[name]}'
                self.repeated.setdefault(name, said)
            if names:
                which = listing([f'"{name}" ({places[name]})' for name in names])
                self._union_notes.append(f"{part}: several columns of one name cannot be used: {which}")

    def _apart(self, name: str) -> str:
        """What to do about several columns of one name that is used."""
        if not self.typed and all_numbers([name], self._params.decimal):
            return "if the first line is data, add --no-header"
        return f"rename all but one of them, or fit with {typed('-x', name)}"

    def _note_absent(self, first: list[str]) -> None:
        self.absent: dict[str, str] = {}  # columns that some part does not have -> the first such
        everywhere = [n for n in self.schema.names if n not in self.hive_columns and n not in self.derived]
        for at, (names, part) in enumerate(zip(self._names, first, strict=True)):
            if len(names) == len(everywhere):
                continue
            lost = [n for n in everywhere if n not in names]
            for name in lost:
                self.absent.setdefault(name, part)
            others = self._layout_of.count(at) - 1
            where = part if others == 0 else f"{part} and {others} more files"
            word = "column" if len(lost) == 1 else "columns"
            self._union_notes.append(f"{where}: no {word} {quoted(lost)}, which other files have")

    def _of(self, i: int, names: Sequence[str]) -> list[str]:
        """Those of `names` that part `i` itself supplies."""
        own = self._names[self._layout_of[i]]
        return [n for n in dict.fromkeys(map(self._own, names)) if n in own]

    def _own(self, name: str) -> str:
        """The column of the parts that a name is, or lies within."""
        return self.derived[name][0] if name in self.derived else name

    def _as_text(self, i: int, names: Sequence[str]) -> None:
        """Tell a part without types (CSV) to read as text what is text in another part."""
        reader = self._readers[i]
        if reader.typed:
            return
        texts = [
            name
            for name in self._of(i, names)
            if not pt.is_floating(self._type(name)) and pt.is_floating(reader.schema.field(name).type)
        ]
        if texts:
            reader.expect(texts=texts)  # type: ignore[attr-defined]

    def _type(self, name: str) -> pa.DataType:
        return self.schema.field(name).type

    def _schemas(self, features: Sequence[str], keep: Sequence[str]) -> Schemas:
        return pa.schema([self.schema.field(n) for n in features]), self.kept_schema(keep)

    def _fitted(self, i: int, chunks: Iterator[Chunk], schemas: Schemas, row: int | None) -> Iterator[Chunk]:
        """One part's chunks with the table's types, nulls for what it lacks, and their origin."""
        wanted, kept_wanted = schemas
        for chunk in self._unchanged(i, chunks):
            n = _rows(chunk)
            left, right = chunk.features, chunk.kept
            if len(wanted) and not left.schema.equals(wanted):
                left = self._batch(i, left, wanted, n, exact=False)
            if len(kept_wanted) and (right is None or not right.schema.equals(kept_wanted)):
                right = self._batch(i, right, kept_wanted, n, exact=True)
            origin = chunk.origin or (self._readers[i].name, row)
            row = None if row is None else row + n
            self._bad += 0 if chunk.bad is None else int(chunk.bad.sum())
            self._count_bytes(i)
            yield chunk._replace(features=left, kept=right, origin=origin)
        self._count_bytes(i)

    def _finished(self, chunks: Iterator[Chunk], features: Sequence[str]) -> Iterator[Chunk]:
        """The same chunks, lists of a known length as fixed-size lists, null for what is said to be missing;
        a list of another length is a bad row."""
        places = [(at, n, self._lengths[n]) for at, n in enumerate(features) if n in self._lengths]
        texts = [(at, n) for at, n in enumerate(features) if n in self._parse and _is_text(self._type(n))]
        if texts:
            chunks = (self._numbered(chunk, texts) for chunk in chunks)
        if places:
            chunks = (self._listed(chunk, places) for chunk in chunks)
        nulls = self._nulls()
        return (_without(chunk, nulls) for chunk in chunks) if nulls else chunks

    def _nulls(self) -> Nulls:
        return Nulls.of(self.null_values, self.schema.names, self._params.decimal)

    def _numbered(self, chunk: Chunk, places: Sequence[tuple[int, str]]) -> Chunk:
        """Text that holds numbers as such; other text is a bad row."""
        columns, bad = chunk.features.columns, chunk.bad
        for at, name in places:
            texts, nulls = columns[at], pa.array([*USUAL_NULLS, *self._nulls().texts(name)], pa.string())
            plain = spelled_plainly(texts.cast(pa.string()), self._params.decimal)
            columns[at], wrong = to_numbers(plain, nulls, self._params.decimal)
            if wrong is not None and chunk.bad is not None:
                wrong &= ~chunk.bad
            if wrong is not None and wrong.any():
                if self._params.on_bad_row == "error":
                    raise not_a_number(chunk, int(wrong.argmax()), name, texts)
                self._bad += int((wrong if bad is None else wrong & ~bad).sum())
                bad = wrong if bad is None else bad | wrong
        features = pa.RecordBatch.from_arrays(columns, names=chunk.features.schema.names)
        return chunk._replace(features=features, bad=bad)

    def _listed(self, chunk: Chunk, places: Sequence[tuple[int, str, int]]) -> Chunk:
        columns, bad = chunk.features.columns, chunk.bad
        for at, name, length in places:
            vectors, wrong = to_vectors(columns[at], length)
            if wrong is not None and chunk.bad is not None:
                wrong &= ~chunk.bad
            if wrong is not None and wrong.any():
                if self._params.on_bad_row == "error":
                    row = int(wrong.argmax())
                    raise not_a_list(chunk, row, name, columns[at][row], length)
                self._bad += int((wrong if bad is None else wrong & ~bad).sum())
                bad = wrong if bad is None else bad | wrong
            columns[at] = vectors
        features = pa.RecordBatch.from_arrays(columns, names=chunk.features.schema.names)
        return chunk._replace(features=features, bad=bad)

    def _unchanged(self, i: int, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """The same chunks; an error when the file has changed, whatever came of that."""
        check = self._changed[i] if self._changed else lambda: None
        try:
            yield from chunks
        except DataError as error:
            raise check() or error from error.__cause__
        error_now = check()
        if error_now is not None:
            raise error_now

    def _restart(self) -> None:
        self._bytes = self._bad = 0
        self._seen = [r.bytes_read for r in self._readers]

    def _count_bytes(self, i: int) -> None:
        """Progress, without asking every part each time."""
        now = self._readers[i].bytes_read
        self._bytes += now - self._seen[i]
        self._seen[i] = now

    def _batch(
        self, i: int, batch: pa.RecordBatch | None, schema: pa.Schema, n: int, *, exact: bool
    ) -> pa.RecordBatch:
        arrays = [self._column(i, batch, field, n, exact=exact) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(
        self,
        i: int,
        batch: pa.RecordBatch | pa.Table | None,
        field: pa.Field,
        n: int,
        *,
        exact: bool,
    ) -> pa.Array | pa.ChunkedArray:
        """One column of part `i` in the table's type; `exact`: a rounded number is an error."""
        if field.name in self.hive_columns:
            return pa.repeat(pa.scalar(self._keys[i].get(field.name), pa.string()), n)
        name, *within = self.derived.get(field.name, (field.name,))
        at = -1 if batch is None else batch.schema.get_field_index(name)
        if batch is None or at < 0:
            return pa.nulls(n, field.type)
        column = take_field(batch.column(at), within)
        if column.type == field.type:
            return column
        if pt.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        try:
            return column.cast(field.type, safe=exact or not pt.is_floating(field.type))
        except pa.ArrowException as error:
            raise DataError(
                f'{self._readers[i].name}: column "{field.name}" of type {column.type} '
                f"cannot be read as {field.type}: {str(error).splitlines()[0]}",
                "write the files with one type for each column",
            ) from error


def _without(chunk: Chunk, nulls: Nulls) -> Chunk:
    return chunk._replace(features=_with_nulls(chunk.features, nulls))


def _with_nulls(batch: pa.RecordBatch, nulls: Nulls) -> pa.RecordBatch:
    names = batch.schema.names
    columns = [nulls.apply(column, name) for name, column in zip(names, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names) if names else batch


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def not_a_number(chunk: Chunk, row: int, name: str, texts: pa.Array) -> DataError:
    """The error for text that is no number in a column of numbers."""
    from imdh_cli.sources.csv.errors import shown, word_hint

    value = str(texts[row].as_py())
    said = f"{chunk.where(row)}, column {shown(name)}: {shown(value)} is not a number"
    return DataError(said, word_hint(name, value, free=True))


def not_a_list(chunk: Chunk, row: int, name: str, cell: pa.Scalar, length: int) -> DataError:
    """The error for a cell that is no list of so many numbers."""
    from imdh_cli.sources.csv.errors import shown

    value = cell.as_py()
    what = shown(value) if isinstance(value, str) else f"a list of {len(value)}"
    return DataError(
        f'{chunk.where(row)}, column "{name}": {what}, and no list of {length} numbers',
        "mend the row, or add --on-bad-row skip",
    )


def _decoded(kind: pa.DataType) -> pa.DataType:
    while pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _total(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(c for c in known if c is not None)


def _rows(chunk: Chunk) -> int:
    return chunk.kept.num_rows if chunk.kept is not None else chunk.features.num_rows


def _first_rows(chunks: Iterator[Chunk], limit: int | None) -> Iterator[Chunk]:
    """The chunks of the first `limit` rows; nothing is read beyond them."""
    if limit is None:
        yield from chunks
        return
    for chunk in chunks:
        n = _rows(chunk)
        if n > limit:
            bad = None if chunk.bad is None else chunk.bad[:limit]
            kept = None if chunk.kept is None else chunk.kept.slice(0, limit)
            chunk, n = (
                chunk._replace(features=chunk.features.slice(0, limit), kept=kept, bad=bad),
                limit,
            )
        limit -= n
        yield chunk
        if limit <= 0:
            return
