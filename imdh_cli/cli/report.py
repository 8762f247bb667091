"""`imdh report`: what was found, for eyes or for programs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from imdh_cli.cli.command import command
from imdh_cli.cli.console import Console
from imdh_cli.cli.inputs import check_data
from imdh_cli.cli.outputs import echo_json
from imdh_cli.cli.report_options import ReportOptions
from imdh_cli.errors import Drifted, UsageError
from imdh_cli.option import parameters
from imdh_cli.words import listing, printable

if TYPE_CHECKING:
    from imdh_cli.report.figures import Summary
    from imdh_cli.report.scatter import Scatter


def _print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        from imdh_cli.report.figures import schema

        click.echo(schema(), nl=False)
        context.exit()


SCHEMA = click.Option(
    ["--json-schema"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of --json, and end.",
)


@command(
    ReportOptions,
    also=[SCHEMA],
    examples="""
    imdh report model.npz                       # sizes, what marks each cluster out, the choice of K
    imdh report model.npz --tree                # the hierarchy
    imdh report model.npz --node 1              # one split: the density and the cut
    imdh report model.npz --html page.html      # all of it, as one file for a browser
    imdh report model.npz --plot tree.pdf       # for a paper; also --kind curve, --kind profiles
    imdh report model.npz data.csv --plot node.png --node 1   # one split, with a sample of rows
    imdh report model.npz --json | jq .choice
    imdh report model.npz data.parquet --truth class
    imdh report old.npz new.npz data.parquet    # which cluster became which
    imdh report model.npz data.parquet --stability   # would other rows give the same clusters?
    imdh report model.npz new.parquet --drift   # do the clusters still hold?
    imdh report model.npz new.parquet --drift --fail-above 0.25 > drift.txt   # status 5 if not
    """,
)
def report(o: ReportOptions, console: Console) -> None:
    """Show what MODEL found; with DATA, also of these rows: near cuts, moved, in known classes, a sample.

    Without --html and --plot the report goes to stdout.
    """
    from imdh_cli.model import load
    from imdh_cli.report.summary import summarise

    check_data("report", o.rows, o.model)
    _check(o)
    summary = summarise(load(o.model), min_size=o.min_size, name=printable(_base(o.model)))
    _check_outputs(summary, o)
    samples: Mapping[int, Scatter] = {}
    if o.rows:
        from imdh_cli.cli.survey import survey

        summary, samples = survey(summary, o, console)
    files = _files(summary, samples, o)  # all are made before the first is written
    _write(files, o, console)
    if o.views or not files:
        _print(summary, o)
    if summary.drift is not None and o.fail_above is not None and summary.drift.psi > o.fail_above:
        raise Drifted(f"{summary.drift.headline}: more than --fail-above {o.fail_above:g} allows")


def _check(o: ReportOptions) -> None:
    """Refuse options that contradict each other, or of which nothing would be seen."""
    views = o.views
    stdout = [*views, *(["--html -"] if o.html == "-" else [])]
    if len(stdout) > 1:
        raise UsageError(f"{listing(stdout)} cannot be had at once", "run imdh report for each")
    if o.kind and not o.plot:
        raise UsageError("--kind says what --plot draws", f"add --plot {o.kind}.png")
    if o.kind == "node" and o.node is None:
        raise UsageError("--kind node needs the number of a node", "add --node 1")
    if o.kind not in (None, "node") and "--node" in views:
        raise UsageError(f"--kind {o.kind} is of the whole tree, not of a node", "leave out --kind or --node")
    asked = {
        "A second model": o.other,
        "--truth": o.truth and f"--truth {o.truth}",
        "--drift": o.drift and "--drift",
        "--stability": o.stability and f"--stability {o.stability}",
    }
    for name, words in asked.items():
        if words and not o.rows:
            hint = (
                f"imdh report {o.model} {o.other} DATA" if o.other else f"imdh report {o.model} DATA {words}"
            )
            raise UsageError(f"{name} needs DATA", hint)
        listed = name == "--stability" and o.as_csv
        if words and not (o.html or o.as_json or listed or not (views or o.plot)):
            raise UsageError(
                f"{name} is not shown by {views[0] if views else '--plot'}",
                "the report without other options shows it, and --json and --html do",
            )
    if o.fail_above is not None and not o.drift:
        raise UsageError("--fail-above says how far the rows may have drifted", "add --drift")
    if o.rows and not (any(asked.values()) or o.html or o.as_json or o.drawn == "node") and (views or o.plot):
        raise UsageError(
            f"DATA were named, but nothing of them is shown by {views[0] if views else '--plot'}",
            "add --drift, --stability, --truth COLUMN, --html FILE, or --plot FILE --node I",
        )


def _check_outputs(summary: Summary, o: ReportOptions) -> None:
    """Refuse now what could not be shown or written once the data are read."""
    from imdh_cli.atomic import check_target

    if o.node is not None:
        summary.split(o.node)
    if o.plot is not None and o.drawn is not None:
        from imdh_cli.report import plots

        plots.check(summary, o.plot, o.drawn, o.node)
    files = [name for name in (o.html, o.plot) if name is not None and name != "-"]
    for name in files:
        check_target(name, force=o.out.force, inputs=[o.model, *o.data])
    if len({os.path.realpath(name) for name in files}) < len(files):
        raise UsageError(f"{files[0]} cannot be both the page and the picture", "choose another name")


def _files(summary: Summary, samples: Mapping[int, Scatter], o: ReportOptions) -> dict[str, bytes]:
    """Name and content of the page and the picture, where they are asked for."""
    files = {}
    if o.html is not None:
        from imdh_cli.report import page

        files[o.html] = page.build(summary, samples, command=_command()).encode()
    if o.plot is not None and o.drawn is not None:
        from imdh_cli.report import plots

        format = plots.check(summary, o.plot, o.drawn, o.node)
        sample = None if o.node is None else samples.get(o.node)
        files[o.plot] = plots.draw(summary, format, o.drawn, o.node, sample=sample)
    return files


def _write(files: Mapping[str, bytes], o: ReportOptions, console: Console) -> None:
    from imdh_cli.atomic import write_bytes

    for name, content in files.items():
        if name == "-":
            click.echo(content, nl=False)
        else:
            write_bytes(name, content, force=o.out.force)
    written = [name for name in files if name != "-"]
    if written:
        console.say(f"wrote {' and '.join(written)}")


def _print(summary: Summary, o: ReportOptions) -> None:
    """The view that was asked for, or the report, on stdout."""
    if "--json" in o.views:
        echo_json(summary.to_dict(nodes=() if o.node is None else (o.node,)))
    elif "--csv" in o.views:
        from imdh_cli.report.summary import csv_lines

        for line in csv_lines(summary):
            click.echo(line)
    else:
        from imdh_cli.report import terminal

        paper = _paper(o)
        if "--node" in o.views and o.node is not None:
            terminal.render_node(summary, o.node, paper)
        else:
            terminal.render(summary, paper, tree=o.tree)


def _paper(o: ReportOptions) -> Any:
    """A terminal as wide as it is; anything else 80 columns of plain text; or COLUMNS, from 60 up."""
    from rich.console import Console as RichConsole

    class Piped(RichConsole):
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
    return Piped(no_color=o.out.no_color or None, width=width or 80, highlight=False, soft_wrap=False)


def _command() -> str:
    """The command line, files by their names alone: a page is handed on, and folders tell of people."""
    import shlex

    context = click.get_current_context()
    unsaid = {p.name for p in parameters(ReportOptions) if p.option.neutral}  # they change no figure
    words = ["imdh", "report"]
    for param in context.command.params:
        name = str(param.name)
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name in unsaid:
            continue
        value = context.params[name]
        values = [str(v) for v in (value if isinstance(value, tuple) else (value,))]
        if isinstance(param, click.Argument):
            words += map(_base, values)
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
