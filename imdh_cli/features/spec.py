"""Which columns make the matrix: plain values that the model keeps. No table is touched here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from imdh_cli.errors import ModelError
from imdh_cli.params import Missing

MAX_LEVELS = 100  # of a one-hot column


@dataclass(frozen=True)
class Column:
    """One column of the table: a number, or text with the levels it may have (one-hot)."""

    name: str
    levels: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FeatureSpec:
    """Which columns make the matrix, in which order, and what a missing cell means.

    The model keeps it: whatever order and type the columns of another file have, the same cells
    give the same matrix.
    """

    columns: tuple[Column, ...]
    missing: Missing = "skip"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The d columns of the matrix; `colour=red` for a level."""
        return tuple(
            name
            for column in self.columns
            for name in (
                (column.name,)
                if column.levels is None
                else tuple(f"{column.name}={level}" for level in column.levels)
            )
        )

    @cached_property
    def source_columns(self) -> tuple[str, ...]:
        """The columns of the table that have to be read."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Those that must hold numbers."""
        return tuple(column.name for column in self.columns if column.levels is None)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Those that are one-hot."""
        return tuple(column.name for column in self.columns if column.levels is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as the model's metadata keep them."""
        return {
            "columns": [
                {"name": c.name, "levels": None if c.levels is None else list(c.levels)} for c in self.columns
            ],
            "missing": self.missing,
        }

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
            missing = values["missing"]
        except (KeyError, TypeError) as error:
            raise ModelError(f"the model's feature list is damaged: {error!r}") from error
        spec = cls(columns, missing)
        if missing not in get_args(Missing) or not columns:
            raise ModelError("the model's feature list is damaged")
        if len(set(spec.source_columns)) < len(columns) or len(set(spec.names)) < len(spec.names):
            raise ModelError("the model's feature list names a column twice")
        return spec


def _column(values: Any) -> Column:
    name, levels = values["name"], values["levels"]
    if not isinstance(name, str):
        raise TypeError("a name that is no text")
    if levels is None:
        return Column(name)
    if not isinstance(levels, list) or not 0 < len(levels) <= MAX_LEVELS:
        raise TypeError("levels that are no list")
    if not all(isinstance(level, str) for level in levels) or len(set(levels)) < len(levels):
        raise TypeError("levels that are no distinct texts")
    return Column(name, tuple(levels))
