"""Two Arrow types -> the type that holds both."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from imdh_cli.sources.nested import is_list, storage


def promoted(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type for a column that is `a` in one file and `b` in another; None when there is none."""
    if a == b:
        return a
    if pt.is_dictionary(a):
        return promoted(a.value_type, b)
    if pt.is_dictionary(b):
        return promoted(a, b.value_type)
    if pt.is_null(a) or pt.is_null(b):
        return b if pt.is_null(a) else a
    if _is_number(a) and _is_number(b):
        return _wider_number(a, b)
    if (_is_number(a) or _is_text(a)) and (_is_number(b) or _is_text(b)):
        large = pt.is_large_string(a) or pt.is_large_string(b)
        return pa.large_string() if large else pa.string()
    if is_list(a) and is_list(b):
        inner = promoted(storage(a).value_type, storage(b).value_type)
        return None if inner is None else pa.large_list(inner)
    both = [pa.schema([("x", a)]), pa.schema([("x", b)])]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def _wider_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if not (_is_whole(a) and _is_whole(b)):
        return pa.float64()
    if pt.is_uint64(a) or pt.is_uint64(b):
        signed = pt.is_signed_integer(a) or pt.is_signed_integer(b)
        return pa.float64() if signed else pa.uint64()
    return pa.int64()


def _is_whole(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_boolean(kind)


def _is_number(kind: pa.DataType) -> bool:
    return _is_whole(kind) or pt.is_floating(kind) or pt.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
