"""A source -> its rows with their clusters and leaves, chunk by chunk: for reports on further rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from imdh_cli.features import FeatureSpec, Tally, extract
from imdh_cli.model import Model
from imdh_cli.params import Missing
from imdh_cli.pipeline.assign import Labeller
from imdh_cli.pipeline.feature_rows import OnProgress, Progress, name_of
from imdh_cli.sources.base import Chunk, Source


@dataclass(frozen=True)
class Labelled:
    """Some rows in their order: n were read, u of them can be used. They are labelled when that is asked for.

    X : (u, d) float64, the user's units; NaN is a missing cell that counts as the mean. used : (n,) bool.
    kept : n rows of the columns to keep. others : the same rows by other models.
    """

    X: np.ndarray
    used: np.ndarray
    kept: pa.RecordBatch | None
    labeller: Labeller
    others: tuple[Labelled, ...] = ()

    @cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """(u,) each: the cluster, and what else the labeller was asked for."""
        return self.labeller(self.X)

    @property
    def leaf(self) -> np.ndarray:
        """(u,) int64, the tree node of the leaf."""
        return self.columns["leaf"]

    @cached_property
    def cluster(self) -> np.ndarray:
        """(n,) int32, 1..K; -1 is a row that cannot be used."""
        cluster = np.full(len(self.used), -1, dtype=np.int32)
        cluster[self.used] = self.columns["cluster"]
        return cluster


def labelled(
    model: Model,
    source: Source,
    keep: Sequence[str] = (),
    *,
    extra: tuple[str, ...] = ("leaf",),
    others: Sequence[Model] = (),
    tally: Tally | None = None,
    missing: Missing | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[Labelled]:
    """Every row of a source, labelled by the model's own clusters.

    Parameters
    ----------
    model, source : Model, Source
    keep : columns to hand over as they are read
    extra : what the labeller is to tell beside the cluster
    others : models that label the same rows by their own features
    tally : what became of the rows is added to it, in place
    missing : another treatment of missing cells than the model's
    on_progress : told after each chunk

    Raises
    ------
    DataError
        As reading and extracting do.
    """
    models = (model, *others)
    specs = [m.spec if missing is None else replace(m.spec, missing=missing) for m in models]
    labellers = [Labeller(model, None, extra), *(Labeller(other, None) for other in others)]
    tally = Tally() if tally is None else tally
    tallies = [tally, *(Tally() for _ in others)]
    name = name_of(source)
    for chunk in source.chunks(list(dict.fromkeys(c for spec in specs for c in spec.source_columns)), keep):
        first, *rest = (_labelled(chunk, *each, name) for each in zip(specs, labellers, tallies, strict=True))
        if on_progress is not None:
            on_progress(Progress("labelling", tally.rows, source.rows, source.bytes_read, source.size))
        yield replace(first, others=tuple(rest))


def _labelled(chunk: Chunk, spec: FeatureSpec, labeller: Labeller, tally: Tally, name: str) -> Labelled:
    """One model's view of a chunk, which may hold columns that only another model has."""
    if tuple(chunk.features.schema.names) != spec.source_columns:
        chunk = chunk._replace(features=chunk.features.select(list(spec.source_columns)))
    X, used = extract(chunk, spec, tally, first_row=tally.rows, source_name=name)
    return Labelled(X if used.all() else X[used], used, chunk.kept, labeller)
