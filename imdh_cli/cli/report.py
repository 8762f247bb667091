"""`imdh report`: what was found, for eyes or for programs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn

import click

from imdh_cli.cli import options
from imdh_cli.cli.console import Console, echo_json, threads_asked
from imdh_cli.cli.help import ExamplesCommand

if TYPE_CHECKING:
    from imdh_cli.report.figures import Summary
    from imdh_cli.report.scatter import Scatter

KINDS = ("tree", "node", "curve", "profiles")
# Options that change no figure: the page does not repeat them.
UNSAID = {"threads", "batch_rows", "force", "quiet", "verbose", "debug", "no_progress", "no_color"}


def _print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from imdh_cli.report.figures import schema

        click.echo(schema(), nl=False)
        context.exit()


@click.command(
    cls=ExamplesCommand,
    sections=options.READING,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
    imdh report model.npz                       # sizes, what marks each cluster out, the choice of K
    imdh report model.npz --tree                # the hierarchy
    imdh report model.npz --node 1              # one split: the density and the cut
    imdh report model.npz --html page.html      # all of it, as one file for a browser
    imdh report model.npz --plot tree.pdf       # for a paper; also --kind curve, --kind profiles
    imdh report model.npz data.csv --plot node.png --node 1   # one split, with a sample of rows
    imdh report model.npz --json | jq .choice
    imdh report model.npz data.parquet --truth class
    """,
)
@click.argument("model", metavar="MODEL")
@options.data_argument("[DATA]")
@click.option("--json", "as_json", is_flag=True, help="All figures as JSON on stdout.")
@click.option("--csv", "as_csv", is_flag=True, help="One line per cluster and feature.")
@click.option("--tree", is_flag=True, help="The whole hierarchy.")
@click.option(
    "--node",
    type=options.Whole(),
    metavar="I",
    help="One split, by its number (the root is 1): shown, drawn by --plot, or added to --json.",
)
@click.option(
    "--html",
    metavar="FILE",
    help="One page for a browser. With DATA it also shows a random sample of the rows at each split.",
)
@click.option("--plot", metavar="FILE", help="A picture (.png, .svg, .pdf) of the tree, or of --node.")
@click.option("--kind", type=click.Choice(KINDS), help="What --plot draws.")
@click.option("--truth", metavar="COLUMN", help="Compare with the known classes in a column of DATA.")
@click.option("--min-size", type=options.Whole(), help="Describe no cluster or node of fewer rows.")
@click.option(
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of --json, and end.",
)
@options.missing_option("as MODEL was fitted")
@options.reading_options
@options.output_options
@click.pass_context
def report(context: click.Context, /, model: str, data: tuple[str, ...], **o: Any) -> None:
    """Show what MODEL found; with DATA, compare it with known classes or show a sample of rows.

    Without --html and --plot the report goes to stdout.
    """
    with Console(o) as console:
        _report(model, data, o, console, _command(context))


def _report(path: str, data: tuple[str, ...], o: dict[str, Any], console: Console, command: str) -> None:
    from imdh_cli.atomic import write_bytes
    from imdh_cli.model import load
    from imdh_cli.report.summary import summarise
    from imdh_cli.report.words import printable

    options.check_data("report", data, path)
    kind = _drawn(o)
    views = _views(o, kind)
    _check(path, data, o, kind, views)
    summary = summarise(load(path), min_size=o["min_size"], name=printable(_base(path)))
    _check_outputs(summary, [path, *data], o, kind)
    samples: Mapping[int, Scatter] = {}
    if data:
        summary, samples = _read(summary, data, o, kind, console)
    files = _files(summary, samples, o, kind, command)  # all are made before the first is written
    for name, content in files.items():
        if name == "-":
            click.echo(content, nl=False)
        else:
            write_bytes(name, content, force=o["force"])
    written = [name for name in files if name != "-"]
    if written:
        console.say(f"wrote {' and '.join(written)}")
    if views or not files:
        _print(summary, o, views)


