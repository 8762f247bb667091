"""Raw rows -> standardised blocks -> functions that each block passes through, in threads of their own."""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.memory import aligned
from imdh_cli.core.tree import Scaling

BLOCK_ROWS = 8192  # a block of d = 20 fills the L2 cache; wider rows get shorter blocks
BLOCK_BYTES = 4 << 20
IN_FLIGHT_BYTES = 16 << 20  # of blocks between threads, unless those are more than
IN_FLIGHT = 16


def block_rows(d: int) -> int:
    """Rows in a block: a power of two, so that blocks of all sizes fill windows of statistics evenly."""
    rows = BLOCK_ROWS
    while rows > 32 and rows * d * 8 > BLOCK_BYTES:
        rows //= 2
    return rows


class Block:
    """Standardised rows on their way down the tree; reused, so that no memory is asked for in the loop."""

    def __init__(self, rows: int, d: int) -> None:
        self.Z = aligned(rows, d)
        self.node = np.empty(rows, dtype=np.int64)
        self.clipped = np.empty(rows, dtype=np.bool_)
        self.marks = np.zeros(rows, dtype=np.int64)
        self.rows = 0


class ThreadPipeline:
    """Functions that each block passes through in turn, blocks in order.

    The first `own` are called by the thread that sends the blocks, each other one has a thread of its own.
    There are more blocks than can wait for a stage: one that comes back should have left the cache of the
    processor that had it last, else filling it again takes three times as long (d = 20: 83 for 30 ns a row).

    busy : processor seconds by the name of a function are added to it. Each has a processor's time for itself
    only where there are enough of them: then rows pass at the pace of the one that takes longest.
    """

    def __init__(
        self,
        steps: Mapping[str, Callable[[Block], None]],
        rows: int,
        d: int,
        own: int,
        busy: defaultdict[str, float],
    ) -> None:
        self._busy = busy
        timed = [self._timed(name, step) for name, step in steps.items()]
        self._own, self._steps = timed[:own], timed[own:]
        self._standardise = self._timed("standardise", kernel.standardise)
        blocks = [Block(rows, d)]
        if self._steps:
            enough = max(2 * len(self._steps) + 1, IN_FLIGHT_BYTES // blocks[0].Z.nbytes)
            blocks += [Block(rows, d) for _ in range(1, min(enough, IN_FLIGHT))]
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

    def _timed(self, name: str, step: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            start = time.thread_time()
            step(*arguments)
            self._busy[name] += time.thread_time() - start  # no other thread adds to this name

        return timed

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

    def send(self, X: np.ndarray, scaling: Scaling, marks: np.ndarray | None = None) -> None:
        """Standardise raw rows, no more than a block holds, and take them through all functions.

        marks : (rows,) int64, goes with them; all rows sent have such or none.
        """
        block = self._free_block()
        if len(X) > len(block.Z):  # compiled code does not look where a block ends
            self._free.put(block)
            raise ValueError(f"{len(X)} rows in a block of {len(block.Z)}")
        block.rows = n = len(X)
        s = scaling
        if marks is not None:
            block.marks[:n] = marks
        try:
            self._standardise(X, s.center, s.scale, s.fill, s.limit, block.Z[:n], block.clipped[:n])
            for step in self._own:
                step(block)
        except BaseException:
            self._free.put(block)
            raise
        self._hand_on(block, 0)

    def _free_block(self) -> Block:
        """A block to fill; waits until one is through."""
        block = self._free.get()
        if self._error is not None:
            self._free.put(block)
            raise self._error
        return block

    def drain(self) -> None:
        """Wait until every block sent is through."""
        held = [self._free.get() for _ in range(self._blocks)]
        for block in held:
            self._free.put(block)
        if self._error is not None:
            raise self._error

    def join(self) -> None:
        """Wait for the blocks on their way and let the threads go."""
        try:
            self.drain()
        finally:
            for waiting in self._queues:
                waiting.put(None)
            for worker in self._threads:
                worker.join()
