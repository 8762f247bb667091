"""What `--null-value` says is missing: in all columns, or as `column=value` in one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.arrow_compute import pc
from imdh_cli.errors import DataError
from imdh_cli.sources.base import nearest, typed
from imdh_cli.sources.csv.numbers import null_numbers
from imdh_cli.sources.nested import is_number


@dataclass(frozen=True)
class Nulls:
    """Spellings of a missing value.

    everywhere : in all columns. columns : in one column. decimal : of the numbers among them.
    """

    everywhere: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decimal: str = "."

    @classmethod
    def of(cls, values: Iterable[str], names: Collection[str], decimal: str = ".") -> Nulls:
        """From the words of the command line; a word before a `=` that is no column's name is text."""
        everywhere: list[str] = []
        columns: dict[str, tuple[str, ...]] = {}
        known = frozenset(names)
        for value in values:
            cuts = (i for i, letter in enumerate(value) if letter == "=")
            name = next((value[:i] for i in cuts if value[:i] in known), None)
            if name is None:
                everywhere.append(value)
            else:
                columns[name] = (*columns.get(name, ()), value[len(name) + 1 :])
        return cls(tuple(dict.fromkeys(everywhere)), columns, decimal)

    def __bool__(self) -> bool:
        return bool(self.everywhere or self.columns)

    def texts(self, name: str) -> tuple[str, ...]:
        """The spellings in one column."""
        return (*self.everywhere, *self.columns.get(name, ()))

    def apply(self, column: pa.Array, name: str) -> pa.Array:
        """A column with null for what is missing; the same one where nothing is.

        A number is compared in the type of the column: -99999.9 is one of float32, too.
        """
        texts = self.texts(name)
        if not texts:
            return column
        if pt.is_fixed_size_list(column.type) and is_number(column.type.value_type):
            length = column.type.list_size
            values = column.values.slice(column.offset * length, len(column) * length)
            filled = self._without(values, texts)
            if filled is values:
                return column
            return pa.FixedSizeListArray.from_arrays(filled, length, mask=column.is_null())
        return self._without(column, texts)

    def _without(self, column: pa.Array, texts: tuple[str, ...]) -> pa.Array:
        if pt.is_float16(column.type):  # pyarrow hardly calculates with it
            single = column.cast(pa.float32())
            rest = self._without(single, texts)
            return column if rest is single else rest.cast(pa.float16())
        wanted = self._in_type(column.type, texts)
        if wanted is None or not len(wanted):
            return column
        found = pc.is_in(column, value_set=wanted)
        return pc.if_else(found, pa.scalar(None, column.type), column) if pc.any(found).as_py() else column

    def _in_type(self, kind: pa.DataType, texts: tuple[str, ...]) -> pa.Array | None:
        """Those spellings that cells of a type may have."""
        if pt.is_string(kind) or pt.is_large_string(kind):
            return pa.array(texts, kind)
        if pt.is_boolean(kind) or not is_number(kind):
            return None
        numbers = []
        for number in null_numbers(texts, self.decimal):
            try:
                numbers.append(number.cast(kind, safe=not pt.is_floating(kind)))
            except pa.ArrowException:  # no number of this type
                continue
        return pa.array([number.as_py() for number in numbers], kind)

    def check(self, names: Collection[str]) -> None:
        """Raise DataError for `prce=-1` where there is a column "price"."""
        for text in self.everywhere:
            name, equals, value = text.partition("=")
            near = nearest(name, names, 1) if equals and name else []
            if near:
                hint = f"did you mean {typed('--null-value', near[0] + '=' + value)}?"
                raise DataError(f'--null-value {text}: no column "{name}"', hint)
