"""Raw rows -> blocks -> stages of steps that each block passes through, taken by whatever thread is free."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from imdh_cli.compiled.memory import aligned

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


def blocks_in_flight(rows: int, d: int, stages: int) -> int:
    """How many blocks of so many rows are on their way, or wait, between threads."""
    return min(IN_FLIGHT, max(2 * stages + 1, IN_FLIGHT_BYTES // (8 * rows * d)))


class Block:
    """Rows on their way; reused, so that no memory is asked for in the loop.

    X : (n, d), as they came, from row `first` of their epoch on. Z : (rows, d), clipped, node : (rows,), of
    which the first n are theirs. marks : (rows,), of the piles that they lie on; 0 where nobody looks.
    """

    def __init__(self, rows: int, d: int) -> None:
        self.X = np.empty((0, d))
        self.first = 0
        self.Z = aligned(rows, d)
        self.node = np.empty(rows, dtype=np.int64)
        self.clipped = np.empty(rows, dtype=np.bool_)
        self.marks = np.zeros(rows, dtype=np.int64)
        self.steps_left = 0  # of the stage that it is in
        self.stage = 0

    @property
    def rows(self) -> int:
        return len(self.X)


Step = Callable[[Block], None]


class _Station:
    """One step, and the blocks that wait for it. No two threads are at it at once."""

    def __init__(self, name: str, step: Step) -> None:
        self.name = name
        self.step = step
        self.waiting: deque[Block] = deque()
        self.taken = False


class ThreadPipeline:
    """Stages that each block passes through in turn. The steps of one stage work on a block side by side.

    Each step meets the blocks one by one, in their order, whatever thread is at it: a thread that has nothing
    to do takes the next block of the latest stage that has one. So results are the same for any number of
    threads, and rows pass at the pace of all steps together, shared out among the threads, or of the longest
    one. The thread that sends blocks is one of them: it helps while it waits.

    There are more blocks than can wait for a stage: one that comes back should have left the cache of the
    processor that had it last, else filling it again takes three times as long (d = 20: 83 for 30 ns a row).

    busy : processor seconds by the name of a step are added to it. helped : those of the sender.
    """

    def __init__(
        self,
        stages: Sequence[Mapping[str, Step]],
        rows: int,
        d: int,
        threads: int,
        busy: defaultdict[str, float],
    ) -> None:
        self._rows = rows
        self._busy = busy
        self._stages = [[_Station(name, step) for name, step in steps.items()] for steps in stages]
        self._latest_first = [station for steps in self._stages[::-1] for station in steps]
        self._blocks = 1 if threads == 1 else blocks_in_flight(rows, d, len(stages))
        blocks = [Block(rows, d) for _ in range(self._blocks)]
        self._free = deque(blocks)
        self.helped = 0.0
        self._error: BaseException | None = None
        self._ended = False
        lock = threading.Lock()
        self._work = threading.Condition(lock)  # for those who have none
        self._through = threading.Condition(lock)  # for the sender, when a block is through or has work
        self._threads = [
            threading.Thread(target=self._help, daemon=True, name=f"stage-{k}") for k in range(1, threads)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, X: np.ndarray, first: int = 0) -> None:
        """Take raw rows, no more than a block holds, through all stages. They are not to be changed before
        that is done."""
        if len(X) > self._rows:  # compiled code does not look where a block ends
            raise ValueError(f"{len(X)} rows in a block of {self._rows}")
        with self._work:
            self._help_until(1)
            block = self._free.popleft()
            block.X, block.first = X, first
            self._enter(block, 0)
        if not self._threads:
            self.drain()

    def drain(self) -> None:
        """Wait until every block sent is through."""
        with self._work:
            self._help_until(self._blocks)

    def join(self) -> None:
        """Wait for the blocks on their way and let the threads go."""
        try:
            self.drain()
        finally:
            with self._work:
                self._ended = True
                self._work.notify_all()
            for thread in self._threads:
                thread.join()

    # -- with the lock held

    def _help_until(self, free: int) -> None:
        while len(self._free) < free:
            start = time.thread_time()
            if not self._take_a_step():
                self._through.wait()
            self.helped += time.thread_time() - start
        if self._error is not None:
            raise self._error

    def _help(self) -> None:
        with self._work:
            while not self._ended:
                if not self._take_a_step():
                    self._work.wait()

    def _take_a_step(self) -> bool:
        """One step on one block, without the lock meanwhile; whether there was one to take."""
        station = next((s for s in self._latest_first if s.waiting and not s.taken), None)
        if station is None:
            return False
        station.taken = True
        block = station.waiting.popleft()
        self._work.release()
        start = time.thread_time()
        try:
            if self._error is None:
                station.step(block)
        except BaseException as error:  # raised by who sends or drains
            self._error = error
        spent = time.thread_time() - start
        self._work.acquire()
        self._busy[station.name] += spent
        station.taken = False
        block.steps_left -= 1
        if not block.steps_left:
            self._enter(block, block.stage + 1)
        return True

    def _enter(self, block: Block, stage: int) -> None:
        block.stage = stage
        if stage == len(self._stages):
            block.X = block.X[:0]
            self._free.append(block)
        else:
            stations = self._stages[stage]
            block.steps_left = len(stations)
            for station in stations:
                station.waiting.append(block)
            self._work.notify(len(stations))
        self._through.notify()
