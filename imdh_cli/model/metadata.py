"""A model's metadata: JSON from a stranger -> plain values of the right kinds.

Keys that are not known here are let through, so that a later imdh may add some; the known ones must
be there and be of their kind, so that no later code has to ask.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np

from imdh_cli.core.notations import Kind
from imdh_cli.core.pruning import Pruning, leans
from imdh_cli.errors import ModelError
from imdh_cli.params import FitParams, Missing, PruneParams

MAX_CHARACTERS = 1 << 24  # of JSON
MAX_NESTING = 16
MAX_NAME = 1000  # characters of a cluster's
MAX_COUNT = 1 << 53  # rows; sums of counts stay exact in float64

Check = Callable[[str, Any], None]


def choice(chosen: Pruning, params: PruneParams) -> dict[str, Any]:
    """How the number of clusters was chosen, as a model's metadata keep it."""
    return {
        "requested": params.clusters,
        "clusters": chosen.n_clusters,
        "clarity": chosen.clarity,
        "alternatives": list(chosen.alternatives),
        "largest": chosen.largest,
    }


def doubted(
    chosen: Pruning, about: Mapping[str, Any], names: Sequence[str], directions: np.ndarray
) -> Pruning:
    """The same choice, never called clear while cells may stand for missing ones, or where cuts lean on a
    notation. about : with `suspects` and `notations`. names : (d,) features. directions : (m, d)."""
    if chosen.clarity != "clear":
        return chosen
    odd = about.get("suspects") or leant_on(about, names, directions, chosen.cluster_of_leaf)
    return replace(chosen, clarity="close") if odd else chosen


def leant_on(
    about: Mapping[str, Any], names: Sequence[str], directions: np.ndarray, cluster_of_leaf: np.ndarray
) -> list[Mapping[str, Any]]:
    """The notations that cuts between these clusters lean on."""
    return [
        notation
        for notation in about.get("notations", ())
        if leans(cluster_of_leaf, directions, np.array([name in notation["features"] for name in names]))
    ]


def parse(text: str) -> dict[str, Any]:
    """A JSON object, bounded in length and depth, of finite numbers and encodable text.

    Raises ModelError.
    """
    if len(text) > MAX_CHARACTERS:
        _fault(f"has {len(text)} characters")
    try:
        values = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        _fault(f"is no JSON: {' '.join(str(error).split())[:100]}")
    if not isinstance(values, dict):
        _fault("is no JSON object")
    _check_values(values, MAX_NESTING)
    return values


def check(values: dict[str, Any], *, depth: int, names: list[str], clusters: int) -> None:
    """Required keys, their kinds, and that they agree with the arrays.

    Parameters
    ----------
    depth, names, clusters : the tree's levels, the features and K, as the arrays tell them

    Raises
    ------
    ModelError
        Naming the key.
    """
    for key, kind in _KEYS.items():
        if key not in values:
            _fault(f"has no {key}")
        kind(key, values[key])
    for key, kind in _OPTIONAL_KEYS.items():
        if key in values:
            kind(key, values[key])
    if values["program"] != "imdh":
        _fault(f"program is {values['program'][:40]!r}, not 'imdh'")
    if values["parameters"].get("learn", {}).get("depth") != depth:
        _fault(f"parameters.learn.depth is not {depth}, as the arrays are")
    if _feature_names(values["features"], len(names)) != names:
        _fault("features are not those of feature_names")
    if values["choice"]["clusters"] != clusters:
        _fault(f"choice.clusters is not {clusters}, as in cluster_of_leaf")


def _text(key: str, value: Any) -> None:
    if not isinstance(value, str):
        _fault(f"{key} is no text")


def _count(key: str, value: Any, least: int = 0) -> None:
    if type(value) is not int or not least <= value <= MAX_COUNT:
        _fault(f"{key} is no whole number from {least} up")


def _one_of(*choices: Any) -> Check:
    def one_of(key: str, value: Any) -> None:
        if value not in choices:
            _fault(f"{key} is none of {', '.join(map(str, choices))}")

    return one_of


def _either(*kinds: Check) -> Check:
    """The last kind's complaint is the one that is raised."""

    def either(key: str, value: Any) -> None:
        for kind in kinds[:-1]:
            try:
                return kind(key, value)
            except ModelError:
                continue
        return kinds[-1](key, value)

    return either


def _list_of(kind: Check, length: int | None = None) -> Check:
    def list_of(key: str, value: Any) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            _fault(f"{key} is no list" + (f" of {length}" if length else ""))
        for item in value:
            kind(key, item)

    return list_of


def _map_of(kind: Check) -> Check:
    def map_of(key: str, value: Any) -> None:
        if not isinstance(value, dict):
            _fault(f"{key} is no object")
        for inner, item in value.items():
            kind(f"{key}.{inner[:40]}", item)

    return map_of


def _record(keys: dict[str, Check]) -> Check:
    def record(key: str, value: Any) -> None:
        if not isinstance(value, dict):
            _fault(f"{key} is no object")
        for inner, kind in keys.items():
            if inner not in value:
                _fault(f"{key} has no {inner}")
            kind(f"{key}.{inner}", value[inner])

    return record


