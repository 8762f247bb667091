"""`imdh fit`: learn the tree, choose the clusters, write the model."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from imdh_cli.cli import options
from imdh_cli.cli import resume as resuming
from imdh_cli.cli.console import (
    Console,
    echo_json,
    peak_memory_mb,
    plural,
    speed_in_words,
    takes_stdout,
    threads_asked,
)
from imdh_cli.cli.help import ExamplesCommand
from imdh_cli.cli.signals import finish_first
from imdh_cli.params import MAX_DEPTH, PAPER_PRESET, FitParams
from imdh_cli.report.words import listing

if TYPE_CHECKING:
    from imdh_cli.core.pruning import Pruning
    from imdh_cli.features import Selection, Tally
    from imdh_cli.model import Model
    from imdh_cli.pipeline.fit import Fit

LOUD = 0.05  # a share of rows left out from which the note is a warning


@click.command(
    cls=ExamplesCommand,
    sections={
        "Columns": "--columns --exclude --id --categorical",
        "Number of clusters": "--clusters --min-size --max-clusters --weight --elbow",
        "Method": "--depth --preset --passes --recount --shuffle --buffer-rows --seed --scale --alpha "
        "--penalty --bandwidth --bandwidth-decay --learning-decay --rate --clamp --step --reseat",
        **options.READING,
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    examples="""
    imdh fit data.parquet -o model.npz
    imdh fit 'logs/2024-*.csv' -x day,user --id user -o model.npz
    imdh fit table.csv -c height,width,weight -k 5 -o five.npz
    zcat big.csv.gz | imdh fit - -o model.npz --json > summary.json
    imdh fit data/ -o model.npz --dry-run          # what would be read, used and left out
    """,
)
@options.data_argument()
@click.option("-o", "--output", default="model.npz", show_default=True, help="The model file; - is stdout.")
@options.column_options
@options.missing_option("skip; with --update, as MODEL was fitted")
@options.pruning_options
@click.option(
    "--depth",
    type=click.IntRange(1, MAX_DEPTH),
    help="Split levels: up to 2^depth leaves. Default: 8.",
)
@click.option(
    "--preset",
    type=click.Choice(["default", "paper"]),
    default="default",
    show_default=True,
    help="paper: the method as first released; an option given beside it wins.",
)
@click.option(
    "--passes",
    type=options.Auto(),
    help="Readings to learn from. Default: auto, 4 up to 200,000 rows, 2 up to a million.",
)
@click.option(
    "--recount",
    type=click.Choice(["auto", "yes", "no"]),
    help="Count all rows again under the finished tree. Default: auto, up to a million rows.",
)
@click.option(
    "--shuffle",
    type=click.Choice(["auto", "buffer", "none"]),
    help="The order rows are met in; auto reads a large file from many places at once. Default: auto.",
)
@click.option(
    "--buffer-rows",
    type=options.Whole(),
    help="Rows that the shuffle buffer holds. Default: 200000, or what 512 MB hold.",
)
@click.option("--seed", type=options.Whole(0), help="Of the start and the shuffle. Default: 0.")
@click.option(
    "--scale",
    type=click.Choice(["standard", "none"]),
    help="standard: each feature to mean 0, sd 1, cut at 10 sd. Default: standard.",
)
@click.option(
    "--alpha", type=options.Real(min=0), help="Free distance of a cut from the mean, in sd. Default: 0.5."
)
@click.option("--penalty", type=options.Real(min=0), help="C: on a cut farther away. Default: 10.")
@click.option(
    "--bandwidth",
    type=options.Real(min=0, min_open=True),
    help="Factor of the kernel's bandwidth s t^-q. Default: 1.",
)
@click.option("--bandwidth-decay", type=options.Real(min=0, max=1), help="q of the bandwidth. Default: 0.2.")
@click.option("--learning-decay", type=options.Real(min=0, max=2), help="r of the steps t^-r. Default: 1.")
@click.option("--rate", type=options.Real(min=0), help="Factor of the steps. Default: 1.")
@click.option(
    "--clamp",
    type=options.Real(min=0),
    help="A cut stays within clamp alpha sd of the mean; 0: free. Default: 5.",
)
@click.option(
    "--step",
    type=click.Choice(["scaled", "paper"]),
    help="scaled: steps free of units; paper: as published. Default: scaled.",
)
@click.option(
    "--reseat",
    type=click.Choice(["yes", "no"]),
    help="Cuts that found no valley move to one that others found. Default: yes.",
)
@click.option(
    "--update",
    metavar="MODEL",
    help="Go on learning from MODEL with DATA; its features and learning parameters are kept. Writes to "
    "-o, by default model.npz; -o MODEL -f replaces MODEL.",
)
@click.option(
    "--checkpoint",
    type=options.Real(min=0, min_open=True),
    metavar="SECONDS",
    help="Write the state to OUTPUT.checkpoint so often; it holds rows of the data.",
)
@click.option("--resume", is_flag=True, help="Go on from OUTPUT.checkpoint where an earlier run left one.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON on stdout.")
@click.option("-n", "--dry-run", is_flag=True, help="Print the plan and stop.")
@options.reading_options
@options.output_options
@click.pass_context
def fit(context: click.Context, /, data: tuple[str, ...], **o: Any) -> None:
    """Learn clusters in one pass over DATA and write the model.

    DATA: files, folders, quoted globs, `-` for stdin, addresses (https:, s3:, gs:, hdfs:); CSV, Parquet,
    Arrow IPC and ORC, compressed (gzip, zstd, bzip2) or not.

    Features are the columns of numbers: whole (beyond 2^53 rounded, with a note), floating, decimal, and
    true and false as 1 and 0. Left out, with a note, are text (see --categorical), dates and times, lists
    and other nested columns, columns without a value, and what looks like an identifier (whole numbers that
    only rise or only fall) unless -c names it.
    """
    locations = options.locations(data, context)
    with Console(o) as console:
        _fit(locations, o, console)


def _fit(locations: tuple[str, ...], o: dict[str, Any], console: Console) -> None:
    from imdh_cli.cli.opening import open_source
    from imdh_cli.features import select_features

    started = time.perf_counter()
    options.check_data("fit", locations)
    old = None
    if o["update"] is not None:
        from imdh_cli.model import load

        old = load(o["update"])
        params = resuming.params_of_update(o, old)
    else:
        params = fit_params(o)
    _check_clusters(params)
    if not o["dry_run"]:
        # A run that was killed between writing its model and removing its checkpoint is gone on from, too.
        force = o["force"] or (o["resume"] and os.path.exists(resuming.checkpoint_path(o)))
        check_model_target(o["output"], force=force, inputs=locations)
    threads = threads_asked(o["threads"], console)
    with closing(open_source(locations, options.source_params(o, threads))) as source:
        if old is None:
            selection = select_features(source, options.feature_params(o))
        else:
            selection = resuming.selection_of_update(o, old, source)
        checkpoint = None if o["dry_run"] else resuming.open_checkpoint(o, params, selection, locations)
        report_selection(console, source, selection)
        if old is None and o["columns"] is None:
            report_labels(console, selection)
        resuming.report_stale(console, o)
        if o["dry_run"]:
            from imdh_cli.cli.plan import show_plan

            show_plan(source, selection, params, threads, as_json=o["as_json"])
            return
        if not source.rereadable:
            _report_keeping(console, params)
        report_compiling(console, "standardise", "learn", "learn_leaves", "count_leaves")
        from imdh_cli.pipeline.fit import fit as fit_rows

        if checkpoint is not None:
            resuming.end_with_checkpoint(checkpoint)
            if checkpoint.found is not None:
                console.say(f"going on from {checkpoint.path}")
            elif o["resume"]:
                console.note(f"there is no {checkpoint.path} to go on from: starting from the beginning")
        result = fit_rows(
            source,
            selection,
            params,
            threads=threads,
            preset=o["preset"] if old is None else old.metadata["preset"],
            on_progress=console.on_progress(),
            checkpoint=checkpoint,
            update=old,
        )
        for text in source.notes:
            console.note(text)
    console.close()
    write_model(result.model, o["output"], force=o["force"] or (o["resume"] and checkpoint is not None))
    if checkpoint is not None:
        checkpoint.remove()
    seconds = time.perf_counter() - started
    report_rows(console, result.tally)
    if result.drifting:
        named = listing([f'"{name}"' for name in result.drifting])
        console.note(
            f"early and late rows differ in {named}: rows in order make poor clusters; "
            "shuffle the input, or let imdh read the file itself (not a stream)",
            warning=True,
        )
    report_constant(console, result.model)
    summary = _as_dict(result, seconds, o)
    if old is not None:
        from imdh_cli.pipeline.prune import cluster_changes

        summary["old_clusters"] = cluster_changes(old, result.model)
    if o["as_json"]:
        echo_json(summary, err=takes_stdout(o["output"]))
        return
    _report_summary(console, result, seconds, o)
    if old is not None:
        for line in resuming.change_lines(old, result.model):
            console.say(line)


def fit_params(o: dict[str, Any]) -> FitParams:
    """The preset, and what was given beside it."""
    base = PAPER_PRESET if o["preset"] == "paper" else FitParams()
    names = {
        "depth": "depth",
        "alpha": "alpha",
        "penalty": "penalty",
        "bandwidth": "bandwidth",
        "bandwidth_decay": "bandwidth_decay",
        "learning_decay": "learning_decay",
        "rate": "rate",
        "clamp": "clamp",
        "step": "step",
        "reseat": "reseat",
    }
    learn = replace(base.learn, **{f: o[n] for n, f in names.items() if o[n] is not None})
    own = ("passes", "recount", "scale", "shuffle", "buffer_rows", "seed")
    given = {name: o[name] for name in own if o[name] is not None}
    return replace(base, learn=learn, prune=options.prune_params(o, base.prune), **given)


def _check_clusters(params: FitParams) -> None:
    """Refuse what no tree of this depth could give, before anything is read."""
    k, depth = params.prune.clusters, params.learn.depth
    if not isinstance(k, int) or k <= 2**depth:
        return
    from imdh_cli.errors import UsageError

    deeper = (k - 1).bit_length()
    hint = f"use -k {2**depth} or fewer"
    if deeper <= MAX_DEPTH:
        hint += f", or --depth {deeper}"
    raise UsageError(f"-k {k}: a tree of depth {depth} has at most {2**depth} leaves", hint)


def report_selection(console: Console, source: Any, selection: Selection) -> None:
    """What was left out and why, and what the reader has to say."""
    for text in [*source.notes, *selection.notes]:
        console.note(text)
    console.detail(f"{plural(len(selection.spec.names), 'feature')}: {', '.join(selection.spec.names[:50])}")
    for name, why in selection.left_out:
        if not any(f'"{name}"' in text for text in selection.notes):
            console.detail(f"left out: {name} ({why})")


def report_labels(console: Console, selection: Selection) -> None:
    """Labels that an earlier run has written would be learned from like any number."""
    features = selection.spec.source_columns
    written = [
        name for name in ("cluster", "node", "leaf", "margin", "distance", "runner_up") if name in features
    ]
    if "cluster" in written:
        console.note(
            'the column "cluster" is a feature: if it holds labels of an earlier run, '
            f"leave it out with -x {','.join(written)}"
        )


def report_constant(console: Console, model: Model) -> None:
    """Features that hold one value only."""
    if model.counts[0] < 2:
        return
    constant = (model.scale == 1.0) & (model.sums_of_squares[0] == 0.0)
    names = [f'"{name}"' for name, same in zip(model.feature_names, constant, strict=True) if same]
    if names:
        what = "a feature" if len(names) == 1 else "features"
        console.note(f"constant, so of no use as {what}: {listing(names)}")


def _report_keeping(console: Console, params: FitParams) -> None:
    """Where the rows of a stream go that are asked for more than once."""
    if params.passes in ("auto", 1) and params.recount != "yes":
        return
    from tempfile import gettempdir

    console.note(f"a stream is read once: its rows are kept in {gettempdir()} to be met again")


def report_compiling(console: Console, *functions: str) -> None:
    """The first run compiles for some seconds; say so. functions: those of the kernel that are called."""
    from imdh_cli.compiled import kernel, native_cache

    if kernel.compiled_before(*functions):
        return
    console.say("compiling (first run only)")
    if not native_cache.can_keep():
        console.detail("compiled code cannot be kept between runs here; set NUMBA_CACHE_DIR to keep it")


def report_rows(console: Console, tally: Tally) -> None:
    """Rows left out: a note, loud when they are many."""
    lost = tally.skipped + tally.bad
    if not lost:
        return
    columns = sorted(
        (set(tally.missing) | set(tally.infinite)),
        key=lambda c: -(tally.missing.get(c, 0) + tally.infinite.get(c, 0)),
    )
    cells = ", ".join(f"{c} {tally.missing.get(c, 0) + tally.infinite.get(c, 0):,}" for c in columns[:5])
    more = f" and {len(columns) - 5} more columns" if len(columns) > 5 else ""
    reasons = []
    if tally.skipped:
        reasons.append(f"{tally.skipped:,} with cells missing, infinite or beyond 1e100 ({cells}{more})")
    if tally.bad:
        reasons.append(f"{tally.bad:,} that could not be read")
    share = lost / tally.rows
    text = f"{lost:,} of {plural(tally.rows, 'row')} ({share:.1%}) left out: {'; '.join(reasons)}"
    hint = "" if share < LOUD or not tally.skipped else ". --missing mean would use them"
    console.note(text + hint, warning=share >= LOUD)


def check_model_target(target: str, *, force: bool, inputs: Sequence[str]) -> None:
    """Refuse now where a model could not be written in the end."""
    from imdh_cli.atomic import check_target
    from imdh_cli.errors import UsageError

    if target != "-":
        check_target(target, force=force, inputs=inputs)
    elif sys.stdout.isatty():
        raise UsageError("a model is not written to a terminal", "redirect it: -o - > model.npz")


def write_model(model: Any, target: str, *, force: bool) -> None:
    """To a path, or for `-` to stdout."""
    from imdh_cli.model import save

    finish_first(target)
    if target == "-":
        save(model, "/dev/stdout", force=True)
    else:
        save(model, target, force=force)


def choice_in_words(chosen: Pruning, requested: Any) -> str:
    """One sentence on the number of clusters."""
    k = plural(chosen.n_clusters, "cluster")
    if chosen.clarity == "none" or (requested == "valleys" and not chosen.kept.any()):
        if chosen.by_size:
            return f"{k}: there are valleys in the density, but --min-size allows no cut through them"
        return f"{k}: no clear number of clusters, since no valley in the density is beyond doubt"
    if requested == "valleys":
        if chosen.n_clusters < min(chosen.largest, int(chosen.kept.sum()) + 1):
            return f"{k}: no more are allowed, though not every significant valley is used"
        return f"{k}: every significant valley is used"
    if chosen.clarity == "given":
        return f"{k}, as asked"
    if chosen.clarity == "clear":
        return f"{k}: a clear choice"
    others = listing([str(a) for a in chosen.alternatives], last="or")
    if not others:
        return f"{k}: not a clear choice, since a cluster at the tree's last level may hold more; try --depth"
    return f"{k}: a close choice; {others} would be reasonable, too"


def _report_summary(console: Console, result: Fit, seconds: float, o: dict[str, Any]) -> None:
    t, model = result.tally, result.model
    passes = plural(result.passes, "pass", "passes") + (" and a recount" if result.recounted else "")
    console.say(
        f"{plural(t.used, 'row')} used of {t.rows:,}, {plural(model.n_features, 'feature')}, {passes}"
    )
    console.say(choice_in_words(result.pruning, model.params.prune.clusters))
    sizes = ", ".join(f"{n:,}" for n in cluster_sizes(model)[:12])
    more = "" if model.n_clusters <= 12 else " ..."
    counted = int(model.counts[0])
    of = "" if counted == model.metadata["rows"]["used"] else f" of the last {counted:,}"
    console.say(f"rows in each{of}: {sizes}{more}; {plural(result.pruning.largest, 'leaf', 'leaves')} in use")
    speed = t.rows * (result.passes + result.recounted) / seconds
    console.say(
        f"{seconds:.1f} s, {speed_in_words(speed)}, {peak_memory_mb():.0f} MB at most; "
        f"wrote {'standard output' if takes_stdout(o['output']) else o['output']}"
    )
    if result.pruning.clarity == "close" and not takes_stdout(o["output"]):
        console.say(f"next: imdh report {o['output']}, or imdh prune {o['output']} -k N")


def cluster_sizes(model: Any) -> list[int]:
    """Rows counted in each cluster 1..K."""
    import numpy as np

    leaves = model.counts[model.n_splits :]
    return [
        int(n) for n in np.bincount(model.cluster_of_leaf, weights=leaves, minlength=model.n_clusters + 1)[1:]
    ]


def _as_dict(result: Fit, seconds: float, o: dict[str, Any]) -> dict[str, Any]:
    t, model = result.tally, result.model
    return {
        "model": o["output"],
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
        "cluster_sizes": cluster_sizes(model),
        "drifting": result.drifting,
        "seconds": round(seconds, 3),
        "rows_per_second": round(t.rows * (result.passes + result.recounted) / seconds),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }
