"""Raw rows down a frozen tree -> the moments of its leaves and the histograms of its splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.compiled.histogram import BINS
from imdh_cli.core.dither import Dither, noise_key
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.thread_pipeline import Block, ThreadPipeline, block_rows
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
        nowhere = np.empty(0)
        nothing = np.empty((0, BINS), dtype=np.int64)

        def judge(block: Block) -> None:
            n, statistics = block.rows, self._statistics
            on_piles = nothing if statistics.on_piles is None else statistics.on_piles
            kernel.recount(
                block.Z[:n],
                block.clipped[:n],
                block.marks[:n],
                *wide,
                leans,
                block.node[:n],
                statistics.histograms,
                on_piles,
            )

        def descend(block: Block) -> None:
            n = block.rows
            kernel.descend(block.Z[:n], at_leaf, *tree, block.node[:n], nowhere)

        def count(block: Block) -> None:
            self._statistics.count_leaves(block.Z[: block.rows], block.node[: block.rows])

        own = 2 if threads == 1 else 0
        steps: dict[str, Callable[[Block], None]] = {"descend": judge, "count": count}
        self._judging = None
        if self._dither.any:
            self._judging = ThreadPipeline({"judge": judge}, self._rows, self._d, own, self.busy)
            steps["descend"] = descend
        self._pipeline = ThreadPipeline(steps, self._rows, self._d, own, self.busy)

    def update(self, X: np.ndarray) -> None:
        """Count the rows of X (rows, d) float64, NaN for a cell to be filled."""
        for k in range(0, len(X), self._rows):
            part = X[k : k + self._rows]
            marks = self._dither.piles.marks(part, self._piled) if len(self._piled) else None
            self._pipeline.send(part, self._scaling, marks)
            if self._judging is not None:
                noisy = self._dither.apply(part, self._key, self._row)
                self._judging.send(noisy, self._dither.widened(self._scaling), marks)
            self._row += len(part)

    def __iadd__(self, other: Counter) -> Counter:
        self._statistics = self.statistics().merged(other.statistics())
        return self

    def statistics(self) -> Statistics:
        """Of the rows so far."""
        self._pipeline.drain()
        if self._judging is not None:
            self._judging.drain()
        return self._statistics

    def join(self) -> None:
        """Wait for the rows on their way and let the threads go."""
        self._pipeline.join()
        if self._judging is not None:
            self._judging.join()

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
