"""The values of a field in a sample of the records -> what the field holds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from imdh_cli.sources.csv.numbers import MOSTLY, USUAL_NULLS

DOUBLE = pa.float64()


class Number(str):
    """A number as it is written."""


class Record(dict[str, Any]):
    """An object; `twice` are the names that it gives several values to, of which the last is held."""

    twice: frozenset[str]

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> Record:
        """From its names and values."""
        record = cls(pairs)
        record.twice = frozenset()
        if len(record) < len(pairs):
            record.twice = frozenset(name for name, n in Counter(name for name, _ in pairs).items() if n > 1)
        return record


loads = json.JSONDecoder(
    object_pairs_hook=Record.of, parse_int=Number, parse_float=Number, parse_constant=Number
).decode


@dataclass
class Evidence:
    """What the sampled values of one field are."""

    kinds: Counter[str] = field(default_factory=Counter)  # number, whole, truth, text, list, object, other
    fields: dict[str, Evidence] = field(default_factory=dict)  # of objects

    def see(self, value: Any) -> None:
        """Add a value."""
        if isinstance(value, Number):
            self.kinds["whole" if value.lstrip("-").isdigit() and len(value) < 19 else "number"] += 1
        elif isinstance(value, str):
            self.kinds["text"] += value not in USUAL_NULLS
        elif isinstance(value, bool):
            self.kinds["truth"] += 1
        elif isinstance(value, list):
            numbers = all(v is None or isinstance(v, Number) for v in value)
            self.kinds["list" if numbers else "other"] += 1
        elif isinstance(value, dict):
            self.kinds["object"] += 1
            for name, inner in value.items():
                self.fields.setdefault(name, Evidence()).see(inner)

    def type(self) -> pa.DataType:
        """Of the field; text where values of several kinds are in it."""
        count = self.kinds
        if count["number"] + count["whole"] + count["truth"] >= MOSTLY * count.total():
            return DOUBLE
        if count["list"] >= MOSTLY * count.total():
            return pa.list_(DOUBLE)
        if count["object"] >= MOSTLY * count.total() and self.fields:
            return pa.struct([(name, inner.type()) for name, inner in self.fields.items()])
        return pa.string()

    def stored(self) -> pa.DataType:
        """What pyarrow is told to read."""
        kinds = set(+self.kinds)
        if kinds == {"whole"}:
            return pa.int64()
        return pa.bool_() if kinds == {"truth"} else self.type()
