"""`--log`: columns of very unequal amounts are learned from as signed logarithms, wherever the model goes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

import imdh_cli
from imdh_cli.errors import UsageError
from tests.cli import arrays, imdh, metadata

N = 3000
RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 3, N)
MONEY = np.expm1(np.abs(RNG.normal(size=N) * 0.4 + 1.5 + 4.0 * TRUTH))
DEBT = np.where(RNG.random(N) < 0.5, -MONEY, MONEY)
TABLE = pa.table({"price": MONEY, "plain": RNG.normal(size=N), "debt": DEBT, "word": ["w"] * N})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    pq.write_table(TABLE, folder / "t.parquet")
    by_hand = {
        "price": np.log1p(MONEY),
        "plain": TABLE["plain"],
        "debt": np.sign(DEBT) * np.log1p(np.abs(DEBT)),
    }
    pq.write_table(pa.table(by_hand), folder / "by_hand.parquet")
    imdh("fit", folder / "t.parquet", "--log", "price,debt", "-o", folder / "m.npz", "-q")
    imdh("fit", folder / "by_hand.parquet", "-o", folder / "h.npz", "-q")
    return folder


def labels(model: Path, data: Path, *words: str) -> list[int]:
    return [int(x) for x in imdh("assign", model, data, "-q", *words).text.split()[1:]]


def test_the_model_is_that_of_logarithms_taken_by_hand(world: Path) -> None:
    mine, theirs = arrays(world / "m.npz"), arrays(world / "h.npz")
    for name in ("center", "scale", "thresholds", "directions", "counts"):
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-12)
    found = labels(world / "m.npz", world / "t.parquet")
    assert found == labels(world / "h.npz", world / "by_hand.parquet")
    assert metadata(world / "m.npz")["features"]["columns"][0] == {
        "name": "price",
        "levels": None,
        "log": True,
    }


def test_every_format_and_the_other_commands_follow(world: Path, tmp_path: Path) -> None:
    expected = labels(world / "m.npz", world / "t.parquet")
    pacsv.write_csv(TABLE, tmp_path / "t.csv")
    assert labels(world / "m.npz", tmp_path / "t.csv") == expected
    imdh("prune", world / "m.npz", world / "t.parquet", "-o", tmp_path / "p.npz", "-q")
    assert arrays(tmp_path / "p.npz")["counts"].tolist() == arrays(world / "m.npz")["counts"].tolist()
    done = imdh("fit", world / "t.parquet", "--update", world / "m.npz", "-o", tmp_path / "u.npz")
    assert metadata(tmp_path / "u.npz")["features"] == metadata(world / "m.npz")["features"]
    assert "--log" not in done.err
    words = ["--update", world / "m.npz", "--log", "price", "-o", tmp_path / "v.npz"]
    assert (
        "the model was fitted with --log price,debt" in imdh("fit", world / "t.parquet", *words, status=2).err
    )
    imdh("report", world / "m.npz", "--html", tmp_path / "r.html")
    assert "--log price,debt" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark", "bigquery", "snowflake"])
def test_queries_take_the_logarithm(dialect: str, world: Path) -> None:
    import sqlglot

    query = imdh("sql", world / "m.npz", "--dialect", dialect, "--table", "data", "-q").text
    sqlglot.parse_one(query, dialect=dialect)
    assert "LN(" in query
    if dialect == "duckdb":
        query = query.replace("FROM data", f"FROM '{world / 't.parquet'}'")
        asked = [row[-1] for row in duckdb.sql(query).fetchall()]
        assert asked == labels(world / "m.npz", world / "t.parquet")


def test_in_python_too(world: Path) -> None:
    with pytest.warns(imdh_cli.ImdhWarning, match="equal in many rows"):
        model = imdh_cli.fit(TABLE, log=["price", "debt"], n_init=1)
    assert imdh_cli.assign(TABLE, model)["cluster"].to_pylist() == labels(
        world / "m.npz", world / "t.parquet"
    )
    with pytest.raises(UsageError, match='"word" is no feature'):
        imdh_cli.fit(TABLE, log="word")


def test_reports_tell_means_in_the_columns_own_units(world: Path) -> None:
    report = imdh("report", world / "m.npz", "--json").json
    price = report["data"]["features"][0]
    log = np.log1p(MONEY)
    assert price["mean"] == pytest.approx(np.expm1(log.mean()), rel=1e-9)
    around = np.expm1(log.mean() + log.std()) - np.expm1(log.mean() - log.std())
    assert price["sd"] == pytest.approx(around / 2, rel=1e-9)
    found = np.array(labels(world / "m.npz", world / "t.parquet"))
    for cluster in report["clusters"]:
        mean = cluster["profile"][0]["mean"]
        assert mean == pytest.approx(np.expm1(log[found == cluster["cluster"]].mean()), rel=1e-6)
    said = {w["code"]: w["message"] for w in report["warnings"]}["logarithms"]
    assert said.startswith("price and debt: learned from as sign(x) log(1 + |x|)")
    assert "learned from as sign(x) log(1 + |x|)" in " ".join(imdh("report", world / "m.npz").text.split())


def test_the_same_rows_have_not_moved(world: Path) -> None:
    drift = imdh("report", world / "m.npz", world / "t.parquet", "--drift", "--json").json["drift"]
    for feature in drift["features"]:
        assert feature["mean_now"] == pytest.approx(feature["mean_then"], rel=1e-6)
        assert abs(feature["shift"]) < 1e-6


def test_very_unequal_amounts_are_named_with_an_option_that_works(tmp_path: Path) -> None:
    amounts = {
        "my price": np.exp(2.5 * RNG.normal(size=N) + 3),
        "views": np.floor(np.exp(2.5 * RNG.normal(size=N) + 2)),
        "tiny": 1e-9 * np.exp(2.5 * RNG.normal(size=N)),  # of which the logarithm is as unequal
        "age": RNG.normal(40, 9, N),
        "wait": RNG.exponential(9, N),
        "mild": np.exp(RNG.normal(size=N)),
    }
    pq.write_table(pa.table(amounts), tmp_path / "t.parquet")
    first = imdh("fit", tmp_path / "t.parquet", "-o", tmp_path / "m.npz")
    said = re.search(r'"my price" and "views": very unequal amounts.*; (--log .*) spreads them', first.err)
    assert said, first.err
    assert imdh("fit", tmp_path / "t.parquet", "-o", tmp_path / "m.npz", "-f", "--json").json["unequal"] == [
        "my price",
        "views",
    ]
    done = imdh("fit", tmp_path / "t.parquet", "-o", tmp_path / "m.npz", "-f", *shlex.split(said[1]))
    assert "very unequal" not in done.err


def test_logarithms_find_what_amounts_hide(world: Path, tmp_path: Path) -> None:
    words = ["-c", "price,plain"]
    imdh("fit", world / "t.parquet", *words, "--log", "price", "-o", tmp_path / "m.npz", "-q")
    assert adjusted_rand_score(TRUTH, labels(tmp_path / "m.npz", world / "t.parquet")) > 0.95


def test_a_value_that_stands_for_missing_is_told_as_it_is_written(tmp_path: Path) -> None:
    money = MONEY.copy()
    money[:20] = -99999.0
    pq.write_table(pa.table({"price": money, "plain": TABLE["plain"]}), tmp_path / "t.parquet")
    done = imdh("fit", tmp_path / "t.parquet", "--log", "price", "-o", tmp_path / "m.npz")
    assert '"price": -99999 in 20 cells' in done.err
    option = re.search(r"add (--null-value \S+)", done.err)
    assert option
    again = imdh(
        "fit", tmp_path / "t.parquet", "--log", "price", "-o", tmp_path / "n.npz", *shlex.split(option[1])
    )
    assert "2,980 rows used of 3,000" in again.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--log", "word"], '"word" is no feature'), (["--log", "nowhere"], 'no column "nowhere"'),
        (["--log", "price", "-x", "price"], '"price" is no feature'),
        (["--log", "word", "--categorical", "onehot"], '"word" holds text'),
    ],
)  # fmt: skip
def test_what_has_no_logarithm_is_refused(words: list[str], said: str, world: Path, tmp_path: Path) -> None:
    assert said in imdh("fit", world / "t.parquet", *words, "-o", tmp_path / "m.npz", status=None).err
    assert not (tmp_path / "m.npz").exists()
