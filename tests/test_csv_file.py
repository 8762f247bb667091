"""CSV as people have it: types, blanks, quotes, encodings, damage; rows are never lost or moved."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
import threading
import tracemalloc
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from imdh_cli.errors import DataError, UsageError
from imdh_cli.params import SourceParams
from imdh_cli.sources.csv import file as csv_file
from imdh_cli.sources.csv import scanner
from tests.csv_files import bad_rows, columns, error, numbers, saved, stream, texts, written

FLOAT, TEXT = pa.float64(), pa.string()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that every edge is met."""
    monkeypatch.setattr(csv_file, "BLOCK", 64)


def types(part: csv_file.CsvPart) -> dict[str, pa.DataType]:
    return {f.name: f.type for f in part.schema}


# Types


def test_whole_numbers_first_do_not_fix_a_type() -> None:
    rows = b"1,2\n" * 200_000 + b"1.5,2\n"
    x = numbers(stream(b"x,y\n" + rows), ["x"])["x"]
    assert (len(x), x[0], x[-1]) == (200_001, 1.0, 1.5)


@pytest.mark.parametrize("make", ["stream", "file"])
def test_a_column_empty_for_megabytes_is_one_of_numbers(make: str, tmp_path: Path) -> None:
    data = b"x,y\n" + b"1,\n" * 800_000 + b"1,2.5\n"
    y = numbers(stream(data) if make == "stream" else saved(tmp_path, data), ["y"])["y"]
    assert y == [None] * 800_000 + [2.5]


def test_a_column_empty_at_first_is_text_when_words_come_later(tmp_path: Path) -> None:
    data = b"x,y\n" + b"1,\n" * 800_000 + b"1,word\n" * 200_000
    assert types(saved(tmp_path, data)) == {"x": FLOAT, "y": TEXT}


def test_a_column_of_numbers_with_a_few_words_is_one_of_numbers() -> None:
    data = b"a,b,c,d,e\n" + b"1,2,x,true,2020-01-01\n" * 95 + b"1,oops,y,false,2021-01-01\n" * 5
    assert types(stream(data)) == {"a": FLOAT, "b": FLOAT, "c": TEXT, "d": FLOAT, "e": TEXT}


def test_a_column_of_codes_some_of_them_numbers_is_text() -> None:
    codes = [f"A{i}" if i % 4 == 0 else str(i) for i in range(100)]
    assert types(stream(written([["code", "x"], *([c, 1] for c in codes)]))) == {"code": TEXT, "x": FLOAT}


def test_a_column_without_a_cell_is_one_of_numbers() -> None:
    part = stream(b"x,y\n1,\n2,\n")
    assert numbers(part) == {"x": [1.0, 2.0], "y": [None, None]}


def test_what_is_expected_wins_over_what_is_seen(tmp_path: Path) -> None:
    part = saved(tmp_path, b"x,y\n1,a\n2,3\n")
    part.expect(numbers=["y"], texts=["x"])
    assert types(part) == {"x": TEXT, "y": FLOAT}
    assert columns(part.chunks(["x"]), ["x"]) == {"x": ["1", "2"]}
    assert error(part, ["y"]).message == 't.csv, line 2 (row 1), column "y": "a" is not a number'


def test_numbers_are_those_that_pandas_wrote_and_duckdb_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "tiny": rng.normal(size=500) * 1e-300,
            "huge": rng.normal(size=500) * 1e300,
            "whole": rng.integers(-(10**15), 10**15, 500),
            "holes": np.where(rng.random(500) < 0.3, np.nan, rng.normal(size=500)),
        }
    )
    part = saved(tmp_path, frame.to_csv(index=False).encode())
    found = pd.DataFrame(numbers(part), dtype=float)
    pd.testing.assert_frame_equal(found, frame.astype(float), check_exact=True)
    as_double = dict.fromkeys(frame.columns, "DOUBLE")
    by_duckdb = duckdb.sql(f"from read_csv('{tmp_path / 't.csv'}', columns={as_double})").df()
    pd.testing.assert_frame_equal(found, by_duckdb, check_exact=True)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1e400", np.inf),
        ("-1e400", -np.inf),
        ("inf", np.inf),
        ("-Infinity", -np.inf),
        ("1e-400", 0.0),
        ("+1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        (" 7 ", 7.0),
        ("1E5", 1e5),
        ("00501", 501.0),
        ("  ", None),
        (" NA ", None),
        ("nan", None),
    ],
)
@pytest.mark.parametrize("company", ["1", "n/a"])
def test_a_cell_means_the_same_beside_good_and_bad_cells(cell: str, value: float, company: str) -> None:
    part = stream(written([["x", "y"], [cell, "1"], ["2", company]]), on_bad_row="skip")
    part.expect(numbers=["x", "y"])
    assert numbers(part)["x"][0] == value


