"""`fit`, `recount` and `assign` on a Spark DataFrame: the model goes to the data.

Only `select`, `range`, `mapInArrow`, `repartition` and `toArrow` are called, which classic Spark (3.5 and 4),
Spark Connect and Sail all have. A fit reads the data twice: once for column moments and a sample, from which
the tree is learned on the driver, and once to count all rows under it. The model is the one that the commands
read and write.
"""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from imdh_cli.arguments import Arguments, assign_params, check_model, check_value, fit_params
from imdh_cli.core.dither import Dither
from imdh_cli.engines import parts
from imdh_cli.errors import DataError, ImdhError, UsageError
from imdh_cli.features import Column, FeatureSpec, Selection, bind_features, select_features
from imdh_cli.features.spec import MAX_LEVELS
from imdh_cli.model import Model
from imdh_cli.model.build import with_statistics
from imdh_cli.option import Option
from imdh_cli.params import AssignParams, FeatureParams, FitParams, Missing, SourceParams
from imdh_cli.pipeline.assign import Labeller, label_schema
from imdh_cli.report.suspects import warn
from imdh_cli.runtime import usable_threads
from imdh_cli.sources.memory import table_source
from imdh_cli.sources.nulls import Nulls
from imdh_cli.version import __version__

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PART = "imdh_part"
NUMBERS = frozenset(["byte", "short", "integer", "long", "float", "double"])  # types that are cast to doubles
ROW = "imdh_row"
PIECES = f"{PART} long, piece binary"
FIRST_ROWS = 20_000  # from which types and identifiers are told, as those of a file
RUN_ROWS = 1000  # of an identifier, on average, before it begins again
FEW_PARTS = 16  # whose counts the driver merges itself

Batches = Iterator[pa.RecordBatch]


# A reading has no first rows, learns from a sample, and always counts all.
_FIT = Arguments(
    FeatureParams,
    SourceParams,
    FitParams,
    without=("max_rows", "sample", "recount", "shuffle", "buffer_rows"),
)
_ASSIGN = Arguments(AssignParams, SourceParams, without=("keep", "max_rows"))


@_FIT
def fit(
    df: DataFrame,
    *,
    params: FitParams | None = None,
    sample_rows: int = 1_000_000,
    n_rows: int | None = None,
    **options: Any,
) -> Model:
    """Learn clusters from a DataFrame: columns are chosen by the rules of `imdh fit`.

    Parameters
    ----------
    df : DataFrame
        Read twice, in the same order within each partition: cache it where making it is costly or random.
    params : FitParams, optional
        Of the learning, as the model keeps them; the options below win over it.
    sample_rows : int
        How many rows the tree is learned from, drawn uniformly; they must fit the driver's memory.
    n_rows : int, optional
        How many rows there are, about; otherwise Spark counts them, which files of Parquet and ORC tell
        without being read.

    Returns
    -------
    Model
        Its statistics are of all rows. The same partitions and seed give the same model.

    Warns
    -----
    imdh_cli.ImdhWarning
        Of values that may stand for missing ones; no choice of clusters is clear while there are some.

    Raises
    ------
    ImdhError
        As the command says it; for a worker without imdh, or with another minor version of Python.
    """
    asked, reading, params = fit_params(_FIT, options, params)
    check_value("sample_rows", sample_rows, int, Option("", min=1))
    check_value("n_rows", n_rows, int | None, Option("", min=1))
    if params.sample is not None or params.recount == "no":
        raise UsageError(
            "on Spark sample_rows are learned from, and all rows are counted", "leave it at that"
        )
    with _driver_errors():
        first = _first_rows(df)
        selection = _selection(df, first, asked, reading)
        spec, met = selection.spec, sum(map(len, first))
        n = n_rows or (met if met < FIRST_ROWS else df.count())
        # Some more than asked for are drawn: the number that come is random.
        fraction = 1.0 if n <= sample_rows else (sample_rows + 5.0 * sample_rows**0.5) / n
    found = _profiled(df, spec, fraction, params.seed, reading)
    learned = parts.learn_sample(found, params, sample_rows, threads=usable_threads())
    watch = parts.watch_of(found.drawn(sample_rows), spec)
    counted = _counted(
        df,
        found.first_rows,
        spec=spec,
        tree=learned.tree.freeze(),
        scaling=learned.scaling,
        dither=learned.dither,
        seed=params.seed,
        watch=watch,
        reading=reading,
    )
    about = {"inputs": [], "left_out": selection.left_out, "ids": selection.ids}
    model = parts.finished(learned, counted, watch, params, spec, about)
    warn(model)
    return model


