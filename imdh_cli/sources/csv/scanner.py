"""Text -> blocks that begin and end with a record, quoted newlines and all.

What a quote means is what Arrow's parser and Python's csv module say: it is special at the start of a
field only, a doubled one inside a quoted field is a quote, and text after the closing quote belongs to
the field. Elsewhere a quote is a letter like any other.

Where the text is tidy (every quote opens, closes or is doubled) the quotes that open and close alternate,
so a newline ends a record exactly when an even number of quotes stand before it: a few whole-array steps.
A block that is not tidy is walked quoted field by quoted field with a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from imdh_cli.sources.compression import Read, filled

MAX_RECORD = 64 << 20  # bytes; more than this without a record's end is an unclosed quote, or no table
_PORTION = 1 << 18


class UnclosedQuote(Exception):
    """A quoted field without an end, or with an end that is none.

    offset : of the quote that opens it, from the start of the bytes looked at.
    lines : line ends between there and the quote; filled in by `blocks`.
    """

    def __init__(self, offset: int) -> None:
        super().__init__(f"a quote at byte {offset} is never closed")
        self.offset = offset
        self.lines = 0


class RecordTooLong(Exception):
    """More than MAX_RECORD bytes without the end of a record."""


class Block(NamedTuple):
    """Whole records.

    data : their bytes, line ends included.
    offset : of the first byte, from where reading began.
    quoted, nul : whether there is any quote, any NUL byte.
    """

    data: pa.Buffer
    offset: int
    quoted: bool
    nul: bool


class Scanner:
    """Finds the ends of records. Bytes handed over always begin with the start of a record."""

    def __init__(self, delimiter: bytes) -> None:
        if len(delimiter) != 1:
            raise ValueError("the delimiter is one byte")
        self.delimiter = delimiter
        self._beside = np.zeros(256, dtype=bool)  # what may stand outside of a tidy quote
        self._beside[list(delimiter + b'\r\n"')] = True
        edge = re.escape(delimiter)
        field = rb'"(?<![^%s\r\n]")[^"]*+(?:""[^"]*+)*+("?)' % edge
        self._quoted = re.compile(field)
        self._token = re.compile(field + rb"|\r\n|\n|\r")

    def last_end(self, data: bytes) -> int:
        """Where the last whole record ends; 0 when there is none.

        Raises
        ------
        UnclosedQuote
            For a quoted field over several lines after whose closing quote other text follows: a
            quote was left open above, and the next one in the file was taken for its end.
        """
        if b'"' not in data:
            return _newline_before(data, 0, len(data), b"\n") or _newline_before(
                data, 0, len(data) - 1, b"\r"
            )
        spans = self._spans(data)
        return _last_outside(data, *spans, b"\n", len(data)) or _last_outside(
            data, *spans, b"\r", len(data) - 1
        )

    def check_closed(self, data: bytes) -> None:
        """Raise UnclosedQuote when the bytes, which nothing follows, end inside quotes."""
        if b'"' in data:
            opening, closing = self._spans(data)
            if len(opening) > len(closing):
                raise UnclosedQuote(_field_start(opening, closing))

    def records(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Start and end of each record, line ends not included. Slow: for heads and for errors."""
        start = 0
        for match in self._token.finditer(data):
            if match.group()[:1] != b'"':
                yield start, match.start()
                start = match.end()
        if start < len(data):
            yield start, len(data)

    def fields(self, record: bytes, most: int = 1 << 62) -> list[bytes]:
        """The cells of one record, quotes taken off; `most` of them."""
        cells: list[bytes] = []
        place, end = 0, len(record)
        while True:
            cell = b""
            if record[place : place + 1] == b'"':
                match = self._quoted.match(record, place)
                assert match is not None
                cell = match.group()[1 : -1 if match.group(1) else None].replace(b'""', b'"')
                place = match.end()
            stop = record.find(self.delimiter, place)
            cells.append(cell + record[place : stop if stop >= 0 else end])
            if stop < 0 or len(cells) == most:
                return cells
            place = stop + 1

    def count_fields(self, record: bytes) -> int:
        """How many cells a record has."""
        return self._quoted.sub(b"", record).count(self.delimiter) + 1

    def _spans(self, data: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Where stretches within quotes begin (at the quote) and end (at the quote), in order.

        A doubled quote may end one stretch and begin the next. An open last stretch has no end.
        """
        letters = np.frombuffer(data, dtype=np.uint8)
        quotes = _places(letters, ord('"'))
        opening, closing = quotes[::2], quotes[1::2]
        before = opening[1:] if opening[0] == 0 else opening
        after = closing[:-1] if quotes[-1] == len(data) - 1 and len(quotes) % 2 == 0 else closing
        if self._beside[letters[before - 1]].all() and self._beside[letters[after + 1]].all():
            return opening, closing
        return self._walked(data)

    def _walked(self, data: bytes) -> tuple[np.ndarray, np.ndarray]:
        opening, closing = [], []
        outside = self.delimiter + b"\r\n"
        for match in self._quoted.finditer(data):
            opening.append(match.start())
            if match.group(1):
                closing.append(match.end() - 1)
                follows = data[match.end() : match.end() + 1]
                text = match.group()
                if follows and follows not in outside and (b"\n" in text or b"\r" in text):
                    raise UnclosedQuote(match.start())
        return np.array(opening, dtype=np.int64), np.array(closing, dtype=np.int64)


def blocks(
    read: Read, scanner: Scanner, size: int, back: Callable[[int], None] | None = None
) -> Iterator[Block]:
    """Blocks of about `size` bytes, each of whole records; larger where a record is.

    The half record at a block's end is read again, when one can go `back`, and otherwise put in front
    of what is read next, which means copying all of that.

    Raises
    ------
    UnclosedQuote, RecordTooLong
        After the blocks before; the offset is from the end of the last of them.
    """
    offset, rest = 0, b""
    want = size
    while True:
        data, ended = filled(read, want, rest)
        if not data:
            return
        try:
            end = scanner.last_end(data)
            if ended or (not end and len(data) > MAX_RECORD):
                scanner.check_closed(data)
                if not ended:
                    raise RecordTooLong
                end = len(data)
        except UnclosedQuote as error:
            error.lines = line_count(data[: error.offset])
            raise
        if end:
            yield Block(pa.py_buffer(data).slice(0, end), offset, b'"' in data, b"\x00" in data)
            offset += end
        if ended:
            return
        rest = data[end:]
        if back is not None and end:
            back(len(rest))
            rest = b""
        # Doubling keeps the work for one huge record linear in its length.
        want = size if end else max(size, len(rest))


def _places(letters: np.ndarray, letter: int) -> np.ndarray:
    """Where a letter stands, in order."""
    # In portions: a temporary array of a whole block is new memory each time, and that costs more.
    found = [
        np.flatnonzero(letters[i : i + _PORTION] == letter) + i for i in range(0, len(letters), _PORTION)
    ]
    return np.concatenate(found)


def line_count(data: bytes) -> int:
    """Line ends as an editor counts them."""
    return data.count(b"\n") or data.count(b"\r")


def _newline_before(data: bytes, start: int, stop: int, newline: bytes) -> int:
    """Behind the last newline in `data[start:stop]`, or 0."""
    return data.rfind(newline, start, max(start, stop)) + 1


def _last_outside(data: bytes, opening: np.ndarray, closing: np.ndarray, newline: bytes, stop: int) -> int:
    """Behind the last newline before `stop` that is outside of all stretches, or 0."""
    for i in range(len(opening) - 1, -1, -1):
        if i < len(closing):
            found = _newline_before(data, int(closing[i]) + 1, stop, newline)
            if found:
                return found
        stop = int(opening[i])
    return _newline_before(data, 0, stop, newline)


def _field_start(opening: np.ndarray, closing: np.ndarray) -> int:
    """Where the last quoted field begins: over doubled quotes, stretches follow without a gap."""
    i = len(opening) - 1
    while i > 0 and closing[i - 1] + 1 == opening[i]:
        i -= 1
    return int(opening[i])
