"""Any table that Python's csv module writes, in any dialect the options cover, comes back equal."""

from __future__ import annotations

import csv
import math
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import assume, example, given
from hypothesis import strategies as st

from imdh_cli.sources.csv import file as csv_file
from tests.csv_files import bad_rows, columns, error, read_by_csv, saved, stream, texts, written
from tests.test_csv_scanner import letter_by_letter

ENCODINGS = ("utf-8", "utf-8-sig", "latin-1", "cp1252", "koi8-r", "utf-16", "utf-16-be", "utf-32", "gb18030")


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Names, cells (numbers and text, some missing) and a dialect to write them in."""
    encoding = draw(st.sampled_from(ENCODINGS))
    # A NUL in a header is refused, and a byte order mark at the very start of a file is one.
    letters = st.one_of(
        st.sampled_from('",;\t|\n\r a1-'),
        st.characters(codec="utf-8" if encoding == "utf-8-sig" else encoding, exclude_characters="\0\ufeff"),
    )
    word = st.text(letters, max_size=8)
    n_columns = draw(st.integers(1, 4))
    n_rows = draw(st.integers(0, 12))
    kinds = draw(st.lists(st.sampled_from(["number", "text"]), min_size=n_columns, max_size=n_columns))
    number = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-(10**17), 10**17))
    cells = {"number": number, "text": word}
    return {
        "encoding": encoding,
        "kinds": kinds,
        "names": draw(st.lists(word.filter(bool), min_size=n_columns, max_size=n_columns, unique=True)),
        "rows": [[draw(cells[kind]) for kind in kinds] for _ in range(n_rows)],
        "header": n_rows == 0 or draw(st.booleans()),
        "delimiter": draw(st.sampled_from(",;\t|")),
        "decimal": draw(st.sampled_from(".,")),
        "quoting": draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        "lineterminator": draw(st.sampled_from(["\n", "\r\n", "\r"])),
        "block": draw(st.sampled_from([1, 7, 50, 1 << 20])),
        "options": {
            "threads": draw(st.sampled_from([1, 2])),
            "batch_rows": draw(st.sampled_from([1, 3, 65536])),
        },
    }


@given(tables())
def test_a_table_comes_back_equal(table: dict[str, Any]) -> None:
    def as_text(cell: Any) -> str:
        if isinstance(cell, float | int):
            return repr(cell).replace(".", table["decimal"])
        return cell or ""

    rows = [[as_text(cell) for cell in row] for row in table["rows"]]
    names = table["names"] if table["header"] else [f"column_{i + 1}" for i in range(len(table["kinds"]))]
    # Python before 3.13 leaves a line end that is not the file's own without quotes.
    loose = table["lineterminator"] != "\r\n" and any(set("\r\n") & set(c) for r in [names, *rows] for c in r)
    data = written(
        [*([table["names"]] if table["header"] else []), *rows],
        delimiter=table["delimiter"],
        quoting=csv.QUOTE_ALL if loose else table["quoting"],
        lineterminator=table["lineterminator"],
    )
    data = data.decode().encode(table["encoding"])
    options = {k: table[k] for k in ("encoding", "delimiter", "decimal", "header")} | table["options"]
    numeric = [n for n, kind in zip(names, table["kinds"], strict=True) if kind == "number"]
    expected = {
        n: [None if r[i] is None else float(r[i]) for r in table["rows"]]
        for i, (n, kind) in enumerate(zip(names, table["kinds"], strict=True))
        if kind == "number"
    }
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(csv_file, "BLOCK", table["block"]):
        for part in (saved(Path(folder), data, **options), stream(data, **options)):
            assert part.schema.names == names
            assert {part.schema.field(n).type for n in numeric} <= {pa.float64()}
            chunks = list(part.chunks(numeric, names))
            assert columns(chunks, numeric) == expected
            assert [r for c in chunks for r in zip(*c.kept.to_pydict().values(), strict=True)] == [
                tuple(row) for row in rows
            ]
            fragments = part.fragments(numeric)
            if fragments is not None:
                assert columns((c for p in fragments for c in p.chunks()), numeric) == expected


@given(st.lists(st.floats(), min_size=1, max_size=50))
def test_a_float_written_by_repr_is_read_to_the_last_bit(values: list[float]) -> None:
    found = columns(stream(written([["x"], *([repr(v)] for v in values)])).chunks(["x"]), ["x"])["x"]
    # NaN is one of the spellings of a missing value.
    assert found == [None if math.isnan(v) else v for v in values]


def test_kept_text_is_what_the_csv_module_reads(tmp_path: Path) -> None:
    cells = ["00501", "1.10", " a ", 'say "hi"', "two\nlines", "two\r\nlines", "a,b", "", "NA", "é", "1e5"]
    rows = [[cell, str(i)] for i, cell in enumerate(cells)]
    assert texts(saved(tmp_path, written([["x", "y"], *rows]))) == rows


messy = st.lists(st.sampled_from(['"', '""', ",", "\n", "\r\n", "\r", "1", "n/a", " "]), max_size=40)


@given(messy.map("".join), st.sampled_from([1, 5, 1 << 20]), st.sampled_from([1, 2]))
@example('"1\n', 1, 1)
@example("1,1\r\n\r\n1", 1, 1)
def test_whatever_the_text_rows_are_those_of_the_csv_module(text: str, block: int, threads: int) -> None:
    body = text.encode()
    _, unclosed = letter_by_letter(body)
    if not unclosed:  # a delimiter that ends every row, but not the header, is read as a third column
        rows = read_by_csv(body)
        assume(not rows or not all(len(row) == 3 and not row[2] for row in rows))
    part = stream(b"a,b\n" + body, delimiter=",", on_bad_row="skip", threads=threads)
    part.expect(numbers=["b"], texts=["a"])
    with mock.patch.object(csv_file, "BLOCK", block):
        if unclosed:
            assert "quote" in error(part, ["b"], ["a", "b"]).message
            return
        chunks = list(part.chunks(["b"], ["a", "b"]))
    rows = read_by_csv(body)
    kept = [r for c in chunks for r in zip(*c.kept.to_pydict().values(), strict=True)]
    assert kept == [tuple(row) if len(row) == 2 else (None, None) for row in rows]
    bad = [i for i, row in enumerate(rows) if len(row) != 2 or row[1].strip().strip("1")]
    assert bad_rows(chunks) == bad
    assert part.bad_rows == len(bad)
