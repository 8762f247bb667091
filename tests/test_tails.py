"""A few cells far from all others do not flatten their column; a long tail is no such cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.learn import learn
from imdh_cli.params import FitParams
from imdh_cli.rows.source import ArrayRows
from tests.cli import arrays, imdh, metadata, write

N = 10_000
RNG = np.random.default_rng(0)
CELLS = RNG.choice(N, 10, replace=False)


def carried(far: Any) -> tuple[np.ndarray, np.ndarray]:
    """Three clusters told apart by the first of three columns, ten cells of which are `far`; and which."""
    truth = RNG.integers(0, 3, N)
    X = np.column_stack([RNG.normal(size=N) + 7 * truth, RNG.normal(size=(N, 2))])
    X[CELLS, 0] = far
    return X, truth


FAR = {
    "a million": 1e6 * (1 + RNG.random(10)),
    "minus a million": -1e6 * (1 + RNG.random(10)),
    "both sides": 1e6 * RNG.normal(size=10),
    "a thousand": 1000 + np.arange(10.0),
    "four hundred": 400 + np.arange(10.0),
    "of many sizes": 10.0 ** np.arange(4, 14),
    "huge": 1e90 * (1 + RNG.random(10)),
    "one cell": np.where(np.arange(10) == 0, 1e7, 5.0),
}


@pytest.mark.parametrize("name", FAR)
def test_ten_cells_do_not_hide_clusters(name: str, tmp_path: Path) -> None:
    X, truth = carried(FAR[name])
    data = write(tmp_path / "t.parquet", X)
    done = imdh("fit", data, "-o", tmp_path / "m.npz")
    labels = [int(x) for x in imdh("assign", tmp_path / "m.npz", data, "-q").text.split()[1:]]
    rest = np.setdiff1d(np.arange(N), CELLS)
    assert adjusted_rand_score(truth[rest], np.array(labels)[rest]) > 0.99
    near = X[np.abs(X[:, 0]) < 100, 0]
    model = arrays(tmp_path / "m.npz")
    np.testing.assert_allclose([model["center"][0], model["scale"][0]], [near.mean(), near.std()], rtol=1e-9)
    np.testing.assert_allclose(model["center"][1:], X[:, 1:].mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(model["scale"][1:], X[:, 1:].std(axis=0), rtol=1e-9)
    (tail,) = metadata(tmp_path / "m.npz")["tails"]
    assert (tail["feature"], tail["cells"], tail["of"]) == ("x1", N - len(near), N)
    assert tail["sd"] == pytest.approx(X[:, 0].std(), rel=1e-6)
    assert tail["others"] == pytest.approx(near.std(), rel=1e-9)
    assert f'"x1": {N - len(near)} cell' in done.err
    assert "far from all others would flatten it" in done.err


def test_the_report_says_so_and_tells_the_others_figures(tmp_path: Path) -> None:
    X, _ = carried(FAR["a million"])
    data = write(tmp_path / "t.parquet", X)
    told = json.loads(imdh("fit", data, "-o", tmp_path / "m.npz", "--json").out)
    assert [tail["feature"] for tail in told["far_cells"]] == ["x1"]
    near = X[np.abs(X[:, 0]) < 100, 0]
    imdh("report", tmp_path / "m.npz", "--html", tmp_path / "r.html")
    said = '"x1": 10 cells (0.1 %) far from all others would flatten it: scaled by the others'
    assert said in " ".join(imdh("report", tmp_path / "m.npz").text.replace("!", " ").split())
    assert "far from all others would flatten it" in (tmp_path / "r.html").read_text()
    report = imdh("report", tmp_path / "m.npz", "--json").json
    assert said in {w["code"]: w["message"] for w in report["warnings"]}["far-cells"]
    first = report["data"]["features"][0]
    assert (first["mean"], first["sd"]) == pytest.approx((near.mean(), near.std()), rel=1e-9)
    same = imdh("report", tmp_path / "m.npz", data, "--drift", "--json").json["drift"]["features"][0]
    assert (same["mean_now"], same["sd_now"]) == pytest.approx((near.mean(), near.std()), rel=1e-6)


SHAPES = {
    "normal": RNG.normal(size=N), "lognormal": np.exp(RNG.normal(size=N)), "t": RNG.standard_t(2, N),
    "exponential": RNG.exponential(size=N), "wide lognormal": np.exp(2 * RNG.normal(size=N)),
    "counts": np.floor(RNG.pareto(2, N)), "two modes": RNG.normal(size=N) + 100 * RNG.integers(0, 2, N),
    "rare ones": (RNG.random(N) < 0.005).astype(float), "constant": np.full(N, 3.0),
    "two percent far": np.where(RNG.random(N) < 0.03, 1e4, RNG.normal(size=N)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_a_tail_or_a_group_is_scaled_as_ever(name: str) -> None:
    x = SHAPES[name]
    X = np.column_stack([x, RNG.normal(size=N)])
    moments = ColumnMoments(2)
    moments.set_reach(X)
    moments.add(X)
    assert not moments.tails.any()
    scaling = moments.scaling("standard")
    sd = x.std()
    np.testing.assert_allclose([scaling.center[0], scaling.scale[0]], [x.mean(), sd or 1.0], rtol=1e-9)


@pytest.mark.parametrize("name", ["exponential", "t", "counts", "lognormal"])
def test_far_cells_are_found_beyond_a_tail(name: str) -> None:
    x = SHAPES[name].copy()
    x[CELLS] = 1e8 * (1 + RNG.random(10))
    moments = ColumnMoments(1)
    moments.set_reach(x[:, None])
    moments.add(x[:, None])
    near = x[x < 1e7]
    assert moments.tails.all()
    assert moments.far_count.tolist() == [10]
    scaling = moments.scaling("standard")
    np.testing.assert_allclose([scaling.center[0], scaling.scale[0]], [near.mean(), near.std()], rtol=1e-9)


def test_sums_depend_neither_on_blocks_nor_on_parts() -> None:
    X, _ = carried(FAR["of many sizes"])
    X[::11, 1] = np.nan
    whole, pieces, parts = ColumnMoments(3), ColumnMoments(3), ColumnMoments(3)
    for moments in (whole, pieces, parts):
        moments.set_reach(X)
    whole.add(X)
    for k in range(0, N, 777):
        pieces.add(X[k : k + 777])
        part = ColumnMoments(3)
        part.low, part.high = whole.low, whole.high
        part.add(X[k : k + 777])
        parts += part
    for name, array in whole.state().items():
        np.testing.assert_array_equal(pieces.state()[name], array)
    for a, b in zip(whole.near, parts.near, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_allclose(np.nanmean(X, axis=0), whole.mean, rtol=1e-9)
    np.testing.assert_allclose(np.nanstd(X, axis=0), np.sqrt(whole.square / whole.count), rtol=1e-9)
    np.testing.assert_array_equal(parts.far_count, whole.far_count)
    again = ColumnMoments(3)
    again.restore(whole.state())
    assert again.scaling("standard").equals(whole.scaling("standard"))


@pytest.mark.parametrize("shuffle", ["buffer", "none"])
def test_far_cells_behind_the_first_rows_of_a_stream_do_not_flatten_it(shuffle: str) -> None:
    X, _ = carried(5.0)
    X[7000:7010, 0] = FAR["a million"]
    params = FitParams(buffer_rows=2000, shuffle=shuffle, passes=1, recount="no")  # type: ignore[arg-type]
    scaling = learn(ArrayRows(X), params).scaling
    near = X[np.abs(X[:, 0]) < 100, 0]
    np.testing.assert_allclose([scaling.center[0], scaling.scale[0]], [near.mean(), near.std()], rtol=1e-9)


def test_a_stream_that_moves_on_is_scaled_by_all_of_it() -> None:
    x = np.arange(N) * 1.0
    X = np.column_stack([x, RNG.normal(size=N)])
    params = FitParams(buffer_rows=50, shuffle="buffer", passes=1, recount="no")
    scaling = learn(ArrayRows(X), params).scaling
    np.testing.assert_allclose([scaling.center[0], scaling.scale[0]], [x.mean(), x.std()], rtol=1e-9)


def test_an_update_goes_on_with_the_same_bounds(tmp_path: Path) -> None:
    X, _ = carried(5.0)
    X[7000:7010, 0] = FAR["a million"]
    words = ["--shuffle", "none", "--passes", "1", "--recount", "no", "-q"]
    whole = write(tmp_path / "whole.parquet", X)
    first, second = write(tmp_path / "a.parquet", X[:5000]), write(tmp_path / "b.parquet", X[5000:])
    imdh("fit", whole, "-o", tmp_path / "w.npz", *words)
    imdh("fit", first, "-o", tmp_path / "a.npz", *words)
    imdh("fit", second, "--update", tmp_path / "a.npz", "-o", tmp_path / "b.npz", "--shuffle", "none", "-q")
    once, twice = arrays(tmp_path / "w.npz"), arrays(tmp_path / "b.npz")
    for name in ("center", "scale", "directions", "thresholds", "far_counts", "far_sums"):
        np.testing.assert_array_equal(once[name], twice[name])
    assert once["far_counts"].tolist() == [10, 0, 0]


def test_a_sample_shows_what_is_far_in_all_rows(tmp_path: Path) -> None:
    X, _ = carried(FAR["a million"])
    data = write(tmp_path / "t.parquet", X)
    imdh("fit", data, "--sample", "3000", "-o", tmp_path / "m.npz")
    near = X[np.abs(X[:, 0]) < 100, 0]
    model = arrays(tmp_path / "m.npz")
    got = [model["center"][0], model["scale"][0]]
    np.testing.assert_allclose(got, [near.mean(), near.std()], rtol=0.05, atol=0.3)


def test_the_query_follows(tmp_path: Path) -> None:
    X, _ = carried(FAR["a million"])
    data = write(tmp_path / "t.parquet", X)
    imdh("fit", data, "-o", tmp_path / "m.npz", "-q")
    query = imdh("sql", tmp_path / "m.npz", "--table", f"'{data}'", "-q").text
    asked = [row[-1] for row in duckdb.sql(query).fetchall()]
    assert asked == [int(x) for x in imdh("assign", tmp_path / "m.npz", data, "-q").text.split()[1:]]


def test_without_scaling_nothing_is_far(tmp_path: Path) -> None:
    X, _ = carried(FAR["a thousand"])
    imdh("fit", write(tmp_path / "t.parquet", X), "--scale", "none", "-o", tmp_path / "m.npz")
    assert "tails" not in metadata(tmp_path / "m.npz")
