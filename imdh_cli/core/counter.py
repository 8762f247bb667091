"""Raw rows down a frozen tree -> the moments of its leaves and the histograms of its splits."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from imdh_cli.compiled import kernel
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.thread_pipeline import Block, ThreadPipeline, block_rows
from imdh_cli.core.tree import FrozenTree, Scaling


class Counter:
    """Counts rows that come in any portions, on any number of threads, to the same bytes.

    Counters of parts of the rows add up: `a += b` leaves in `a` what counting all rows would have, counts and
    histograms exactly, moments but for rounding.
    """

    def __init__(self, tree: FrozenTree, scaling: Scaling, threads: int = 1) -> None:
        self._d = tree.directions.shape[1]
        self._scaling = scaling
        self._statistics = Statistics.empty(tree.depth, self._d)
        self._rows = block_rows(self._d)
        self.busy: defaultdict[str, float] = defaultdict(float)  # processor seconds by what they were for

        def descend(block: Block) -> None:
            n = block.rows
            kernel.recount(
                block.Z[:n], block.clipped[:n], *tree, tree.depth, block.node[:n], self._statistics.histograms
            )

        def count(block: Block) -> None:
            self._statistics.count_leaves(block.Z[: block.rows], block.node[: block.rows])

        self._pipeline = ThreadPipeline(
            {"descend": descend, "count": count}, self._rows, self._d, 2 if threads == 1 else 0, self.busy
        )

    def update(self, X: np.ndarray) -> None:
        """Count the rows of X (rows, d) float64, NaN for a cell to be filled."""
        for k in range(0, len(X), self._rows):
            self._pipeline.send(X[k : k + self._rows], self._scaling)

    def __iadd__(self, other: Counter) -> Counter:
        self._statistics = self.statistics().merged(other.statistics())
        return self

    def statistics(self) -> Statistics:
        """Of the rows so far."""
        self._pipeline.drain()
        return self._statistics

    def join(self) -> None:
        """Wait for the rows on their way and let the threads go."""
        self._pipeline.join()

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` takes."""
        s = self.statistics()
        return {
            "counted_counts": s.counts,
            "counted_means": s.means,
            "counted_squares": s.sums_of_squares,
            "counted_histograms": s.histograms,
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a state."""
        s = self._statistics
        s.counts[:], s.means[:] = state["counted_counts"], state["counted_means"]
        s.sums_of_squares[:], s.histograms[:] = state["counted_squares"], state["counted_histograms"]