# Missing values and words where a number belongs


def test_the_usual_spellings_are_missing() -> None:
    usual = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "-nan", "<NA>"]
    part = stream(written([["x", "y"], *([cell, 1] for cell in usual), [2, 1]]))
    assert numbers(part)["x"] == [None] * len(usual) + [2.0]


@pytest.mark.parametrize("cell", ["?", "-", ".", "missing", "n/a", "*", "two words", "--"])
def test_another_spelling_is_named_with_the_option_that_makes_it_missing(cell: str, tmp_path: Path) -> None:
    data = written([["x", "y"], [1, 1], [cell, 2], [3, 3]])
    raised = error(saved(tmp_path, data), ["x"])
    assert raised.message == f't.csv, line 3 (row 2), column "x": "{cell}" is not a number'
    assert raised.hint is not None
    # The hint, typed into a shell, gives the cell.
    said = re.match(r"add (--null-value.*), --on-bad-row skip, or leave the column out: -x x$", raised.hint)
    assert said is not None
    typed = subprocess.run(
        f"printf '%s\\n' {said[1]}", shell=True, capture_output=True, text=True, check=True
    )
    assert re.split(r"[=\n]", typed.stdout.strip(), maxsplit=1) == ["--null-value", cell]
    assert numbers(saved(tmp_path, data, null_values=(cell,)))["x"] == [1.0, None, 3.0]


def test_spellings_that_are_named_add_to_the_usual_ones() -> None:
    part = stream(b"x\n?\nNA\n3\n", null_values=("?",))
    assert numbers(part)["x"] == [None, None, 3.0]


@pytest.mark.parametrize("company", ["1", "word"])
def test_a_number_that_means_missing_does_so_however_it_is_written(company: str) -> None:
    cells = ["-999", " -999", "-999.0", "-9.99e2", "999"]
    part = stream(
        written([["x"], *([c] for c in cells), [company]]), null_values=("-999",), on_bad_row="skip"
    )
    assert numbers(part)["x"][:5] == [None, None, None, None, 999.0]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_word_in_the_last_row_is_one_error_with_its_place(threads: int, tmp_path: Path) -> None:
    data = b"id,area\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(300_000)) + b"7,word\n"
    part = saved(tmp_path, data, threads=threads)
    raised = error(part, ["id", "area"])
    assert raised.message == 't.csv, line 300002 (row 300001), column "area": "word" is not a number'
    assert raised.hint == "add --null-value word, --on-bad-row skip, or leave the column out: -x area"


@pytest.mark.usefixtures("small_blocks")
def test_the_first_fault_in_the_file_is_the_one_reported() -> None:
    rows = [["1", "2"]] * 20 + [["1", "a"], ["b", "2"], ["1"], ["1", "2"]] + [["c", "d"]] * 20
    for threads in (1, 2):
        part = stream(written([["x", "y"], *rows]), threads=threads)
        part.expect(numbers=["x", "y"])
        assert error(part, ["x", "y"]).message == 't.csv, line 22 (row 21), column "y": "a" is not a number'
        part = stream(written([["x", "y"], *rows]), threads=threads)
        assert error(part, ["x"]).message == 't.csv, line 23 (row 22), column "x": "b" is not a number'


def test_a_cell_in_a_message_is_short_and_harmless() -> None:
    part = stream(written([["x"], [1], [2], ["\x1b[2J" + "a" * 100]]))
    assert error(part, ["x"]).message == (
        't.csv, line 4 (row 3), column "x": "\\u001b[2J' + "a" * 36 + '..." is not a number'
    )


def test_a_word_under_skip_is_a_bad_row_and_its_text_stays() -> None:
    part = stream(b"x,y\n1,2\n3,word\n5,6\n", on_bad_row="skip")
    chunks = list(part.chunks(["x", "y"], ["y"]))
    assert columns(chunks, ["x", "y"]) == {"x": [1.0, None, 5.0], "y": [2.0, None, 6.0]}
    assert chunks[0].kept is not None
    assert chunks[0].kept["y"].to_pylist() == ["2", "word", "6"]
    assert (bad_rows(chunks), part.bad_rows) == ([1], 1)


def test_a_second_header_line_is_recognised() -> None:
    raised = error(stream(b"x,y\n1,2\nx,y\n3,4\n"), ["x"])
    assert raised.message == 't.csv, line 3 (row 2), column "x": "x" is not a number'
    assert raised.hint == "take the second header line out, or add --on-bad-row skip"


def test_words_in_columns_that_are_not_asked_for_do_not_matter() -> None:
    assert numbers(stream(b"x,y\n1,2\n3,word\n"), ["x"]) == {"x": [1.0, 3.0]}


# Quotes


