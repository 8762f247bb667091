"""Labelled rows, chunk by chunk -> how many of them lie near the cut between each pair of clusters."""

from __future__ import annotations

from collections import Counter

import numpy as np

from imdh_cli.report.figures import NEAR, Border


class Borders:
    """Counts rows by cluster, and those near a cut by the clusters on both sides of it."""

    def __init__(self, n_clusters: int) -> None:
        self._sizes = np.zeros(n_clusters + 1, dtype=np.int64)
        self._near: Counter[tuple[int, int]] = Counter()

    def add(self, cluster: np.ndarray, runner_up: np.ndarray, border: np.ndarray) -> None:
        """Count some rows.

        cluster, runner_up : (n,) int, from 1 up; a runner_up of 0 is none. border : (n,) float64, projected
        sds from the cut between both.
        """
        self._sizes += np.bincount(cluster, minlength=len(self._sizes))
        near = (border < NEAR) & (runner_up > 0)
        pairs = np.sort(np.stack([cluster[near], runner_up[near]], axis=1), axis=1)
        for pair, rows in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True):
            self._near[tuple(pair.tolist())] += int(rows)

    def result(self) -> tuple[Border, ...]:
        """The pairs with rows near the cut between them, the most crowded first."""
        found = [
            Border(a, b, rows, rows / int(self._sizes[a] + self._sizes[b]))
            for (a, b), rows in self._near.items()
        ]
        return tuple(sorted(found, key=lambda border: (-border.share, border.first, border.second)))
