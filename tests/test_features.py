"""Columns -> features -> matrix: one rule for each type, one policy for what is missing."""

from __future__ import annotations

import datetime
import decimal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imdh_cli.errors import DataError, ModelError, UsageError
from imdh_cli.features import Column, FeatureSpec, Tally, bind_features, extract, select_features
from imdh_cli.params import FeatureParams
from imdh_cli.sources import Chunk, TableSource
from imdh_cli.sources.parquet_file import ParquetPart
from tests.tables import opened, parquet


def source_of(tmp_path: Path, columns: dict[str, Any], **params: object) -> TableSource:
    return opened(parquet(tmp_path / "t.parquet", pa.table(columns)), **params)


def csv_source(tmp_path: Path, text: str, **params: object) -> TableSource:
    (tmp_path / "t.csv").write_text(text)
    return opened(tmp_path / "t.csv", **params)


def chunk_of(columns: dict[str, Any], bad: list[bool] | None = None) -> Chunk:
    marks = None if bad is None else np.array(bad)
    return Chunk(pa.record_batch(columns), None, marks, ("t.parquet", 100))


def matrix(
    columns: dict[str, Any], missing: str = "skip", bad: list[bool] | None = None
) -> tuple[np.ndarray, np.ndarray, Tally]:
    spec = FeatureSpec(tuple(Column(name) for name in columns), missing)
    tally = Tally()
    X, used = extract(chunk_of(columns, bad), spec, tally)
    assert X.dtype == np.float64
    assert X.flags.c_contiguous
    assert X.shape == (len(used), len(spec.names))
    return X, used, tally


def read(source: TableSource, spec: FeatureSpec) -> tuple[np.ndarray, np.ndarray, Tally]:
    tally = Tally()
    parts = [extract(c, spec, tally) for c in source.chunks(spec.source_columns)]
    return np.vstack([X for X, _ in parts]), np.concatenate([u for _, u in parts]), tally


# -- where cells lie in memory


def test_doubles_are_read_from_wherever_they_lie() -> None:
    values = np.random.default_rng(0).normal(size=(3, 1000))
    odd = pa.Array.from_buffers(
        pa.float64(), 1000, [None, pa.py_buffer(b"." * 4 + values[2].tobytes()).slice(4)]
    )
    at_even = {"b": pa.array(values[1]), "a": pa.array(values[0])}
    for columns in (at_even, at_even | {"c": odd}):
        batch = pa.record_batch(columns).slice(3, 900)
        spec = FeatureSpec(tuple(Column(name) for name in columns), "skip")
        X, used = extract(Chunk(batch, None, None), spec, Tally())
        np.testing.assert_array_equal(X, values[[1, 0, 2][: len(columns)], 3:903].T)
        assert used.all()


@pytest.mark.parametrize("columns", [{"x": [1.0, None], "y": [3.0, 4.0]}, {"x": ["a", "b"]}])
def test_a_matrix_is_made_where_there_is_room(columns: dict[str, list]) -> None:
    levels = ("a", "b") if columns["x"][0] == "a" else None
    spec = FeatureSpec((Column("x", levels), *map(Column, [*columns][1:])), "mean")
    room = np.full((5, 2), 7.0)
    chunk = chunk_of(columns)
    X, _ = extract(chunk, spec, Tally(), room=room)
    assert np.shares_memory(X, room)
    np.testing.assert_array_equal(X, extract(chunk, spec, Tally(), room=room[:1].copy())[0])
    assert (room[2:] == 7.0).all()


# -- one rule for each type

D = decimal.Decimal
USED: dict[str, tuple[pa.Array, list[float]]] = {
    **{
        str(t): (pa.array([3, 1, 2], t), [3.0, 1.0, 2.0])
        for t in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(),
            pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        )
    },
    "float16": (pa.array(np.array([1.5, -2.0, 0.25], np.float16)), [1.5, -2.0, 0.25]),
    "float32": (pa.array([0.1, 2.0, 3.0], pa.float32()), [float(np.float32(0.1)), 2.0, 3.0]),
    "double": (pa.array([0.1, -2.0, 1e99]), [0.1, -2.0, 1e99]),
    "bool": (pa.array([True, False, True]), [1.0, 0.0, 1.0]),
    "decimal128": (pa.array([D("1.25"), D("-3.10"), D("0.01")]), [1.25, -3.1, 0.01]),
    "decimal256": (pa.array([D("1.25"), D("-3.10"), D("0.01")], pa.decimal256(40, 2)), [1.25, -3.1, 0.01]),
    "dictionary of int": (pa.array([7, 9, 7]).dictionary_encode(), [7.0, 9.0, 7.0]),
    "dictionary of double": (pa.array([0.5, 9.0, 0.5]).dictionary_encode(), [0.5, 9.0, 0.5]),
}  # fmt: skip

STAMP = datetime.datetime(2024, 5, 1, 12)
LEFT_OUT: dict[str, pa.Array] = {
    "timestamp": pa.array([STAMP] * 3),
    "timestamp with a zone": pa.array([STAMP] * 3, pa.timestamp("us", tz="UTC")),
    "date": pa.array([STAMP.date()] * 3),
    "time": pa.array([STAMP.time()] * 3),
    "duration": pa.array([datetime.timedelta(1)] * 3),
    "list of texts": pa.array([["a"]] * 3),
    "fixed list of texts": pa.array([["a", "b"]] * 3, pa.list_(pa.string(), 2)),
    "list of lists": pa.array([[[1.0]]] * 3),
    "struct": pa.array([{"a": 1.0}] * 3),
    "map": pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"1"] * 3),
    "null": pa.nulls(3),
    "fixed binary": pa.array([b"0" * 16] * 3, pa.binary(16)),
}

TEXT: dict[str, pa.Array] = {
    "string": pa.array(["b", "a", "b"]),
    "large_string": pa.array(["b", "a", "b"], pa.large_string()),
    "string_view": pa.array(["b", "a", "b"], pa.string_view()),
    "dictionary of text": pa.array(["b", "a", "b"]).dictionary_encode(),
}


@pytest.mark.parametrize("name", USED)
def test_a_numeric_type_is_used(tmp_path: Path, name: str) -> None:
    column, values = USED[name]
    source = source_of(tmp_path, {"v": column, "x": [0.5, 0.25, 0.75]})
    for params in (FeatureParams(), FeatureParams(columns=("v", "x"))):
        selection = select_features(source, params)
        assert selection.spec.names == ("v", "x")
        X, used, _ = read(source, selection.spec)
        assert X[:, 0].tolist() == values
        assert used.all()


@pytest.mark.parametrize("name", USED)
def test_a_null_of_any_numeric_type_is_missing(tmp_path: Path, name: str) -> None:
    column = pa.concat_arrays([USED[name][0], pa.nulls(1, USED[name][0].type)])
    X, used, tally = matrix({"v": column, "x": [1.0] * 4}, "mean")
    assert X[:3, 0].tolist() == USED[name][1]
    assert np.isnan(X[3, 0])
    assert used.all()
    assert tally.missing == {"v": 1}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_type_that_is_no_number_is_left_out_with_a_note_and_refused_when_named(
    tmp_path: Path, name: str
) -> None:
    source = source_of(tmp_path, {"v": LEFT_OUT[name], "x": [0.5, 0.25, 0.75]})
    selection = select_features(source, FeatureParams())
    assert selection.spec.names == ("x",)
    assert [n for n, _ in selection.left_out] == ["v"]
    assert len(selection.notes) == 1
    assert '"v"' in selection.notes[0]
    with pytest.raises(DataError, match=r'column "v" is .*, not numbers'):
        select_features(source, FeatureParams(columns=("v", "x")))


@pytest.mark.parametrize("name", TEXT)
def test_text_is_left_out_refused_or_one_hot_as_asked(tmp_path: Path, name: str) -> None:
    source = source_of(tmp_path, {"v": TEXT[name], "x": [0.5, 0.25, 0.75]})
    ignored = select_features(source, FeatureParams())
    assert ignored.spec.names == ("x",)
    assert "--categorical onehot" in ignored.notes[0]
    for params in (FeatureParams(columns=("v",)), FeatureParams(categorical="error")):
        with pytest.raises(DataError, match='column "v" is text, not numbers: it holds "b"'):
            select_features(source, params)
    hot = select_features(source, FeatureParams(categorical="onehot"))
    assert hot.spec.names == ("v=a", "v=b", "x")
    X, _, _ = read(source, hot.spec)
    assert X.tolist() == [[0, 1, 0.5], [1, 0, 0.25], [0, 1, 0.75]]


def test_an_extension_type_is_no_number_even_where_it_is_stored_as_one(tmp_path: Path) -> None:
    frame = pd.DataFrame({"when": pd.period_range("2024-01", periods=3, freq="M"), "x": [1.5, 2, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    assert select_features(opened(tmp_path / "t.parquet"), FeatureParams()).spec.names == ("x",)


def test_whole_numbers_beyond_2_53_are_rounded_with_a_note(tmp_path: Path) -> None:
    big = [2**63 + 1025, 5, 2**60 + 1]
    source = source_of(tmp_path, {"v": pa.array(big, pa.uint64())})
    for params in (FeatureParams(), FeatureParams(columns=("v",))):
        selection = select_features(source, params)
        assert any("2^53" in note and '"v"' in note for note in selection.notes)
        assert read(source, selection.spec)[0][:, 0].tolist() == [float(b) for b in big]
    small = source_of(tmp_path, {"v": pa.array([2**53, 5, 1], pa.int64())})
    assert select_features(small, FeatureParams()).notes == []


def test_the_matrix_is_what_pandas_makes_of_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "i": rng.integers(-5, 5, 500).astype(np.int16),
            "f": rng.normal(size=500).astype(np.float32),
            "b": rng.random(500) < 0.5,
            "d": rng.normal(size=500),
        }
    )
    frame.loc[rng.random(500) < 0.1, "d"] = np.nan
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=77)
    source = opened(tmp_path / "t.parquet", batch_rows=50)
    spec = select_features(source, FeatureParams(columns=("d", "b", "f", "i"))).spec
    X, used, _ = read(source, spec)
    truth = frame[["d", "b", "f", "i"]].to_numpy(np.float64)
    assert np.array_equal(X[used], truth[~np.isnan(truth).any(axis=1)])
    assert np.array_equal(used, ~np.isnan(truth).any(axis=1))


