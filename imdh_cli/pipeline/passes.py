"""The passes of one fit: over what, in which order the rows are met, and where one that was stopped goes on.

Rows that the shuffle buffer holds are shuffled whole and met as often as asked. More rows stream through
the buffer; where the input can be sought they come from many places at once. `--shuffle none` with one
pass meets the rows as they come: then going on later equals having streamed both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from imdh_cli.core import learner as learner_module
from imdh_cli.core.columns import ColumnProfile, Drift
from imdh_cli.core.learner import Learner, ShuffleBuffer
from imdh_cli.core.tree import CLIP, Scaling, Tree
from imdh_cli.errors import UsageError
from imdh_cli.features import Tally
from imdh_cli.model import Model
from imdh_cli.params import FitParams
from imdh_cli.pipeline.checkpoint import Checkpoint, Leg, Stage
from imdh_cli.pipeline.reading import Reader, Spool, no_rows
from imdh_cli.rows.prefetch import prefetch_in
from imdh_cli.rows.shuffle import RowStream, interleave, open_at_once
from imdh_cli.sources.base import Fragment

AGAIN_ROWS = 1_000_000  # up to here a second pass and a recount are worth their time
FEW_ROWS = 200_000  # up to here four passes are; with sixteen, noise in many columns looks like clusters
SEED_ROWS = 1024  # whose moments scale the first rows where no buffer is filled first


class Run:
    """One fit: `learn` makes all passes, then `learner` holds the tree and its statistics."""

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
        self.block_rows = learner_module.block_rows(self.d)
        self.buffer_rows = learner_module.buffer_rows(params, self.d)
        self.passes = 1
        self.recounted = False
        self.drifting: list[str] = []
        self.tally = Tally()
        self.columns = ColumnProfile(self.d)
        # What an update goes on from, where the model's own arrays have been moved to other coordinates.
        self.learned_state: dict[str, np.ndarray] | None = None
        self._checkpoint = checkpoint
        self._stage = checkpoint.found if checkpoint is not None else None
        self._spool: Spool | None = None
        self._drift: Drift | None = None
        self._unit = self.block_rows  # rows of a block for drift
        self._rescale_at = 0  # rows at which the coordinates are moved next
        self._met_before = 0  # rows that the model gone on from had met

    # -- which passes

    def learn(self) -> None:
        """All passes."""
        try:
            self._learn()
        finally:
            if self._spool is not None:
                self._spool.close()

    def _learn(self) -> None:
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
        del rows  # a reader that is done with is to be let go of
        fragments = self._fragments()
        mixed = fragments is not None
        if fragments is None or _rows(fragments) <= self.buffer_rows:
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
            self.columns.add(X[k : k + self.block_rows])
        self._start(self.columns.scaling(self.params.scale))
        self.passes = passes_worth(len(X)) if self.params.passes == "auto" else self.params.passes
        self.recounted = self.params.recount != "no"
        for number in range(self.passes):
            rng = self._rng(2, number)
            order = np.arange(len(X)) if rng is None else rng.permutation(len(X))
            begin = partial(self.learner.begin_pass, number, counting=self._counts(number, self.recounted))
            self._all_of(X, order, (0, number), begin)
        if self.recounted:
            self._all_of(X, np.arange(len(X)), (1, 0), self.learner.begin_recount)
        self.learner.finish()

    def _counts(self, number: int, recount: bool) -> bool:
        """Whether pass `number` keeps statistics: to move cuts by, or as the last one without a recount."""
        return self.params.learn.reseat == "yes" or (number == self.passes - 1 and not recount)

    def _all_of(self, X: np.ndarray, order: np.ndarray, leg: Leg, begin: Callable[[], None]) -> None:
        """One leg over rows in memory."""
        start = self._begin(leg, begin)
        if start is None:
            return
        for k in range(start, len(X), self.block_rows):
            self.learner.partial_fit(X[order[k : k + self.block_rows]])
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
                self.columns.add(X)
                self.learner.partial_fit(X)
                met += len(X)
                if met & (met - 1) == 0 and met >= 2 * SEED_ROWS:
                    self.learner.re_express(self.columns.scaling(self.params.scale))
                self._save(leg, met - self._met_before, {}, {})
            self.tally = self.reader.tally
            if not self.tally.used:
                raise no_rows(self.tally, self.reader.source)
            self._end_of_only_pass()
        else:
            self._take_up_later(stream)
        self._recount_if_worth()
        self.learner.finish()

    def _start_in_order(self, stream: RowStream) -> int:
        if self.update is not None:
            state = learning_state(self.update)
            self._go_on_from(state)
            self._met_before = int(state["window_rows"][0])
        stage = self._take(leg := (0, 0))
        if stage is not None:
            if self.update is None:
                self._start(_scaling(stage.arrays, self.params))
            self.learner.begin_pass(0, counting=True, reading=True)
            self.learner.restore(stage.arrays)
            self.columns.restore(stage.arrays)
            self._skip(stream, stage.values["rows"])
            return self._met_before + int(stage.values["rows"])
        if self.update is not None:
            self.learner.begin_pass(0, counting=True, reading=True)
            self.learner.restore(learning_state(self.update))
            return self._met_before
        first = stream.take(SEED_ROWS)
        if first is None:
            raise no_rows(self.reader.tally, self.reader.source)
        self.columns.add(first)
        self._start(self.columns.scaling(self.params.scale))
        self.learner.begin_pass(0, counting=True, reading=True)
        for k in range(0, len(first), self.block_rows):
            self.learner.partial_fit(first[k : k + self.block_rows])
        self._save(leg, len(first), {}, {})
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
        self.passes = (
            params.passes if params.passes != "auto" else passes_worth(self.tally.used) if worth else 1
        )
        if self.passes > 1:
            self.learned_state = None
        recount = worth if params.recount == "auto" else params.recount == "yes"
        for number in range(1, self.passes):
            self._next_pass(buffer, number, mixed, self._counts(number, recount))
        self._recount_if_worth()
        self.learner.finish()

    def _first_pass(self, buffer: np.ndarray, stream: RowStream, mixed: bool) -> None:
        if not len(buffer):
            raise no_rows(self.reader.tally, self.reader.source)
        leg = (0, 0)
        stage = self._take(leg)
        self._drift = None if mixed or self.params.shuffle == "none" else Drift(self.d)
        self._unit = min(self.block_rows, len(buffer))
        shuffle = ShuffleBuffer(buffer, self._rng(2, 0))
        if self.update is not None:
            self._go_on_from(learning_state(self.update))
        self._rescale_at = 2 * (int(self.columns.count.max()) or len(buffer))
        if stage is None:
            for k in range(0, len(buffer), self._unit):
                self._note_arrival(buffer[k : k + self._unit])
        if self.update is None:
            first = self.columns.scaling(self.params.scale)
            self._start(first if stage is None else _scaling(stage.arrays, self.params))
        self.learner.begin_pass(0, counting=True, reading=True)
        if self.update is not None:
            self.learner.restore(learning_state(self.update))
        rows = 0
        if stage is not None:
            self.learner.restore(stage.arrays)
            self.learner.scaling = _scaling(stage.arrays, self.params)
            self.columns.restore(stage.arrays)
            if self._drift is not None:
                self._drift.restore(stage.arrays)
            rows, self._rescale_at = int(stage.values["rows"]), int(stage.values["rescale_at"])
        self._through(leg, stream, shuffle, stage, rows, self._arrived)
        self.tally = self.reader.tally
        if self._drift is not None:
            clear = self._drift.excess() > Drift.CLEAR
            self.drifting = [n for n, c in zip(self.reader.spec.names, clear, strict=True) if c]
        self._end_of_only_pass()

    def _note_arrival(self, X: np.ndarray) -> None:
        self.columns.add(X)
        if self._drift is not None:
            self._drift.add_in_units(X, self._unit)

    def _arrived(self, X: np.ndarray) -> None:
        """Rows of the first pass, before they are learned from: when they are twice as many as at the
        last time, the tree moves to the coordinates of all of them."""
        self._note_arrival(X)
        have = int(self.columns.count.max())
        if have >= self._rescale_at:
            self.learner.re_express(self.columns.scaling(self.params.scale))
            while self._rescale_at <= have:
                self._rescale_at *= 2

    def _next_pass(self, buffer: np.ndarray, number: int, mixed: bool, counting: bool) -> None:
        """Pass `number` over all rows, whose moments are known by now."""
        leg = (0, number)
        stage = self._stage
        begin = partial(self.learner.begin_pass, number, counting=counting, reading=True)
        rows = self._begin(leg, begin)
        if rows is None:
            return
        self.reader.restart(f"pass {number + 1}")
        stream = RowStream(self._mixed(number) if mixed else self._again())
        stream.fill(buffer)
        self._through(leg, stream, ShuffleBuffer(buffer, self._rng(2, number)), stage, rows, None)
        self.learner.finish()

    def _through(
        self,
        leg: Leg,
        stream: RowStream,
        shuffle: ShuffleBuffer,
        stage: Stage | None,
        rows: int,
        arrived: Callable[[np.ndarray], None] | None,
    ) -> None:
        """Rows in through the shuffle buffer and on to the learner, in full blocks.

        stage, rows : where an earlier run had come to, and how many rows it had taken by then.
        """
        if stage is not None:
            shuffle.restore(stage.arrays, stage.values)
            self._skip(stream, rows)
        tail = np.empty((0, self.d))
        for X in stream.blocks(self.block_rows):
            if arrived is not None:
                arrived(X)
            rows += len(X)
            if len(X) < self.block_rows:
                tail = X
                break
            X = np.require(X, requirements=["C", "W"])
            shuffle.exchange(X)
            self.learner.partial_fit(X)
            if self._is_due():
                arrays, values = shuffle.state()
                if self._drift is not None and arrived is not None:
                    arrays |= self._drift.state()
                self._save(leg, rows, arrays, {**values, "rescale_at": self._rescale_at})
        for X in shuffle.rest(tail, self.block_rows):
            self.learner.partial_fit(X)

    def _end_of_only_pass(self) -> None:
        """Center and scale become those of all rows; what a later run goes on from is kept as it was."""
        self.learner.finish()
        state = self.learner.state()
        self.learned_state = {name: array.copy() for name, array in state.items()}
        self.learner.re_express(self.columns.scaling(self.params.scale))

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
            self.learner.partial_fit(X)
            start += len(X)
            self._save((1, 0), start, {}, {})

    # -- rows and coordinates

    def _again(self) -> Iterator[np.ndarray]:
        return self.reader.rows() if self._spool is None else self._spool.rows()

    def _fragments(self) -> list[Fragment] | None:
        """The parts of the input that can be met in any order; None where the order is to be kept."""
        if self.params.shuffle != "auto" or not self.reader.source.rereadable:
            return None
        return self.reader.source.fragments(self.reader.spec.source_columns) or None

    def _mixed(self, number: int) -> Iterator[np.ndarray]:
        """Pass `number` over the fragments, in a random order of its own."""
        fragments = self._fragments() or []
        at_once = open_at_once(((p.rows, p.size, p.held) for p in fragments), self.d)
        with self._pool() as pool:
            yield from interleave(
                [(p.size, partial(self._rows_of, p, pool)) for p in fragments],
                np.random.default_rng([self.params.seed, 3, number]),
                at_once=at_once,
                run_rows=int(np.clip(self.buffer_rows // (4 * min(at_once, len(fragments))), 1, 256)),
            )

    def _rows_of(self, fragment: Fragment, pool: Executor | None) -> Iterator[np.ndarray]:
        chunks = fragment.chunks()
        return self.reader.matrices(chunks if pool is None else prefetch_in(pool, chunks))

    def _pool(self) -> AbstractContextManager[Executor | None]:
        """What reads fragments while rows are learned from. Text is parsed in several threads; an open
        Parquet file, which its row groups share, is left to one."""
        if self.threads == 1:
            return nullcontext()
        text = all(part.format == "csv" for part in self.reader.source.parts)
        return ThreadPoolExecutor(self.threads if text else 1, "fragments")

    def _rng(self, what: int, number: int) -> np.random.Generator | None:
        if self.params.shuffle == "none":
            return None
        return np.random.default_rng([self.params.seed, what, number])

    def _start(self, scaling: Scaling) -> None:
        learn = self.params.learn
        varying = np.flatnonzero(self.columns.square > 0)
        tree = Tree.start(learn.depth, self.d, start=learn.start, seed=self.params.seed, axes=varying)
        self.learner = Learner(tree, scaling, self.params, self.threads, self.columns)

    def _go_on_from(self, state: Mapping[str, np.ndarray]) -> None:
        """A learner with the tree, the coordinates and the column moments of a model."""
        self._start(_scaling(state, self.params))
        self.columns.restore(state)

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
        self.columns.restore(stage.arrays)
        self.tally = Tally(**stage.values["tally"])
        self.drifting = list(stage.values["drifting"])
        if "kept_rows" in stage.arrays:
            kept = {n.removeprefix("kept_"): a for n, a in stage.arrays.items() if n.startswith("kept_")}
            kept.pop("rows")
            self.learned_state = kept

    def _is_due(self) -> bool:
        return self._checkpoint is not None and self._checkpoint.due()

    def _save(self, leg: Leg, rows: int, arrays: Mapping[str, np.ndarray], values: dict[str, Any]) -> None:
        """Write a checkpoint if it is time."""
        if self._checkpoint is None or not self._is_due():
            return
        everything = {**self.learner.state(), **self.columns.state(), **arrays}
        if leg > (0, 0) and self.learned_state is not None:
            everything |= {f"kept_{name}": array for name, array in self.learned_state.items()}
            everything["kept_rows"] = np.array(rows)
        told = {"rows": rows, "tally": asdict(self.tally), "drifting": self.drifting, **values}
        self._checkpoint.save(leg, told, everything)


def passes_worth(rows: int) -> int:
    """How many passes are worth their time, by default, over rows that can be met again."""
    return 4 if rows <= FEW_ROWS else 2


def _chain(first: np.ndarray | None, rest: RowStream) -> Iterator[np.ndarray]:
    if first is not None:
        yield first
        yield from rest.blocks(65536)


def _rows(fragments: list[Fragment]) -> int:
    """The rows of all fragments, roughly where they are not known; 0 where nothing is."""
    rows = [fragment.about if fragment.rows is None else fragment.rows for fragment in fragments]
    return 0 if None in rows else sum(n or 0 for n in rows)


def _scaling(state: Mapping[str, np.ndarray], params: FitParams) -> Scaling:
    """The coordinates in a learner's state."""
    limit = np.inf if params.scale == "none" else CLIP
    return Scaling(
        state["learning_center"].copy(), state["learning_scale"].copy(), state["fill"].copy(), limit
    )


def learning_state(model: Model) -> dict[str, np.ndarray]:
    """What learning goes on from, of a model; as `Learner.state` and `ColumnProfile.state` have it.

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
    following = learner_module.WINDOW_ROWS
    while following <= counted:
        following *= 2
    windows = {
        "anchors": np.zeros(model.n_splits),
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
