"""Exported SQL gives the labels of `imdh assign`, in engines that run here and by parsers of the others.

The labels of the command are the truth. A row may differ where it lies within rounding of a cut, by a bound
computed here; such rows are counted.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot

import imdh_cli
from imdh_cli.errors import UsageError
from imdh_cli.export import sql
from imdh_cli.export.check import compare, within_rounding
from imdh_cli.export.dialects import DIALECTS, number
from imdh_cli.export.sql import expression, query
from imdh_cli.features import FeatureSpec
from imdh_cli.model import Model, load, save, walk
from tests import postgres
from tests.cli import blobs, imdh, labels, write
from tests.models import make
from tests.tables import opened

HOSTILE = ['say "x"', "it's", "a.b", "sel;ect -- /*", "`tick`", "back\\slash", "%s {0}", "naïve\tß", "Row"]
BROKEN = [None, np.nan, np.inf, -np.inf, 1e101, -1.7e308, 1e100, -1e100, 1e99, 5e-324, -0.0, 0.0]


class World(NamedTuple):
    """A model, a table to label, and how PostgreSQL names the types of its columns."""

    path: Path  # of the model
    data: Path
    table: pa.Table
    types: list[str]

    @property
    def model(self) -> Model:
        return load(self.path)


@functools.cache
def truth_of(model: Path, data: Path, clusters: int | None, missing: str) -> np.ndarray:
    """What the command gives."""
    out = model.with_suffix(".labels.parquet")
    k = [] if clusters is None else ["-k", clusters]
    words = ["--missing", missing, "--on-bad-row", "skip", *k]
    imdh("assign", model, data, "-o", out, "-f", *words)
    return labels(out)


def broken(table: pa.Table, seed: int = 0) -> pa.Table:
    """The same with a broken cell in every tenth row; each kind of break in each column of doubles."""
    rng = np.random.default_rng(seed)
    columns = []
    for j, column in enumerate(table.columns):
        cells = column.to_pylist()
        for n, i in enumerate(range(j, len(cells), 10 * table.num_columns)):
            cells[i] = BROKEN[n % len(BROKEN)] if pa.types.is_float64(column.type) else None
        columns.append(pa.array(cells, column.type))
    order = rng.permutation(table.num_rows)
    return pa.table(columns, names=table.column_names).take(order)


def numbers(folder: Path) -> World:
    """Learned from clusters in six columns of hostile names and various types, one of them constant."""
    X, _ = blobs(4000, k=6, d=5)
    names = HOSTILE[:5]
    table = pa.table(dict(zip(names, X.T, strict=True))).append_column("constant", pa.array(np.ones(4000)))
    whole = np.rint(10 * X[:, 0]).astype(np.int64)
    table = table.set_column(0, names[0], pa.array(whole))
    table = table.set_column(1, names[1], pa.array(X[:, 1].astype(np.float32)))
    decimals = [Decimal(f"{x:.6f}") for x in X[:, 2]]
    table = table.set_column(2, names[2], pa.array(decimals, pa.decimal128(12, 6)))
    pq.write_table(table, folder / "fit.parquet")
    imdh("fit", folder / "fit.parquet", "-o", folder / "m.npz", "-k", 6)
    types = ["bigint", "real", "numeric(12,6)", *["double precision"] * 3]
    return _world(folder, table, types)


def levels(folder: Path) -> World:
    """A text column of hostile levels, one of whole numbers taken as text, and texts that no level has."""
    X, which = blobs(3000, k=4, d=3)
    rng = np.random.default_rng(0)
    text = np.array(["it's", 'say "x"', "a\\b\\'c", "${HOME} naïve"])[which]
    code = rng.integers(0, 3, 3000)
    table = pa.table({HOSTILE[5]: X[:, 0], HOSTILE[6]: X[:, 1], HOSTILE[7]: X[:, 2], "kind": text})
    table = table.append_column(HOSTILE[8], pa.array(code.astype(str)))
    pq.write_table(table, folder / "fit.parquet")
    imdh("fit", folder / "fit.parquet", "--categorical", "onehot", "-o", folder / "m.npz", "-k", 5)
    seen = np.where(rng.random(3000) < 0.05, "new", text)
    table = table.set_column(3, "kind", pa.array(seen)).set_column(4, HOSTILE[8], pa.array(code + 1))
    return _world(folder, table, [*["double precision"] * 3, "text", "bigint"])


def unscaled(folder: Path) -> World:
    """`--scale none`: no centring, no clip, and the mean that a missing cell gets is not 0."""
    X, _ = blobs(3000, k=4, d=3)
    table = pa.table(dict(zip("abc", X.T, strict=True)))
    pq.write_table(table, folder / "fit.parquet")
    imdh("fit", folder / "fit.parquet", "--scale", "none", "-o", folder / "m.npz", "-k", 4)
    return _world(folder, table, ["double precision"] * 3)


def lists(folder: Path) -> World:
    """Some items of a column of lists, beside a number; lists that are NULL, too long or too short."""
    X, _ = blobs(3000, k=4, d=4)
    some = pa.array(np.column_stack([X[:, 0], np.ones(3000), X[:, 1:3]]).tolist())
    table = pa.table({"say [1]": some, "b": X[:, 3]})
    pq.write_table(table, folder / "fit.parquet")
    names = "say [1][0],say [1][2:4],b"
    imdh("fit", folder / "fit.parquet", "-c", names, "-o", folder / "m.npz", "-k", 4)
    cells = some.to_pylist()
    for i in range(7, 3000, 40):
        cells[i] = [None, [1.0] * 3, [], [1.0] * 5, [None, *cells[i][1:]], [*cells[i][:2], np.nan, 1e101]][
            i // 40 % 6
        ]
        cells[i + 1] = [cells[i + 1][0], np.inf, *cells[i + 1][2:]]  # not one of those used
    table = table.set_column(0, "say [1]", pa.array(cells, pa.list_(pa.float64())))
    return _world(folder, table, ["double precision[]", "double precision"])


def merged(folder: Path) -> World:
    """A least size: parts of the tree too small for a cluster go with a neighbour."""
    X, _ = blobs(3000, k=7, d=4)
    table = pa.table(dict(zip("abcd", X.T, strict=True)))
    pq.write_table(table, folder / "fit.parquet")
    imdh("fit", folder / "fit.parquet", "-o", folder / "m.npz", "--min-size", 250, "-k", 5)
    return _world(folder, table, ["double precision"] * 4)


def _world(folder: Path, table: pa.Table, types: Sequence[str]) -> World:
    """With cells far beyond 10 sd, and broken ones."""
    far = []
    rng = np.random.default_rng(1)
    for column in table.columns:
        if pa.types.is_float64(column.type):
            x = column.to_numpy().copy()
            at = rng.random(len(x)) < 0.05
            x[at] *= 10.0 ** rng.uniform(1, 90, at.sum())
            column = pa.chunked_array([x])
        far.append(column)
    table = broken(pa.table(far, names=table.column_names))
    pq.write_table(table, folder / "data.parquet")
    return World(folder / "m.npz", folder / "data.parquet", table, list(types))


def with_plain_names(world: World) -> World:
    """The same model and table with columns called c0, c1 ..."""
    names = [f"c{j}" for j in range(world.table.num_columns)]
    new = dict(zip(world.table.column_names, names, strict=True))
    model = world.model
    columns = tuple(replace(c, name=new[c.name]) for c in model.spec.columns)
    spec = FeatureSpec(columns, model.spec.missing)
    model.metadata["features"], model.feature_names = spec.to_dict(), list(spec.names)
    path, data = world.path.with_name("plain.npz"), world.data.with_name("plain.parquet")
    table = world.table.rename_columns(names)
    save(model, path, force=True)
    pq.write_table(table, data)
    return World(path, data, table, world.types)


WORLDS: dict[str, Callable[[Path], World]] = {
    f.__name__: f for f in (numbers, levels, unscaled, lists, merged)
}


@pytest.fixture(scope="module", params=list(WORLDS))
def world(request, tmp_path_factory) -> World:
    return WORLDS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as running:
        yield running


def in_duckdb(sql: str, table: pa.Table, name: str = "cluster") -> np.ndarray:
    """The labels of a query over a table called `data`, in the order of its rows: LATERAL may change it."""
    with duckdb.connect() as connection:
        connection.register("data", table.append_column("number", pa.array(range(table.num_rows))))
        rows = connection.execute(f'SELECT "{name}" FROM ({sql}) ORDER BY number').fetchnumpy()
        return np.asarray(rows[name], dtype=np.int64)


def on_a_cut(model: Model, table: pa.Table, ulps: float = 2.0) -> np.ndarray:
    """Rows within 2 ulps of the sum of a cut of the tree: |v.z - t| <= 2 * 2^-53 (|v|.|z| + |t|)."""
    columns = []
    for column in model.spec.columns:
        cells = table.column(column.name)
        if column.items is not None:
            vectors = [v if v and len(v) == column.items.length else None for v in cells.to_pylist()]
            columns += [
                np.array([np.nan if v is None or v[i] is None else v[i] for v in vectors])
                for start, stop in column.items.ranges
                for i in range(start, stop)
            ]
        elif column.levels is None:
            columns.append(cells.cast(pa.float64(), safe=False).to_numpy())
        else:
            words = cells.cast(pa.string()).to_pylist()
            columns += [np.array([np.nan if w is None else w == level for w in words], float)
                        for level in column.levels]  # fmt: skip
    X = np.column_stack(columns)
    X[~(np.abs(X) <= 1e100)] = np.nan
    with np.errstate(over="ignore"):
        Z = model.scaling.apply(X)
        gap = np.abs(Z @ model.directions.T - model.thresholds)
        size = np.abs(Z) @ np.abs(model.directions).T + np.abs(model.thresholds)
    return (gap <= ulps * 2.0**-53 * size).any(axis=1)


def assert_same(found: np.ndarray, world: World, clusters: int | None, missing: str) -> None:
    truth = truth_of(world.path, world.data, clusters, missing)
    assert len(found) == len(truth)
    apart = found != truth
    assert on_a_cut(world.model, world.table.filter(apart)).all()
    assert apart.sum() <= 3  # rows on a cut are rare: none of these were put there
    assert len(set(truth.tolist())) > 2
    bad_lists = any(column.items for column in world.model.spec.columns)
    assert (truth == -1).any() == (missing == "skip" or bad_lists)


# --- the labels -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["skip", "mean"])
@pytest.mark.parametrize("clusters", [None, 3])
def test_duckdb_gives_the_labels_of_assign(world, clusters, missing):
    model = world.model
    found = in_duckdb(query(model, "duckdb", clusters=clusters, missing=missing), world.table)
    assert_same(found, world, clusters, missing)
    case = expression(model, "duckdb", clusters=clusters, missing=missing)
    assert_same(in_duckdb(f"SELECT *, {case} AS cluster FROM data", world.table), world, clusters, missing)


@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_postgres_gives_the_labels_of_assign(world, server, missing):
    server.create("rows", world.table, world.types)
    found = server.labels(query(world.model, "postgres", missing=missing, table="rows"))
    assert_same(found, world, None, missing)
    case = expression(world.model, "postgres", missing=missing)
    assert_same(server.labels(f"SELECT *, {case} AS cluster FROM rows"), world, None, missing)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_parser_of_each_dialect_reads_the_same_labels(world, dialect):
    """sqlglot reads the dialect and writes DuckDB's, which is run.

    BigQuery has no column with a dot or a quote in its name, and sqlglot reads such names otherwise.
    """
    if dialect == "bigquery":
        world = with_plain_names(world)
    model = world.model
    case = f"SELECT *, {expression(model, dialect)} AS cluster FROM data"
    for text in (query(model, dialect), case):
        (translated,) = sqlglot.transpile(text, read=dialect, write="duckdb")
        # Spark's get, which sqlglot leaves as it is
        translated = re.sub(r'GET\(("[^"]+"), (\d+)\)', lambda m: f"{m[1]}[{int(m[2]) + 1}]", translated)
        assert_same(in_duckdb(translated, world.table), world, None, "skip")


@pytest.fixture
def always_long(monkeypatch) -> None:
    monkeypatch.setattr(sql, "LONG", 0)


@pytest.mark.usefixtures("always_long")
@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_a_long_expression_gives_the_same_labels(world, server, missing):
    """With each standardised cell once, in DuckDB and PostgreSQL."""
    case = expression(world.model, "duckdb", missing=missing)
    assert case.count("imdh") == 1
    assert_same(in_duckdb(f"SELECT *, {case} AS cluster FROM data", world.table), world, None, missing)
    server.create("rows", world.table, world.types)
    case = expression(world.model, "postgres", missing=missing)
    assert_same(server.labels(f"SELECT *, {case} AS cluster FROM rows"), world, None, missing)


@pytest.mark.usefixtures("always_long")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_parser_of_each_dialect_reads_the_same_labels_of_a_long_expression(world, dialect):
    test_a_parser_of_each_dialect_reads_the_same_labels(world, dialect)


@pytest.mark.usefixtures("always_long")
@pytest.mark.parametrize("dialect", ["duckdb", "spark", "snowflake"])
def test_columns_named_as_an_expression_names_its_values_are_told_apart(dialect):
    """One that is a feature in no cut: only its guard is there."""
    made = make(depth=3, d=3, k=4, n=2000, names=["z", "z0", "z1"], clusters=4)
    directions = made.model.directions.copy()
    directions[:, 0] = 0.0
    model = replace(made.model, directions=directions / np.linalg.norm(directions, axis=1, keepdims=True))
    table = pa.table({"z": [0.0, None], "z0": list(made.X[:2, 1]), "z1": list(made.X[:2, 2])})
    (case,) = sqlglot.transpile(f"SELECT *, {expression(model, dialect)} AS cluster FROM data",
                                read=dialect, write="duckdb")  # fmt: skip
    truth = imdh_cli.assign(table, model)["cluster"].to_numpy()
    assert truth[0] > 0
    assert len(list(walk(model))) == 3
    np.testing.assert_array_equal(in_duckdb(case, table), truth)


def test_rows_on_a_cut_differ_by_rounding_at_most(tmp_path, server):
    """Rows moved onto a cut to the last digit: the labels that differ are all told to be near."""
    made = make(depth=5, d=8, k=6, n=4000)
    model, rng = made.model, np.random.default_rng(0)
    cuts = list(walk(model))
    rows = []
    for cut in cuts:
        z = model.scaling.apply(made.X[rng.integers(0, len(made.X), 300)])
        z -= np.outer(z @ cut.direction - cut.threshold, cut.direction)
        rows.append(z * model.scale + model.center)
    X = np.concatenate(rows)
    save(model, tmp_path / "m.npz")
    world = World(tmp_path / "m.npz", write(tmp_path / "data.parquet", X), pa.table(
        dict(zip(model.feature_names, X.T, strict=True))), [])  # fmt: skip
    near = on_a_cut(model, world.table)
    assert near.mean() > 0.3
    assert (within_rounding(model, walk(model), X) <= on_a_cut(model, world.table, 3.0)).all()
    truth = truth_of(world.path, world.data, None, "skip")
    server.create("rows", world.table, ["double precision"] * 8)
    for found in (
        server.labels(query(model, "postgres", table="rows")),
        in_duckdb(query(model), world.table),
    ):
        apart = found != truth
        assert apart.any()
        assert (apart <= within_rounding(model, walk(model), X)).all()
    with closing(opened(world.data)) as source:
        found = compare(model, source)
    assert (found.rows, found.differ, found.near, found.first) == (len(X), apart.sum(), apart.sum(), None)


def test_booleans_count_as_zero_and_one(tmp_path):
    """Where the engine can tell: a cast is written for DuckDB and Spark."""
    X, which = blobs(1000, k=2)
    table = pa.table({"x": X[:, 0], "flag": pa.array(which == 1)})
    pq.write_table(table, tmp_path / "data.parquet")
    imdh("fit", tmp_path / "data.parquet", "-o", tmp_path / "m.npz", "-k", 2)
    world = World(tmp_path / "m.npz", tmp_path / "data.parquet", table, [])
    found = in_duckdb(query(world.model), table)
    assert np.array_equal(found, truth_of(world.path, world.data, None, "skip"))
    assert len(set(found.tolist())) == 2


def test_all_columns_of_the_table_come_along_and_no_others(server):
    """Also where one is named as the query names its own."""
    model = make(depth=2, d=2, k=2, n=500).model
    table = pa.table({"id": [7, 8], "x1": [0.5, None], "x2": [0.25, 0.5], "imdh_z0": [1.5, 2.5]})
    with duckdb.connect() as connection:
        connection.register("data", table)
        found = connection.sql(query(model, name="the label")).to_arrow_table()
    assert found.num_columns == 5
    assert found.column_names[:3] == ["id", "x1", "x2"]
    assert found.column(3).to_pylist() == [1.5, 2.5]
    assert found.column_names[-1] == "the label"
    assert found.column(4).to_pylist()[1] == -1
    alone = in_duckdb(query(model), table.select(["x1", "x2"]))
    assert found.column(4).to_pylist() == alone.tolist()
    server.create("rows", table, ["int", "double precision", "double precision", "double precision"])
    lines = server.run(query(model, "postgres", table="rows") + ' ORDER BY "row"').splitlines()
    assert [line.split("\t")[1:] for line in lines] == [
        ["7", "0.5", "0.25", "1.5", str(alone[0])],
        ["8", "", "0.5", "2.5", "-1"],
    ]


def test_a_model_with_a_column_of_that_name_has_other_names_inside():
    model = make(depth=2, d=2, k=2, n=500, names=["imdh_z0", "IMDH_Z_1"]).model
    table = pa.table({"imdh_z0": [0.5], "IMDH_Z_1": [0.25]})
    other = pa.table({"x1": [0.5], "x2": [0.25]})
    same = make(depth=2, d=2, k=2, n=500).model
    assert in_duckdb(query(model), table).tolist() == in_duckdb(query(same), other).tolist()


def test_one_cluster_needs_no_cut():
    model = make(depth=2, d=2, k=2, n=500).model
    table = pa.table({"x1": [0.5, None], "x2": [0.25, 0.5]})
    assert in_duckdb(query(model, clusters=1), table).tolist() == [1, -1]
    assert in_duckdb(query(model, clusters=1, missing="mean"), table).tolist() == [1, 1]
    assert "z0" not in query(model, clusters=1)


def test_tiny_and_huge_numbers_are_no_errors(server):
    """PostgreSQL stops where a product underflows or a quotient overflows; assign does not."""
    made = make(depth=3, d=3, k=3, n=500)
    model = replace(made.model, center=np.zeros(3), scale=np.array([1e-220, 1.0, 1e90]))
    cells = [0.0, 5e-324, -5e-324, 1e-250, 1e-219, 1e-310, 1.0, -1.0, 1e90, 1e100, -1e100]
    grid = np.array(np.meshgrid(cells, cells, cells)).reshape(3, -1)
    table = pa.table(dict(zip(model.feature_names, grid, strict=True)))
    with np.errstate(over="ignore", under="ignore"):
        Z = model.scaling.apply(grid.T)
    node = np.ones(len(Z), dtype=int)
    for _ in range(model.depth):
        node = 2 * node + ((model.directions[node - 1] * Z).sum(axis=1) >= model.thresholds[node - 1])
    truth = model.cluster_of_leaf[node - 2**model.depth]
    assert len(set(truth.tolist())) > 1
    assert np.array_equal(in_duckdb(query(model), table), truth)
    server.create("rows", table, ["double precision"] * 3)
    assert np.array_equal(server.labels(query(model, "postgres", table="rows")), truth)
    assert np.array_equal(
        server.labels(f"SELECT *, {expression(model, 'postgres')} AS cluster FROM rows"), truth
    )


def test_many_columns_are_no_deep_expression():
    """DuckDB refuses expressions of a depth of 1,000."""
    d = 1100
    made = make(depth=1, d=d, k=2, n=40)
    rng = np.random.default_rng(0)
    v = rng.standard_normal(d)
    model = replace(made.model, directions=(v / np.linalg.norm(v))[None], thresholds=np.zeros(1),
                    cluster_of_leaf=np.array([1, 2], np.int32))  # fmt: skip
    table = pa.table(dict(zip(model.feature_names, made.X.T, strict=True)))
    found = in_duckdb(query(model), table)
    assert np.array_equal(found, 1 + (model.scaling.apply(made.X) @ model.directions[0] >= 0.0))


# --- the text -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide() -> Model:
    """A hundred columns, no coefficient of which is 0."""
    model = make(depth=7, d=100, k=50, n=300).model
    v = np.random.default_rng(0).standard_normal(model.directions.shape)
    return replace(model, directions=v / np.linalg.norm(v, axis=1, keepdims=True))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_hundred_columns_and_fifty_clusters_take_less_than_250_kb(wide, dialect):
    """Every coefficient of every cut is there."""
    text = query(wide, dialect, clusters=50)
    assert len(text.encode()) < 250_000
    cuts = list(walk(wide, 50))
    assert text.count("WHEN") == len(cuts) + 101
    assert len(re.findall(r" \* (imdh.)?(imdh_)?z\d", text)) == 100 * len(cuts)
    case = expression(wide, dialect, clusters=50)
    assert len(case.encode()) < 250_000
    assert len(re.findall(r" \* z\[?\d", case)) == 100 * len(cuts)


def test_only_a_coefficient_of_exactly_nought_is_left_out():
    model = make(depth=1, d=3, k=2, n=500).model
    model = replace(model, directions=np.array([[1.0, 0.0, 1e-300]]), thresholds=np.array([0.5]),
                    cluster_of_leaf=np.array([1, 2], np.int32))  # fmt: skip
    text = query(model)
    assert re.search(r"WHEN 1.0e0 \* imdh_z0 \+ 1e-300 \* imdh_z2 < 0.5e0 THEN 1", text)
    assert "imdh_z1" not in text
    assert '"x2" AS DOUBLE) BETWEEN' in text  # a missing cell there is still a missing cell


# Of the rules of the five for a"`b\c'd, as a name and as a text.
QUOTED = r"""
duckdb     "a""`b\c'd"    'a"`b\c''d'
postgres   "a""`b\c'd"    E'a"`b\\c''d'
spark      `a"``b\c'd`    'a"`b\\c\'d'
bigquery   `a"\`b\\c'd`   'a"`b\\c\'d'
snowflake  "a""`b\c'd"    'a"`b\\c''d'
"""


@pytest.mark.parametrize("line", QUOTED.split("\n")[1:-1])
def test_quotes_and_backslashes_are_written_by_the_rules_of_the_dialect(line):
    dialect, name, text = line.split()
    written = "a\"`b\\c'd"
    assert DIALECTS[dialect].name(written) == name
    assert DIALECTS[dialect].text(written) == text


@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_numbers_read_back_with_the_same_bits(dialect, request):
    bits = np.random.default_rng(0).integers(0, 2**63, 2000, dtype=np.uint64)
    values = [float(x) for x in bits.view(np.float64) if np.isfinite(x)]
    values += [0.0, 0.1, 1.0, 1e16, 1e22, 1e23, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308]
    values += [-x for x in values[-9:]]
    texts = [number(x, DIALECTS[dialect]) for x in values]
    assert max(sum(c.isdigit() for c in t.partition("e")[0].lstrip("-0.")) for t in texts) <= 17
    if dialect == "duckdb":
        rows = duckdb.sql(f"SELECT unnest([{', '.join(texts)}]) AS x, typeof(x)").fetchall()
        assert {kind for _, kind in rows} == {"DOUBLE"}
        found = [x for x, _ in rows]
    else:
        server = request.getfixturevalue("server")
        lines = ",".join(f"(CAST({t} AS DOUBLE PRECISION))" for t in texts)
        found = [float(x) for x in server.run(f"VALUES {lines}").split()]
    assert np.array_equal(np.array(found).view(np.uint64) << np.uint64(1),
                          np.array(values).view(np.uint64) << np.uint64(1))  # fmt: skip
    assert np.array_equal(found, values)


def test_the_comment_says_what_it_is_and_cannot_be_left():
    model = make(depth=3, d=2, k=3).model
    text = query(model, "postgres", origin="m.npz\nDROP TABLE data; --")
    first, second, third = text.splitlines()[:3]
    k = model.n_clusters
    assert first.startswith(f"-- {k} clusters of the model m.npz\\nDROP TABLE data; --, by {k - 1} cut")
    assert second.startswith("-- Written for postgres by imdh ")
    assert third.startswith("SELECT")
    assert "counts as the mean" in query(model, missing="mean").splitlines()[0]
    assert expression(model).startswith("CASE WHEN")


@pytest.mark.parametrize(
    ("names", "dialects", "said"),
    [
        (["a", "A"], ["duckdb", "spark", "bigquery"], 'columns "a" and "A" are one and the same'),
        (["é" * 32, "é" * 31 + "x"], [], ""),
        (["é" * 32 + "a", "é" * 32 + "b"], ["postgres"], "are one and the same to postgres"),
        (["a\0", "b"], list(DIALECTS), "holds a character that SQL cannot write"),
        (["a", "${env:HOME}"], ["spark"], 'spark does not leave "${" as it is'),
        (["a", ""], list(DIALECTS), "an empty name"),
        (["a", "cluster"], list(DIALECTS), "name the label column otherwise"),
    ],
)
def test_names_that_a_dialect_cannot_tell_are_refused(names, dialects, said):
    model = make(depth=2, d=2, k=2, n=500, names=names).model
    for dialect in DIALECTS:
        if dialect in dialects:
            with pytest.raises(UsageError) as error:
                query(model, dialect)
            assert said in error.value.message + (error.value.hint or "")
        else:
            assert query(model, dialect)


def test_levels_that_no_text_can_hold_are_refused():
    model = make(depth=2, d=2, k=2, n=500, levels=("a", "b\0")).model
    with pytest.raises(UsageError, match='level of column "kind" holds a character'):
        expression(model, "postgres")


def test_too_many_clusters_are_refused_as_by_assign():
    with pytest.raises(UsageError, match="clusters were asked for"):
        query(make(depth=2, d=2, k=2).model, clusters=99)


def test_what_duckdb_cannot_read_from_arrow_is_turned_first(tmp_path):
    """Half floats, wide decimals, dictionaries and run-end encoded columns count as in assign."""
    X, _ = blobs(1000, k=3)
    imdh("fit", write(tmp_path / "fit.parquet", X), "-o", tmp_path / "m.npz", "-k", 3)
    half = pa.array(X[:, 0].astype(np.float16))
    wide = pa.array([Decimal(f"{x:.4f}") for x in X[:, 1]], pa.decimal256(50, 4))
    packed = pa.array(np.rint(X[:, 2])).dictionary_encode()
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file:
        table = pa.table({"x1": half, "x2": wide, "x3": packed})
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    with closing(opened(tmp_path / "t.arrow")) as source:
        found = compare(load(tmp_path / "m.npz"), source)
    assert (found.rows, found.differ) == (1000, found.near)