# -- which columns


def test_excluded_columns_and_ids_are_no_features(tmp_path: Path) -> None:
    source = source_of(tmp_path, {n: [1.5, 0.5] for n in "abcd"})
    selection = select_features(source, FeatureParams(exclude=("b",), ids=("d",)))
    assert selection.spec.names == ("a", "c")
    assert selection.ids == ("d",)
    assert selection.notes == []
    assert dict(selection.left_out) == {"b": "excluded with -x", "d": "an id, carried to the labels"}


def test_the_order_named_is_the_order_of_the_matrix(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"a": [1.0], "b": [2.0], "c": [3.0]})
    spec = select_features(source, FeatureParams(columns=("c", "a"))).spec
    assert read(source, spec)[0].tolist() == [[3.0, 1.0]]


@pytest.mark.parametrize("where", ["columns", "exclude", "ids"])
def test_a_name_that_is_not_there_is_an_error_with_the_nearest(tmp_path: Path, where: str) -> None:
    source = source_of(tmp_path, {"price_eur": [1.0], "size": [2.0]})
    with pytest.raises(DataError, match='no column "price_usd"') as caught:
        select_features(source, FeatureParams(**{where: ("price_usd",)}))  # type: ignore[arg-type]
    assert "price_eur" in str(caught.value.hint)


def test_a_name_with_blanks_is_suggested(tmp_path: Path) -> None:
    source = source_of(tmp_path, {" Size ": [1.0]})
    with pytest.raises(DataError) as caught:
        select_features(source, FeatureParams(columns=("size",)))
    assert '" Size "' in str(caught.value.hint)


def test_names_that_contradict_each_other_are_a_usage_error(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"a": [1.0], "b": [2.0]})
    for params in (
        FeatureParams(columns=("a", "a")),
        FeatureParams(columns=("a",), exclude=("a",)),
        FeatureParams(columns=("a",), ids=("a",)),
    ):
        with pytest.raises(UsageError, match='"a"'):
            select_features(source, params)


def test_a_pandas_index_is_no_feature_unless_named(tmp_path: Path) -> None:
    index = pd.Index([5.5, 3.5, 4.5], name="key")
    pd.DataFrame({"x": [1.0, 2.0, 1.5]}, index=index).to_parquet(tmp_path / "t.parquet")
    source = opened(tmp_path / "t.parquet")
    selection = select_features(source, FeatureParams())
    assert selection.spec.names == ("x",)
    assert '"key"' in selection.notes[0]
    assert select_features(source, FeatureParams(columns=("key", "x"))).spec.names == ("key", "x")


@pytest.mark.parametrize("values", [range(40), range(1000, 40, -17), [i * i for i in range(40)]])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_monotone_id_is_no_feature_unless_named(tmp_path: Path, values: Any, form: str) -> None:
    values = list(values)[:40]
    x = np.random.default_rng(0).random(40)
    if form == "csv":
        rows = "".join(f"{i},{v}\n" for i, v in zip(values, x, strict=True))
        source = csv_source(tmp_path, "id,x\n" + rows)
    else:
        source = source_of(tmp_path, {"id": values, "x": x})
    selection = select_features(source, FeatureParams())
    assert selection.spec.names == ("x",)
    assert '"id": looks like an identifier' in selection.notes[0]
    assert select_features(source, FeatureParams(columns=("id", "x"))).spec.names == ("id", "x")


def test_an_id_may_start_again_in_each_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(3):
        content = {"row": range(40), "n": rng.integers(0, 9, 40), "x": rng.random(40)}
        parquet(tmp_path / f"{i}.parquet", pa.table({k: list(v) for k, v in content.items()}))
    assert select_features(opened(tmp_path), FeatureParams()).spec.names == ("n", "x")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([*range(38), 37, 39]),  # not unique
        pa.array([*range(38), 40, 39]),  # not monotone
        pa.array([None, *range(39)]),  # not in every row
        pa.array(np.arange(40) * 1.0),  # a double is a measurement
    ],
)
def test_what_only_resembles_an_id_is_a_feature(tmp_path: Path, column: pa.Array) -> None:
    source = source_of(tmp_path, {"v": column, "x": np.random.default_rng(0).random(40)})
    assert select_features(source, FeatureParams()).spec.names == ("v", "x")


def test_few_rows_say_nothing_about_ids(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"v": list(range(29)), "x": [0.5] * 29})
    assert select_features(source, FeatureParams()).spec.names == ("v", "x")


