"""DATA of `imdh report`, read once for all that is asked of them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from imdh_cli.cli import messages
from imdh_cli.cli.inputs import opened, source_params
from imdh_cli.errors import DataError

if TYPE_CHECKING:
    from imdh_cli.cli.console import Console
    from imdh_cli.cli.report_options import ReportOptions
    from imdh_cli.features import Tally
    from imdh_cli.model import Model
    from imdh_cli.pipeline.labelled import Labelled
    from imdh_cli.report.figures import Summary
    from imdh_cli.report.scatter import Scatter
    from imdh_cli.sources import Source

SPLITS = 512  # looked for in refits, those that matter to the fewest clusters


def survey(summary: Summary, o: ReportOptions, console: Console) -> tuple[Summary, Mapping[int, Scatter]]:
    """All that is asked for: known classes, another model, borders, drift, stability, samples of rows.

    Returns
    -------
    the summary with what was found, and the samples by the node of the split
    """
    from imdh_cli.features import Tally

    assert summary.model is not None
    tally = Tally()
    params = source_params(o.reading.source, console)
    with ExitStack() as stack:
        source = stack.enter_context(opened(o.rows, params))
        takers = [stack.enter_context(taker) for taker in _takers(summary, o, params.threads)]
        _read(summary.model, source, o, takers, tally, console)
        messages.report_reading(console, source, tally)
        if not tally.used:
            why = f"none of its {tally.rows:,} rows can be used" if tally.rows else "no data rows"
            name = source.parts[0].name if source.parts else "the data"
            raise DataError(f"{name}: {why}", "use --missing mean" if tally.skipped else None)
        for taker in takers:
            summary = taker.into(summary, tally, console)
    samples = [taker.sampler.scatters() for taker in takers if isinstance(taker, Samples)]
    return summary, samples[0] if samples else {}


def _read(
    model: Model, source: Source, o: ReportOptions, takers: list[Taker], tally: Tally, console: Console
) -> None:
    from imdh_cli.features import bind_features

    others = [taker.model for taker in takers if isinstance(taker, OtherModel)]
    spec = model.spec
    for other in others:
        spec = spec.together(other.spec)
    bind_features(source, spec)
    compiled = {name for taker in takers for name in taker.compiled}
    messages.report_compiling(console, "standardise", *sorted(compiled))
    from imdh_cli.pipeline.labelled import labelled

    parts = labelled(
        model,
        source,
        (o.truth,) if o.truth else (),
        extra=tuple({name: None for taker in takers for name in taker.extra}),
        others=others,
        tally=tally,
        missing=o.reading.missing,
        on_progress=console.on_progress(),
    )
    for part in parts:
        for taker in takers:
            taker.take(part)


def _takers(summary: Summary, o: ReportOptions, threads: int) -> list[Taker]:
    """Those that the options ask for."""
    model = summary.model
    assert model is not None
    also = (o.node,) if o.drawn == "node" and o.node is not None else ()
    takers: list[Taker] = []
    if o.truth:
        takers.append(Classes(o.truth, model.n_clusters))
    if o.other is not None:
        takers.append(OtherModel(model.n_clusters, o.other))
    if o.html or also:
        takers.append(Samples(summary, also))
    if o.truth or o.html or o.other or not (o.drift or o.stability or also):
        takers.append(NearCuts(model.n_clusters))
    if o.drift:
        takers.append(Moved(model, threads))
    if o.stability:
        takers.append(Refits(model, o.stability, o.seed, threads))
    return takers


class Taker(ABC):
    """Takes rows part by part, and adds what comes of them to a summary; a context.

    extra : what it wants to know of a row beside the cluster. compiled : of the kernel, what it needs.
    """

    extra: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()

    @abstractmethod
    def take(self, part: Labelled) -> None: ...

    def into(self, summary: Summary, tally: Tally, console: Console) -> Summary:
        return summary

    def __enter__(self) -> Taker:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 most hold nothing
        """Let go of what is held."""


class Classes(Taker):
    """Agreement with the known classes in a column."""

    compiled = ("descend",)

    def __init__(self, column: str, n_clusters: int) -> None:
        from imdh_cli.report.agreement import Truth

        self._truth = Truth(column, n_clusters)

    def take(self, part: Labelled) -> None:
        if part.kept is not None:
            self._truth.add(part.cluster, part.kept.column(0))

    def into(self, summary: Summary, tally: Tally, console: Console) -> Summary:
        return summary.with_truth(self._truth.result())


class OtherModel(Taker):
    """The clusters of another model, of the same rows."""

    compiled = ("descend",)

    def __init__(self, n_clusters: int, path: str) -> None:
        from imdh_cli.model import load
        from imdh_cli.report.comparison import Overlap, check_scipy

        check_scipy()
        self.model = load(path)
        self._path = path
        self._overlap = Overlap(n_clusters, self.model.n_clusters)

    def take(self, part: Labelled) -> None:
        self._overlap.add(part.cluster, part.others[0].cluster)

    def into(self, summary: Summary, tally: Tally, console: Console) -> Summary:
        names = [c.name for c in summary.clusters]
        found = self._overlap.result(os.path.basename(self._path), names, self.model.cluster_names)
        return replace(summary, comparison=found)


class Samples(Taker):
    """Rows to draw at each split, and at those in `also`."""

    compiled = ("descend",)
    extra = ("leaf",)

    def __init__(self, summary: Summary, also: tuple[int, ...]) -> None:
        from imdh_cli.report.scatter import Sampler

        self.sampler = Sampler(summary, also=also)

    def take(self, part: Labelled) -> None:
        self.sampler.add(part.X, part.leaf)


class NearCuts(Taker):
    """Rows near the cut between each pair of clusters."""

    compiled = ("descend", "second_choice")
    extra = ("runner_up", "border")

    def __init__(self, n_clusters: int) -> None:
        from imdh_cli.report.borders import Borders

        self._borders = Borders(n_clusters)

    def take(self, part: Labelled) -> None:
        columns = part.columns
        self._borders.add(columns["cluster"], columns["runner_up"], columns["border"])

    def into(self, summary: Summary, tally: Tally, console: Console) -> Summary:
        return replace(summary, borders=self._borders.result())


class Moved(Taker):
    """Drift: the model's statistics, of these rows."""

    compiled = ("recount", "count_leaves", "column_sums")

    def __init__(self, model: Model, threads: int) -> None:
        from imdh_cli.core.columns import ColumnMoments
        from imdh_cli.core.counter import Counter

        self._counter = Counter(model.frozen_tree, model.scaling, threads)
        self._moments = ColumnMoments(model.n_features)
        self._moments.low, self._moments.high = model.far_bounds

    def take(self, part: Labelled) -> None:
        self._counter.update(part.X)
        self._moments.add(part.X)

    def into(self, summary: Summary, tally: Tally, console: Console) -> Summary:
        from imdh_cli.report.drifting import measure

        return replace(summary, drift=measure(summary, self._counter.statistics(), self._moments, tally))

    def __exit__(self, *_: object) -> None:
        self._counter.join()


