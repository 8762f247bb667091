"""A path, a folder, a stream or a URI -> one table, read as record batches in input order.

`open_source` finds the files (`discover.py`, `remote_file.py`), tells what each is (`detect_format.py`) and
gives it to the reader of its format (`imdh_cli/formats.py` lists them); `table.py` makes one table of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module

from imdh_cli.errors import DataError, UsageError
from imdh_cli.params import SourceParams
from imdh_cli.sources.base import Chunk, Fragment, Opener, Part, Reader, Source, check_columns, nearest
from imdh_cli.sources.detect_format import detect_format
from imdh_cli.sources.discover import Location, locate
from imdh_cli.sources.file import Stored, changed, spooled, stored_here
from imdh_cli.sources.table import TableSource

__all__ = [
    "Chunk",
    "Fragment",
    "Opener",
    "Part",
    "Reader",
    "Source",
    "TableSource",
    "check_columns",
    "nearest",
    "open_source",
]


FEW = 16  # files, that can as well stay open
MANY = 20  # files; those behind them are looked at briefly


def open_source(locations: Sequence[str], params: SourceParams) -> TableSource:
    """Everything the arguments name, as one table.

    The format is told by `params.format`, else by a file's first bytes, else by its suffix.

    Raises
    ------
    DataError
        For an input that is missing, empty, damaged or of another kind, by name.
    UsageError
        For arguments that contradict each other.
    """
    if not locations:
        raise UsageError("no input was named", "name a file, a folder, or - for stdin")
    located = locate(locations, params.format)
    notes = list(located.notes)
    readers: list[Reader] = []
    try:
        files = _opened(located.files, params.format, notes)
        for file in files:
            file = replace(file, few=len(files) <= FEW, many=len(readers) >= MANY)
            readers.append(_reader(file, params, notes, len(files)))
    except BaseException:
        for reader in readers:
            reader.close()
        raise
    checks = [partial(changed, file) for file in files]
    return TableSource(readers, [dict(f.keys) for f in files], params, notes, checks)


def _opened(locations: list[Location], format: str | None, notes: list[str]) -> list[Stored]:
    """Each file with its first bytes; what lies elsewhere is looked for there."""
    files: list[Stored] = []
    for location in locations:
        if location.uri is None:
            files.append(stored_here(location))
        else:
            from imdh_cli.sources.remote_file import stored_there

            files += stored_there(location.uri, format, notes)
    return files


def _reader(file: Stored, params: SourceParams, notes: list[str], files: int) -> Reader:
    format = detect_format(file.head, file.name, params.format)
    if file.size == 0 and (not format.text or files > 1):
        raise DataError(f"{file.name}: the file is empty (0 bytes)", "leave it out")
    if format.seeks and file.random is None:
        file, note = spooled(file, format.title)
        notes.append(note)
    reader: Reader = import_module(f"imdh_cli.sources.{format.module}").open_part(file, params)
    return reader
