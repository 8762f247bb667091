"""The scikit-learn estimator: scikit-learn's own checks, and the labels of the commands."""

from __future__ import annotations

import pickle
import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import imdh_cli
from imdh_cli import IMDH
from tests.cli import imdh


@parametrize_with_checks(
    [
        IMDH(),
        IMDH(missing="mean", n_init=1),
        IMDH(n_clusters=2, depth=3, n_init=1, log=[0], null_value=[-5.5]),
    ]
)
def test_it_is_an_estimator(estimator, check):
    check(estimator)


def blobs(n: int = 3000, d: int = 4, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, k, n)
    return rng.standard_normal((n, d)) + 9.0 * rng.standard_normal((k, d))[truth], truth


def test_labels_are_those_of_the_commands(tmp_path, monkeypatch):
    monkeypatch.setattr("imdh_cli.core.learn.TREES", 2)
    X, truth = blobs()
    pq.write_table(pa.table({f"x{f}": X[:, f] for f in range(4)}), tmp_path / "x.parquet")
    imdh("fit", tmp_path / "x.parquet", "-o", tmp_path / "m.npz", "--seed", 3)
    imdh("assign", tmp_path / "m.npz", tmp_path / "x.parquet", "-o", tmp_path / "l.parquet")
    labels = pq.read_table(tmp_path / "l.parquet").column("cluster").to_numpy()
    found = IMDH(random_state=3).fit(X)
    np.testing.assert_array_equal(found.labels_ + 1, labels)
    np.testing.assert_array_equal(found.predict(X), found.labels_)
    assert adjusted_rand_score(truth, found.labels_) > 0.99
    assert found.clarity_ == "clear"


def test_a_model_goes_to_the_commands_and_back(tmp_path):
    X, _ = blobs()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    found = IMDH(random_state=0).fit(frame)
    imdh_cli.save(found.to_model(), tmp_path / "m.npz")
    frame.to_csv(tmp_path / "x.csv", index=False)
    labels = imdh("assign", tmp_path / "m.npz", tmp_path / "x.csv").text.split()[1:]
    np.testing.assert_array_equal(found.labels_ + 1, np.array(labels, dtype=int))

    again = IMDH.from_model(imdh_cli.load(tmp_path / "m.npz"))
    np.testing.assert_array_equal(again.predict(frame), found.labels_)
    assert again.n_clusters_ == found.n_clusters_
    assert list(again.feature_names_in_) == ["a", "b", "c", "d"]


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 9000), max_size=6).map(sorted))
def test_partial_fit_does_not_depend_on_how_rows_are_cut_into_calls(cuts):
    X, _ = blobs(9000, 3)
    whole = IMDH(random_state=0, depth=4).partial_fit(X)
    parts = IMDH(random_state=0, depth=4)
    for part in np.split(X, cuts):
        if len(part):
            parts.partial_fit(part)
    for name, array in whole.to_model().arrays().items():
        np.testing.assert_array_equal(array, parts.to_model().arrays()[name], err_msg=name)


def test_partial_fit_after_fit_begins_anew():
    X, _ = blobs()
    fresh = IMDH(random_state=0).partial_fit(X)
    again = IMDH(random_state=0).fit(X[:500]).partial_fit(X)
    np.testing.assert_array_equal(fresh.predict(X), again.predict(X))
    assert not hasattr(again, "labels_")


def test_another_number_of_clusters_needs_no_data():
    X, _ = blobs(k=4)
    found = IMDH(random_state=0, n_init=1).fit(X)
    for k in (2, 7, None):
        pruned = clone(IMDH(k, random_state=0, n_init=1)).fit(X).labels_
        np.testing.assert_array_equal(found.prune(k).labels_, pruned)
        assert found.n_clusters_ == len(np.unique(pruned))


def test_centres_are_the_means_of_the_rows_and_distances_those_of_numpy():
    X, _ = blobs()
    X = X * [1.0, 100.0, 0.01, 1.0] + [0.0, 0.0, 5.0, -1.0]
    found = IMDH(random_state=0, n_init=1).fit(X)
    for k, centre in enumerate(found.cluster_centers_):
        np.testing.assert_allclose(centre, X[found.labels_ == k].mean(axis=0), rtol=1e-9)
    expected = [np.linalg.norm((X - c) / X.std(axis=0), axis=1) for c in found.cluster_centers_]
    np.testing.assert_allclose(found.transform(X), np.stack(expected, axis=1), rtol=1e-9)
    own = found.transform(X)[np.arange(len(X)), found.labels_]
    assert found.score(X) == pytest.approx(-np.mean(own**2))