def test_ids_are_found_among_many_whole_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {f"n{i}": rng.integers(0, 9, 500) for i in range(30)}
    late = np.arange(500)
    late[-1] = 0  # an id for the first 499 rows
    source = source_of(tmp_path, {"id": np.arange(500), "late": late, **columns})
    assert [n for n, _ in select_features(source, FeatureParams()).left_out] == ["id"]


def test_codes_are_whole_numbers_truths_or_text(tmp_path: Path) -> None:
    """Of a file with types, too; other numbers are refused in words."""
    codes = {"zip": pa.array([10115, None, 20095]), "ok": pa.array([True, False, True])}
    source = source_of(tmp_path, {"x": [0.5, 1.5, 2.5], **codes, "price": [1.25, 2.5, 2.5]})
    spec = select_features(source, FeatureParams(onehot=("zip", "ok"), exclude=("price",))).spec
    assert spec.names == ("x", "zip=10115", "zip=20095", "ok=false", "ok=true")
    X, used = extract(next(iter(source.chunks(spec.source_columns))), spec, Tally())
    np.testing.assert_array_equal(used, [True, False, True])
    np.testing.assert_array_equal(X[2], [2.5, 0.0, 1.0, 0.0, 1.0])
    with pytest.raises(DataError, match='column "price" is double: no codes'):
        select_features(source, FeatureParams(onehot=("price",)))


def test_hive_keys_are_never_features(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    parquet(tmp_path / "year=2024" / "t.parquet", pa.table({"x": [1.0]}))
    source = opened(tmp_path)
    assert select_features(source, FeatureParams(categorical="onehot")).spec.names == ("x",)
    with pytest.raises(DataError, match="names of folders"):
        select_features(source, FeatureParams(columns=("year",)))


def test_a_column_that_is_not_in_every_file_is_left_out_unless_named(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", pa.table({"x": [1.5], "y": [2.5]}))
    parquet(tmp_path / "b.parquet", pa.table({"x": [1.5]}))
    source = opened(tmp_path)
    selection = select_features(source, FeatureParams())
    assert selection.spec.names == ("x",)
    assert any('"y"' in note and "b.parquet" in note for note in selection.notes)
    with pytest.raises(DataError, match=r'b\.parquet: no column "y"'):
        select_features(source, FeatureParams(columns=("x", "y")))
    with pytest.raises(DataError, match=r'b\.parquet: no column "y"'):
        bind_features(source, FeatureSpec((Column("y"),)))


@pytest.mark.parametrize("text", ["", "x,y\n", "word\n"])
def test_no_rows_are_an_error_that_says_so(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="no data rows"):
        select_features(csv_source(tmp_path, text), FeatureParams())


def test_no_numeric_column_is_an_error_that_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column to learn from") as caught:
        select_features(source_of(tmp_path, {"w": ["a", "b"]}), FeatureParams())
    assert '"w": text' in str(caught.value.hint)


def test_choosing_reads_little_of_a_wide_table(tmp_path: Path) -> None:
    column = pa.array(np.random.default_rng(0).integers(0, 9, 5000))
    source = source_of(tmp_path, {f"c{i}": column for i in range(400)})
    names = tuple(f"c{i}" for i in range(0, 400, 20))
    before = time.perf_counter()
    assert select_features(source, FeatureParams(columns=names)).spec.names == names
    assert time.perf_counter() - before < 1.0


# -- missing values


NAN, INF = float("nan"), float("inf")


def test_rows_with_a_missing_cell_are_left_out_and_counted_by_column() -> None:
    columns = {"a": [1.0, None, NAN, 4.0, INF, 6.0], "b": pa.array([1, 2, None, 4, 5, 6])}
    X, used, tally = matrix({k: pa.array(v) for k, v in columns.items()}, "skip")
    assert used.tolist() == [True, False, False, True, False, True]
    assert X[used].tolist() == [[1, 1], [4, 4], [6, 6]]
    assert np.isfinite(X).all()
    assert (tally.rows, tally.used, tally.skipped, tally.bad) == (6, 3, 3, 0)
    assert tally.missing == {"a": 2, "b": 1}
    assert tally.infinite == {"a": 1}


def test_a_missing_cell_waits_for_the_mean() -> None:
    columns = {"a": pa.array([1.0, None, -INF]), "b": pa.array([1.0, 2.0, 3.0])}
    X, used, tally = matrix(columns, "mean")
    assert used.all()
    assert np.isnan(X[1:, 0]).all()
    assert X[:, 1].tolist() == [1, 2, 3]
    assert (tally.used, tally.skipped) == (3, 0)
    assert (tally.missing, tally.infinite) == ({"a": 1}, {"a": 1})


@pytest.mark.parametrize(("value", "word"), [(None, "missing"), (NAN, "missing"), (INF, "infinite")])
def test_the_first_missing_cell_stops_with_file_row_and_column(value: float | None, word: str) -> None:
    columns = {"a": pa.array([1.0, 2.0, 3.0]), "b": pa.array([1.0, 2.0, value])}
    with pytest.raises(DataError, match=f't.parquet, row 103, column "b": the value is {word}'):
        matrix(columns, "error")
    assert matrix({"a": columns["a"]}, "error")[1].all()


def test_a_bad_row_is_left_out_and_its_cells_are_not_counted_as_missing() -> None:
    columns = {"a": pa.array([1.0, None, None]), "b": pa.array([1.0, None, 3.0])}
    for missing, used_rows in (("skip", [0]), ("mean", [0, 2])):
        X, used, tally = matrix(columns, missing, bad=[False, True, False])
        assert np.flatnonzero(used).tolist() == used_rows
        assert np.isfinite(X[1]).all()
        assert tally.bad == 1
        assert tally.missing == {"a": 1}
        assert tally.rows == tally.used + tally.skipped + tally.bad


def test_numbers_beyond_1e100_count_as_infinite() -> None:
    """Their squares would overflow long before a model is made of them."""
    columns = {"a": pa.array([1e100, 1e101, -1e308, 1.0]), "b": pa.array([1e100, 2.0, 3.0, -1e101])}
    X, used, tally = matrix(columns)
    assert used.tolist() == [True, False, False, False]
    assert X[0].tolist() == [1e100, 1e100]
    assert (tally.missing, tally.infinite) == ({}, {"a": 2, "b": 1})
    with pytest.raises(DataError, match=r'row 102, column "a": the value is beyond 1e\+100'):
        matrix(columns, "error")


def test_opposite_infinities_are_found() -> None:
    _, used, tally = matrix({"a": pa.array([INF, -INF, 1.0])})
    assert used.tolist() == [False, False, True]
    assert tally.infinite == {"a": 2}


def test_an_empty_chunk_is_a_matrix_without_rows() -> None:
    X, used, tally = matrix({"a": pa.array([], pa.int32()), "b": pa.array([], pa.bool_())})
    assert X.shape == (0, 2)
    assert used.shape == (0,)
    assert tally == Tally()


@given(
    cells=st.lists(
        st.tuples(*[st.one_of(st.none(), st.floats(width=64), st.just(0.0))] * 3),
        min_size=1,
        max_size=40,
    ),
    missing=st.sampled_from(["skip", "mean"]),
    bad=st.data(),
)
def test_the_policy_cell_by_cell(cells: list[tuple], missing: str, bad: st.DataObject) -> None:
    """The matrix, the rows used and the counts, against the same said in plain Python."""
    marks = bad.draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)))
    columns = {n: pa.array([r[j] for r in cells], pa.float64()) for j, n in enumerate("abc")}
    X, used, tally = matrix(columns, missing, marks if any(marks) else None)
    counts: dict[str, dict[str, int]] = {"missing": {}, "infinite": {}}
    for i, row in enumerate(cells):
        if marks[i]:
            assert not used[i]
            continue
        lost = [c is None or not abs(c) <= 1e100 for c in row]
        for name, cell in zip("abc", row, strict=True):
            kind = "missing" if cell is None or np.isnan(cell) else "infinite"
            if cell is None or not abs(cell) <= 1e100:
                counts[kind][name] = counts[kind].get(name, 0) + 1
        assert used[i] == (missing == "mean" or not any(lost))
        if used[i]:
            assert [None if np.isnan(x) else x for x in X[i]] == [
                None if gone else cell for gone, cell in zip(lost, row, strict=True)
            ]
    assert {"missing": tally.missing, "infinite": tally.infinite} == counts
    assert tally.bad == sum(marks)
    assert tally.rows == tally.used + tally.skipped + tally.bad == len(cells)
    assert np.isfinite(X[~used]).all()


