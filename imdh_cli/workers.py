"""Tasks -> their results, in the order of the tasks, made by threads while the last ones are used."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
_END: Any = object()  # what an iterator gives that has no more


class Workers:
    """Threads that do tasks in the order they are given.

    patience : seconds that are waited for a task under way when the work is given up; None for as long as it
    takes. A program that ends does not wait for it either, as it would for that of a `ThreadPoolExecutor`: a
    pipe that is written to may have no reader.
    """

    def __init__(self, threads: int, name: str, patience: float | None = None) -> None:
        self.patience = patience
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{k}", daemon=True) for k in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (given := self._tasks.get()) is not None:
            future, task = given
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(task())
                except BaseException as error:  # raised where the result is asked for
                    future.set_exception(error)
            del given, future, task  # what waits for the next task holds no memory of the last one

    def submit(self, task: Callable[[], A]) -> Future[A]:
        """Have a task done."""
        future: Future[A] = Future()
        self._tasks.put((future, task))
        return future

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for _thread in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(self.patience if kind is not None else None)


def in_order(workers: Workers, tasks: Iterable[Callable[[], A]], ahead: int) -> Generator[A, None, None]:
    """The results of tasks, `ahead` of them under way or waiting while one is used.

    An error of a task, or of what gives the tasks, is raised in its place: behind the results before it. When
    the generator is closed, what has not begun is not done, and what has is waited for with all patience.
    """
    waiting: deque[Future[A]] = deque()
    source = iter(tasks)
    error: Exception | None = None

    def fill() -> None:
        nonlocal error
        while error is None and len(waiting) < ahead:
            try:
                task = next(source)
            except Exception as caught:
                error = caught
            else:
                waiting.append(workers.submit(task))

    try:
        fill()
        while waiting:
            result = waiting.popleft().result()
            fill()
            yield result
            del result
    finally:
        begun = [future for future in waiting if not future.cancel()]
        if workers.patience is None:
            wait(begun)
    if error is not None and not isinstance(error, StopIteration):
        raise error


def prefetch(items: Iterator[A], workers: Workers | None = None) -> Generator[A, None, None]:
    """The same items in the same order, the next one made by workers that others use, too, or the next two by
    a thread of their own. Closing the generator closes `items`."""
    if workers is None:
        with Workers(1, "imdh-read-ahead") as own:
            yield from _prefetch(items, own, 2)
    else:
        yield from _prefetch(items, workers, 1)  # no two threads at once in one iterator


def _prefetch(items: Iterator[A], workers: Workers, ahead: int) -> Iterator[A]:
    try:
        with closing(in_order(workers, repeat(partial(next, items, _END)), ahead)) as made:
            for item in made:
                if item is _END:
                    break
                yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


def ordered_map(
    function: Callable[[A], B], items: Iterable[A], threads: int
) -> Generator[tuple[A, B], None, None]:
    """Each item with its result, in order, `threads` at work and a few results waiting."""
    if threads < 2:
        for item in items:
            yield item, function(item)
        return
    with (
        Workers(threads, "imdh-parse") as workers,
        closing(in_order(workers, (partial(_both, function, item) for item in items), threads + 1)) as made,
    ):
        yield from made


def _both(function: Callable[[A], B], item: A) -> tuple[A, B]:
    return item, function(item)