def recount(df: DataFrame, model: Model, *, missing: Missing | None = None) -> Model:
    """The same tree with the moments and histograms of all rows of `df`.

    One reading; two where the model was learned with noise, which follows from the place of a row among all.

    Raises
    ------
    ImdhError
        As `fit`; DataError when no row can be used.
    """
    check_model(model, missing)
    _bind(df, model)
    spec = model.spec if missing is None else replace(model.spec, missing=missing)
    dither, seed = Dither.restored(model.extras), model.params.seed
    first_rows = _profiled(df, spec, 0.0, seed).first_rows if dither.any else {}
    counted = _counted(
        df,
        first_rows,
        spec=spec,
        tree=model.frozen_tree,
        scaling=model.scaling,
        dither=dither,
        seed=seed,
    )
    if not counted.tally.used:
        raise DataError(f"none of the {counted.tally.rows} rows can be used", "use missing='mean'")
    return with_statistics(model, counted.statistics)


@_ASSIGN
def assign(df: DataFrame, model: Model, *, missing: Missing | None = None, **options: Any) -> DataFrame:
    """`df` with the labels of `imdh assign`: 1 to K, -1 for a row that cannot be labelled.

    Parameters
    ----------
    df, model : DataFrame, Model
    missing : another treatment of missing cells than the model's

    Raises
    ------
    ImdhError
        For a column that is not there or is no number, for more clusters than there are leaves, and as `fit`
        for workers, of which one is tried. No row is read: what is wrong with one, such as a missing cell
        with missing="error", is Spark's error of the action that asks for it.
    """
    from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

    params, reading = assign_params(_ASSIGN, options, model, missing)
    _bind(df, model)
    Labeller(model, params.clusters, params.extra)  # refuses what cannot be
    taken = next((n for n in params.columns if n in df.columns), None)
    if taken is not None:
        raise UsageError(f'the DataFrame has a column "{taken}" already', "name the labels otherwise")
    kinds = {"int32": IntegerType(), "int64": LongType(), "double": DoubleType(), "string": StringType()}
    new = label_schema(params, pa.schema([]))
    own = [(f.dataType, f.nullable) for f in df.schema.fields]
    types = [*own, *((kinds[str(f.type)], f.name != params.name) for f in new)]
    names = [*df.columns, *new.names]
    plain = _are_plain(names)  # other names after the fact: Spark copies the rows for that
    sent = names if plain else [_place(i) for i in range(len(names))]
    schema = StructType([StructField(name, *kind) for name, kind in zip(sent, types, strict=True)])
    slim = parts.slim(model)
    how: dict[str, Any] = {"model": slim, "params": params, "missing": missing, "reading": reading}
    worker = _work(_label, names=df.columns, sent=sent, **how)
    with _driver_errors():  # what stops a worker, such as that it has no imdh
        _to_arrow(df.sparkSession.range(0, 1, 1, 1).mapInArrow(_work(_none, worker=worker), "none long"))
    labelled = (df if plain else _plain_names(df)).mapInArrow(worker, schema)
    return labelled if plain else labelled.toDF(*names)


# -- on the workers


@dataclass(frozen=True)
class _Work:
    """What a worker does with batches, pickled apart: another version may lack what it is made of."""

    version: str
    pickled: bytes

    def __call__(self, batches: Batches) -> Batches:
        if self.version != __version__:
            raise UsageError(f"the workers have imdh {__version__}, the driver {self.version}")
        work: Callable[[Batches], Batches] = pickle.loads(self.pickled)
        return work(batches)


