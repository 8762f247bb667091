"""Rows -> a learned and counted tree: the one function that commands, estimators and engines call.

Rows that the shuffle buffer holds are shuffled whole and met as often as asked; where they are few, by trees
from several starts, of which one is kept (see restarts). More rows stream through the buffer; a source that
`reorders` brings them from many places at once. Without shuffling, one epoch meets the rows as they come:
then going on later equals having streamed both.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from imdh_cli.core import restarts
from imdh_cli.core.candidates import Sample
from imdh_cli.core.columns import ColumnMoments, Drift
from imdh_cli.core.counter import Counter
from imdh_cli.core.dither import Dither
from imdh_cli.core.learner import Learner
from imdh_cli.core.pruning.valleys import beyond_empty
from imdh_cli.core.pruning.weights import Splits
from imdh_cli.core.state import LearnerState
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.thread_pipeline import block_rows
from imdh_cli.core.tree import Scaling, Tree
from imdh_cli.core.two_means import move_to_two_means
from imdh_cli.errors import DataError, UsageError
from imdh_cli.params import FitParams
from imdh_cli.rows.sample import UniformSample
from imdh_cli.rows.schedule import SEED_ROWS, Buffered, InMemory, InOrder
from imdh_cli.rows.source import IN_ORDER, RowSource
from imdh_cli.rows.spool import SpooledRows
from imdh_cli.rows.stream import RowStream

AGAIN_ROWS = 1_000_000  # up to here a second epoch and a recount are worth their time
FEW_ROWS = 200_000  # up to here four epochs are; with sixteen, noise in many columns looks like clusters
TREES = 4  # from as many starts up to FEW_ROWS; more gain little
BUFFER_ROWS = 200_000  # of the shuffle buffer, and
BUFFER_BYTES = 512 << 20  # what it may take where its size was not asked for
MANY_THREADS = 4  # from which on rows are mixed in one thread and shuffled in another
COUNTED_ROWS = 100_000  # drawn from all, to be counted where these are not met once more, or
COUNTED_BYTES = 64 << 20  # what takes so much, but not below
LEAST_COUNTED = 1024


class NoRows(DataError):
    """There is nothing to learn from."""


class Position(NamedTuple):
    """Where a run is. counting: in the recount, which is last. rows: taken from the source, of this epoch."""

    counting: bool
    epoch: int
    rows: int


class Snapshot(NamedTuple):
    """All that a run goes on from. values: plain values."""

    position: Position
    values: dict[str, Any]
    arrays: dict[str, np.ndarray]


class Snapshots(Protocol):
    """Keeps the last snapshot somewhere. found: the one to go on from."""

    found: Snapshot | None

    def due(self) -> bool:
        """Is it time for one?"""
        ...

    def save(self, snapshot: Snapshot) -> None: ...


@dataclass(frozen=True)
class Learned:
    """What `learn` made, in the coordinates of all rows that were met.

    statistics : of the rows counted. columns : moments of the columns. state : what to go on from. rows :
    that were met in each epoch. starts : trees that this one is the best of. counted : which rows were, with
    this tree: all (`recounted`), a uniform sample of them (`sampled`), or the later ones met, while its cuts
    still moved (`windowed`). drifting : (d,) bool, columns whose early and late rows differ. busy : processor
    seconds by stage; where each has a processor of its own, the longest is the time.
    """

    tree: Tree
    scaling: Scaling
    statistics: Statistics
    columns: ColumnMoments
    state: LearnerState
    rows: int
    passes: int
    starts: int
    counted: Literal["recounted", "sampled", "windowed"]
    drifting: np.ndarray
    busy: Mapping[str, float]

    @property
    def recounted(self) -> bool:
        """Whether all rows were met once more to be counted."""
        return self.counted == "recounted"

    @property
    def dither(self) -> Dither:
        """The noise that rows were learned from with."""
        return Dither.restored(self.state.to_arrays())

    @property
    def noise_shares(self) -> np.ndarray:
        """Of each split, (m,), as `FrozenTree` has them."""
        dither = self.dither
        return self.tree.freeze().noise_shares(self.scaling, dither.columns, dither.squares)

    @property
    def copies(self) -> np.ndarray:
        """Of each split, (m,), the c of how many rows stand for all (see core.copies and core.lookups)."""
        return np.maximum(self.dither.copies, self.dither.lookups.copies_along(self.tree.directions))

    def leaves(self, X: np.ndarray) -> np.ndarray:
        """The leaf of each row of X (n, d), from 0 and left to right, (n,) int64."""
        frozen = self.tree.freeze()
        node = np.zeros(len(X), dtype=np.int64)
        Z = self.scaling.apply(X)
        for _ in range(frozen.depth):
            gaps = np.einsum("ij,ij->i", Z, frozen.directions[node]) - frozen.thresholds[node]
            node = 2 * node + np.where(gaps < 0.0, 1, 2)
        return node - len(frozen.thresholds)


def learn(
    rows: RowSource,
    params: FitParams,
    state: LearnerState | None = None,
    *,
    columns: ColumnMoments | None = None,
    threads: int = 1,
    snapshots: Snapshots | None = None,
    count: bool = True,
) -> Learned:
    """Learn a tree from rows, in as many epochs as they are worth, and count them at its leaves and splits.

    Parameters
    ----------
    rows : RowSource
    params : FitParams
    state : LearnerState, optional
        Go on from it, complete, in one epoch without a recount.
    columns : ColumnMoments, optional
        Of all rows, where `rows` are a sample of them that the buffer holds: gives the coordinates.
    threads : int
        The levels of the tree are shared among them; the result does not depend on it.
    snapshots : Snapshots, optional
        Where the run's state goes from time to time, and what to go on from.
    count : bool
        False where whoever calls counts rows at the tree: in memory without a recount none are drawn for it.

    Raises
    ------
    NoRows
        When there are none.
    """
    if state is not None:
        params = replace(params, passes=1, recount="no", n_init=1)
    again = params.recount == "yes" or params.passes not in ("auto", 1)
    if rows.rereadable or not again:
        return _Run(rows, params, state, columns, threads, snapshots, count=count).learned()
    spooled = SpooledRows(rows)
    try:
        return _Run(spooled, params, state, columns, threads, snapshots, count=count).learned()
    finally:
        spooled.close()


def buffer_rows(params: FitParams, d: int) -> int:
    """Rows that the shuffle buffer holds: as asked, else what fits BUFFER_ROWS and BUFFER_BYTES."""
    if params.buffer_rows is not None:
        return params.buffer_rows
    return max(block_rows(d), min(BUFFER_ROWS, BUFFER_BYTES // (8 * d)))


def counted_rows(d: int) -> int:
    """How many rows are drawn to be counted."""
    return max(LEAST_COUNTED, min(COUNTED_ROWS, COUNTED_BYTES // (8 * d)))


def trees_worth(rows: int) -> int:
    """From how many starts trees are learned, by default, from rows that are all here."""
    return TREES if rows <= FEW_ROWS else 1


def passes_worth(rows: int) -> int:
    """How many epochs are worth their time, by default, over rows that can be met again."""
    return 4 if rows <= FEW_ROWS else 2


class _Abandoned(Exception):
    """A tree is not wanted any more."""


class _Run:
    """One call of `learn`: which schedule, how many epochs, and from where."""

    learner: Learner

    def __init__(
        self,
        rows: RowSource,
        params: FitParams,
        update: LearnerState | None,
        columns: ColumnMoments | None,
        threads: int,
        snapshots: Snapshots | None,
        start: int = 0,
        found: Snapshot | None = None,
        given_up: Event | None = None,
        *,
        count: bool = True,
    ) -> None:
        self.rows = rows
        # Of one of several starts: its number, where it had ended before, and whether it is wanted no more.
        self.start = start
        self._given_up = given_up
        self.params = params
        self.update = update
        self.threads = threads
        self.d = rows.n_features
        self.block_rows = block_rows(self.d)
        self.columns = ColumnMoments(self.d) if columns is None else columns
        self._profiled = columns is not None
        self._count = count
        self.dither = Dither.none()
        self._dither_is_told = params.learn.dither == "no"
        self.used = 0  # rows of the first epoch
        self.passes = 1
        self.starts = 1
        self.drift: Drift | None = None
        self.drifting = np.zeros(self.d, dtype=bool)
        # What an update goes on from, once the learner's arrays are moved to the coordinates of all rows.
        self.kept: LearnerState | None = None
        self.drawn: UniformSample | None = None  # rows to be counted at the end
        self.splits: Splits | None = None  # of the best tree of several starts
        self._whole: np.ndarray | None = None  # all rows, where they are in memory
        self._snapshots = snapshots
        self._found = snapshots.found if snapshots is not None else found
        self.busy: defaultdict[str, float] = defaultdict(float)
        self._rescale_at = 0  # rows at which the coordinates are moved next

    def learned(self) -> Learned:
        start = time.thread_time()
        counter = self._in_order() if self._keeps_order() else self._shuffled()
        here = time.thread_time() - start
        if self.starts == 1:  # else trees are learned by other threads
            here -= self.learner.helped + self.learner.busy["relocate"]
            here -= counter.helped if counter is not None else 0.0
        if self.threads == 1:
            here -= sum(self.rows.busy.values())
        self._spent({**self.rows.busy, "mix and shuffle": max(here, 0.0)})
        return self._divided(self._learned(counter))

    def _divided(self, learned: Learned) -> Learned:
        """Where no valley was found: cuts of least squares, and rows counted anew.

        Not where a few rows stand apart, who can be asked for. A valley that these cuts show is one, unless
        values with noise or on piles make it: then cuts stay as they were. In place: what an update goes on
        from has the arrays of the tree.
        """
        sample = self.learner.sample
        if learned.counted == "windowed" or self.params.learn.reseat == "no" or sample is None:
            return learned
        splits = self.splits or restarts.splits_of(learned)
        if splits.kept.any() or beyond_empty(splits.depths, splits.lesser).any():
            return learned
        some = self.drawn.rows() if learned.counted == "sampled" and self.drawn is not None else self._whole
        moved = replace(learned, tree=deepcopy(learned.tree))
        of = sample.rows() if some is None else some
        if not move_to_two_means(moved.tree, learned.scaling, of, learned.statistics):
            return learned
        counter = self._counter(moved)
        for X in RowStream(self.rows.blocks(IN_ORDER)).blocks(self.block_rows) if some is None else [some]:
            counter.update(X)
        counter.join()
        self._spent(counter.busy)
        moved = replace(moved, statistics=counter.statistics())
        splits = restarts.splits_of(moved)
        if (splits.significant & ~splits.plain).any():
            return learned
        for name, array in vars(moved.tree).items():
            getattr(learned.tree, name)[:] = array
        return replace(learned, statistics=moved.statistics)

    def _learned(self, counter: Counter | None) -> Learned:
        self.learner.join()
        finished = self.learner.finished()
        state = self.kept or _in_final_coordinates(finished.state(), recounted=counter is not None)
        counted: Literal["recounted", "sampled", "windowed"] = "windowed" if counter is None else "recounted"
        if counter is None and self.drawn is not None:
            counter, counted = self._counter(finished), "sampled"
            counter.update(self.drawn.rows())
            counter.join()
        self._spent(self.learner.busy)
        if counter is not None:
            self._spent(counter.busy)
        return Learned(
            tree=finished.tree,
            scaling=finished.scaling,
            statistics=finished.statistics() if counter is None else counter.statistics(),
            columns=self.columns,
            state=state,
            rows=self.used,
            passes=self.passes,
            starts=self.starts,
            counted=counted,
            drifting=self.drifting,
            busy=self.busy,
        )

    # -- schedules

    def _keeps_order(self) -> bool:
        return self.params.shuffle == "none" and self.params.passes == 1

    def _in_order(self) -> Counter | None:
        """One epoch as the rows come."""
        self._one_start("these are learned from in their order")
        stream = RowStream(self.rows.blocks(0))
        if self._is_later((False, 0)):
            self._take_up_later(stream)
        else:
            self._first_epoch_in_order(stream)
        return self._recount_if_worth()

    def _first_epoch_in_order(self, stream: RowStream) -> None:
        update, met = self.update, 0
        before = 0 if update is None or update.window_rows is None else int(update.window_rows[0])
        if (found := self._take((False, 0))) is not None:
            self._resume(found)
            met = found.position.rows
            stream.skip(met)
        elif update is not None:
            self._go_on_from(update)
            if self.learner.scaling.equals(self.columns.scaling(self.params.scale)):
                self.learner.re_express(self._coordinates())
        first = None
        resumed = found is not None or update is not None
        if not resumed:
            first = stream.take(SEED_ROWS)
            if first is None:
                raise NoRows("there are no rows", "a model is learned from rows")
            self.columns.set_reach(first)
            self.columns.add(first)
            self._start(first)
        self.learner.begin_epoch(0, counting=True, reading=True, resumed=resumed)
        if first is not None:
            for k in range(0, len(first), self.block_rows):
                self.learner.partial_fit(first[k : k + self.block_rows])
            met = len(first)
            self._save(Position(False, 0, met))
        schedule = InOrder(stream, self.block_rows, met, before + met)
        for X in schedule:
            self.columns.add(X)
            self.learner.partial_fit(X)
            if schedule.doubled:
                self.learner.re_express(self._coordinates())
            self._save(Position(False, 0, schedule.rows))
        if not schedule.rows:
            raise NoRows("there are no rows", "a model is learned from rows")
        self.used = schedule.rows
        self._end_of_first_epoch()

    def _shuffled(self) -> Counter | None:
        """In memory where the buffer holds all rows, else through the buffer."""
        rows = self.rows
        size = buffer_rows(self.params, self.d)
        if self.update is None and rows.whole is not None and len(rows.whole) <= size:
            return self._in_memory(rows.whole)
        buffer = np.empty((size, self.d))
        reorders = rows.reorders
        if not reorders or (rows.n_rows or 0) <= size:
            stream = RowStream(rows.blocks(IN_ORDER))
            filled = stream.fill(buffer)
            rest = stream.take(1) if filled == size else None
            if rest is None and self.update is None:
                return self._in_memory(buffer[:filled])
            if rest is None or not reorders:
                # An update has no second epoch to make, so that its rows need not be held.
                if rest is not None:
                    stream.put_back(rest)
                return self._buffered(buffer[:filled], stream, reorders=False)
        stream = RowStream(rows.blocks(0))
        filled = stream.fill(buffer)
        if filled < size and self.update is None:  # most rows could not be used
            return self._in_memory(buffer[:filled])
        return self._buffered(buffer[:filled], stream, reorders=True)

    def _in_memory(self, X: np.ndarray) -> Counter | None:
        if not len(X):
            raise NoRows("there are no rows", "a model is learned from rows")
        self.used, self._whole = len(X), X
        if self._profiled:
            self.columns.set_tails(X)
        else:
            self.columns.set_reach(X)
            for k in range(0, len(X), self.block_rows):
                self.columns.add(X[k : k + self.block_rows])
        self.passes = passes_worth(len(X)) if self.params.passes == "auto" else self.params.passes
        self.starts = trees_worth(len(X)) if self.params.n_init == "auto" else self.params.n_init
        if self.params.recount == "no" and (self._count or self.starts > 1):  # or trees are compared by them
            self.drawn = self._sample_to_count()
            for k in range(0, len(X), self.block_rows):  # at once it would hold all of them
                self.drawn.add(X[k : k + self.block_rows])
        return self._epochs_in_memory(X) if self.starts == 1 else self._best_start(X, self.starts)

    def _best_start(self, X: np.ndarray, starts: int) -> Counter | None:
        """Trees from several starts, side by side. This run goes on as that of the one that is kept."""
        found = self._take((False, 0))
        done = {} if found is None else dict(found.arrays)
        self._tell_dither(X)
        given_up = Event()
        runs = []
        for k in range(starts):
            own = {
                name.removeprefix(f"start{k}_"): a
                for name, a in done.items()
                if name.startswith(f"start{k}_")
            }
            end = Snapshot(self._end(len(X)), {}, own) if own else None
            run = _Run(
                self.rows,
                self.params,
                None,
                self.columns,
                max(1, self.threads // starts),
                None,
                start=k,
                found=end,
                given_up=given_up,
            )
            run.passes, run.drawn = self.passes, self.drawn
            run.dither, run._dither_is_told = self.dither, True
            runs.append(run)
        counters: list[Counter | None] = []
        with ThreadPoolExecutor(min(self.threads, starts)) as pool:
            try:
                for k, counter in enumerate(pool.map(_Run._epochs_in_memory, runs, [X] * starts)):
                    counters.append(counter)
                    if self._snapshots is None or f"start{k}_learned_counts" in done:
                        continue
                    state = runs[k].learner.state().to_arrays() | (counter.state() if counter else {})
                    done |= {f"start{k}_{name}": array for name, array in state.items()}
                    if self._is_due():
                        self._snapshots.save(Snapshot(Position(False, 0, 0), {}, done))
            except BaseException:
                given_up.set()
                raise
        learned = [run._learned(counter) for run, counter in zip(runs, counters, strict=True)]
        best, self.splits = restarts.best(learned, X, self.params.prune)
        self.learner, self.dither = runs[best].learner, runs[best].dither
        for k, other in enumerate(learned):
            if k != best:
                self._spent(other.busy)
        return counters[best]

    def _spent(self, busy: Mapping[str, float]) -> None:
        for name, seconds in busy.items():
            self.busy[name] += seconds

    def _end(self, rows: int) -> Position:
        """Where a run over rows in memory has nothing left to do."""
        if self.params.recount == "no":
            return Position(False, self.passes - 1, rows)
        return Position(True, 0, rows)

    def _epochs_in_memory(self, X: np.ndarray) -> Counter | None:
        self._start(X)
        recount = self.params.recount != "no"
        for epoch in range(self.passes):
            start = self._begin_epoch(epoch, recount)
            if start is None:
                continue
            schedule = InMemory(X, self.block_rows, self._rng(epoch), start)
            for block in schedule:
                self.learner.partial_fit(block)
                self._save(Position(False, epoch, schedule.rows))
        self.learner.join()
        self.learner.re_express(self.columns.scaling(self.params.scale))
        if not recount:
            return None
        counter, start = self._begin_recount()
        schedule = InMemory(X, self.block_rows, None, start)
        for block in schedule:
            counter.update(block)
            if self._is_due():
                self._save(Position(True, 0, schedule.rows), counter.state())
        counter.join()
        return counter

    def _buffered(self, buffer: np.ndarray, stream: RowStream, *, reorders: bool) -> Counter | None:
        """Rows through the shuffle buffer; more epochs and a recount where they are worth it."""
        self._one_start("these are more")
        params = self.params
        if self.update is None and params.recount != "yes":
            self.drawn = self._sample_to_count()
        if self._is_later((False, 0)):
            self._take_up_later(stream)
        else:
            self._first_epoch(buffer, stream, watch=not reorders and params.shuffle != "none")
        worth = self._worth_again()
        if params.passes != "auto":
            self.passes = params.passes
        elif worth:
            self.passes = passes_worth(self.used)
        if self.passes > 1:
            self.kept = None
            self.learner.re_express(self._coordinates())
        recount = worth if params.recount == "auto" else params.recount == "yes"
        if recount:
            self.drawn = None
        for epoch in range(1, self.passes):
            found = self._found
            start = self._begin_epoch(epoch, recount, reading=True)
            if start is None:
                continue
            stream = RowStream(self.rows.blocks(epoch))
            stream.fill(buffer)
            schedule = Buffered(buffer, stream, self.block_rows, self._rng(epoch), ahead=self._ahead())
            self._through(schedule, epoch, found if start else None)
            self.learner.join()
        self.learner.re_express(self.columns.scaling(self.params.scale))
        return self._recount_if_worth()

    def _first_epoch(self, buffer: np.ndarray, stream: RowStream, *, watch: bool) -> None:
        """watch: whether early and late rows are compared."""
        if not len(buffer):
            raise NoRows("there are no rows", "a model is learned from rows")
        found = self._take((False, 0))
        if watch:
            self.drift = Drift(self.d, min(self.block_rows, len(buffer)))
        if found is not None:
            self._resume(found)
            if self.drift is not None:
                self.drift.restore(found.arrays)
            self._rescale_at = found.values["rescale_at"]
        else:
            if self.update is not None:
                self._go_on_from(self.update)
                if self.learner.scaling.equals(self.columns.scaling(self.params.scale)):
                    self.learner.re_express(self._coordinates())  # the model's were those of its rows
            self._rescale_at = 2 * (int(self.columns.count.max()) or len(buffer))
            if self.update is None:
                self.columns.set_reach(buffer)
            unit = min(self.block_rows, len(buffer))
            for k in range(0, len(buffer), unit):
                self._note_arrival(buffer[k : k + unit])
            if self.update is None:
                self._start(buffer)
        resumed = found is not None or self.update is not None
        self.learner.begin_epoch(0, counting=True, reading=True, resumed=resumed)
        schedule = Buffered(buffer, stream, self.block_rows, self._rng(0), self._arrived, ahead=self._ahead())
        self._through(schedule, 0, found)
        self.used = len(buffer) + schedule.rows
        if self.drift is not None:
            self.drifting = self.drift.excess() > Drift.CLEAR
        self._end_of_first_epoch()

    def _through(self, schedule: Buffered, epoch: int, found: Snapshot | None) -> None:
        if found is not None:
            schedule.restore(found.position.rows, found.arrays, found.values)
        for X in schedule:
            self.learner.partial_fit(X)
            if self._is_due() and (held := schedule.state()) is not None:
                arrays, values = held
                if self.drift is not None and epoch == 0:
                    arrays |= self.drift.state()
                values["rescale_at"] = self._rescale_at
                self._save(Position(False, epoch, schedule.rows), arrays, values)

    def _ahead(self) -> bool:
        return self.threads >= MANY_THREADS and self.rows.by_any_thread

    def _note_arrival(self, X: np.ndarray) -> None:
        self.columns.add(X)
        if self.drawn is not None:
            self.drawn.add(X)
        if self.drift is not None:
            self.drift.add(X)

    def _arrived(self, X: np.ndarray) -> None:
        """Rows of the first epoch, before they are learned from: when they are twice as many as at the last
        time, the tree moves to the coordinates of all of them."""
        self._note_arrival(X)
        have = int(self.columns.count.max())
        if have >= self._rescale_at:
            self.learner.re_express(self._coordinates())
            while self._rescale_at <= have:
                self._rescale_at *= 2

    # -- epochs

    def _begin_epoch(self, epoch: int, recount: bool, *, reading: bool = False) -> int | None:
        """Begin an epoch, at the row to go on from; None where it was ended before.

        It keeps statistics to move cuts by, or as the last one without a recount.
        """
        counting = self.params.learn.reseat == "yes" or (epoch == self.passes - 1 and not recount)
        if self._is_later((False, epoch)):
            return None
        found = self._take((False, epoch))
        if found is not None:
            self._resume(found)
        self.learner.begin_epoch(
            epoch,
            counting=counting,
            last=epoch == self.passes - 1,
            reading=reading,
            resumed=found is not None,
        )
        return 0 if found is None else found.position.rows

    def _end_of_first_epoch(self) -> None:
        """Center and scale become those of all rows; what a later run goes on from is kept as it was."""
        self.learner.join()
        self.kept = self.learner.state().copy()
        self.learner.re_express(self.columns.scaling(self.params.scale))

    def _worth_again(self) -> bool:
        return self.update is None and self.rows.rereadable and self.used <= AGAIN_ROWS

    def _recount_if_worth(self) -> Counter | None:
        recount = self.params.recount
        if not (self._worth_again() if recount == "auto" else recount == "yes"):
            return None
        counter, start = self._begin_recount()
        for X in RowStream(self.rows.blocks(IN_ORDER, start)).blocks(self.block_rows):
            counter.update(X)
            start += len(X)
            if self._is_due():
                self._save(Position(True, 0, start), counter.state())
        counter.join()
        return counter

    def _begin_recount(self) -> tuple[Counter, int]:
        found = self._take((True, 0))
        if found is not None:
            self._resume(found)
        self.learner.join()
        counter = self._counter(self.learner.finished())
        if found is None:
            return counter, 0
        counter.restore(found.arrays)
        return counter, found.position.rows

    def _counter(self, finished: Learner | Learned) -> Counter:
        """For rows under a tree that no longer moves."""
        tree, seed = finished.tree.freeze(), self.params.seed
        return Counter(tree, finished.scaling, self.threads, dither=finished.dither, seed=seed)

    def _sample_to_count(self) -> UniformSample:
        return UniformSample(counted_rows(self.d), self.d, [self.params.seed, 9, 1])

    def _start(self, X: np.ndarray) -> None:
        """A learner for rows of which the first are here."""
        learn = self.params.learn
        self._tell_dither(X)
        varying = np.flatnonzero(self.columns.square > 0)
        tree = Tree.start(
            learn.levels, self.d, start=learn.start, seed=self.params.seed, number=self.start, axes=varying
        )
        self.learner = Learner(
            tree,
            self._coordinates(),
            self.columns,
            self.params,
            self.threads,
            dither=self.dither,
            sample=self._sample(),
        )

    def _tell_dither(self, X: np.ndarray) -> None:
        """By rows of which the first are here; trees from several starts have it in common."""
        if not self._dither_is_told:
            self.dither, self._dither_is_told = Dither.of(X), True

    def _go_on_from(self, state: LearnerState) -> None:
        self.learner = Learner.from_state(state, self.params, self.threads)
        self.learner.sample = self._sample()
        self.columns, self.dither = self.learner.columns, self.learner.dither

    def _sample(self) -> Sample | None:
        """Where the last rows are kept. Not where their order is: a model, which holds no rows, has to be all
        that going on needs."""
        wanted = self.params.learn.reseat == "yes" and not self._keeps_order()
        return Sample(self.d) if wanted else None

    def _coordinates(self) -> Scaling:
        """Those of learning, by the moments known so far."""
        return self.dither.widened(self.columns.scaling(self.params.scale))

    def _rng(self, epoch: int) -> np.random.Generator | None:
        if self.params.shuffle == "none":
            return None
        return np.random.default_rng([self.params.seed, 2, epoch, self.start])

    def _one_start(self, but: str) -> None:
        """UsageError where several starts were asked for and rows are not in memory."""
        if self.params.n_init not in ("auto", 1):
            raise UsageError(
                f"--n-init {self.params.n_init} needs rows that the shuffle buffer holds, and {but}",
                "leave it out, or learn from a --sample, or with larger --buffer-rows",
            )

    # -- snapshots

    def _is_later(self, phase: tuple[bool, int]) -> bool:
        """Did the run that is gone on from end in a later phase than this one?"""
        return self._found is not None and self._found.position[:2] > phase

    def _take(self, phase: tuple[bool, int]) -> Snapshot | None:
        """The snapshot to go on from if it lies in this phase; once."""
        if self._found is None or self._found.position[:2] != phase:
            return None
        found, self._found = self._found, None
        return found

    def _resume(self, found: Snapshot) -> None:
        self._go_on_from(LearnerState.from_arrays(found.arrays))
        if self.learner.sample is not None and "sample_met" in found.arrays:  # a finished tree needs none
            self.learner.sample.restore(found.arrays)
        if self.drawn is not None and "drawn_keys" in found.arrays:
            self.drawn.restore(found.arrays)

    def _take_up_later(self, stream: RowStream) -> None:
        """Go on after the first epoch: what it left is in the snapshot."""
        found = self._found
        assert found is not None
        if isinstance(self.rows, SpooledRows):  # its rows went with the process: they are read again
            stream.drain()
        self._resume(found)
        self.rows.restore(found.values["source"])
        self.used = found.values["used"]
        self.drifting = np.array(found.values["drifting"], dtype=bool)
        if f"{KEPT}window_rows" in found.arrays:
            self.kept = LearnerState.from_arrays(found.arrays, KEPT)

    def _is_due(self) -> bool:
        """Whether to hand over a snapshot. Asked at every block, so that one who is wanted no more stops."""
        if self._given_up is not None and self._given_up.is_set():
            raise _Abandoned
        return self._snapshots is not None and self._snapshots.due()

    def _save(
        self,
        position: Position,
        arrays: Mapping[str, np.ndarray] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Hand over a snapshot if it is time."""
        if not self._is_due() or self._snapshots is None:
            return
        everything = self.learner.state().to_arrays() | dict(arrays or {})
        if self.learner.sample is not None:
            everything |= self.learner.sample.state()
        if self.drawn is not None:
            everything |= self.drawn.state()
        if position[:2] > (False, 0) and self.kept is not None:
            everything |= self.kept.to_arrays(KEPT)
        told = {"used": self.used, "source": self.rows.state(), "drifting": self.drifting.tolist()}
        self._snapshots.save(Snapshot(position, {**told, **(values or {})}, everything))


KEPT = "kept_"  # before the names of arrays that were kept at the end of the first epoch


def _in_final_coordinates(state: LearnerState, *, recounted: bool) -> LearnerState:
    """A state in the coordinates of all rows, without what the model has anyway."""
    own = ("learning_", "window_") if recounted else "learning_"
    return LearnerState.from_arrays({n: a for n, a in state.to_arrays().items() if not n.startswith(own)})
