"""Results come in the order of the tasks, errors in their place, and closing leaves no thread behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from imdh_cli.workers import Workers, in_order, ordered_map, prefetch


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def counted(numbers: int, made: list[int], error: Exception | None = None) -> Iterator[int]:
    """0, 1 ..., each noted when it is made; then the error. -1 is noted at the end, however it comes."""
    try:
        for n in range(numbers):
            made.append(n)
            yield n
        if error is not None:
            raise error
    finally:
        made.append(-1)


def slow_square(n: int) -> int:
    """The first take longest."""
    time.sleep(0.002 * max(0, 5 - n))
    return n * n


WAYS = {
    "alone": lambda items: prefetch(items),
    "mapped": lambda items: (square for _, square in ordered_map(lambda n: n, items, 3)),
    "mapped by none": lambda items: (square for _, square in ordered_map(lambda n: n, items, 1)),
}


def shared(items: Iterator[int]) -> Iterator[int]:
    with Workers(3, "shared") as workers:
        yield from prefetch(items, workers)


ways = pytest.mark.parametrize("way", [*WAYS.values(), shared], ids=[*WAYS, "shared"])


@ways
@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_items_come_in_their_order(way, n):
    assert list(way(counted(n, []))) == list(range(n))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_the_order_of_the_tasks(threads):
    assert list(ordered_map(slow_square, range(20), threads)) == [(n, n * n) for n in range(20)]


@ways
def test_an_error_is_raised_behind_the_items_before_it(way):
    seen, made = [], []
    with pytest.raises(OSError, match="gone"):
        seen.extend(way(counted(3, made, OSError("gone"))))
    assert seen == [0, 1, 2]
    assert made == [0, 1, 2, -1]


def test_an_error_of_a_task_is_raised_behind_the_results_before_it():
    seen = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(result for _, result in ordered_map(lambda n: 6 // (3 - n), range(10), 2))
    assert seen == [2, 3, 6]


@ways
def test_no_more_is_made_than_asked_for_and_a_few(way):
    made: list[int] = []
    items = way(counted(1000, made))
    next(items)
    time.sleep(0.05)
    items.close()
    assert len(made) <= 7


def test_what_is_closed_early_is_closed_at_its_source():
    made: list[int] = []
    items = prefetch(counted(1000, made))
    assert [next(items), next(items)] == [0, 1]
    items.close()
    assert made[-1] == -1
    assert made[:-1] == list(range(len(made) - 1))


def test_many_iterators_share_workers_and_each_is_in_one_thread_at_a_time():
    inside = [0] * 20

    def watched(k: int) -> Iterator[int]:
        for n in range(5):
            inside[k] += 1
            time.sleep(0.001)
            assert inside[k] == 1
            inside[k] -= 1
            yield n

    with Workers(3, "shared") as workers:
        read = [prefetch(watched(k), workers) for k in range(20)]
        assert [[next(items) for items in read] for _ in range(5)] == [[n] * 20 for n in range(5)]
        for items in read:
            assert next(items, None) is None


def test_what_has_not_begun_is_not_done_once_a_task_fails():
    done: list[int] = []

    def task(n: int) -> None:
        if n == 1:
            raise OSError("full")
        time.sleep(0.01)
        done.append(n)

    with pytest.raises(OSError, match="full"), Workers(1, "writer") as workers:
        for _ in in_order(workers, (partial(task, n) for n in range(100)), 3):
            pass
    assert set(done) <= {0, 2, 3, 4}


def test_patience_ends():
    """As where a pipe has no reader: what is under way is left alone."""
    goes_on = threading.Event()

    def interrupted() -> None:
        with Workers(1, "writer", patience=0.05) as workers:
            workers.submit(goes_on.wait)
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert 0.05 <= time.monotonic() - start < 5
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("writer"):
            thread.join()