def test_counts_are_what_duckdb_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(size=3000)
    a[rng.random(3000) < 0.1] = np.inf
    mask = rng.random(3000) < 0.2
    path = parquet(tmp_path / "t.parquet", pa.table({"a": pa.array(a, mask=mask), "b": rng.random(3000)}))
    source = opened(path, batch_rows=100)
    _, used, tally = read(source, FeatureSpec((Column("a"), Column("b"))))
    missing, infinite, kept = duckdb.sql(
        f"select count(*) filter (a is null), count(*) filter (isinf(a)),"
        f" count(*) filter (isfinite(a)) from '{path}'"
    ).fetchall()[0]
    assert (tally.missing["a"], tally.infinite["a"], int(used.sum())) == (missing, infinite, kept)


def test_tallies_add_up() -> None:
    one = Tally(5, 3, 1, 1, {"a": 1}, {"b": 2}, {})
    two = Tally(4, 4, 0, 0, {"a": 2, "c": 1}, {}, {"d": 1})
    one += two
    assert one == Tally(9, 7, 1, 1, {"a": 3, "c": 1}, {"b": 2}, {"d": 1})
    assert two == Tally(4, 4, 0, 0, {"a": 2, "c": 1}, {}, {"d": 1})


# -- one-hot


HOT = FeatureSpec((Column("c", ("a", "b")), Column("x")))


