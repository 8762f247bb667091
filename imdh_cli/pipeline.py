"""Sources -> features -> learning -> pruning -> model; and sources -> features -> labels -> sinks.

The passes over the data. Opens no file and prints nothing: it is handed sources and sinks, and tells how
far it is through a callback.
"""

from __future__ import annotations

import platform
import queue
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol

import numba
import numpy as np
import pyarrow as pa

from imdh_cli import __version__, kernel, learning, pruning
from imdh_cli.errors import DataError, UsageError
from imdh_cli.features import FeatureSpec, Selection, Tally, extract
from imdh_cli.learning import ColumnMoments, Drift, Learner, ShuffleBuffer
from imdh_cli.model import Model
from imdh_cli.order import RowStream, interleave, open_at_once
from imdh_cli.params import FitParams
from imdh_cli.pruning import Pruning
from imdh_cli.reprune import choice
from imdh_cli.sources.base import Chunk, Source
from imdh_cli.tree import CLIP, Scaling, Statistics, Tree

AGAIN_ROWS = 1_000_000  # up to here a second pass and a recount are worth their time
DEEP_ROWS = 8192  # rows that `assign` standardises at a time


class SinkLike(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...


@dataclass(frozen=True)
class Progress:
    """Where a pass is. rows: read in this pass. read, size: bytes, size None where unknown."""

    task: str
    rows: int
    total_rows: int | None
    read: int
    size: int | None


OnProgress = Callable[[Progress], None]


@dataclass
class Fit:
    """What `fit` made: the model, how it was pruned, and what became of the rows."""

    model: Model
    pruning: Pruning
    tally: Tally
    passes: int
    recounted: bool
    drifting: list[str] = field(default_factory=list)  # columns whose early and late rows differ


class _Reader:
    """The used rows of a source as matrices, counted, with progress."""

    def __init__(self, source: Source, spec: FeatureSpec, on_progress: OnProgress | None) -> None:
        self.source = source
        self.spec = spec
        self.tally = Tally()
        self._on_progress = on_progress
        self.task = "learning"

    def restart(self, task: str) -> None:
        self.tally = Tally()
        self.task = task

    def rows(self) -> Iterator[np.ndarray]:
        """All used rows in input order."""
        return self.matrices(self.source.chunks(self.spec.source_columns))

    def matrices(self, chunks: Iterable[Chunk]) -> Iterator[np.ndarray]:
        name = self.source.parts[0].name if self.source.parts else "data"
        for chunk in chunks:
            X, used = extract(chunk, self.spec, self.tally, first_row=self.tally.rows, source_name=name)
            if self._on_progress is not None:
                s = self.source
                self._on_progress(Progress(self.task, self.tally.rows, s.rows, s.bytes_read, s.size))
            yield X if used.all() else X[used]


class _Spool:
    """Rows of a stream kept in a temporary file that has no name, to be met again."""

    def __init__(self, d: int) -> None:
        self._file: BinaryIO = tempfile.TemporaryFile(prefix="imdh-")  # type: ignore[assignment]  # noqa: SIM115
        self._d = d

    def keep(self, matrices: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for X in matrices:
            self._file.write(np.ascontiguousarray(X).data)
            yield X

    def rows(self) -> Iterator[np.ndarray]:
        self._file.seek(0)
        while True:
            X = np.fromfile(self._file, dtype=np.float64, count=8192 * self._d)
            if not len(X):
                return
            yield X.reshape(-1, self._d)


def fit(
    source: Source,
    selection: Selection,
    params: FitParams,
    *,
    threads: int = 1,
    preset: str = "default",
    on_progress: OnProgress | None = None,
) -> Fit:
    """Learn the tree, prune it, make the model.

    Parameters
    ----------
    source : Source
        Anything with `chunks`, `pieces`, `rows`, `rereadable` and `parts`.
    selection : Selection
        The features, and what was left out.
    params : FitParams
    threads : int
        Levels of the tree are shared among them; the result does not depend on it.

    Raises
    ------
    DataError
        When no row can be used.
    UsageError
        When more clusters are asked for than leaves are in use.
    """
    reader = _Reader(source, selection.spec, on_progress)
    run = _Run(reader, params, threads)
    run.learn()
    learner, tally = run.learner, run.tally
    statistics = learner.statistics()
    counts, means, squares = statistics.of_nodes()
    chosen = pruning.prune(counts, means, squares, learner.tree.pivots, statistics.histograms, params.prune)
    how = "recounted" if run.recounted else "windowed" if run.passes == 1 else "last pass"
    metadata = _metadata(source, selection, params, preset, tally, run, chosen, int(counts[0]), how)
    model = _model(learner, selection.spec, statistics, chosen, metadata)
    return Fit(model, chosen, tally, run.passes, run.recounted, run.drifting)


class _Run:
    """One fit: which passes are made over what, and in which order the rows are met."""

    def __init__(self, reader: _Reader, params: FitParams, threads: int) -> None:
        self.reader = reader
        self.params = params
        self.threads = threads
        self.d = len(reader.spec.names)
        self.block_rows = learning.block_rows(self.d)
        self.buffer_rows = learning.buffer_rows(params, self.d)
        self.passes = 0
        self.recounted = False
        self.drifting: list[str] = []
        self.tally = Tally()
        self._moments = ColumnMoments(self.d)
        self._spool: _Spool | None = None
        self.learner: Learner

    def learn(self) -> None:
        """All passes."""
        source = self.reader.source
        again = self.params.recount == "yes" or (self.params.passes != "auto" and self.params.passes > 1)
        rows = self.reader.rows()
        if again and not source.rereadable:
            self._spool = _Spool(self.d)
            rows = self._spool.keep(rows)
        buffer = np.empty((self.buffer_rows, self.d))
        known_to_be_large = source.rows is not None and source.rows > 4 * self.buffer_rows
        stream = RowStream(rows)
        if not (known_to_be_large and self._pieces() is not None):
            filled = stream.fill(buffer)
            if filled < len(buffer) or (rest := stream.take(1)) is None:
                self._in_memory(buffer[:filled])
                return
            stream = RowStream(_chain(rest, stream.blocks(self.block_rows)))
            if self._pieces() is not None:
                self.reader.restart("learning")
                stream = RowStream(self._mixed(0))
                filled = stream.fill(buffer)
        else:
            stream = RowStream(self._mixed(0))
            filled = stream.fill(buffer)
            if filled < len(buffer):  # most rows could not be used
                self._in_memory(buffer[:filled])
                return
        self._streaming(buffer, stream)

    def _pieces(self) -> Any:
        """The parts of the input that can be met in any order; None where the order is to be kept."""
        if self.params.shuffle != "auto" or not self.reader.source.rereadable:
            return None
        return self.reader.source.pieces(self.reader.spec.source_columns)

    def _rng(self, what: int, number: int) -> np.random.Generator | None:
        if self.params.shuffle == "none":
            return None
        return np.random.default_rng([self.params.seed, what, number])

    def _mixed(self, number: int) -> Iterator[np.ndarray]:
        """Pass `number` over the pieces, in a random order of its own."""
        pieces = self._pieces()
        at_once = open_at_once([p.rows for p in pieces], [p.held for p in pieces], self.d)
        reader = self.reader
        return interleave(
            [(p.size, lambda p=p: reader.matrices(p.chunks())) for p in pieces],
            np.random.default_rng([self.params.seed, 3, number]),
            at_once=at_once,
            run_rows=int(np.clip(self.buffer_rows // (4 * min(at_once, len(pieces))), 8, 256)),
        )

    def _start(self, scaling: Scaling) -> None:
        learn = self.params.learn
        tree = Tree.start(learn.depth, self.d, start=learn.start, seed=self.params.seed)
        self.learner = Learner(tree, scaling, self.params, self.threads)

    def _in_memory(self, X: np.ndarray) -> None:
        """All rows are here: shuffled whole, met as often as asked."""
        self.tally = self.reader.tally
        if not len(X):
            raise _no_rows(self.tally, self.reader.source)
        for k in range(0, len(X), self.block_rows):
            self._moments.add(X[k : k + self.block_rows])
        self._start(self._moments.scaling(self.params.scale))
        self.passes = 2 if self.params.passes == "auto" else self.params.passes
        self.recounted = self.params.recount != "no"
        for number in range(self.passes):
            self.learner.begin_pass(counting=not self.recounted and number == self.passes - 1)
            rng = self._rng(2, number)
            order = None if rng is None else rng.permutation(len(X))
            for k in range(0, len(X), self.block_rows):
                rows = slice(k, k + self.block_rows)
                self.learner.meet(X[rows] if order is None else X[order[rows]])
        if self.recounted:
            self.learner.begin_recount()
            for k in range(0, len(X), self.block_rows):
                self.learner.meet(X[k : k + self.block_rows])
        self.learner.finish()

    def _streaming(self, buffer: np.ndarray, stream: RowStream) -> None:
        """More rows than the buffer holds: one pass over the source, and others where they are worth it."""
        source, params = self.reader.source, self.params
        mixed = self._pieces() is not None
        drift = None if mixed or params.shuffle == "none" else Drift(self.d)
        self._first_pass(buffer, stream, drift)
        self.tally = self.reader.tally
        replay = source.rereadable or self._spool is not None
        worth = replay and self.tally.used <= AGAIN_ROWS
        self.passes = (2 if worth else 1) if params.passes == "auto" else params.passes
        self.recounted = worth if params.recount == "auto" else params.recount == "yes"
        if drift is not None:
            self.drifting = [
                name
                for name, share in zip(self.reader.spec.names, drift.excess(), strict=True)
                if share > Drift.CLEAR
            ]
        for number in range(1, self.passes):
            self.reader.restart(f"pass {number + 1}")
            rows = RowStream(self._mixed(number) if mixed else self._again())
            rows.fill(buffer)
            self.learner.begin_pass(counting=not self.recounted and number == self.passes - 1, reading=True)
            self._through(ShuffleBuffer(buffer, self._rng(2, number)), rows, None)
        if self.recounted:
            self.reader.restart("counting")
            self.learner.begin_recount()
            for X in RowStream(self._again()).blocks(self.block_rows):
                self.learner.meet(X)
        self.learner.finish()

    def _again(self) -> Iterator[np.ndarray]:
        return self.reader.rows() if self._spool is None else self._spool.rows()

    def _first_pass(self, buffer: np.ndarray, stream: RowStream, drift: Drift | None) -> None:
        unit = min(self.block_rows, len(buffer))
        for k in range(0, len(buffer), unit):
            X = buffer[k : k + unit]
            self._moments.add(X)
            if drift is not None:
                drift.add(X)
        self._start(self._moments.scaling(self.params.scale))
        self.learner.begin_pass(counting=True, reading=True)
        update_at = 2 * len(buffer)

        def arrived(X: np.ndarray) -> None:
            nonlocal update_at
            self._moments.add(X)
            if drift is not None:
                for k in range(0, len(X), unit):
                    drift.add(X[k : k + unit])
            if self._moments.count.max() >= update_at:
                self.learner.re_express(self._moments.scaling(self.params.scale))
                while update_at <= self._moments.count.max():
                    update_at *= 2

        self._through(ShuffleBuffer(buffer, self._rng(2, 0)), stream, arrived)
        self.learner.re_express(self._moments.scaling(self.params.scale))

    def _through(
        self,
        shuffle: ShuffleBuffer,
        stream: RowStream,
        arrived: Callable[[np.ndarray], None] | None,
    ) -> None:
        """Rows in through the shuffle buffer and on to the learner, in full blocks."""
        tail = np.empty((0, self.d))
        for X in stream.blocks(self.block_rows):
            if arrived is not None:
                arrived(X)
            if len(X) < self.block_rows:
                tail = X
                break
            X = np.require(X, requirements=["C", "W"])
            shuffle.exchange(X)
            self.learner.meet(X)
        for X in shuffle.rest(tail, self.block_rows):
            self.learner.meet(X)
        self.learner.finish()


def _chain(first: np.ndarray, rest: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    yield first
    yield from rest


def _no_rows(tally: Tally, source: Source) -> DataError:
    name = source.parts[0].name if source.parts else "the input"
    if tally.rows == 0:
        return DataError(f"{name}: no data rows", "a model is learned from rows")
    worst = max(tally.missing | tally.infinite, key=lambda c: tally.missing.get(c, 0), default=None)
    hint = (
        "use --missing mean, or choose columns with -c"
        if worst is None
        else (
            f'column "{worst}" has no number in {tally.missing.get(worst, 0)} of {tally.rows} rows: '
            "leave it out with -x, or use --missing mean"
        )
    )
    return DataError(f"{name}: none of its {tally.rows} rows can be used", hint)


def _metadata(
    source: Source,
    selection: Selection,
    params: FitParams,
    preset: str,
    tally: Tally,
    run: _Run,
    chosen: Pruning,
    counted: int,
    how: str,
) -> dict[str, Any]:
    """What the model says of itself: nothing that depends on the machine's time, threads or folders."""
    return {
        "program": "imdh",
        "version": __version__,
        "parameters": params.to_dict(),
        "preset": preset,
        "features": selection.spec.to_dict(),
        "left_out_columns": [list(pair) for pair in selection.left_out],
        "rows": {
            "read": tally.rows,
            "used": tally.used,
            "skipped": tally.skipped,
            "bad": tally.bad,
            "counted": counted,
        },
        "missing": tally.missing,
        "infinite": tally.infinite,
        "unseen": tally.unseen,
        "statistics": how,
        "passes": run.passes,
        "choice": choice(chosen, params.prune),
        "id_columns": list(selection.ids),
        "inputs": [part.name.rsplit("/", 1)[-1] for part in source.parts],
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
            "pyarrow": pa.__version__,
        },
        "notes": [f"early and late rows differ in {name}" for name in run.drifting],
    }


def _model(
    learner: Learner,
    spec: FeatureSpec,
    statistics: Statistics,
    chosen: Pruning,
    metadata: dict[str, Any],
) -> Model:
    tree = learner.tree
    thresholds, offsets = tree.frozen()
    counts, means, squares = statistics.of_nodes()
    return Model(
        feature_names=list(spec.names),
        center=learner.scaling.center,
        scale=learner.scaling.scale,
        directions=tree.directions,
        thresholds=thresholds,
        offsets=offsets,
        pivots=tree.pivots,
        projection_sd=np.sqrt(tree.variances),
        histograms=statistics.histograms,
        means=means,
        counts=counts,
        sums_of_squares=squares,
        merge_order=chosen.merge_order,
        cluster_of_leaf=chosen.cluster_of_leaf,
        metadata=metadata,
        extras={
            "learned_counts": tree.learned,
            "mean_squares": tree.mean_squares,
            "learned_offsets": tree.offsets,
            "variances": tree.variances,
        },
    )


def scaling_of(model: Model) -> Scaling:
    """The coordinates of a model's tree; a missing cell stands at the training mean."""
    if model.params.scale == "none":
        return Scaling(model.center, model.scale, model.means[0].copy(), np.inf)
    return Scaling(model.center, model.scale, np.zeros(model.n_features), CLIP)


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
    reader = _Reader(source, spec, on_progress)
    reader.task = "counting"
    tree = Tree(
        directions=model.directions,
        pivots=model.pivots,
        learned=model.counts,
        offsets=model.offsets,
        mean_squares=np.zeros(model.n_splits),
        variances=model.projection_sd**2,
    )
    learner = Learner(tree, scaling_of(model), model.params, threads)
    learner.begin_recount(model.thresholds, model.projection_sd)
    for X in RowStream(reader.rows()).blocks(learner.block_rows):
        learner.meet(X)
    learner.finish()
    if not reader.tally.used:
        raise _no_rows(reader.tally, source)
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


@dataclass(frozen=True)
class AssignParams:
    """What `assign` writes beside the label."""

    clusters: int | None = None  # cut at so many, without changing the model
    keep: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # of node, leaf, margin, distance
    name: str = "cluster"


@dataclass
class Assigned:
    """What became of the rows, and how many each cluster got (K + 1,), the first being label -1."""

    tally: Tally
    sizes: np.ndarray


EXTRA_TYPES = {"node": pa.int64(), "leaf": pa.int64(), "margin": pa.float64(), "distance": pa.float64()}


class Labeller:
    """Matrix -> labels, and where asked node, leaf, margin and distance, by a model's tree."""

    def __init__(self, model: Model, clusters: int | None, extra: tuple[str, ...] = ()) -> None:
        counts, min_size = model.counts, model.params.prune.min_size
        self.extra = extra
        self._model = model
        self._scaling = scaling_of(model)
        if clusters is None:
            k, labels = model.n_clusters, model.cluster_of_leaf
        else:
            largest = pruning.largest(model.merge_order, counts, min_size)
            if not 1 <= clusters <= largest:
                raise UsageError(
                    f"{clusters} clusters were asked for, but the model can give 1 to {largest}",
                    f"use -k {min(max(clusters, 1), largest)}",
                )
            k, labels = clusters, pruning.cut(model.merge_order, counts, clusters, min_size)[1]
        self.n_clusters = k
        self._label, stop = pruning.labels_of_nodes(labels)
        self._cluster_node = pruning.cluster_nodes(labels, counts)
        self._centres = model.means[self._cluster_node - 1]
        leaves = np.zeros(model.n_nodes, dtype=np.bool_)
        leaves[model.n_splits :] = True
        self._leaves = leaves
        self._stop = stop
        d = model.n_features
        self._Z = np.empty((DEEP_ROWS, d))
        self._clipped = np.empty(DEEP_ROWS, dtype=np.bool_)
        self._none = np.empty(0)

    def __call__(self, X: np.ndarray) -> dict[str, np.ndarray]:
        """cluster (rows,) int32, and the extra columns, for X (rows, d) float64."""
        model, rows = self._model, len(X)
        node = np.empty(rows, dtype=np.int64)
        margin = np.empty(rows) if "margin" in self.extra else self._none
        leaf = np.empty(rows, dtype=np.int64) if "leaf" in self.extra else None
        distance = np.empty(rows) if "distance" in self.extra else None
        s = self._scaling
        for k in range(0, rows, DEEP_ROWS):
            here = slice(k, min(rows, k + DEEP_ROWS))
            Z = self._Z[: here.stop - k]
            kernel.standardise(X[here], s.center, s.scale, s.fill, s.limit, Z, self._clipped[: here.stop - k])
            tree = (model.directions, model.thresholds, model.projection_sd)
            kernel.descend(Z, self._stop, *tree, node[here], margin[here] if len(margin) else self._none)
            if leaf is not None:
                kernel.descend(Z, self._leaves, *tree, leaf[here], self._none)
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
        }
        return out | {name: values[name] for name in self.extra}


def label_schema(params: AssignParams, kept: pa.Schema) -> pa.Schema:
    """The columns that `assign` writes: what is kept, the label, the extra ones."""
    fields = [*kept, pa.field(params.name, pa.int32())]
    return pa.schema([*fields, *(pa.field(name, EXTRA_TYPES[name]) for name in params.extra)])


def assign(
    model: Model,
    source: Source,
    sink: SinkLike,
    params: AssignParams,
    *,
    missing: str | None = None,
    threads: int = 1,
    on_progress: OnProgress | None = None,
) -> Assigned:
    """Label every row; row i written is row i read, -1 where a row cannot be used."""
    spec = model.spec if missing is None else replace(model.spec, missing=missing)
    labeller = Labeller(model, params.clusters, params.extra)
    schema = label_schema(params, source.kept_schema(params.keep))
    tally = Tally()
    sizes = np.zeros(labeller.n_clusters + 1, dtype=np.int64)
    name = source.parts[0].name if source.parts else "data"
    with _Writer(sink, threads) as writer:
        for chunk in source.chunks(spec.source_columns, params.keep):
            X, used = extract(chunk, spec, tally, first_row=tally.rows, source_name=name)
            columns = labeller(X)
            lost = None if used.all() else ~used
            if lost is not None:
                columns["cluster"][lost] = -1
            sizes += np.bincount(np.maximum(columns["cluster"], 0), minlength=len(sizes))
            arrays = list(chunk.kept.columns) if chunk.kept is not None else []
            arrays.append(pa.array(columns["cluster"]))
            arrays += [pa.array(columns[extra], mask=lost) for extra in params.extra]
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
            if on_progress is not None:
                on_progress(Progress("labelling", tally.rows, source.rows, source.bytes_read, source.size))
    return Assigned(tally, sizes)


class _Writer:
    """A sink behind a thread and a short queue, so that writing and reading overlap."""

    def __init__(self, sink: SinkLike, threads: int) -> None:
        self._sink = sink
        self._threaded = threads > 1
        self._queue: queue.Queue[pa.RecordBatch | None] = queue.Queue(maxsize=4)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True, name="writer")

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            if self._error is None:
                try:
                    self._sink.write(batch)
                except BaseException as error:  # raised again by `write` or at the end
                    self._error = error

    def __enter__(self) -> _Writer:
        if self._threaded:
            self._thread.start()
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._threaded:
            self._sink.write(batch)
            return
        if self._error is not None:
            raise self._error
        self._queue.put(batch)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._threaded:
            return
        self._queue.put(None)
        self._thread.join()
        if kind is None and self._error is not None:
            raise self._error