def _work(function: Callable[..., Batches], **how: Any) -> _Work:
    return _Work(__version__, pickle.dumps(partial(function, **how)))


def _profile(batches: Batches, *, layout: _Layout, **how: Any) -> Batches:
    part, rows = layout.numbered(batches)
    if part is not None:
        for piece in parts.pack_profile(parts.profile(rows, part=part, **how)):
            yield _piece(part, piece)


def _count(batches: Batches, *, layout: _Layout, first_rows: dict[int, int], **how: Any) -> Batches:
    part, rows = layout.numbered(batches)
    if part is not None:
        yield _piece(part, parts.count(rows, first_row=first_rows.get(part, 0), **how).pack())


def _merge(batches: Batches) -> Batches:
    found = sorted((pair for batch in batches for pair in _pairs(batch)), key=lambda pair: pair[0])
    merged = parts.merge_counts(piece for _, piece in found)
    if merged is not None:
        yield _piece(found[0][0], merged)


def _label(
    batches: Batches, *, names: list[str], sent: list[str], model: Model, params: AssignParams, **how: Any
) -> Batches:
    named = (batch.rename_columns(names) for batch in batches)
    for batch in parts.label(named, model, params, **how):
        yield batch.rename_columns(sent)


def _none(batches: Batches, *, worker: Callable[[Batches], Batches]) -> Batches:
    """No rows, by a worker that has what `worker` takes."""
    for _ in batches:
        yield from worker(iter(()))


@dataclass(frozen=True)
class _Layout:
    """How `_inputs` sends columns to the workers.

    numbers : those in one array of doubles, behind the number of the partition, which not every server tells
    otherwise. Spark writes it in two thirds of the time of as many columns. others : what follows it.
    columns : of both, in the order in which they are read.
    """

    numbers: tuple[str, ...]
    others: tuple[str, ...]
    columns: tuple[str, ...]

    def numbered(self, batches: Batches) -> tuple[int | None, parts.Rows]:
        """The partition's number and its rows; None for a partition without rows."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return None, iter(())
        part, batches = int(first.column(0).flatten()[0].as_py()), itertools.chain([first], filled)
        if self.numbers == self.columns:
            return part, parts.Matrices(_cells(batch).copy() for batch in batches)
        return part, map(self._apart, batches)

    def _apart(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Each column by its name."""
        columns = map(pa.array, np.ascontiguousarray(_cells(batch).T))
        arrays = dict(zip(self.numbers, columns, strict=True))
        arrays |= zip(self.others, batch.columns[1:], strict=True)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.columns], names=list(self.columns))


def _cells(batch: pa.RecordBatch) -> np.ndarray:
    """(n, d) of the array, without the number of the partition; NULL is NaN, which means missing, too."""
    cells = batch.column(0).flatten().to_numpy(zero_copy_only=False)
    return cells.reshape(batch.num_rows, -1)[:, 1:]


def _piece(part: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([part], pa.int64()), pa.array([data], pa.binary())], names=[PART, "piece"]
    )


def _pairs(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, pa.Buffer]]:
    return zip(batch.column(0).to_pylist(), (piece.as_buffer() for piece in batch.column(1)), strict=True)


# -- on the driver


def _selection(
    df: DataFrame, tables: list[pa.Table], asked: FeatureParams, reading: SourceParams
) -> Selection:
    """The features, told from the first rows and, where these do not tell, from all."""
    selection = select_features(table_source(*tables, params=reading, name=parts.NAME), asked)
    if sum(map(len, tables)) < FIRST_ROWS:
        return selection
    texts = selection.spec.texts
    levels = {name: _levels(df, name, asked, reading) for name in texts}
    crowded = [name for name in texts if not levels[name]]
    if crowded and asked.columns is not None:
        raise DataError(f'column "{crowded[0]}" has more than {MAX_LEVELS} levels')
    chosen = [
        replace(c, levels=levels[c.name]) if c.name in levels else c
        for c in selection.spec.columns
        if c.name not in crowded
    ]
    left_out = [pair for pair in selection.left_out if pair[1] != "empty"]
    empty = [name for name, why in selection.left_out if why == "empty"]
    if empty and asked.columns is None:
        filled = _to_arrow(df.agg(*[F.count(_quoted(n)).alias(str(i)) for i, n in enumerate(empty)]))
        for i, name in enumerate(empty):
            if filled.column(str(i))[0].as_py() and pa.types.is_primitive(tables[0].schema.field(name).type):
                chosen.append(Column(name))
            else:
                left_out.append((name, "empty"))
    spec = replace(selection.spec, columns=tuple(chosen))
    return replace(selection, spec=spec, left_out=[*left_out, *((n, "many texts") for n in crowded)])


