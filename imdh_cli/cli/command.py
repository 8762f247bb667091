"""A dataclass of options -> a command: what is typed, checked and described as its fields say."""

from __future__ import annotations

import inspect
import math
import shlex
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin

import click

from imdh_cli.cli.console import Console, OutputOptions
from imdh_cli.cli.help import HELP, ExamplesCommand, SectionedOption
from imdh_cli.errors import PIPE, ImdhError
from imdh_cli.option import Option, Parameter, build, parameters

LARGEST = 2**63 - 1  # of whole numbers: what the model and the arrays can hold


class CommandOptions(Protocol):
    """What the dataclass of any command has."""

    @property
    def out(self) -> OutputOptions: ...


O = TypeVar("O", bound=CommandOptions)  # noqa: E741


def argument(metavar: str) -> Any:
    """A field that is an argument: a word, or all that are left where `metavar` ends in dots."""
    more: dict[str, Any] = {"default": ()} if metavar.endswith("...") else {}
    return field(metadata={"argument": metavar}, **more)


def command(
    kind: type[O], *, examples: str, also: Sequence[click.Option] = ()
) -> Callable[[Callable[[O, Console], None]], click.Command]:
    """A function of options and a console as a command of its name, with its docstring as the help.

    Parameters
    ----------
    kind : the dataclass of its options and arguments
    examples : lines for the help page
    also : options that are no field, since they end the program themselves
    """

    def decorate(function: Callable[[O, Console], None]) -> click.Command:
        def callback(**values: Any) -> None:
            options = build(kind, _given(kind, values))
            try:
                with Console(options.out) as console:
                    function(options, console)
            except ImdhError as error:
                error.hint = _whole_command(error.hint, values.get("data") or ())
                raise

        return ExamplesCommand(
            function.__name__,
            callback=callback,
            params=[*_arguments(kind), *map(_click_option, parameters(kind)), *also],
            help=inspect.getdoc(function),
            examples=examples,
            context_settings=HELP,
        )

    return decorate


def _whole_command(hint: str | None, data: Sequence[str]) -> str | None:
    """A hint that pipes something into `imdh ... -` with the command as it was typed, DATA from the pipe."""
    if hint is None or PIPE not in hint:
        return hint
    words, piped = [], False
    for word in sys.argv[1:]:
        if word not in data:
            words.append(word)
        elif not piped:
            words.append("-")
            piped = True
    return hint.replace(PIPE, f"| imdh {shlex.join(words if piped else [*words, '-'])}")


def _given(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those values that were typed: a flag is else False, what is repeated (), and the rest None."""
    given = {k: v for k, v in values.items() if v is not None and v is not False and v != ()}
    flags = {p.name: not p.field.default for p in parameters(kind) if isinstance(p.field.default, bool)}
    return given | {name: value for name, value in flags.items() if name in given}


def _arguments(kind: type) -> list[click.Parameter]:
    found: list[click.Parameter] = []
    for f in fields(kind):
        metavar = f.metadata.get("argument")
        if metavar is not None:
            many, needed = metavar.endswith("..."), f.default is MISSING
            found.append(click.Argument([f.name], nargs=-1 if many else 1, required=needed, metavar=metavar))
    return found


def _click_option(p: Parameter) -> SectionedOption:
    if isinstance(p.field.default, bool):
        more: dict[str, Any] = {"is_flag": True}
    else:
        more = {"type": type_of(p.hint, p.option), "metavar": p.option.metavar}
    return SectionedOption(
        [*p.flags, p.name],
        help=_help(p),
        multiple=p.option.repeatable,
        section=p.section,
        bare=p.option.bare,
        default=None,
        **more,
    )


def _help(p: Parameter) -> str:
    value = p.field.default
    default = p.option.default
    if default is None and value is not None and value != () and not isinstance(value, bool):
        default = f"{value:g}" if isinstance(value, float) else str(value)
    return p.option.help if default is None else f"{p.option.help} Default: {default}."


# --- types ----------------------------------------------------------------------------------------


def type_of(hint: Any, known: Option) -> click.ParamType:
    """How text becomes a value of a type hint, within the range of its option."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    words = list(known.choices) + [word for k in kinds if get_origin(k) is Literal for word in get_args(k)]
    if int in kinds:
        return Whole(known, words)
    if words:
        return click.Choice(words)
    if float in kinds:
        return Real(known.min, known.max, min_open=known.above)
    items = [get_args(k)[0] for k in kinds if get_origin(k) is tuple]
    if items and not known.repeatable:
        return Names(get_args(items[0]), known.metavar)
    return click.STRING


class Whole(click.IntRange):
    """A whole number within a range and 64 bits, or one of some words."""

    name = "whole number"

    def __init__(self, known: Option, words: Sequence[str]) -> None:
        top = LARGEST if known.max is None else int(known.max)
        super().__init__(None if known.min is None else int(known.min), top)
        self._words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(["N", *self._words])

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value in self._words:
            return value
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            if str(value).strip().removeprefix("+").isdecimal() and int(value) > LARGEST == self.max:
                self.fail(f"{value} is more than {LARGEST:,}, the largest there can be", param, ctx)
            if not self._words:
                raise
            end = "up" if self.max == LARGEST else f"to {self.max:,}"
            words = "".join(f" nor {word}" for word in self._words)
            self.fail(f"{value!r} is neither a number from {self.min} {end}{words}", param, ctx)

    def _describe_range(self) -> str:
        # that 64 bits have an end is no news to anybody
        return f"x>={self.min}" if self.max == LARGEST else super()._describe_range()


class Real(click.FloatRange):
    """A finite number within a range."""

    name = "number"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "X"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


class Names(click.ParamType):
    """Names separated by commas; one that holds a comma is given in quotes: '"a,b",c'.

    Parameters
    ----------
    known : which ones there are; none: any
    form : what is typed, where that is not names of columns
    """

    name = "A,B"

    def __init__(self, known: Sequence[str] = (), form: str | None = None) -> None:
        self._known = known
        self._form = form

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return self.name

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if not isinstance(value, str):
            return tuple(value)
        import csv

        try:
            names = next(csv.reader([value], skipinitialspace=True), [])
        except csv.Error:
            self.fail("a name that holds the end of a line is given in quotes", param, ctx)
        if not names or any(not name for name in names):
            kinds = f"there are {', '.join(self._known)}" if self._known else None
            said = kinds or (f"as in {self._form}" if self._form else "column names are separated by commas")
            self.fail(f"{value!r} leaves one empty: {said}", param, ctx)
        for name in names if self._known else ():
            if name not in self._known:
                self.fail(f"{name!r} is none of {', '.join(self._known)}", param, ctx)
        return tuple(dict.fromkeys(names)) if self._known else tuple(names)
