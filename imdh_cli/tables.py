"""`imdh_cli.fit(table)` and `imdh_cli.assign(table, model)`: the commands, for tables in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from imdh_cli.arguments import Arguments, assign_params, check_value, fit_params
from imdh_cli.features import bind_features, select_features
from imdh_cli.model import Model
from imdh_cli.option import Option
from imdh_cli.params import AssignParams, FeatureParams, FitParams, Missing, SourceParams
from imdh_cli.pipeline.assign import assign as assign_rows
from imdh_cli.pipeline.assign import label_schema
from imdh_cli.pipeline.fit import fit as fit_rows
from imdh_cli.report.suspects import warn
from imdh_cli.runtime import usable_threads
from imdh_cli.sources.memory import table_source

_FIT = Arguments(FeatureParams, SourceParams, FitParams)
_ASSIGN = Arguments(AssignParams, SourceParams)


@_FIT
def fit(table: Any, *, params: FitParams | None = None, threads: int | None = None, **options: Any) -> Model:
    """Learn clusters from a table in memory, by the same rules as `imdh fit` from a file.

    Parameters
    ----------
    table : anything with `__arrow_c_stream__` or `__dataframe__`
        pyarrow, pandas, Polars, a DuckDB relation ...
    params : FitParams, optional
        Of the learning, as the model keeps them; the options below win over it.
    threads : int, optional
        All that this process may use, by default.

    Returns
    -------
    Model
        `imdh_cli.save` keeps it in a file, which the commands take.

    Warns
    -----
    imdh_cli.ImdhWarning
        Of values that may stand for missing ones; no choice of clusters is clear while there are some.

    Raises
    ------
    imdh_cli.ImdhError
        As the command says it.
    """
    features, reading, params = fit_params(_FIT, options, params)
    threads = _threads(threads)
    source = table_source(table, params=reading)
    model = fit_rows(source, select_features(source, features), params, threads=threads).model
    warn(model)
    return model


@_ASSIGN
def assign(
    table: Any, model: Model, *, missing: Missing | None = None, threads: int | None = None, **options: Any
) -> pa.Table:
    """The labels of a table's rows, in their order: 1 to K, -1 for a row that cannot be labelled.

    Parameters
    ----------
    table : as for `fit`
    model : Model
    missing : another treatment of missing cells than the model's
    threads : as for `fit`

    Raises
    ------
    imdh_cli.ImdhError
        As the command says it.
    """
    params, reading = assign_params(_ASSIGN, options, model, missing)
    threads = _threads(threads)
    source = table_source(table, params=reading)
    bind_features(source, model.spec)
    sink = _Batches()
    assign_rows(model, source, sink, params, missing=missing, threads=threads)
    return pa.Table.from_batches(sink.batches, label_schema(params, source.kept_schema(params.keep)))


def _threads(asked: int | None) -> int:
    check_value("threads", asked, int | None, Option("", min=1))
    return asked or usable_threads()


class _Batches:
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
