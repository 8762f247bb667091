"""`imdh sql` at the command line: what is written where, and what --check says."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imdh_cli.export import check
from tests.cli import blobs, csv_text, imdh, labels, one_line_error, write


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A folder with data.parquet and data.csv, the same rows, some of them broken; and m.npz."""
    folder = tmp_path_factory.mktemp("sql")
    X, which = blobs(3000, k=5, d=3)
    write(folder / "fit.parquet", X, kind=pa.array(np.array(["a", "b", "c", "d", "e"])[which]))
    imdh("fit", folder / "fit.parquet", "--categorical", "onehot", "-k", 5, "-o", folder / "m.npz")
    columns = {f"x{j + 1}": pa.array(X[:, j], mask=np.arange(3000) % 50 == j) for j in range(3)}
    kinds = np.where(np.arange(3000) % 70 == 0, "new", np.array(["a", "b", "c", "d", "e"])[which])
    table = pa.table({"id": np.arange(3000), **columns, "kind": kinds})
    pq.write_table(table, folder / "data.parquet", row_group_size=700)
    (folder / "data.csv").write_text(csv_text(table))
    return folder


def test_the_query_runs_where_the_data_are(world, tmp_path):
    """From stdout, over a file, with another name and number of clusters."""
    ran = imdh("sql", world / "m.npz", "-k", 3, "--table", f"'{world}/data.parquet'", "--name", "group")
    assert ran.err == ""
    found = duckdb.sql(ran.text).to_arrow_table()
    assert found.column_names == ["id", "x1", "x2", "x3", "kind", "group"]
    imdh("assign", world / "m.npz", world / "data.parquet", "-k", 3, "-o", tmp_path / "l.parquet")
    assert np.array_equal(found.column("group").to_numpy(), labels(tmp_path / "l.parquet"))


def test_the_expression_stands_alone(world, tmp_path):
    case = imdh("sql", world / "m.npz", "--expression", "--missing", "mean").text
    found = duckdb.sql(f"SELECT {case} AS cluster FROM '{world}/data.parquet'").fetchnumpy()["cluster"]
    imdh("assign", world / "m.npz", world / "data.parquet", "--missing", "mean", "-o", tmp_path / "l.parquet")
    assert np.array_equal(found, labels(tmp_path / "l.parquet"))


def test_a_file_is_written_whole_and_not_over_another(world, tmp_path):
    out = tmp_path / "labels.sql"
    ran = imdh("sql", world / "m.npz", "--dialect", "bigquery", "-o", out)
    assert ran.text == ""
    assert ran.err.startswith(f"wrote {out}, ")
    assert out.read_text() == imdh("sql", world / "m.npz", "--dialect", "bigquery", "-o", "-").text
    assert out.read_text().startswith("-- 5 clusters of the model m.npz, by 4 cuts")
    assert "exists" in one_line_error(imdh("sql", world / "m.npz", "-o", out, status=2).err)
    imdh("sql", world / "m.npz", "-o", out, "-f", "-q")
    assert "duckdb" in out.read_text()
    words = ["sql", world / "m.npz", "-o", world / "m.npz", "-f"]
    assert "also an input" in one_line_error(imdh(*words, status=2).err)


@pytest.mark.parametrize("data", ["data.parquet", "data.csv"])
@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_check_compares_row_for_row_and_prints_no_sql(world, data, missing):
    ran = imdh("sql", world / "m.npz", "--check", world / data, "--missing", missing)
    assert ran.text == ""
    assert ran.err.splitlines()[-1] == "the same labels in DuckDB for 3,000 rows"


def test_check_reads_as_the_other_commands_do(world):
    """Options for reading, a stream, and rows that are passed over."""
    text = (world / "data.csv").read_text().replace(",", ";").encode() + b"1;2\n"
    words = ["sql", world / "m.npz", "--check", "-", "--on-bad-row", "skip", "--delimiter", ";"]
    ran = imdh(*words, "--batch-rows", 500, stdin=text)
    assert ran.err.splitlines()[-1] == "the same labels in DuckDB for 3,000 rows"