@pytest.mark.parametrize("shift", range(0, 20, 3))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_newlines_across_blocks_are_read_to_the_byte(
    shift: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "BLOCK", 97 + shift)
    cells = [[str(i), f"a{end}{end}b,{'x' * (i % 50)}{end}", str(-i)] for i in range(200)]
    data = written([["x", "s", "y"], *cells], lineterminator=end)
    for threads in (1, 2):
        assert texts(stream(data, threads=threads)) == cells


def test_quotes_inside_a_cell_are_letters(tmp_path: Path) -> None:
    cells = ["5'9\"", 'a "b" c', '"x" y', 'x"', '"']
    data = b's,x\n5\'9",1\na "b" c,2\n"x" y,3\nx",4\n"""",5\n'
    assert [row[0] for row in texts(saved(tmp_path, data))] == [c if c != '"x" y' else "x y" for c in cells]


@pytest.mark.parametrize("skip", ["error", "skip"])
@pytest.mark.parametrize(
    "rows",
    [
        b'1,"abc\n2,d\n',
        b'1,"abc\n2,d\n3,"e"\n4,f\n',
        b'1,"abc\n"2",d\n',
        b'1,"a""\n' + b"2,d\n" * 1000,
    ],
    ids=["to the end", "to the next quote", "to a quoted first cell", "after a doubled quote"],
)
def test_an_unclosed_quote_is_an_error_never_fewer_rows(rows: bytes, skip: str, tmp_path: Path) -> None:
    part = saved(tmp_path, b"x,s\n0,ok\n" + rows, on_bad_row=skip)
    raised = error(part, ["x"])
    assert raised.message.startswith("t.csv, line 3: a quote is opened here and not closed")
    assert raised.hint


def test_an_unclosed_quote_in_a_large_file_is_found_without_reading_it_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scanner, "MAX_RECORD", 1 << 20)
    part = stream(b'x,s\n1,a\n2,"b\n' + b"3,c\n" * 5_000_000)
    assert error(part, ["x"]).message.startswith("t.csv, line 3: a quote is opened here")
    assert part.bytes_read < 9_000_000


# Rows that are none


@pytest.mark.parametrize("threads", [1, 2])
def test_a_ragged_row_is_named_by_its_line(threads: int) -> None:
    data = b"x,y\n" + b"1,2\n" * 49_998 + b"1,2,3\n" + b"1,2\n" * 10
    raised = error(stream(data, threads=threads), ["x"])
    assert raised.message == "t.csv, line 50000 (row 49999): 3 cells where there should be 2"
    assert raised.hint is not None
    assert "--on-bad-row skip" in raised.hint


def test_lines_are_counted_over_blank_lines_and_quoted_newlines() -> None:
    data = b'x,y\n\n1,"a\nb"\n\n1\n'
    assert error(stream(data), ["x"]).message == "t.csv, line 6 (row 2): 1 cell where there should be 2"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("threads", [1, 2])
def test_ragged_rows_under_skip_stay_in_their_places(threads: int) -> None:
    rng = np.random.default_rng(0)
    rows = [[str(i), str(i)] for i in range(400)]
    ragged = sorted(rng.choice(400, 60, replace=False).tolist())
    for i in ragged:
        rows[i] = rows[i][:1] if i % 2 else [*rows[i], "more"]
    part = stream(written([["x", "y"], *rows]), on_bad_row="skip", threads=threads, batch_rows=7)
    chunks = list(part.chunks(["y"], ["x"]))
    assert bad_rows(chunks) == ragged
    assert part.bad_rows == 60
    assert columns(chunks, ["y"])["y"] == [None if i in ragged else float(i) for i in range(400)]
    kept = [v for c in chunks if c.kept is not None for v in c.kept["x"].to_pylist()]
    assert kept == [None if i in ragged else str(i) for i in range(400)]


