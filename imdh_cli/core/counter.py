"""Raw rows down a frozen tree -> the moments of its leaves and the histograms of its splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.histogram import BINS
from imdh_cli.compiled.memory import aligned
from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.thread_pipeline import Block, Step, ThreadPipeline, block_rows
from imdh_cli.core.tree import FrozenTree, Scaling


class Counter:
    """Counts rows that come in any portions, on any number of threads, to the same bytes.

    Counters of parts of the rows add up: `a += b` leaves in `a` what counting all rows would have, counts and
    histograms exactly, moments but for rounding. Moments are of the rows as they are, histograms of rows with
    noise (see dither), which is that of the places first_row, first_row + 1 ... among all of them.
    """

    def __init__(
        self,
        tree: FrozenTree,
        scaling: Scaling,
        threads: int = 1,
        *,
        dither: Dither | None = None,
        seed: int = 0,
        first_row: int = 0,
    ) -> None:
        self._d = tree.directions.shape[1]
        self._scaling = scaling
        dither = dither or Dither.none()
        self._piled, leans = dither.piles.leaning(tree.directions)
        self._statistics = Statistics.empty(tree.depth, self._d, piles=len(self._piled) > 0)
        self._rows = block_rows(self._d)
        self.busy: defaultdict[str, float] = defaultdict(float)  # processor seconds by what they were for
        self._dither = dither
        self._key = noise_key(seed, epoch=None)
        self._row = first_row
        wide = self._dither.widened_tree(tree, scaling)
        at_leaf = np.arange(2 * len(tree.thresholds) + 1) >= len(tree.thresholds)
        self._wide = self._dither.widened(scaling)
        # Histograms for each thread: threads take parts of a block, and whole numbers add up in any order.
        self._parts = [self._histograms() for _ in range(threads)]

        def judge(part: int, block: Block) -> None:
            here = _part(block, part, threads)
            arrays = block.Z[here], block.clipped[here], block.marks[here]
            kernel.recount(*arrays, *wide, leans, block.node[here], *self._parts[part])

        def descend(part: int, block: Block) -> None:
            here = _part(block, part, threads)
            kernel.descend(block.Z[here], at_leaf, *tree, block.node[here], np.empty(0))

        def count(block: Block) -> None:
            self._statistics.count_leaves(block.Z[: block.rows], block.node[: block.rows])

        def side_by_side(name: str, step: Callable[[int, Block], None]) -> dict[str, Step]:
            return {name if threads == 1 else f"{name} {k + 1}": partial(step, k) for k in range(threads)}

        def pipeline(*stages: Mapping[str, Step]) -> ThreadPipeline:
            return ThreadPipeline(stages, self._rows, self._d, threads, self.busy)

        to_leaves = side_by_side("descend", descend if self._dither.any else judge)
        self._pipelines = [pipeline({"standardise": self._standardise}, to_leaves, {"count": count})]
        if self._dither.any:
            noisy = {"add noise": self._standardise_noisy}
            self._pipelines.append(pipeline(noisy, side_by_side("judge", judge)))

    def _histograms(self) -> tuple[np.ndarray, np.ndarray]:
        """Empty ones of the splits, and where there are piles of the rows on them."""
        size, piles = self._statistics.histograms.shape, self._statistics.on_piles
        return aligned(*size, dtype=np.int64), aligned(
            size[0] if piles is not None else 0, BINS, dtype=np.int64
        )

    def _standardise(self, block: Block) -> None:
        s, n = self._scaling, block.rows
        self._mark(block)
        kernel.standardise(block.X, s.center, s.scale, s.fill, s.limit, block.Z[:n], block.clipped[:n])

    def _standardise_noisy(self, block: Block) -> None:
        X, s, n = self._dither.apply(block.X, self._key, block.first), self._wide, block.rows
        self._mark(block)
        kernel.standardise(X, s.center, s.scale, s.fill, s.limit, block.Z[:n], block.clipped[:n])

    def _mark(self, block: Block) -> None:
        if len(self._piled):
            block.marks[: block.rows] = self._dither.piles.marks(block.X, self._piled)

    def update(self, X: np.ndarray) -> None:
        """Count the rows of X (rows, d) float64, NaN for a cell to be filled; they are not to change until
        `statistics` or `join`."""
        for k in range(0, len(X), self._rows):
            part = X[k : k + self._rows]
            for pipeline in self._pipelines:
                pipeline.send(part, self._row)
            self._row += len(part)

    def __iadd__(self, other: Counter) -> Counter:
        self._statistics = self.statistics().merged(other.statistics())
        return self

    def statistics(self) -> Statistics:
        """Of the rows so far."""
        for pipeline in self._pipelines:
            pipeline.drain()
        for histograms, on_piles in self._parts:
            self._statistics.histograms += histograms
            histograms[:] = 0
            if self._statistics.on_piles is not None:
                self._statistics.on_piles += on_piles
                on_piles[:] = 0
        return self._statistics

    def join(self) -> None:
        """Wait for the rows on their way and let the threads go."""
        for pipeline in self._pipelines:
            pipeline.join()

    @property
    def helped(self) -> float:
        """Processor seconds of the thread that brings the rows."""
        return sum(pipeline.helped for pipeline in self._pipelines)

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` takes."""
        s = self.statistics()
        piles = {} if s.on_piles is None else {"counted_on_piles": s.on_piles}
        return {
            **piles,
            "counted_counts": s.counts,
            "counted_means": s.means,
            "counted_squares": s.sums_of_squares,
            "counted_histograms": s.histograms,
            "counted_row": np.array(self._row),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a state."""
        self._row = int(state["counted_row"])
        s = self._statistics
        if s.on_piles is not None:
            s.on_piles[:] = state["counted_on_piles"]
        s.counts[:], s.means[:] = state["counted_counts"], state["counted_means"]
        s.sums_of_squares[:], s.histograms[:] = state["counted_squares"], state["counted_histograms"]


def _part(block: Block, part: int, parts: int) -> slice:
    """One of several parts of a block's rows."""
    return slice(block.rows * part // parts, block.rows * (part + 1) // parts)