def test_fields_within_structs_are_columns_of_their_name(world, tmp_path):
    """--check has them as assign reads them; a query is told where they are."""
    X, _ = blobs(500, k=3, d=2)
    place = pa.StructArray.from_arrays([pa.array(X[:, 0]), pa.array(X[:, 1])], names=["lat", "lon"])
    pq.write_table(pa.table({"place": place}), tmp_path / "t.parquet")
    imdh("fit", tmp_path / "t.parquet", "-c", "place.lat,place.lon", "-k", 3, "-o", tmp_path / "m.npz")
    ran = imdh("sql", tmp_path / "m.npz", "--check", tmp_path / "t.parquet")
    assert ran.err.splitlines()[-1] == "the same labels in DuckDB for 500 rows"
    names = ", ".join(f'place.{name} AS "place.{name}"' for name in ("lat", "lon"))
    table = f"(SELECT {names} FROM '{tmp_path}/t.parquet')"
    found = duckdb.sql(imdh("sql", tmp_path / "m.npz", "--table", table).text).fetchnumpy()["cluster"]
    imdh("assign", tmp_path / "m.npz", tmp_path / "t.parquet", "-o", tmp_path / "l.parquet")
    assert np.array_equal(found, labels(tmp_path / "l.parquet"))


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16(), pa.int32()])
def test_vectors_are_lists(tmp_path, kind):
    """Of a fixed size, as text, and as lists, some of which have another length."""
    X, _ = blobs(500, k=3, d=6)
    flat = pa.array(np.rint(30 * X).ravel()).cast(kind, safe=False)
    vectors = pa.FixedSizeListArray.from_arrays(flat, 6)
    cells = vectors.to_pylist()
    cells[3], cells[5] = cells[3][:4], None
    tables = {
        "fixed": pa.table({"v": vectors}),
        "lists": pa.table({"v": pa.array(cells, pa.list_(pa.float64()))}),
        "text": pa.table({"v": pa.array([None if cell is None else str(cell) for cell in cells])}),
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    imdh("fit", tmp_path / "fixed.parquet", "-c", "v", "-k", 3, "-o", tmp_path / "m.npz")
    for name, rows in (("fixed", 500), ("lists", 499), ("text", 499)):
        words = ["--check", tmp_path / f"{name}.parquet", "--on-bad-row", "skip"]
        ran = imdh("sql", tmp_path / "m.npz", *words)
        assert ran.err.splitlines()[-1] == f"the same labels in DuckDB for {rows} rows"


def test_check_tells_of_another_label_and_writes_nothing(world, tmp_path, monkeypatch):
    """A query that sends one row elsewhere: by number, with both labels, and status 1."""
    imdh("assign", world / "m.npz", world / "data.parquet", "-o", tmp_path / "l.parquet")
    truth = labels(tmp_path / "l.parquet")
    right = check.query

    def wrong(*args, **more):
        inner = right(*args, **more)
        label = f"CASE WHEN x2 = {x2!r} THEN 99 ELSE imdh_label END"
        return f"SELECT * REPLACE ({label} AS imdh_label) FROM ({inner})"

    x2 = float(pq.read_table(world / "data.parquet").column("x2")[2222].as_py())
    monkeypatch.setattr(check, "query", wrong)
    words = ["sql", world / "m.npz", "--check", world / "data.parquet", "-o", tmp_path / "l.sql"]
    ran = imdh(*words, "--batch-rows", 1000, status=1)
    said = one_line_error(ran.err)
    assert said.startswith("another label in SQL for 1 row of 3,000; the first is row 2223: ")
    assert said.endswith(f"{truth[2222]} by imdh assign, 99 by SQL")
    assert not (tmp_path / "l.sql").exists()


def test_check_without_duckdb_says_what_to_install(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    ran = imdh("sql", world / "m.npz", "--check", world / "data.parquet", status=2)
    assert one_line_error(ran.err) == "--check runs the query in DuckDB"
    assert "pip install 'imdh[sql]'" in ran.err
    assert imdh("sql", world / "m.npz").text.startswith("-- 5 clusters")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--expression", "--table", "t"], 2, "--table is for the query"),
        (["--expression", "--name", "t"], 2, "--name is for the query"),
        (["--check", "data.csv", "--dialect", "spark"], 2, "--check runs the query in DuckDB"),
        (["-k", 999], 2, "999 clusters were asked for"),
        (["--name", "x2"], 2, 'the table has a column "x2", too'),
        (["--name", ""], 2, "an empty name"),
        (["--dialect", "oracle"], 2, "'oracle' is not one of"),
        (["--missing", "error"], 2, "'error' is not one of"),
        (["--check", "m.npz"], 3, "this is a model, not data"),
        (["--check", "none.csv"], 3, "none.csv"),
    ],
)
def test_what_cannot_be_is_refused(world, monkeypatch, words, status, said):
    monkeypatch.chdir(world)
    assert said in one_line_error(imdh("sql", "m.npz", *words, status=status).err)


def test_a_file_that_is_no_model_ends_with_status_4(world):
    one_line_error(imdh("sql", world / "data.csv", status=4).err)


def test_a_model_that_stops_at_missing_cells_labels_them_and_says_so(world, tmp_path):
    words = ["fit", world / "fit.parquet", "-c", "x1,x2,x3", "--missing", "error", "-o", tmp_path / "e.npz"]
    imdh(*words)
    ran = imdh("sql", tmp_path / "e.npz", "--check", world / "data.parquet")
    assert ran.err.splitlines()[0].startswith("note: the model was fitted with --missing error")
    assert ran.err.splitlines()[-1] == "the same labels in DuckDB for 3,000 rows"
    assert "note" not in imdh("sql", tmp_path / "e.npz", "--missing", "skip").err


def test_a_column_that_is_not_there_is_named(world, tmp_path):
    write(tmp_path / "t.csv", np.zeros((3, 2)))
    ran = imdh("sql", world / "m.npz", "--check", tmp_path / "t.csv", status=3)
    assert "x3" in one_line_error(ran.err)
