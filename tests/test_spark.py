"""On a Spark DataFrame: the labels, counts and models of the commands."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

import imdh_cli
from imdh_cli import ImdhError
from imdh_cli.export import sql
from imdh_cli.params import FitParams
from imdh_cli.pipeline.prune import rename
from tests import spark as sessions
from tests.cli import ROOT, imdh
from tests.models import make_model
from tests.test_readme import python_blocks

F = pytest.importorskip("pyspark.sql.functions")
pytestmark = pytest.mark.filterwarnings("ignore")  # pyspark's own, of its neighbours' versions


@pytest.fixture(scope="module")
def engine() -> Any:
    from imdh_cli import spark

    return spark


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sessions.session() as (spark, remote):
            spark.remote_of_tests = remote
            yield spark


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Any:
    """A folder of five Parquet files with ids, text, empty cells and a column that begins empty."""
    folder = tmp_path_factory.mktemp("spark")
    (folder / "t").mkdir()
    rng = np.random.default_rng(0)
    n = 25_000
    group = rng.integers(0, 4, n)
    X = rng.standard_normal((n, 3)) + 7.0 * rng.standard_normal((4, 3))[group]
    X[rng.random(n) < 0.01, 1] = np.nan
    X[7, 2] = np.inf
    columns = {"id": np.arange(n), **{f"x.`{f}`": X[:, f] for f in range(3)}}
    table = pa.table(columns | {"word": np.array(["a", "b", "c"])[group % 3], "truth": group})
    for i in range(5):
        pq.write_table(table.slice(5000 * i, 5000), folder / "t" / f"part-{i}.parquet")
    return folder, table


@pytest.fixture(scope="module")
def df(session, world) -> Any:
    return session.read.parquet(str(world[0] / "t"))


def sorted_by_id(table: pa.Table) -> pa.Table:
    return table.sort_by("id")


def test_columns_are_chosen_and_clusters_found_as_by_the_command(engine, df, world):
    model = engine.fit(df, exclude=["truth"])
    assert model.feature_names == ["x.`0`", "x.`1`", "x.`2`"]
    left_out = dict(model.metadata["left_out_columns"])
    assert "identifier" in left_out["id"]
    imdh("fit", world[0] / "t", "-x", "truth", "-o", world[0] / "m.npz", "-f")
    by_command = imdh_cli.load(world[0] / "m.npz")
    assert model.metadata["rows"] == by_command.metadata["rows"]
    assert model.metadata["missing"] == by_command.metadata["missing"]
    assert model.n_clusters == by_command.n_clusters == 4
    np.testing.assert_allclose(model.center, by_command.center, rtol=1e-12)
    np.testing.assert_allclose(model.scale, by_command.scale, rtol=1e-12)


def test_labels_are_those_of_assign_on_every_row(engine, df, world):
    folder, table = world
    model = engine.fit(df, exclude=["truth"])
    imdh_cli.save(model, folder / "spark.npz", force=True)
    out = folder / "l.parquet"
    imdh(
        "assign", folder / "spark.npz", folder / "t", "-o", out, "-f", "--keep", "id", "--with", "margin,path"
    )
    want = sorted_by_id(pq.read_table(out))
    got = sorted_by_id(engine.assign(df, model, with_=["margin", "path"]).toArrow())
    for name in ("cluster", "margin", "path"):
        assert got.column(name).combine_chunks().equals(want.column(name).combine_chunks()), name
    known = got.column("cluster").to_numpy() > 0
    assert known.sum() == model.metadata["rows"]["used"]
    assert (
        adjusted_rand_score(table.column("truth").to_numpy()[known], got.column("cluster").to_numpy()[known])
        > 0.99
    )
    assert "4 clusters" in imdh("report", folder / "spark.npz").text


def test_a_recount_is_that_of_prune_and_repeats_to_the_bit(engine, df, world):
    folder, _ = world
    imdh("fit", folder / "t" / "part-0.parquet", "-x", "truth", "-o", folder / "one.npz", "-f")
    model = imdh_cli.load(folder / "one.npz")
    imdh("prune", folder / "one.npz", folder / "t", "-o", folder / "all.npz", "-f")
    want = imdh_cli.load(folder / "all.npz")
    got, again = engine.recount(df, model), engine.recount(df, model)
    np.testing.assert_array_equal(got.counts, want.counts)
    np.testing.assert_array_equal(got.histograms, want.histograms)
    np.testing.assert_allclose(got.means, want.means, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(got.means, again.means)
    np.testing.assert_array_equal(got.sums_of_squares, again.sums_of_squares)


def test_one_partition_and_all_rows_give_the_bytes_of_fit(engine, session, world, monkeypatch):
    monkeypatch.setattr("imdh_cli.core.learn.TREES", 2)
    folder, _ = world
    path = folder / "t" / "part-1.parquet"
    imdh("fit", path, "-x", "truth", "-o", folder / "one.npz", "-f")
    want = imdh_cli.load(folder / "one.npz").arrays()
    got = engine.fit(session.read.parquet(str(path)).coalesce(1), exclude=["truth"]).arrays()
    for name, array in want.items():
        if name != "metadata":
            np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_a_sample_is_learned_from_and_all_rows_are_counted(engine, df, world):
    folder, table = world
    model, again = (engine.fit(df, exclude=["truth"], sample_rows=4000) for _ in range(2))
    for name, array in model.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name], err_msg=name)
    assert model.metadata["learned_rows"] == 4000
    assert model.counts[0] == model.metadata["rows"]["used"] > 24_000
    imdh_cli.save(model, folder / "s.npz", force=True)
    assert "learned from 4,000" in " ".join(imdh("report", folder / "s.npz").text.split())
    labels = sorted_by_id(engine.assign(df, model).toArrow()).column("cluster").to_numpy()
    known = labels > 0
    assert normalized_mutual_info_score(table.column("truth").to_numpy()[known], labels[known]) > 0.98


def test_cells_are_read_as_the_command_reads_them(engine, session, tmp_path):
    """What means missing, text that holds numbers, codes, vectors, fields of structs, names of clusters."""
    rng = np.random.default_rng(1)
    n, group = 25_000, rng.integers(0, 3, 25_000)
    X = rng.standard_normal((n, 5)) + 9.0 * rng.standard_normal((3, 5))[group]
    X[::500, 0] = -99.0
    place = pa.StructArray.from_arrays([pa.array(X[:, 4])], names=["lat"])
    texts = [f"{x:,.6f}" for x in 1000 * X[:, 3]]
    texts[9] = "none"
    table = pa.table({"id": np.arange(n), "a": X[:, 0], "v": X[:, 1:3].tolist(), "t": texts, "s": place})
    table = table.append_column("zip", pa.array(rng.choice([10115, 20095, 50667], n)))
    pq.write_table(table, tmp_path / "t.parquet")
    df = session.read.parquet(str(tmp_path / "t.parquet"))
    how = {"columns": ["a", "v", "t", "s.lat", "zip"], "parse": "t", "onehot": "zip", "null_value": "a=-99"}
    model = engine.fit(df, **how, on_bad_row="skip")
    by_command = imdh_cli.fit(table, **how, on_bad_row="skip")
    assert model.feature_names == by_command.feature_names
    assert model.feature_names[-3:] == ["zip=10115", "zip=20095", "zip=50667"]
    assert model.metadata["rows"] == by_command.metadata["rows"]
    assert model.metadata["rows"]["bad"], model.metadata["rows"]["skipped"] == (1, 50)
    model = rename(model, ["1=first"])
    ask = {"with_": ["runner_up", "distance"], "names": True, "on_bad_row": "skip"}
    want = imdh_cli.assign(table, model, **ask)
    got = sorted_by_id(engine.assign(df, model, **ask).toArrow())
    assert got.column_names == [*table.column_names, "cluster", "cluster_name", "runner_up", "distance"]
    for name in want.column_names:
        assert got.column(name).combine_chunks().equals(want.column(name).combine_chunks()), name
    with pytest.raises(ImdhError, match='the DataFrame, column "t": "none" is not a number'):
        engine.fit(df, **how)


def test_a_value_that_may_mean_missing_is_a_warning_and_no_choice_is_clear(engine, session, world, tmp_path):
    """Counted in all rows, also where the sample that is learned from holds few of them."""
    table = pq.read_table(world[0] / "t").select(["x.`0`", "x.`2`"])
    x = table.column(0).to_numpy().copy()
    x[[3, 9000, 16_000, 24_999]] = -99999.0
    table = table.set_column(0, "x", pa.array(x))
    for i in range(4):
        pq.write_table(table.slice(6250 * i, 6250), tmp_path / f"{i}.parquet")
    df = session.read.parquet(str(tmp_path))
    with pytest.warns(imdh_cli.ImdhWarning, match="-99999 in 4 cells.*null_value='x=-99999'") as caught:
        model = engine.fit(df, sample_rows=3000)
    assert [w.filename for w in caught if w.category is imdh_cli.ImdhWarning] == [__file__]
    (suspect,) = model.metadata["suspects"]
    assert suspect["cells"] == 4
    assert suspect["sd"] == pytest.approx(x.std(), rel=1e-4)  # one row is left out
    assert model.metadata["choice"]["clarity"] != "clear"
    mended = engine.fit(df, sample_rows=3000, null_value="x=-99999")
    assert "suspects" not in mended.metadata
    assert mended.metadata["missing"]["x"] == 4


def test_a_recount_of_whole_numbers_does_not_depend_on_the_partitions(engine, session, world, tmp_path):
    """Histograms are of rows with noise, by their places among all; Sail does not tell partitions apart."""
    whole = {n: np.rint(world[1].column(n).to_numpy()) for n in ("x.`0`", "x.`2`")}
    pq.write_table(pa.table(whole), tmp_path / "t.parquet", row_group_size=3000)
    imdh("fit", tmp_path / "t.parquet", "--seed", 3, "-o", tmp_path / "m.npz")
    model = imdh_cli.load(tmp_path / "m.npz")
    assert "dither_columns" in model.extras
    imdh("prune", tmp_path / "m.npz", tmp_path / "t.parquet", "-o", tmp_path / "all.npz")
    want = imdh_cli.load(tmp_path / "all.npz")
    session.conf.set("spark.sql.files.maxPartitionBytes", "65536")
    try:
        got = engine.recount(session.read.parquet(str(tmp_path / "t.parquet")), model)
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")
    np.testing.assert_array_equal(got.counts, want.counts)
    np.testing.assert_allclose(got.means, want.means, rtol=1e-12, atol=1e-12)
    if sessions.KIND == "sail":
        assert got.histograms[0].sum() == want.histograms[0].sum()
        assert abs(got.histograms[0] - want.histograms[0]).sum() < 0.1 * want.histograms[0].sum()
    else:
        np.testing.assert_array_equal(got.histograms, want.histograms)


@pytest.mark.parametrize("names", [("x", "y", "z"), ("z2", "z0", "z1")])
def test_the_sql_of_a_model_gives_the_labels(session, df, world, monkeypatch, names):
    """As a query, as a plain expression, and as one that has each standardised cell once; also where columns
    have the names that these have in it."""
    given = ["id", *names, "word", "truth"]
    table, df = world[1].rename_columns(given), df.toDF(*given)
    model = imdh_cli.fit(table, exclude=["truth"])
    want = imdh_cli.assign(table, model)["cluster"].to_numpy()
    df.createOrReplaceTempView("rows_of_df")
    texts = [f"({sql.query(model, 'spark', table='rows_of_df')})"]
    for long in (sql.LONG, 0):
        monkeypatch.setattr(sql, "LONG", long)
        texts.append(f"(SELECT *, {sql.expression(model, 'spark')} AS cluster FROM rows_of_df)")
    assert "transform(" in texts[2]
    for text in texts:
        found = sorted_by_id(session.sql(f"SELECT id, cluster FROM {text}").toArrow())
        np.testing.assert_array_equal(found["cluster"].to_numpy(), want)


def test_text_becomes_features_with_all_its_levels(engine, df):
    model = engine.fit(df, columns=["x.`0`", "word"], categorical="onehot", params=FitParams(seed=1))
    assert model.feature_names == ["x.`0`", "word=a", "word=b", "word=c"]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda e, df: e.fit(df, columns=["nope"]), 'no column "nope"'),
        (lambda e, df: e.fit(df, columns=["word"]), 'column "word"'),
        (lambda e, df: e.fit(df.limit(0)), "no data rows|no rows"),
        (lambda e, df: e.fit(df, columns=["x.`1`"], missing="error"), "the value is missing"),
        (lambda e, df: e.recount(df, e.fit(df, exclude=["truth"]), missing="error"), "the value is missing"),
        (lambda e, df: e.fit([1.0]), "a list where a DataFrame of Spark belongs"),
        (lambda e, df: e.fit(df["id"]), "a Column where a DataFrame of Spark belongs"),
        (lambda e, df: e.fit(df.withColumn("word", F.expr("interval '1' year"))), "a YearMonthIntervalType"),
        (lambda e, df: e.fit(df, exclude=["truth"], sample_rows=0), "sample_rows=0"),
        (lambda e, df: e.assign(df.select("id", "word"), e.fit(df, exclude=["truth"])), 'no columns "x.`0`"'),
        (
            lambda e, df: e.assign(df.withColumn("x.`0`", F.lit("n/a")), e.fit(df, exclude=["truth"])),
            r'column "x\.`0`" is text: it holds "n/a"; the model learned numbers',
        ),
        (lambda e, df: e.assign(df, e.fit(df, exclude=["truth"]), name="id"), 'has a column "id"'),
        (lambda e, df: e.assign(df, e.fit(df, exclude=["truth"]), clusters=9999), "9999 clusters"),
    ],
)
def test_what_cannot_be_is_one_error_on_the_driver(engine, df, what, message):
    with pytest.raises(ImdhError, match=message) as caught:
        what(engine, df)
    assert "\n" not in caught.value.message


def test_no_row_is_read_before_labels_are_asked_for(engine, session, df):
    """The DataFrame may be costly to make; what is wrong with a cell comes with the action."""
    model = engine.fit(df, exclude=["truth"])
    never = df.withColumn("id", F.raise_error("a row is read").cast("long"))
    labelled = engine.assign(never, model)
    with pytest.raises(Exception, match="a row is read"):
        labelled.toArrow()
    with pytest.raises(Exception, match=r'the DataFrame, column "x\.`1`": the value is missing'):
        engine.assign(df, model, missing="error").toArrow()


def test_a_name_that_several_columns_have_is_an_error_where_it_is_used(engine, session):
    rows = [(float(i % 7), i % 5, float(i % 3)) for i in range(300)]
    df = session.createDataFrame(rows, ["a", "b", "c"]).toDF("a", "b", "b")
    model = engine.fit(df, exclude="b")
    assert model.feature_names == ["a"]
    assert sum(model.cluster_sizes()) == 300
    assert engine.assign(df, model).toArrow().num_rows == 300
    with pytest.raises(ImdhError, match='2 columns are called "b": columns 2 and 3'):
        engine.fit(df)


def test_a_batch_of_one_row_may_be_written_to(engine):
    """Its cells lie in Arrow's memory, from which they would need no turning."""
    array = pa.array([[7.0, 1.0, None]], pa.list_(pa.float64()))
    batch = pa.RecordBatch.from_arrays([array], names=["c0"])
    part, rows = engine._Layout(("a", "b"), (), ("a", "b")).numbered(iter([batch]))
    (X,) = rows.matrices
    np.testing.assert_array_equal(X, [[1.0, np.nan]])
    assert (part, X.flags.writeable) == (7, True)


