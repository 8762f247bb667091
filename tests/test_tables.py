"""`imdh_cli.fit` and `imdh_cli.assign`: tables in memory, by the rules of the commands."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import imdh_cli
from imdh_cli.params import FitParams, LearnParams, PruneParams
from tests.cli import imdh


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 3, 2000)
    x, y = 8.0 * group + rng.standard_normal(2000), rng.standard_normal(2000)
    x[5] = np.nan
    return pa.table({"id": np.arange(2000), "x": x, "y": y, "word": ["a", "b"] * 1000})


@pytest.fixture(scope="module")
def by_command(table, tmp_path_factory) -> tuple[dict[str, np.ndarray], np.ndarray]:
    folder = tmp_path_factory.mktemp("tables")
    pq.write_table(table, folder / "t.parquet")
    imdh("fit", folder / "t.parquet", "-o", folder / "m.npz")
    imdh("assign", folder / "m.npz", folder / "t.parquet", "-o", folder / "l.parquet")
    arrays = imdh_cli.load(folder / "m.npz").arrays()
    return arrays, pq.read_table(folder / "l.parquet").column("cluster").to_numpy()


@pytest.mark.parametrize(
    "given",
    [
        lambda t: t,
        lambda t: t.to_batches()[0],
        lambda t: t.to_pandas(),
        lambda t: pl.from_arrow(t),
        lambda t: duckdb.from_arrow(t),
        lambda t: pa.RecordBatchReader.from_batches(t.schema, t.to_batches(max_chunksize=300)),
        lambda t: _Interchange(t),
    ],
    ids=["arrow", "batch", "pandas", "polars", "duckdb", "reader", "interchange"],
)
def test_whatever_gives_a_table_is_fitted_and_labelled_as_a_file(table, by_command, given):
    arrays, labels = by_command
    model = imdh_cli.fit(given(table))
    for name, array in model.arrays().items():
        if name != "metadata":  # the name of the input
            np.testing.assert_array_equal(array, arrays[name], err_msg=name)
    found = imdh_cli.assign(given(table), model, keep=["id"], with_=["margin"])
    assert found.column_names == ["id", "cluster", "margin"]
    np.testing.assert_array_equal(found.column("cluster").to_numpy(), labels)
    assert labels[5] == -1


class _Interchange:
    """A table that speaks the dataframe interchange protocol only."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __dataframe__(self, **how):
        return self._table.__dataframe__(**how)


def test_columns_are_chosen_as_asked(table):
    model = imdh_cli.fit(table, columns=["y"], missing="mean")
    assert model.feature_names == ["y"]
    assert imdh_cli.fit(table, exclude=["y"], categorical="onehot").feature_names == ["x", "word=a", "word=b"]


def test_what_is_no_table_is_refused_in_one_line(table):
    with pytest.raises(imdh_cli.ImdhError, match="a list is no table"):
        imdh_cli.fit([1, 2, 3])
    with pytest.raises(imdh_cli.ImdhError, match='no column "z"'):
        imdh_cli.fit(table, columns=["z"])
    model = imdh_cli.fit(table)
    with pytest.raises(imdh_cli.ImdhError, match='no column "x"'):
        imdh_cli.assign(pd.DataFrame({"y": [1.0]}), model)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"missing": "foo"}, "missing='foo' is not 'skip', 'error' or 'mean'"),
        ({"categorical": "foo"}, "categorical='foo' is not 'error', 'ignore' or 'onehot'"),
        ({"columns": ["x", 3]}, "columns=3 is not a text"),
        ({"exclude": 3}, "exclude=3 is not a text"),
        ({"columns": ["x", "x"]}, '"x" is named twice'),
        ({"params": {"clusters": 3}}, "params: a dict where FitParams belongs"),
        ({"params": FitParams(seed=-1)}, "params.seed=-1 is not a whole number from 0 up"),
        ({"params": FitParams(seed=np.int64(1))}, "params.seed="),
        (
            {"params": FitParams(passes="many")},
            "'many' is not a whole number from 1 to 10000 or 'auto'",
        ),
        ({"params": FitParams(learn=LearnParams(depth=20))}, "depth=20 is not a whole number from 1 to 14"),
        ({"params": FitParams(learn=LearnParams(alpha=float("nan")))}, "params.learn.alpha=nan is not a"),
        ({"params": FitParams(prune=PruneParams(clusters=999))}, "-k 999: a tree of depth 8"),
        ({"params": FitParams(prune=PruneParams(clusters=9, max_clusters=5))}, "-k 9 is more than"),
        ({"threads": -1}, "threads=-1 is not a whole number from 1 up or None"),
    ],
)
def test_what_the_options_of_a_fit_would_not_take_is_refused_in_words(table, given, what):
    with pytest.raises(imdh_cli.ImdhError) as caught:
        imdh_cli.fit(table, **given)
    assert what in caught.value.message


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"keep": ["cluster"]}, 'a column "cluster", too'),
        ({"keep": ["margin"], "with_": ["margin"]}, 'a column "margin", too'),
        ({"name": "margin", "with_": ["margin"]}, "a column of this name"),
        ({"name": ""}, "an empty name"),
        ({"name": None}, "name=None is not a text"),
        (
            {"with_": ["mragin"]},
            "with_='mragin' is not 'node', 'leaf', 'margin', 'distance'",
        ),
        ({"missing": "foo"}, "missing='foo' is not"),
        ({"clusters": 0}, "clusters=0 is not a whole number from 1 up"),
        ({"clusters": "3"}, "clusters='3' is not a whole number"),
        ({"threads": 0}, "threads=0 is not"),
    ],
)
def test_what_the_options_of_assign_would_not_take_is_refused_in_words(table, given, what):
    table = table.append_column("cluster", table["x"]).append_column("margin", table["x"])
    model = imdh_cli.fit(table, columns=["x", "y"])
    with pytest.raises(imdh_cli.ImdhError) as caught:
        imdh_cli.assign(table, model, **given)
    assert what in caught.value.message


def test_a_file_is_no_model(table):
    with pytest.raises(imdh_cli.ImdhError, match="a str where a model belongs") as caught:
        imdh_cli.assign(table, "model.npz")
    assert "imdh_cli.load" in caught.value.hint


def test_a_text_is_one_name(table):
    model = imdh_cli.fit(table, columns="x", exclude="word", ids="id")
    assert model.feature_names == ["x"]
    found = imdh_cli.assign(table, model, keep="word", with_="margin")
    assert found.column_names == ["word", "cluster", "margin"]


def test_the_callers_table_is_left_as_it_was(table):
    frame = table.to_pandas()
    before = frame.copy(deep=True)
    imdh_cli.assign(frame, imdh_cli.fit(frame))
    pd.testing.assert_frame_equal(frame, before)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, imdh_cli; print(*sorted({'numpy','pyarrow','sklearn','numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
    assert not hasattr(imdh_cli, "nothing_of_this_name")
