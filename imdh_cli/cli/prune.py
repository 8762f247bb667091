"""`imdh prune`: another number of clusters, without data; with data, counted exactly first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from imdh_cli.cli import messages
from imdh_cli.cli.command import argument, command
from imdh_cli.cli.console import Console, OutputOptions
from imdh_cli.cli.inputs import ReadingOptions, check_data, opened, source_params
from imdh_cli.cli.outputs import check_model_target, echo_json, takes_stdout, write_model
from imdh_cli.option import Given, option
from imdh_cli.params import PruneParams

if TYPE_CHECKING:
    from imdh_cli.core.pruning import Pruning
    from imdh_cli.model import Model


@dataclass(frozen=True, kw_only=True)
class PruneOptions:
    model: str = argument("MODEL")
    data: tuple[str, ...] = argument("[DATA]...")
    params: Given[PruneParams]
    rename: tuple[str, ...] = option(
        (),
        "Name clusters, as numbered after this pruning, no two alike; their tree nodes keep the names. "
        "1= takes one away.",
        metavar="1=NAME,2=NAME",
    )
    output: str | None = option(
        None,
        "Where the model goes; - is stdout.",
        "-o",
        "--output",
        default="MODEL, replaced as a whole; with --table: nowhere",
    )
    table: bool = option(
        False,
        "One line for each K: total sum of squares, and the split removed to have one cluster fewer. "
        "It only shows: nothing is written without -o.",
    )
    as_json: bool = option(False, "The choice (with --table: the table) as JSON.", "--json")
    reading: ReadingOptions
    out: OutputOptions


@command(
    PruneOptions,
    examples="""
    imdh prune model.npz -k 12                  # rewrites model.npz
    imdh prune model.npz -k 12 -o twelve.npz
    imdh prune model.npz --table                # what each number of clusters would cost; writes nothing
    imdh prune model.npz -k 12 --json           # rewrites model.npz and tells the choice as JSON
    imdh prune model.npz --rename '1=Nordics,4=Alps'   # in reports; kept whatever the number of clusters
    imdh prune model.npz data.parquet           # count all rows under the tree, then choose again
    """,
)
def prune(o: PruneOptions, console: Console) -> None:
    """Choose the number of clusters of MODEL again.

    No data are needed. With DATA, moments and histograms are first counted exactly under the tree as
    it is. What is not asked for stays as the model was fitted. Nothing is written when nothing was
    asked to change, and with --table only where -o says.
    """
    from imdh_cli.model import load
    from imdh_cli.pipeline import prune as repruning

    check_data("prune", o.data, o.model)
    model = load(o.model)
    o.params.over(PruneParams()).check()
    params = o.params.over(model.params.prune)
    changes = bool(o.data) or params != model.params.prune or bool(o.rename)
    target = o.output or (o.model if changes and not o.table else None)
    force = o.out.force or o.output is None
    if target is not None:
        check_model_target(target, force=force, inputs=o.data)
    if o.data:
        model = _recounted(model, o, console)
    changed, chosen = repruning.reprune(model, params)
    changed = repruning.rename(changed, o.rename)
    if target is not None:
        write_model(changed, target, force=force)
    _show(o, changed, chosen)
    _report(changed, chosen, target, console, changes=changes)


def _report(model: Model, chosen: Pruning, target: str | None, console: Console, *, changes: bool) -> None:
    end = "; nothing written (-o FILE writes it)" if changes else ""
    if target is not None:
        end = f"; wrote {messages.written(target)}"
    headline, *why = messages.choice_lines(messages.choice_made(model, chosen))
    for line in (headline + end, *why):
        console.say(line)


def _recounted(model: Model, o: PruneOptions, console: Console) -> Model:
    from imdh_cli.features import bind_features

    reading = source_params(o.reading.source, console)
    messages.report_compiling(console, "standardise", "recount", "count_leaves")
    from imdh_cli.pipeline.recount import recount as recount_rows

    with opened(o.data, reading) as source:
        bind_features(source, model.spec)
        counted, tally = recount_rows(
            model,
            source,
            missing=o.reading.missing,
            threads=reading.threads,
            on_progress=console.on_progress(),
        )
        messages.report_reading(console, source, tally)
    return counted


def _show(o: PruneOptions, model: Model, chosen: Pruning) -> None:
    """The table or the choice, where stdout is to have it."""
    err = takes_stdout(o.output)
    if o.as_json:
        echo_json(_table(model, chosen) if o.table else model.metadata["choice"], err=err)
    elif o.table:
        _print_table(_table(model, chosen), err=err)


def _table(model: Model, chosen: Pruning) -> list[dict[str, Any]]:
    """One row for each K from the largest down: what there is, and the split removed to get below it.

    weight: what the split is worth by --weight. ss_gain: the sum of squares that it takes away.
    """
    from imdh_cli.core import pruning

    removed = pruning.removed_at(chosen.merge_order, model.counts, model.params.prune.min_size)
    rows = []
    for k in range(chosen.largest, 0, -1):
        split = int(removed[k - 1]) if k > 1 else None
        rows.append(
            {
                "k": k,
                "total_ss": float(chosen.total_ss[k - 1]),
                "removed_split": split,
                "weight": float(chosen.credit[k - 2] - chosen.credit[k - 1]) if split else None,
                "ss_gain": float(chosen.gains[split - 1]) if split else None,
                "valley_depth": float(chosen.depths[split - 1]) if split else None,
                "excess_mass": float(chosen.excess[split - 1]) if split else None,
                "votes": int(chosen.votes[k - 1]),
                "chosen": k == chosen.n_clusters,
            }
        )
    return rows


def _print_table(rows: list[dict[str, Any]], *, err: bool) -> None:
    """Tab-separated, a header first: for eyes, cut and awk."""
    names = list(rows[0])
    click.echo("\t".join(names), err=err)
    for row in rows:
        cells = []
        for name in names:
            value = row[name]
            if value is None:
                cells.append("")
            elif isinstance(value, bool):
                cells.append("*" if value else "")
            else:
                cells.append(f"{value:.6g}" if isinstance(value, float) else str(value))
        click.echo("\t".join(cells), err=err)
