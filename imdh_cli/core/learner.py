"""Blocks of raw rows, in the order they are to be met -> a learned tree and its statistics.

What stands between the rows and the kernel: the running standardisation, windows of statistics, and the
stages that share the levels of the tree among threads. Rows are (rows, d) float64 with NaN for a cell to be
filled.

Nothing here depends on how the rows were cut into batches or on the number of threads: a block's length
follows from d alone, a stage takes the blocks one after another, and a node meets its rows in order.
"""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.native_cache import prepared
from imdh_cli.core.candidates import Sample, move_to_features
from imdh_cli.core.columns import ColumnMoments
from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.core.hyperplanes import move_to_hyperplanes
from imdh_cli.core.relocation import ends_too_early, relocate
from imdh_cli.core.state import FORMERLY, LearnerState
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.thread_pipeline import Block, Step, ThreadPipeline, block_rows
from imdh_cli.core.tree import CLIP, Scaling, Tree
from imdh_cli.params import FitParams

WINDOW_ROWS = 8192  # statistics restart when this many rows have been met, and at every doubling
LATE_ROWS = 65_536  # of an epoch, from which on hyperplanes are sought in the first one
SETTLED_ROWS = 131_072  # until then, cuts may be moved where a window ends
MORE_LEVELS = 2  # of a tree whose depth is not given, where it ends too early
TRIED_ROWS = 1024  # that a tree whose cuts were moved must have met since, to be better than that of before


def stage_bounds(depth: int, stages: int) -> list[int]:
    """Levels at which a tree is cut into stages: stage k takes the levels bounds[k] .. bounds[k + 1] - 1.

    Measured at d = 20, code for AVX2, in ns a row: eight levels at once take 310, four and four 410, one by
    one 850, of which the root's, which bounds what many threads reach, 105. Subtrees side by side, each with
    arrays of its own, were no better: two levels and then four subtrees of six took 535.

    As many stages as asked, about equal in levels; more where a stage would have more levels than the
    kernel has lanes, and then full ones first, since what is left over below can use many streams.
    """
    if stages * kernel.LANES < depth:
        return [*range(0, depth, kernel.LANES), depth]
    stages = min(stages, depth)
    return [round(depth * k / stages) for k in range(stages + 1)]


