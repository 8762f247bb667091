"""Rows -> trees learned from random halves of them, and where each takes a common sample of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.core import restarts
from imdh_cli.core.learn import learn
from imdh_cli.core.partition import Partition
from imdh_cli.core.thread_pipeline import block_rows
from imdh_cli.core.tree import FrozenTree, Scaling
from imdh_cli.model import Model
from imdh_cli.params import FitParams
from imdh_cli.rows.source import ArrayRows

HALF_ROWS = 200_000  # that a refit learns from, at most
POOL_BYTES = 256 << 20  # of the rows that halves are drawn from
SAMPLE_ROWS = 50_000  # that the partitions are compared on, at most
AT_ONCE_BYTES = 1 << 30  # of the rows of refits under way; each holds its half twice


class Pool:
    """A random sample of rows that come in any portions: each draws a number, those with the least are kept.

    So the sample depends on the rows' order and the seed alone. rows : at most so many, fewer where these
    would take more than POOL_BYTES.
    """

    def __init__(self, d: int, seed: int, rows: int = 2 * HALF_ROWS) -> None:
        self._limit = max(2, min(rows, POOL_BYTES // (8 * d)))
        self._parts: list[np.ndarray] = []  # until there are more rows than are kept
        self._X = np.empty((0, d))
        self._draws, self._places = np.empty(0), np.empty(0, dtype=np.int64)
        self._met = 0
        self._rng = np.random.default_rng([seed, 11])

    def add(self, X: np.ndarray) -> None:
        """Meet some rows (n, d)."""
        draws, places = self._rng.random(len(X)), np.arange(self._met, self._met + len(X))
        self._met += len(X)
        if self._met <= self._limit:
            self._parts.append(X.copy())
            self._draws, self._places = np.append(self._draws, draws), np.append(self._places, places)
            return
        if self._parts:
            self._X, self._parts = np.concatenate(self._parts), []
        if len(self._X) < self._limit:
            head = self._limit - len(self._X)
            self._X = np.concatenate([self._X, X[:head]])
            self._draws, self._places = (
                np.append(self._draws, draws[:head]), np.append(self._places, places[:head])
            )  # fmt: skip
            X, draws, places = X[head:], draws[head:], places[head:]
        new = np.flatnonzero(draws < self._draws.max())
        all_draws = np.concatenate([self._draws, draws[new]])
        kept = np.zeros(len(all_draws), dtype=bool)
        kept[np.argpartition(all_draws, self._limit - 1)[: self._limit]] = True
        out, into = np.flatnonzero(~kept[: self._limit]), new[kept[self._limit :]]
        self._X[out], self._draws[out], self._places[out] = X[into], draws[into], places[into]

    def sample(self, X: np.ndarray, rows: int = SAMPLE_ROWS) -> np.ndarray:
        """At most so many of the rows kept, at random, in their order."""
        if len(X) <= rows:
            return X
        return X[np.sort(self._rng.choice(len(X), rows, replace=False))]

    def rows(self) -> np.ndarray:
        """(n, d) the rows kept, in the order they were met."""
        X = np.concatenate(self._parts) if self._parts else self._X
        return X[np.argsort(self._places)]


def leaves_of(tree: FrozenTree, scaling: Scaling, X: np.ndarray) -> np.ndarray:
    """(n,) int64, the leaf that each row of X (n, d) reaches, as the number of its tree node."""
    s, d = scaling, X.shape[1]
    splits = len(tree.thresholds)
    leaves = np.arange(2 * splits + 1) >= splits
    rows = block_rows(d)
    Z, clipped, none = np.empty((rows, d)), np.empty(rows, dtype=np.bool_), np.empty(0)
    leaf = np.empty(len(X), dtype=np.int64)
    for k in range(0, len(X), rows):
        n = len(X[k : k + rows])
        kernel.standardise(X[k : k + n], s.center, s.scale, s.fill, s.limit, Z[:n], clipped[:n])
        kernel.descend(Z[:n], leaves, *tree, leaf[k : k + n], none)
    return leaf


def refit(X: np.ndarray, params: FitParams, sample: np.ndarray) -> Partition:
    """Learn from rows X (n, d) by params, prune as they say, and part a sample (s, d) of rows.

    More clusters than the tree can give are as many as it can give.
    """
    learned = learn(ArrayRows(X), params)
    labels, found = restarts.leaf_clusters(learned, params.prune)
    return Partition(leaves_of(learned.tree.freeze(), learned.scaling, sample), labels, found)


def refits(
    X: np.ndarray,
    sample: np.ndarray,
    model: Model,
    times: int,
    *,
    seed: int,
    threads: int = 1,
    on_done: Callable[[int, int], None] | None = None,
) -> Iterator[Partition]:
    """Partitions of a sample by trees learned from random halves of X, in the order of their numbers.

    Parameters
    ----------
    X, sample : (n, d), (s, d) float64, the user's units; NaN for a cell to be filled
    model : whose parameters are used; its least size of a cluster shrinks with the rows
    times : how many
    seed : of the halves, and of each refit's start and order of rows
    threads : refits at a time; the result does not depend on it
    on_done : told how many refits are done, and the rows of each
    """
    half = max(1, len(X) // 2)
    prune = model.params.prune
    least = max(1, round(prune.min_size * half / max(1, int(model.counts[0])))) if prune.min_size > 1 else 1
    params = replace(model.params, buffer_rows=half, prune=replace(prune, min_size=least))

    def one(number: int) -> Partition:
        rng = np.random.default_rng([seed, 13, number])
        rows = np.sort(rng.choice(len(X), half, replace=False))
        return refit(X[rows], replace(params, seed=int(rng.integers(1 << 31))), sample)

    workers = max(1, min(threads, times, AT_ONCE_BYTES // max(1, 2 * half * X.shape[1] * 8)))
    with ThreadPoolExecutor(workers) as pool:
        for done, result in enumerate(pool.map(one, range(times)), start=1):
            if on_done is not None:
                on_done(done, half)
            yield result