def test_a_pipeline_a_grid_search_and_a_pickle_work():
    X, truth = blobs()
    line = make_pipeline(StandardScaler(), IMDH(random_state=0))
    assert adjusted_rand_score(truth, line.fit_predict(X)) > 0.99

    def agreement(estimator, X):
        return adjusted_rand_score(KMeans(3, n_init=5, random_state=0).fit_predict(X), estimator.predict(X))

    one = IMDH(random_state=0, n_init=1)
    search = GridSearchCV(one, {"n_clusters": [2, 3, 6]}, scoring=agreement, cv=3).fit(X)
    assert search.best_params_ == {"n_clusters": 3}
    best = search.best_estimator_
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(best)).predict(X), best.predict(X))


def test_names_of_features_and_outputs():
    X, _ = blobs()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    found = IMDH(random_state=0, n_init=1).fit(frame).set_output(transform="pandas")
    assert list(found.transform(frame).columns) == [f"imdh{k}" for k in range(found.n_clusters_)]
    assert list(found.get_feature_names_out()) == [f"imdh{k}" for k in range(found.n_clusters_)]
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_rows_with_missing_cells(missing):
    X, truth = blobs()
    X[::10, 1] = np.nan
    found = IMDH(missing=missing, random_state=0, n_init=1).fit(X)
    np.testing.assert_array_equal(found.predict(X), found.labels_)
    assert (found.labels_[::10] == -1).all() == (missing == "skip")
    whole = np.arange(len(X)) % 10 > 0
    assert adjusted_rand_score(truth[whole], found.labels_[whole]) > 0.99
    assert found.to_model().metadata["rows"]["skipped"] == (300 if missing == "skip" else 0)
    with pytest.raises(ValueError, match="NaN"):
        IMDH().fit(X)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_clusters": 0},
        {"n_clusters": 2.5},
        {"n_clusters": 300},
        {"depth": 0},
        {"depth": 15},
        {"depth": True},
        {"min_size": 0},
        {"max_clusters": -1},
        {"passes": "many"},
        {"n_init": 0},
        {"missing": "no"},
        {"n_clusters": 50, "min_size": 1000},
    ],
)
def test_wrong_parameters_are_value_errors_in_the_estimators_words(wrong):
    X, _ = blobs()
    with pytest.raises(ValueError, match=r"\w") as caught:
        IMDH(**wrong).fit(X)
    assert not re.search(r"(^|\s)--?[a-z]", str(caught.value)), str(caught.value)


@pytest.mark.parametrize("calls", [None, [3000], [10, 400, 2990, 3000]])
def test_a_value_that_may_mean_missing_is_a_warning_and_no_choice_is_clear(calls):
    """By `fit` and by `partial_fit`, also where the cells come in several calls."""
    X, _ = blobs()
    X[[3, 700, 2995], 2] = -9999.0
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    found = IMDH(random_state=0, n_init=1)
    said = re.escape('"c": -9999 in 3 cells') + ".* make these cells NaN"
    for start, stop in pairwise([0, *(calls or [])][:-1]):
        found.partial_fit(frame[start:stop])
    with pytest.warns(imdh_cli.ImdhWarning, match=said) as caught:
        found.fit(frame) if calls is None else found.partial_fit(frame[([0, *calls])[-2] :])
    assert caught[0].filename == __file__
    assert found.clarity_ == "close"
    assert found.prune().clarity_ == "close"
    assert found.to_model().metadata["suspects"][0]["cells"] == 3
    assert (
        IMDH(random_state=0, n_init=1, missing="skip").fit(frame.replace(-9999, np.nan)).clarity_ == "clear"
    )


def test_a_model_with_text_is_no_estimator(tmp_path):
    table = pa.table({"x": np.arange(200.0) % 7, "c": ["a", "b"] * 100})
    model = imdh_cli.fit(table, categorical="onehot")
    with pytest.raises(ValueError, match="text"):
        IMDH.from_model(model)