def _first_rows(df: DataFrame) -> list[pa.Table]:
    """Some rows in the order of their partitions, in pieces: an identifier may begin again in each, since
    files are packed into partitions in any order."""
    row = F.monotonically_increasing_id().alias(ROW)
    found = _to_arrow(_plain_names(df).select(row, "*").limit(FIRST_ROWS))
    found = found.sort_by(ROW).drop_columns([ROW]).rename_columns(df.columns)
    return [found.slice(k, RUN_ROWS) for k in range(0, max(1, len(found)), RUN_ROWS)]


def _levels(df: DataFrame, name: str, asked: FeatureParams, reading: SourceParams) -> tuple[str, ...]:
    """The levels of a column of texts or codes; none where there are too many."""
    most = MAX_LEVELS + 2 + len(reading.null_values or ())
    found = _to_arrow(df.select(_column(df, name).alias(name)).distinct().limit(most))
    one = replace(asked, columns=(name,), exclude=(), ids=(), onehot=(name,), parse=())
    try:
        return select_features(table_source(found, params=reading), one).spec.columns[0].levels or ()
    except DataError:
        return ()


def _bind(df: DataFrame, model: Model) -> None:
    """DataError unless the model's features are columns of the DataFrame.

    Their types tell, but of texts where numbers belong, which may hold some: the first of these are read.
    """
    rows = _plain_names(df)
    numbers = {*model.spec.numbers} - {*model.spec.parsed}
    texts = any(f.name in numbers and f.dataType.typeName() == "string" for f in df.schema.fields)
    with _driver_errors():
        first = _to_arrow(rows.limit(RUN_ROWS if texts else 0)).rename_columns(df.columns)
        bind_features(table_source(first, name=parts.NAME), model.spec)


def _profiled(
    df: DataFrame, spec: FeatureSpec, fraction: float, seed: int, reading: SourceParams | None = None
) -> parts.Profile:
    with _driver_errors():
        rows, layout = _inputs(df, spec)
        worker = _work(_profile, layout=layout, spec=spec, fraction=fraction, seed=seed, reading=reading)
        pieces = _gathered(rows.mapInArrow(worker, PIECES))
        return parts.merge_profiles(pieces, len(spec.names))


def _counted(df: DataFrame, first_rows: dict[int, int], *, spec: FeatureSpec, **how: Any) -> parts.Counts:
    with _driver_errors():
        rows, layout = _inputs(df, spec)
        worker = _work(_count, layout=layout, spec=spec, first_rows=first_rows, **how)
        counts = rows.mapInArrow(worker, PIECES)
        if not 0 < len(first_rows) <= FEW_PARTS:
            # On as many workers as their size is worth (Spark says how many), before they come to the driver.
            counts = counts.repartition(PART).mapInArrow(_work(_merge), PIECES)
        merged = parts.merge_counts(_gathered(counts))
    if merged is None:
        raise DataError("there are no rows", "a model is learned from rows")
    return parts.Counts.unpack(merged)