def test_what_the_options_would_not_take_is_refused_before_anything_is_read(engine):
    for call, message in (
        (lambda: engine.fit(None, missing="foo"), "missing='foo' is not"),
        (lambda: engine.fit(None, params={"clusters": 3}), "a dict where FitParams belongs"),
        (lambda: engine.fit(None, params=FitParams(recount="no")), "all rows are counted"),
        (lambda: engine.fit(None, n_rows="many"), "n_rows='many' is not"),
        (lambda: engine.assign(None, "m.npz"), "a str where a model belongs"),
        (lambda: engine.recount(None, "m.npz"), "a str where a model belongs"),
        (lambda: engine.assign(None, make_model(), with_=["mragin"]), "with_='mragin' is not"),
        (lambda: engine.assign(None, make_model(), name="node", with_=["node"]), "a column of this name"),
    ):
        with pytest.raises(ImdhError, match=message):
            call()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("...\nModuleNotFoundError: No module named 'imdh_cli'\n", "a Spark worker cannot import imdh_cli"),
        ("x\nImportError: No module named 'pyarrow'\n", "a Spark worker cannot import pyarrow"),
        (
            "x\nPython in worker has different version: 3.12 than that in driver: 3.11, ...",
            "the workers run Python 3.12, the driver 3.11",
        ),
        (
            'java.io.IOException: Cannot run program "/no/python3": error=2',
            'cannot run the Python "/no/python3"',
        ),
        ("x\nimdh_cli.errors.DataError: the value is missing\nmore", "the value is missing"),
        ("x\nRuntimeError: External error: DataError: the value is missing\n", "the value is missing"),
    ],
)
def test_errors_of_workers_are_known(engine, text, message):
    assert message in engine._known_error(text).message
    assert engine._known_error("something else") is None


