"""A number that stands for a missing one is named, with what it does and what to type."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imdh_cli.core.sentinels import Sentinel, Sentinels
from imdh_cli.features import select_features
from imdh_cli.params import FeatureParams, FitParams
from imdh_cli.pipeline.feature_rows import FeatureRows
from tests.cli import ROOT, imdh, metadata
from tests.tables import opened, parquet

RNG = np.random.default_rng


def found(X: np.ndarray, block: int = 8192, skip: np.ndarray | None = None) -> list[Sentinel]:
    sentinels = Sentinels(X.shape[1], skip)
    for k in range(0, len(X), block):
        sentinels.add(X[k : k + block])
    return sentinels.found()


def planted(n: int, cells: int, value: float, *, d: int = 3, column: int = 1, seed: int = 0) -> np.ndarray:
    rng = RNG(seed)
    X = rng.normal(size=(n, d)) * 3 + 20
    X[rng.choice(n, cells, replace=False), column] = value
    return X


@pytest.mark.parametrize("value", [-99999.0, -9999.0, -999.0, 9999.0, 1e30, -1e30, 1e99, 0.0, -99.0])
@pytest.mark.parametrize(
    ("n", "cells"), [(10_000, 10), (10_000, 3), (300_000, 5), (3000, 1400), (60, 4), (100_000, 40_000)]
)
def test_the_value_its_cells_and_the_rest_are_exact(value: float, n: int, cells: int) -> None:
    if value == 0.0:
        value = -40.0
    X = planted(n, cells, value)
    (one,) = found(X)
    rest = X[X[:, 1] != value, 1]
    assert (one.column, one.value, one.cells) == (1, value, cells)
    assert one.others == pytest.approx(rest[:20_000].std(), rel=0.1)
    assert found(X, 997) == [one]  # however the rows are cut into blocks


def test_a_measurement_in_rows_that_come_again_is_not_taken_for_a_code(tmp_path: Path) -> None:
    points = np.repeat(RNG(0).normal(size=(5, 2)), 1000, axis=0)
    points[:, 0] = np.repeat([0.1234567, 0.2345678, 0.3456789, 0.4567891, 158.42503260559082], 1000)

    def told(X: np.ndarray) -> list[float]:
        imdh(
            "fit",
            parquet(tmp_path / "p.parquet", pa.table({"a": X[:, 0], "b": X[:, 1]})),
            "-o",
            tmp_path / "m.npz",
            "-f",
        )
        return [suspect["value"] for suspect in metadata(tmp_path / "m.npz").get("suspects", [])]

    assert told(points) == []
    for value in (-99.9, float(np.float32(-999.9)), -99999999.0, 9.969209968386869e36):
        points[:10, 0] = value
        assert told(points) == [value]


def test_two_of_them_in_a_column_and_others_in_others() -> None:
    X = planted(50_000, 400, -999)
    X[::97, 1] = -99999
    X[5::5000, 0] = 1e30
    expected = [(0, 1e30, 10), (1, -99999.0, len(X[::97])), (1, -999.0, int((X[:, 1] == -999).sum()))]
    assert [(s.column, s.value, s.cells) for s in found(X)] == expected


def test_they_are_found_when_they_come_late() -> None:
    X = RNG(0).normal(size=(100_000, 2))
    X[-4:, 1] = 1e6
    assert [(s.column, s.value, s.cells) for s in found(X)] == [(1, 1e6, 4)]


def test_they_are_found_among_few_codes_and_missing_cells() -> None:
    rng = RNG(0)
    X = rng.integers(1, 6, size=(2000, 2)).astype(float)
    X[::50, 0] = 99
    X[rng.random(2000) < 0.2, 1] = np.nan
    X[7::100, 1] = -99
    assert [(s.column, s.value) for s in found(X)] == [(0, 99.0), (1, -99.0)]


ORDINARY = {
    "normal": lambda r: r.normal(size=20_000),
    "lognormal": lambda r: r.lognormal(0, 3, size=20_000),
    "whole lognormal": lambda r: np.floor(r.lognormal(1, 2.5, size=20_000)),
    "Cauchy": lambda r: r.standard_cauchy(size=20_000),
    "Pareto": lambda r: np.floor(r.pareto(0.7, size=20_000)),
    "half zeros": lambda r: np.where(r.random(20_000) < 0.5, 0, r.normal(size=20_000)),
    "two clusters far apart": lambda r: r.normal(size=20_000) + 1000 * (np.arange(20_000) % 3 == 0),
    "two outliers": lambda r: np.concatenate([r.normal(size=19_998), [1e9, -1e9]]),
    "many outliers": lambda r: np.concatenate([r.normal(size=19_000), r.normal(size=1000) * 1e6]),
    "0 and 1": lambda r: (r.random(20_000) < 0.01) * 1.0,
    "0 and 1000": lambda r: (r.random(20_000) < 0.3) * 1000.0,
    "codes": lambda r: r.choice([10115.0, 20095, 50667, 80331, 99084], size=20_000),
    "constant": lambda r: np.full(20_000, 7.0),
    "epoch seconds": lambda r: 1.7e9 + r.random(20_000),
    "hours and -1": lambda r: r.integers(-1, 24, size=20_000).astype(float),
    "hours": lambda r: r.integers(0, 24, size=20_000).astype(float),
    "ratings": lambda r: r.choice([1.0, 2, 3, 4, 5, 7], size=20_000),
    "likert": lambda r: r.integers(-2, 3, size=20_000).astype(float),
    "percent": lambda r: np.clip(r.normal(70, 15, size=20_000), -1, 99).round(),
    "cosines": lambda r: np.maximum(
        np.where(r.random(20_000) < 0.05, -1, r.uniform(-0.3, 1, size=20_000)), -1
    ),
    "years in work": lambda r: np.where(r.random(20_000) < 0.1, 0, 3 + r.gamma(2, 3, size=20_000).round()),
    "hours of work": lambda r: np.where(r.random(20_000) < 0.15, 0, r.normal(40, 10, size=20_000).round()),
    "counts and zeros": lambda r: np.where(r.random(20_000) < 0.3, 0, r.poisson(30, size=20_000)) * 1.0,
    "tens": lambda r: r.integers(0, 10, size=20_000) * 10.0,
    "cigarettes": lambda r: r.choice(
        [0.0, 5, 10, 15, 20, 30, 40], p=[0.08] + 4 * [0.2] + 2 * [0.06], size=20_000
    ),
    "clipped": lambda r: np.clip(r.normal(size=20_000), -1, 1),
    "dates": lambda r: np.floor(r.random(20_000) * 3650) * 86400,
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_columns_hold_none(name: str) -> None:
    for seed in range(5):
        assert found(ORDINARY[name](RNG(seed))[:, None]) == []


CODED = {
    "ages": (-1.0, lambda r: r.integers(18, 90, size=20_000)),
    "marks": (9.0, lambda r: r.integers(1, 6, size=20_000)),
    "hours": (99.0, lambda r: r.integers(0, 24, size=20_000)),
    "grades": (-9.0, lambda r: r.integers(0, 16, size=20_000)),
    "blood pressure": (0.0, lambda r: r.normal(72, 12, size=20_000).round()),
    "western longitudes": (0.0, lambda r: r.uniform(-124, -67, size=20_000)),
}


@pytest.mark.parametrize("share", [0.002, 0.05])
@pytest.mark.parametrize("name", CODED)
def test_a_near_value_that_is_written_as_a_code_and_stands_apart_is_one(name: str, share: float) -> None:
    value, column = CODED[name]
    x = column(RNG(0)).astype(float)
    x[RNG(1).random(20_000) < share] = value
    x = np.concatenate([x, x])
    (one,) = found(x[:, None])
    assert (one.value, one.cells) == (value, int((x == value).sum()))
    assert one.others == pytest.approx(x[x != value].std(), rel=0.02)


def test_two_near_codes_and_a_far_one_are_told_apart() -> None:
    x = RNG(0).integers(18, 66, size=20_000).astype(float)
    x[:40], x[40:100], x[100:110], x[110:160] = -1, -9, -99999, 99
    assert [(s.value, s.cells) for s in found(x[:, None])] == [(-99999, 10), (-9, 60), (-1, 40), (99, 50)]


def test_a_gap_that_later_rows_fill_is_none() -> None:
    x = RNG(0).integers(18, 66, size=40_000).astype(float)
    x[::100] = -1
    assert [s.value for s in found(x[:, None])] == [-1]
    x[20_001::100] = 4
    assert found(x[:, None]) == []


@pytest.mark.parametrize("name", ["cities.parquet", "digits.csv"])
def test_the_sample_data_hold_none(name: str) -> None:
    path = ROOT / "sample_data" / name
    table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    assert found(table.select_dtypes("number").to_numpy(float)) == []


def test_columns_of_levels_are_not_looked_at() -> None:
    X = planted(3000, 9, -999)
    assert found(X, skip=np.array([False, True, False])) == []


@given(
    seed=st.integers(0, 1000),
    cells=st.integers(3, 60),
    value=st.sampled_from([-9999.0, 1e5, 99999.0, -1e20]),
    block=st.integers(1, 3000),
    missing=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_any_cut_into_blocks_counts_alike(
    seed: int, cells: int, value: float, block: int, missing: bool
) -> None:
    X = planted(2500, cells, value, seed=seed)
    if missing:
        X[RNG(seed).random(X.shape) < 0.05] = np.nan
    left = int((X[:, 1] == value).sum())
    expected = [(1, value, left)] if left >= 3 else []
    assert [(s.column, s.value, s.cells) for s in found(X, block)] == expected


# --- the commands ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t.parquet and t.csv: four clusters in a and b, ten cells of a are -99999."""
    folder = tmp_path_factory.mktemp("sentinels")
    rng = RNG(2)
    at = np.arange(10_000)
    a = rng.normal(size=10_000) + 10 * (at % 2)
    a[rng.choice(10_000, 10, replace=False)] = -99999
    table = pa.table({"a": a, "b": rng.normal(size=10_000) + 10 * (at % 4 // 2)})
    parquet(folder / "t.parquet", table)
    table.to_pandas().to_csv(folder / "t.csv", index=False)
    return folder


SAID = (
    r'warning: "a": -99999 in 10 cells, apart from all others: the column\'s sd is 3,\d\d\d with them and '
    r"5\.\d+ without; if it means missing, add (--null-value a=-99999)"
)


@pytest.mark.parametrize(
    "line",
    [
        "t.parquet",
        "t.csv",
        "-",
        "t.parquet --buffer-rows 500 --passes 2",
        "t.csv --shuffle none --passes 1",
        "t.parquet --sample 5000",
    ],
)
def test_it_is_named_and_the_hint_finds_the_four_clusters(
    line: str, four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(four)
    stdin = (four / "t.csv").read_bytes() if line == "-" else b""
    ran = imdh("fit", *line.split(), "-o", "m.npz", "-f", stdin=stdin)
    said = re.search(SAID, ran.err)
    assert said, ran.err
    assert "clear choice" not in ran.err
    assert "Not clear while cells may stand for missing ones" in ran.err
    mended = imdh("fit", *line.split(), "-o", "m.npz", "-f", *said[1].split(), stdin=stdin)
    assert "4 clusters, a clear choice" in mended.err
    assert "warning" not in mended.err


def test_no_choice_is_clear_while_a_near_code_is_warned_of(tmp_path: Path) -> None:
    rng = RNG(0)
    table = {"age": rng.integers(18, 90, size=3000), "y": rng.normal(size=3000) + 10 * (np.arange(3000) % 2)}
    words = "--n-init", "1", "-o", tmp_path / "m.npz", "-f"
    table["age"][:150] = -1
    ran = imdh("fit", parquet(tmp_path / "t.parquet", pa.table(table)), *words)
    assert 'warning: "age": -1 in 150 cells, apart from all others' in ran.err
    assert "Not clear while" in ran.err
    assert "clear choice" not in ran.err
    mended = imdh("fit", tmp_path / "t.parquet", *words, "--null-value", "age=-1")
    assert "apart from" not in mended.err


def test_a_model_keeps_the_doubt(four: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.npz"
    summary = imdh("fit", four / "t.parquet", "-o", model, "--json").json
    (suspect,) = summary["suspects"]
    assert (suspect["column"], suspect["value"], suspect["cells"]) == ("a", -99999.0, 10)
    assert metadata(model)["suspects"] == [suspect]
    assert summary["choice"]["clarity"] == "close"
    assert imdh("prune", model, "--json", "-o", tmp_path / "p.npz").json["clarity"] == "close"
    report = imdh("report", model, "--json").json
    assert report["choice"]["natural_clarity"] == "close"
    assert report["choice"]["sentence"].startswith("Not clear while cells may stand for missing ones")
    caution = next(w["message"] for w in report["warnings"] if w["code"] == "sentinel")
    assert caution.startswith('"a": -99999 in 10')
    imdh("fit", four / "t.csv", "--update", model, "-o", tmp_path / "u.npz")
    assert [s["cells"] for s in metadata(tmp_path / "u.npz")["suspects"]] == [10, 10]


def test_a_run_that_goes_on_later_knows_what_the_first_reading_found(four: Path) -> None:
    def rows() -> FeatureRows:
        source = opened(four / "t.csv")
        return FeatureRows(source, select_features(source, FeatureParams()).spec, params=FitParams())

    first, later = rows(), rows()
    for _ in first.blocks(0):
        pass
    assert [(s.value, s.cells) for s in first.sentinels] == [(-99999.0, 10)]
    later.restore(json.loads(json.dumps(first.state())))
    assert later.sentinels == first.sentinels
    assert later.first_tally == first.first_tally
    for _ in later.blocks(1):
        pass
    assert later.sentinels == first.sentinels


def test_a_single_precision_number_is_told_as_it_was_meant(tmp_path: Path) -> None:
    X = planted(2000, 12, -99999.9).astype(np.float32)
    path = parquet(tmp_path / "t.parquet", pa.table({"x": X[:, 0], "y": X[:, 1]}))
    err = imdh("fit", path, "-o", tmp_path / "m.npz").err
    assert "--null-value y=-99999.9\n" in err
    assert "12 of 2,000" in imdh("fit", path, "-o", tmp_path / "n.npz", "--null-value", "y=-99999.9").err


def test_items_of_lists_are_named(tmp_path: Path) -> None:
    X = planted(2000, 12, -999)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
    path = parquet(tmp_path / "t.parquet", pa.table({"my v": lists}))
    err = imdh("fit", path, "-o", tmp_path / "m.npz").err
    assert '"my v[1]": -999 in 12 cells' in err
    assert "--null-value 'my v=-999'" in err
