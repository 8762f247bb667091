"""What is wrong with a CSV file -> an error that names the place and says what to type."""

from __future__ import annotations

import json
import re
import shlex

from imdh_cli.errors import DataError
from imdh_cli.sources.blocks import Fault, Layout
from imdh_cli.sources.dialect import undecodable
from imdh_cli.sources.records import MAX_RECORD

SKIP = "--on-bad-row skip"


def fault_error(fault: Fault, name: str, layout: Layout, rows: int, lines: int) -> DataError:
    """The error for the first row of a block that cannot be used; `rows` and `lines` lie before it."""
    row, line = rows + fault.row + 1, lines + fault.line + 1
    if fault.undecodable is not None:
        return undecodable(f"{name}, row {row}", layout.encoding.name, fault.undecodable)
    if fault.cells is not None:
        cells = f"{fault.cells} cell" + ("s" if fault.cells != 1 else "")
        what = f"{cells} where there should be {len(layout.names)}"
        if fault.nul:
            what += ", and NUL bytes: the file may be damaged"
        hint = f"mend the line, name the --delimiter, or add {SKIP}"
        return DataError(f"{name}, line {line} (row {row}): {what}", hint)
    where = f"{name}, row {row}, column {shown(fault.column)}"
    if "\x00" in fault.value:
        return DataError(
            f"{where}: NUL bytes where a number belongs: the file may be damaged",
            f"copy it again, or add {SKIP}",
        )
    said = f"{where}: {shown(fault.value)} is not a number"
    if layout.decimal == "." and re.fullmatch(r"\s*[+-]?\d+,\d+\s*", fault.value):
        return DataError(said, f"add --decimal , or {SKIP}")
    if fault.value == fault.column:
        return DataError(said, f"take the second header line out, or add {SKIP}")
    return DataError(said, f"add {_null_option(fault.value)}, or {SKIP}")


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


def _null_option(value: str) -> str:
    if len(value) > 40 or not value.isprintable():
        return "--null-value with this text"
    joint = "=" if value.startswith("-") else " "
    return f"--null-value{joint}{shlex.quote(value.strip())}"
