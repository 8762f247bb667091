"""Cells that may stand for missing ones, as a model's metadata keep them -> words."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from imdh_cli.words import count, listing, printable

NAME = 40  # characters of a name


def number(value: float) -> str:
    """The shortest text of a number; of one that was a float32, as short as that."""
    if float(np.float32(value)) == value:
        value = float(str(np.float32(value)))
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else repr(value)


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"


def described(suspect: Mapping[str, Any]) -> str:
    """`"a": -99999 in 10 cells`"""
    name, cells = printable(suspect["feature"], NAME), count(suspect["cells"], "cell")
    return f'"{name}": {number(suspect["value"])} in {cells}'


def warning(suspect: Mapping[str, Any]) -> str:
    """What was found, what it does to the column, and what to type if it means missing."""
    option = shlex.quote(f"{suspect['column']}={number(suspect['value'])}")
    return (
        f"{described(suspect)}, far from all others: the column's sd is {_short(suspect['sd'])} with them "
        f"and {_short(suspect['others'])} without; if it means missing, add --null-value {option}"
    )


def doubt(suspects: Sequence[Mapping[str, Any]]) -> str:
    """Why a choice is not clear, as a sentence."""
    return (
        f"Not clear while cells may stand for missing ones: {listing([described(s) for s in suspects], 3)}."
    )
