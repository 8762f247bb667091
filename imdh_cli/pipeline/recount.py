"""A model and rows -> the same tree with the moments and histograms of these rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from imdh_cli.core.learner import Learner
from imdh_cli.core.tree import Tree
from imdh_cli.features import Tally
from imdh_cli.model import Model
from imdh_cli.pipeline.reading import OnProgress, Reader, no_rows
from imdh_cli.rows.shuffle import RowStream
from imdh_cli.sources.base import Source


def recount(
    model: Model,
    source: Source,
    *,
    missing: str | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> tuple[Model, Tally]:
    """The same tree with the moments and histograms of all rows of `source`, in one reading."""
    spec = model.spec if missing is None else replace(model.spec, missing=missing)
    reader = Reader(source, spec, on_progress, "counting")
    tree = Tree(
        directions=model.directions,
        pivots=model.pivots,
        learned=model.counts,
        offsets=model.offsets,
        mean_squares=np.zeros(model.n_splits),
        variances=model.projection_sd**2,
        anchors=np.zeros(model.n_splits),
    )
    learner = Learner(tree, model.scaling, model.params, threads)
    learner.begin_recount(model.thresholds, model.projection_sd)
    for X in RowStream(reader.rows()).blocks(learner.block_rows):
        learner.partial_fit(X)
    learner.finish()
    if not reader.tally.used:
        raise no_rows(reader.tally, source)
    statistics = learner.statistics()
    counts, means, squares = statistics.of_nodes()
    rows = model.metadata["rows"] | {"counted": int(counts[0])}
    counted = replace(
        model,
        counts=counts,
        means=means,
        sums_of_squares=squares,
        histograms=statistics.histograms,
        metadata=model.metadata | {"statistics": "recounted", "rows": rows},
    )
    return counted, reader.tally
