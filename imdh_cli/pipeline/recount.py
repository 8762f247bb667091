"""A model and rows -> the same tree with the moments and histograms of these rows."""

from __future__ import annotations

from dataclasses import replace

from imdh_cli.core.counter import Counter
from imdh_cli.core.dither import Dither
from imdh_cli.features import Tally
from imdh_cli.model import Model
from imdh_cli.model.build import with_statistics
from imdh_cli.params import Missing
from imdh_cli.pipeline.feature_rows import FeatureRows, OnProgress
from imdh_cli.sources.base import Source


def recount(
    model: Model,
    source: Source,
    *,
    missing: Missing | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> tuple[Model, Tally]:
    """The same tree with the moments and histograms of all rows of `source`, in one reading."""
    spec = model.spec if missing is None else replace(model.spec, missing=missing)
    rows = FeatureRows(source, spec, on_progress, "counting", threads=threads)
    dither = Dither.restored(model.extras)
    counter = Counter(model.frozen_tree, model.scaling, threads, dither=dither, seed=model.params.seed)
    try:
        for X in rows.in_order():
            counter.update(X)
    finally:
        counter.join()
    if not rows.tally.used:
        raise rows.no_rows()
    return with_statistics(model, counter.statistics()), rows.tally
