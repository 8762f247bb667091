"""Summary -> where its figures come from: rows, files, parameters, versions, the command to fit again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from imdh_cli.option import parameters
from imdh_cli.params import PAPER_PRESET, FitParams
from imdh_cli.report.figures import Summary
from imdh_cli.words import printable

NAME, VALUE = 48, 80  # characters
FILES = 3  # of more, a command does not name them
COLUMNS = 200  # characters of column names in a command


def tables(summary: Summary, limit: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """(title, rows of name and value), printable; tables without a row are left out.

    Parameters
    ----------
    limit : rows of a table; of a longer one the last row says how many more there are
    """
    s = summary
    parts: list[tuple[str, Mapping[str, Any]]] = [
        ("Rows", {name: f"{n:,}" for name, n in vars(s.rows).items()}),
        ("Files", _numbered(s.inputs)),
        ("Missing cells", {name: f"{n:,}" for name, n in s.missing.items() if n}),
        ("Cells infinite or beyond 1e100", {name: f"{n:,}" for name, n in s.infinite.items() if n}),
        ("Unknown levels", {name: f"{n:,}" for name, n in s.unseen.items() if n}),
        ("Columns left out", dict(s.left_out)),
        ("Parameters", _flat(s.parameters) | {"preset": s.preset, "statistics": s.statistics}),
        ("Versions", {"imdh": s.version} | s.versions),
        ("Notes", _numbered(s.notes)),
    ]
    return [(title, _table(values, limit)) for title, values in parts if values]


def command(summary: Summary) -> str:
    """The command that would learn the model again, as far as the model knows it."""
    s = summary
    words = ["imdh", "fit", *(s.inputs if len(s.inputs) <= FILES else ["DATA..."])]
    if s.preset == "paper":
        words += ["--preset", "paper"]
    default = _flat((PAPER_PRESET if s.preset == "paper" else FitParams()).to_dict())
    given = _flat(s.parameters)
    for p in parameters(FitParams):
        key = ".".join(p.path)
        if given.get(key) is not None and given[key] != default[key]:
            words += [p.flags[0], str(given[key])]
    if s.model is not None:
        spec = s.model.spec
        if spec.texts:
            words += ["--categorical", "onehot"]
        if spec.parsed:
            words += ["--parse", ",".join(spec.parsed)]
        if logs := [column.name for column in spec.columns if column.log]:
            words += ["--log", ",".join(logs)]
        for value in spec.null_values:
            words += [f"--null-value={value}"]
        if spec.missing != "skip":
            words += ["--missing", spec.missing]
        columns = ",".join(spec.asked)
        if s.left_out and len(columns) <= COLUMNS:
            words += ["-c", columns]
    return " ".join(shlex.quote(printable(word, COLUMNS)) for word in words)


def _flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """{"learn": {"depth": 8}, "seed": 0} -> {"learn.depth": 8, "seed": 0}"""
    flat: dict[str, Any] = {}
    for key, value in parameters.items():
        inner = value if isinstance(value, dict) else None
        flat.update({key: value} if inner is None else {f"{key}.{k}": v for k, v in inner.items()})
    return flat


def _numbered(texts: tuple[str, ...]) -> dict[str, str]:
    return {str(i): text for i, text in enumerate(texts, start=1)}


def _table(values: Mapping[str, Any], limit: int) -> list[tuple[str, str]]:
    shown = [
        (printable(str(name), NAME), printable("\u2013" if value is None else str(value), VALUE))
        for name, value in list(values.items())[:limit]
    ]
    more = len(values) - len(shown)
    return [*shown, ("\u2026", f"and {more:,} more")] if more > 0 else shown
