"""A learned tree -> a model; a model -> what learning goes on from, or other statistics."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from imdh_cli.core import pruning
from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.learn import Learned
from imdh_cli.core.learner import WINDOW_ROWS
from imdh_cli.core.logs import signed_exp
from imdh_cli.core.notations import Notation
from imdh_cli.core.pruning import Pruning
from imdh_cli.core.sentinels import Sentinel, is_written
from imdh_cli.core.state import REQUIRED, LearnerState
from imdh_cli.core.statistics import Statistics
from imdh_cli.errors import DataError, UsageError
from imdh_cli.model.metadata import choice
from imdh_cli.model.model import Model
from imdh_cli.params import FitParams, PruneParams
from imdh_cli.version import __version__, version_of

if TYPE_CHECKING:
    from imdh_cli.features import FeatureSpec

LARGEST_UNSCALED = 1e60  # mean and sd of a column that is not scaled
LARGEST_LEARNED = 1e130


def prune(learned: Learned, params: PruneParams) -> Pruning:
    """Choose the clusters of a learned tree."""
    counts, means, squares = learned.statistics.of_nodes()
    counted = learned.statistics
    return pruning.prune(
        counts,
        means,
        squares,
        learned.tree.pivots,
        counted.histograms,
        params,
        counted.on_piles,
        learned.copies,
        learned.noise_shares,
        learned.dither.piles.shared(learned.tree.directions, counts, means, squares),
    )


@dataclass(frozen=True)
class Provenance:
    """Where a model's rows come from.

    rows : read, used, skipped, bad. cells : missing, infinite and unseen ones by column. inputs : names
    without their folders. left_out : columns that are no features, and why. cluster_names : of clusters, by
    their tree nodes. odd : what is odd in columns, as of `odd_of`.
    """

    rows: Mapping[str, int]
    cells: Mapping[str, Mapping[str, int]]
    inputs: Sequence[str] = ()
    left_out: Sequence[Sequence[str]] = ()
    ids: Sequence[str] = ()
    preset: str = "default"
    cluster_names: Mapping[str, str] = field(default_factory=dict)
    odd: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def after(self, old: Mapping[str, Any]) -> Provenance:
        """Together with the rows that a model of these metadata was learned from."""
        cells = {
            kind: {c: n.get(c, 0) + old[kind].get(c, 0) for c in {**old[kind], **n}}
            for kind, n in self.cells.items()
        }
        rows = {name: n + old["rows"][name] for name, n in self.rows.items()}
        inputs, names = [*old["inputs"], *self.inputs], old.get("cluster_names", {})
        return replace(self, rows=rows, cells=cells, inputs=inputs, cluster_names=names)


def odd_of(
    sentinels: Sequence[Sentinel], notations: Sequence[Notation], spec: FeatureSpec, columns: ColumnMoments
) -> dict[str, list[dict[str, Any]]]:
    """What is odd in columns, as the metadata keep it. columns : of all rows."""
    return {
        "suspects": _suspects(sentinels, spec, columns),
        "notations": [
            {
                "kind": n.kind,
                "columns": list(dict.fromkeys(spec.columns[spec.owners[j]].name for j in n.columns)),
                "features": [spec.names[j] for j in n.columns],
            }
            for n in notations
        ],
    }


def _suspects(found: Sequence[Sentinel], spec: FeatureSpec, columns: ColumnMoments) -> list[dict[str, Any]]:
    """Cells that may stand for missing ones."""
    # A value that came back from its logarithm is not exact.
    values = [float(f"{s.value:.12g}") if spec.logs[s.column] else s.value for s in found]
    found = [replace(s, value=v) for s, v in zip(found, values, strict=True) if is_written(v)]
    sd = np.sqrt(columns.square / np.maximum(columns.count, 1))
    for s in found:
        if spec.logs[s.column]:  # in the units of the cells: the spread of those and of the others together
            share = s.cells / max(1, int(columns.count[s.column]))
            away = s.value - float(signed_exp(columns.near[0][s.column]))
            sd[s.column] = np.sqrt((1.0 - share) * (s.others**2 + share * away**2))
    return [
        {
            "column": spec.columns[spec.owners[s.column]].name,
            "feature": spec.names[s.column],
            "value": s.value,
            "cells": s.cells,
            "sd": float(sd[s.column]),
            "others": s.others,
        }
        for s in found
    ]


def describe(
    learned: Learned,
    chosen: Pruning,
    params: FitParams,
    spec: FeatureSpec,
    provenance: Provenance,
    drifting: Sequence[str] = (),
    learned_rows: int | None = None,
) -> dict[str, Any]:
    """What a model says of itself: nothing that depends on time, threads or folders.

    learned_rows : how many, where the tree was learned from a sample.
    """
    params = replace(params, learn=replace(params.learn, depth=learned.tree.depth))  # it may have grown
    return {
        "program": "imdh",
        "version": __version__,
        "parameters": params.to_dict(),
        "preset": provenance.preset,
        "features": spec.to_dict(),
        "left_out_columns": [list(pair) for pair in provenance.left_out],
        "id_columns": list(provenance.ids),
        "rows": {**provenance.rows, "counted": int(learned.statistics.counts.sum())},
        **{kind: dict(cells) for kind, cells in provenance.cells.items()},
        "statistics": learned.counted,
        "passes": learned.passes,
        **({"starts": learned.starts} if learned.starts > 1 else {}),
        "choice": choice(chosen, params.prune),
        "inputs": list(provenance.inputs),
        "versions": {
            "python": platform.python_version(),
            **{package: version_of(package) for package in ("numpy", "numba", "pyarrow")},
        },
        "notes": [f"early and late rows differ in {name}" for name in drifting],
        **({} if learned_rows is None else {"learned_rows": learned_rows}),
        **({"cluster_names": dict(provenance.cluster_names)} if provenance.cluster_names else {}),
        **{key: [dict(one) for one in found] for key, found in provenance.odd.items() if found},
        **({"tails": tails} if (tails := _tails(learned.columns, spec.names, params)) else {}),
    }


def _tails(columns: ColumnMoments, names: Sequence[str], params: FitParams) -> list[dict[str, Any]]:
    """Columns that a few far cells would flatten: the sd of all cells, and of those they are scaled by."""
    if params.scale == "none":
        return []
    sd, near = np.sqrt(columns.square / np.maximum(columns.count, 1)), columns.near[1]
    return [
        {
            "feature": names[j],
            "cells": int(columns.far_count[j]),
            "of": int(columns.count[j]),
            "sd": float(sd[j]),
            "others": float(near[j]),
        }
        for j in np.flatnonzero(columns.tails).tolist()
    ]


def build(learned: Learned, names: Sequence[str], chosen: Pruning, metadata: Mapping[str, Any]) -> Model:
    """The model of a learned tree and its pruning.

    Parameters
    ----------
    learned : Learned
    names : (d,) the features
    chosen : Pruning
    metadata : what the model says of itself
    """
    tree, scaling = learned.tree, learned.scaling
    thresholds, offsets = tree.frozen()
    counts, means, squares = learned.statistics.of_nodes()
    return Model(
        feature_names=list(names),
        center=scaling.center,
        scale=scaling.scale,
        directions=tree.directions,
        thresholds=thresholds,
        offsets=offsets,
        pivots=tree.pivots,
        projection_sd=np.sqrt(tree.variances),
        histograms=learned.statistics.histograms,
        means=means,
        counts=counts,
        sums_of_squares=squares,
        merge_order=chosen.merge_order,
        cluster_of_leaf=chosen.cluster_of_leaf,
        metadata=dict(metadata),
        extras=learned.state.to_arrays() | _piled(learned.statistics),
    )


def _piled(statistics: Statistics) -> dict[str, np.ndarray]:
    return {} if statistics.on_piles is None else {"histograms_on_piles": statistics.on_piles}


def check_range(learned: Learned, names: Sequence[str], scale: str) -> None:
    """Refuse what would leave the range of numbers further on.

    Raises
    ------
    DataError
        For values without scaling whose squares' squares do not fit, by column.
    UsageError
        When learning diverged, as it can with steps that never shrink.
    """
    columns = learned.columns
    if scale == "none":
        large = np.abs(columns.mean) + np.sqrt(columns.square / np.maximum(columns.count, 1))
        if not (large <= LARGEST_UNSCALED).all():
            name = names[int(np.argmax(~(large <= LARGEST_UNSCALED)))]
            raise DataError(
                f'column "{name}" holds values too large for --scale none', "leave --scale none out"
            )
    tree = learned.tree
    for array in (tree.directions, tree.offsets, tree.pivots, tree.variances):
        if not (np.abs(array) <= LARGEST_LEARNED).all():
            raise UsageError(
                "learning diverged: its steps were too large",
                "use a --clamp, a smaller --rate or --penalty, or a larger --learning-decay",
            )


def with_statistics(model: Model, statistics: Statistics) -> Model:
    """The same tree, counted on other rows."""
    counts, means, squares = statistics.of_nodes()
    rows = model.metadata["rows"] | {"counted": int(counts[0])}
    apart = {} if np.array_equal(counts, model.counts) else {"counted_apart": True}
    return replace(
        model,
        counts=counts,
        means=means,
        sums_of_squares=squares,
        histograms=statistics.histograms,
        extras={k: a for k, a in model.extras.items() if k != "histograms_on_piles"} | _piled(statistics),
        metadata=model.metadata | {"statistics": "recounted", "rows": rows} | apart,
    )


def learner_state(model: Model) -> LearnerState:
    """What learning goes on from. Where the model's arrays were recounted, the rows counted are the window
    under way.

    Raises
    ------
    UsageError
        When the model does not hold it (it is optional in the file).
    """
    leaves = slice(model.n_splits, None)
    zero = np.zeros_like
    counted = int(model.counts[0])
    following = WINDOW_ROWS
    while following <= counted:
        following *= 2
    own = {
        "anchors": np.zeros(model.n_splits),
        "learning_directions": model.directions,
        "learning_pivots": model.pivots,
        "learning_center": model.center,
        "learning_scale": model.scale,
        "fill": np.zeros(model.n_features) if model.params.scale != "none" else model.means[0],
        "window_rows": np.array([counted, following], dtype=np.int64),
        "window_counts": np.stack([zero(model.counts[leaves]), model.counts[leaves]]),
        "window_means": np.stack([zero(model.means[leaves]), model.means[leaves]]),
        "window_squares": np.stack([zero(model.means[leaves]), model.sums_of_squares[leaves]]),
        "window_histograms": np.stack([zero(model.histograms), model.histograms]),
    }
    arrays = own | model.extras
    if not arrays.keys() >= REQUIRED:
        raise UsageError("the model does not hold what learning goes on from", "fit it again, from all data")
    return LearnerState.from_arrays(arrays)
