"""Columns scaled without a few far cells, as a model's metadata keep them -> words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imdh_cli.report.suspects import short_number
from imdh_cli.report.words import percent
from imdh_cli.words import count, printable

NAME = 40  # characters of a name


def sentence(tail: Mapping[str, Any]) -> str:
    """How a column is scaled, and why."""
    n, cells = tail["cells"], tail["of"]
    share = f"{count(n, 'cell')} ({percent(n / max(1, cells))})"
    return (
        f'"{printable(tail["feature"], NAME)}": {share} far from all others would flatten it: scaled by the '
        f"others, whose sd is {short_number(tail['others'])} and {short_number(tail['sd'])} with them"
    )
