"""Record batches -> CSV or TSV: text byte for byte, minimal quoting, numbers that read back equal.

Text is made column by column with Arrow's own functions and joined into one buffer, which is the
output. pyarrow's CSV writer is not used because it puts quotes around every text. Whole numbers of
a small range (labels) are looked up in a list of ready texts.
"""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pyarrow as pa

from imdh_cli.arrow_compute import pc
from imdh_cli.errors import DataError
from imdh_cli.sinks.base import Output, Sink, Tap

_TEXT = pa.large_string()  # 64-bit positions: a batch may hold more than 2 GB of text
_LOOKUP = 4096  # distinct whole numbers up to which texts are looked up


class TextSink(Sink):
    """CSV (or TSV) with a header, in UTF-8, lines ending in a newline.

    Parameters
    ----------
    delimiter : one character
    packed : None, or Arrow's name of a compression ("gzip", "zstd", "bz2")
    """

    def __init__(self, out: Output, schema: pa.Schema, *, delimiter: str, packed: str | None = None) -> None:
        super().__init__(out, schema)
        self._delimiter = delimiter
        self._tap = Tap(out.file)
        self._stream: Any = None
        try:
            for field in schema:
                _check_type(field)
            if packed is not None:
                self._stream = _packer(self._tap, packed)
            names = pa.RecordBatch.from_arrays(
                [pa.array([name], pa.string()) for name in schema.names],
                names=[str(i) for i in range(len(schema))],
            )
            self._header: pa.Buffer | None = encode(names, delimiter)
        except BaseException:
            self.abort()
            raise

    def _write(self, batch: pa.RecordBatch) -> None:
        lines = encode(batch, self._delimiter)
        self._begin()
        self._send(lines)

    def _begin(self) -> None:
        """The header comes with the first rows: an input that cannot be read leaves nothing on a pipe."""
        if self._header is not None:
            header, self._header = self._header, None
            self._send(header)

    def _send(self, text: pa.Buffer) -> None:
        (self._stream or self._tap).write(text)
        if self._out.straight and self._stream is None:
            self._out.file.flush()  # whoever reads the pipe sees rows as they come

    def _finish(self) -> None:
        self._begin()
        if self._stream is not None:
            self._stream.close()

    def abort(self) -> None:
        self._tap.shut()
        super().abort()


def _packer(tap: Tap, method: str) -> Any:
    """A file object that compresses into `tap`; the same bytes whenever it is written."""
    if method == "gzip":
        # Arrow's gzip has level 9 and no other: 1 MB/s of labels. Level 4: 30 MB/s, 13 % larger.
        return gzip.GzipFile(filename="", mode="wb", compresslevel=4, fileobj=tap, mtime=0)
    return pa.CompressedOutputStream(pa.PythonFile(tap, "w"), method)


def encode(batch: pa.RecordBatch, delimiter: str = ",") -> pa.Buffer:
    """The lines of `batch`, without a header, as UTF-8."""
    if batch.num_rows == 0:
        return pa.py_buffer(b"")
    last = batch.num_columns - 1
    columns = [
        _cells(column, delimiter, alone=last == 0, ending="\n" if i == last else "")
        for i, column in enumerate(batch.columns)
    ]
    if last == 0:
        return _characters(columns[0])
    lines = pc.binary_join_element_wise(
        *columns, pa.scalar(delimiter, _TEXT), null_handling="replace", null_replacement=""
    )
    return _characters(lines)


def _cells(column: pa.Array, delimiter: str, *, alone: bool, ending: str) -> pa.Array:
    """The texts of a column's cells, with `ending`; nulls stay null where there is no ending."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        found = _looked_up(column, ending)
        if found is not None:
            return found
    text = _as_text(column)
    if _may_need_quotes(column.type):
        text = _quoted(text, delimiter)
    if alone:  # a blank line would be skipped by whoever reads it
        text = pc.fill_null(text, "")
        text = pc.if_else(pc.equal(text, ""), pa.scalar('""', _TEXT), text)
    if not ending:
        return text
    return pc.binary_join_element_wise(
        text,
        pa.scalar("", _TEXT),
        pa.scalar(ending, _TEXT),
        null_handling="replace",
        null_replacement="",
    )


def _looked_up(column: pa.Array, ending: str) -> pa.Array | None:
    """Cells of whole numbers of a small range; None where the range is large or a cell is null.

    Labels alone: 156 million rows a second; casting each 21, pyarrow's CSV writer 35.
    """
    if column.null_count:
        return None
    extremes = pc.min_max(column)
    low, high = extremes["min"].as_py(), extremes["max"].as_py()
    if high - low >= min(_LOOKUP, 2 * len(column)):
        return None
    texts = pa.array([f"{i}{ending}" for i in range(low, high + 1)], _TEXT)
    return texts.take(pc.subtract(column, pa.scalar(low, column.type)))


def _as_text(column: pa.Array) -> pa.Array:
    """Shortest texts that read back as the same value; text itself unchanged."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if _is_list(column.type):
        return _json_arrays(column)
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    text = column.cast(_TEXT)
    if pa.types.is_float64(column.type):
        text = _without_exponent(column, text)
    return text


