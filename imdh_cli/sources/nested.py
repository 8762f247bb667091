"""Nested columns -> flat ones: a field within structs, and lists of numbers that all have one length.

A list of numbers may be a fixed-size list, a tensor, a list of any Arrow kind, or text that is a JSON array.
All become fixed-size lists, whose buffer of values is a matrix; of the first two nothing is copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.arrow_compute import pc
from imdh_cli.sources.csv.numbers import USUAL_NULLS, to_numbers

_ITEMS = re.compile(r"(?P<column>.+)\[(?P<start>[0-9]*)(?P<colon>:?)(?P<stop>[0-9]*)\]", re.DOTALL)


def is_number(kind: pa.DataType) -> bool:
    """Whether a cell of it is one number."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind) or pt.is_boolean(kind))


def storage(kind: pa.DataType) -> pa.DataType:
    """The type that an extension type is stored as; others are what they are."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def vector_length(kind: pa.DataType) -> int | None:
    """How many numbers each cell holds, where the type says so."""
    kind = storage(kind)
    return int(kind.list_size) if pt.is_fixed_size_list(kind) and is_number(kind.value_type) else None


def is_list(kind: pa.DataType) -> bool:
    """Lists of numbers, of one length or not."""
    some = (pt.is_list, pt.is_large_list, pt.is_list_view, pt.is_large_list_view, pt.is_fixed_size_list)
    kind = storage(kind)
    return any(is_kind(kind) for is_kind in some) and is_number(kind.value_type)


def cells_per_row(schema: pa.Schema, names: Sequence[str] | Sequence[int]) -> int:
    """The numbers that a row of these columns holds, as far as the types say."""
    return sum(vector_length(schema.field(name).type) or 1 for name in names)


def number_fields(field: pa.Field) -> list[str]:
    """The names of all numbers within a column of structs, as `field_within` takes them."""
    if not pt.is_struct(field.type):
        return []
    inner = [pa.field(f"{field.name}.{f.name}", f.type) for f in field.type]
    return [name for f in inner for name in ([f.name] if is_number(f.type) else number_fields(f))]


def field_within(schema: pa.Schema, name: str) -> tuple[pa.Field, tuple[str, ...]] | None:
    """The field that `location.lat` names within a column of structs, and the way to it."""
    steps = name.split(".")
    for k in range(1, len(steps)):  # a column's own name may hold points
        at = schema.get_field_index(".".join(steps[:k]))
        kind = pa.null() if at < 0 else schema.field(at).type
        for step in steps[k:]:
            inner = kind.get_field_index(step) if pt.is_struct(kind) else -1
            kind = pa.null() if inner < 0 else kind.field(inner).type
        if not pt.is_null(kind):
            return pa.field(name, kind), (".".join(steps[:k]), *steps[k:])
    return None


def take_field(column: pa.Array | pa.ChunkedArray, path: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """The cells of a field; null where a struct around it is."""
    return pc.struct_field(column, list(path)) if path else column


def items_of(name: str) -> tuple[str, int, int | None] | None:
    """`embedding[0:64]` -> column, start and stop, None for the end; `embedding[3]` is one item."""
    found = _ITEMS.fullmatch(name)
    if found is None or not (found["start"] or found["colon"]):
        return None
    start = int(found["start"] or 0)
    if not found["colon"]:
        return (found["column"], start, start + 1) if not found["stop"] else None
    return found["column"], start, int(found["stop"]) if found["stop"] else None


def to_vectors(column: pa.Array, length: int) -> tuple[pa.FixedSizeListArray, np.ndarray | None]:
    """Cells of one length.

    Returns
    -------
    vectors : fixed-size list array of shape (n,)
        Null where the cell is, and where it is wrong.
    wrong : ndarray of shape (n,), bool, or None
        The cells that are no list of so many numbers; None when there are none.
    """
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if vector_length(column.type) == length:
        return column, None
    wrong = np.zeros(len(column), dtype=np.bool_)
    if pt.is_null(column.type):
        return pa.nulls(len(column), pa.list_(pa.float64(), length)), None
    if not is_list(column.type):
        column, wrong = _parsed(column)
    else:
        column = column.cast(pa.large_list(column.type.value_type))
    wrong |= pc.fill_null(pc.not_equal(pc.list_value_length(column), length), False).to_numpy(False)
    whole = ~wrong & column.is_valid().to_numpy(False)
    values = (column if whole.all() else column.filter(pa.array(whole))).flatten()
    vectors = pa.FixedSizeListArray.from_arrays(values, length)
    if not whole.all():
        place = np.cumsum(whole) - 1
        vectors = vectors.take(pa.array(np.maximum(place, 0), mask=~whole))
    return vectors, wrong if wrong.any() else None


def lengths_of(column: pa.Array) -> np.ndarray:
    """(n,) float64: how many numbers each cell lists; NaN where it is null or no list of numbers."""
    wrong = None
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if not is_list(column.type):
        column, wrong = _parsed(column)
    lengths = pc.list_value_length(column).cast(pa.float64()).to_numpy(False).copy()
    if wrong is not None:
        lengths[wrong] = np.nan
    return lengths


def _parsed(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """JSON arrays of numbers -> lists, and which cells are none."""
    text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
    text = pc.if_else(pc.equal(text, ""), None, text)
    array = pc.and_(pc.starts_with(text, "["), pc.ends_with(text, "]"))
    inner = pc.utf8_slice_codeunits(pc.if_else(array, text, None), 1, -1)
    cells = pc.split_pattern(inner, ",")
    numbers, wrong = to_numbers(cells.values, pa.array(USUAL_NULLS, pa.string()))
    offsets = cells.offsets.to_numpy()
    bad = np.zeros(len(text), dtype=np.bool_)
    if wrong is not None:
        before = np.concatenate([[0], np.cumsum(wrong)])
        bad = before[offsets[1:]] > before[offsets[:-1]]
    bad |= pc.fill_null(pc.invert(array), False).to_numpy(False)
    lists = pa.LargeListArray.from_arrays(cells.offsets.cast(pa.int64()), numbers, mask=inner.is_null())
    return lists, bad
