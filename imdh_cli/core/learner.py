"""Matrices of raw rows, in the order they are to be met -> a learned tree and its statistics.

What stands between the row sources and the kernel: blocks of a fixed size whatever the batches were,
the running standardisation, the shuffle buffer, windows of statistics, and the stages that share the
levels of the tree among threads. Rows are (rows, d) float64 with NaN for a cell to be filled.

Nothing here depends on how the rows were cut into batches or on the number of threads: a block's length
follows from d alone, a stage takes the blocks one after another, and a node meets its rows in order.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.memory import aligned
from imdh_cli.core.columns import ColumnProfile
from imdh_cli.core.relocation import relocate
from imdh_cli.core.tree import Scaling, Statistics, Tree
from imdh_cli.params import FitParams
from imdh_cli.rows.shuffle import RowStream

BLOCK_ROWS = 8192  # a block of d = 20 fills the L2 cache; wider rows get shorter blocks
BLOCK_BYTES = 4 << 20
IN_FLIGHT_BYTES = 16 << 20  # of blocks between threads, unless those are more than
IN_FLIGHT = 16
WINDOW_ROWS = 8192  # statistics restart when this many rows have been met, and at every doubling
SETTLED_ROWS = 131_072  # until then, cuts may be moved where a window ends
BUFFER_ROWS = 200_000  # of the shuffle buffer, and
BUFFER_BYTES = 512 << 20  # what it may take where its size was not asked for


def block_rows(d: int) -> int:
    """Rows in a block: a power of two that divides WINDOW_ROWS."""
    rows = BLOCK_ROWS
    while rows > 32 and rows * d * 8 > BLOCK_BYTES:
        rows //= 2
    return rows


def buffer_rows(params: FitParams, d: int) -> int:
    """Rows that the shuffle buffer holds: as asked, else what fits BUFFER_ROWS and BUFFER_BYTES."""
    if params.buffer_rows is not None:
        return params.buffer_rows
    return max(block_rows(d), min(BUFFER_ROWS, BUFFER_BYTES // (8 * d)))


def stage_bounds(depth: int, stages: int) -> list[int]:
    """Levels at which a tree is cut into stages: stage k takes the levels bounds[k] .. bounds[k + 1] - 1.

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


class Block:
    """Standardised rows on their way down the tree; reused, so that no memory is asked for in the loop."""

    def __init__(self, rows: int, d: int) -> None:
        self.Z = aligned(rows, d)
        self.node = np.empty(rows, dtype=np.int64)
        self.clipped = np.empty(rows, dtype=np.bool_)
        self.rows = 0


