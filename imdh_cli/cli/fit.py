"""`imdh fit`: learn the tree, choose the clusters, write the model."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from imdh_cli.cli import checkpoints, messages, update
from imdh_cli.cli.checkpoints import CheckpointOptions
from imdh_cli.cli.command import argument, command
from imdh_cli.cli.console import Console, OutputOptions
from imdh_cli.cli.inputs import check_data, locations_of, opened, source_params
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
    lines, compressed (gzip, zstd, bzip2) or not, Parquet, Arrow IPC, ORC, NumPy matrices (.npy).

    Features are the columns of numbers: whole (beyond 2^53 rounded, with a note), floating, decimal, and
    true and false as 1 and 0. Left out, with a note, are text (see --categorical), dates and times, nested
    columns, columns without a value, and what looks like an identifier (whole numbers that only rise or only
    fall) unless -c names it.

    A column of vectors (lists, tensors, or text that is a JSON array) makes the features embedding[0],
    embedding[1] and so on where no other column is a number, or with -c embedding or -c 'embedding[0:64]'.
    A list of another length is a bad row. Fields within structs are named with a point: -c location.lat.
    """
    started = time.perf_counter()
    locations = locations_of(o.data, console)
    check_data("fit", locations)
    old = _model_to_update(o)
    params = _params(o, old)
    may_replace = o.out.force or checkpoints.went_on(o.run, o.output)
    if not o.dry_run:
        check_model_target(o.output, force=may_replace, inputs=locations)
    reading = source_params(o.source, console)
    with opened(locations, reading) as source:
        selection = _selection(o, old, source)
        checkpoint = _checkpoint(o, params, selection, locations, reading)
        messages.report_selection(console, source, selection)
        if o.features.over(FeatureParams()).columns is None and old is None:
            messages.report_labels(console, selection)
        checkpoints.report_stale(console, o.run, o.output, dry_run=o.dry_run)
        if o.dry_run:
            from imdh_cli.cli.plan import show_plan

            show_plan(source, selection, params, reading.threads, as_json=o.as_json)
            return
        result = _learn(o, source, selection, params, reading.threads, checkpoint, old, console)
        for text in source.notes:
            console.note(text)
    console.close()
    write_model(result.model, o.output, force=may_replace)
    if checkpoint is not None:
        checkpoint.remove()
    _report(o, result, old, time.perf_counter() - started, console)


def _model_to_update(o: FitOptions) -> Model | None:
    if o.update is None:
        return None
    from imdh_cli.model import load

    return load(o.update)


def _params(o: FitOptions, old: Model | None) -> FitParams:
    """What was asked for, over the preset or what the model was fitted with.

    Raises
    ------
    UsageError
        For what contradicts itself, the model, or any tree of this depth: before anything is read.
    """
    if old is None:
        params = o.params.over(PAPER_PRESET if o.preset == "paper" else FitParams())
    else:
        params = update.params_of_update(o.params, o.preset, old)
    o.params.over(FitParams()).prune.check()
    params.check()
    return params


def _selection(o: FitOptions, old: Model | None, source: Source) -> Selection:
    if old is not None:
        return update.selection_of_update(o.features, old, source)
    from imdh_cli.features import select_features

    return select_features(source, o.features.over(FeatureParams()))


def _checkpoint(
    o: FitOptions,
    params: FitParams,
    selection: Selection,
    locations: tuple[str, ...],
    reading: SourceParams,
) -> Checkpoint | None:
    """The checkpoint of this run, where one is asked for or gone on from."""
    if o.dry_run:
        return None
    return checkpoints.open_checkpoint(
        o.run,
        o.output,
        {
            "parameters": params.to_dict(),
            "features": selection.spec.to_dict(),
            "reading options": checkpoints.reading_identity(reading),
            "inputs": [checkpoints.input_identity(location) for location in locations],
            "model to go on from": checkpoints.input_identity(o.update) if o.update else None,
        },
    )


def _learn(
    o: FitOptions,
    source: Source,
    selection: Selection,
    params: FitParams,
    threads: int,
    checkpoint: Checkpoint | None,
    old: Model | None,
    console: Console,
) -> Fit:
    if not source.rereadable:
        messages.report_keeping(console, params)
    messages.report_compiling(console, "standardise", "learn", "learn_leaves", "count_leaves")
    from imdh_cli.pipeline.fit import fit as fit_rows

    if checkpoint is not None:
        checkpoints.end_with(checkpoint)
        checkpoints.report_found(console, checkpoint, o.run)
    return fit_rows(
        source,
        selection,
        params,
        threads=threads,
        preset=o.preset if old is None else old.metadata["preset"],
        on_progress=console.on_progress(),
        checkpoint=checkpoint,
        update=old,
    )


def _report(o: FitOptions, result: Fit, old: Model | None, seconds: float, console: Console) -> None:
    """What became of the rows and of the clusters: on stdout as JSON, or on stderr."""
    messages.report_rows(console, result.tally)
    messages.report_drift(console, result.drifting)
    messages.report_constant(console, result.model)
    changes = None
    if old is not None:
        from imdh_cli.pipeline.prune import cluster_changes

        changes = cluster_changes(old, result.model)
    if o.as_json:
        summary = _as_dict(o, result, seconds) | ({} if changes is None else {"old_clusters": changes})
        echo_json(summary, err=takes_stdout(o.output))
        return
    for line in messages.fit_lines(result, o.output, seconds):
        console.say(line)
    for line in [] if changes is None else messages.change_lines(changes):
        console.say(line)


def _as_dict(o: FitOptions, result: Fit, seconds: float) -> dict[str, Any]:
    t, model = result.tally, result.model
    return {
        "model": o.output,
        "rows": model.metadata["rows"],
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
        "seconds": round(seconds, 3),
        "rows_per_second": round(messages.rows_met(result) / seconds),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }
