"""Cells that may stand for missing ones, as a model's metadata keep them -> words."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from imdh_cli.errors import ImdhWarning
from imdh_cli.report import notations
from imdh_cli.words import count, listing, printable

if TYPE_CHECKING:
    from imdh_cli.model import Model

NAME = 40  # characters of a name


def number(value: float) -> str:
    """The shortest text of a number; of one that was a float32, as short as that."""
    if float(np.float32(value)) == value:
        value = float(str(np.float32(value)))
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else repr(value)


def short_number(value: float) -> str:
    """A figure for a sentence."""
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"


def described(suspect: Mapping[str, Any]) -> str:
    """`"a": -99999 in 10 cells`"""
    name, cells = printable(suspect["feature"], NAME), count(suspect["cells"], "cell")
    return f'"{name}": {number(suspect["value"])} in {cells}'


def warning(suspect: Mapping[str, Any], to_do: str | None = None) -> str:
    """What was found, what it does to the column, and what to do, or else to type, if it means missing."""
    if to_do is None:
        to_do = f"add --null-value {shlex.quote(_null_value(suspect))}"
    with_them, without = short_number(suspect["sd"]), short_number(suspect["others"])
    return (
        f"{described(suspect)}, apart from all others: the column's sd is {with_them} with them "
        f"and {without} without; if it means missing, {to_do}"
    )


def warn(model: Model, to_do: str | None = None) -> None:
    """An ImdhWarning for each, and for each notation, where the caller of the caller called.

    to_do : but for `null_value=...`.
    """
    for suspect in model.metadata.get("suspects", ()):
        said = to_do or f"fit with null_value={_null_value(suspect)!r}"
        warnings.warn(warning(suspect, said), ImdhWarning, stacklevel=3)
    for notation in model.metadata.get("notations", ()):
        warnings.warn(notations.warning(notation, "leave it out"), ImdhWarning, stacklevel=3)


def _null_value(suspect: Mapping[str, Any]) -> str:
    return f"{suspect['column']}={number(suspect['value'])}"


def doubt(suspects: Sequence[Mapping[str, Any]]) -> str:
    """Why a choice is not clear, as a sentence."""
    return (
        f"Not clear while cells may stand for missing ones: {listing([described(s) for s in suspects], 3)}."
    )
