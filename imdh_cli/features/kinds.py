"""What a column holds, in a word; how values and names are quoted.

The rule for each Arrow type (`imdh fit --help` says it in words):

    int8 .. int64, uint8 .. uint32, float32, double   used
    uint64, int64 beyond 2^53                         used, rounded to a double, with a note
    bool, float16, decimal                            used after conversion (true is 1, false is 0)
    dictionary, run-end encoded                       as the type of their values
    string                                            as --categorical says
    date, time, timestamp, duration, interval         left out with a note; refused when named
    list of numbers, tensor, of one length            its items, where no other column is a number, or named
    struct                                            left out with a note; a field within is used when named
    other lists, map, union, binary, null,
    extension types                                   left out with a note; refused when named
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.arrow_compute import pc
from imdh_cli.sources.nested import vector_length


def kind_of(column: pa.Field) -> str:
    """What a column holds: "number", "text", or the name of anything else."""
    if b"ARROW:extension:name" in (column.metadata or {}):
        return column.metadata[b"ARROW:extension:name"].decode(errors="replace")
    return kind_of_type(column.type)


def kind_of_type(kind: pa.DataType) -> str:
    """As `kind_of`, of a bare type."""
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return kind_of_type(kind.value_type)
    if pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind) or pt.is_boolean(kind):
        return "number"
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return "text"
    if pt.is_null(kind):
        return "empty throughout"
    if (length := vector_length(kind)) is not None:
        return f"a list of {length} numbers"
    if isinstance(kind, pa.BaseExtensionType):
        return str(kind.extension_name)
    return str(kind) if len(str(kind)) <= 40 else str(kind).partition("<")[0]


def plain(column: pa.Array) -> pa.Array:
    """The same cells without dictionary or run-end encoding."""
    if pt.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    return column.dictionary_decode() if pt.is_dictionary(column.type) else column


def worded(column: pa.Array) -> pa.Array:
    """Cells of codes as text: whole numbers and truths are, other cells are what they are."""
    column = plain(column)
    whole = pt.is_integer(column.type) or pt.is_boolean(column.type)
    return column.cast(pa.string()) if whole else column


def example(column: pa.Array | pa.ChunkedArray) -> str:
    """For a sentence: the first value that is no number, or nothing when there is none."""
    try:
        value = next((v for v in column.to_pylist() if v is not None and not _is_number(v)), None)
    except UnicodeDecodeError:
        return ": it holds text that is not UTF-8"
    text = str(value)
    return "" if value is None else f': it holds "{text[:37] + "..." if len(text) > 40 else text}"'


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ValueError, TypeError):
        return False
    return True