class ThreadPipeline:
    """Functions that each block passes through in turn, blocks in order.

    The first `own` are called by the thread that sends the blocks, each other one has a thread of its own.
    There are more blocks than can wait for a stage: one that comes back should have left the cache of the
    processor that had it last, else filling it again takes three times as long (d = 20: 83 for 30 ns a row).
    """

    def __init__(self, steps: list[Callable[[Block], None]], make: Callable[[], Block], own: int) -> None:
        self._own, self._steps = steps[:own], steps[own:]
        blocks = [make()]
        if self._steps:
            enough = max(2 * len(self._steps) + 1, IN_FLIGHT_BYTES // blocks[0].Z.nbytes)
            blocks += [make() for _ in range(1, min(enough, IN_FLIGHT))]
        self._free: queue.SimpleQueue[Block] = queue.SimpleQueue()
        self._blocks = len(blocks)
        for block in blocks:
            self._free.put(block)
        self._error: BaseException | None = None
        self._queues: list[queue.SimpleQueue[Block | None]] = [queue.SimpleQueue() for _ in self._steps]
        self._threads: list[threading.Thread] = []
        for k in range(len(self._steps)):
            worker = threading.Thread(target=self._work, args=(k,), daemon=True, name=f"stage-{k}")
            worker.start()
            self._threads.append(worker)

    def _work(self, k: int) -> None:
        while (block := self._queues[k].get()) is not None:
            try:
                if self._error is None:
                    self._steps[k](block)
            except BaseException as error:  # handed to the caller by `free` or `drain`
                self._error = error
            self._hand_on(block, k + 1)

    def _hand_on(self, block: Block, k: int) -> None:
        (self._queues[k] if k < len(self._queues) else self._free).put(block)

    def free(self) -> Block:
        """A block to fill; waits until one is through."""
        block = self._free.get()
        if self._error is not None:
            self._free.put(block)
            raise self._error
        return block

    def send(self, block: Block) -> None:
        """Take a filled block through all steps."""
        try:
            for step in self._own:
                step(block)
        except BaseException:
            self._free.put(block)
            raise
        self._hand_on(block, 0)

    def drain(self) -> None:
        """Wait until every block sent is through."""
        held = [self._free.get() for _ in range(self._blocks)]
        for block in held:
            self._free.put(block)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        for waiting in self._queues:
            waiting.put(None)
        for worker in self._threads:
            worker.join()


class Learner:
    """One tree, its coordinates and its statistics, taught with blocks of raw rows.

    After `begin_pass`, `meet` teaches the rows; after `begin_recount` it takes them down the frozen tree.
    columns: what is known of the columns by now, which others go on adding to.
    """

    def __init__(
        self,
        tree: Tree,
        scaling: Scaling,
        params: FitParams,
        threads: int,
        columns: ColumnProfile | None = None,
    ) -> None:
        self.tree = tree
        self._columns = columns
        self.scaling = scaling
        self.block_rows = block_rows(tree.pivots.shape[1])
        self.rows_met = 0  # in this pass
        self._params = params
        self._threads = threads
        self._counting = False
        self._next_window = WINDOW_ROWS
        self._settled_at = 0
        self._current = self._previous = self._empty()
        self._stages: ThreadPipeline | None = None

    def _empty(self) -> Statistics:
        return Statistics.empty(self.tree.depth, self.tree.pivots.shape[1])

    def begin_pass(self, number: int, *, counting: bool, reading: bool = False) -> None:
        """Start learning from the first row again, in pass `number` (from 0).

        counting: this pass keeps statistics, in windows. reading: rows are decoded meanwhile, which
        takes a thread's time. Cuts are moved to better places before every further pass, by the statistics
        of the one before, and where the early windows of the first pass end.
        """
        self.finish()
        reseating = counting and self._params.learn.reseat == "yes"
        if reseating and number > 0:
            self._relocate(self.statistics())
        self._settled_at = SETTLED_ROWS if reseating and number == 0 else 0
        self.rows_met = 0
        self._counting = counting
        self._current, self._previous = self._empty(), self._empty()
        self._next_window = WINDOW_ROWS
        # Reading and standardising are work for one thread, which has no stage then; a stage more would
        # only wait in turn. Otherwise the thread that brings the rows has the first stage: one thread more
        # than processors makes all of them wait.
        most = max(1, self._threads - 1) if reading else self._threads
        *steps, last = (self._levels(*levels) for levels in pairwise(stage_bounds(self.tree.depth, most)))

        def last_and_leaves(block: Block) -> None:
            last(block)
            self._leaves(block)

        steps.append(last_and_leaves)
        own = len(steps) if self._threads == 1 else 0 if reading else 1
        self._stages = ThreadPipeline(steps, self._new_block, own)

    def begin_recount(
        self, thresholds: np.ndarray | None = None, deviations: np.ndarray | None = None
    ) -> None:
        """The rows met from here on are only counted, down the tree frozen as it is (or as given)."""
        self.finish()
        self.rows_met = 0
        self._current, self._previous = self._empty(), self._empty()
        self._counting = False
        if thresholds is None:
            thresholds, _ = self.tree.frozen()
        if deviations is None:
            deviations = np.sqrt(self.tree.variances)

        def descend(block: Block) -> None:
            n = block.rows
            kernel.recount(
                block.Z[:n],
                block.clipped[:n],
                self.tree.directions,
                thresholds,
                deviations,
                self.tree.depth,
                block.node[:n],
                self._current.histograms,
            )

        self._stages = ThreadPipeline([descend, self._count], self._new_block, 2 if self._threads == 1 else 0)

    def _new_block(self) -> Block:
        return Block(self.block_rows, self.tree.pivots.shape[1])

    def _levels(self, first: int, last: int) -> Callable[[Block], None]:
        learn, tree = self._params.learn, self.tree
        rule = kernel.make_rule(
            tree.pivots.shape[1],
            alpha=learn.alpha,
            penalty=learn.penalty,
            bandwidth=learn.bandwidth,
            rate=learn.rate,
            clamp=learn.clamp,
            scaled=learn.step == "scaled",
        )
        powers = kernel.make_powers(learn.bandwidth_decay, learn.learning_decay)
        work = kernel.make_work()
        count = min(kernel.LANES // (last - first), 1 << first)

        def step(block: Block) -> None:
            n = block.rows
            if first == 0:
                block.node[:n] = 1
            order, starts = streams(block.node[:n], first, count)
            kernel.learn(
                block.Z[:n],
                order,
                starts,
                block.node[:n],
                block.clipped[:n],
                last - first,
                self._counting,
                tree.directions,
                tree.pivots,
                tree.learned,
                tree.offsets,
                tree.mean_squares,
                tree.variances,
                tree.anchors,
                self._current.histograms,
                rule,
                powers,
                *work,
            )

        return step

    def _leaves(self, block: Block) -> None:
        n = block.rows
        kernel.learn_leaves(block.Z[:n], block.node[:n], self.tree.pivots, self.tree.learned)
        if self._counting:
            self._count(block)

    def _count(self, block: Block) -> None:
        n = block.rows
        into = self._current
        kernel.count_leaves(
            block.Z[:n],
            block.node[:n],
            len(into.counts),
            into.counts,
            into.means,
            into.sums_of_squares,
        )

    def partial_fit(self, X: np.ndarray) -> None:
        """Take one block of raw rows, at most `block_rows` of them; all but the last of a pass are full."""
        assert self._stages is not None
        if len(X) > self.block_rows:  # compiled code does not look where a block ends
            raise ValueError(f"{len(X)} rows in a block of {self.block_rows}")
        block = self._stages.free()
        block.rows = n = len(X)
        s = self.scaling
        kernel.standardise(X, s.center, s.scale, s.fill, s.limit, block.Z[:n], block.clipped[:n])
        self._stages.send(block)
        self.rows_met += n
        if self._counting and self.rows_met >= self._next_window:
            self._stages.drain()
            self._previous, self._current = self._current, self._empty()
            self._next_window *= 2
            if self.rows_met <= self._settled_at and self._relocate(self._previous):
                self._previous = self._empty()

    def _relocate(self, statistics: Statistics) -> int:
        steps = None if self._columns is None else self._columns.steps(self.scaling.scale)
        return relocate(self.tree, statistics, steps)

    def re_express(self, scaling: Scaling) -> None:
        """Move tree and statistics to other coordinates, between two blocks."""
        if self._stages is not None:
            self._stages.drain()
        self.tree.re_express(self.scaling, scaling)
        self._current.re_express(self.scaling, scaling)
        self._previous.re_express(self.scaling, scaling)
        self.scaling = scaling

    def state(self) -> dict[str, np.ndarray]:
        """All that learning goes on from, between two blocks, by the names in a model file."""
        if self._stages is not None:
            self._stages.drain()
        tree, windows = self.tree, (self._previous, self._current)
        return {
            "learning_directions": tree.directions,
            "learning_pivots": tree.pivots,
            "learned_counts": tree.learned,
            "learned_offsets": tree.offsets,
            "mean_squares": tree.mean_squares,
            "variances": tree.variances,
            "anchors": tree.anchors,
            "learning_center": self.scaling.center,
            "learning_scale": self.scaling.scale,
            "fill": self.scaling.fill,
            "window_rows": np.array([self.rows_met, self._next_window], dtype=np.int64),
            "window_counts": np.stack([w.counts for w in windows]),
            "window_means": np.stack([w.means for w in windows]),
            "window_squares": np.stack([w.sums_of_squares for w in windows]),
            "window_histograms": np.stack([w.histograms for w in windows]),
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a state; after `begin_pass` or `begin_recount`, which say what is done with rows."""
        tree = self.tree
        for mine, name in (
            (tree.directions, "learning_directions"),
            (tree.pivots, "learning_pivots"),
            (tree.learned, "learned_counts"),
            (tree.offsets, "learned_offsets"),
            (tree.mean_squares, "mean_squares"),
            (tree.variances, "variances"),
            (tree.anchors, "anchors"),
        ):
            mine[:] = state[name]
        self.rows_met, self._next_window = map(int, state["window_rows"])
        for k, window in enumerate((self._previous, self._current)):
            window.counts[:] = state["window_counts"][k]
            window.means[:] = state["window_means"][k]
            window.sums_of_squares[:] = state["window_squares"][k]
            window.histograms[:] = state["window_histograms"][k]

    def finish(self) -> None:
        """Wait for the rows on their way and let the threads go."""
        if self._stages is not None:
            stages, self._stages = self._stages, None
            try:
                stages.drain()
            finally:
                stages.close()

    def statistics(self) -> Statistics:
        """Of the rows counted in the last pass: its last two windows, or all rows of a recount."""
        return self._previous.merged(self._current)


class ShuffleBuffer:
    """Rows in, the same rows out in a seeded random order as far as `size` rows allow.

    Each block that comes in takes the places of as many rows, which go out. The places are a random
    permutation of the buffer, a new one when it is used up: so each row waits for `size` rows on average
    and at most for twice as many. With shuffle off the places are in order and the buffer is a queue.
    """

    def __init__(self, first: np.ndarray, rng: np.random.Generator | None) -> None:
        self._buffer = first
        self._rng = rng
        self._slots = np.empty(0, dtype=np.int64)
        self._order: np.ndarray | None = None

    def _permutation(self, n: int) -> np.ndarray:
        return np.arange(n) if self._rng is None else self._rng.permutation(n)

    def exchange(self, X: np.ndarray) -> None:
        """Swap the rows of X (at most the buffer's size) with rows that waited, in place."""
        while len(self._slots) < len(X):
            again = self._permutation(len(self._buffer))
            self._slots = np.concatenate([self._slots, again])
        kernel.swap_rows(self._buffer, self._slots[: len(X)], X)
        self._slots = self._slots[len(X) :]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The rows that wait, the places to come, and the generator's state."""
        generator = None if self._rng is None else self._rng.bit_generator.state
        return {"buffer": self._buffer, "slots": self._slots}, {"generator": generator}

    def restore(self, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
        """Go on from a state."""
        self._buffer[:] = arrays["buffer"]
        self._slots = arrays["slots"].copy()
        if self._rng is not None:
            self._rng.bit_generator.state = values["generator"]

    def rest(self, tail: np.ndarray, rows: int) -> Iterator[np.ndarray]:
        """What waits, and a last partial block that came in, in blocks of `rows` rows."""
        if self._rng is None:
            oldest = int(self._slots[0]) if len(self._slots) else 0
            yield from RowStream([self._buffer[oldest:], self._buffer[:oldest], tail]).blocks(rows)
            return
        n = len(self._buffer)
        order = self._rng.permutation(n + len(tail))
        for k in range(0, len(order), rows):
            pick = order[k : k + rows]
            X = np.empty((len(pick), self._buffer.shape[1]))
            old = pick < n
            X[old] = self._buffer[pick[old]]
            X[~old] = tail[pick[~old] - n]
            yield X