def _is_list(type_: pa.DataType) -> bool:
    """Lists of numbers. Texts within would need JSON's escapes, so that they have no text form here."""
    some = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(type_) for is_kind in some) and not _may_need_quotes(type_.value_type)


def _json_arrays(column: pa.Array) -> pa.Array:
    """`[1,2.5,null]`, as which a CSV is read again."""
    lists = column.cast(pa.large_list(column.type.value_type))
    items = pc.fill_null(_as_text(lists.flatten()), "null")
    items = pc.if_else(pc.is_in(items, value_set=pa.array(["nan", "inf", "-inf"], _TEXT)), "null", items)
    sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(False)
    ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
    inner = pc.binary_join(pa.LargeListArray.from_arrays(ends, items), pa.scalar(",", _TEXT))
    text = pc.binary_join_element_wise(
        pa.scalar("[", _TEXT), inner, pa.scalar("]", _TEXT), pa.scalar("", _TEXT)
    )
    return pc.if_else(lists.is_valid(), text, None)


def _without_exponent(column: pa.Array, text: pa.Array) -> pa.Array:
    """Arrow writes 1.7e+12 for a time in milliseconds; whole numbers that are exact stay plain."""
    size = pc.abs(column)
    whole = pc.and_(
        pc.and_(pc.greater_equal(size, 1e10), pc.less(size, 2.0**53)),
        pc.equal(pc.floor(column), column),
    )
    if not pc.any(whole).as_py():
        return text
    plain = pc.if_else(whole, column, 0.0).cast(pa.int64()).cast(_TEXT)
    return pc.if_else(whole, plain, text)


def _may_need_quotes(type_: pa.DataType) -> bool:
    return not (pa.types.is_primitive(type_) or pa.types.is_decimal(type_) or pa.types.is_null(type_))


def _quoted(text: pa.Array, delimiter: str) -> pa.Array:
    """Quotes only around cells that hold a quote, the delimiter or the end of a line."""
    # All characters at once first: 100 times as fast as asking each cell, and most columns have none.
    characters = _characters(text).to_pybytes()
    if not any(mark in characters for mark in (b'"', b"\r", b"\n", delimiter.encode())):
        return text
    needs = pc.match_substring_regex(text, f'["\r\n{delimiter}]')
    quote = pa.scalar('"', _TEXT)
    wrapped = pc.binary_join_element_wise(
        quote, pc.replace_substring(text, '"', '""'), quote, pa.scalar("", _TEXT)
    )
    return pc.if_else(needs, wrapped, text)


def _characters(text: pa.Array) -> pa.Buffer:
    """The bytes of all cells in a row: an Arrow array of text keeps them that way already."""
    _, positions, characters = text.buffers()
    if characters is None:  # every cell is null
        return pa.py_buffer(b"")
    ends = np.frombuffer(positions, np.int64)[text.offset : text.offset + len(text) + 1]
    return characters.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _check_type(field: pa.Field) -> None:
    """Raises DataError for a type that has no text form (lists, structs, maps)."""
    type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    try:
        _as_text(pa.array([], type_))
    # `_as_text` of no rows meets the casts that it will need for all of them, so that Arrow's error for one
    # that it does not have comes before any row is read. Without a row no value can be at fault: the type is.
    # Other errors pass. A list of types kept here would have to follow both Arrow's releases and `_as_text`.
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f'column "{field.name}" is {field.type}, which cannot be written as text',
            "write .parquet or .arrow, or leave the column out",
        ) from error
