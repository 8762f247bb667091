"""What a caller in Python gives -> the parameters that the commands fill, under the same rules."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from keyword import iskeyword
from numbers import Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from imdh_cli.errors import UsageError
from imdh_cli.option import Given, Option, Parameter, parameters
from imdh_cli.params import AssignParams, FeatureParams, FitParams, Missing, SourceParams

F = TypeVar("F", bound=Callable[..., Any])

# Of SourceParams, what also says how the cells of a table in memory are read.
IN_MEMORY = ("null_values", "decimal", "on_bad_row", "max_rows")
_ANY = Option("")
_PLAIN = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", type(None): "None"}


class Arguments:
    """The options of dataclasses as the keyword arguments of a function, which it decorates.

    A keyword is an option as typed: `null_value` for `--null-value`, `with_` for `--with`; the name of the
    field does, too. What reading a file needs, and no table in memory, is left out.

    without : names of fields that the function has no use for.
    """

    def __init__(self, *kinds: type, without: Collection[str] = ()) -> None:
        self._known: dict[str, Parameter] = {}
        for kind in kinds:
            for parameter in parameters(kind):
                if parameter.name in without or (kind is SourceParams and parameter.name not in IN_MEMORY):
                    continue
                word = parameter.flags[-1].lstrip("-").replace("-", "_")
                self._known[word + "_" * iskeyword(word)] = parameter
        self._words = {parameter.name: word for word, parameter in self._known.items()}

    def __call__(self, function: F) -> F:
        """The function, whose signature and docstring tell the options one by one."""
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = [
            inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=known.field.default)
            for word, known in self._known.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        lines = [f"{word} : {known.option.help}" for word, known in self._known.items()]
        function.__doc__ = (
            (function.__doc__ or "").rstrip() + "\n\n    " + "\n    ".join(["Options", "-------", *lines, ""])
        )
        return function

    def fill(self, options: Mapping[str, object], *bases: Any) -> list[Any]:
        """Dataclasses with what was given of their fields.

        Raises
        ------
        TypeError
            For an argument that is none.
        UsageError
            For a value that the option of the command would not take.
        """
        values = {}
        for name, value in options.items():
            word = self._words.get(name, name)
            if word not in self._known:
                near = get_close_matches(name, self._known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise TypeError(f"unexpected keyword argument {name!r}{hint}")
            known = self._known[word]
            values[known.name] = _value(word, value, known)
        return [Given(values).over(base) for base in bases]


def _value(word: str, value: object, known: Parameter) -> object:
    """A value as its field has it: one item, or any sequence, where a tuple belongs."""
    items = next((get_args(kind)[0] for kind in _kinds(known.hint) if get_origin(kind) is tuple), None)
    if items is None or value is None:
        check_value(word, value, known.hint, known.option)
        return value
    if isinstance(value, (str, int, float)) or not isinstance(value, Iterable):
        value = (value,)
    if known.name == "null_values":  # numbers, too
        value = [str(one) if isinstance(one, Real) else one for one in value]
    for one in value:
        check_value(word, one, items)
    return tuple(value)


def fit_params(
    takes: Arguments, options: Mapping[str, object], params: FitParams | None
) -> tuple[FeatureParams, SourceParams, FitParams]:
    """Which columns are features, how cells are read, and all of `imdh fit`; an option wins over `params`.

    Raises
    ------
    TypeError, UsageError
        As `Arguments.fill`, and UsageError for what the command would refuse before it reads.
    """
    params = FitParams() if params is None else params
    _check(params, FitParams, "params")
    features, reading, params = takes.fill(options, FeatureParams(), SourceParams(), params)
    params.check()
    params.prune.check()
    return features, reading, params


def assign_params(
    takes: Arguments, options: Mapping[str, object], model: object, missing: object
) -> tuple[AssignParams, SourceParams]:
    """What is written of each row, and how cells are read. Raises as `fit_params` and `check_model`."""
    check_model(model, missing)
    params, reading = takes.fill(options, AssignParams(), SourceParams())
    once = {name: tuple(dict.fromkeys(getattr(params, name))) for name in ("keep", "extra")}
    params = replace(params, **once)
    params.check()
    return params, reading


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