@pytest.mark.usefixtures("small_blocks")
def test_ragged_rows_and_words_under_skip_do_not_move_each_other() -> None:
    rows = [[str(i), str(i)] for i in range(200)]
    for i in range(0, 200, 7):
        rows[i] = ["only"]
    for i in range(3, 200, 11):
        rows[i] = [rows[i][0], "word"]
    part = stream(written([["x", "y"], *rows]), on_bad_row="skip")
    part.expect(numbers=["x", "y"])
    chunks = list(part.chunks(["x", "y"]))
    bad = {i for i, row in enumerate(rows) if row[-1] in ("only", "word")}
    assert set(bad_rows(chunks)) == bad
    assert columns(chunks, ["x"])["x"] == [None if i in bad else float(i) for i in range(200)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_blank_line_in_a_single_column_is_a_row(end: bytes) -> None:
    part = stream(end.join([b"x", b"1", b"", b"3", b"", b""]))
    assert numbers(part) == {"x": [1.0, None, 3.0, None]}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_blank_line_in_a_wider_table_is_no_row(end: bytes) -> None:
    part = stream(end.join([b"", b"x,y", b"", b"1,2", b"", b"", b"3,4", b"", b""]))
    assert numbers(part) == {"x": [1.0, 3.0], "y": [2.0, 4.0]}


def test_a_header_without_rows_has_no_rows() -> None:
    for data in (b"x,y\n", b"x,y", b"\xef\xbb\xbfx,y\r\n\r\n"):
        part = stream(data)
        assert types(part) == {"x": FLOAT, "y": FLOAT}
        assert list(part.chunks(["x"], ["y"])) == []


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_has_no_columns_and_no_rows(data: bytes, tmp_path: Path) -> None:
    part = saved(tmp_path, data)
    assert (part.rows, part.schema.names, list(part.chunks(["x"]))) == (0, [], [])
    assert part.fragments(["x"]) == []
    assert part.sample(5, []).num_rows == 0


def test_the_last_row_needs_no_newline() -> None:
    assert numbers(stream(b"x,y\n1,2\n3,4")) == {"x": [1.0, 3.0], "y": [2.0, 4.0]}


def test_bare_carriage_returns_end_rows() -> None:
    assert numbers(stream(b"x,y\r1,2\r3,4\r")) == {"x": [1.0, 3.0], "y": [2.0, 4.0]}


# Encodings


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("row", [1, 1000, 300_000])
@pytest.mark.parametrize("keep", [[], ["s"]])
def test_a_byte_that_does_not_decode_is_the_same_error_wherever_it_stands(
    row: int, keep: list[str], threads: int, tmp_path: Path
) -> None:
    rows = [b"1,abc,2\n"] * 300_000
    rows[row - 1] = b"1,caf\xe9,2\n"
    part = saved(tmp_path, b"x,s,y\n" + b"".join(rows), threads=threads)
    raised = error(part, ["x"], keep)
    assert raised.message == f"t.csv, line {row + 1} (row {row}): byte 0xe9 is not utf-8 text"
    assert raised.hint == "add --encoding latin-1, or the encoding the file was written in"


def test_a_byte_that_does_not_decode_in_the_header_is_that_error_too() -> None:
    with pytest.raises(DataError, match=r"^t\.csv, header: byte 0xe9 is not utf-8 text$"):
        stream(b"caf\xe9,y\n1,2\n")


@pytest.mark.parametrize("encoding", ["utf-16-le", "cp1252", "shift_jis", "ascii"])
def test_other_encodings_are_checked_alike(encoding: str) -> None:
    good = "x,s\n1,ab\n2,cd\n"
    wrong = {"utf-16-le": b"\x00\xdc", "cp1252": b"\x81", "shift_jis": b"\x81\x00", "ascii": b"\xc3\xa9"}
    data = (good + "3,").encode(encoding) + wrong[encoding] + "\n4,ef\n".encode(encoding)
    message = error(stream(data, encoding=encoding), ["x"], ["s"]).message
    assert message.startswith("t.csv, line 4 (row 3): ")
    assert f"not {encoding} text" in message.replace("_", "-").replace("shift-jis", "shift_jis")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides_the_encoding(encoding: str) -> None:
    data = "x,é\n1,2\n".encode(encoding)
    for asked in ("utf-8", "latin-1", encoding):
        part = stream(data, encoding=asked)
        assert numbers(part) == {"x": [1.0], "é": [2.0]}
        told = asked in (encoding, "utf-8" if encoding == "utf-8-sig" else encoding)
        assert any("byte order mark" in note for note in part.notes) != told


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_suspected(encoding: str) -> None:
    data = "x,y\n1,2\n3,4\n".encode(encoding)
    with pytest.raises(DataError, match="looks like UTF-16") as caught:
        stream(data)
    assert caught.value.hint == f"add --encoding {encoding}"
    assert numbers(stream(data, encoding=encoding)) == {"x": [1.0, 3.0], "y": [2.0, 4.0]}


@pytest.mark.parametrize("name", ["nope", "base64", "rot13", "hex", "", "utf-8\0"])
def test_an_unknown_encoding_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no such text encoding"):
        stream(b"x\n1\n", encoding=name)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_names_and_text_are_decoded(encoding: str, tmp_path: Path) -> None:
    part = saved(tmp_path, "größe;name\n1;Zoë\n".encode(encoding), encoding=encoding)
    assert texts(part, ["name", "größe"]) == [["Zoë", "1"]]


# Dialects


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x;y\n1;2\n", ["x", "y"]),
        ("x\ty\n1\t2\n", ["x", "y"]),
        ("x|y\n1|2\n", ["x", "y"]),
        ("x\n1\n", ["x"]),
        ("name;note\nA;one, two, three\nB;four, five\n", ["name", "note"]),
        ("name,note\nA,a;b\nB,c;d\n", ["name", "note"]),
        ('"a,b";"c,d"\n1;2\n', ["a,b", "c,d"]),
        ("x;y\n1,5;2,5\n3,5;4,5\n", ["x", "y"]),
        ("x,y\n1,2\n3;4\n5,6\n", ["x", "y"]),
        ('x,y\n"one\ntwo; three",4\n', ["x", "y"]),
        ("a b\tc d\n1, 2\t3\n4, 5\t6\n", ["a b", "c d"]),
    ],
)
def test_the_delimiter_is_found(text: str, names: list[str]) -> None:
    assert stream(text.encode()).schema.names == names