def test_an_unseen_level_is_all_zero_and_counted() -> None:
    tally = Tally()
    chunk = chunk_of({"c": ["a", "new", "b", "new"], "x": [1.0, 2.0, 3.0, 4.0]})
    X, used = extract(chunk, HOT, tally)
    assert X.tolist() == [[1, 0, 1], [0, 0, 2], [0, 1, 3], [0, 0, 4]]
    assert used.all()
    assert tally.unseen == {"c": 2}


def test_a_null_in_a_one_hot_column_is_missing_once() -> None:
    chunk = chunk_of({"c": ["a", None], "x": [1.0, 2.0]})
    tally = Tally()
    X, used = extract(chunk, HOT, tally)
    assert used.tolist() == [True, False]
    assert tally.missing == {"c": 1}
    X, used = extract(chunk, FeatureSpec(HOT.columns, "mean"), Tally())
    assert used.all()
    assert np.isnan(X[1, :2]).all()
    assert X[1, 2] == 2
    with pytest.raises(DataError, match='row 102, column "c": the value is missing'):
        extract(chunk, FeatureSpec(HOT.columns, "error"), Tally())


def test_levels_are_those_of_the_whole_file_sorted(tmp_path: Path) -> None:
    words = ["b"] * 30_000 + ["a", "C", "ä"]
    source = source_of(tmp_path, {"c": words, "x": [0.5] * len(words)})
    spec = select_features(source, FeatureParams(categorical="onehot")).spec
    assert spec.columns[0].levels == ("C", "a", "b", "ä")


def test_text_with_too_many_levels_is_left_out_and_refused_when_named(tmp_path: Path) -> None:
    for levels, names in ((100, 101), (101, 1)):
        words = [f"w{i % levels}" for i in range(300)]
        source = source_of(tmp_path, {"c": words, "x": np.random.default_rng(0).random(300)})
        selection = select_features(source, FeatureParams(categorical="onehot"))
        assert len(selection.spec.names) == names
    assert "more than 100 levels" in selection.notes[0]
    with pytest.raises(DataError, match='"c" is text with more than 100 levels'):
        select_features(source, FeatureParams(columns=("c",), categorical="onehot"))


def test_numbers_with_too_many_levels_are_not_called_text(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"c": [i * 7 % 300 for i in range(300)], "x": [i % 5 for i in range(300)]})
    asked = FeatureParams(onehot=("c",))
    note = 'left out "c": numbers, more than 100 different ones (as numbers they are used without --onehot)'
    assert select_features(source, asked).notes == [note]
    with pytest.raises(DataError, match='"c" is numbers, more than 100 different ones') as caught:
        select_features(source, replace(asked, columns=("c", "x")))
    assert caught.value.hint == 'as numbers they are used without --onehot, or leave "c" out of -c'


def test_text_of_a_csv_is_one_hot_with_blank_as_missing(tmp_path: Path) -> None:
    source = csv_source(tmp_path, "c,x\nred,1\nblue,2\n,3\n")
    spec = select_features(source, FeatureParams(categorical="onehot")).spec
    assert spec.names == ("c=blue", "c=red", "x")
    X, used, tally = read(source, spec)
    assert used.tolist() == [True, True, False]
    assert X[:2].tolist() == [[0, 1, 1], [1, 0, 2]]
    assert tally.missing == {"c": 1}


def test_a_column_named_like_a_level_is_an_error(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"c": ["a", "b"], "c=a": [1.0, 2.0]})
    with pytest.raises(DataError, match='two features are called "c=a"'):
        select_features(source, FeatureParams(categorical="onehot"))


def test_text_that_is_no_utf8_is_an_error_that_says_so(tmp_path: Path) -> None:
    raw = pa.array([b"ok", b"\xff\xfe"]).view(pa.string())
    source = source_of(tmp_path, {"c": raw, "x": [1.0, 2.0]})
    with pytest.raises(DataError, match="UTF-8"):
        select_features(source, FeatureParams(categorical="onehot"))
    assert select_features(source, FeatureParams()).spec.names == ("x",)


# -- a model's features in another file


SPEC = FeatureSpec((Column("x"), Column("y"), Column("c", ("7", "8"))))


def test_another_column_order_and_other_types_give_the_same_matrix(tmp_path: Path) -> None:
    first = {"x": [1.0, 2.0], "y": [3.0, 4.0], "c": ["8", "7"]}
    second = {
        "c": pa.array(["8", "7"]).dictionary_encode(),
        "other": ["q", "r"],
        "y": pa.array([3, 4], pa.int8()),
        "x": pa.array([D("1.00"), D("2.00")]),
    }
    third = {"c": [8, 7], **{k: first[k] for k in ("y", "x")}}
    expected = [[1, 3, 0, 1], [2, 4, 1, 0]]
    for columns in (first, second, third):
        source = source_of(tmp_path, columns)
        bind_features(source, SPEC)
        assert read(source, SPEC)[0].tolist() == expected
    source = csv_source(tmp_path, "c,y,x\n8,3,1\n7,4,2\n")
    bind_features(source, SPEC)
    assert read(source, SPEC)[0].tolist() == expected