def streams(node: np.ndarray, level: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Share a block's rows out in streams that meet no node in common, for `kernel.learn`.

    node : (rows,) int64, the node of `level` at which each row stands. Neighbouring subtrees go together,
    so that the streams are about equally long; within a stream rows stay in their order. Returns the rows
    stream by stream, (rows,) int64, and where each stream begins and the last ends, (count + 1,) int64.
    """
    if count == 1:
        return np.arange(len(node)), np.array([0, len(node)])
    rows = np.bincount(node, minlength=2 << level)
    middles = np.cumsum(rows) - rows / 2
    stream = (middles * (count / max(len(node), 1))).astype(np.int8)[node]
    parts = [np.flatnonzero(stream == k) for k in range(count)]
    return np.concatenate(parts), np.cumsum([0, *map(len, parts)])


class Learner:
    """One tree, its coordinates and its statistics, taught with blocks of raw rows.

    columns : what is known of the columns by now; who brings the rows adds to it. dither : the noise with
    which rows are learned from. sample : where the last rows are kept, to move cuts by.
    """

    def __init__(
        self,
        tree: Tree,
        scaling: Scaling,
        columns: ColumnMoments,
        params: FitParams,
        threads: int,
        *,
        dither: Dither | None = None,
        sample: Sample | None = None,
    ) -> None:
        self.tree = tree
        self.scaling = scaling
        self.columns = columns
        self.dither = dither or Dither.none()
        self.sample = sample
        self.d = tree.pivots.shape[1]
        self.rows_met = 0  # in this epoch
        self.busy: defaultdict[str, float] = defaultdict(float)  # processor seconds by what they were for
        self.helped = 0.0  # those of the thread that brings the rows
        self._params = params
        self._threads = threads
        self._counting = False
        self._next_window = WINDOW_ROWS
        self._settled_at = 0
        self._previous = Statistics.empty(tree.depth, self.d)
        self._count_into(self._previous)
        self._moved_at = 0  # rows met when cuts were moved within the epoch, and until TRIED_ROWS more
        self._former: LearnerState | None = None  # all as it was before that
        self._pipeline: ThreadPipeline | None = None

    def begin_epoch(
        self,
        number: int,
        *,
        counting: bool,
        last: bool = False,
        reading: bool = False,
        resumed: bool = False,
    ) -> None:
        """Learn from the first row on again, in epoch `number` (from 0).

        counting: this epoch keeps statistics, in windows. last: none follows, so that cuts that are moved to
        single features now are held: in many columns small steps lose them again. reading: rows are read
        meanwhile, which takes one thread's time, and the tree is shared among the others. resumed: in the
        middle of an epoch, with the statistics that are there. Cuts are moved to better places before every
        further epoch, by the statistics of the one before, and where the early windows of the first one end.
        """
        self.join()
        relocating = counting and self._params.learn.reseat == "yes"
        if not resumed:
            if relocating and number > 0:
                statistics = self.statistics()
                self._relocate(statistics, number, last)
                self._grow(statistics)
            self.rows_met, self._next_window, self._former = 0, WINDOW_ROWS, None
            self._previous = self._empty()
            self._count_into(self._empty())
        self._key = noise_key(self._params.seed, epoch=number)
        self._settled_at = SETTLED_ROWS if relocating and number == 0 else 0
        self._counting = counting
        stages = self._stages(max(1, self._threads - 1) if reading else self._threads)
        self._pipeline = ThreadPipeline(stages, block_rows(self.d), self.d, self._threads, self.busy)

    def partial_fit(self, X: np.ndarray) -> None:
        """Learn from one block of raw rows, at most `block_rows(d)`; all but an epoch's last are full.

        X is not to be changed before the epoch, and the next one, have ended.
        """
        assert self._pipeline is not None
        self._pipeline.send(X, self.rows_met)
        self.rows_met += len(X)
        if self._former is not None and self.rows_met >= self._moved_at + TRIED_ROWS:
            self._former = None
        if self._counting and self.rows_met >= self._next_window:
            self._drain()
            self._previous = self._current
            self._count_into(self._empty())
            self._next_window *= 2
            if self.rows_met <= self._settled_at:
                self._relocate_within()

    def join(self) -> None:
        """Wait for the rows on their way and let the threads go."""
        if self._pipeline is not None:
            pipeline, self._pipeline = self._pipeline, None
            try:
                pipeline.join()
            finally:
                self.helped += pipeline.helped

    def re_express(self, scaling: Scaling) -> None:
        """Move tree and statistics to other coordinates, between two blocks."""
        if self.scaling.equals(scaling):
            return
        self._drain()
        self.tree.re_express(self.scaling, scaling)
        self._current.re_express(self.scaling, scaling)
        self._previous.re_express(self.scaling, scaling)
        self.scaling = scaling

    def statistics(self) -> Statistics:
        """Of the rows counted in this epoch: its last two windows."""
        return self._previous.merged(self._current)

    def finished(self) -> Learner:
        """The learner whose tree and statistics leave if no more rows come: this one, or what it was before
        cuts were moved, as long as few rows have been met since: what is below them is not learned yet."""
        if self._former is None:
            return self
        former = Learner.from_state(self._former, self._params, self._threads)
        former.columns, former.dither = self.columns, self.dither
        former.re_express(self.scaling)
        return former

    def state(self) -> LearnerState:
        """All that learning goes on from, between two blocks; the arrays are the learner's own."""
        self._drain()
        tree, windows = self.tree, (self._previous, self._current)
        return LearnerState(
            learned_counts=tree.learned,
            mean_squares=tree.mean_squares,
            learned_offsets=tree.offsets,
            variances=tree.variances,
            anchors=tree.anchors,
            fill=self.scaling.fill,
            **self.columns.state(),
            learning_directions=tree.directions,
            learning_pivots=tree.pivots,
            learning_center=self.scaling.center,
            learning_scale=self.scaling.scale,
            window_rows=np.array([self.rows_met, self._next_window], dtype=np.int64),
            window_counts=np.stack([w.counts for w in windows]),
            window_means=np.stack([w.means for w in windows]),
            window_squares=np.stack([w.sums_of_squares for w in windows]),
            window_histograms=np.stack([w.histograms for w in windows]),
            **self.dither.state(),
            former=self._former,
        )

    @classmethod
    def from_state(cls, state: LearnerState, params: FitParams, threads: int) -> Learner:
        """A learner where another one was; `state` is complete, its arrays are copied."""
        s = state
        assert s.learning_center is not None
        assert s.learning_scale is not None
        assert s.window_rows is not None
        limit = np.inf if params.scale == "none" else CLIP
        scaling = Scaling(s.learning_center.copy(), s.learning_scale.copy(), s.fill.copy(), limit)
        columns = ColumnMoments(len(s.fill))
        columns.restore(s.to_arrays())
        tree = Tree.empty(len(s.learned_offsets).bit_length(), len(s.fill))
        for mine, theirs in (
            (tree.directions, s.learning_directions),
            (tree.pivots, s.learning_pivots),
            (tree.learned, s.learned_counts),
            (tree.offsets, s.learned_offsets),
            (tree.mean_squares, s.mean_squares),
            (tree.variances, s.variances),
            (tree.anchors, s.anchors),
        ):
            mine[:] = theirs
        learner = cls(tree, scaling, columns, params, threads, dither=Dither.restored(s.to_arrays()))
        learner.rows_met, learner._next_window = map(int, s.window_rows)
        learner._previous = learner._empty()
        learner._count_into(learner._empty())
        for k, window in enumerate((learner._previous, learner._current)):
            for mine, both in (
                (window.counts, s.window_counts),
                (window.means, s.window_means),
                (window.sums_of_squares, s.window_squares),
                (window.histograms, s.window_histograms),
            ):
                assert both is not None
                mine[:] = both[k]
        learner._former = s.former
        learner._moved_at = learner.rows_met - int(learner.statistics().counts.sum())
        return learner

    def _empty(self) -> Statistics:
        return Statistics.empty(self.tree.depth, self.d)

    def _drain(self) -> None:
        if self._pipeline is not None:
            self._pipeline.drain()

    def _relocate_within(self) -> None:
        """Where a window ends: its statistics are not those of a tree that moved."""
        now = self.state().to_arrays()
        before = LearnerState.from_arrays({name: now[name].copy() for name in FORMERLY})
        if self._relocate(self._previous, 0):
            self._former, self._moved_at = self._former or before, self.rows_met
            self._previous = self._empty()

    def _relocate(self, statistics: Statistics, epoch: int, last: bool = False) -> int:
        """Before an epoch, the last one perhaps, or within the first one."""
        start = time.thread_time()
        moved = relocate(self.tree, statistics)
        late = self.rows_met >= LATE_ROWS
        if self.sample is not None and self.sample.is_due(between_epochs=epoch > 0):
            rows = self.sample.rows(self.rows_met)  # none of them twice
            piled = self.dither.columns[self.dither.piled]
            moved += move_to_features(self.tree, self.scaling, rows, piled, hold=last)
            # Twice in a fit, since they take as long as 50,000 rows do; few rows are met in more epochs.
            if epoch < 2 if late else epoch in (1, 2):
                moved += move_to_hyperplanes(self.tree, self.scaling, rows)
        self.busy["relocate"] += time.thread_time() - start
        return moved

    def _grow(self, statistics: Statistics) -> None:
        """Before an epoch: more levels, once, where the last one still divides clusters."""
        learn = self._params.learn
        if learn.depth == "auto" and self.tree.depth == learn.levels and ends_too_early(statistics):
            self.tree = self.tree.deeper(MORE_LEVELS, self._params.seed)

    def _stages(self, threads: int) -> list[dict[str, Step]]:
        """What is done with a block, one after another."""
        learn = self._params.learn
        constants = kernel.make_rule(
            self.d,
            alpha=learn.alpha,
            penalty=learn.penalty,
            bandwidth=learn.bandwidth,
            rate=learn.rate,
            clamp=learn.clamp,
            scaled=learn.step == "scaled",
        )
        powers = kernel.make_powers(learn.bandwidth_decay, learn.learning_decay)
        self._rule = prepared(kernel.Rule(constants, powers))
        stages: list[dict[str, Step]] = [{"standardise": self._standardise}]
        for first, last in pairwise(stage_bounds(self.tree.depth, threads)):
            name = f"level {last}" if last == first + 1 else f"levels {first + 1} to {last}"
            stages.append({name: partial(self._levels, first, last, prepared(kernel.Lanes.new()))})
        return [*stages, {"leaves": self._leaves}]

    def _standardise(self, block: Block) -> None:
        X = self.dither.apply(block.X, self._key, block.first)
        if self.sample is not None and self._counting:
            self.sample.add(X)
        s, n = self.scaling, len(X)
        kernel.standardise(X, s.center, s.scale, s.fill, s.limit, block.Z[:n], block.clipped[:n])

    def _levels(self, first: int, last: int, lanes: Any, block: Block) -> None:
        n, count = block.rows, min(kernel.LANES // (last - first), 1 << first)
        node = block.node[:n]
        if first == 0:
            node[:] = 1
        rows = kernel.Rows(block.Z[:n], *streams(node, first, count), node, block.clipped[:n])
        kernel.learn(rows, self._splits, self._rule, lanes, last - first, self._counting)

    def _leaves(self, block: Block) -> None:
        n = block.rows
        kernel.learn_leaves(block.Z[:n], block.node[:n], self._at_leaves, self._counting)

    def _count_into(self, statistics: Statistics) -> None:
        """Begin a window: its statistics, with the arrays of the tree as compiled code takes them."""
        tree, s = self.tree, statistics
        self._current = statistics
        self._splits = prepared(kernel.Splits(**vars(tree), histograms=s.histograms))
        self._at_leaves = prepared(
            kernel.Leaves(tree.pivots, tree.learned, s.counts, s.means, s.sums_of_squares)
        )
