"""What a caller in Python gives -> the parameters that the commands fill, under the same rules."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from imdh_cli.errors import UsageError
from imdh_cli.option import Option
from imdh_cli.params import AssignParams, Extra, FeatureParams, FitParams, Missing

_ANY = Option("")
_PLAIN = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", type(None): "None"}


def feature_params(
    columns: Sequence[str] | None, exclude: Sequence[str], ids: Sequence[str], categorical: str, missing: str
) -> FeatureParams:
    """Which columns are features; a text instead of a list is one name.

    Raises
    ------
    UsageError
        For a value that the option of the command would not take.
    """
    params = FeatureParams(
        columns=None if columns is None else _names("columns", columns),
        exclude=_names("exclude", exclude),
        ids=_names("ids", ids),
        categorical=categorical,  # type: ignore[arg-type]
        missing=missing,  # type: ignore[arg-type]
    )
    _check(params, FeatureParams)
    return params


def fit_params(params: FitParams | None) -> FitParams:
    """All of `imdh fit`, checked as `feature_params` are."""
    params = FitParams() if params is None else params
    _check(params, FitParams, "params")
    params.check()
    params.prune.check()
    return params


def assign_params(
    model: object,
    *,
    name: str,
    clusters: int | None,
    with_: Sequence[str],
    keep: Sequence[str] = (),
    missing: str | None = None,
) -> AssignParams:
    """What is written of each row, checked as `feature_params` are."""
    check_model(model, missing)
    params = AssignParams(
        clusters=clusters,
        keep=tuple(dict.fromkeys(_names("keep", keep))),
        extra=tuple(dict.fromkeys(_names("with_", with_))),  # type: ignore[arg-type]
        name=name,
    )
    for one in params.extra:
        check_value("with_", one, Extra)
    _check(params, AssignParams)
    params.check()
    return params


def check_model(model: object, missing: object) -> None:
    """UsageError for what is no model, such as a file's name, or no treatment of missing cells."""
    from imdh_cli.model import Model

    if not isinstance(model, Model):
        what = f"a {type(model).__name__} where a model belongs"
        raise UsageError(what, "imdh_cli.load(FILE) gives the model of a file")
    check_value("missing", missing, Missing | None)


def check_value(name: str, value: object, hint: Any, known: Option = _ANY) -> None:
    """UsageError where a value is not of a type hint, or not in the range of an option."""
    if not _fits(value, hint) or not known.allows(value):
        raise UsageError(f"{name}={value!r} is not {_wanted(hint, known)}")


def _names(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    try:
        names: tuple[Any, ...] = tuple(value)  # type: ignore[arg-type]
    except TypeError:
        names = (value,)
    for one in names:
        check_value(name, one, str)
    return names


def _check(params: object, kind: Any, name: str = "") -> None:
    if not isinstance(params, kind):
        raise UsageError(
            f"{name}: a {type(params).__name__} where {kind.__name__} belongs",
            f"as in imdh_cli.params.{kind.__name__}()",
        )
    hints = get_type_hints(kind)
    for f in fields(kind):
        value, where = getattr(params, f.name), f"{name}.{f.name}".lstrip(".")
        if is_dataclass(hints[f.name]):
            _check(value, hints[f.name], where)
        else:
            check_value(where, value, hints[f.name], f.metadata.get("option", _ANY))


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: object, hint: Any) -> bool:
    for kind in _kinds(hint):
        if get_origin(kind) is Literal:
            fits = isinstance(value, str) and value in get_args(kind)
        elif get_origin(kind) is tuple:
            item = get_args(kind)[0]
            fits = isinstance(value, tuple) and all(_fits(one, item) for one in value)
        elif kind is float:
            fits = type(value) in (int, float) and abs(value) < float("inf")  # type: ignore[arg-type]
        else:
            fits = type(value) is kind
        if fits:
            return True
    return False


def _wanted(hint: Any, known: Option) -> str:
    said: list[str] = []
    for kind in _kinds(hint):
        if get_origin(kind) is Literal:
            said += map(repr, get_args(kind))
        elif get_origin(kind) is tuple:
            said.append(f"a tuple, each {_wanted(get_args(kind)[0], _ANY)}")
        else:
            said.append(_PLAIN[kind] + (_range(known) if kind in (int, float) else ""))
    return " or ".join([", ".join(said[:-1])] * (len(said) > 1) + said[-1:])


def _range(known: Option) -> str:
    if known.min is None:
        return ""
    if known.above:
        return f" above {known.min:g}"
    return f" from {known.min:g} " + ("up" if known.max is None else f"to {known.max:g}")
