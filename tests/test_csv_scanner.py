"""Blocks begin and end with a record, whatever stands in quotes."""

from __future__ import annotations

import io
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from imdh_cli.sources.csv import scanner
from imdh_cli.sources.csv.scanner import RecordTooLong, Scanner, UnclosedQuote, blocks
from tests.csv_files import read_by_csv


def letter_by_letter(text: bytes) -> tuple[list[tuple[int, int]], bool]:
    """Start and end of each record, and whether a quote is left open: the scanner's slow twin."""
    found: list[tuple[int, int]] = []
    start = i = 0
    inside, field_start, several_lines, unclosed = False, True, False, False
    while i < len(text):
        letter, next_ = text[i : i + 1], text[i + 1 : i + 2]
        if inside:
            several_lines |= letter in (b"\n", b"\r")
            if letter == next_ == b'"':
                i += 1
            elif letter == b'"':
                inside = False
                unclosed |= several_lines and next_ not in (b"", b",", b"\n", b"\r")
        elif letter == b'"' and field_start:
            inside, field_start, several_lines = True, False, False
        elif letter in (b"\n", b"\r"):
            found.append((start, i))
            i += letter + next_ == b"\r\n"
            start, field_start = i + 1, True
        else:
            field_start = letter == b","
        i += 1
    if start < len(text):
        found.append((start, len(text)))
    return found, unclosed or inside


# Few letters, so that all their neighbourhoods occur.
messy = st.lists(st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b" "]), max_size=30)


@given(messy.map(b"".join))
@example(b'"a\r\n')
@example(b'a"\n"b"\n')
def test_records_end_where_reading_letter_by_letter_ends_them(text: bytes) -> None:
    found, _ = letter_by_letter(text)
    assert list(Scanner(b",").records(text)) == found


@given(messy.map(b"".join), st.integers(1, 12))
@example(b'"a"\n"b', 1)
@example(b'"a\n"b"\n"', 3)
@example(b"a\rb\r\nc", 2)
@example(b'a"', 1)
def test_blocks_are_whole_records_and_an_open_quote_is_noticed(text: bytes, size: int) -> None:
    ranges, unclosed = letter_by_letter(text)
    found = []
    try:
        for block in blocks(io.BytesIO(text).read, Scanner(b","), size):
            found.append(block)
    except UnclosedQuote as error:
        assert unclosed
        at = sum(b.data.size for b in found) + error.offset
        assert text[at : at + 1] == b'"'
    else:
        assert not unclosed
        assert b"".join(b.data.to_pybytes() for b in found) == text
    assert {b.offset for b in found} <= {start for start, _ in ranges}
    assert [b.offset for b in found] == [0, *itertools.accumulate(b.data.size for b in found)][: len(found)]


@given(messy.map(b"".join))
def test_cells_are_those_of_the_csv_module(text: bytes) -> None:
    ranges, unclosed = letter_by_letter(text)
    scanner = Scanner(b",")
    if not unclosed:
        cells = [scanner.fields(text[s:e]) for s, e in ranges if e > s]
        assert [[c.decode() for c in row] for row in cells] == read_by_csv(text)
        assert [scanner.count_fields(text[s:e]) for s, e in ranges if e > s] == [len(c) for c in cells]


def test_blocks_are_about_as_large_as_asked() -> None:
    text = b'1,"a\nb",2\n' * 10_000
    sizes = [b.data.size for b in blocks(io.BytesIO(text).read, Scanner(b","), 1000)]
    assert max(sizes) <= 1010
    assert len(sizes) <= 101


def test_a_huge_record_is_read_in_steps_that_double() -> None:
    text = b'1,"' + b"\n" * (1 << 20) + b'",2\n3,4,5\n'
    asked = []

    def read(n: int) -> bytes:
        asked.append(n)
        return source.read(n)

    source = io.BytesIO(text)
    found = list(blocks(read, Scanner(b","), 1000))
    assert b"".join(b.data.to_pybytes() for b in found) == text
    assert len(asked) < 20


def test_a_record_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "MAX_RECORD", 1000)
    with pytest.raises(RecordTooLong):
        list(blocks(io.BytesIO(b"a" * 5000).read, Scanner(b","), 100))
    with pytest.raises(UnclosedQuote) as caught:
        list(blocks(io.BytesIO(b'1\n2,"' + b"a\n" * 5000).read, Scanner(b","), 100))
    assert caught.value.lines == 0  # counted from the end of the last whole record


def test_every_delimiter_can_stand_in_the_pattern() -> None:
    for delimiter in (b";", b"\t", b"|", b"^", b"]", b"\\", b"-"):
        text = b'a%s"x\n%sy"\nb%sc\n' % (delimiter, delimiter, delimiter)
        scanner = Scanner(delimiter)
        assert [text[s:e] for s, e in scanner.records(text)] == [text[:8], text[9:-1]]
        assert scanner.fields(text[:8]) == [b"a", b"x\n%sy" % delimiter]
