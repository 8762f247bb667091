"""Rows in memory -> a model, and its labels, by the package's functions in this process.

A fit of 10,000 rows takes less than starting a command does, so that many seeds and draws can be measured.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa

from imdh_cli import features
from imdh_cli.compiled import kernel
from imdh_cli.core import pruning
from imdh_cli.errors import UsageError
from imdh_cli.model import Model
from imdh_cli.params import FeatureParams, FitParams, SourceParams
from imdh_cli.pipeline.fit import Fit, fit
from imdh_cli.pipeline.prune import reprune
from imdh_cli.sources import open_source
from tests.benchmarks import common


def fit_rows(X: np.ndarray, params: FitParams) -> Fit:
    """What `imdh fit` makes of rows (n, d), in one thread."""
    table = pa.table({f"x{j}": column for j, column in enumerate(np.ascontiguousarray(X.T))})
    with common.scratch_folder() as folder:
        path = f"{folder}/rows.arrow"
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        with closing(open_source([path], SourceParams())) as source:
            return fit(source, features.select_features(source, FeatureParams()), params)


def labels(model: Model, X: np.ndarray) -> np.ndarray:
    """The cluster of each row, (n,) int32, as `imdh assign` gives it."""
    label, stop = pruning.labels_of_nodes(model.cluster_of_leaf)
    node = np.empty(len(X), dtype=np.int64)
    Z = np.ascontiguousarray(model.scaling.apply(X))
    kernel.descend(Z, stop, model.directions, model.thresholds, model.projection_sd, node, np.empty(0))
    return label[node - 1]


def with_clusters(model: Model, k: int) -> Model:
    """The model pruned to k clusters, or as many as its tree has leaves in use."""
    prune = model.params.prune
    try:
        return reprune(model, replace(prune, clusters=k))[0]
    except UsageError:
        return reprune(model, replace(prune, clusters=pruning.largest(model.merge_order, model.counts)))[0]
