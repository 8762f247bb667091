"""`--null-value`: what is missing in every format, in all columns or in one, remembered by the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from imdh_cli.errors import DataError, ModelError
from imdh_cli.features import FeatureSpec, Tally, bind_features, extract, select_features
from imdh_cli.params import FeatureParams
from imdh_cli.sources.nulls import Nulls
from tests.cli import imdh, labels, metadata
from tests.tables import arrow, opened, orc, parquet

N = 60
A = np.where(np.arange(N) % 6, np.arange(N) + 0.5, -99999.0)
B = np.where(np.arange(N) % 4, np.arange(N) % 7, 9999)


def csv(path: Path, content: pa.Table) -> str:
    pyarrow.csv.write_csv(content, path)
    return str(path)


def jsonl(path: Path, content: pa.Table) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in content.to_pylist()))
    return str(path)


WRITERS: dict[str, Callable[[Path, pa.Table], str]] = {
    "csv": csv, "parquet": parquet, "arrow": arrow, "orc": orc, "jsonl": jsonl,
}  # fmt: skip


def used_and_missing(path: str, *nulls: str, **features: Any) -> tuple[list[int], dict[str, int]]:
    source = opened(path, null_values=nulls)
    spec = select_features(source, FeatureParams(**features)).spec
    tally, used = Tally(), []
    for chunk in source.chunks(spec.source_columns):
        used.append(extract(chunk, spec, tally)[1])
    return np.flatnonzero(np.concatenate(used)).tolist(), tally.missing


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_number_is_missing_in_every_format(suffix: str, tmp_path: Path) -> None:
    path = WRITERS[suffix](tmp_path / f"t.{suffix}", pa.table({"a": A, "b": B}))
    whole = [i for i in range(N) if i % 6]
    assert used_and_missing(path) == (list(range(N)), {})
    assert used_and_missing(path, "-99999") == (whole, {"a": 10})
    assert used_and_missing(path, "-9.9999e4") == (whole, {"a": 10})
    both = [i for i in range(N) if i % 6 and i % 4]
    assert used_and_missing(path, "-99999", "9999") == (both, {"a": 10, "b": 15})


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_value_may_be_missing_in_one_column_only(suffix: str, tmp_path: Path) -> None:
    content = pa.table({"a": B, "b": B, "c=d": A})
    path = WRITERS[suffix](tmp_path / f"t.{suffix}", content)
    assert used_and_missing(path, "a=9999")[1] == {"a": 15}
    assert used_and_missing(path, "b=9999", "c=d=-99999")[1] == {"b": 15, "c=d": 10}


@pytest.mark.parametrize(
    ("kind", "value", "typed"),
    [
        (pa.float32(), -99999.9, "-99999.9"), (pa.float16(), 9.5, "9.5"), (pa.int8(), -99, "-99"),
        (pa.uint8(), 255, "255"), (pa.int64(), -(2**60), str(-(2**60))), (pa.float64(), 1e30, "1e30"),
        (pa.decimal128(12, 2), 999, "999"), (pa.int32(), 999, "999.0"), (pa.uint16(), 9999, "+9999"),
    ],
)  # fmt: skip
def test_a_number_is_compared_in_the_type_of_its_column(
    kind: pa.DataType, value: float, typed: str, tmp_path: Path
) -> None:
    cells = [value if i % 9 == 0 else i % 5 for i in range(45)]
    column = pa.array(np.array(cells, np.float16)) if kind == pa.float16() else pa.array(cells)
    column = column.cast(pa.int32()).cast(kind) if pa.types.is_decimal(kind) else column.cast(kind)
    path = arrow(tmp_path / "t", pa.table({"x": column, "y": np.arange(45) % 4}))
    assert used_and_missing(path, typed)[1] == {"x": 5}
    assert used_and_missing(path, "-1.5", "300.25", "NA", "1e99")[1] == {}


def test_items_of_lists_are_missing_too(tmp_path: Path) -> None:
    rows = np.arange(60.0).reshape(20, 3)
    rows[3, 1] = rows[7, 0] = -1
    flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)
    path = parquet(tmp_path / "t", pa.table({"v": flat}))
    used, missing = used_and_missing(path, "-1")
    assert [i for i in range(20) if i not in used] == [3, 7]
    assert missing == {"v": 2}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_word_is_missing_where_numbers_or_levels_belong(suffix: str, tmp_path: Path) -> None:
    words = ["?" if i % 5 == 0 else f"w{i % 3}" for i in range(N)]
    path = WRITERS[suffix](tmp_path / f"t.{suffix}", pa.table({"s": words, "b": B}))
    used, missing = used_and_missing(path, "?", categorical="onehot")
    assert missing == {"s": 12}
    assert used_and_missing(path, "s=?", categorical="onehot") == (used, missing)
    assert used_and_missing(path, "b=?", categorical="onehot")[1] == {}


def test_a_word_among_numbers_of_a_csv_may_belong_to_one_column(tmp_path: Path) -> None:
    lines = ["a,b"] + [f"{'?' if i % 5 == 0 else i},{i % 7}" for i in range(50)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    path = str(tmp_path / "t.csv")
    assert used_and_missing(path, "a=?")[1] == {"a": 10}
    with pytest.raises(DataError, match=r'column "a": "\?" is not a number'):
        used_and_missing(path, "b=?")


def test_a_column_that_is_not_there_is_told_from_text(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t", pa.table({"price": A, "b": B}))
    with pytest.raises(DataError, match='no column "prce"') as caught:
        used_and_missing(path, "prce=-99999")
    assert caught.value.hint == "did you mean --null-value price=-99999?"
    assert used_and_missing(path, "n=1")[1] == {}  # a text like another


def test_names_that_hold_an_equals_sign_are_found() -> None:
    found = Nulls.of(["a=b=1", "a=2", "=3", "c=4", "a="], ["a", "a=b", ""])
    assert found.columns == {"a": ("b=1", "2", ""), "": ("3",)}
    assert found.everywhere == ("c=4",)


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_model_remembers_what_is_missing(suffix: str, tmp_path: Path) -> None:
    path = WRITERS[suffix](tmp_path / f"t.{suffix}", pa.table({"a": np.tile(A, 5), "b": np.tile(B, 5)}))
    imdh("fit", path, "-o", tmp_path / "m.npz", "--null-value", "a=-99999", "--null-value", "9999")
    assert metadata(tmp_path / "m.npz")["features"]["null_values"] == ["a=-99999", "9999"]
    imdh("assign", tmp_path / "m.npz", path, "-o", tmp_path / "o.csv")
    lost = np.flatnonzero(labels(tmp_path / "o.csv") == -1)
    assert lost.tolist() == [i for i in range(5 * N) if i % N % 6 == 0 or i % N % 4 == 0]
    imdh("assign", tmp_path / "m.npz", path, "-o", tmp_path / "more.csv", "--null-value", "b=0")
    more = np.flatnonzero(labels(tmp_path / "more.csv") == -1)
    assert set(lost) < set(more)


def test_sql_labels_them_as_assign_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    content = pa.table(
        {
            "a": np.where(rng.random(900) < 0.1, -99999.0, rng.normal(size=900) + 9 * (np.arange(900) % 2)),
            "f": pa.array(np.where(rng.random(900) < 0.1, -0.1, rng.normal(size=900)), pa.float32()),
            "s": np.where(rng.random(900) < 0.1, "?", np.where(np.arange(900) % 2, "p", "q")),
        }
    )
    path = parquet(tmp_path / "t.parquet", content)
    nulls = ["--null-value", "a=-99999", "--null-value", "f=-0.1", "--null-value", "?"]
    for more in ([], ["--missing", "mean"]):
        imdh("fit", path, "-o", tmp_path / "m.npz", "-f", "--categorical", "onehot", *nulls, *more)
        assert metadata(tmp_path / "m.npz")["missing"].keys() == {"a", "f", "s"}
        imdh("sql", tmp_path / "m.npz", "--check", path, "-o", tmp_path / "q.sql", "-f")


def test_a_model_without_null_values_says_nothing_of_them(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", pa.table({"a": A, "b": B}))
    imdh("fit", path, "-o", tmp_path / "m.npz")
    assert "null_values" not in metadata(tmp_path / "m.npz")["features"]


def test_a_damaged_list_of_them_is_refused() -> None:
    for nulls in ("-1", [1], {"a": 1}, None):
        features = {"columns": [{"name": "a", "levels": None}], "missing": "skip", "null_values": nulls}
        with pytest.raises(ModelError):
            FeatureSpec.from_dict(features)


def test_an_update_goes_on_with_them(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", pa.table({"a": np.tile(A, 9), "b": np.tile(B, 9)}))
    imdh("fit", path, "-o", tmp_path / "m.npz", "--null-value", "a=-99999")
    imdh("fit", path, "--update", tmp_path / "m.npz", "-o", tmp_path / "u.npz")
    told = metadata(tmp_path / "u.npz")
    assert told["features"]["null_values"] == ["a=-99999"]
    assert told["missing"] == {"a": 180}


def test_bind_features_tells_the_source(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", pa.table({"a": A, "b": B}))
    source = opened(path)
    spec = select_features(opened(path, null_values=("a=-99999",)), FeatureParams()).spec
    bind_features(source, spec)
    assert source.null_values == ("a=-99999",)
    assert sum(c.features.column(0).null_count for c in source.chunks(["a"])) == 10
