"""What `-c`, `-x` and `--id` name: columns, fields within structs, items of lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from imdh_cli.errors import UsageError
from imdh_cli.params import FeatureParams
from imdh_cli.sources.base import Source, check_columns
from imdh_cli.sources.nested import items_of

Span = tuple[int, int | None]  # start and stop of items; None: to the end


@dataclass(frozen=True)
class Named:
    """The columns named by the options.

    features : those of `-c` in its order, with the items asked for (none: the whole column); None without -c.
    exclude : those of `-x`. without : the items of `-x`.
    """

    features: dict[str, list[Span]] | None
    exclude: frozenset[str]
    without: dict[str, list[Span]]


def resolve(source: Source, params: FeatureParams, where: str) -> Named:
    """The names as columns of the source. Fields within structs become such.

    Raises
    ------
    DataError
        For a column that is not there, with the nearest names.
    UsageError
        For a column that is named twice.
    """
    named = params.columns or ()
    features, exclude = _spans(source, named), _spans(source, params.exclude)
    source.expose([*params.ids, *params.parse, *params.onehot, *params.log])
    if source.schema.names:
        asked = [*features, *exclude, *params.ids, *params.parse, *params.onehot, *params.log]
        check_columns(asked, source.schema.names, where)
    twice = next((n for n, times in Counter(named).items() if times > 1), None)
    twice = twice or next((n for n, spans in features.items() if spans and n in named), None)
    if twice is not None:
        raise UsageError(f'column "{twice}" is named twice', "name each feature once")
    whole = frozenset(name for name, spans in exclude.items() if not spans or name in params.exclude)
    for name in features:
        if name in whole or name in params.ids:
            option = "-x" if name in whole else "--id"
            raise UsageError(f'column "{name}" is named by -c and by {option}', "keep one of them")
    items = {name: spans for name, spans in exclude.items() if name not in whole}
    return Named(None if params.columns is None else features, whole, items)


def _spans(source: Source, names: Sequence[str]) -> dict[str, list[Span]]:
    """Columns in the order of their first name, with the items that are named of each."""
    source.expose(names)
    spans: dict[str, list[Span]] = {}
    for name in names:
        items = None if name in source.schema.names else items_of(name)
        if items is not None:
            source.expose(items[:1])
            if items[0] in source.schema.names:
                spans.setdefault(items[0], []).append(items[1:])
                continue
        spans.setdefault(name, [])
    return spans
