"""The second pass: matrices -> labels by a model's tree, batches -> a sink, row by row in their order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from imdh_cli.compiled import kernel
from imdh_cli.core import pruning
from imdh_cli.features import Tally, extract
from imdh_cli.model import Model
from imdh_cli.model.walk import labels_of_leaves
from imdh_cli.params import AssignParams, Missing
from imdh_cli.pipeline.feature_rows import OnProgress, Progress, name_of
from imdh_cli.sources.base import Chunk, Source
from imdh_cli.workers import Workers, in_order

BLOCK_ROWS = 8192  # standardised at a time
# What is written, what was read, rows of -1 and of each cluster.
Labelled = tuple[pa.RecordBatch, Tally, np.ndarray]
WRITES = 5  # batches that are written or wait for it while the next one is labelled
PATIENCE = 3.0  # seconds for a write under way when the run is interrupted


class SinkLike(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...


@dataclass
class Assigned:
    """What became of the rows.

    sizes : (K + 1,) rows that each cluster got, the first being label -1. then : (K,) rows that the model
    counted in each. names : K of them, as people call the clusters.
    """

    tally: Tally
    sizes: np.ndarray
    then: np.ndarray
    names: list[str | None]


EXTRA_TYPES = {
    "node": pa.int64(),
    "leaf": pa.int64(),
    "margin": pa.float64(),
    "distance": pa.float64(),
    "runner_up": pa.int32(),
    "path": pa.string(),
}


class Labeller:
    """Matrix -> labels, and where asked the columns of EXTRA_TYPES, by a model's tree, in any thread."""

    def __init__(self, model: Model, clusters: int | None, extra: tuple[str, ...] = ()) -> None:
        labels = labels_of_leaves(model, clusters)
        self.extra = extra
        self._model = model
        self._scaling = model.scaling
        self.n_clusters = int(labels[-1])
        leaf_rows = model.counts[model.n_splits :]
        self.rows_then = np.bincount(labels, weights=leaf_rows, minlength=self.n_clusters + 1)[1:]
        self._label, stop = pruning.labels_of_nodes(labels)
        self._cluster_node = pruning.cluster_nodes(labels, model.counts)
        self.names = model.names_of(self._cluster_node)
        self._centres = model.means[self._cluster_node - 1]
        leaves = np.zeros(model.n_nodes, dtype=np.bool_)
        leaves[model.n_splits :] = True
        self._leaves = leaves
        self._stop = stop
        self._work = threading.local()  # Z and clipped, of each thread
        self._none = np.empty(0)
        self._paths = _paths(self._stop) if "path" in extra else None

    def __call__(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """cluster (rows,) int32, and the extra columns, for X (rows, d) float64.

        A runner_up of 0 is none: no cut parts the row's cluster from another. Beside EXTRA_TYPES there is
        `border`, how far that cut is in projected sds, inf where there is none.
        """
        model, rows = self._model, len(X)
        node = np.empty(rows, dtype=np.int64)
        margin = np.empty(rows) if "margin" in self.extra else self._none
        leaf = np.empty(rows, dtype=np.int64) if "leaf" in self.extra else None
        distance = np.empty(rows) if "distance" in self.extra else None
        other = np.empty(rows, dtype=np.int64) if {"runner_up", "border"} & {*self.extra} else None
        gap = np.empty(rows if other is not None else 0)
        s = self._scaling
        work = self._work
        if not hasattr(work, "Z"):
            work.Z, work.clipped = np.empty((BLOCK_ROWS, X.shape[1])), np.empty(BLOCK_ROWS, dtype=np.bool_)
        for k in range(0, rows, BLOCK_ROWS):
            here = slice(k, min(rows, k + BLOCK_ROWS))
            Z = work.Z[: here.stop - k]
            kernel.standardise(X[here], s.center, s.scale, s.fill, s.limit, Z, work.clipped[: here.stop - k])
            tree = (model.directions, model.thresholds, model.projection_sd)
            kernel.descend(Z, self._stop, *tree, node[here], margin[here] if len(margin) else self._none)
            if leaf is not None:
                kernel.descend(Z, self._leaves, *tree, leaf[here], self._none)
            if other is not None:
                kernel.second_choice(Z, node[here], self._label, *tree, other[here], gap[here])
            if distance is not None:
                centres = self._centres[self._label[node[here] - 1] - 1]
                distance[here] = np.sqrt(((Z - centres) ** 2).sum(axis=1))
        cluster = self._label[node - 1]
        out = {"cluster": cluster}
        values = {
            "node": self._cluster_node[cluster - 1],
            "leaf": leaf,
            "margin": margin,
            "distance": distance,
            "runner_up": None if other is None else np.where(other > 0, self._label[other - 1], np.int32(0)),
            "border": gap,
            "path": None if self._paths is None else self._paths[node - 1],
        }
        return out | {name: values[name] for name in self.extra}


def _paths(stop: np.ndarray) -> np.ndarray:
    """(n,) object: the nodes from the root to each node at which rows stop, `1/3/6`; None elsewhere."""
    paths = np.full(len(stop), None, dtype=object)
    waiting = [(1, "1")]
    while waiting:
        node, path = waiting.pop()
        if stop[node - 1]:
            paths[node - 1] = path
        else:
            waiting += [(child, f"{path}/{child}") for child in (2 * node, 2 * node + 1)]
    return paths


def label_schema(params: AssignParams, kept: pa.Schema) -> pa.Schema:
    """The columns that `assign` writes: what is kept, the label, its name, the extra ones."""
    types = [
        pa.int32(),
        *([pa.string()] if params.names else []),
        *(EXTRA_TYPES[name] for name in params.extra),
    ]
    return pa.schema([*kept, *map(pa.field, params.columns, types)])


class ChunkLabeller:
    """Chunk of a source -> what `label_schema` has, in any thread."""

    def __init__(self, model: Model, source: Source, params: AssignParams, missing: Missing | None) -> None:
        self.spec = model.spec if missing is None else replace(model.spec, missing=missing)
        self.labeller = Labeller(model, params.clusters, params.extra)
        self._params = params
        self._schema = label_schema(params, source.kept_schema(params.keep))
        self._names = pa.array([None, *self.labeller.names], pa.string())
        self._source_name = name_of(source)
        self._work = threading.local()  # X, of each thread

    def __call__(self, chunk: Chunk, first_row: int) -> Labelled:
        params, read, rows = self._params, Tally(), chunk.features.num_rows
        if rows > len(getattr(self._work, "X", ())):
            self._work.X = np.empty((rows, len(self.spec.names)))
        X, used = extract(
            chunk,
            self.spec,
            read,
            first_row=first_row,
            source_name=self._source_name,
            room=self._work.X,
        )
        columns = self.labeller(X)
        lost = None if used.all() else ~used
        if lost is not None:
            columns["cluster"][lost] = -1
        known = np.maximum(columns["cluster"], 0)
        arrays = list(chunk.kept.columns) if chunk.kept is not None else []
        # `pa.array` of an array imports numpy.ma, to ask whether it is masked, which takes 0.015 s.
        whole = [None, pa.py_buffer(columns["cluster"])]
        arrays.append(pa.Array.from_buffers(pa.int32(), rows, whole))
        if params.names:
            arrays.append(self._names.take(pa.array(known)))
        arrays += [_array(extra, columns[extra], lost) for extra in params.extra]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch, read, np.bincount(known, minlength=self.labeller.n_clusters + 1)


def assign(
    model: Model,
    source: Source,
    sink: SinkLike,
    params: AssignParams,
    *,
    missing: Missing | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Assigned:
    """Label every row; row i written is row i read, -1 where a row cannot be used.

    One thread reads, `threads` make matrices and label them, one writes; bytes do not depend on how many.
    """
    label = ChunkLabeller(model, source, params, missing)
    tally, labeller = Tally(), label.labeller
    sizes = np.zeros(labeller.n_clusters + 1, dtype=np.int64)

    def tasks() -> Iterator[Callable[[], Labelled]]:
        rows = 0
        for chunk in source.chunks(label.spec.source_columns, params.keep):
            yield partial(label, chunk, rows)
            rows += chunk.features.num_rows

    def counted(made: Iterable[Labelled]) -> Iterator[pa.RecordBatch]:
        nonlocal tally
        for batch, read, clusters in made:
            tally += read
            sizes[:] += clusters
            yield batch
            if on_progress is not None:
                on_progress(Progress("labelling", tally.rows, source.rows, source.bytes_read, source.size))

    if threads == 1:
        for batch in counted(task() for task in tasks()):
            sink.write(batch)
    else:
        with (
            Workers(threads, "label") as labellers,
            Workers(1, "writer", PATIENCE) as writer,
            closing(in_order(labellers, tasks(), threads + 1)) as made,
        ):
            writing = (partial(sink.write, batch) for batch in counted(made))
            with closing(in_order(writer, writing, WRITES)) as written:
                for _ in written:
                    pass
    return Assigned(tally, sizes, labeller.rows_then, labeller.names)


def _array(name: str, values: np.ndarray, lost: np.ndarray | None) -> pa.Array:
    """A column of EXTRA_TYPES; null where there is no value."""
    if name == "runner_up":
        lost = values == 0 if lost is None else lost | (values == 0)
    return pa.array(values, EXTRA_TYPES[name], mask=lost)
