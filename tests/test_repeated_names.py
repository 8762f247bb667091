"""Several columns of one name: an error where they are used, and a note where nobody asks for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import imdh_cli
from imdh_cli.errors import DataError
from tests.cli import imdh, metadata
from tests.tables import arrow, arrow_stream, features_of, opened, orc, parquet

X = np.random.default_rng(0).normal(size=(60, 4)).round(3)
WORDS = [f"w{i % 3}" for i in range(60)]
NAMES = ["a", "note", "b", "c", "note", "c"]
TABLE = pa.Table.from_arrays([pa.array(v) for v in (X[:, 0], WORDS, X[:, 1], X[:, 2], WORDS, X[:, 3])], NAMES)


def csv(path: Path, table: pa.Table, sep: str = ",") -> str:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [sep.join(table.column_names), *(sep.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def tsv(path: Path, table: pa.Table) -> str:
    return csv(path, table, "\t")


def stream(path: Path, table: pa.Table) -> str:
    path.write_bytes(arrow_stream(table))
    return str(path)


WRITERS: dict[str, Callable[[Path, pa.Table], str]] = {
    "t.csv": csv, "t.tsv": tsv, "t.parquet": parquet, "t.arrow": arrow, "t.arrows": stream, "t.orc": orc,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_what_nobody_asks_for_may_have_the_name_of_another(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path / name, TABLE)
    plain = parquet(tmp_path / "plain.parquet", pa.table({"a": X[:, 0], "b": X[:, 1]}))
    imdh("fit", plain, "-o", tmp_path / "plain.npz", "-q")
    for k, words in enumerate((["-x", "c"], ["-c", "a,b"])):
        done = imdh("fit", path, *words, "-o", tmp_path / f"{k}.npz")
        said = (
            f'{name}: several columns of one name cannot be used: "note" (columns 2 and 5) and "c" (columns 4'
        )
        assert said in " ".join(done.err.split())
        assert metadata(tmp_path / f"{k}.npz")["features"] == metadata(tmp_path / "plain.npz")["features"]
        got = imdh("assign", tmp_path / f"{k}.npz", path, "-q").out
        assert got == imdh("assign", tmp_path / "plain.npz", plain, "-q").out


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("words", "twice", "places"),
    [
        ("", "c", "4 and 6"),
        ("-c a,c", "c", "4 and 6"),
        ("-x c --categorical onehot", "note", "2 and 5"),
        ("-x c --onehot note", "note", "2 and 5"),
    ],
)
def test_what_is_used_may_not(name: str, words: str, twice: str, places: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path / name, TABLE)
    refused = imdh("fit", path, *words.split(), "-o", tmp_path / "m.npz", status=3)
    assert f'{name}: 2 columns are called "{twice}": columns {places}' in refused.err
    hint = re.search(r"fit with (-x \S+)", refused.err)
    assert hint
    if not words:
        imdh("fit", path, *shlex.split(hint[1]), "-o", tmp_path / "m.npz")


@pytest.mark.parametrize("name", WRITERS)
def test_they_are_not_kept_by_that_name_nor_labelled_by(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path / name, TABLE)
    imdh("fit", path, "-x", "c", "-o", tmp_path / "m.npz", "-q")
    assert 'are called "c"' in imdh("assign", tmp_path / "m.npz", path, "--keep", "c", status=3).err
    assert 'are called "note"' in imdh("assign", tmp_path / "m.npz", path, "--keep-all", status=3).err
    kept = imdh("assign", tmp_path / "m.npz", path, "--keep", "b", "-q").text.splitlines()
    assert [float(line.partition(",")[0]) for line in kept[1:]] == X[:, 1].tolist()
    once = csv(tmp_path / "once.csv", pa.table({"a": X[:, 0], "c": X[:, 1]}))
    imdh("fit", once, "-o", tmp_path / "c.npz", "-q")
    assert 'are called "c"' in imdh("assign", tmp_path / "c.npz", path, status=3).err


def test_the_file_that_has_them_is_named(tmp_path: Path) -> None:
    csv(tmp_path / "1.csv", pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}))
    csv(tmp_path / "2.csv", TABLE)
    source = opened(tmp_path)
    with pytest.raises(DataError, match=r'2\.csv: 2 columns are called "c": columns 4 and 6'):
        source.chunks(["a", "c"])
    assert features_of(source.chunks(["b"])).column("b").to_pylist() == X[:, 1].tolist() * 2


def test_a_first_line_of_data_with_equal_cells_is_told_from_a_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,1,2\n" + "".join(f"{a},{b},{c}\n" for a, b, c, _ in X))
    refused = imdh("fit", tmp_path / "t.csv", status=3)
    assert "hint: if the first line is data, add --no-header" in refused.err
    done = imdh("fit", tmp_path / "t.csv", "--no-header", "-o", tmp_path / "m.npz")
    assert "61 rows used of 61, 3 features" in done.err


def test_a_name_that_the_program_gives_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("column_3,b,\n" + "".join(f"{a},{b},x\n" for a, b, *_ in X))
    assert 'are called "column_3": columns 1 and 3' in imdh("fit", tmp_path / "t.csv", status=3).err
    assert "1 feature" in imdh("fit", tmp_path / "t.csv", "-c", "b", "-o", tmp_path / "m.npz").err


def test_a_table_in_memory_follows_the_same_rule() -> None:
    model = imdh_cli.fit(TABLE, exclude=["c"])
    assert model.feature_names == ["a", "b"]
    with pytest.raises(DataError, match='2 columns are called "c"'):
        imdh_cli.fit(TABLE)


def test_a_record_with_two_values_of_a_field_is_an_error_where_it_is_asked_for(tmp_path: Path) -> None:
    lines = [f'{{"a": {a}, "b": {b}, "c": {c}}}' for a, b, c, _ in X]
    lines[41] = '{"a": 1, "b": 2, "c": 3, "c": 4}'
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    refused = imdh("fit", tmp_path / "t.jsonl", status=3)
    assert 't.jsonl, line 42: "c" has two values' in refused.err
    done = imdh("fit", tmp_path / "t.jsonl", "-x", "c", "-o", tmp_path / "m.npz")
    assert "60 rows used of 60, 2 features" in done.err
    assert '"c" with several values in a record' in done.err
    skipped = imdh("fit", tmp_path / "t.jsonl", "--on-bad-row", "skip", "-o", tmp_path / "n.npz")
    assert "59 rows used of 60" in skipped.err
