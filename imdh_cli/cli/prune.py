"""`imdh prune`: another number of clusters, without data; with data, counted exactly first."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from imdh_cli.cli import options
from imdh_cli.cli.console import Console, echo_json, takes_stdout, threads_asked
from imdh_cli.cli.help import ExamplesCommand

if TYPE_CHECKING:
    from imdh_cli.core.pruning import Pruning
    from imdh_cli.model import Model


@click.command(
    cls=ExamplesCommand,
    sections=options.READING,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
    imdh prune model.npz -k 12                  # rewrites model.npz
    imdh prune model.npz -k 12 -o twelve.npz
    imdh prune model.npz --table                # what each number of clusters would cost; writes nothing
    imdh prune model.npz -k 12 --json           # rewrites model.npz and tells the choice as JSON
    imdh prune model.npz --rename '1=Nordics,4=Alps'   # in reports; kept whatever the number of clusters
    imdh prune model.npz data.parquet           # count all rows under the tree, then choose again
    """,
)
@click.argument("model", metavar="MODEL")
@options.data_argument("[DATA]")
@options.pruning_options
@click.option(
    "--rename",
    type=options.Names(),
    default=(),
    metavar="1=NAME,2=NAME",
    help="Name clusters, as numbered after this pruning; their tree nodes keep the names. 1= takes one away.",
)
@click.option(
    "-o",
    "--output",
    help="Where the model goes; - is stdout. Default: MODEL, replaced as a whole; with --table: nowhere.",
)
@click.option(
    "--table",
    is_flag=True,
    help="One line for each K: total sum of squares, and the split removed to get there. "
    "It only shows: nothing is written without -o.",
)
@click.option("--json", "as_json", is_flag=True, help="The choice (with --table: the table) as JSON.")
@options.missing_option("as MODEL was fitted")
@options.reading_options
@options.output_options
def prune(model: str, data: tuple[str, ...], **o: Any) -> None:
    """Choose the number of clusters of MODEL again.

    No data are needed. With DATA, moments and histograms are first counted exactly under the tree as
    it is. What is not asked for stays as the model was fitted. Nothing is written when nothing was
    asked to change, and with --table only where -o says.
    """
    with Console(o) as console:
        _prune(model, data, o, console)


def _prune(path: str, data: tuple[str, ...], o: dict[str, Any], console: Console) -> None:
    from imdh_cli.model import load
    from imdh_cli.pipeline import prune as repruning

    options.check_data("prune", data, path)
    model = load(path)
    params = options.prune_params(o, model.params.prune)
    changes = bool(data) or params != model.params.prune or bool(o["rename"])
    writes = o["output"] is not None or (changes and not o["table"])
    target = o["output"] or path
    if writes:
        from imdh_cli.cli.fit import check_model_target

        check_model_target(target, force=o["force"] or o["output"] is None, inputs=data)
    if data:
        model = _recounted(model, data, o, console)
    changed, chosen = repruning.reprune(model, params)
    changed = repruning.rename(changed, o["rename"])
    if writes:
        from imdh_cli.cli.fit import write_model

        write_model(changed, target, force=o["force"] or o["output"] is None)
    if o["as_json"]:
        shown = _table(changed, chosen) if o["table"] else changed.metadata["choice"]
        echo_json(shown, err=takes_stdout(o["output"]))
    elif o["table"]:
        _print_table(_table(changed, chosen), err=takes_stdout(o["output"]))
    from imdh_cli.cli.fit import choice_in_words

    written = "standard output" if takes_stdout(target) else target
    end = f"; wrote {written}" if writes else "; nothing written (-o FILE writes it)" if changes else ""
    console.say(choice_in_words(chosen, params.clusters) + end)


def _recounted(model: Model, data: tuple[str, ...], o: dict[str, Any], console: Console) -> Model:
    from imdh_cli.cli.fit import report_compiling, report_rows
    from imdh_cli.cli.opening import open_source
    from imdh_cli.features import bind_features

    threads = threads_asked(o["threads"], console)
    report_compiling(console, "standardise", "recount", "count_leaves")
    from imdh_cli.pipeline.recount import recount as recount_rows

    with closing(open_source(data, options.source_params(o, threads))) as source:
        bind_features(source, model.spec)
        counted, tally = recount_rows(
            model, source, missing=o["missing"], threads=threads, on_progress=console.on_progress()
        )
        for text in source.notes:
            console.note(text)
    console.close()
    report_rows(console, tally)
    return counted


def _table(model: Model, chosen: Pruning) -> list[dict[str, Any]]:
    """One row for each K from the largest down: what there is, and the split removed to get below it."""
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
                "weight": float(chosen.gains[split - 1]) if split else None,
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
