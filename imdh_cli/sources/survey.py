"""Sampled text of a CSV file -> the type of each column: float64 or string."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.csv as pacsv

from imdh_cli.sources.blocks import Layout, unmarked
from imdh_cli.sources.numbers import Evidence
from imdh_cli.sources.records import Scanner, UnclosedQuote

RAGGED = 0.1  # of the rows: with more of them, a place in the middle was not entered at a record's start


def see(text: bytes, layout: Layout, evidence: dict[str, Evidence], *, from_start: bool) -> None:
    """Add what the cells of some whole records are; unless `from_start`, nothing where they do not fit.

    Arrow infers a type for each column; only those that are no plain numbers are looked at as text.
    """
    if not text:
        return
    table, ragged = _read(text, layout, [])
    if not from_start and ragged > RAGGED * (ragged + table.num_rows):
        return
    words = []
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            evidence[field.name].numbers += len(column) - column.null_count
        elif not pa.types.is_null(field.type):
            words.append(field.name)
    if words:
        nulls = pa.array(layout.nulls, pa.string())
        table, _ = _read(text, layout, words)
        for name, column in zip(table.column_names, table.columns, strict=True):
            evidence[name].see(column.combine_chunks(), nulls, layout.decimal)


def schema_of(evidence: Mapping[str, Evidence], nameless: Collection[str]) -> pa.Schema:
    """float64 for columns of numbers, string for the others.

    A column with neither name nor cells is what a delimiter at the end of each line makes. It is
    text, so that it is no feature by itself: rows that lack one are left out.
    """

    def number(name: str) -> bool:
        e = evidence[name]
        return e.numeric and (name not in nameless or e.numbers > 0)

    return pa.schema((name, pa.float64() if number(name) else pa.string()) for name in evidence)


def decimal_commas(evidence: Mapping[str, Evidence]) -> list[str]:
    """Text columns whose cells are numbers but for a decimal comma."""
    return [n for n, e in evidence.items() if not e.numeric and e.commas > 0.9 * e.words]


def whole_records(text: bytes, delimiter: bytes, ended: bool) -> bytes:
    """`text` without the half record at its end, and without what an unclosed quote has swallowed."""
    scanner = Scanner(delimiter)
    try:
        end = scanner.last_end(text)
        return text if ended else text[:end]
    except UnclosedQuote as error:
        return text[: scanner.last_end(text[: error.offset])]


def readable(text: bytes, charset: str) -> bytes:
    """UTF-8 whatever the bytes are: a sample is no place to complain about one of them."""
    return text.decode(charset, "replace").encode()


def _read(text: bytes, layout: Layout, include: list[str]) -> tuple[pa.Table, int]:
    """The fitting rows and the number of others; `include` as text, or all columns as Arrow infers."""
    ragged = 0

    def note(row: object) -> str:
        nonlocal ragged
        ragged += 1
        return "skip"

    table = pacsv.read_csv(
        pa.BufferReader(unmarked(pa.py_buffer(text))),
        pacsv.ReadOptions(use_threads=False, block_size=2**31 - 1, column_names=list(layout.names)),
        pacsv.ParseOptions(
            delimiter=layout.delimiter.decode(),
            newlines_in_values=True,
            ignore_empty_lines=not layout.single,
            invalid_row_handler=note,
        ),
        pacsv.ConvertOptions(
            include_columns=include,
            column_types=dict.fromkeys(include, pa.string()),
            null_values=list(layout.nulls),
            strings_can_be_null=True,
            decimal_point=layout.decimal,
            true_values=[],  # true and false are words
            false_values=[],
        ),
    )
    return table, ragged
