"""`imdh assign`: the second pass. Row i of the output is row i of the input."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import click

from imdh_cli.cli import options
from imdh_cli.cli.console import Console, echo_json, peak_memory_mb, plural, takes_stdout, threads_asked
from imdh_cli.cli.help import ExamplesCommand
from imdh_cli.cli.signals import finish_first

if TYPE_CHECKING:
    import pyarrow as pa

    from imdh_cli.model import Model

EXTRA = ("node", "leaf", "margin", "distance", "runner_up", "path")


class Extra(options.Names):
    """Some of EXTRA."""

    name = "A,B"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        names = super().convert(value, param, ctx)
        for name in names:
            if name not in EXTRA:
                self.fail(f"{name!r} is none of {', '.join(EXTRA)}", param, ctx)
        return tuple(dict.fromkeys(names))


@click.command(
    cls=ExamplesCommand,
    sections=options.READING,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
    imdh assign model.npz data.parquet -o labels.parquet --keep id
    imdh assign model.npz - < new.csv | head                  # CSV on stdout
    imdh assign model.npz data.csv --keep-all -o data_with_clusters.csv
    imdh assign model.npz data.csv --with node,margin -k 5 -o labels.csv
    imdh assign model.npz data.csv --with runner_up,margin --names -o labels.csv
    imdh assign model.npz data/ --keep-all --partition-by-cluster by_cluster
    """,
)
@click.argument("model", metavar="MODEL")
@options.data_argument()
@click.option(
    "-o",
    "--output",
    help="FILE.csv or .tsv (also .gz, .zst, .bz2), .parquet, .arrow or .feather; - is CSV on stdout. "
    "Default: -.",
)
@click.option("-k", "--clusters", type=options.Whole(), help="Cut at N, without changing MODEL.")
@click.option(
    "--keep",
    type=options.Names(),
    default=(),
    help="Columns to carry along. Those of a CSV are text, byte for byte, in any output.",
)
@click.option("--keep-all", is_flag=True, help="Carry all columns along.")
@click.option(
    "--id", "ids", type=options.Names(), default=(), help="As --keep; those of the fit are kept anyway."
)
@click.option(
    "--with",
    "extra",
    type=Extra(),
    default=(),
    help="More about each row: node, leaf (tree nodes), margin (from the nearest cut on its path, in "
    "projected sd), distance (to its cluster's mean, in z), runner_up (the cluster beyond the nearest cut), "
    "path (the nodes passed, 1/3/6).",
)
@click.option("--names", is_flag=True, help="Also the name that imdh prune --rename gave to the cluster.")
@click.option("--partition-by-cluster", "folder", metavar="DIR", help="One Parquet folder per cluster.")
@click.option("--name", default="cluster", show_default=True, help="Of the label column.")
@options.missing_option("as MODEL was fitted")
@click.option(
    "--json", "as_json", is_flag=True, help="The summary as JSON, on stderr if labels go to stdout."
)
@options.reading_options
@options.output_options
@click.pass_context
def assign(context: click.Context, /, model: str, data: tuple[str, ...], **o: Any) -> None:
    """Label every row of DATA by MODEL.

    Labels are 1 to K from left to right in the tree; -1 is a row that cannot be labelled (a missing
    cell, or a row that could not be read). The clusters are the model's, whatever the data.
    """
    locations = options.locations(data, context)
    with Console(o) as console:
        _assign(model, locations, o, console)