class Refits(Taker):
    """Stability: what trees learned from random halves of these rows have in common with the model."""

    compiled = ("descend", "learn", "learn_leaves", "recount", "count_leaves")

    def __init__(self, model: Model, times: int, seed: int, threads: int) -> None:
        from imdh_cli.pipeline.refits import Pool

        self._model, self._times, self._seed, self._threads = model, times, seed, threads
        self._pool = Pool(model.n_features, seed)

    def take(self, part: Labelled) -> None:
        self._pool.add(part.X)

    def into(self, summary: Summary, tally: Tally, console: Console) -> Summary:
        from imdh_cli.core.partition import Partition
        from imdh_cli.pipeline.feature_rows import Progress
        from imdh_cli.pipeline.refits import leaves_of, refits
        from imdh_cli.report.stability import assess

        model, times, tell = self._model, self._times, console.on_progress()
        rows = self._pool.rows()
        sample = self._pool.sample(rows)

        def on_done(done: int, each: int) -> None:
            if tell is not None:
                tell(Progress("refitting", done * each, times * each, 0, None))

        on_done(0, max(1, len(rows) // 2))
        found = list(
            refits(rows, sample, model, times, seed=self._seed, threads=self._threads, on_done=on_done)
        )
        console.close()
        leaf = leaves_of(model.frozen_tree, model.scaling, sample)
        by_k = sorted(summary.splits, key=lambda node: summary.splits[node].from_k or 0)
        stability = assess(
            Partition(leaf, model.cluster_of_leaf, summary.choice.natural),
            found,
            by_k[:SPLITS],
            [c.name for c in summary.clusters],
            rows_each=max(1, len(rows) // 2),
            seed=self._seed,
        )
        return replace(summary, stability=stability)
