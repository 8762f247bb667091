"""`imdh fit`: learn the tree, choose the clusters, write the model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from imdh_cli.cli import checkpoints, messages, update
from imdh_cli.cli.checkpoints import CheckpointOptions
from imdh_cli.cli.command import argument, command
from imdh_cli.cli.console import Console, OutputOptions
from imdh_cli.cli.inputs import locations_of, opened, source_params
from imdh_cli.cli.outputs import check_model_target, echo_json, takes_stdout, write_model
from imdh_cli.option import Given, option
from imdh_cli.params import PAPER_PRESET, FeatureParams, FitParams, SourceParams
from imdh_cli.runtime import peak_memory_mb

if TYPE_CHECKING:
    from imdh_cli.features import Selection
    from imdh_cli.model import Model
    from imdh_cli.pipeline.checkpoint import Checkpoint
    from imdh_cli.pipeline.fit import Fit
    from imdh_cli.sources import Source


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    data: tuple[str, ...] = argument("DATA...")
    output: str = option("model.npz", "The model file; - is stdout.", "-o", "--output")
    features: Given[FeatureParams]
    preset: Literal["default", "paper"] = option(
        "default",
        "paper: the method as first released; an option given beside it wins.",
        section=FitParams.SECTION,
    )
    params: Given[FitParams]
    update: str | None = option(
        None,
        "Go on learning from MODEL with DATA; its features and learning parameters are kept. Writes to "
        "-o, by default model.npz; -o MODEL -f replaces MODEL.",
        metavar="MODEL",
    )
    run: CheckpointOptions
    as_json: bool = option(False, "The summary as JSON on stdout.", "--json")
    dry_run: bool = option(False, "Print the plan and stop.", "-n", "--dry-run")
    source: Given[SourceParams]
    out: OutputOptions


@command(
    FitOptions,
    examples="""
    imdh fit data.parquet -o model.npz
    imdh fit 'logs/2024-*.csv' -x day,user --id user -o model.npz
    imdh fit table.csv -c height,width,weight -k 5 -o five.npz
    zcat big.csv.gz | imdh fit - -o model.npz --json > summary.json
    imdh fit data/ -o model.npz --dry-run          # what would be read, used and left out
    """,
)
def fit(o: FitOptions, console: Console) -> None:
    """Learn clusters in one pass over DATA and write the model.

    DATA: files, folders, quoted globs, `-` for stdin, addresses (https:, s3:, gs:, hdfs:); CSV and JSON
    lines, compressed (gzip, zstd, bzip2) or not, Parquet, Arrow IPC, ORC, NumPy matrices (.npy). Where none
    are named, stdin is read unless it is a terminal.

    Features are the columns of numbers: whole (beyond 2^53 rounded, with a note), floating, decimal, and
    true and false as 1 and 0. Left out, with a note, are text (see --categorical), dates and times, nested
    columns, columns without a value, and what looks like an identifier (whole numbers that only rise or only
    fall) unless -c names it.

    A column of vectors (lists, tensors, or text that is a JSON array) makes the features embedding[0],
    embedding[1] and so on where no other column is a number, or with -c embedding or -c 'embedding[0:64]'.
    A list of another length is a bad row. Fields within structs are named with a point: -c location.lat.
    """
    started = time.perf_counter()
    job = _job(o, console)
    with opened(job.locations, job.reading) as source:
        selection = _selection(o, job, source, console)
        if o.dry_run:
            from imdh_cli.cli.plan import show_plan

            show_plan(source, selection, job.params, job.reading.threads, as_json=o.as_json)
            return
        checkpoint = _checkpoint(o, job, selection)
        result = _learn(o, job, source, selection, checkpoint, console)
        messages.report_reading(console, source, result.tally)
    write_model(result.model, o.output, force=job.may_replace)
    if checkpoint is not None:
        checkpoint.remove()
    _report(o, job, result, time.perf_counter() - started, console)


@dataclass(frozen=True)
class _Job:
    """What is to be done, as far as it is known before anything is read."""

    locations: tuple[str, ...]
    reading: SourceParams
    params: FitParams
    preset: str
    old: Model | None  # to go on from
    may_replace: bool


def _job(o: FitOptions, console: Console) -> _Job:
    """Refuse now what contradicts itself, the model to go on from, or the files that are there."""
    locations = locations_of("fit", o.data, console)
    if o.update is None:
        old, preset = None, o.preset
        params = o.params.over(PAPER_PRESET if preset == "paper" else FitParams())
    else:
        from imdh_cli.model import load

        old = load(o.update)
        params, preset = update.params_of_update(o.params, o.preset, old), old.metadata["preset"]
    o.params.over(FitParams()).prune.check()
    params.check()
    may_replace = o.out.force or checkpoints.went_on(o.run, o.output)
    if not o.dry_run:
        check_model_target(o.output, force=may_replace, inputs=locations)
    return _Job(locations, source_params(o.source, console), params, preset, old, may_replace)


def _selection(o: FitOptions, job: _Job, source: Source, console: Console) -> Selection:
    """The features, and what there is to say before the rows are read."""
    from imdh_cli.features import select_features

    asked = o.features.over(FeatureParams())
    if job.old is None:
        selection = select_features(source, asked)
    else:
        selection = update.selection_of_update(o.features, job.old, source)
    messages.report_selection(console, source, selection)
    if asked.columns is None and job.old is None:
        messages.report_labels(console, selection)
    checkpoints.report_stale(console, o.run, o.output, dry_run=o.dry_run)
    return selection


def _checkpoint(o: FitOptions, job: _Job, selection: Selection) -> Checkpoint | None:
    """The checkpoint of this run, where one is asked for or gone on from."""
    return checkpoints.open_checkpoint(
        o.run,
        o.output,
        {
            "parameters": job.params.to_dict(),
            "features": selection.spec.to_dict(),
            "reading options": checkpoints.reading_identity(job.reading),
            "inputs": [checkpoints.input_identity(location) for location in job.locations],
            "model to go on from": checkpoints.input_identity(o.update) if o.update else None,
        },
    )


def _learn(
    o: FitOptions,
    job: _Job,
    source: Source,
    selection: Selection,
    checkpoint: Checkpoint | None,
    console: Console,
) -> Fit:
    if not source.rereadable:
        messages.report_keeping(console, job.params)
    messages.report_compiling(console, "standardise", "learn", "learn_leaves", "count_leaves")
    from imdh_cli.pipeline.fit import fit as fit_rows

    if checkpoint is not None:
        checkpoints.end_with(checkpoint)
        checkpoints.report_found(console, checkpoint, o.run)
    return fit_rows(
        source,
        selection,
        job.params,
        threads=job.reading.threads,
        preset=job.preset,
        on_progress=console.on_progress(),
        checkpoint=checkpoint,
        update=job.old,
    )


def _report(o: FitOptions, job: _Job, result: Fit, seconds: float, console: Console) -> None:
    """What became of the columns and of the clusters: on stdout as JSON, or on stderr."""
    messages.report_drift(console, result.drifting)
    messages.report_suspects(console, result.model)
    messages.report_tails(console, result.model)
    messages.report_copies(console, result.model)
    messages.report_unequal(console, result.unequal)
    messages.report_columns(console, result)
    changes = None
    if job.old is not None:
        from imdh_cli.pipeline.prune import cluster_changes

        changes = cluster_changes(job.old, result.model)
    if o.as_json:
        summary = _as_dict(o, result, seconds) | ({} if changes is None else {"old_clusters": changes})
        echo_json(summary, err=takes_stdout(o.output))
        return
    for line in messages.fit_lines(result, o.output, seconds):
        console.say(line)
    console.detail(messages.busy_line(result.busy))
    for line in [] if changes is None else messages.change_lines(changes):
        console.say(line)


def _as_dict(o: FitOptions, result: Fit, seconds: float) -> dict[str, Any]:
    t, model = result.tally, result.model
    return {
        "model": o.output,
        "rows": model.metadata["rows"],
        "parts_read": result.parts_read,
        "missing": t.missing,
        "infinite": t.infinite,
        "unseen": t.unseen,
        "features": model.feature_names,
        "left_out_columns": model.metadata["left_out_columns"],
        "passes": result.passes,
        "recounted": result.recounted,
        "leaves_in_use": result.pruning.largest,
        "choice": model.metadata["choice"],
        "cluster_sizes": model.cluster_sizes(),
        "drifting": result.drifting,
        "suspects": model.metadata.get("suspects", []),
        "notations": model.metadata.get("notations", []),
        "unequal": result.unequal,
        "far_cells": model.metadata.get("tails", []),
        "seconds": round(seconds, 3),
        "rows_per_second": round(messages.rows_met(result) / seconds),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }
