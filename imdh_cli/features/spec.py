"""Which columns make the matrix: plain values that the model keeps. No table is touched here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np

from imdh_cli.core.logs import signed_exp
from imdh_cli.errors import ModelError, UsageError
from imdh_cli.params import Missing

MAX_LEVELS = 100  # of a one-hot column
MAX_LENGTH = 1 << 20  # of lists, and of all features


@dataclass(frozen=True)
class Items:
    """Those items of a list of numbers that are features.

    length : of every list.
    ranges : start and stop of each stretch of them, in order.
    """

    length: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Column:
    """One column of the table: a number, text with the levels it may have (one-hot), or a list of numbers."""

    name: str
    levels: tuple[str, ...] | None = None
    items: Items | None = None
    parse: bool = False  # text that holds numbers
    log: bool = False  # learned from as a signed logarithm

    @property
    def width(self) -> int:
        """How many columns of the matrix it makes."""
        if self.items is not None:
            return sum(stop - start for start, stop in self.items.ranges)
        return 1 if self.levels is None else len(self.levels)

    @property
    def names(self) -> tuple[str, ...]:
        """Of those columns: `colour=red` for a level, `embedding[0]` for an item."""
        if self.items is not None:
            places = (i for start, stop in self.items.ranges for i in range(start, stop))
            return tuple(f"{self.name}[{i}]" for i in places)
        return (self.name,) if self.levels is None else tuple(f"{self.name}={s}" for s in self.levels)

    @property
    def asked(self) -> tuple[str, ...]:
        """What asks for it with `-c`: the column, or the items of its lists."""
        if self.items is None or self.items.ranges == ((0, self.items.length),):
            return (self.name,)
        return tuple(f"{self.name}[{start}:{stop}]" for start, stop in self.items.ranges)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the model's metadata keep them."""
        plain: dict[str, Any] = {
            "name": self.name,
            "levels": None if self.levels is None else list(self.levels),
        }
        plain |= {name: True for name, so in (("parse", self.parse), ("log", self.log)) if so}
        if self.items is None:
            return plain
        return plain | {"length": self.items.length, "items": [list(span) for span in self.items.ranges]}


@dataclass(frozen=True)
class FeatureSpec:
    """Which columns make the matrix, in which order, and what a missing cell means.

    The model keeps it: whatever order and type the columns of another file have, the same cells
    give the same matrix.
    """

    columns: tuple[Column, ...]
    missing: Missing = "skip"
    null_values: tuple[str, ...] = ()  # what else is missing, as `--null-value` said

    def together(self, other: FeatureSpec) -> FeatureSpec:
        """The columns of both, to be read at once.

        Raises
        ------
        UsageError
            When a column is of one kind here and of another there.
        """
        mine = {column.name: column for column in self.columns}
        for column in other.columns:
            known = mine.setdefault(column.name, column)
            kinds = [(c.levels is None, c.items and c.items.length, c.log) for c in (known, column)]
            if kinds[0] != kinds[1]:
                raise UsageError(
                    f'the models know column "{column.name}" as two different kinds of values',
                    "compare them by labels: imdh assign with each, then imdh report --truth",
                )
        return FeatureSpec(tuple(mine.values()), self.missing)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The d columns of the matrix."""
        return tuple(name for column in self.columns for name in column.names)

    @cached_property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of the table that have to be read."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """What asks for these features with `-c`."""
        return tuple(name for column in self.columns for name in column.asked)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """(d,): of each column of the matrix the place in `columns` of the one that it stands for."""
        return tuple(i for i, column in enumerate(self.columns) for _ in range(column.width))

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Those that must hold numbers, or text that does."""
        return tuple(c.name for c in self.columns if c.levels is None and c.items is None)

    @cached_property
    def parsed(self) -> tuple[str, ...]:
        """Those whose text is read as numbers."""
        return tuple(column.name for column in self.columns if column.parse)

    @cached_property
    def logs(self) -> np.ndarray:
        """(d,) bool: columns of the matrix that hold signed logarithms."""
        return np.array([self.columns[i].log for i in self.owners], dtype=np.bool_)

    def unlogged(self, X: np.ndarray) -> np.ndarray:
        """The rows of X (n, d) as the table has them; X itself where no column is a logarithm."""
        if not self.logs.any():
            return X
        X = X.copy()
        X[:, self.logs] = signed_exp(X[:, self.logs])
        return X

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Those that are one-hot."""
        return tuple(column.name for column in self.columns if column.levels is not None)

    @cached_property
    def lengths(self) -> dict[str, int]:
        """Those that hold lists of numbers, and how many each list has."""
        return {c.name: c.items.length for c in self.columns if c.items is not None}

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the model's metadata keep them."""
        plain = {"columns": [column.to_dict() for column in self.columns], "missing": self.missing}
        return plain | ({"null_values": list(self.null_values)} if self.null_values else {})

    @classmethod
    def from_dict(cls, values: Any) -> FeatureSpec:
        """The inverse of `to_dict`.

        Raises
        ------
        ModelError
            For anything `to_dict` does not write.
        """
        try:
            columns = tuple(_column(c) for c in values["columns"])
            missing, nulls = values["missing"], values.get("null_values", [])
        except (KeyError, TypeError) as error:
            raise ModelError(f"the model's feature list is damaged: {error!r}") from error
        if not isinstance(nulls, list) or not all(isinstance(value, str) for value in nulls):
            raise ModelError("the model's feature list is damaged")
        spec = cls(columns, missing, tuple(nulls))
        if missing not in get_args(Missing) or not columns or sum(c.width for c in columns) > MAX_LENGTH:
            raise ModelError("the model's feature list is damaged")
        if len(set(spec.source_columns)) < len(columns) or len(set(spec.names)) < len(spec.names):
            raise ModelError("the model's feature list names a column twice")
        return spec


def _column(values: Any) -> Column:
    name, levels = values["name"], values["levels"]
    if not isinstance(name, str):
        raise TypeError("a name that is no text")
    if "items" in values:
        return Column(name, None, _items(values["length"], values["items"], levels))
    if levels is None:
        return Column(name, parse=values.get("parse") is True, log=values.get("log") is True)
    if not isinstance(levels, list) or not 0 < len(levels) <= MAX_LEVELS:
        raise TypeError("levels that are no list")
    if not all(isinstance(level, str) for level in levels) or len(set(levels)) < len(levels):
        raise TypeError("levels that are no distinct texts")
    return Column(name, tuple(levels))


def _items(length: Any, ranges: Any, levels: Any) -> Items:
    if levels is not None or type(length) is not int or not 0 < length <= MAX_LENGTH:
        raise TypeError("a length that is none")
    if not isinstance(ranges, list) or not 0 < len(ranges) <= length:
        raise TypeError("items that are no list")
    for span in ranges:
        if not isinstance(span, list) or len(span) != 2 or any(type(end) is not int for end in span):
            raise TypeError("items that are no ranges")
        if not 0 <= span[0] < span[1] <= length:
            raise TypeError("items beyond the list")
    return Items(length, tuple((start, stop) for start, stop in ranges))