def test_one_column_that_looks_like_several_is_noted() -> None:
    for data, params in ((b"x;y\n1;2\n", {"delimiter": ","}), (b"x,y\n1,2\n", {"delimiter": ";"})):
        part = stream(data, **params)
        assert part.schema.names == [data[:3].decode()]
        assert "look separated by" in part.notes[0]


@pytest.mark.parametrize("delimiter", [",,", "", '"', "\n", "é", "\0"])
def test_a_delimiter_that_cannot_be_one_is_refused(delimiter: str) -> None:
    with pytest.raises(UsageError, match="--delimiter"):
        stream(b"x\n1\n", delimiter=delimiter)


@pytest.mark.parametrize("delimiter", ["\t", "\\t", "tab"])
def test_a_tab_can_be_spelled(delimiter: str) -> None:
    assert numbers(stream(b"x\ty\n1\t2\n", delimiter=delimiter)) == {"x": [1.0], "y": [2.0]}


def test_a_decimal_comma_is_read_and_a_point_is_then_no_number() -> None:
    assert numbers(stream(b"x;y\n1,5;-2,5e3\n", decimal=",")) == {"x": [1.5], "y": [-2500.0]}
    assert numbers(stream(b'"x","y"\n"1,5","2,5"\n', decimal=",")) == {"x": [1.5], "y": [2.5]}
    assert numbers(stream(b"1,5\n2,5\n", decimal=",", header=False)) == {"column_1": [1.5, 2.5]}
    part = stream(b"x;y\n1,5;2\n1.5;2\n", decimal=",")
    part.expect(numbers=["x"])
    assert error(part, ["x"]).message == 't.csv, line 3 (row 2), column "x": "1.5" is not a number'


def test_decimal_commas_that_nobody_asked_for_are_suspected() -> None:
    part = stream(b"x;y\n1,5;1\n2,5;2\n3,5;3\n4,5;4\n")
    assert part.notes == ['t.csv: "x": these look like numbers with a decimal comma (--decimal ,)']
    part.expect(numbers=["x"])
    assert error(part, ["x"]).hint == "add --decimal ',' or --on-bad-row skip"


def test_a_decimal_point_must_be_a_point_or_a_comma() -> None:
    with pytest.raises(UsageError, match="--decimal"):
        stream(b"x\n1\n", decimal=";")


def test_a_header_of_numbers_is_noted_and_no_header_keeps_the_row() -> None:
    part = stream(b"1,2\n3,4\n")
    assert "--no-header" in part.notes[0]
    assert numbers(part) == {"1": [3.0], "2": [4.0]}
    assert numbers(stream(b"1,2\n3,4\n", header=False)) == {"column_1": [1.0, 3.0], "column_2": [2.0, 4.0]}


def test_several_columns_of_one_name_are_told_with_their_places() -> None:
    part = stream(b"x,y,x,x\n1,2,a,4\n")
    assert part.repeated == {"x": (1, 3, 4)}
    assert types(part) == {"x": FLOAT, "y": FLOAT}  # one of them is a number
    assert numbers(part, ["y"]) == {"y": [2.0]}


def test_a_name_nearly_right_gets_a_suggestion() -> None:
    with pytest.raises(DataError, match='no column "petal width"') as caught:
        stream(b"petal_width, Petal Width \n1,2\n").chunks(["petal width"])
    assert caught.value.hint is not None
    assert '" Petal Width "' in caught.value.hint


def test_columns_without_a_name_are_called_by_their_place() -> None:
    assert stream(b",x,\n0,1,2\n").schema.names == ["column_1", "x", "column_3"]


def test_a_delimiter_at_the_end_of_each_line_makes_no_feature() -> None:
    assert types(stream(b"x,y,\n1,,\n2,,\n")) == {"x": FLOAT, "y": FLOAT, "column_3": TEXT}


# Large and damaged


