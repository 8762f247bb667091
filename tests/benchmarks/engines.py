"""Where the data are: labels and counts of Spark and SQL against those of the commands, row for row, and what
Spark costs beside a pass of the rows through Python and beside its own KMeans.

FOLDERS of Parquet files with a column `target`, and 2,000,000 planted rows of 20 columns and 20 clusters,
which are made here. The engine is Sail, or as $IMDH_SPARK says classic Spark or Connect, which have an
environment of their own (`make test-spark` makes it); each run adds its figures to those of the others.
Processor seconds are those of all processes below this one, JVM and workers among them, two at a time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from sklearn.metrics import normalized_mutual_info_score

import imdh_cli
from imdh_cli.export.check import within_rounding
from imdh_cli.export.sql import expression, query
from imdh_cli.features import Tally, extract
from imdh_cli.model import walk
from imdh_cli.sources.base import Chunk
from tests import postgres
from tests import spark as sessions
from tests.benchmarks import common

ROW, TARGET = "imdh_row_number", "target"
PLANTED = "planted"
ROWS, COLUMNS, CLUSTERS = 2_000_000, 20, 20
WIDE = 200  # columns from which SQL is left out: no engine is made for so long an expression


def make_planted(folder: Path) -> None:
    """Eight files of two row groups each."""
    rng = np.random.default_rng(5)
    centers = 3.0 * rng.standard_normal((CLUSTERS, COLUMNS))
    target = rng.integers(0, CLUSTERS, ROWS)
    X = centers[target] + rng.standard_normal((ROWS, COLUMNS))
    table = pa.table({ROW: np.arange(ROWS), **{f"x{j}": X[:, j] for j in range(COLUMNS)}, TARGET: target})
    folder.mkdir()
    part = ROWS // 8
    for i in range(8):
        pq.write_table(table.slice(i * part, part), folder / f"part-{i}.parquet", row_group_size=part // 2)


def numbered(source: Path, folder: Path) -> None:
    """A file with its rows numbered, so that labels can be compared whatever order they come in."""
    table = pq.read_table(source)
    folder.mkdir()
    pq.write_table(table.append_column(ROW, pa.array(np.arange(len(table)))), folder / "part-0.parquet")


class Truth:
    """A set, the model of the command, and what the commands say of every row and of all."""

    def __init__(self, data: Path, scratch: Path) -> None:
        self.data, self.table = data, pq.read_table(data)
        files = {name: str(scratch / f"{data.name}.{name}") for name in ("npz", "counted.npz", "parquet")}
        common.imdh("fit", str(data), "-x", f"{ROW},{TARGET}", "-o", files["npz"], "-q", "-f")
        common.imdh("prune", files["npz"], str(data), "-o", files["counted.npz"], "-q", "-f")
        words = ["-o", files["parquet"], "--keep", ROW, "-q", "-f"]
        common.imdh("assign", files["npz"], str(data), *words)
        self.model, self.counted = imdh_cli.load(files["npz"]), imdh_cli.load(files["counted.npz"])
        self.labels = by_row(pq.read_table(files["parquet"]))

    def nmi(self, labels: np.ndarray) -> float:
        """Against the known classes, of the rows that have a label."""
        known = labels > 0
        classes = self.table.sort_by(ROW)[TARGET].combine_chunks().dictionary_encode().indices.to_numpy()
        return float(normalized_mutual_info_score(classes[known], labels[known]))

    def differ(self, labels: np.ndarray) -> tuple[int, int]:
        """Rows of another label, and those of them that are not within rounding of a cut."""
        apart = np.flatnonzero(labels != self.labels)
        spec = replace(self.model.spec, missing="skip")
        rows = self.table.sort_by(ROW).take(apart).select(spec.source_columns).combine_chunks()
        far = len(apart)
        for batch in rows.to_batches():
            X, used = extract(Chunk(batch, None, None), spec, Tally())
            far -= int((used & within_rounding(self.model, walk(self.model), X)).sum())
        return len(apart), far


def by_row(table: pa.Table) -> np.ndarray:
    """(n,) labels in the order of the row numbers."""
    return table.sort_by(ROW)["cluster"].to_numpy()


def on_spark(session: Any, truth: Truth) -> dict[str, Any]:
    """Labels, a recount and another, and SQL of one set."""
    from imdh_cli import spark

    df, model = session.read.parquet(str(truth.data)), truth.model
    ways = {"assign": spark.assign(df, model).select(ROW, "cluster")}
    if model.n_features < WIDE:
        df.createOrReplaceTempView("imdh_rows_of_set")
        ways["sql"] = session.sql(
            f"SELECT {ROW}, cluster FROM ({query(model, 'spark', table='imdh_rows_of_set')})"
        )
    found: dict[str, Any] = {way: truth.differ(by_row(df.toArrow())) for way, df in ways.items()}
    one, again, want = spark.recount(df, model), spark.recount(df, model), truth.counted
    same = [np.array_equal(getattr(one, n), getattr(again, n)) for n in ("means", "histograms", "counts")]
    moved = np.abs(one.histograms - want.histograms).sum() / max(int(want.histograms.sum()), 1)
    return found | {
        "counts": bool(np.array_equal(one.counts, want.counts)),
        "histograms moved": float(moved),
        "means": float(np.abs(one.means - want.means).max()),  # in standard deviations
        "squares": _relative(one.sums_of_squares, want.sums_of_squares),
        "dithered": "dither_columns" in model.extras,
        "repeats": all(same),
    }


def _relative(found: np.ndarray, want: np.ndarray) -> float:
    return float((np.abs(found - want) / np.maximum(np.abs(want), 1.0)).max())


def in_databases(truth: Truth, server: postgres.Server | None) -> dict[str, Any]:
    """Rows of another label in DuckDB, and where there is a server in PostgreSQL."""
    import duckdb

    model = truth.model
    found: dict[str, Any] = {}
    if model.n_features >= WIDE:
        return found
    files = f"'{truth.data}/*.parquet'"
    texts = {
        "duckdb": f"({query(model, table=files)})",
        "duckdb, expression": f"(SELECT *, {expression(model)} AS cluster FROM {files})",
    }
    for way, text in texts.items():
        rows = duckdb.execute(f"SELECT {ROW}, cluster FROM {text}").to_arrow_table()
        found[way] = truth.differ(by_row(rows))
    if server is not None and truth.data.name != PLANTED:
        names = [*model.spec.source_columns, ROW]
        columns = ", ".join(f'"{name}" double precision' for name in names)
        csv = pa.BufferOutputStream()
        pa.csv.write_csv(truth.table.select(names), csv, pa.csv.WriteOptions(include_header=False))
        server.run(f"DROP TABLE IF EXISTS imdh_rows; CREATE TABLE imdh_rows ({columns})")
        server.run("\\copy imdh_rows FROM pstdin CSV", stdin=csv.getvalue().to_pybytes().decode())
        text = query(model, "postgres", table="imdh_rows")
        printed = server.run(f'SELECT cluster FROM ({text}) AS labelled ORDER BY "{ROW}"')
        found["postgres"] = truth.differ(np.array(printed.split(), dtype=np.int64))
    return found


# -- what it costs


def processor_seconds() -> float:
    """Of all processes below this one and this one, dead ones too."""
    parent, spent = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parent[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {pid for pid, above in parent.items() if above in mine and pid not in mine}:
        mine |= more
    return sum(spent.get(pid, 0) for pid in mine) / os.sysconf("SC_CLK_TCK")


def _passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def costs(session: Any, truth: Truth, rounds: int) -> dict[str, Any]:
    """Medians of processor seconds, each work once in each round."""
    from imdh_cli import spark

    names = [f"x{j}" for j in range(COLUMNS)]
    df = session.read.parquet(str(truth.data)).select(*names)
    made: dict[str, Any] = {}

    def run(rows: Any) -> None:
        rows.write.format("noop").mode("overwrite").save()

    def kmeans() -> None:
        from pyspark.ml.clustering import KMeans
        from pyspark.ml.feature import VectorAssembler

        rows = VectorAssembler(inputCols=names, outputCol="features").transform(df).select("features")
        made["kmeans"] = KMeans(k=CLUSTERS, maxIter=20, tol=0.0, seed=1).fit(rows)

    def fit() -> None:
        made["fit"] = spark.fit(df)

    works: dict[str, Callable[[], None]] = {
        "pass": lambda: run(df.mapInArrow(_passed, df.schema)),
        "assign": lambda: run(spark.assign(df, truth.model)),
        "fit": fit,
    }
    if sessions.KIND == "classic":
        works["kmeans"] = kmeans
    run(df.limit(1000).mapInArrow(_passed, df.schema))  # the workers start
    spent: dict[str, list[float]] = {name: [] for name in works}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start, began = processor_seconds(), time.perf_counter()
            work()
            spent[name].append(processor_seconds() - start)
            seconds[name].append(time.perf_counter() - began)
    labels = imdh_cli.assign(truth.table.sort_by(ROW), made["fit"])["cluster"].to_numpy()
    return {
        "spent": spent,
        "seconds": seconds,
        "clusters": made["fit"].n_clusters,
        "nmi": truth.nmi(labels),
        "nmi of the command": truth.nmi(truth.labels),
    }


# -- the page


def table(result: Mapping[str, Any]) -> str:
    """All that was measured, in words and two tables."""
    kinds = {kind: run for kind, run in result.items() if kind in ("sail", "connect", "classic")}
    parts = [common.provenance_line(result)]
    rows = []
    names = list(dict.fromkeys(name for run in kinds.values() for name in run["sets"]))
    for name in names:
        about = next(run["sets"][name] for run in kinds.values() if name in run["sets"])
        cells = [name, f"{about['rows']:,} x {about['features']}", str(about["clusters"])]
        for kind in ("sail", "connect", "classic"):
            found = kinds.get(kind, {}).get("sets", {}).get(name)
            cells.append("" if found is None else _in_words(found["spark"]))
        found = next(
            (r["sets"][name]["sql"] for r in kinds.values() if r["sets"].get(name, {}).get("sql")), {}
        )
        cells += [_apart(found, "duckdb"), _apart(found, "duckdb, expression"), _apart(found, "postgres")]
        rows.append(cells)
    header = [
        "set",
        "rows x features",
        "K",
        "Sail",
        "Connect",
        "classic",
        "DuckDB",
        "expression",
        "PostgreSQL",
    ]
    parts.append(common.markdown_table(header, rows))
    for kind, run in kinds.items():
        if "costs" in run:
            parts.append(_cost_lines(kind, run["costs"]))
    return "\n\n".join(parts)


def _in_words(found: Mapping[str, Any]) -> str:
    """Rows of another label by `assign` and SQL, then what differs in a recount."""
    words = [_apart(found, "assign"), _apart(found, "sql")]
    counted = "counts" if found["counts"] else "other counts"
    histograms = "=" if not found["histograms moved"] else f"{found['histograms moved']:.0%}"
    moments = max(found["means"], found["squares"])
    return f"{' '.join(words)}, {counted} =, {histograms}, {moments:.0e}{'' if found['repeats'] else ' !'}"


def _apart(found: Mapping[str, Any], way: str) -> str:
    return f"{found[way][0]}" + (f" ({found[way][1]} far)" if found[way][1] else "") if way in found else "-"


def _cost_lines(kind: str, costs: Mapping[str, Any]) -> str:
    spent = {name: median(values) for name, values in costs["spent"].items()}
    said = {"pass": "rows through Python", "assign": "assign", "fit": "fit", "kmeans": "KMeans of Spark"}
    against = {"assign": "pass", "fit": "kmeans"}
    rows = []
    for name, value in spent.items():
        other = spent.get(against.get(name, ""))
        ratio = "" if other is None else f"{value / other:.2f} x {said[against[name]]}"
        rows.append([said[name], f"{value:.1f}", f"{median(costs['seconds'][name]):.1f}", ratio])
    text = common.markdown_table([f"on {kind}", "processor s", "s", "ratio"], rows)
    return (
        f"{text}\n\n{costs['clusters']} clusters, NMI {costs['nmi']:.3f} "
        f"(the command: {costs['nmi of the command']:.3f})."
    )


def measured(options: argparse.Namespace, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of this engine beside those of the others."""
    sets: dict[str, Any] = dict(earlier.get(sessions.KIND, {}).get("sets", {}))
    mine: dict[str, Any] = {**earlier.get(sessions.KIND, {}), "sets": sets}
    result = {**earlier, **common.provenance(), sessions.KIND: mine}
    server = postgres.server() if options.postgres else None
    with common.scratch_folder() as folder, sessions.session() as (session, _):
        running = None if server is None else server.__enter__()
        scratch = Path(folder)
        sources = {path.stem: path for place in options.folders for path in sorted(place.glob("*.parquet"))}
        for name in [*([PLANTED] if options.planted else []), *sources]:
            data = scratch / name
            numbered(sources[name], data) if name in sources else make_planted(data)
            truth = Truth(data, scratch)
            sets[name] = {
                "rows": len(truth.table),
                "features": truth.model.n_features,
                "clusters": truth.model.n_clusters,
                "spark": on_spark(session, truth),
                "sql": in_databases(truth, running) if options.sql else {},
            }
            if name == PLANTED and options.rounds:
                mine["costs"] = costs(session, truth, options.rounds)
            common.save(result, options.json)
            print(name, sets[name], flush=True)
            shutil.rmtree(data)
        if server is not None:
            server.__exit__(None, None, None)
    return result


def main(words: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__, "engines")
    parser.add_argument("folders", nargs="*", type=Path, help="of Parquet files with a column `target`")
    parser.add_argument("--planted", action="store_true", help="with the planted rows")
    parser.add_argument("--rounds", type=int, default=0, help="of the costs, with --planted")
    parser.add_argument("--sql", action="store_true", help="with DuckDB")
    parser.add_argument("--postgres", action="store_true", help="and with PostgreSQL")
    options = parser.parse_args(words)
    earlier = common.load(options.json)
    warnings.simplefilter("ignore")
    # KMeans keeps the rows in memory, for which Spark's gigabyte is too little.
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 5g pyspark-shell")
    result = earlier if options.table else measured(options, earlier)
    common.finish(options, "engines", table(result))


if __name__ == "__main__":
    main()