def test_a_missing_feature_is_named_with_the_nearest(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"x": [1.0], "Y": [1.0], "c": ["7"]})
    with pytest.raises(DataError, match='no column "y"') as caught:
        bind_features(source, SPEC)
    assert '"Y"' in str(caught.value.hint)


@pytest.mark.parametrize("column", [["n/a"], [STAMP], [[1.0]], [b"1"]], ids=repr)
def test_another_kind_of_value_in_a_numeric_feature_is_an_error(tmp_path: Path, column: list) -> None:
    source = source_of(tmp_path, {"x": column, "y": [1.0], "c": ["7"]})
    with pytest.raises(DataError, match=r't\.parquet: column "x" is '):
        bind_features(source, SPEC)
    with pytest.raises(DataError, match=r't\.parquet: column "x" is '):
        extract(next(source.chunks(SPEC.source_columns)), SPEC, Tally())


def test_text_among_numbers_of_a_csv_is_named_by_row_and_value(tmp_path: Path) -> None:
    source = csv_source(tmp_path, "x,y,c\nn/a,3,7\n", on_bad_row="error")
    bind_features(source, SPEC)
    with pytest.raises(DataError, match=r'(?s)t\.csv.*"x".*"n/a"'):
        read(source, SPEC)
    source = csv_source(tmp_path, "x,y,c\nn/a,3,7\n1,2,8\n", on_bad_row="skip")
    bind_features(source, SPEC)
    _, used, tally = read(source, SPEC)
    assert used.tolist() == [False, True]
    assert tally.bad == 1


def test_a_column_of_nothing_is_missing_throughout(tmp_path: Path) -> None:
    source = source_of(tmp_path, {"x": [1.0, 2.0], "y": pa.nulls(2), "c": pa.nulls(2)})
    bind_features(source, SPEC)
    _, used, tally = read(source, SPEC)
    assert not used.any()
    assert tally.missing == {"y": 2, "c": 2}


# -- the spec in the model


def test_a_spec_survives_the_model() -> None:
    assert FeatureSpec.from_dict(SPEC.to_dict()) == SPEC
    assert SPEC.names == ("x", "y", "c=7", "c=8")
    assert SPEC.source_columns == ("x", "y", "c")
    assert (SPEC.numbers, SPEC.texts) == (("x", "y"), ("c",))


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        {},
        {"columns": [], "missing": "skip"},
        {"columns": [{"name": "a", "levels": None}], "missing": "never"},
        {"columns": [{"name": "a", "levels": None}], "missing": []},
        {"columns": [{"name": 3, "levels": None}], "missing": "skip"},
        {"columns": [{"name": "a"}], "missing": "skip"},
        {"columns": ["a"], "missing": "skip"},
        {"columns": 7, "missing": "skip"},
        {"columns": [{"name": "a", "levels": None}] * 2, "missing": "skip"},
        {"columns": [{"name": "a", "levels": []}], "missing": "skip"},
        {"columns": [{"name": "a", "levels": "xy"}], "missing": "skip"},
        {"columns": [{"name": "a", "levels": ["x", "x"]}], "missing": "skip"},
        {"columns": [{"name": "a", "levels": [1]}], "missing": "skip"},
        {"columns": [{"name": "a", "levels": [[]]}], "missing": "skip"},
        {"columns": [{"name": "a", "levels": [str(i) for i in range(101)]}], "missing": "skip"},
    ],
    ids=repr,
)
def test_a_damaged_spec_is_refused(values: Any) -> None:
    with pytest.raises(ModelError):
        FeatureSpec.from_dict(values)


# -- speed


def test_extracting_lets_other_threads_run() -> None:
    """A counter in another thread keeps most of its pace while matrices are made."""
    rng = np.random.default_rng(0)
    chunk = chunk_of({f"c{i}": rng.random(65536) for i in range(20)})
    spec = FeatureSpec(tuple(Column(f"c{i}") for i in range(20)))
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            extract(chunk, spec, Tally())

    thread = threading.Thread(target=work)
    thread.start()
    count, end = 0, time.perf_counter() + 0.3
    while time.perf_counter() < end:
        count += 1
    done.set()
    thread.join()
    assert count > 100_000  # 3 million alone; a few hundred while the interpreter is held


def from_csv(folder, text: str):
    (folder / "t.csv").write_text(text)
    return opened(folder / "t.csv")


def chosen(source) -> tuple[list[str], list[str]]:
    found = select_features(source, FeatureParams())
    return list(found.spec.names), found.notes


@pytest.mark.parametrize("name", ["b", ""])
def test_an_empty_column_of_a_csv_is_left_out(name, tmp_path):
    source = from_csv(tmp_path, f"a,{name},c\n" + "1.5,,2\n2.5,,1\n" * 40)
    names, notes = chosen(source)
    assert names == ["a", "c"]
    assert notes == [f'left out "{name or "column_2"}": empty (it holds no value)']


