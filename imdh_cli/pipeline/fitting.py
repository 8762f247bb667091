"""Source and features -> a learned, counted and pruned tree: which passes are made, in which order.

Rows that the shuffle buffer holds are shuffled whole and met as often as asked. More rows stream through
the buffer; where the input can be sought they come from many places at once. `--shuffle none` with one
pass meets the rows as they come: then going on later equals having streamed both.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from imdh_cli import __version__, learning, pruning
from imdh_cli.checkpoint import Checkpoint, Leg, Stage
from imdh_cli.errors import UsageError
from imdh_cli.features import FeatureSpec, Selection, Tally
from imdh_cli.learning import ColumnMoments, Drift, Learner, ShuffleBuffer
from imdh_cli.model import Model
from imdh_cli.order import RowStream, interleave, open_at_once
from imdh_cli.params import FitParams
from imdh_cli.pipeline.reading import OnProgress, Reader, Spool, no_rows
from imdh_cli.pruning import Pruning
from imdh_cli.reprune import choice
from imdh_cli.sources.base import Piece, Source
from imdh_cli.tree import CLIP, Scaling, Statistics, Tree

AGAIN_ROWS = 1_000_000  # up to here a second pass and a recount are worth their time
SEED_ROWS = 1024  # whose moments scale the first rows where no buffer is filled first


@dataclass
class Fit:
    """What `fit` made: the model, how it was pruned, and what became of the rows."""

    model: Model
    pruning: Pruning
    tally: Tally
    passes: int
    recounted: bool
    drifting: list[str] = field(default_factory=list)  # columns whose early and late rows differ


def fit(
    source: Source,
    selection: Selection,
    params: FitParams,
    *,
    threads: int = 1,
    preset: str = "default",
    on_progress: OnProgress | None = None,
    checkpoint: Checkpoint | None = None,
    update: Model | None = None,
) -> Fit:
    """Learn the tree, prune it, make the model.

    Parameters
    ----------
    source : Source
    selection : Selection
        The features, and what was left out.
    params : FitParams
    threads : int
        Reading and levels of the tree are shared among them; the result does not depend on it.
    checkpoint : Checkpoint, optional
        Where the state is written from time to time, and the stage to go on from.
    update : Model, optional
        Go on learning from it; its parameters and features must be these.

    Raises
    ------
    DataError
        When no row can be used.
    UsageError
        When more clusters are asked for than leaves are in use, or a model that is gone on from is
        asked for more than one pass or a recount.
    """
    if update is not None:
        if params.passes not in ("auto", 1) or params.recount == "yes":
            raise UsageError(
                "going on from a model is one pass without a recount: the earlier rows are not there",
                "leave --passes and --recount out, and recount with imdh prune MODEL all of the data",
            )
        params = replace(params, passes=1, recount="no")
    run = _Run(Reader(source, selection.spec, on_progress), params, threads, checkpoint, update)
    run.learn()
    statistics = run.learner.statistics()
    counts, means, squares = statistics.of_nodes()
    chosen = pruning.prune(
        counts, means, squares, run.learner.tree.pivots, statistics.histograms, params.prune
    )
    metadata = _metadata(source, selection, params, preset, run, chosen, int(counts[0]))
    model = _model(run, selection.spec, statistics, chosen, metadata)
    return Fit(model, chosen, run.tally, run.passes, run.recounted, run.drifting)


class _Run:
    """One fit."""

    learner: Learner

    def __init__(
        self,
        reader: Reader,
        params: FitParams,
        threads: int,
        checkpoint: Checkpoint | None,
        update: Model | None,
    ) -> None:
        self.reader = reader
        self.params = params
        self.threads = threads
        self.update = update
        self.d = len(reader.spec.names)
        self.block_rows = learning.block_rows(self.d)
        self.buffer_rows = learning.buffer_rows(params, self.d)
        self.passes = 1
        self.recounted = False
        self.drifting: list[str] = []
        self.tally = Tally()
        self.moments = ColumnMoments(self.d)
        # What an update goes on from, where the model's own arrays have been moved to other coordinates.
        self.learned_state: dict[str, np.ndarray] | None = None
        self._checkpoint = checkpoint
        self._stage = checkpoint.found if checkpoint is not None else None
        self._spool: Spool | None = None

    # -- which passes

    def learn(self) -> None:
        """All passes."""
        rows = self.reader.rows()
        again = self.params.recount == "yes" or self.params.passes not in ("auto", 1)
        if again and not self.reader.source.rereadable:
            self._spool = Spool(self.d)
            rows = self._spool.keep(rows)
        if self.params.shuffle == "none" and self.params.passes == 1:
            self._in_order(RowStream(rows))
            return
        buffer = np.empty((self.buffer_rows, self.d))
        stream = RowStream(rows)
        total = self.reader.source.rows
        mixed = self._pieces() is not None
        if not (mixed and total is not None and total > 4 * self.buffer_rows):
            filled = stream.fill(buffer)
            rest = stream.take(1) if filled == len(buffer) else None
            if rest is None and self.update is None:
                self._in_memory(buffer[:filled])
                return
            if rest is None or not mixed:
                # An update has no second pass to make, so that its rows need not be held.
                self._streaming(buffer[:filled], RowStream(_chain(rest, stream)), mixed=False)
                return
        self.reader.restart("learning")
        stream = RowStream(self._mixed(0))
        filled = stream.fill(buffer)
        if filled < len(buffer) and self.update is None:  # most rows could not be used
            self._in_memory(buffer[:filled])
            return
        self._streaming(buffer[:filled], stream, mixed=True)

    def _in_memory(self, X: np.ndarray) -> None:
        """All rows are here: shuffled whole, met as often as asked."""
        self.tally = self.reader.tally
        if not len(X):
            raise no_rows(self.tally, self.reader.source)
        for k in range(0, len(X), self.block_rows):
            self.moments.add(X[k : k + self.block_rows])
        self._start(self.moments.scaling(self.params.scale))
        self.passes = 2 if self.params.passes == "auto" else self.params.passes
        self.recounted = self.params.recount != "no"
        for number in range(self.passes):
            rng = self._rng(2, number)
            order = np.arange(len(X)) if rng is None else rng.permutation(len(X))
            counting = not self.recounted and number == self.passes - 1
            self._all_of(X, order, (0, number), partial(self.learner.begin_pass, counting=counting))
        if self.recounted:
            self._all_of(X, np.arange(len(X)), (1, 0), self.learner.begin_recount)
        self.learner.finish()

    def _all_of(self, X: np.ndarray, order: np.ndarray, leg: Leg, begin: Callable[[], None]) -> None:
        """One leg over rows in memory."""
        start = self._begin(leg, begin)
        if start is None:
            return
        for k in range(start, len(X), self.block_rows):
            self.learner.meet(X[order[k : k + self.block_rows]])
            self._save(leg, k + self.block_rows, {}, {})

    def _in_order(self, stream: RowStream) -> None:
        """One pass in the order of the input, without a buffer.

        Blocks end where the coordinates and the windows may change, at 1,024 2^k rows and at whole
        blocks: so where an earlier run ended makes no difference to one that goes on.
        """
        leg = (0, 0)
        if not self._later(leg):
            met = self._start_in_order(stream)
            while (X := stream.take(self._until_boundary(met))) is not None:
                self.moments.add(X)
                self.learner.meet(X)
                met += len(X)
                if met & (met - 1) == 0 and met >= 2 * SEED_ROWS:
                    self.learner.re_express(self.moments.scaling(self.params.scale))
                self._save(leg, self.reader_rows(met), self.moments.state(), {})
            self.tally = self.reader.tally
            if not self.tally.used:
                raise no_rows(self.tally, self.reader.source)
            self._end_of_only_pass()
        else:
            self._take_up_later(stream)
        self._recount_if_worth()
        self.learner.finish()

    def reader_rows(self, met: int) -> int:
        """Rows of this run's input met so far, of all the rows the tree has met."""
        return met - self._met_before

    def _start_in_order(self, stream: RowStream) -> int:
        self._met_before = 0
        if self.update is not None:
            state = learning_state(self.update)
            self._go_on_from(state)
            self._met_before = int(state["window_rows"][0])
        stage = self._take(leg := (0, 0))
        if stage is not None:
            if self.update is None:
                self._start(_scaling(stage.arrays, self.params))
            self.learner.begin_pass(counting=True, reading=True)
            self.learner.restore(stage.arrays)
            self.moments.restore(stage.arrays)
            self._skip(stream, stage.values["rows"])
            return self._met_before + int(stage.values["rows"])
        if self.update is not None:
            self.learner.begin_pass(counting=True, reading=True)
            self.learner.restore(learning_state(self.update))
            return self._met_before
        first = stream.take(SEED_ROWS)
        if first is None:
            raise no_rows(self.reader.tally, self.reader.source)
        self.moments.add(first)
        self._start(self.moments.scaling(self.params.scale))
        self.learner.begin_pass(counting=True, reading=True)
        for k in range(0, len(first), self.block_rows):
            self.learner.meet(first[k : k + self.block_rows])
        self._save(leg, len(first), self.moments.state(), {})
        return len(first)

    def _until_boundary(self, met: int) -> int:
        to_block = self.block_rows - met % self.block_rows
        boundary = SEED_ROWS
        while boundary <= met:
            boundary *= 2
        return min(to_block, boundary - met)

    def _streaming(self, buffer: np.ndarray, stream: RowStream, *, mixed: bool) -> None:
        """Rows through the shuffle buffer; a second pass and a recount where they are worth it."""
        params = self.params
        if not self._later((0, 0)):
            self._first_pass(buffer, stream, mixed)
        else:
            self._take_up_later(stream)
        worth = self._worth_again()
        self.passes = (2 if worth else 1) if params.passes == "auto" else params.passes
        recount = worth if params.recount == "auto" else params.recount == "yes"
        for number in range(1, self.passes):
            counting = not recount and number == self.passes - 1
            self._next_pass(buffer, number, mixed, counting)
        self._recount_if_worth()
        self.learner.finish()

    def _first_pass(self, buffer: np.ndarray, stream: RowStream, mixed: bool) -> None:
        drift = None if mixed or self.params.shuffle == "none" else Drift(self.d)
        if not len(buffer):
            raise no_rows(self.reader.tally, self.reader.source)
        stage = self._take((0, 0))
        shuffle = ShuffleBuffer(buffer, self._rng(2, 0))
        if self.update is not None:
            self._go_on_from(learning_state(self.update))
        before = int(self.moments.count.max())
        if stage is None:
            self._fill_moments(buffer, drift)
        if self.update is None:
            self._start(
                self.moments.scaling(self.params.scale)
                if stage is None
                else _scaling(stage.arrays, self.params)
            )
        self.learner.begin_pass(counting=True, reading=True)
        if self.update is not None:
            self.learner.restore(learning_state(self.update))
        update_at = 2 * (before or len(buffer))
        rows = 0
        if stage is not None:
            self.learner.restore(stage.arrays)
            self.learner.scaling = _scaling(stage.arrays, self.params)
            self.moments.restore(stage.arrays)
            shuffle.restore(stage.arrays, stage.values)
            if drift is not None:
                drift.restore(stage.arrays)
            rows, update_at = int(stage.values["rows"]), int(stage.values["update_at"])
            self._skip(stream, rows)
        unit = min(self.block_rows, len(buffer))
        tail = np.empty((0, self.d))
        for X in stream.blocks(self.block_rows):
            self.moments.add(X)
            if drift is not None:
                drift.add_in_units(X, unit)
            update_at = self._rescale(update_at)
            rows += len(X)
            if len(X) < self.block_rows:
                tail = X
                break
            X = np.require(X, requirements=["C", "W"])
            shuffle.exchange(X)
            self.learner.meet(X)
            self._save_streaming((0, 0), rows, shuffle, drift, update_at)
        self._rescale(update_at)
        for X in shuffle.rest(tail, self.block_rows):
            self.learner.meet(X)
        self.tally = self.reader.tally
        if drift is not None:
            clear = drift.excess() > Drift.CLEAR
            self.drifting = [n for n, c in zip(self.reader.spec.names, clear, strict=True) if c]
        self._end_of_only_pass()

    def _fill_moments(self, buffer: np.ndarray, drift: Drift | None) -> None:
        unit = min(self.block_rows, len(buffer))
        for k in range(0, len(buffer), unit):
            self.moments.add(buffer[k : k + unit])
            if drift is not None:
                drift.add(buffer[k : k + unit])

    def _rescale(self, update_at: int) -> int:
        """Move to the coordinates of all rows so far when there are twice as many; when next."""
        have = int(self.moments.count.max())
        if have < update_at:
            return update_at
        self.learner.re_express(self.moments.scaling(self.params.scale))
        while update_at <= have:
            update_at *= 2
        return update_at

    def _next_pass(self, buffer: np.ndarray, number: int, mixed: bool, counting: bool) -> None:
        """Pass `number` over all rows, whose moments are known by now."""
        leg = (0, number)
        if self._later(leg):
            return
        self.reader.restart(f"pass {number + 1}")
        stream = RowStream(self._mixed(number) if mixed else self._again())
        stream.fill(buffer)
        shuffle = ShuffleBuffer(buffer, self._rng(2, number))
        stage = self._stage
        start = self._begin(leg, lambda: self.learner.begin_pass(counting=counting, reading=True)) or 0
        if start and stage is not None:
            shuffle.restore(stage.arrays, stage.values)
            self._skip(stream, start)
        rows = start
        tail = np.empty((0, self.d))
        for X in stream.blocks(self.block_rows):
            rows += len(X)
            if len(X) < self.block_rows:
                tail = X
                break
            X = np.require(X, requirements=["C", "W"])
            shuffle.exchange(X)
            self.learner.meet(X)
            self._save_streaming(leg, rows, shuffle, None, 0)
        for X in shuffle.rest(tail, self.block_rows):
            self.learner.meet(X)
        self.learner.finish()

    def _end_of_only_pass(self) -> None:
        """Center and scale become those of all rows; what a later run goes on from is kept as it was."""
        self.learner.finish()
        state = self.learner.state()
        self.learned_state = {name: array.copy() for name, array in state.items()}
        self.learner.re_express(self.moments.scaling(self.params.scale))

    def _worth_again(self) -> bool:
        replay = self.reader.source.rereadable or self._spool is not None
        return self.update is None and replay and self.tally.used <= AGAIN_ROWS

    def _recount_if_worth(self) -> None:
        recount = self.params.recount
        self.recounted = self._worth_again() if recount == "auto" else recount == "yes"
        if not self.recounted:
            return
        self.reader.restart("counting")
        start = self._begin((1, 0), self.learner.begin_recount) or 0
        stream = RowStream(self._again())
        self._skip(stream, start)
        for X in stream.blocks(self.block_rows):
            self.learner.meet(X)
            start += len(X)
            self._save((1, 0), start, {}, {})

    # -- rows and coordinates

    def _again(self) -> Iterator[np.ndarray]:
        return self.reader.rows() if self._spool is None else self._spool.rows()

    def _pieces(self) -> list[Piece] | None:
        """The parts of the input that can be met in any order; None where the order is to be kept."""
        if self.params.shuffle != "auto" or not self.reader.source.rereadable:
            return None
        return self.reader.source.pieces(self.reader.spec.source_columns) or None

    def _mixed(self, number: int) -> Iterator[np.ndarray]:
        """Pass `number` over the pieces, in a random order of its own."""
        pieces = self._pieces() or []
        at_once = open_at_once([p.rows for p in pieces], [p.held for p in pieces], self.d)
        reader = self.reader
        return interleave(
            [(p.size, partial(_matrices_of, reader, p)) for p in pieces],
            np.random.default_rng([self.params.seed, 3, number]),
            at_once=at_once,
            run_rows=int(np.clip(self.buffer_rows // (4 * min(at_once, len(pieces))), 1, 256)),
        )

    def _rng(self, what: int, number: int) -> np.random.Generator | None:
        if self.params.shuffle == "none":
            return None
        return np.random.default_rng([self.params.seed, what, number])

    def _start(self, scaling: Scaling) -> None:
        learn = self.params.learn
        tree = Tree.start(learn.depth, self.d, start=learn.start, seed=self.params.seed)
        self.learner = Learner(tree, scaling, self.params, self.threads)

    def _go_on_from(self, state: Mapping[str, np.ndarray]) -> None:
        """A learner with the tree, the coordinates and the column moments of a model."""
        self._start(_scaling(state, self.params))
        self.moments.restore(state)

    @staticmethod
    def _skip(stream: RowStream, rows: int) -> None:
        while rows > 0 and (X := stream.take(min(rows, 65536))) is not None:
            rows -= len(X)

    # -- checkpoints

    def _later(self, leg: Leg) -> bool:
        """Did the run that is gone on from end in a later leg than this one?"""
        return self._stage is not None and self._stage.leg > leg

    def _take(self, leg: Leg) -> Stage | None:
        """The stage to go on from if it lies in this leg; once."""
        if self._stage is None or self._stage.leg != leg:
            return None
        stage, self._stage = self._stage, None
        return stage

    def _begin(self, leg: Leg, begin: Callable[[], None]) -> int | None:
        """Begin a leg, at the row to go on from; None where it was ended before."""
        if self._later(leg):
            return None
        stage = self._take(leg)
        if stage is None:
            begin()
            return 0
        self.learner.restore(stage.arrays)  # a recount freezes the tree as it finds it
        begin()
        self.learner.restore(stage.arrays)
        self.learner.scaling = _scaling(stage.arrays, self.params)
        return int(stage.values["rows"])

    def _take_up_later(self, stream: RowStream) -> None:
        """Go on after the first pass: what it left is in the stage."""
        stage = self._stage
        assert stage is not None
        if self._spool is not None:  # its rows went with the process: they are read into another one
            for _ in stream.blocks(self.block_rows):
                pass
        self._start(_scaling(stage.arrays, self.params))
        self.moments.restore(stage.arrays)
        self.tally = Tally(**stage.values["tally"])
        self.drifting = list(stage.values["drifting"])
        if "kept_rows" in stage.arrays:
            kept = {n.removeprefix("kept_"): a for n, a in stage.arrays.items() if n.startswith("kept_")}
            kept.pop("rows")
            self.learned_state = kept

    def _save(self, leg: Leg, rows: int, arrays: Mapping[str, np.ndarray], values: dict[str, Any]) -> None:
        """Write a checkpoint if it is time."""
        if self._checkpoint is None or not self._checkpoint.due():
            return
        everything = {**self.learner.state(), **self.moments.state(), **arrays}
        if leg > (0, 0) and self.learned_state is not None:
            everything |= {f"kept_{name}": array for name, array in self.learned_state.items()}
            everything["kept_rows"] = np.array(rows)
        told = {"rows": rows, "tally": asdict(self.tally), "drifting": self.drifting, **values}
        self._checkpoint.save(leg, told, everything)

    def _save_streaming(
        self, leg: Leg, rows: int, shuffle: ShuffleBuffer, drift: Drift | None, update_at: int
    ) -> None:
        if self._checkpoint is None or not self._checkpoint.due():
            return
        arrays, values = shuffle.state()
        if drift is not None:
            arrays |= drift.state()
        self._save(leg, rows, arrays, {**values, "update_at": update_at})


def _matrices_of(reader: Reader, piece: Piece) -> Iterator[np.ndarray]:
    return reader.matrices(piece.chunks())


def _chain(first: np.ndarray | None, rest: RowStream) -> Iterator[np.ndarray]:
    if first is not None:
        yield first
        yield from rest.blocks(65536)


def _scaling(state: Mapping[str, np.ndarray], params: FitParams) -> Scaling:
    """The coordinates in a learner's state."""
    limit = np.inf if params.scale == "none" else CLIP
    return Scaling(
        state["learning_center"].copy(), state["learning_scale"].copy(), state["fill"].copy(), limit
    )


def learning_state(model: Model) -> dict[str, np.ndarray]:
    """What learning goes on from, of a model; as `Learner.state` and `ColumnMoments.state` have it.

    Where the model's arrays were recounted, the rows counted are the window under way.

    Raises
    ------
    UsageError
        When the model does not hold it (it is optional in the file).
    """
    x = model.extras
    needed = ("learned_counts", "mean_squares", "learned_offsets", "variances", "column_counts")
    if any(name not in x for name in needed):
        raise UsageError("the model does not hold what learning goes on from", "fit it again, from all data")
    leaves = slice(model.n_splits, None)
    zero = np.zeros_like
    counted = int(model.counts[0])
    following = learning.WINDOW_ROWS
    while following <= counted:
        following *= 2
    windows = {
        "window_rows": np.array([counted, following], dtype=np.int64),
        "window_counts": np.stack([zero(model.counts[leaves]), model.counts[leaves]]),
        "window_means": np.stack([zero(model.means[leaves]), model.means[leaves]]),
        "window_squares": np.stack([zero(model.means[leaves]), model.sums_of_squares[leaves]]),
        "window_histograms": np.stack([zero(model.histograms), model.histograms]),
    }
    own = {
        "learning_directions": model.directions,
        "learning_pivots": model.pivots,
        "learning_center": model.center,
        "learning_scale": model.scale,
        "fill": np.zeros(model.n_features) if model.params.scale != "none" else model.means[0],
    }
    return windows | own | dict(x)


def _metadata(
    source: Source,
    selection: Selection,
    params: FitParams,
    preset: str,
    run: _Run,
    chosen: Pruning,
    counted: int,
) -> dict[str, Any]:
    """What the model says of itself: nothing that depends on time, threads or folders."""
    tally = run.tally
    how = "recounted" if run.recounted else "windowed" if run.passes == 1 else "last pass"
    inputs = [_base_name(part.name) for part in source.parts]
    rows = {"read": tally.rows, "used": tally.used, "skipped": tally.skipped, "bad": tally.bad}
    cells = {"missing": tally.missing, "infinite": tally.infinite, "unseen": tally.unseen}
    if run.update is not None:
        old = run.update.metadata
        inputs = [*old["inputs"], *inputs]
        rows = {name: n + old["rows"][name] for name, n in rows.items()}
        cells = {
            kind: {c: n.get(c, 0) + old[kind].get(c, 0) for c in {**old[kind], **n}}
            for kind, n in cells.items()
        }
    return {
        "program": "imdh",
        "version": __version__,
        "parameters": params.to_dict(),
        "preset": preset,
        "features": selection.spec.to_dict(),
        "left_out_columns": [list(pair) for pair in selection.left_out],
        "id_columns": list(selection.ids),
        "rows": rows | {"counted": counted},
        **cells,
        "statistics": how,
        "passes": run.passes,
        "choice": choice(chosen, params.prune),
        "inputs": inputs,
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
            "pyarrow": pa.__version__,
        },
        "notes": [f"early and late rows differ in {name}" for name in run.drifting],
    }


def _base_name(path: str) -> str:
    """A path's last part; bytes in it that are no UTF-8, which no JSON holds, as U+FFFD."""
    base = path.rstrip("/").rsplit("/", 1)[-1]
    return base.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _model(
    run: _Run, spec: FeatureSpec, statistics: Statistics, chosen: Pruning, metadata: dict[str, Any]
) -> Model:
    learner, tree = run.learner, run.learner.tree
    thresholds, offsets = tree.frozen()
    counts, means, squares = statistics.of_nodes()
    extras = dict(run.moments.state())
    if run.learned_state is not None:
        extras |= run.learned_state
    else:
        state = learner.state()
        own = {"learning_directions", "learning_pivots", "learning_center", "learning_scale"}
        extras |= {
            name: array
            for name, array in state.items()
            if name not in own and not (run.recounted and name.startswith("window_"))
        }
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
        extras=extras,
    )