def _assign(path: str, locations: tuple[str, ...], o: dict[str, Any], console: Console) -> None:
    from imdh_cli.atomic import check_target
    from imdh_cli.cli.fit import report_compiling, report_rows
    from imdh_cli.cli.opening import open_source
    from imdh_cli.features import bind_features
    from imdh_cli.model import load

    started = time.perf_counter()
    output = o["output"] or (None if o["folder"] else "-")
    options.check_data("assign", locations, path)
    model = load(path)
    if output is not None and output != "-":
        check_target(output, force=o["force"], inputs=[path, *locations])
    threads = threads_asked(o["threads"], console)
    with ExitStack() as stack:
        source = stack.enter_context(closing(open_source(locations, options.source_params(o, threads))))
        bind_features(source, model.spec)
        keep = _kept(model, source.schema.names, o)
        if keep and not source.typed:
            _report_text(console, output, o)
        needed = ("second_choice",) if "runner_up" in o["extra"] else ()
        report_compiling(console, "standardise", "descend", *needed)
        from imdh_cli.pipeline.assign import AssignParams, Labeller, label_schema
        from imdh_cli.pipeline.assign import assign as assign_rows

        params = AssignParams(
            clusters=o["clusters"], keep=keep, extra=o["extra"], name=o["name"], names=o["names"]
        )
        _check_names(params)
        labeller = Labeller(model, params.clusters)  # refuses too many before stdout gets a header
        if params.names and not any(labeller.names):
            console.note(f"no cluster has a name; imdh prune {path} --rename '1=NAME' gives it one")
        schema = label_schema(params, source.kept_schema(keep))
        sink = stack.enter_context(_sinks(output, schema, o, [path, *locations]))
        done = assign_rows(
            model,
            source,
            sink,
            params,
            missing=o["missing"],
            threads=threads,
            on_progress=console.on_progress(),
        )
        notes = list(source.notes)
        finish_first(output)
    console.close()
    for text in notes:
        console.note(text)
    report_rows(console, done.tally)
    for column, n in done.tally.unseen.items():
        console.note(f'{plural(n, "cell")} of "{column}" hold a text that the model has not seen')
    seconds = time.perf_counter() - started
    if o["as_json"]:
        summary = {
            "rows": done.tally.rows,
            "labelled": done.tally.used,
            "skipped": done.tally.skipped,
            "bad": done.tally.bad,
            "missing": done.tally.missing,
            "infinite": done.tally.infinite,
            "unseen": done.tally.unseen,
            "cluster_sizes": [int(n) for n in done.sizes[1:]],
            "output": output,
            "folder": o["folder"],
            "seconds": round(seconds, 3),
            "rows_per_second": round(done.tally.rows / seconds),
            "peak_memory_mb": round(peak_memory_mb(), 1),
        }
        echo_json(summary, err=takes_stdout(output))
    else:
        where = " and ".join(t for t in (output, o["folder"]) if t and t != "-")
        console.say(
            f"{plural(done.tally.used, 'row')} labelled of {done.tally.rows:,} in {seconds:.1f} s"
            + (f"; wrote {where}" if where else "")
        )


def _kept(model: Model, names: Sequence[str], o: dict[str, Any]) -> tuple[str, ...]:
    """Columns to carry: ids of the fit that are there, --id, --keep; or all of them."""
    ids = [name for name in model.metadata.get("id_columns", []) if name in names]
    rest = names if o["keep_all"] else o["keep"]
    return tuple(dict.fromkeys([*ids, *o["ids"], *rest]))


def _report_text(console: Console, output: str | None, o: dict[str, Any]) -> None:
    """Formats with types get the kept columns of a CSV as text, which is not what everybody expects."""
    typed = [o["folder"]] if o["folder"] is not None else []
    if output is not None and output.lower().endswith((".parquet", ".arrow", ".feather")):
        typed.insert(0, output)
    if typed:
        console.note(f"kept columns of a CSV are text in {' and '.join(typed)}, byte for byte as read")


def _check_names(params: Any) -> None:
    from imdh_cli.errors import UsageError

    if not params.name:
        raise UsageError("--name: the label column has an empty name")
    if len(params.columns) <= len(params.extra) + params.names:
        raise UsageError(f"--name {params.name}: --with writes a column of this name")
    for name in params.columns:
        if name in params.keep:
            raise UsageError(
                f'the input has a column "{name}", too, which is to be kept',
                f"name the label column otherwise: --name {name}_found"
                if name == params.name
                else "leave it out of --keep",
            )


def _sinks(output: str | None, schema: pa.Schema, o: dict[str, Any], inputs: list[str]) -> Any:
    from imdh_cli.sinks import open_partitions, open_sink
    from imdh_cli.sinks.tee import TeeSink

    sinks = []
    if output is not None:
        sinks.append(open_sink(output, schema, force=o["force"], inputs=inputs))
    if o["folder"] is not None:
        sinks.append(open_partitions(o["folder"], schema, o["name"], force=o["force"], inputs=inputs))
    return sinks[0] if len(sinks) == 1 else TeeSink(sinks)
