"""Columns of lists: vectors become features, fields within structs become columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imdh_cli.errors import DataError, ModelError, UsageError
from imdh_cli.features import FeatureSpec, Tally, bind_features, extract, select_features
from imdh_cli.params import FeatureParams
from tests.cli import arrays, imdh, labels, metadata
from tests.tables import arrow, opened, orc, parquet

N, D = 300, 6
X = np.random.default_rng(3).normal(size=(N, D)).astype(np.float32)


def fixed(values: np.ndarray = X, kind: pa.DataType | None = None) -> pa.Array:
    """A fixed-size list for each row of a matrix."""
    flat = pa.array(values.ravel())
    return pa.FixedSizeListArray.from_arrays(flat if kind is None else flat.cast(kind), values.shape[1])


def tensors() -> pa.Array:
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(X.reshape(N, 2, 3)))


def as_json(values: np.ndarray = X) -> list[str]:
    return [json.dumps([float(x) for x in row]) for row in values]


def as_csv(path: Path, **columns: list[Any]) -> str:
    import csv

    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def matrix(path: str | Path, *, params: FeatureParams | None = None, **reading: Any) -> np.ndarray:
    """The features of all rows, NaN where a row cannot be used, by a spec that went through JSON."""
    source = opened(path, **reading)
    selection = select_features(source, params or FeatureParams())
    spec = FeatureSpec.from_dict(json.loads(json.dumps(selection.spec.to_dict())))
    assert spec == selection.spec
    parts = []
    for chunk in source.chunks(spec.source_columns):
        got, used = extract(chunk, spec, Tally())
        got[~used] = np.nan
        parts.append(got)
    return np.concatenate(parts)


FORMS: dict[str, Callable[[], pa.Array]] = {
    "fixed": fixed,
    "list": lambda: fixed().cast(pa.list_(pa.float32())),
    "large list": lambda: fixed().cast(pa.large_list(pa.float32())),
    "doubles": lambda: fixed(kind=pa.float64()),
    "tensor": tensors,
    "text": lambda: pa.array(as_json()),
}


@pytest.mark.parametrize("write", [parquet, arrow], ids=["parquet", "arrow"])
@pytest.mark.parametrize("form", FORMS)
def test_vectors_become_features_in_every_form(form: str, write: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t", pa.table({"id": [f"d{i}" for i in range(N)], "embedding": FORMS[form]()}))
    source = opened(path)
    assert select_features(source, FeatureParams()).spec.names == tuple(f"embedding[{i}]" for i in range(D))
    for rows in (7, 65536):
        assert np.allclose(matrix(path, batch_rows=rows), X, rtol=1e-7)


@pytest.mark.parametrize(
    "kind", ["int8", "uint16", "int32", "int64", "uint64", "halffloat", "bool", "decimal"]
)
def test_every_width_of_numbers_is_taken(kind: str, tmp_path: Path) -> None:
    whole = np.random.default_rng(0).integers(0, 2 if kind == "bool" else 100, size=(N, D))
    type_ = pa.decimal128(12, 2) if kind.startswith("dec") else pa.type_for_alias(kind)
    flat = pa.array(whole.ravel().astype(np.float16 if kind == "halffloat" else np.int32)).cast(type_)
    path = arrow(tmp_path / "t", pa.table({"v": pa.FixedSizeListArray.from_arrays(flat, D)}), 64)
    assert np.array_equal(matrix(path), whole)


def test_orc_and_csv_hold_vectors_too(tmp_path: Path) -> None:
    lists = fixed().cast(pa.list_(pa.float32()))
    assert np.array_equal(matrix(orc(tmp_path / "t.orc", pa.table({"v": lists}), 50)), X)
    path = as_csv(tmp_path / "t.csv", name=["a"] * N, v=as_json())
    assert np.allclose(matrix(path), X, rtol=1e-7)
    assert np.allclose(matrix(path, batch_rows=9, threads=2), X, rtol=1e-7)


def test_missing_cells_within_and_missing_lists(tmp_path: Path) -> None:
    rows = [[1.0, 2.0], None, [3.0, None], [float("nan"), 4.0], [5.0, float("inf")], [6.0, 7.0]]
    for kind in (pa.list_(pa.float64(), 2), pa.list_(pa.float64())):
        source = opened(parquet(tmp_path / "t", pa.table({"v": pa.array(rows * 9, kind)})))
        spec = select_features(source, FeatureParams()).spec
        tally = Tally()
        chunk = next(source.chunks(spec.source_columns))
        got, used = extract(chunk, spec, tally)
        assert used.tolist() == [True, False, False, False, False, True] * 9
        assert got[5].tolist() == [6.0, 7.0]
        assert tally.missing == {"v": 27}  # rows, not cells
        assert tally.infinite == {"v": 9}
        filled = FeatureSpec(spec.columns, "mean")
        got, used = extract(chunk, filled, Tally())
        assert used.all()
        assert np.array_equal(got[2], [3.0, np.nan], equal_nan=True)
        strict = FeatureSpec(spec.columns, "error")
        with pytest.raises(DataError, match=r'row 2, column "v\[0\]": the value is missing'):
            extract(chunk, strict, Tally())


def test_nulls_among_whole_numbers_are_missing(tmp_path: Path) -> None:
    rows = [[1, 2], [3, None], [5, 6]] * 20
    path = parquet(tmp_path / "t", pa.table({"v": pa.array(rows, pa.list_(pa.int64(), 2))}))
    got = matrix(path)
    assert got[0].tolist() == [1, 2]
    assert np.isnan(got[1]).all()


# --- lists of another length ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("odd", "said"), [([1.0], "a list of 1"), ([], "a list of 0"), ([1.0] * 9, "a list of 9")]
)
def test_a_list_of_another_length_is_a_bad_row_and_named(
    odd: list[float], said: str, form: str, tmp_path: Path
) -> None:
    rows = [[1.0, 2.0, 3.0]] * 250
    rows[217] = odd
    if form == "csv":
        path, said = as_csv(tmp_path / "t.csv", v=[json.dumps(r) for r in rows], k=["a"] * 250), r'"\['
        place = r"line 219 \(row 218\)"
    else:
        path = parquet(tmp_path / "t.parquet", pa.table({"v": pa.array(rows, pa.list_(pa.float32()))}))
        place = "row 218"
    with pytest.raises(
        DataError, match=rf't\.{form}, {place}, column "v": {said}.* no list of 3 numbers'
    ) as caught:
        matrix(path, batch_rows=100)
    assert "--on-bad-row skip" in str(caught.value.hint)
    got = matrix(path, on_bad_row="skip", batch_rows=100)
    assert np.flatnonzero(np.isnan(got).any(axis=1)).tolist() == [217]
    assert (np.delete(got, 217, axis=0) == [1, 2, 3]).all()
    assert len(matrix(path, max_rows=217)) == 217  # nobody asked for the row behind


def test_bad_rows_are_counted_once(tmp_path: Path) -> None:
    rows = [[1.0, 2.0]] * 100
    rows[3] = [1.0]
    table = pa.table(
        {"u": pa.array(rows, pa.list_(pa.float32())), "v": pa.array(rows, pa.list_(pa.float32()))}
    )
    source = opened(parquet(tmp_path / "t", table), on_bad_row="skip")
    spec = select_features(source, FeatureParams()).spec
    chunks = list(source.chunks(spec.source_columns))
    assert source.bad_rows == 1
    tally = Tally()
    for chunk in chunks:
        extract(chunk, spec, tally)
    assert (tally.rows, tally.used, tally.bad) == (100, 99, 1)


def test_text_that_is_no_list_among_lists_is_a_bad_row(tmp_path: Path) -> None:
    cells = as_json()
    for odd in ("[1, 2, x, 4, 5, 6]", "none", "[[1], 2, 3, 4, 5, 6]", "1, 2, 3, 4, 5, 6"):
        path = as_csv(tmp_path / "t.csv", v=[*cells[:250], odd], k=["a"] * 251)
        with pytest.raises(DataError, match=r"row 251.*no list of 6 numbers"):
            matrix(path)
    path = as_csv(tmp_path / "t.csv", v=[*cells[:250], "", "[1, null, 3, 4, 5, NaN]"], k=["a"] * 252)
    assert np.isnan(matrix(path)[250:]).all()


def test_lists_of_many_lengths_are_no_features(tmp_path: Path) -> None:
    rows = [[0.5] * (1 + i % 9) for i in range(90)]
    table = pa.table({"v": pa.array(rows, pa.list_(pa.float32())), "x": np.arange(90) % 7})
    source = opened(parquet(tmp_path / "t", table))
    selection = select_features(source, FeatureParams())
    assert selection.spec.names == ("x",)
    assert '"v": lists of 1 to 9 numbers' in selection.notes[0]
    with pytest.raises(DataError, match='"v" holds lists of 1 to 9 numbers'):
        select_features(source, FeatureParams(columns=("v",)))


# --- which are features ---------------------------------------------------------------------------


def beside() -> pa.Table:
    return pa.table({"v": fixed(), "x": np.arange(N) % 7, "s": [f"t{i % 3}" for i in range(N)]})


def test_lists_are_left_out_beside_numbers_and_the_note_says_what_to_type(tmp_path: Path) -> None:
    source = opened(parquet(tmp_path / "t", beside()))
    selection = select_features(source, FeatureParams())
    assert selection.spec.names == ("x",)
    assert 'left out "v": lists of 6 numbers (-c v uses them)' in selection.notes


@pytest.mark.parametrize(
    ("asked", "exclude", "names"),
    [
        (("v",), (), "v0 v1 v2 v3 v4 v5"),
        (("v[0:2]",), (), "v0 v1"),
        (("v[4:]", "x"), (), "v4 v5 x"),
        (("x", "v[:2]", "v[5]"), (), "x v0 v1 v5"),
        (("v[3]", "x", "v[0]"), (), "v3 v0 x"),  # the items of one column stand together
        (("v", "x"), ("v[1:4]",), "v0 v4 v5 x"),
        (None, ("x",), "v0 v1 v2 v3 v4 v5"),
        (None, ("x", "v[0]", "v[5]"), "v1 v2 v3 v4"),
    ],
)
def test_items_are_named_as_slices(asked: Any, exclude: Any, names: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "t", beside())
    params = FeatureParams(columns=asked, exclude=exclude)
    spec = select_features(opened(path), params).spec
    assert [n.replace("[", "").replace("]", "") for n in spec.names] == names.split()
    columns = {**{f"v{i}": X[:, i] for i in range(D)}, "x": np.arange(N) % 7}
    assert np.array_equal(matrix(path, params=params), np.stack([columns[n] for n in names.split()], axis=1))


@pytest.mark.parametrize(
    ("asked", "exclude", "error", "said"),
    [
        (("v[6]",), (), DataError, r"lists of 6 numbers; there is no v\[6\]"),
        (("v[2:9]",), (), DataError, r"there is no v\[8\]"),
        (("v[3:3]",), (), UsageError, "no items"),
        (("v[0:3]", "v[2]"), (), UsageError, "named twice"),
        (("v", "v[2]"), (), UsageError, "named twice"),
        (("v",), ("v",), UsageError, "by -c and by -x"),
        (("v[0:2]",), ("v[0]", "v[1]"), UsageError, 'no item of "v" is left'),
        (("x[0]",), (), DataError, "no lists"),
        (None, ("s[0]",), DataError, "no lists"),
        (("w[0]",), (), DataError, r'no column "w\[0\]"'),
    ],
)
def test_items_that_make_no_sense_are_refused(
    asked: Any, exclude: Any, error: type[Exception], said: str, tmp_path: Path
) -> None:
    source = opened(parquet(tmp_path / "t", beside()))
    with pytest.raises(error, match=said):
        select_features(source, FeatureParams(columns=asked, exclude=exclude))


def test_a_column_whose_own_name_has_brackets_is_that_column(tmp_path: Path) -> None:
    table = pa.table({"v[0]": np.arange(N) % 5, "v": fixed()})
    source = opened(parquet(tmp_path / "t", table))
    assert select_features(source, FeatureParams(columns=("v[0]",))).spec.lengths == {}
    with pytest.raises(DataError, match=r'two features are called "v\[0\]"'):
        select_features(source, FeatureParams(columns=("v[0]", "v")))


# --- structs --------------------------------------------------------------------------------------


def structs() -> pa.Table:
    inner = [{"lat": i % 9 + 0.5, "deep": {"z": i % 4}} if i % 10 else None for i in range(N)]
    return pa.table({"location": inner, "x": np.arange(N) % 7})


@pytest.mark.parametrize("write", [parquet, arrow, orc], ids=["parquet", "arrow", "orc"])
def test_fields_within_structs_are_columns_when_they_are_named(write: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "t", structs())
    got = matrix(path, params=FeatureParams(columns=("location.lat", "x", "location.deep.z"), missing="mean"))
    expected = [[i % 9 + 0.5, i % 7, i % 4] if i % 10 else [np.nan, i % 7, np.nan] for i in range(N)]
    assert np.array_equal(got, expected, equal_nan=True)
    source = opened(path)
    kept = next(source.chunks(["x"], [])).kept
    assert kept is None
    source.expose(["location.lat"])
    chunk = next(source.chunks(["x"], ["location.lat"]))
    assert chunk.kept is not None
    assert chunk.kept.column(0).to_pylist()[:3] == [None, 1.5, 2.5]


def test_a_field_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    source = opened(parquet(tmp_path / "t", structs()))
    for name in ("location.lon", "location.deep.q", "x.y", "location."):
        with pytest.raises(DataError, match=f'no column "{name}"'):
            select_features(source, FeatureParams(columns=(name,)))


def test_a_struct_is_refused_with_the_names_of_its_numbers(tmp_path: Path) -> None:
    inner = [{"x": 1.0, "w": "a", "in": {"y, z": 2}}] * 40
    path = parquet(tmp_path / "t", pa.table({"st": inner, "no": [{"w": "a"}] * 40}))
    with pytest.raises(DataError, match='column "st" is struct') as caught:
        select_features(opened(path), FeatureParams(columns=("st",)))
    hint = str(caught.value.hint)
    assert hint == """name its fields: -c 'st.x,"st.in.y, z"', or leave "st" out of -c"""
    with pytest.raises(DataError, match='column "no" is struct') as caught:
        select_features(opened(path), FeatureParams(columns=("no",)))
    assert "convert it to numbers" in str(caught.value.hint)
    named = select_features(opened(path), FeatureParams(columns=("st.x", "st.in.y, z")))
    assert named.spec.names == ("st.x", "st.in.y, z")


def test_a_list_within_a_struct_has_items(tmp_path: Path) -> None:
    table = pa.table({"doc": pa.StructArray.from_arrays([fixed(), pa.array(["a"] * N)], ["emb", "t"])})
    path = parquet(tmp_path / "t", table)
    assert np.array_equal(matrix(path, params=FeatureParams(columns=("doc.emb[2:4]",))), X[:, 2:4])


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clusters in vectors, in every form, with an id; v.npz learned from the Parquet file."""
    folder = tmp_path_factory.mktemp("lists")
    rng = np.random.default_rng(5)
    Y = rng.normal(size=(900, 4)).astype(np.float32)
    Y[:, 1] += 9 * (np.arange(900) % 3)
    ids = [f"d{i}" for i in range(900)]
    np.save(folder / "truth.npy", Y)
    pq.write_table(pa.table({"id": ids, "embedding": fixed(Y)}), folder / "t.parquet")
    lists = fixed(Y).cast(pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": ids, "embedding": lists}), folder / "l.parquet")
    as_csv(folder / "t.csv", id=ids, embedding=as_json(Y))
    pq.write_table(pa.table({f"c{i}": Y[:, i] for i in range(4)}), folder / "flat.parquet")
    imdh("fit", folder / "t.parquet", "-o", folder / "v.npz")
    return folder


def test_a_model_of_vectors_is_that_of_flat_columns(clusters: Path) -> None:
    imdh("fit", clusters / "flat.parquet", "-o", clusters / "flat.npz")
    a, b = arrays(clusters / "v.npz"), arrays(clusters / "flat.npz")
    assert a["feature_names"].tolist() == [f"embedding[{i}]" for i in range(4)]
    for name in set(a) - {"metadata", "feature_names"}:
        assert np.array_equal(a[name], b[name]), name
    columns = metadata(clusters / "v.npz")["features"]["columns"]
    assert columns == [{"name": "embedding", "levels": None, "length": 4, "items": [[0, 4]]}]


@pytest.mark.parametrize("name", ["t.parquet", "l.parquet", "t.csv"])
def test_labels_are_joined_back_by_the_id(clusters: Path, name: str, tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    imdh("assign", clusters / "v.npz", clusters / name, "--keep", "id", "-o", out)
    found = labels(out)
    assert [len(set(found[k::3])) for k in range(3)] == [1, 1, 1]
    assert len(set(found)) == 3
    assert out.read_text().split("\n")[1].startswith("d0,")


def test_kept_lists_come_back_as_they_were(clusters: Path, tmp_path: Path) -> None:
    Y = np.load(clusters / "truth.npy")
    imdh("assign", clusters / "v.npz", clusters / "t.parquet", "--keep-all", "-o", tmp_path / "o.parquet")
    kept = pq.read_table(tmp_path / "o.parquet")
    assert kept.schema.field("embedding").type == pa.list_(pa.float32(), 4)
    assert np.array_equal(np.array(kept["embedding"].to_pylist(), np.float32), Y)
    imdh(
        "assign", clusters / "v.npz", clusters / "t.parquet", "--keep", "embedding", "-o", tmp_path / "o.csv"
    )
    import pandas as pd

    written = pd.read_csv(tmp_path / "o.csv")["embedding"].map(json.loads)
    assert np.array_equal(np.array(written.tolist(), np.float32), Y)
    imdh("assign", clusters / "v.npz", clusters / "t.csv", "--keep", "embedding", "-o", tmp_path / "o2.csv")
    assert pd.read_csv(tmp_path / "o2.csv")["embedding"].tolist() == as_json(Y)  # byte for byte


def test_a_stream_of_vectors_is_learned_from(clusters: Path, tmp_path: Path) -> None:
    imdh("fit", "-", "-o", tmp_path / "s.npz", stdin=(clusters / "t.csv").read_bytes())
    assert np.array_equal(arrays(tmp_path / "s.npz")["counts"], arrays(clusters / "v.npz")["counts"])


def test_other_lists_than_the_model_learned_are_refused(clusters: Path, tmp_path: Path) -> None:
    spec = FeatureSpec.from_dict(metadata(clusters / "v.npz")["features"])
    for column, said in (
        (fixed(X), "is a list of 6 numbers; the model learned lists of 4 numbers"),
        (pa.array(np.arange(N)), "is number.*; the model learned lists of 4 numbers"),
    ):
        source = opened(parquet(tmp_path / "t.parquet", pa.table({"embedding": column})))
        with pytest.raises(DataError, match=said):
            bind_features(source, spec)


def test_a_plan_names_vectors_shortly(clusters: Path) -> None:
    plan = imdh("fit", clusters / "t.parquet", "-n").out.decode()
    assert "embedding  fixed_size_list<element: float>[4], 4 features" in plan


def test_an_update_goes_on_with_items(clusters: Path, tmp_path: Path) -> None:
    imdh("fit", clusters / "t.parquet", "-c", "embedding[0:2]", "-o", tmp_path / "two.npz")
    imdh("fit", clusters / "l.parquet", "--update", tmp_path / "two.npz", "-o", tmp_path / "more.npz")
    assert metadata(tmp_path / "more.npz")["features"] == metadata(tmp_path / "two.npz")["features"]


@pytest.mark.parametrize(
    "damage",
    [
        *({"length": n} for n in (0, -1, 1.0, 1 << 40)),
        *({"items": i} for i in ([], [[0, 9]], [[2, 2]], [[0]], [["0", "1"]], "all", [[0, 2], [1, 3]])),
        {"levels": ["a"]},
    ],
)
def test_a_damaged_spec_is_refused(damage: dict[str, Any]) -> None:
    column = {"name": "v", "levels": None, "length": 4, "items": [[0, 4]]} | damage
    with pytest.raises(ModelError):
        FeatureSpec.from_dict({"columns": [column], "missing": "skip"})
