"""`imdh_cli.fit(table)` and `imdh_cli.assign(table, model)`: the commands, for tables in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from imdh_cli.arguments import assign_params, check_value, feature_params, fit_params
from imdh_cli.features import bind_features, select_features
from imdh_cli.model import Model
from imdh_cli.option import Option
from imdh_cli.params import Extra, FitParams, Missing
from imdh_cli.pipeline.assign import assign as assign_rows
from imdh_cli.pipeline.assign import label_schema
from imdh_cli.pipeline.fit import fit as fit_rows
from imdh_cli.runtime import usable_threads
from imdh_cli.sources.memory import table_source


def fit(
    table: Any,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    ids: Sequence[str] = (),
    categorical: Literal["error", "ignore", "onehot"] = "ignore",
    missing: Missing = "skip",
    params: FitParams | None = None,
    threads: int | None = None,
) -> Model:
    """Learn clusters from a table in memory, by the same rules as `imdh fit` from a file.

    Parameters
    ----------
    table : anything with `__arrow_c_stream__` or `__dataframe__`
        pyarrow, pandas, Polars, a DuckDB relation ...
    columns, exclude, ids, categorical, missing
        As the options of the command; a text instead of a list is one name.
    params : FitParams, optional
    threads : int, optional
        All that this process may use, by default.

    Returns
    -------
    Model
        `imdh_cli.save` keeps it in a file, which the commands take.

    Raises
    ------
    imdh_cli.ImdhError
        As the command says it.
    """
    chosen = feature_params(columns, exclude, ids, categorical, missing)
    how = fit_params(params)
    source = table_source(table)
    selection = select_features(source, chosen)
    return fit_rows(source, selection, how, threads=_threads(threads)).model


def assign(
    table: Any,
    model: Model,
    *,
    name: str = "cluster",
    clusters: int | None = None,
    keep: Sequence[str] = (),
    with_: Sequence[Extra] = (),
    missing: Missing | None = None,
    threads: int | None = None,
) -> pa.Table:
    """The labels of a table's rows, in their order: 1 to K, -1 for a row that cannot be labelled.

    Parameters
    ----------
    table : as for `fit`
    model : Model
    name : str
        Of the column of labels.
    clusters : int, optional
        Cut at so many, without changing the model.
    keep : columns to carry along; they have other names than those that are written
    with_ : more about each row, as the option of the command
    missing : another treatment of missing cells than the model's

    Raises
    ------
    imdh_cli.ImdhError
        As the command says it.
    """
    params = assign_params(model, name=name, clusters=clusters, with_=with_, keep=keep, missing=missing)
    source = table_source(table)
    bind_features(source, model.spec)
    sink = _Batches()
    assign_rows(model, source, sink, params, missing=missing, threads=_threads(threads))
    return pa.Table.from_batches(sink.batches, label_schema(params, source.kept_schema(params.keep)))


def _threads(asked: int | None) -> int:
    check_value("threads", asked, int | None, Option("", min=1))
    return asked or usable_threads()


class _Batches:
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
