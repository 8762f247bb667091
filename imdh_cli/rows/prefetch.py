"""Read ahead in a thread: decoding the next batch overlaps with whatever is done to this one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items in the same order, at most `depth` of them waiting.

    An error of `items` is raised where it would have been. Closing the generator stops the thread.
    """
    waiting: deque[tuple[T | None, BaseException | None]] = deque()
    room = threading.Semaphore(depth)
    ready = threading.Semaphore(0)
    stopped = threading.Event()

    def work() -> None:
        error: BaseException | None = None
        try:
            while True:
                room.acquire()
                if stopped.is_set():
                    break
                waiting.append((next(items), None))
                ready.release()
        except StopIteration:
            pass
        except BaseException as caught:  # handed over, whatever it is
            error = caught
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
        waiting.append((None, error or _END))
        ready.release()

    thread = threading.Thread(target=work, name="imdh-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            ready.acquire()
            item, error = waiting.popleft()
            if error is _END:
                return
            if error is not None:
                raise error
            room.release()
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        room.release()
        thread.join()


def prefetch_in(pool: Executor, items: Iterator[T]) -> Iterator[T]:
    """The same items in the same order, the next of them made by `pool` meanwhile."""
    coming = pool.submit(next, items, None)
    while (item := coming.result()) is not None:
        coming = pool.submit(next, items, None)
        yield item


_END = StopIteration()