@pytest.mark.parametrize(("row", "make"), [(0, "stream"), (1, "file"), (500, "file")])
def test_a_cell_of_two_megabytes_is_read(row: int, make: str, tmp_path: Path) -> None:
    cells = [[str(i), "text"] for i in range(600)]
    cells[row][1] = 'line\n"' * 340_000
    data = written([["x", "s"], *cells])
    part = stream(data) if make == "stream" else saved(tmp_path, data)
    assert types(part) == {"x": FLOAT, "s": TEXT}
    assert texts(part) == cells


@pytest.mark.long
def test_a_header_of_a_hundred_thousand_columns_is_read(tmp_path: Path) -> None:
    names = [f"measurement_{i}" for i in range(100_000)]
    row = ",".join(str(i % 10) for i in range(100_000))
    part = saved(tmp_path, "\n".join([",".join(names), row, row]).encode(), delimiter=",")
    assert part.schema.names == names
    wanted = ["measurement_99999", "measurement_7"]
    assert numbers(part, wanted) == {"measurement_99999": [9.0, 9.0], "measurement_7": [7.0, 7.0]}


@pytest.mark.parametrize(
    ("tail", "place"),
    [(b"\0" * 4096, "line 4 (row 3)"), (b"5,\0\0\0\0", "line 4 (row 3)"), (b"\0\0,\0\0\n", "line 4 (row 3)")],
    ids=["a block of them", "in the last cell", "a row of them"],
)
def test_nul_bytes_after_a_crash_are_named(tail: bytes, place: str) -> None:
    part = stream(b"x,y\n1,2\n3,4\n" + tail)
    part.expect(numbers=["x", "y"])
    raised = error(part, ["x", "y"])
    assert f"t.csv, {place}" in raised.message
    assert "NUL" in raised.message
    part = stream(b"x,y\n1,2\n3,4\n" + tail, on_bad_row="skip")
    part.expect(numbers=["x", "y"])
    assert bad_rows(list(part.chunks(["x", "y"]))) == [2]


def test_nul_bytes_in_text_are_kept_and_noted() -> None:
    part = stream(b"x,s\n1,a\0b\n")
    assert texts(part) == [["1", "a\0b"]]
    assert "NUL" in part.notes[0]


def test_nul_bytes_in_the_header_are_an_error() -> None:
    with pytest.raises(DataError, match="NUL"):
        stream(b"x,y\0\0\0\n1,2\n")


# Streams, chunks, fragments, samples


def test_a_stream_is_read_once_and_only_once() -> None:
    part = stream(b"x\n1\n")
    assert part.sample().num_rows == 1
    assert numbers(part) == {"x": [1.0]}
    with pytest.raises(DataError, match="once"):
        part.chunks(["x"])


def test_a_stream_that_gives_little_at_a_time_is_read_whole() -> None:
    class Drip(io.BytesIO):
        def read(self, n: int | None = -1) -> bytes:
            return super().read(min(n or 0, 7))

    part = csv_file.CsvPart("t.csv", lambda: Drip(b"x,y\n" + b"1,2\n" * 5000), SourceParams(), False)
    assert len(numbers(part)["x"]) == 5000


def test_a_sampled_stream_gives_its_first_rows_again() -> None:
    data = b"x,s\n" + b"".join(b"%d,word %d\n" % (i, i) for i in range(200_000))
    part = stream(data)
    assert part.sample(150_000).num_rows == 150_000
    assert part.sample(10, ["s"]).to_pydict() == {"s": [f"word {i}" for i in range(10)]}
    assert numbers(part)["x"] == [float(i) for i in range(200_000)]


def test_a_sample_has_nulls_where_reading_would_fail(tmp_path: Path) -> None:
    part = saved(tmp_path, b"x,s\n1,a\n2\nword,b\n3,caf\xe9\n4,NA\n")
    part.expect(numbers=["x"])
    assert part.sample().to_pydict() == {
        "x": [1.0, None, None, 3.0, 4.0],
        "s": ["a", None, None, "caf�", None],
    }


def test_missing_spellings_are_missing_in_a_feature_and_text_in_a_kept_column() -> None:
    part = stream(b"s,t\nNA,1\n,2\nred,3\n")
    chunks = list(part.chunks(["s", "t"], ["s", "t"]))
    assert columns(chunks, ["s", "t"]) == {"s": [None, None, "red"], "t": [1.0, 2.0, 3.0]}
    assert chunks[0].kept is not None
    assert chunks[0].kept.to_pydict() == {"s": ["NA", "", "red"], "t": ["1", "2", "3"]}


@pytest.mark.parametrize("batch_rows", [1, 1000, 65536])
def test_chunks_hold_no_more_rows_than_asked_and_say_where_they_are(batch_rows: int) -> None:
    part = stream(b"x\n" + b"1\n" * 3001, batch_rows=batch_rows)
    sizes, places = [], []
    for chunk in part.chunks(["x"]):
        sizes.append(chunk.features.num_rows)
        assert chunk.origin is not None
        places.append(chunk.origin[1])
    assert max(sizes) <= batch_rows
    assert places == [sum(sizes[:i]) for i in range(len(sizes))]
    assert sum(sizes) == 3001


