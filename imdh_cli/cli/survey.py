"""DATA of `imdh report`, read once for all that is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from imdh_cli.cli import messages
from imdh_cli.cli.inputs import opened, source_params
from imdh_cli.errors import DataError

if TYPE_CHECKING:
    from imdh_cli.cli.console import Console
    from imdh_cli.cli.report import ReportOptions
    from imdh_cli.features import Tally
    from imdh_cli.model import Model
    from imdh_cli.pipeline.labelled import Labelled
    from imdh_cli.report.figures import Summary
    from imdh_cli.report.scatter import Scatter
    from imdh_cli.sources import Source

Taker = Callable[["Labelled"], None]


def survey(summary: Summary, o: ReportOptions, console: Console) -> tuple[Summary, Mapping[int, Scatter]]:
    """Known classes, borders, drift and samples of rows, as far as they are asked for.

    Returns
    -------
    the summary with what was found, and the samples by the node of the split
    """
    from imdh_cli.features import Tally

    model = summary.model
    assert model is not None
    tally = Tally()
    params = source_params(o.reading.source, console)
    with ExitStack() as stack:
        source = stack.enter_context(opened(o.data, params))
        asked = Asked(summary, o, params.threads, stack)
        _read(model, source, o, asked, tally, console)
        notes, name = list(source.notes), source.parts[0].name if source.parts else "the data"
        console.close()
        for text in notes:
            console.note(text)
        messages.report_rows(console, tally)
        if not tally.used:
            why = f"none of its {tally.rows:,} rows can be used" if tally.rows else "no data rows"
            raise DataError(f"{name}: {why}", "use --missing mean" if tally.skipped else None)
        return asked.found(summary, tally), asked.samples()


def _read(
    model: Model, source: Source, o: ReportOptions, asked: Asked, tally: Tally, console: Console
) -> None:
    from imdh_cli.features import bind_features

    bind_features(source, model.spec)
    messages.report_compiling(console, "standardise", *asked.compiled)
    from imdh_cli.pipeline.labelled import labelled

    parts = labelled(
        model,
        source,
        (o.truth,) if o.truth else (),
        tally=tally,
        extra=asked.extra,
        missing=o.reading.missing,
        on_progress=console.on_progress(),
    )
    for part in parts:
        for take in asked.takers:
            take(part)


class Asked:
    """What the options ask of the rows: who takes them, and what comes of it.

    takers : called with every part of the rows. extra : what they want to know of rows beside the cluster.
    compiled : the functions of the kernel that they need.
    """

    def __init__(self, summary: Summary, o: ReportOptions, threads: int, stack: ExitStack) -> None:
        self.takers: list[Taker] = []
        self.extra: tuple[str, ...] = ()
        self.compiled: list[str] = []
        model = summary.model
        assert model is not None
        also = (o.node,) if o.drawn == "node" and o.node is not None else ()
        self._truth = self._sampler = self._counter = self._borders = None
        if o.truth:
            from imdh_cli.report.agreement import Truth

            self._truth = Truth(o.truth, model.n_clusters)
            self._take(self._take_classes, "descend")
        if o.truth or o.html or not (o.drift or also):
            from imdh_cli.report.borders import Borders

            self._borders = Borders(model.n_clusters)
            self.extra += ("runner_up", "border")
            self._take(self._take_borders, "descend", "second_choice")
        if o.html or also:
            from imdh_cli.report.scatter import Sampler

            self._sampler = sampler = Sampler(summary, also=also)
            self.extra += ("leaf",)
            self._take(lambda part: sampler.add(part.X, part.leaf), "descend")
        if o.drift:
            from imdh_cli.core.counter import Counter

            self._counter = counter = Counter(model.frozen_tree, model.scaling, threads)
            stack.callback(counter.join)
            self._take(lambda part: counter.update(part.X), "recount", "count_leaves")

    def _take_classes(self, part: Labelled) -> None:
        if self._truth is not None and part.kept is not None:
            self._truth.add(part.cluster, part.kept.column(0))

    def _take_borders(self, part: Labelled) -> None:
        if self._borders is not None:
            columns = part.columns
            self._borders.add(columns["cluster"], columns["runner_up"], columns["border"])

    def _take(self, taker: Taker, *compiled: str) -> None:
        self.takers.append(taker)
        self.compiled += compiled

    def found(self, summary: Summary, tally: Tally) -> Summary:
        """The summary with what came of the rows."""
        if self._truth is not None:
            summary = summary.with_truth(self._truth.result())
        if self._borders is not None:
            summary = replace(summary, borders=self._borders.result())
        if self._counter is not None:
            from imdh_cli.report.drift import measure

            summary = replace(summary, drift=measure(summary, self._counter.statistics(), tally))
        return summary

    def samples(self) -> Mapping[int, Scatter]:
        """Rows to draw, by the node of the split."""
        return {} if self._sampler is None else self._sampler.scatters()
