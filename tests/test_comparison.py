"""`imdh report A.npz B.npz DATA`: two models on the same rows, against scikit-learn, SciPy and pandas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn import metrics

from tests.cli import blobs, csv_text, descend, imdh, metadata, one_line_error, write
from tests.test_report_page import Parsed
from tests.test_report_summary import SCHEMA, check


class World(NamedTuple):
    X: np.ndarray
    data: Path
    old: Path  # of all three columns
    new: Path  # of two of them, in another order, with fewer clusters


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("comparison")
    X, which = blobs(3000, k=4, distance=5.0)
    data = write(folder / "t.parquet", X, kind=np.array(list("abcd"))[which])
    imdh("fit", data, "-k", 5, "-o", folder / "old.npz")
    imdh("prune", folder / "old.npz", "--rename", "1=West,2=Midwest")
    imdh("fit", data, "-c", "x3,x1", "-k", 3, "--seed", 1, "-o", folder / "new.npz")
    return World(X, data, folder / "old.npz", folder / "new.npz")


@pytest.fixture(scope="module")
def comparison(world) -> dict:
    return imdh("report", world.old, world.new, world.data, "--json").json["comparison"]


def labels(world: World) -> tuple[np.ndarray, np.ndarray]:
    return descend(world.old, world.X).label, descend(world.new, world.X[:, [2, 0]]).label


def test_the_table_and_the_measures_are_those_of_the_labelled_rows(world, comparison):
    old, new = labels(world)
    assert np.array_equal(comparison["table"], pd.crosstab(old, new).to_numpy())
    assert comparison["clusters"] == [1, 2, 3, 4, 5]
    assert comparison["others"] == [1, 2, 3]
    assert comparison["other"] == "new.npz"
    assert comparison["rows"] == 3000
    assert comparison["ari"] == pytest.approx(metrics.adjusted_rand_score(old, new), abs=1e-12)
    nmi = metrics.normalized_mutual_info_score(old, new)
    assert comparison["nmi_arithmetic"] == pytest.approx(nmi, abs=1e-12)
    assert comparison["homogeneity"] == pytest.approx(metrics.homogeneity_score(new, old), abs=1e-12)
    assert comparison["completeness"] == pytest.approx(metrics.completeness_score(new, old), abs=1e-12)


def test_as_many_rows_as_can_be_are_in_matched_clusters(world, comparison):
    old, new = labels(world)
    table = pd.crosstab(old, new).to_numpy()
    matches = comparison["matches"]
    most = table[linear_sum_assignment(-table)].sum()
    assert sum(m["rows"] for m in matches) == most
    assert len({m["cluster"] for m in matches}) == len({m["other"] for m in matches}) == 3
    for m in matches:
        a, b = old == m["cluster"], new == m["other"]
        assert m["rows"] == (a & b).sum()
        assert m["jaccard"] == pytest.approx((a & b).sum() / (a | b).sum())
        assert m["name"] == {1: "West", 2: "Midwest"}.get(m["cluster"])


def test_a_model_agrees_with_itself(world):
    ran = imdh("report", world.old, world.old, world.data, "--json").json["comparison"]
    assert ran["ari"] == 1.0
    assert [(m["cluster"], m["other"], m["jaccard"]) for m in ran["matches"]] == [
        (k, k, 1.0) for k in range(1, 6)
    ]


def test_rows_that_one_model_alone_cannot_label_are_counted(world, tmp_path):
    X = world.X.copy()
    X[:4, 1] = np.nan  # a column of the old model alone
    X[4:6, 0] = np.nan  # of both
    ran = imdh("report", world.old, world.new, write(tmp_path / "t.csv", X), "--json").json["comparison"]
    assert ran["rows"] == 2994
    assert (ran["without_cluster"], ran["without_other"]) == (4, 0)
    ran = imdh("report", world.new, world.old, write(tmp_path / "u.csv", X), "--json").json["comparison"]
    assert (ran["without_cluster"], ran["without_other"]) == (0, 4)


def test_a_stream_is_read_once_for_both_models(world, comparison):
    text = csv_text(pa.table({f"x{j + 1}": world.X[:, j] for j in range(3)})).encode()
    assert imdh("report", world.old, world.new, "-", "--json", stdin=text).json["comparison"] == comparison


def test_the_terminal_shows_matches_and_how_names_are_carried_over(world, comparison):
    text = imdh("report", world.old, world.new, world.data).text
    assert "Compared  with new.npz, 3,000 rows" in text
    assert f"{comparison['ari']:6.3f}  ARI" in text
    assert "Without a counterpart here: " in text
    carried = [m for m in comparison["matches"] if m["name"] and m["jaccard"] >= 0.5]
    assert carried
    rename = ",".join(f"{m['other']}={m['name']}" for m in carried)
    assert f"imdh prune new.npz --rename {rename}" in " ".join(text.split())
    assert "Tree" not in text


def test_the_names_carried_over_are_taken_by_prune(world, comparison, tmp_path):
    (tmp_path / "new.npz").write_bytes(world.new.read_bytes())
    rename = ",".join(f"{m['other']}={m['name']}" for m in comparison["matches"] if m["name"])
    imdh("prune", tmp_path / "new.npz", "--rename", rename)
    assert len(metadata(tmp_path / "new.npz")["cluster_names"]) == rename.count("=")


def test_the_page_holds_the_matches_and_the_table(world, comparison):
    page = imdh("report", world.old, world.new, world.data, "--html", "-").text
    part = Parsed(page[page.index('<section id="comparison"') : page.index('<section id="each"')])
    values = [float(e[1]["value"]) for e in part.all("data")]
    assert values[:2] == [comparison["ari"], comparison["nmi_arithmetic"]]
    assert values[5:] == [value for m in comparison["matches"] for value in (m["rows"], m["jaccard"])]
    shown = [[e or "\u00b7" for e in column] for column in zip(*comparison["table"], strict=True)]
    text = " ".join(e[2].replace(",", "") for e in part.all("td"))
    for there in shown:
        assert " ".join(map(str, [sum(e for e in there if e != "\u00b7"), *there])) in text
    check(imdh("report", world.old, world.new, world.data, "--json").json, SCHEMA)


def test_two_models_without_data_and_data_before_a_model_are_refused(world):
    said = imdh("report", world.old, world.new, status=2).err
    assert "second model needs DATA" in one_line_error(said)
    said = imdh("report", world.old, world.data, world.new, status=3).err
    assert "this is a model, not data" in one_line_error(said)
    said = imdh("report", world.data, world.old, status=4).err
    assert "the model comes first" in said
    said = imdh("report", world.old, world.new, world.data, "--tree", status=2).err
    assert "second model is not shown by --tree" in one_line_error(said)


def test_a_column_that_the_models_know_as_different_kinds_is_refused(world, tmp_path):
    X, _ = blobs(300)
    imdh(
        "fit",
        write(tmp_path / "t.parquet", X, kind=X[:, 0] > 0),
        "-c",
        "x1,kind",
        "-o",
        tmp_path / "number.npz",
    )
    text = np.where(X[:, 0] > 0, "true", "false")
    data = write(tmp_path / "u.parquet", X, kind=text)
    imdh("fit", data, "-c", "x1,kind", "--categorical", "onehot", "-o", tmp_path / "text.npz")
    said = imdh("report", tmp_path / "number.npz", tmp_path / "text.npz", data, status=2).err
    assert "two different kinds" in one_line_error(said)


def test_without_scipy_the_pip_line_is_named(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    said = imdh("report", world.old, world.new, world.data, status=2).err
    assert one_line_error(said) == "matching clusters needs SciPy"
    assert "pip install 'imdh[compare]'" in said
