"""A parameter is the field of a dataclass: its name, type, range, help and default stand there, once.

    depth: int = option(8, "Split levels: up to 2^depth leaves.", min=1, max=14)

From this line the command line has its option (`cli/command.py`), the help page its text, a model's metadata
their check, and a report the word by which the command is told again. **To add an option**, add such a line:
to the parameters that it belongs to (`params.py`), where it is then read as any field, or to the options of
one command (`cli/fit.py` and its like).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """What is said of a field beside its name, its type and its default."""

    help: str
    flags: tuple[str, ...] = ()  # as typed; none: the field's name
    default: str | None = None  # in words, where the value does not say what happens without the option
    min: float | None = None
    max: float | None = None
    above: bool = False  # more than `min`; `min` itself is not allowed
    choices: tuple[str, ...] = ()  # of text; none: any
    metavar: str | None = None
    repeatable: bool = False  # given once for each item, not as a list with commas
    bare: str | None = None  # as if this had been typed, where the option is given without a value
    section: str | None = None  # of the help page; None: that of the dataclass
    neutral: bool = False  # no result depends on it

    def allows(self, value: Any) -> bool:
        """Whether a value of the field's type is in its range; words and null have none."""
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return True
        low = self.min is None or value > self.min or (value == self.min and not self.above)
        return low and (self.max is None or value <= self.max)


def option(value: T, help: str, *flags: str, **known: Any) -> T:
    """A field of a dataclass that is an option of the command line. known: as `Option` names it."""
    said: T = field(default=value, metadata={"option": Option(help, flags, **known)})
    return said


def borrowed(kind: type, name: str, value: T, **changes: Any) -> T:
    """The option of another dataclass's field, with another default."""
    known = next(f.metadata["option"] for f in fields(kind) if f.name == name)
    said: T = field(default=value, metadata={"option": replace(known, **changes)})
    return said


@dataclass(frozen=True)
class Given(Generic[T]):
    """Those fields of a dataclass, and of the dataclasses in it, that the command line speaks of."""

    values: Mapping[str, Any]

    def over(self, base: T) -> T:
        """What was given, and what was not as in `base`."""
        return _over(base, self.values)


def _over(base: T, values: Mapping[str, Any]) -> T:
    changes = {}
    for f in fields(base):  # type: ignore[arg-type]
        if is_dataclass(inner := getattr(base, f.name)):
            changes[f.name] = _over(inner, values)
        elif f.name in values:
            changes[f.name] = values[f.name]
    return replace(base, **changes)  # type: ignore[type-var]


@dataclass(frozen=True)
class Parameter:
    """A field with an option, where it stands."""

    path: tuple[str, ...]  # of names, from the outermost dataclass
    field: Field[Any]
    hint: Any
    option: Option
    section: str

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def flags(self) -> tuple[str, ...]:
        """As typed, the last one the longest."""
        return self.option.flags or ("--" + self.name.replace("_", "-"),)


def parameters(kind: type, path: tuple[str, ...] = ()) -> Iterator[Parameter]:
    """All options of a dataclass and of the dataclasses in it, in order."""
    hints = get_type_hints(kind)
    for f in fields(kind):
        inner = dataclass_of(hints[f.name])
        if inner is not None:
            yield from parameters(inner, (*path, f.name))
        elif (known := f.metadata.get("option")) is not None:
            section = known.section or getattr(kind, "SECTION", "Options")
            yield Parameter((*path, f.name), f, hints[f.name], known, section)


def dataclass_of(hint: Any) -> type | None:
    """The dataclass that a hint is of, or what is `Given` of it; None: it is of a plain value."""
    inner = get_args(hint)[0] if get_origin(hint) is Given else hint
    return inner if isinstance(inner, type) and is_dataclass(inner) else None


def build(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass of options from those that were given, by the names of their fields."""
    made: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for f in fields(kind):  # type: ignore[arg-type]
        inner = dataclass_of(hints[f.name])
        if inner is None:
            made.update({f.name: values[f.name]} if f.name in values else {})
        elif inner is hints[f.name]:
            made[f.name] = build(inner, values)
        else:
            names = {p.name for p in parameters(inner)}
            made[f.name] = Given({name: value for name, value in values.items() if name in names})
    return kind(**made)
