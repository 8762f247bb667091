"""`imdh assign`: the second pass. Row i of the output is row i of the input."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from imdh_cli.cli import messages
from imdh_cli.cli.command import argument, command
from imdh_cli.cli.console import Console, OutputOptions
from imdh_cli.cli.inputs import ReadingOptions, locations_of, opened, source_params
from imdh_cli.cli.outputs import echo_json, takes_stdout
from imdh_cli.cli.signals import finish_first
from imdh_cli.option import option
from imdh_cli.params import AssignParams
from imdh_cli.runtime import peak_memory_mb
from imdh_cli.words import count

if TYPE_CHECKING:
    import pyarrow as pa

    from imdh_cli.model import Model
    from imdh_cli.pipeline.assign import Assigned
    from imdh_cli.sources import Source


@dataclass(frozen=True, kw_only=True)
class AssignOptions:
    model: str = argument("MODEL")
    data: tuple[str, ...] = argument("DATA...")
    output: str | None = option(
        None,
        "FILE.csv or .tsv (also .gz, .zst, .bz2), .parquet, .arrow or .feather; - is CSV on stdout.",
        "-o",
        "--output",
        default="-",
    )
    params: AssignParams
    keep_all: bool = option(False, "Carry all columns along.")
    ids: tuple[str, ...] = option((), "As --keep; those of the fit are kept anyway.", "--id")
    folder: str | None = option(
        None, "One Parquet folder per cluster.", "--partition-by-cluster", metavar="DIR"
    )
    as_json: bool = option(False, "The summary as JSON, on stderr if labels go to stdout.", "--json")
    reading: ReadingOptions
    out: OutputOptions

    @property
    def target(self) -> str | None:
        """Where labels go, if not only into a folder."""
        return self.output or (None if self.folder else "-")


@command(
    AssignOptions,
    examples="""
    imdh assign model.npz data.parquet -o labels.parquet --keep id
    imdh assign model.npz - < new.csv | head                  # CSV on stdout
    imdh assign model.npz data.csv --keep-all -o data_with_clusters.csv
    imdh assign model.npz data.csv --with node,margin -k 5 -o labels.csv
    imdh assign model.npz data.csv --with runner_up,margin --names -o labels.csv
    imdh assign model.npz data/ --keep-all --partition-by-cluster by_cluster
    """,
)
def assign(o: AssignOptions, console: Console) -> None:
    """Label every row of DATA by MODEL.

    Labels are 1 to K from left to right in the tree; -1 is a row that cannot be labelled (a missing
    cell, or a row that could not be read). The clusters are the model's, whatever the data.

    Without DATA, and unless stdin is a terminal, stdin is read. A table of no rows gives labels of none; an
    input without a single byte, which may be a pipe that failed, ends with status 3.
    """
    from imdh_cli.atomic import check_target
    from imdh_cli.model import load

    started = time.perf_counter()
    locations = locations_of("assign", o.data, console, o.model)
    model = load(o.model)
    inputs = [o.model, *locations]
    if o.target is not None and o.target != "-":
        check_target(o.target, force=o.out.force, inputs=inputs)
    reading = source_params(o.reading.source, console)
    with opened(locations, reading) as source:
        done = _labelled(o, model, source, inputs, reading.threads, console)
        messages.report_reading(console, source, done.tally)
    _report(o, done, time.perf_counter() - started, console)


def _labelled(
    o: AssignOptions, model: Model, source: Source, inputs: list[str], threads: int, console: Console
) -> Assigned:
    """Every row of a source, labelled into the outputs."""
    from imdh_cli.features import bind_features

    bind_features(source, model.spec)
    params = replace(o.params, keep=_kept(model, source, o))
    if params.keep and not source.typed:
        _report_text(console, o)
    needed = ("second_choice",) if "runner_up" in params.extra else ()
    messages.report_compiling(console, "standardise", "descend", *needed)
    from imdh_cli.pipeline.assign import Labeller, label_schema
    from imdh_cli.pipeline.assign import assign as assign_rows

    params.check()
    labeller = Labeller(model, params.clusters)  # refuses too many before stdout gets a header
    if params.names and not any(labeller.names):
        console.note(f"no cluster has a name; imdh prune {o.model} --rename '1=NAME' gives it one")
    with ExitStack() as stack:
        sink = stack.enter_context(_sinks(o, label_schema(params, source.kept_schema(params.keep)), inputs))
        done = assign_rows(
            model,
            source,
            sink,
            params,
            missing=o.reading.missing,
            threads=threads,
            on_progress=console.on_progress(),
        )
        finish_first(o.target)
    return done


def _report(o: AssignOptions, done: Assigned, seconds: float, console: Console) -> None:
    t = done.tally
    if not o.as_json:
        where = " and ".join(name for name in (o.target, o.folder) if name and name != "-")
        end = f"; wrote {where}" if where else ""
        console.say(f"{count(t.used)} labelled of {t.rows:,} in {seconds:.1f} s{end}")
        return
    summary = {
        "rows": t.rows,
        "labelled": t.used,
        "skipped": t.skipped,
        "bad": t.bad,
        "missing": t.missing,
        "infinite": t.infinite,
        "unseen": t.unseen,
        "cluster_sizes": [int(n) for n in done.sizes[1:]],
        "drift": _drift(done),
        "output": o.target,
        "folder": o.folder,
        "seconds": round(seconds, 3),
        "rows_per_second": round(t.rows / seconds),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }
    echo_json(summary, err=takes_stdout(o.target))


def _drift(done: Assigned) -> dict[str, Any] | None:
    """The clusters' shares of the model's rows and of these, as `imdh report --drift --json` has them."""
    from imdh_cli.report.drift import compare_shares

    if not done.tally.used:
        return None
    clusters = compare_shares(done.then, done.sizes[1:], done.names)
    return {"psi": sum(c.psi for c in clusters), "clusters": [vars(c) for c in clusters]}


def _kept(model: Model, source: Source, o: AssignOptions) -> tuple[str, ...]:
    """Columns to carry: ids of the fit that are there, --id, --keep; or all of the input."""
    from imdh_cli.sources.base import as_spelled

    names = [name for name in source.schema.names if name not in source.derived]
    source.expose([*o.ids, *o.params.keep])
    ids = [name for name in model.metadata.get("id_columns", []) if name in names]
    rest = names if o.keep_all else o.params.keep
    return tuple(dict.fromkeys(as_spelled(name, names) for name in [*ids, *o.ids, *rest]))


def _report_text(console: Console, o: AssignOptions) -> None:
    """Formats with types get the kept columns of a CSV as text, which is not what everybody expects."""
    typed = [o.folder] if o.folder is not None else []
    if o.target is not None and o.target.lower().endswith((".parquet", ".arrow", ".feather")):
        typed.insert(0, o.target)
    if typed:
        console.note(f"kept columns of a CSV are text in {' and '.join(typed)}, byte for byte as read")


def _sinks(o: AssignOptions, schema: pa.Schema, inputs: list[str]) -> Any:
    from imdh_cli.sinks import open_partitions, open_sink
    from imdh_cli.sinks.tee import TeeSink

    sinks = []
    if o.target is not None:
        sinks.append(open_sink(o.target, schema, force=o.out.force, inputs=inputs))
    if o.folder is not None:
        sinks.append(open_partitions(o.folder, schema, o.params.name, force=o.out.force, inputs=inputs))
    return sinks[0] if len(sinks) == 1 else TeeSink(sinks)
