"""What is wrong with a CSV file -> an error that names the place and says what to type."""

from __future__ import annotations

import json
import re
import shlex

import pyarrow as pa

from imdh_cli.errors import DataError
from imdh_cli.sources.base import typed
from imdh_cli.sources.csv.dialect import comment_hint, undecodable
from imdh_cli.sources.csv.numbers import Unit, spelled_plainly, to_numbers, without_units
from imdh_cli.sources.csv.parser import Fault, Layout
from imdh_cli.sources.csv.scanner import MAX_RECORD

SKIP = "--on-bad-row skip"


def fault_error(
    fault: Fault, name: str, layout: Layout, rows: int, lines: int, *, free: bool = False
) -> DataError:
    """The error for the first row of a block that cannot be used; `rows` and `lines` lie before it.

    free : the columns are for the person to choose, not a model's.
    """
    row, line = rows + fault.row + 1, lines + fault.line + 1
    place = f"{name}, line {line} (row {row})"
    if fault.undecodable is not None:
        return undecodable(place, layout.encoding.name, fault.undecodable)
    if fault.cells is not None:
        cells = f"{fault.cells} cell" + ("s" if fault.cells != 1 else "")
        what = f"{cells} where there should be {len(layout.names)}"
        if fault.nul:
            what += ", and NUL bytes: the file may be damaged"
        hint = f"mend the line, name the --delimiter, or add {SKIP}"
        return DataError(f"{place}: {what}", comment_hint(layout.names, name) or hint)
    where = f"{place}, column {shown(fault.column)}"
    if "\x00" in fault.value:
        return DataError(
            f"{where}: NUL bytes where a number belongs: the file may be damaged",
            f"copy it again, or add {SKIP}",
        )
    said = f"{where}: {shown(fault.value)} is not a number"
    return DataError(said, _word_hint(fault, layout, name, first=row == 1, free=free))


def _word_hint(fault: Fault, layout: Layout, name: str, *, first: bool, free: bool) -> str:
    value = fault.value.strip()
    if layout.decimal == "." and re.fullmatch(r"[+-]?\d+,\d+", value):
        if layout.delimiter != b",":
            return f"add --decimal ',' or {SKIP}"
        return f"write the number with a point and without a thousands separator, or add {SKIP}"
    if layout.decimal == "." and re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})+,\d*", value):
        return f"add --decimal , {typed('--parse', fault.column)}, or {SKIP}"
    plain = spelled_plainly(pa.array([value], pa.string()), layout.decimal)
    if plain[0].as_py() != value and to_numbers(plain, pa.array([], pa.string()), layout.decimal)[1] is None:
        return f"add {typed('--parse', fault.column)}, which reads such numbers, or {SKIP}"
    if fault.value == fault.column:
        return f"take the second header line out, or add {SKIP}"
    if first and fault.alone and not layout.header:
        return "the first line looks like a header: drop --no-header"
    comment = comment_hint(layout.names, name) if first else None
    if comment is not None:
        return comment
    return word_hint(fault.column, fault.value, free=free)


def word_hint(column: str, value: str, *, free: bool) -> str:
    """What to do about a word among numbers; `free` as of `fault_error`."""
    options = [f"add {_null_option(value)}", SKIP]
    if (unit := Unit.of(value)) is not None:
        options.append(f'take "{unit.text.strip()}" away: {without_units([unit])}')
    if free:
        options.append(f"leave the column out: {_exclusion(column)}")
    return ", ".join(options[:-1]) + f", or {options[-1]}"


def open_quote(name: str, line: int) -> DataError:
    """The error for a quoted cell that does not end, or ends where none can."""
    return DataError(
        f"{name}, line {line}: a quote is opened here and not closed where a cell ends",
        'close it, or double it ("") where it belongs to the text',
    )


def too_long(name: str, line: int) -> DataError:
    """The error for a row that does not end."""
    return DataError(
        f"{name}, line {line}: no end of the row within {MAX_RECORD >> 20} MB",
        "is a quote left open there, or is this no CSV file?",
    )


def unparsed(name: str, row: int, error: Exception) -> DataError:
    """The error for anything else that Arrow says."""
    said = str(error).splitlines()[0]
    return DataError(
        f"{name}, after row {row}: not readable as CSV: {said}", "name the --delimiter or the --encoding"
    )


def spent(name: str) -> DataError:
    """The error for reading a stream again."""
    return DataError(f"{name}: it can be read once only", "name a file instead")


def shown(value: str) -> str:
    """A cell or a name for a message: one line, not too long, nothing that a terminal would act on."""
    short = value if len(value) <= 40 else value[:40] + "..."
    return json.dumps(short, ensure_ascii=not short.isprintable())


def _exclusion(column: str) -> str:
    return typed("-x", column) if len(column) <= 40 and column.isprintable() else "-x"


def _null_option(value: str) -> str:
    if len(value) > 40 or not value.isprintable():
        return "--null-value with this text"
    joint = "=" if value.startswith("-") else " "
    return f"--null-value{joint}{shlex.quote(value.strip())}"