def test_rows_behind_the_limit_are_not_looked_at(tmp_path: Path) -> None:
    data = b"x,y\n" + b"1,2\n" * 10 + b"1,2,3\nword,2\n"
    for threads in (1, 2):
        part = saved(tmp_path, data, max_rows=10, threads=threads)
        assert len(numbers(part)["x"]) == 10
        assert part.fragments(["x"]) is None
        assert error(saved(tmp_path, data, max_rows=11), ["x"]).message.startswith("t.csv, line 12")


def test_no_columns_at_all_still_give_rows() -> None:
    assert sum(c.features.num_rows for c in stream(b"x\n1\n2\n").chunks([])) == 2


@pytest.mark.usefixtures("small_blocks")
def test_fragments_hold_the_rows_of_the_file_once_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts_ = ["a", "b,c", 'd"e', "f\ng", "\r\n", ""]
    rows = [[i, texts_[k]] for i, k in enumerate(rng.integers(0, 6, 5000))]
    part = saved(tmp_path, b"\xef\xbb\xbf" + written([["x", "s"], *rows]))
    fragments = part.fragments(["x", "s"])
    assert fragments is not None
    assert len(fragments) >= 50
    assert max(p.size for p in fragments) < 3 * min(p.size for p in fragments[:-1])
    whole = columns(part.chunks(["x", "s"]), ["x", "s"])
    assert columns((c for p in fragments for c in p.chunks()), ["x", "s"]) == whole
    assert whole["x"] == [float(i) for i in range(5000)]
    assert columns(fragments[7].chunks(), ["x"]) == columns(fragments[7].chunks(), ["x"])


def test_a_fault_in_a_fragment_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    rows = [b"1,2\n"] * 5000
    rows[4000] = b"1,word\n"
    rows[4500] = b"1\n"
    part = saved(tmp_path, b"x,y\n\n" + b"".join(rows))
    fragments = part.fragments(["x", "y"])
    assert fragments is not None
    found = []
    for fragment in fragments:
        try:
            list(fragment.chunks())
        except DataError as raised:
            found.append(raised.message)
    assert found == [
        't.csv, line 4003 (row 4001), column "y": "word" is not a number',
        "t.csv, line 4503 (row 4501): 1 cell where there should be 2",
    ]


def test_there_are_no_fragments_where_the_file_cannot_be_sought_in(tmp_path: Path) -> None:
    assert stream(b"x\n1\n").fragments(["x"]) is None
    assert saved(tmp_path, gzip.compress(b"x\n1\n")).fragments(["x"]) is None
    assert saved(tmp_path, "x\n1\n".encode("utf-16")).fragments(["x"]) is None
    assert saved(tmp_path, "é\n1\n".encode("latin-1"), encoding="latin-1").fragments(["é"]) is not None


def test_two_readings_at_a_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    part = saved(tmp_path, b"x\n" + b"".join(b"%d\n" % i for i in range(10)), batch_rows=1)
    pairs = [
        (a.features["x"][0].as_py(), b.features["x"][0].as_py())
        for a, b in zip(part.chunks(["x"]), part.chunks(["x"]), strict=True)
    ]
    assert pairs == [(float(i), float(i)) for i in range(10)]


def test_a_reading_left_early_lets_go_of_file_and_threads(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"x\n" + b"1\n" * 3_000_000)
    opened: list[BinaryIO] = []

    def opener() -> BinaryIO:
        opened.append(path.open("rb"))
        return opened[-1]

    chunks: Any = csv_file.CsvPart("t.csv", opener, SourceParams(threads=2), True).chunks(["x"])
    next(chunks)
    assert any(t.name.startswith("imdh-parse") for t in threading.enumerate())
    chunks.close()
    assert not any(t.name.startswith("imdh-parse") for t in threading.enumerate())
    assert len(opened) > 1
    assert all(file.closed for file in opened)


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_stays_flat(threads: int, tmp_path: Path) -> None:
    data = b"x,y,s\n" + b"1.5,2.5,some text\n" * 2_500_000  # 45 MB
    part = saved(tmp_path, data, threads=threads)
    del data
    tracemalloc.start()
    try:
        before = pa.total_allocated_bytes()
        most = 0
        for _ in part.chunks(["x", "y"], ["s"]):
            most = max(most, pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert most < 40 << 20


def test_a_mark_at_the_start_of_a_block_is_a_letter_of_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "BLOCK", 8)
    cells = [["a", "1"], ["\ufeffb", "2"], ["\ufeff", "3"], ["\ufeff\ufeffc", "4"]]
    assert texts(stream(written([["s", "x"], *cells]))) == cells


