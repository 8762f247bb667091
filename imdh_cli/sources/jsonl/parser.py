"""A block of JSON lines -> the asked fields of its records, parsed alone and in any thread.

The usual block is one call of pyarrow's parser with the types given. Only where that fails is the block read
again, line by line, to take what pyarrow does not and to find the first cell at fault.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.types as pt

from imdh_cli.arrow_compute import pc
from imdh_cli.sources.csv.numbers import USUAL_NULLS, to_numbers
from imdh_cli.sources.encoding import Encoding, check_utf8, to_utf8
from imdh_cli.sources.jsonl.inference import Number, Record, loads
from imdh_cli.sources.nulls import Nulls


class Fault(NamedTuple):
    """The first line of a block that cannot be used.

    line, row : its place among the lines, and the records, of the block. error : for a line that is no
    record, or one that says what is asked for twice. column, value : of a wrong cell.
    """

    line: int
    row: int
    error: str | None = None
    column: str = ""
    value: str = ""


class Rows(NamedTuple):
    """What a block holds, as in `Chunk`; `lines` are those of the block."""

    features: pa.RecordBatch
    kept: pa.RecordBatch | None
    bad: np.ndarray | None
    lines: int


@dataclass(frozen=True)
class Parser:
    """Parses blocks for one choice of columns. Has no state of its own: threads share it.

    features : names and the types that they are to have. keep : the names of what is passed through.
    stored : what the fields hold, as far as is known. nulls : what means missing, beside the usual spellings
    where a number belongs. encoding : of one byte a character, to be converted from.
    """

    features: Mapping[str, pa.DataType]
    keep: tuple[str, ...]
    stored: Mapping[str, pa.DataType]
    nulls: Nulls
    skip: bool
    encoding: Encoding | None

    def __call__(self, data: bytes) -> Rows | Fault | UnicodeDecodeError:
        """The rows of a block, or its first fault."""
        try:
            if self.encoding is not None:
                data = to_utf8(pa.py_buffer(data), self.encoding).to_pybytes()
            else:
                check_utf8(pa.py_buffer(data))
        except UnicodeDecodeError as error:
            return error
        try:
            return self._quickly(data)
        except pa.ArrowInvalid:
            return self._slowly(data)

    def _quickly(self, data: bytes) -> Rows:
        """Raises ArrowInvalid for what pyarrow does not take by these types."""
        plain = {n: t for n, t in self.stored.items() if n in self.features or n in self.keep}
        if any(pt.is_nested(plain[name]) for name in self.keep):
            raise pa.ArrowInvalid("passed through as they are written")
        n = sum(not line.isspace() for line in data.splitlines(keepends=True))
        if not plain or not n:
            table = pa.table({name: pa.nulls(n, kind) for name, kind in plain.items()})
        else:
            table = pj.read_json(
                pa.BufferReader(data),
                pj.ReadOptions(use_threads=False, block_size=1 << 30),
                pj.ParseOptions(
                    explicit_schema=pa.schema(list(plain.items())),
                    newlines_in_values=False,
                    unexpected_field_behavior="ignore",
                ),
            ).combine_chunks()
            if table.num_rows != n:
                raise pa.ArrowInvalid("several records in a line")
        columns = {name: _chunk(table.column(name)) for name in plain}
        features = {name: self._feature(name, columns[name], kind) for name, kind in self.features.items()}
        kept = {name: columns[name].cast(pa.string()) for name in self.keep}
        return Rows(_batch(features, n), _batch(kept, n) if self.keep else None, None, data.count(b"\n"))

    def _feature(self, name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
        if pt.is_string(column.type) and pt.is_floating(kind):
            numbers, wrong = to_numbers(column, self._null_numbers(name))
            if wrong is not None:
                raise pa.ArrowInvalid("a word among numbers")
            return numbers
        if pt.is_string(column.type):
            return pc.if_else(pc.is_in(column, value_set=self._null_texts(name)), None, column)
        if column.type != kind and pt.is_nested(column.type):
            raise pa.ArrowInvalid("taken apart as they are written")
        return column if column.type == kind else column.cast(kind, safe=False)

    def _null_texts(self, name: str) -> pa.Array:
        return pa.array(self.nulls.texts(name), pa.string())

    def _null_numbers(self, name: str) -> pa.Array:
        return pa.array([*USUAL_NULLS, *self.nulls.texts(name)], pa.string())

    def _slowly(self, data: bytes) -> Rows | Fault:
        """Line by line, for a block in which something is out of the ordinary."""
        asked = dict.fromkeys([*self.features, *self.keep])
        records: list[Record] = []
        places: list[int] = []
        faults: list[Fault] = []
        for k, line in enumerate(data.decode().split("\n")):
            if not line.strip():
                continue
            record, error = _record(line)
            error = error or next((f'"{n}" has two values' for n in asked if n in record.twice), None)
            if error is not None:
                faults.append(Fault(k, len(records), error))
                record = Record.of([])
            records.append(record)
            places.append(k)
        n = len(records)
        features = {}
        for name, kind in self.features.items():
            features[name], wrong = self._column(name, [r.get(name) for r in records], kind)
            faults += [
                Fault(places[i], i, None, name, str(_text(records[i][name])))
                for i in np.flatnonzero(wrong).tolist()
            ]
        if faults and not self.skip:
            return min(faults, key=lambda fault: fault.line)
        bad = None
        if faults:
            bad = np.zeros(n, dtype=np.bool_)
            bad[[fault.row for fault in faults]] = True
        kept = {name: pa.array([_text(r.get(name)) for r in records], pa.string()) for name in self.keep}
        return Rows(_batch(features, n), _batch(kept, n) if self.keep else None, bad, data.count(b"\n"))

    def _column(self, name: str, values: list[Any], kind: pa.DataType) -> tuple[pa.Array, np.ndarray]:
        """An array of the type, null where a value is wrong; and which are."""
        wrong = np.zeros(len(values), dtype=np.bool_)
        if pt.is_floating(kind):
            texts = pa.array([_text(v, truth="10") for v in values], pa.string())
            numbers, words = to_numbers(texts, self._null_numbers(name))
            return numbers, wrong if words is None else words
        if pt.is_string(kind):
            texts = pa.array([_text(v) for v in values], pa.string())
            return pc.if_else(pc.is_in(texts, value_set=self._null_texts(name)), None, texts), wrong
        cells = []
        for i, value in enumerate(values):
            try:
                cells.append(_nested(value, kind))
            except (ValueError, TypeError):
                cells.append(None)
                wrong[i] = True
        return pa.array(cells, kind), wrong


def _record(line: str) -> tuple[Record, str | None]:
    """The record of a line, and why it is none."""
    try:
        record = loads(line)
    except (ValueError, RecursionError) as error:
        return Record.of([]), f"no JSON object: {error}"
    if record is None:  # as pyarrow has it: all its fields are missing
        return Record.of([]), None
    said = None if isinstance(record, Record) else "no JSON object: it is another kind of value"
    return (record if said is None else Record.of([])), said


def _nested(value: Any, kind: pa.DataType) -> Any:
    """A value for an Arrow array; ValueError or TypeError for one of another kind."""
    if value is None:
        return None
    if pt.is_floating(kind):
        return float(value)
    if pt.is_list(kind):
        if not isinstance(value, list):
            raise TypeError
        return [_nested(v, kind.value_type) for v in value]
    if pt.is_struct(kind):
        if not isinstance(value, Record) or any(f.name in value.twice for f in kind):
            raise TypeError
        return {f.name: _nested(value.get(f.name), f.type) for f in kind}
    return _text(value)


def _text(value: Any, truth: str = "") -> str | None:
    """A value as text, numbers as they are written. truth : the letters of true and false."""
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, bool):
        return truth[not value] if truth else str(value).lower()
    inner = (_json(v) for v in value) if isinstance(value, list) else ()
    if isinstance(value, list):
        return f"[{','.join(inner)}]"
    return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_json(v)}" for k, v in value.items()) + "}"


def _json(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, Number):
        return json.dumps(value, ensure_ascii=False)
    return "null" if value is None else str(_text(value))


def _batch(columns: Mapping[str, pa.Array], n: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), n, [None], children=[]))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
