"""`imdh_cli.fit` and `imdh_cli.assign`: tables in memory, by the rules of the commands."""

from __future__ import annotations

import inspect
import shlex
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


def test_every_option_of_the_command_is_an_argument(tmp_path):
    """By its name as typed; what only the reading of files needs is left out."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 2)) + 8.0 * rng.integers(0, 3, (900, 1))
    texts = [f"{x:,.3f}" for x in 1000 * X[:, 1]]
    code = rng.choice([10115, 20095, 50667], 900)
    X[:5, 0] = -99
    table = pa.table({"a": X[:, 0], "t": texts, "zip": code, "key": np.arange(900)})
    pq.write_table(table, tmp_path / "t.parquet")
    words = shlex.split(
        "--parse t --onehot zip --null-value a=-99 --id key -k 3 --seed 7 --depth 5 --n-init 1 --missing mean"
    )
    imdh("fit", tmp_path / "t.parquet", *words, "-o", tmp_path / "m.npz")
    want = imdh_cli.load(tmp_path / "m.npz")
    given = {"parse": "t", "onehot": ["zip"], "null_value": "a=-99", "id": "key", "clusters": 3}
    model = imdh_cli.fit(table, **given, seed=7, depth=5, n_init=1, missing="mean")
    assert model.metadata | {"inputs": []} == want.metadata | {"inputs": []}
    np.testing.assert_array_equal(model.directions, want.directions)
    # the names of fields do, too, numbers are what they say, and options win over params
    fields = {"parse": ["t"], "onehot": "zip", "null_values": ["a=-99"], "ids": ["key"]}
    params = FitParams(learn=LearnParams(depth=5), n_init=1, seed=3)
    again = imdh_cli.fit(table, **fields, params=params, seed=7, clusters=3, missing="mean")
    np.testing.assert_array_equal(again.directions, want.directions)
    assert imdh_cli.fit(table, parse="t", null_value=-99).metadata["missing"] == {"a": 5}
    assert imdh_cli.fit(table[9:], columns="a", max_rows=50).metadata["rows"]["read"] == 50
    for words in ({"delimiter": ";"}, {"nul_value": 3}, {"seeds": 1}):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            imdh_cli.fit(table, **words)
    assert "null_value : A number or text that means missing" in imdh_cli.fit.__doc__
    assert inspect.signature(imdh_cli.fit).parameters["depth"].default == "auto"


def test_a_value_that_may_mean_missing_is_a_warning_and_no_choice_is_clear(table):
    y = table["y"].to_pylist()
    y[:4] = [-9999.0] * 4
    table = table.set_column(2, "y", pa.array(y))
    with pytest.warns(
        imdh_cli.ImdhWarning, match="-9999 in 4 cells.* fit with null_value='y=-9999'"
    ) as caught:
        model = imdh_cli.fit(table)
    assert caught[0].filename == __file__
    assert model.metadata["choice"]["clarity"] == "close"
    mended = imdh_cli.fit(table, null_value="y=-9999")
    assert mended.metadata["choice"]["clarity"] == "clear"
    assert imdh_cli.assign(table, mended)["cluster"].to_pylist()[:5].count(-1) == 4


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
