"""Rows with the clusters of two models -> how well these agree, and which cluster is which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from imdh_cli.errors import DataError, UsageError
from imdh_cli.report.agreement import Agreement, measures

SAME = 0.5  # a Jaccard similarity from which matched clusters may well have one name


@dataclass(frozen=True)
class Match:
    """A cluster and that of the other model which stands for it. jaccard : of the rows of both."""

    cluster: int
    name: str | None
    other: int
    other_name: str | None
    rows: int  # in both
    jaccard: float


@dataclass(frozen=True)
class Comparison:
    """Two models on the same rows. agreement: its classes are the clusters of the other model."""

    other: str
    agreement: Agreement
    matches: tuple[Match, ...]

    @property
    def names_to_carry(self) -> tuple[str, ...]:
        """What `imdh prune OTHER --rename` would be told: names of this model's clusters, where they fit."""
        taken = {m.other_name for m in self.matches}
        return tuple(
            f"{m.other}={m.name}"
            for m in self.matches
            if m.name and not m.other_name and m.name not in taken and m.jaccard >= SAME
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        a = self.agreement
        kept = (
            "rows",
            "without_cluster",
            "ari",
            "nmi_arithmetic",
            "nmi_geometric",
            "homogeneity",
            "completeness",
        )
        return {
            "other": self.other,
            **{name: getattr(a, name) for name in kept},
            "without_other": a.without_class,
            "clusters": list(a.clusters),
            "others": [int(name) for name in a.classes],
            "table": np.array(a.table).T.tolist(),
            "matches": [vars(m).copy() for m in self.matches],
        }


class Overlap:
    """Counts rows by their clusters in two models of K and L clusters."""

    def __init__(self, clusters: int, others: int) -> None:
        self._table = np.zeros((clusters + 1, others + 1), dtype=np.int64)  # 0: without a cluster

    def add(self, cluster: np.ndarray, other: np.ndarray) -> None:
        """Count some rows, (n,) int each, from 1 up or -1."""
        cells = np.maximum(cluster, 0) * self._table.shape[1] + np.maximum(other, 0)
        self._table += np.bincount(cells, minlength=self._table.size).reshape(self._table.shape)

    def result(
        self, other: str, names: Sequence[str | None], other_names: Sequence[str | None]
    ) -> Comparison:
        """How the models agree.

        Parameters
        ----------
        other : the other model, in words
        names, other_names : (K,), (L,) of the clusters

        Raises
        ------
        DataError
            No row has a cluster in both.
        UsageError
            SciPy is not installed.
        """
        table = self._table[1:, 1:].T  # the other model's clusters are the classes
        if not table.any():
            raise DataError("no row has a cluster in both models", "do the data fit them?")
        agreement = Agreement(
            column=other,
            rows=int(table.sum()),
            without_cluster=int(self._table[0, 1:].sum()),
            without_class=int(self._table[1:, 0].sum()),
            **measures(table),
            classes=tuple(map(str, range(1, len(table) + 1))),
            clusters=tuple(range(1, table.shape[1] + 1)),
            table=tuple(tuple(row) for row in table.tolist()),
        )
        return Comparison(other, agreement, tuple(_matches(table.T, names, other_names)))


def check_scipy() -> None:
    """UsageError where SciPy is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise UsageError("matching clusters needs SciPy", "pip install 'imdh[compare]'") from error


def _matches(
    table: np.ndarray, names: Sequence[str | None], other_names: Sequence[str | None]
) -> list[Match]:
    """One to one, so that as many rows as can be are in matched clusters (Kuhn's Hungarian method)."""
    from scipy.optimize import linear_sum_assignment

    own, other = table.sum(axis=1), table.sum(axis=0)
    found = []
    for i, j in zip(*linear_sum_assignment(table, maximize=True), strict=True):
        rows = int(table[i, j])
        if rows:
            jaccard = rows / int(own[i] + other[j] - rows)
            found.append(Match(int(i) + 1, names[i], int(j) + 1, other_names[j], rows, jaccard))
    return found
