"""What people type -> the files and streams to read, in order.

A file, a folder, a quoted glob, `-`, a pipe such as `/dev/stdin` or `<(...)`, `file://`. Folders
are walked in natural order (`part-2` before `part-10`); `key=value` folders become columns.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from imdh_cli.errors import DataError, UsageError
from imdh_cli.formats import PACKED, SUFFIXES
from imdh_cli.sources.base import nearest
from imdh_cli.sources.detect_format import holds_table
from imdh_cli.words import quoted

REMOTE = ("s3", "gs", "gcs", "hdfs", "http", "https")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Location:
    """One file or stream.

    name : as a person would name it, also in errors.
    path : on this machine; None for standard input and for a URI.
    uri : for a file elsewhere.
    stream : it can be read once, from front to back.
    keys : the `key=value` folders it lies in; a None value is Hive's null.
    """

    name: str
    path: str | None = None
    uri: str | None = None
    stream: bool = False
    keys: tuple[tuple[str, str | None], ...] = ()


@dataclass
class Located:
    """Files in reading order, and what a person should know about the choice."""

    files: list[Location] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def locate(locations: Sequence[str], format: str | None = None) -> Located:
    """All files that the arguments name, in the order of the arguments.

    Raises
    ------
    DataError
        For a file that is not there (with the nearest names) and for a folder without tables.
    UsageError
        When standard input is named twice.
    """
    found = Located()
    for location in locations:
        if not location:
            raise UsageError("an input has an empty name", "name a file, a folder, or - for stdin")
        scheme = _scheme(location)
        if location == "-":
            found.files.append(Location("stdin", stream=True))
        elif scheme in REMOTE:
            found.files.append(Location(location, uri=location))
        elif scheme not in (None, "file"):
            raise UsageError(
                f"{location}: cannot read {scheme}://",
                "file://, s3://, gs://, hdfs:// and https:// are understood",
            )
        else:
            _local(_file_uri(location) if scheme else location, format, found)
    streams = [f.name for f in found.files if f.stream and f.path is None]
    if len(streams) > 1:
        raise UsageError("standard input is named twice", "it can be read once: name - once")
    _note_repeats(found)
    return found


def natural_key(path: str) -> tuple[tuple[tuple[int, int, str], ...], ...]:
    """Sort key: runs of digits by their value, folder by folder."""
    return tuple(
        tuple(
            (0, int(run), run) if run.isdecimal() and run.isascii() else (1, 0, run)
            for run in re.split(r"([0-9]+)", step)
            if run
        )
        for step in path.split("/")
    )


def hive_keys(steps: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """The `key=value` folders of a path, whether it was typed, matched or found in a folder."""
    keys = []
    for step in steps:
        key, equals, value = step.partition("=")
        if equals and key:
            keys.append((unquote(key), None if value == HIVE_NULL else unquote(value)))
    return tuple(keys)


def is_table(name: str, format: str | None) -> bool:
    """Whether a folder's file is data by its name: a known suffix, or none beside --format."""
    stem = name.lower()
    for packed in PACKED:
        if stem.endswith(packed):
            stem = stem[: -len(packed)]
            break
    if stem.endswith(SUFFIXES):
        return True
    return format is not None and "." not in stem


def hidden(name: str) -> bool:
    """Names that data folders use for everything but data: `_SUCCESS`, `.crc`, `_temporary`."""
    return name.startswith(("_", "."))


def _scheme(location: str) -> str | None:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", location)
    return match[1].lower() if match else None


def _file_uri(uri: str) -> str:
    parts = urlsplit(uri.replace("?", "%3F").replace("#", "%23"))
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{uri}: a file URI names a file on this machine", "write file:///path/file")
    return unquote(parts.path)


def _local(path: str, format: str | None, found: Located) -> None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        _glob(path, format, found)
        return
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        _folder(path, format, found)
    else:
        found.files.append(_file(path))


def _folder(folder: str, format: str | None, found: Located) -> None:
    try:
        inside = sorted(_walk(folder, "", set()), key=natural_key)
    except OSError as error:
        raise _unreadable(error.filename or folder, error) from error
    if os.path.isdir(os.path.join(folder, "_delta_log")):
        found.notes.append(
            f"{folder}: a Delta table: every Parquet file in it is read, those of older versions too"
        )
    paths = [os.path.join(folder, *inner.split("/")) for inner in inside]
    found.files += map(_file, sift(paths, folder, format, found.notes, look=_has_magic))


