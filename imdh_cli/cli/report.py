"""`imdh report`: what was found, for eyes or for programs."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from imdh_cli.cli import options
from imdh_cli.cli.help import ExamplesCommand
from imdh_cli.cli.show import Voice, echo_json, threads_asked

if TYPE_CHECKING:
    from imdh_cli.model import Model
    from imdh_cli.report.truth import Agreement


@click.command(
    cls=ExamplesCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
    imdh report model.npz                       # sizes, what marks each cluster out, the choice of K
    imdh report model.npz --tree                # the hierarchy
    imdh report model.npz --node 1              # one split: the density and the cut
    imdh report model.npz --json | jq .choice
    imdh report model.npz data.parquet --truth class
    """,
)
@click.argument("model", metavar="MODEL")
@options.data_argument("[DATA]")
@click.option("--json", "as_json", is_flag=True, help="All figures as JSON on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="One line per cluster and feature.")
@click.option("--tree", is_flag=True, help="The whole hierarchy.")
@click.option("--node", type=click.IntRange(min=1), help="One split, by its number (the root is 1).")
@click.option("--truth", metavar="COLUMN", help="Compare with the known classes in a column of DATA.")
@click.option("--min-size", type=click.IntRange(min=1), help="Describe no cluster or node of fewer rows.")
@options.missing_option
@options.reading_options
@options.output_options
def report(model: str, data: tuple[str, ...], **o: Any) -> None:
    """Show what MODEL found; with DATA, compare it with known classes."""
    with Voice(o) as voice:
        _report(model, data, o, voice)


def _report(path: str, data: tuple[str, ...], o: dict[str, Any], voice: Voice) -> None:
    from dataclasses import replace

    from imdh_cli.errors import UsageError
    from imdh_cli.model import load
    from imdh_cli.report.summary import csv_lines, summarise

    if o["truth"] and not data:
        raise UsageError("--truth needs DATA", f"imdh report {path} DATA --truth {o['truth']}")
    if data and not o["truth"]:
        raise UsageError("DATA were named, but nothing is to be done with them", "add --truth COLUMN")
    _check_one_view(o)
    model = load(path)
    summary = summarise(model, min_size=o["min_size"], name=path)
    if o["truth"]:
        summary = replace(summary, truth=_agreement(model, data, o, voice))
    if o["as_json"]:
        echo_json(summary.to_dict())
    elif o["as_csv"]:
        for line in csv_lines(summary):
            click.echo(line)
    else:
        from imdh_cli.report import terminal

        console = _console(o)
        if o["node"] is not None:
            terminal.render_node(summary, o["node"], console)
        else:
            terminal.render(summary, console, tree=o["tree"])


def _check_one_view(o: dict[str, Any]) -> None:
    """What stdout is to show can be one thing; JSON has the tree in it."""
    from imdh_cli.errors import UsageError

    views = {"--json": o["as_json"], "--csv": o["as_csv"], "--node": o["node"] is not None}
    views["--tree"] = o["tree"] and not o["as_json"]
    named = [name for name, asked in views.items() if asked]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} cannot be had at once", "run imdh report for each")


def _console(o: dict[str, Any]) -> Any:
    """A terminal as it is; anything else 80 columns (or COLUMNS) of plain text."""
    import os

    from rich.console import Console

    width = None
    if not sys.stdout.isatty():
        width = int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdigit() else 80
    return Console(no_color=o["no_color"] or None, width=width, highlight=False, soft_wrap=False)


def _agreement(model: Model, data: tuple[str, ...], o: dict[str, Any], voice: Voice) -> Agreement:
    """Label DATA and compare with the column of classes, chunk by chunk."""
    from imdh_cli.cli.fit import tell_compiling, tell_rows
    from imdh_cli.features import ready
    from imdh_cli.report.truth import Truth
    from imdh_cli.sources import open_source

    threads = threads_asked(o["threads"], voice)
    tell_compiling(voice)
    from imdh_cli import pipeline

    truth = Truth(o["truth"], model.n_clusters)

    class Counter:
        def write(self, batch: Any) -> None:
            truth.add(batch.column(1).to_numpy(), batch.column(0))

    params = pipeline.AssignParams(keep=(o["truth"],), name="\0cluster")
    with closing(open_source(data, options.source_params(o, threads))) as source:
        ready(source, model.spec)
        done = pipeline.assign(
            model,
            source,
            Counter(),
            params,
            missing=o["missing"],
            threads=threads,
            on_progress=voice.on_progress(),
        )
    voice.close()
    tell_rows(voice, done.tally)
    return truth.result()