def _nothing(key: str, value: Any) -> None:
    if value is not None:
        _fault(f"{key} is not null")


def _typed(hint: Any) -> Check:
    """The check of a parameter, from the type its dataclass declares: said once, there."""
    origin = get_origin(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_parameters, hint)
    if origin is Literal:
        return _one_of(*get_args(hint))
    if origin in (Union, types.UnionType):
        return _either(*map(_typed, get_args(hint)))
    if origin is tuple:
        return _list_of(_typed(get_args(hint)[0]))
    return {int: _whole, float: _real, str: _text, bool: _truth, type(None): _nothing}[hint]


def _whole(key: str, value: Any) -> None:
    if type(value) is not int or abs(value) > 1 << 63:
        _fault(f"{key} is no whole number")


def _real(key: str, value: Any) -> None:
    if type(value) not in (int, float) or abs(value) > 1e300:
        _fault(f"{key} is no number")


def _truth(key: str, value: Any) -> None:
    if not isinstance(value, bool):
        _fault(f"{key} is neither true nor false")


def _parameters(kind: type, key: str, values: Any) -> None:
    """Parameters that are there are of their type and range; those that are not have their default."""
    if not isinstance(values, dict):
        _fault(f"{key} is no object")
    hints = get_type_hints(kind)
    for field in fields(kind):
        if field.name in values:
            value = values[field.name]
            _typed(hints[field.name])(f"{key}.{field.name}", value)
            known = field.metadata.get("option")
            if known is not None and not known.allows(value):
                _fault(f"{key}.{field.name} is {value}, which --help does not allow")


def _names(key: str, values: Any) -> None:
    """Names of clusters by the numbers of their tree nodes."""
    _map_of(_text)(key, values)
    for node, name in values.items():
        if not (node.isascii() and node.isdigit() and len(node) < 10):
            _fault(f"{key}: {node[:40]!r} is no node")
        if not 0 < len(name) <= MAX_NAME:
            _fault(f"{key}.{node} has {len(name)} characters")


def _column(key: str, value: Any) -> None:
    _record({"name": _text, "levels": _either(_nothing, _list_of(_text))})(key, value)
    if "items" in value:
        _record({"length": _count, "items": _list_of(_list_of(_count, 2)), "levels": _nothing})(key, value)


_counts = _map_of(_count)

_KEYS: dict[str, Check] = {
    "program": _text,
    "version": _text,
    "parameters": partial(_parameters, FitParams),
    "preset": _text,
    "features": _record({"columns": _list_of(_column), "missing": _typed(Missing)}),
    "left_out_columns": _list_of(_list_of(_text, 2)),
    "rows": _record(dict.fromkeys(("read", "used", "skipped", "bad", "counted"), _count)),
    "missing": _counts,
    "infinite": _counts,
    "unseen": _counts,
    "statistics": _one_of("recounted", "sampled", "windowed"),
    "passes": partial(_count, least=1),
    "choice": _record(
        {
            "requested": _either(_one_of("auto", "valleys"), partial(_count, least=1)),
            "clusters": partial(_count, least=1),
            "clarity": _one_of("clear", "close", "none", "given"),
            "alternatives": _list_of(_count),
            "largest": _count,
        }
    ),
    "inputs": _list_of(_text),
    "versions": _map_of(_text),
    "notes": _list_of(_text),
}

_OPTIONAL_KEYS: dict[str, Check] = {
    "starts": partial(_count, least=2),
    "id_columns": _list_of(_text),
    "too_little_spread": _list_of(_text),  # features of several values that doubles cannot tell apart
    "cluster_names": _names,
    "suspects": _list_of(
        _record(
            {"column": _text, "feature": _text, "value": _real, "cells": _count, "sd": _real, "others": _real}
        )
    ),
    "notations": _list_of(
        _record({"kind": _one_of(*get_args(Kind)), "columns": _list_of(_text), "features": _list_of(_text)})
    ),
    "tails": _list_of(  # columns scaled without their far cells
        _record({"feature": _text, "cells": _count, "of": _count, "sd": _real, "others": _real})
    ),
    "counted_apart": _one_of(True),  # on other rows than the columns were scaled by
    "learned_rows": partial(_count, least=1),  # where the tree was learned from a sample
}


def _feature_names(features: dict[str, Any], most: int) -> list[str]:
    """Columns of the matrix: of a one-hot column one for each level, `colour=red`, of a list for each item.

    most : of which there should be so many; of more not all are made.
    """
    names: list[str] = []
    for column in features["columns"]:
        name, levels = column["name"], column["levels"]
        for start, stop in column.get("items", ()):
            names += [f"{name}[{i}]" for i in range(start, min(stop, start + most + 1))]
        if "items" not in column:
            names += [name] if levels is None else [f"{name}={level}" for level in levels]
        if len(names) > most:
            break
    return names


def _check_values(value: Any, levels: int) -> None:
    if levels < 0:
        _fault(f"is nested deeper than {MAX_NESTING} levels")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_values(key, levels)
            _check_values(inner, levels - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_values(inner, levels - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        _fault("holds a number that is not finite")
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            _fault("holds a character that does not exist")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _fault(message: str) -> NoReturn:
    raise ModelError(f"metadata: {message}")
