"""What commands tell people, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, get_args

from imdh_cli.cli.outputs import takes_stdout
from imdh_cli.params import Extra
from imdh_cli.runtime import peak_memory_mb
from imdh_cli.words import count, listing, quoted, speed_in_words

if TYPE_CHECKING:
    from imdh_cli.cli.console import Console
    from imdh_cli.core.columns import DistinctValues
    from imdh_cli.core.pruning import Pruning
    from imdh_cli.features import Selection, Tally
    from imdh_cli.model import Model
    from imdh_cli.params import FitParams
    from imdh_cli.pipeline.fit import Fit
    from imdh_cli.report.choice import Choice
    from imdh_cli.sources import Source

FAR_APART = 5  # of whole numbers; ratings, counts and years lie closer
LOUD = 0.05  # a share of rows left out from which the note is a warning


def report_selection(console: Console, source: Source, selection: Selection) -> None:
    """What was left out and why, and what the reader has to say."""
    for text in [*source.notes, *selection.notes]:
        console.note(text)
    console.detail(f"{count(len(selection.spec.names), 'feature')}: {', '.join(selection.spec.names[:50])}")
    for name, why in selection.left_out:
        if not any(f'"{name}"' in text for text in selection.notes):
            console.detail(f"left out: {name} ({why})")


def report_labels(console: Console, selection: Selection) -> None:
    """Labels that an earlier run has written would be learned from like any number."""
    features = selection.spec.source_columns
    written = [name for name in ("cluster", *get_args(Extra)) if name in features]
    if "cluster" in written:
        console.note(
            'the column "cluster" is a feature: if it holds labels of an earlier run, '
            f"leave it out with -x {','.join(written)}"
        )


def report_columns(console: Console, result: Fit) -> None:
    """Features that tell nothing, and whole numbers that may be no amounts."""
    model, values = result.model, result.values
    if model.counts[0] < 2:
        return
    constant, minute = (
        [name for name, so in zip(model.feature_names, flat, strict=True) if so] for flat in model.flat
    )
    if constant:
        what = "a feature" if len(constant) == 1 else "features"
        console.note(f"constant, so of no use as {what}: {quoted(constant)}")
    if minute:
        console.note(
            f"too little spread for the doubles that hold it, so taken without scaling: {quoted(minute)}; "
            "subtract what all cells have in common, or multiply them"
        )
    report_codes(console, model, values)


def report_codes(console: Console, model: Model, values: DistinctValues) -> None:
    """Whole numbers that are few, far apart and unequally so: postal or error codes, not amounts."""
    for column, place in zip(model.spec.columns, _first_places(model), strict=True):
        n = int(values.counts[place])
        if (
            column.log
            or column.levels is not None
            or column.items is not None
            or not 3 <= n < values.values.shape[1]
        ):
            continue
        codes = sorted(values.values[place, :n].tolist())
        steps = [b - a for a, b in pairwise(codes)]
        whole = all(code == round(code) for code in codes)
        if whole and min(steps) > FAR_APART and max(steps) > 1.5 * min(steps):
            from imdh_cli.sources.base import typed

            option = typed("--onehot", column.name)
            console.note(
                f'"{column.name}": {n} whole numbers between {codes[0]:.0f} and {codes[-1]:.0f}; if they are '
                f"codes and no amounts, {option} makes a 0/1 feature of each"
            )


def _first_places(model: Model) -> list[int]:
    """Of each column of the table, its first among the features."""
    return [0, *accumulate(column.width for column in model.spec.columns)][:-1]


def report_keeping(console: Console, params: FitParams) -> None:
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


def report_reading(console: Console, source: Source, tally: Tally) -> None:
    """What a source and its rows have to say once they are read."""
    console.close()
    for text in source.notes:
        console.note(text)
    report_rows(console, tally)
    report_unseen(console, tally)


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
    text = f"{lost:,} of {count(tally.rows)} ({share:.1%}) left out: {'; '.join(reasons)}"
    hint = "" if share < LOUD or not tally.skipped else ". --missing mean would use them"
    console.note(text + hint, warning=share >= LOUD)


def report_unseen(console: Console, tally: Tally) -> None:
    """Levels of text columns that the model does not know."""
    for column, n in tally.unseen.items():
        console.note(f'{count(n, "cell")} of "{column}" with a text that the model does not know')


def report_suspects(console: Console, model: Model) -> None:
    """Cells that may stand for missing ones, and numbers that are a notation."""
    from imdh_cli.report import notations
    from imdh_cli.report.suspects import warning

    for suspect in model.metadata.get("suspects", ()):
        console.note(warning(suspect), warning=True)
    for notation in model.metadata.get("notations", ()):
        console.note(notations.warning(notation), warning=True)


def report_copies(console: Console, model: Model) -> None:
    """Rows that are copies of others, and columns that have the values of things."""
    from imdh_cli.report.cautions import copies, lookups

    for said in filter(None, (copies(model), *lookups(model))):
        console.note(said)


def report_tails(console: Console, model: Model) -> None:
    """Columns that are scaled without a few far cells; not those of which more is said anyway."""
    from imdh_cli.report.tails import sentence

    said = {suspect["feature"] for suspect in model.metadata.get("suspects", ())}
    for tail in model.metadata.get("tails", ()):
        if tail["feature"] not in said:
            console.note(sentence(tail))


def report_unequal(console: Console, names: list[str]) -> None:
    """Columns of very unequal amounts: most of their cells lie close together."""
    if names:
        from imdh_cli.sources.base import typed

        spread = f"{typed('--log', *names[:20])} spreads them"
        console.note(f"{quoted(names)}: very unequal amounts, most of them close together; {spread}")


def report_drift(console: Console, drifting: list[str]) -> None:
    """Columns whose early and late rows differ."""
    if drifting:
        console.note(
            f"early and late rows differ in {quoted(drifting)}: rows in order make poor clusters; "
            "shuffle the input, or let imdh read the file itself (not a stream)",
            warning=True,
        )


def rows_met(result: Fit) -> int:
    """Rows read, each as often as it was."""
    return result.tally.rows * (result.passes + result.recounted)


def busy_line(busy: Mapping[str, float]) -> str:
    """Where learning spent processor time."""
    return "processor seconds: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in busy.items())


def fit_lines(result: Fit, output: str, seconds: float) -> Iterator[str]:
    """The summary of a fit, and what to do next."""
    from imdh_cli.report.next_steps import next_steps

    t, model = result.tally, result.model
    passes = count(result.passes, "pass", "passes") + (" and a recount" if result.recounted else "")
    if (starts := model.metadata.get("starts", 1)) > 1:
        passes += f", the best of {starts} trees"
    yield f"{count(t.used)} used of {t.rows:,}, {count(model.n_features, 'feature')}, {passes}"
    choice = choice_made(model, result.pruning)
    yield from choice_lines(choice)
    sizes = ", ".join(f"{n:,}" for n in model.cluster_sizes()[:12])
    more = "" if model.n_clusters <= 12 else " ..."
    counted = int(model.counts[0])
    learned = model.metadata.get("learned_rows")
    if learned is not None:
        yield f"learned from {learned:,} of these rows{', all counted' if counted > learned else ''}"
    if result.parts_read is not None:
        read, there = result.parts_read
        yield f"read were {read:,} of the {there:,} parts of the input, drawn at random from all over it"
    windowed = model.metadata["statistics"] == "windowed"
    some = f" of the last {counted:,}" if windowed else f" of a sample of {counted:,}"
    of = "" if counted in (model.metadata["rows"]["used"], learned) else some
    moving = ", counted while cuts still moved" if windowed else ""
    yield f"rows in each{of}{moving}: {sizes}{more}; {count(result.pruning.largest, 'leaf', 'leaves')} in use"
    speed = speed_in_words(rows_met(result) / seconds)
    yield f"{seconds:.1f} s, {speed}, {peak_memory_mb():.0f} MB at most; wrote {written(output)}"
    for step in next_steps(model, choice, "" if takes_stdout(output) else output):
        yield f"next: {step}"


def written(output: str) -> str:
    """Where an output went."""
    return "standard output" if takes_stdout(output) else output


def choice_made(model: Model, chosen: Pruning) -> Choice:
    """The choice of a model whose tree was pruned so."""
    from imdh_cli.report.choice import choice_of, own_choice

    return choice_of(model, chosen if model.params.prune.clusters == "auto" else own_choice(model))


def choice_lines(choice: Choice) -> list[str]:
    """How many clusters, and unless that is clear, why."""
    return [choice.headline, *([] if choice.clarity == "clear" else [choice.sentence])]


def change_lines(changes: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each cluster of an earlier model that is no longer what it was.

    changes: of `pipeline.prune.cluster_changes`
    """
    lines = []
    for fate in changes:
        now = listing([str(n) for n in fate["became"]], 12)
        what = f"cluster {fate['cluster']} (node {fate['node']})"
        if fate["how"] == "kept":
            if fate["became"][0] != fate["cluster"]:
                lines.append(f"{what} is now cluster {now}")
        elif fate["how"] == "merged":
            lines.append(f"{what} is now part of cluster {now}")
        else:
            lines.append(f"{what} was split into clusters {now}")
    return lines or ["every cluster kept its tree node and its number"]
