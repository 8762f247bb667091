"""`imdh sql`: the labels of a model as a query, for where the data are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from imdh_cli.cli import messages
from imdh_cli.cli.command import argument, command
from imdh_cli.cli.console import Console, OutputOptions
from imdh_cli.cli.inputs import check_data, opened, source_params
from imdh_cli.cli.outputs import takes_stdout
from imdh_cli.errors import ImdhError, UsageError
from imdh_cli.option import Given, borrowed, option
from imdh_cli.params import AssignParams, SourceParams
from imdh_cli.words import count

if TYPE_CHECKING:
    from imdh_cli.model import Model


@dataclass(frozen=True, kw_only=True)
class SqlOptions:
    model: str = argument("MODEL")
    dialect: Literal["duckdb", "postgres", "spark", "bigquery", "snowflake"] = option("duckdb", "Whose SQL.")
    clusters: int | None = borrowed(AssignParams, "clusters", None)
    missing: Literal["skip", "mean"] | None = option(
        None,
        "A cell that is NULL, NaN, infinite or beyond 1e100: label -1, or put the training mean there.",
        default="as MODEL was fitted",
    )
    table: str | None = option(
        None,
        "What stands after FROM, as the engine writes it: a table, a quoted file, a SELECT in parentheses.",
        default="data",
        metavar="TABLE",
    )
    name: str | None = borrowed(AssignParams, "name", None, default="cluster")
    expression: bool = option(False, "Only the CASE expression, without a SELECT.")
    output: str | None = option(
        None, "Where the SQL goes; - is stdout.", "-o", "--output", default="-; with --check: nowhere"
    )
    check: str | None = option(
        None,
        "Run the query in DuckDB over the rows of DATA and compare it with imdh assign, row for row. "
        "Another label ends with status 1.",
        metavar="DATA",
    )
    source: Given[SourceParams]
    out: OutputOptions


@command(
    SqlOptions,
    examples="""
    imdh sql model.npz --table sales | duckdb shop.db
    imdh sql model.npz --dialect postgres --table sales -o labels.sql
    imdh sql model.npz --dialect bigquery --expression      # for a view or an UPDATE of your own
    imdh sql model.npz --table "'sales/*.parquet'" --check sales/
    """,
)
def sql(o: SqlOptions, console: Console) -> None:
    """Write the labels of MODEL as SQL.

    The query gives all columns of a table and the label that imdh assign would give each row, -1 where
    a cell is missing. Only the cuts that so many clusters need are in it. Columns are found by name.
    """
    from imdh_cli.atomic import check_target, write_bytes
    from imdh_cli.model import load

    _refuse_contradictions(o)
    output = o.output or (None if o.check else "-")
    model = load(o.model)
    if output is not None and not takes_stdout(output):
        check_target(output, force=o.out.force, inputs=[o.model])
    text = _text(model, o)
    if model.spec.missing == "error" and o.missing is None:
        console.note(
            "the model was fitted with --missing error; here a row with a missing cell is labelled -1"
        )
    if o.check:
        _check(model, o.check, o, console)
    if output is None:
        return
    if takes_stdout(output):
        click.echo(text, nl=False)
    else:
        write_bytes(output, text.encode(), force=o.out.force)
        console.say(f"wrote {output}, {len(text.encode()) / 1000:,.1f} kB")


def _refuse_contradictions(o: SqlOptions) -> None:
    for flag, value in (("--table", o.table), ("--name", o.name)):
        if o.expression and value is not None:
            raise UsageError(f"{flag} is for the query; --expression has no place for it")
    if o.check and o.dialect != "duckdb":
        raise UsageError(
            "--check runs the query in DuckDB", "leave --dialect out: the cuts are the same in each dialect"
        )


def _text(model: Model, o: SqlOptions) -> str:
    from imdh_cli.export.sql import expression, query

    if o.expression:
        return expression(model, o.dialect, clusters=o.clusters, missing=o.missing)
    return query(
        model,
        o.dialect,
        clusters=o.clusters,
        missing=o.missing,
        table="data" if o.table is None else o.table,
        name="cluster" if o.name is None else o.name,
        origin=os.path.basename(o.model),
    )


def _check(model: Model, data: str, o: SqlOptions, console: Console) -> None:
    from imdh_cli.features import bind_features

    check_data("assign", [data], o.model)
    reading = source_params(o.source, console)
    with opened([data], reading) as source:
        bind_features(source, model.spec)
        messages.report_compiling(console, "standardise", "descend")
        from imdh_cli.export.check import compare

        found = compare(
            model,
            source,
            clusters=o.clusters,
            missing=o.missing,
            threads=reading.threads,
            on_progress=console.on_progress(),
        )
        for text in source.notes:
            console.note(text)
    console.close()
    if found.first is not None:
        row, label, other = found.first
        raise ImdhError(
            f"another label in SQL for {count(found.differ - found.near)} of {found.rows:,}; the first is "
            f"row {row}: {label} by imdh assign, {other} by SQL",
            "this is a bug: report it to the maintainers; the labels of imdh assign are right",
        )
    near = f", but for {count(found.near)} within rounding of a cut" if found.near else ""
    console.say(f"the same labels in DuckDB for {count(found.rows)}{near}")