def _drawn(o: dict[str, Any]) -> str | None:
    """What --plot draws."""
    if o["plot"] is None:
        return None
    return o["kind"] or ("tree" if o["node"] is None else "node")


def _views(o: dict[str, Any], kind: str | None) -> list[str]:
    """What stdout is to show, by the options that say so; JSON has the tree and the node in it."""
    if o["as_json"]:
        return ["--json", *(["--csv"] if o["as_csv"] else [])]
    views = {"--csv": o["as_csv"], "--tree": o["tree"], "--node": o["node"] is not None and kind != "node"}
    return [name for name, asked in views.items() if asked]


def _check(path: str, data: tuple[str, ...], o: dict[str, Any], kind: str | None, views: list[str]) -> None:
    """Refuse options that contradict each other, or of which nothing would be seen."""
    from imdh_cli.errors import UsageError

    stdout = [*views, *(["--html -"] if o["html"] == "-" else [])]
    if len(stdout) > 1:
        from imdh_cli.report.words import listing

        raise UsageError(f"{listing(stdout)} cannot be had at once", "run imdh report for each")
    if o["kind"] and not o["plot"]:
        raise UsageError("--kind says what --plot draws", f"add --plot {o['kind']}.png")
    if o["kind"] == "node" and o["node"] is None:
        raise UsageError("--kind node needs the number of a node", "add --node 1")
    if o["kind"] not in (None, "node") and "--node" in views:
        raise UsageError(
            f"--kind {o['kind']} is of the whole tree, not of a node", "leave out --kind or --node"
        )
    if o["truth"] and not data:
        raise UsageError("--truth needs DATA", f"imdh report {path} DATA --truth {o['truth']}")
    if o["truth"] and not (o["html"] or o["as_json"] or not (views or o["plot"])):
        raise UsageError(
            f"--truth is not shown by {views[0] if views else '--plot'}",
            "the report without other options shows it, and --json and --html do",
        )
    if data and not (o["truth"] or o["html"] or kind == "node"):
        raise UsageError(
            "DATA were named, but nothing is to be done with them",
            "add --truth COLUMN, --html FILE, or --plot FILE --node I",
        )


def _check_outputs(summary: Summary, inputs: list[str], o: dict[str, Any], kind: Any) -> None:
    """Refuse now what could not be shown or written once the data are read."""
    from imdh_cli.atomic import check_target
    from imdh_cli.errors import UsageError

    if o["node"] is not None:
        summary.split(o["node"])
    if kind is not None:
        from imdh_cli.report import plots

        plots.check(summary, o["plot"], kind, o["node"])
    files = [name for name in (o["html"], o["plot"]) if name is not None and name != "-"]
    for name in files:
        check_target(name, force=o["force"], inputs=inputs)
    if len({os.path.realpath(name) for name in files}) < len(files):
        raise UsageError(f"{files[0]} cannot be both the page and the picture", "choose another name")


def _read(
    summary: Summary, data: tuple[str, ...], o: dict[str, Any], kind: str | None, console: Console
) -> tuple[Summary, Mapping[int, Scatter]]:
    """Label DATA, once: to compare them with known classes, and for samples of rows at the splits."""
    from imdh_cli.cli.fit import report_compiling, report_rows
    from imdh_cli.cli.opening import open_source
    from imdh_cli.errors import DataError
    from imdh_cli.features import Tally, bind_features
    from imdh_cli.report.agreement import Truth
    from imdh_cli.report.scatter import Sampler

    model = summary.model
    assert model is not None
    threads = threads_asked(o["threads"], console)
    truth = Truth(o["truth"], model.n_clusters) if o["truth"] else None
    also = (o["node"],) if kind == "node" else ()
    sampler = Sampler(summary, also=also) if o["html"] or kind == "node" else None
    tally = Tally()
    with closing(open_source(data, options.source_params(o, threads))) as source:
        bind_features(source, model.spec)
        report_compiling(console, "standardise", "descend")
        from imdh_cli.pipeline.labelled import labelled as labelled_rows

        parts = labelled_rows(
            model,
            source,
            (o["truth"],) if truth else (),
            tally=tally,
            missing=o["missing"],
            on_progress=console.on_progress(),
        )
        for part in parts:
            if sampler is not None:
                sampler.add(part.X, part.leaf)
            if truth is not None and part.kept is not None:
                truth.add(part.cluster, part.kept.column(0))
        notes, name = list(source.notes), source.parts[0].name if source.parts else "the data"
    console.close()
    for text in notes:
        console.note(text)
    report_rows(console, tally)
    if not tally.used:
        why = f"none of its {tally.rows:,} rows can be used" if tally.rows else "no data rows"
        raise DataError(f"{name}: {why}", "use --missing mean" if tally.skipped else None)
    if truth is not None:
        summary = summary.with_truth(truth.result())
    return summary, sampler.scatters() if sampler is not None else {}