def _inputs(df: DataFrame, spec: FeatureSpec) -> tuple[DataFrame, _Layout]:
    """The columns that are read, and how they are sent."""
    names = spec.source_columns
    columns = {name: _column(df, name) for name in names}
    types = [f.dataType.typeName() for f in df.select(*columns.values()).schema.fields]
    # As the types they have where these matter: to what stands for a missing value, and to codes.
    nulls = Nulls.of(spec.null_values, names)
    alone = {*spec.texts, *spec.parsed, *spec.lengths, *(name for name in names if nulls.texts(name))}
    numbers = [n for n, kind in zip(names, types, strict=True) if kind in NUMBERS and n not in alone]
    others = [name for name in names if name not in numbers]
    cells = F.array(*[c.cast("double") for c in (F.spark_partition_id(), *(columns[n] for n in numbers))])
    rows = _plain_names(df.select(cells, *(columns[n] for n in others)))
    return rows, _Layout(tuple(numbers), tuple(others), tuple(names))


def _plain_names(df: DataFrame) -> DataFrame:
    """Columns by their places, for names that are not plain. UsageError for what is no DataFrame."""
    if not hasattr(type(df), "mapInArrow"):  # a Column has every name as an attribute
        raise UsageError(
            f"a {type(df).__name__} where a DataFrame of Spark belongs",
            "imdh_cli.fit and imdh_cli.assign take tables in memory",
        )
    return df.toDF(*map(_place, range(len(df.columns))))


def _are_plain(names: list[str]) -> bool:
    """Whether classic Spark's `mapInArrow` takes them: it stumbles over a name with a dot or a backtick, and
    over one that several have."""
    return all(map(re.compile(r"\w+").fullmatch, names)) and len({*map(str.casefold, names)}) == len(names)


def _place(i: int) -> str:
    return f"c{i}"


def _quoted(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")


def _column(df: DataFrame, name: str) -> Any:
    """A column, or a field within structs, which is named with points."""
    return _quoted(name) if name in df.columns else F.col(".".join(f"`{part}`" for part in name.split(".")))


def _gathered(df: DataFrame) -> Iterator[pa.Buffer]:
    """The pieces in the order of their parts, so that sums do not depend on which came first."""
    pairs = list(_pairs(_to_arrow(df)))
    return (piece for _, piece in sorted(pairs, key=lambda pair: pair[0]))


def _to_arrow(df: DataFrame) -> pa.Table:
    if hasattr(df, "toArrow"):
        return df.toArrow()
    return pa.Table.from_pandas(df.toPandas(), preserve_index=False)  # before Spark 4


@contextmanager
def _driver_errors() -> Iterator[None]:
    """What went wrong on a worker, as the one error that it is."""
    try:
        yield
    except ImdhError:
        raise
    except Exception as error:  # PySparkException, or what Py4J raises
        known = _known_error(str(error))
        if known is None:
            raise
        raise known from error


_ERRORS: tuple[tuple[str, Callable[[re.Match[str]], ImdhError]], ...] = (
    (
        r"No module named '(imdh_cli|numba|numpy|llvmlite|pyarrow|pandas)",
        lambda m: UsageError(
            f"a Spark worker cannot import {m[1]}",
            "install imdh where the workers' Python is (PYSPARK_PYTHON), or ship it with spark.archives",
        ),
    ),
    (
        r"Python in worker has different version:? ([\d.]+) than that in driver:? ([\d.]+)",
        lambda m: UsageError(
            f"the workers run Python {m[1]}, the driver {m[2]}",
            "set PYSPARK_PYTHON to a Python of the driver's minor version, with imdh",
        ),
    ),
    (
        r'Cannot run program "([^"\n]*)"',
        lambda m: UsageError(
            f'a Spark worker cannot run the Python "{m[1]}"', "set PYSPARK_PYTHON to one that workers have"
        ),
    ),
    (
        r"UNSUPPORTED_DATA_TYPE_FOR_ARROW\w*\] (\w+)",
        lambda m: DataError(
            f"a column is a {m[1]}, which Spark does not hand to Python",
            "drop it, or cast it to a number or to text",
        ),
    ),
    (
        r"(?:imdh_cli\.errors\.|External error: )(?:DataError|UsageError|ModelError): ([^\n]*)",
        lambda m: DataError(m[1].strip()),
    ),
)


def _known_error(text: str) -> ImdhError | None:
    for pattern, error in _ERRORS:
        found = re.search(pattern, text)
        if found is not None:
            return error(found)
    return None