def test_log_is_that_of_the_commands_and_of_a_model_from_them(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 2000)
    money = np.expm1(np.abs(rng.normal(size=2000) * 0.4 + 1.5 + 4.0 * truth))
    frame = pd.DataFrame({"plain": rng.normal(size=2000), "price": money})
    frame.to_parquet(tmp_path / "t.parquet")
    words = ["--log", "price", "--n-init", 1, "-q", "-o", tmp_path / "m.npz"]
    imdh("fit", tmp_path / "t.parquet", *words)
    expected = imdh("assign", tmp_path / "m.npz", tmp_path / "t.parquet").text.split()[1:]
    found = IMDH(log="price", n_init=1, random_state=0).fit(frame)
    np.testing.assert_array_equal(found.labels_ + 1, np.array(expected, dtype=int))
    assert adjusted_rand_score(truth, found.labels_) > 0.95
    by_place = IMDH(log=[1], n_init=1, random_state=0).fit(frame.to_numpy())
    np.testing.assert_array_equal(by_place.labels_, found.labels_)
    for k, centre in enumerate(found.cluster_centers_):
        own = frame[found.labels_ == k]
        expected = [own["plain"].mean(), np.expm1(np.log1p(own["price"]).mean())]
        np.testing.assert_allclose(centre, expected, rtol=1e-9)
    again = IMDH.from_model(imdh_cli.load(tmp_path / "m.npz"))
    assert again.log == ["price"]
    np.testing.assert_array_equal(again.predict(frame), found.labels_)
    np.testing.assert_allclose(again.transform(frame), found.transform(frame))
    parts = IMDH(log=["price"], random_state=0).partial_fit(frame[:900]).partial_fit(frame[900:])
    whole = IMDH(log=["price"], random_state=0).partial_fit(frame)
    np.testing.assert_array_equal(parts.predict(frame), whole.predict(frame))


@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_null_values_are_those_of_the_commands_and_of_a_model_from_them(tmp_path, missing):
    X, _ = blobs(900, 2)
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.loc[::40, "a"], frame.loc[1::50, "b"] = -999.0, 7.5
    frame["c"] = np.where(np.arange(900) % 45 == 2, -99999.9, X[:, 1]).astype(np.float32)
    frame.to_parquet(tmp_path / "t.parquet")
    nulls = ["a=-999", "7.5", "c=-99999.9"]
    words = [word for value in nulls for word in ("--null-value", value)]
    words += ["--missing", missing, "--n-init", 1, "-q", "-o", tmp_path / "m.npz"]
    imdh("fit", tmp_path / "t.parquet", *words)
    expected = imdh("assign", tmp_path / "m.npz", tmp_path / "t.parquet").text.split()[1:]
    expected = np.array(expected, dtype=int)
    expected[expected > 0] -= 1
    again = IMDH.from_model(imdh_cli.load(tmp_path / "m.npz"))
    assert again.null_value == nulls
    np.testing.assert_array_equal(again.predict(frame), expected)
    lost = (frame["a"] == -999.0) | (frame["b"] == 7.5) | (frame["c"] < -99999.0)
    np.testing.assert_array_equal(expected == -1, lost if missing == "skip" else np.zeros(900))
    for null_value in (nulls, ["a=-999", 7.5, "c=-99999.9"]):
        found = IMDH(null_value=null_value, missing=missing, n_init=1, random_state=0).fit(frame)
        np.testing.assert_array_equal(found.labels_, expected)
        np.testing.assert_allclose(found.transform(frame), again.transform(frame))
    how = {"null_value": nulls, "missing": missing, "random_state": 0}
    parts = IMDH(**how).partial_fit(frame[:500]).partial_fit(frame[500:])
    np.testing.assert_array_equal(parts.predict(frame), IMDH(**how).partial_fit(frame).predict(frame))
    assert parts.to_model().spec.null_values == tuple(nulls)


def test_a_null_value_is_an_error_where_missing_cells_are_and_so_is_one_that_is_none():
    frame = pd.DataFrame(blobs(100, 2)[0], columns=["price", "b"])
    frame.loc[3, "b"] = -1.0
    with pytest.raises(ValueError, match="X holds a null_value in 'b'"):
        IMDH(null_value=-1).fit(frame)
    for null_value, message in (
        ([True], "null_value=True is neither a number nor text"),
        ([None], "null_value=None is neither"),
        ("prce=-1", 'no column "prce"'),
    ):
        with pytest.raises(ValueError, match=message):
            IMDH(null_value=null_value, missing="skip").fit(frame)


@pytest.mark.parametrize("log", [["cost"], [2], [-1], [True], "cost", 2])
def test_log_of_a_feature_that_is_not_there_is_a_value_error(log):
    frame = pd.DataFrame(blobs(100, 2)[0], columns=["a", "b"])
    with pytest.raises(ValueError, match="log: X has no feature"):
        IMDH(log=log).fit(frame)