def _files(
    summary: Summary, samples: Mapping[int, Scatter], o: dict[str, Any], kind: Any, command: str
) -> dict[str, bytes]:
    """Name and content of the page and the picture, where they are asked for."""
    files = {}
    if o["html"] is not None:
        from imdh_cli.report import page

        files[o["html"]] = page.build(summary, samples, command=command).encode()
    if kind is not None:
        from imdh_cli.report import plots

        node = o["node"]
        format = plots.check(summary, o["plot"], kind, node)
        files[o["plot"]] = plots.draw(summary, format, kind, node, sample=samples.get(node))
    return files


def _print(summary: Summary, o: dict[str, Any], views: list[str]) -> None:
    """The view that was asked for, or the report, on stdout."""
    node = o["node"]
    if "--json" in views:
        figures = summary.to_dict(nodes=() if node is None else (node,))
        echo_json(figures)
    elif "--csv" in views:
        from imdh_cli.report.summary import csv_lines

        for line in csv_lines(summary):
            click.echo(line)
    else:
        from imdh_cli.report import terminal

        console = _console(o)
        if "--node" in views:
            terminal.render_node(summary, node, console)
        else:
            terminal.render(summary, console, tree=o["tree"])


def _console(o: dict[str, Any]) -> Any:
    """A terminal as wide as it is; anything else 80 columns of plain text; or COLUMNS, from 60 up."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> NoReturn:
            """Rich's own ends the program as failed; `main` knows that a reader may go away."""
            raise BrokenPipeError

    asked = os.environ.get("COLUMNS", "")
    width = (
        max(60, int(asked)) if asked.isascii() and asked.isdigit() and len(asked) < 6 and int(asked) else 0
    )
    if not width:
        with contextlib.suppress(OSError, ValueError):  # no terminal
            width = max(40, os.get_terminal_size(sys.stdout.fileno()).columns)
    return Piped(no_color=o["no_color"] or None, width=width or 80, highlight=False, soft_wrap=False)


def _command(context: click.Context) -> str:
    """The command line, files by their names alone: a page is handed on, and folders tell of people."""
    import shlex

    given = click.core.ParameterSource.COMMANDLINE
    words = ["imdh", "report"]
    for param in context.command.params:
        name = str(param.name)
        if context.get_parameter_source(name) is not given or name in UNSAID:
            continue
        value = context.params[name]
        values = [str(v) for v in (value if isinstance(value, tuple) else (value,))]
        if name in ("model", "data"):
            words += [_base(v) for v in values]
        elif isinstance(value, bool):
            words.append(param.opts[-1])
        else:
            for v in values:
                words += [param.opts[-1], _base(v) if name in ("html", "plot") else v]
    return shlex.join(words)


def _base(location: str) -> str:
    """The last part of a path or an address, without what a web address asks for."""
    if "://" in location:
        from urllib.parse import urlsplit

        location = urlsplit(location).path
    return location.rstrip("/").rpartition("/")[2] or "DATA"