def test_a_fault_before_a_byte_that_does_not_decode_is_reported_first() -> None:
    part = stream(b"x,s\n1,a\n2\n3,\xff\n")
    assert error(part, ["x"]).message == "t.csv, line 3 (row 2): 1 cell where there should be 2"
    part = stream(b"x,s\n1,a\n2\n3,\xff\n", max_rows=1)
    assert numbers(part, ["x"]) == {"x": [1.0]}


def test_a_file_cut_while_its_fragments_are_read_is_an_error(tmp_path: Path) -> None:
    part = saved(tmp_path, b"x\n" + b"1\n" * 10_000)
    fragments = part.fragments(["x"])
    assert fragments is not None
    (tmp_path / "t.csv").write_bytes(b"x\n1\n")
    with pytest.raises(DataError, match="shorter while it was read"):
        list(fragments[-1].chunks())


def test_a_delimiter_that_ends_every_row_but_the_header_makes_an_empty_column(tmp_path: Path) -> None:
    part = saved(tmp_path, b"a,b\n1,2,\n3,4,\n")
    assert types(part) == {"a": FLOAT, "b": FLOAT, "column_3": TEXT}
    assert numbers(part) == {"a": [1.0, 3.0], "b": [2.0, 4.0]}


def test_a_delimiter_that_ends_some_rows_only_makes_them_too_long() -> None:
    assert "line 3 (row 2): 3 cells" in error(stream(b"a,b\n1,2\n3,4,\n"), ["a"]).message


@pytest.mark.parametrize("first", [b"sep=;\n", b"sep=;\r\n", b'"sep=;"\n', b"SEP=;\n"])
def test_the_line_in_which_excel_names_the_delimiter_is_no_header(first: bytes, tmp_path: Path) -> None:
    data = first + b"a;b\n1;2\n3;4\n"
    for part in (saved(tmp_path, data), stream(data)):
        assert numbers(part) == {"a": [1.0, 3.0], "b": [2.0, 4.0]}
    assert error(stream(data + b"5\n"), ["a"]).message.startswith("t.csv, line 5 (row 3): ")
    assert numbers(stream(first + b"1;2\n3;4\n", header=False))["column_2"] == [2.0, 4.0]


def test_the_line_in_which_excel_names_the_delimiter_may_be_all() -> None:
    assert stream(b"sep=;\n").rows == 0


@pytest.mark.parametrize(
    ("data", "params", "hint"),
    [
        (b'a,b\n1,2\n1,2\n1,2\n"1,5",2\n', {}, "write the number with a point"),
        (b"a;b\n1;2\n1;2\n1;2\n1.234,5;2\n", {}, "add --decimal , --parse a"),
        (b"a,b\n1,2\n3,4\n5,6\n", {"header": False}, "drop --no-header"),
        (b"a,b\n1,2\nx,4\n5,6\n7,8\n", {}, "-x a"),
    ],
)
def test_the_hint_is_one_that_works(data: bytes, params: dict[str, Any], hint: str) -> None:
    part = stream(data, **params)
    assert hint in (error(part, part.schema.names[:2]).hint or "")


def test_true_and_false_are_1_and_0(tmp_path: Path) -> None:
    """As pandas writes columns of 0 and 1; not beside other words, or numbers. Kept, they are as written."""
    part = saved(tmp_path, b"x,y,z,w\n1,True,true,true\n2,False,no,0\n3,,yes,1\n4,TRUE,false,0\n")
    assert types(part) == {"x": FLOAT, "y": FLOAT, "z": TEXT, "w": FLOAT}
    assert numbers(part, "xy")["y"] == [1.0, 0.0, None, 1.0]
    chunk = next(iter(part.chunks(["x", "y"], ["y"])))
    assert chunk.kept.column("y").to_pylist() == ["True", "False", "", "TRUE"]


def test_true_and_false_are_numbers_where_a_model_wants_some(tmp_path: Path) -> None:
    part = saved(tmp_path, b"x,y\n1,true\n2,False\n3,\n4,no\n")
    assert types(part)["y"] == TEXT
    part = saved(tmp_path, b"x,y\n1,true\n2,False\n3,\n4,TRUE\n")
    part.expect(numbers=["x", "y"])
    assert numbers(part)["y"] == [1.0, 0.0, None, 1.0]
    assert part.sample().column("y").to_pylist() == [1.0, 0.0, None, 1.0]


def test_a_model_s_column_is_not_to_be_left_out() -> None:
    part = stream(b"x\n1\n2\n3\nword\n")
    part.expect(numbers=["x"])
    assert error(part, ["x"]).hint == "add --null-value word, or --on-bad-row skip"