def test_a_worker_with_another_version_of_imdh_is_told_of(engine, df, monkeypatch):
    model = engine.fit(df, exclude=["truth"])
    monkeypatch.setattr(engine, "_work", lambda *_, **__: engine._Work("9.9.9", b"of no use here"))
    for call in (lambda: engine.fit(df), lambda: engine.recount(df, model), lambda: engine.assign(df, model)):
        with pytest.raises(ImdhError, match=r"the workers have imdh 0\.\S+, the driver 9\.9\.9"):
            call()


# Only the driver of classic Spark starts the Python of its workers; with a server that is not the driver's to
# say. `make test-spark` has a run of this kind.
@pytest.mark.skipif(sessions.KIND != "classic", reason="elsewhere the server says which Python workers run")
def test_a_worker_of_spark_without_imdh_is_told_of(engine, session, df, tmp_path, monkeypatch):
    model = engine.fit(df, exclude=["truth"])
    python, path = tmp_path / "python", sysconfig.get_path("purelib")
    # -S: without what .pth files add to the path. Elsewhere than in the folder of the tests, where imdh is.
    python.write_text(f'#!/bin/sh\ncd /; PYTHONPATH={path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(session.sparkContext, "pythonExec", str(python))
    for call in (lambda: engine.recount(df, model), lambda: engine.assign(df, model)):
        with pytest.raises(ImdhError, match="a Spark worker cannot import imdh_cli"):
            call()


SERVER = """
import sys
sys.path.append(sys.argv[1])
from pysail.spark import SparkConnectServer
server = SparkConnectServer(port=0)
server.start(background=True)
print(server.listening_address[1], flush=True)
sys.stdin.read()
"""


# `make test-all` has the session of Sail, the one server that a test can start without Java and with a Python
# that lacks imdh; the package for it and that of the other kinds exclude each other.
@pytest.mark.long
@pytest.mark.skipif(sessions.KIND != "sail", reason="of Sail, whose workers run the Python of its server")
def test_a_server_of_sail_without_imdh_is_told_of(engine, tmp_path):
    from pyspark.sql import SparkSession

    words = [sys.executable, "-S", "-c", SERVER, sysconfig.get_path("purelib")]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, env=bare, cwd=tmp_path, text=True, **pipes) as server:
        other = SparkSession.builder.remote(f"sc://localhost:{server.stdout.readline().strip()}").create()
        try:
            model = make_model(d=2)
            df = other.createDataFrame([(float(i), float(i % 7)) for i in range(500)], model.feature_names)
            for call in (lambda: engine.fit(df), lambda: engine.assign(df, model)):
                with pytest.raises(ImdhError, match="a Spark worker cannot import imdh_cli"):
                    call()
        finally:
            other.stop()
            server.kill()


def test_the_script_of_the_readme_runs(session, world, tmp_path):
    (script,) = (block for block in python_blocks() if "pyspark" in block)
    (tmp_path / "fit_on_spark.py").write_text(script)
    remote = {"SPARK_REMOTE": session.remote_of_tests} if sessions.KIND == "sail" else {}
    # A session leaves in the environment what the script would take for its own.
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_GATEWAY"))
    }
    words = [str(world[0] / "t"), str(tmp_path / "m.npz"), 'exclude=["id", "truth"]', "clusters=3"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", tmp_path / "fit_on_spark.py", *words],
        env=own | remote | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "|      3|" in done.stdout
    assert imdh_cli.load(tmp_path / "m.npz").n_clusters == 3