@pytest.mark.parametrize("values", [[None] * 400, [None, float("nan")] * 200])
def test_an_empty_column_of_a_parquet_file_is_left_out(values, tmp_path):
    table = pa.table({"a": [1.5, 0.5] * 200, "b": pa.array(values, pa.float64())})
    pq.write_table(table, tmp_path / "t.parquet")
    names, notes = chosen(opened(tmp_path / "t.parquet"))
    assert names == ["a"]
    assert notes == ['left out "b": empty (it holds no value)']


def test_a_footer_that_tells_of_numbers_spares_a_look_at_the_first_rows(tmp_path, monkeypatch):
    nan = float("nan")
    columns = {"a": [1.5, 0.5], "b": [None, nan], "c": [3, None], "d": [True, False], "e": [nan, nan]}
    table = pa.table({name: cells * 200 for name, cells in columns.items()})
    pq.write_table(table, tmp_path / "t.parquet")
    pq.write_table(table.select(["a", "c"]), tmp_path / "n.parquet", write_statistics=False)
    asked: list[set[str]] = []
    sample = ParquetPart.sample

    def watched(self, rows=20_000, columns=None):
        asked.append({*columns})
        return sample(self, rows, columns)

    monkeypatch.setattr(ParquetPart, "sample", watched)
    assert chosen(opened(tmp_path / "t.parquet"))[0] == ["a", "c", "d"]
    assert asked[0] == {"b", "e"}
    assert chosen(opened(tmp_path / "t.parquet", null_values=("3",)))[0] == ["a", "d"]
    assert chosen(opened(tmp_path / "n.parquet"))[0] == ["a", "c"]
    assert {"a", "c"} in asked  # where no statistics were written


def test_a_column_with_one_value_far_behind_is_not_empty(tmp_path):
    source = from_csv(tmp_path, "a,b\n" + "1.5,\n0.5,\n" * 5000 + "1.5,2\n")
    assert chosen(source) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("{} kg", 'left out "b" (such as "0 kg"): text (numbers with units; sed -E'),
        ("2020-01-{:02}", 'left out "b" (such as "2020-01-00"): text (dates or times; convert them'),
        ("name{}", 'left out "b" (such as "name0"): text (more than 100 different texts; group'),
        ('"{},000"', 'left out "b" (such as "0,000"): text (numbers as text; --parse b uses it)'),
        ('"{}.000,5"', "--decimal , --parse b uses"),
    ],
)
def test_text_that_is_no_category_is_not_offered_as_one(cell, said, tmp_path):
    lines = "".join(f"{i % 7}.5,{cell.format(i)}\n" for i in range(150))
    _, notes = chosen(from_csv(tmp_path, "a,b\n" + lines))
    assert said in notes[0]
    assert "onehot" not in notes[0]


@pytest.mark.parametrize("step", [1, 1000])
def test_identifiers_beyond_2_53_are_seen_in_a_csv(step, tmp_path):
    lines = "".join(f"{i % 7}.5,{2**60 + step * i}\n" for i in range(60))
    names, notes = chosen(from_csv(tmp_path, "a,id\n" + lines))
    assert names == ["a"]
    assert notes == ['left out "id": looks like an identifier (it is used when named with -c)']


def test_whole_numbers_beyond_2_53_in_a_csv_are_said_to_be_rounded(tmp_path):
    lines = "".join(f"{i % 7}.5,{2**60 + i * 7919 % 61}\n" for i in range(60))
    source = from_csv(tmp_path, "a,n\n" + lines)
    said = ['"n": whole numbers beyond 2^53 are rounded to the nearest double']
    assert chosen(source) == (["a", "n"], said)
    assert select_features(source, FeatureParams(columns=("n",))).notes == said


def test_large_measurements_are_not_said_to_be_rounded(tmp_path):
    assert chosen(from_csv(tmp_path, "a,b\n" + "1.5,1e30\n2.5,1.5\n" * 40)) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a b\n1.5 2\n2 3\n", "--delimiter ' '"),
        ("a;b\n1,5;2,5\n2,5;3,5\n", "--decimal ,"),
        ('a;b\n"1,500,000";"x"\n"2,500";"y"\n', "--parse a uses"),
        ("# x\na\nb\n", "tail -n +2"),
    ],
)
def test_no_column_to_learn_from_comes_with_what_to_do(text, hint, tmp_path):
    with pytest.raises(DataError, match="no column to learn from") as caught:
        chosen(from_csv(tmp_path, text))
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("model", "text", "hint"),
    [
        ("a", "A,b\n1,2\n", 'Rename the column in the file: the model knows it as "a"'),
        ("column_1", "1,2\n3,4\n", "add --no-header"),
    ],
)
def test_a_column_that_only_the_model_has_comes_with_what_to_do(model, text, hint, tmp_path):
    with pytest.raises(DataError) as caught:
        bind_features(from_csv(tmp_path, text), FeatureSpec((Column(model),)))
    assert hint in (caught.value.hint or "")
