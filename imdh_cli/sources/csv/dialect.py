"""The first records of a CSV file -> its delimiter, its column names and where its rows begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from imdh_cli.errors import PIPE, DataError, UsageError
from imdh_cli.sources.base import Repeated, repeated
from imdh_cli.sources.csv.numbers import all_numbers, to_numbers
from imdh_cli.sources.csv.scanner import Scanner, line_count
from imdh_cli.sources.signatures import shell_word

CANDIDATES = (b",", b";", b"\t", b"|")
SNIFFED = 50  # records looked at
TITLES = 12  # records in which the header is looked for, below a title
_SPELLED = {"\\t": b"\t", "tab": b"\t"}
_SEP = re.compile(rb'"?sep=([\t -~])"?(?:\r\n|\n|\r|$)', re.IGNORECASE)
_SAID = {b",": "','", b";": "';'", b"\t": "a tab", b"|": "'|'"}


@dataclass(frozen=True)
class Dialect:
    """What a reader has to know before the first row.

    names : the columns, in order.
    start : byte of the first row, from the start of the text looked at.
    lines : line ends before it.
    first_end : where the first record that is not blank ends.
    nameless : the columns that a header gives no name.
    repeated : the names that it gives to several. The second of them is called `name NUL 2`, and so on, so
        that `names` differ; no name of a file holds a NUL.
    """

    delimiter: bytes
    names: tuple[str, ...]
    start: int
    lines: int
    first_end: int
    notes: list[str] = field(default_factory=list)
    nameless: frozenset[str] = frozenset()
    repeated: Repeated = field(default_factory=dict)


def given_delimiter(text: str | None) -> bytes | None:
    """The delimiter an option names, as one byte; None when it is to be sniffed.

    Raises
    ------
    UsageError
        When it is no single ASCII character that can separate cells.
    """
    if text is None:
        return None
    byte = _SPELLED.get(text, text.encode())
    if len(byte) != 1 or byte in b'"\r\n\x00':
        raise UsageError(
            f"--delimiter {text!r}: not a single ASCII character that can separate cells",
            "for example --delimiter ';' or --delimiter tab",
        )
    return byte


def dialect_of(
    head: bytes,
    *,
    name: str,
    encoding: str,
    delimiter: bytes | None,
    decimal: str,
    header: bool,
    complete: bool,
) -> Dialect | None:
    """The dialect that the first bytes tell, or None when they hold nothing but blank lines.

    Parameters
    ----------
    head : bytes
        From the start of the file, byte order mark taken off.
    encoding : str
        Of the head: utf-8, or one in which line ends and delimiters are what they are in ASCII.
    complete : bool
        That is the whole file. Otherwise its last record may be half a record.

    Raises
    ------
    DataError
        For a header that cannot name columns.
    """
    told = _SEP.match(head)
    if told is not None:  # as Excel writes it, and reads it, above the header
        rest = dialect_of(
            head[told.end() :],
            name=name,
            encoding=encoding,
            delimiter=delimiter or told[1],
            decimal=decimal,
            header=header,
            complete=complete,
        )
        return rest and replace(
            rest,
            start=rest.start + told.end(),
            lines=rest.lines + 1,
            first_end=rest.first_end + told.end(),
        )
    if not head.strip(b"\r\n"):
        return None
    chosen = delimiter or sniff(head, decimal, header, complete)
    scanner = Scanner(chosen)
    if header:
        _check_titles(head, name, delimiter, decimal, complete=complete)
    start, end = next((s, e) for s, e in scanner.records(head) if e > s)
    first = scanner.fields(head[start:end])
    notes: list[str] = []
    if len(first) == 1:
        _suspect(first[0], name, chosen, notes)
    if not header:
        # Blank lines above the first row are rows when there is a single column.
        names = tuple(f"column_{i + 1}" for i in range(len(first)))
        return Dialect(chosen, names, 0, 0, end, notes)
    behind = end + (2 if head[end : end + 2] == b"\r\n" else 1)
    extra = f"column_{len(first) + 1}".encode()
    if extra not in first and _trailing(head, scanner, len(first), complete):
        first.append(b"")
    names, several = _names(first, name, encoding, decimal, notes)
    lines = line_count(head[:behind])
    nameless = frozenset(n for n, cell in zip(names, first, strict=True) if not cell)
    return Dialect(chosen, names, min(behind, len(head)), lines, end, notes, nameless, several)


def _check_titles(head: bytes, name: str, delimiter: bytes | None, decimal: str, *, complete: bool) -> None:
    """Raise DataError for a title above the header: mostly empty lines, then one of words, then numbers."""
    for candidate in CANDIDATES if delimiter is None else (delimiter,):
        scanner = Scanner(candidate)
        filled: list[tuple[int, int, list[str]]] = []  # of each record its line, its width, and what it holds
        for start, end in scanner.records(head):
            if len(filled) > TITLES + 1:
                break
            if end > start and (complete or end < len(head)):
                cells = [c.decode("utf-8", "replace").strip() for c in scanner.fields(head[start:end], 200)]
                filled.append((line_count(head[:start]) + 1, len(cells), [c for c in cells if c]))
        for k in range(1, min(TITLES, len(filled) - 1)):
            (line, width, words), (_, below, cells) = filled[k], filled[k + 1]
            if width < 2 or below != width or len(set(words)) < width or any_number(words, decimal):
                continue
            if all(2 * len(f) <= width for _, _, f in filled[:k]) and any_number(cells, decimal):
                comment = comment_hint(filled[0][2], name)
                what = "title" if comment is None else "comment"
                raise DataError(
                    f"{name}: the header is on line {line}, below a {what}",
                    comment or f"leave the lines above it out: tail -n +{line} {shell_word(name)} {PIPE}",
                )


def any_number(cells: list[str], decimal: str) -> bool:
    """Whether one of the cells is a number."""
    return any(all_numbers([cell], decimal) for cell in cells)


def sniff(head: bytes, decimal: str, header: bool, complete: bool) -> bytes:
    """The most likely of `, ; tab |`; a comma when none of them occurs in the first record.

    Where the comma is the decimal point, the default is a semicolon, and `1,5` without a header is one
    cell unless quotes say otherwise.

    A candidate splits the first record into two cells or more. The one that splits most of the next
    records alike wins; then the one that leaves more numbers; then the one that leaves more cells.
    """
    best, best_score = (b";" if decimal == "," else b","), (0.0, 0.0, 0)
    for candidate in CANDIDATES:
        if candidate == decimal.encode() and not header and b'"' not in head:
            continue
        scanner = Scanner(candidate)
        records = _first_records(head, scanner, complete)
        width = scanner.count_fields(records[0]) if records else 1
        if width < 2:
            continue
        alike = [r for r in records if scanner.count_fields(r) == width]
        cells = [c.decode("utf-8", "replace") for r in alike[:10] for c in scanner.fields(r, 200)]
        score = (len(alike) / len(records), _numeric_share(cells, decimal), width)
        if score > best_score:
            best, best_score = candidate, score
    return best


def undecodable(where: str, encoding: str, error: UnicodeDecodeError) -> DataError:
    """The error for a byte that does not decode, the same wherever it stands."""
    byte = error.object[error.start]
    return DataError(
        f"{where}: byte 0x{byte:02x} is not {encoding} text",
        "add --encoding latin-1, or the encoding the file was written in",
    )


def comment_hint(names: Sequence[str], name: str) -> str | None:
    """What to do when the header may be a comment; None where it does not look like one."""
    if not names[0].startswith("#"):
        return None
    file = shell_word(name)
    return f"if the lines that start with # are comments, leave them out: grep -v '^#' {file} {PIPE}"


def _first_records(head: bytes, scanner: Scanner, complete: bool) -> list[bytes]:
    found = []
    for start, end in scanner.records(head):
        if end > start:
            found.append(head[start:end])
        if len(found) > SNIFFED:
            break
    if not complete and len(found) > 1 and len(found) <= SNIFFED:
        found.pop()
    return found[:SNIFFED]


def _trailing(head: bytes, scanner: Scanner, width: int, complete: bool) -> bool:
    """Whether a delimiter ends every row, but not the header."""
    rows = _first_records(head, scanner, complete)[1:]
    return bool(rows) and all(
        row.endswith(scanner.delimiter) and scanner.count_fields(row) == width + 1 for row in rows
    )


def _numeric_share(cells: list[str], decimal: str) -> float:
    _, wrong = to_numbers(pa.array(cells, pa.string()), pa.array([""]), decimal)
    return 1.0 if wrong is None else 1.0 - float(wrong.mean())


def _suspect(first: bytes, name: str, chosen: bytes, notes: list[str]) -> None:
    """A note when the only column's name holds what other files separate cells with."""
    for other in CANDIDATES:
        if other != chosen and other in first:
            notes.append(
                f"{name}: one column by {_SAID.get(chosen, repr(chosen.decode()))}; "
                f"the cells look separated by {_SAID[other]} (--delimiter)"
            )
            return


def _names(
    cells: list[bytes], name: str, encoding: str, decimal: str, notes: list[str]
) -> tuple[tuple[str, ...], Repeated]:
    """Different names, and which of them are repeated, by `Dialect`."""
    try:
        names = [cell.decode(encoding) for cell in cells]
    except UnicodeDecodeError as error:
        raise undecodable(f"{name}, header", encoding, error) from error
    if all_numbers(names, decimal):
        notes.append(f"{name}: the header is all numbers; if it is the first row of data, add --no-header")
    for i, cell in enumerate(names):
        if "\x00" in cell:
            raise DataError(
                f"{name}, header: NUL bytes: the file is damaged, or no CSV in this encoding",
                "copy it again, or name the --encoding",
            )
        if not cell:
            names[i] = f"column_{i + 1}"
    several = repeated(names)
    for same, places in several.items():
        for place in places[1:]:
            names[place - 1] = f"{same}\x00{place}"
    return tuple(names), several
