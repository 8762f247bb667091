"""Labels and known classes, chunk by chunk -> how well they agree.

Only the contingency table is kept, so any number of rows fits. The measures are those of Strehl and
Ghosh (2002, normalised mutual information), Hubert and Arabie (1985, adjusted Rand index) and
Rosenberg and Hirschberg (2007, homogeneity and completeness).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from imdh_cli.core.partition import adjusted_rand_of_counts
from imdh_cli.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CLASSES = 10_000  # more distinct values than this are no classes but an id; bounds the table


@dataclass(frozen=True)
class Agreement:
    """How clusters and known classes agree; the fields are those of the JSON report."""

    column: str
    rows: int  # rows compared: with a cluster and a class
    without_cluster: int  # rows left out: label -1
    without_class: int  # rows left out: the class is missing
    nmi_arithmetic: float  # mutual information / mean of the two entropies
    nmi_geometric: float  # mutual information / root of their product
    ari: float
    homogeneity: float  # 1: every cluster holds one class
    completeness: float  # 1: every class lies in one cluster
    classes: tuple[str, ...]
    clusters: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]  # rows of class i in cluster j

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return vars(self) | {
            "classes": list(self.classes),
            "clusters": list(self.clusters),
            "table": [list(row) for row in self.table],
        }


class Truth:
    """Counts rows by class and cluster.

    Parameters
    ----------
    column : str
        Where the classes come from; named in errors and in the result.
    n_clusters : int
        Labels are 1..n_clusters, or -1 for a row without a cluster.
    """

    def __init__(self, column: str, n_clusters: int) -> None:
        self.column = column
        self._codes: dict[Hashable, int] = {}
        self._table = np.zeros((0, n_clusters), dtype=np.int64)
        self._without_cluster = 0
        self._without_class = 0

    def add(self, labels: np.ndarray, classes: Any) -> None:
        """Count some rows.

        Parameters
        ----------
        labels : ndarray of shape (n,), int
            1..K, or -1 for a row without a cluster.
        classes : array-like of length n
            A NumPy array, a list, or an Arrow array; text, numbers or booleans. None, NaN and
            empty text are missing.

        Raises
        ------
        DataError
            More than `MAX_CLASSES` distinct values.
        """
        values = _dictionary(classes)
        found, local = values.dictionary.to_pylist(), values.indices.fill_null(-1).to_numpy(False)
        # One code per distinct value of this chunk; -1 (missing) indexes the last entry, a -1.
        code_of = np.array([self._code(value) for value in found] + [-1], dtype=np.int64)
        code = code_of[local]
        labels = np.asarray(labels)
        known, labelled = code >= 0, labels > 0
        self._without_class += int(np.count_nonzero(~known))
        self._without_cluster += int(np.count_nonzero(known & ~labelled))
        both = known & labelled
        k = self._table.shape[1]
        n_new = len(self._codes) - len(self._table)
        if n_new:
            self._table = np.vstack([self._table, np.zeros((n_new, k), dtype=np.int64)])
        cell = code[both] * k + labels[both] - 1
        self._table += np.bincount(cell, minlength=self._table.size).reshape(self._table.shape)

    def _code(self, value: Hashable) -> int:
        """The class number of a value, a new one when it is new; -1 for empty text."""
        if value == "":
            return -1
        if isinstance(value, float | np.floating) and float(value).is_integer():
            value = int(value)  # 1 in one file and 1.0 in another are one class
        if value not in self._codes and len(self._codes) >= MAX_CLASSES:
            raise DataError(
                f'column "{self.column}" has more than {MAX_CLASSES:,} different values',
                hint="--truth wants a column of known classes, not an id or a measurement",
            )
        return self._codes.setdefault(value, len(self._codes))

    def result(self) -> Agreement:
        """The measures of all rows counted.

        Raises
        ------
        DataError
            No row has both a cluster and a class.
        """
        used = self._table.sum(axis=1) > 0
        names = [str(value) for value, code in self._codes.items() if used[code]]
        table = self._table[used]
        if not len(table):
            raise DataError(
                f'no row has both a cluster and a value in column "{self.column}"',
                hint="is it the right column, and do the data fit the model?",
            )
        order = sorted(range(len(names)), key=lambda i: _natural(names[i]))
        table = table[order]
        return Agreement(
            column=self.column,
            rows=int(table.sum()),
            without_cluster=self._without_cluster,
            without_class=self._without_class,
            **measures(table),
            classes=tuple(names[i] for i in order),
            clusters=tuple(range(1, table.shape[1] + 1)),
            table=tuple(tuple(int(n) for n in row) for row in table),
        )


def _dictionary(classes: Any) -> pa.DictionaryArray:
    """The distinct values, and of each row which it has; null where it is missing, or NaN."""
    import pyarrow as pa

    values = classes
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = pa.array(values, from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_floating(values.type):
        values = pa.array(values.to_numpy(zero_copy_only=False), from_pandas=True)
    return values.dictionary_encode()


def measures(table: np.ndarray) -> dict[str, float]:
    """NMI (two means), ARI, homogeneity and completeness of a contingency table.

    Parameters
    ----------
    table : ndarray of shape (n_classes, n_clusters), int64
        Rows by class and cluster, at least one.
    """
    n = float(table.sum())
    by_class, by_cluster = table.sum(axis=1), table.sum(axis=0)
    h_class, h_cluster = _entropy(by_class / n), _entropy(by_cluster / n)
    information = max(0.0, h_class + h_cluster - _entropy(table.ravel() / n))
    if h_class == h_cluster == 0.0:
        arithmetic = geometric = 1.0  # one class, one cluster: nothing is left unsaid
    else:
        arithmetic = 2.0 * information / (h_class + h_cluster)
        product = (h_class * h_cluster) ** 0.5
        geometric = information / product if product > 0.0 else 0.0
    return {
        "nmi_arithmetic": min(1.0, arithmetic),
        "nmi_geometric": min(1.0, geometric),
        "ari": adjusted_rand_of_counts(table.ravel(), by_class, by_cluster),
        "homogeneity": min(1.0, information / h_class) if h_class > 0.0 else 1.0,
        "completeness": min(1.0, information / h_cluster) if h_cluster > 0.0 else 1.0,
    }


def _entropy(p: np.ndarray) -> float:
    """Entropy in nats of shares that add up to one; empty ones count nothing."""
    p = p[p > 0.0]
    return max(0.0, float(-(p * np.log(p)).sum()))


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers by value, before text by spelling."""
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)