def _walk(folder: str, inner: str, seen: set[str]) -> Iterator[str]:
    """Files below a folder, as paths within it with `/` between the steps."""
    real = os.path.realpath(folder)
    if real in seen:  # a link back to where we are
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(entry.path, f"{inner}{entry.name}/", seen | {real})
            else:
                yield inner + entry.name


def _glob(pattern: str, format: str | None, found: Located) -> None:
    """What a quoted pattern matches: the files or, where there are none, the folders."""
    if not glob.has_magic(pattern):
        raise _missing(pattern)
    matches = [m for m in glob.glob(pattern, recursive=True) if not hidden(os.path.basename(m))]
    matches.sort(key=natural_key)
    files = [m for m in matches if not os.path.isdir(m)]
    if not matches:
        raise DataError(f"{pattern}: no file matches", "check the folder and the pattern")
    if not files:
        for folder in matches:
            _folder(folder, format, found)
        return
    tables = sift(files, pattern, format, found.notes, pattern=True, look=_has_magic)
    found.files += map(_file, tables)


def sift(
    paths: list[str],
    where: str,
    format: str | None,
    notes: list[str],
    *,
    pattern: bool = False,
    look: Callable[[str], bool] = lambda _: False,
) -> list[str]:
    """The tables among the files of a folder or pattern; the strangers go into a note.

    A pattern that matches no table by name, such as `*.dat`, means what it says; `*` also picks up
    what merely lies about. `look` tells a table by its content.

    Raises
    ------
    DataError
        For a folder without tables.
    """
    named = {p for p in paths if is_table(p.rpartition("/")[2], format)}
    if pattern and not named:
        return paths
    strangers = [p for p in paths if p not in named and not look(p)]
    found = quoted([p.rpartition("/")[2] for p in strangers])
    if len(strangers) == len(paths):
        raise DataError(
            f"{where}: no tables here" + (f": it holds {found}" if strangers else ""),
            "name the files themselves, or a quoted pattern such as 'folder/*.txt'",
        )
    if strangers:
        notes.append(f"{where}: left out {found}: no table by name or content")
    left_out = set(strangers)
    return [p for p in paths if p not in left_out]


def _file(path: str) -> Location:
    return Location(path, path=path, stream=_is_stream(path), keys=hive_keys(path.split("/")[:-1]))


def _has_magic(path: str) -> bool:
    """Binary formats are known by their first bytes whatever the file's name."""
    try:
        if _is_stream(path):
            return False
        with open(path, "rb") as file:
            return holds_table(file.read(64))
    except OSError:
        return False


def _is_stream(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False  # a dangling link: opening it says so by name


def _missing(path: str) -> DataError:
    if os.path.islink(path):
        return DataError(f"{path}: a link to {os.readlink(path)}, which is not there", "mend the link")
    folder, name = os.path.split(path)
    parent = Path(folder or ".")
    if not parent.is_dir():
        near = nearest(parent.name, _names(parent.parent))
        hint = f'did you mean "{near[0]}"?' if near else "check the path"
        return DataError(f"{path}: no such folder {folder}", hint)
    near = nearest(name, [n for n in _names(parent) if _may_be_data(parent / n, name)])
    quoted = ", ".join(os.path.join(folder, n) for n in near)
    return DataError(
        f"{path}: no such file",
        f"did you mean {quoted}?" if near else "check the name and the folder",
    )


def _may_be_data(path: Path, asked: str) -> bool:
    """Whether a file is worth a suggestion: a folder, of a format that is read, or named like it."""
    ends = tuple(suffix + packed for suffix in SUFFIXES for packed in ("", *PACKED))
    like = path.suffix.lower() == os.path.splitext(asked)[1].lower()
    return path.is_dir() or path.name.lower().endswith(ends) or (like and path.suffix != ".npz")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:10_000]
    except OSError:
        return []


def _unreadable(path: str, error: BaseException) -> DataError:
    said = getattr(error, "strerror", None) or str(error)
    return DataError(f"{path}: cannot be read: {said}", "check the path and its permissions")


def _note_repeats(found: Located) -> None:
    seen: set[str] = set()
    for file in found.files:
        if file.path is None or file.stream:
            continue
        real = os.path.realpath(file.path)
        if real in seen:
            found.notes.append(f"{file.name}: named twice, so its rows count twice")
        seen.add(real)
