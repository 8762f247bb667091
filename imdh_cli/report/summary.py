"""Model -> a `Summary`: every figure of every report, in the user's own units.

Means are ``center + scale * mean``, standard deviations ``scale * sqrt(sum of squares / rows)``
(divisor n), of the rows counted and as the model sees them: a value more than 10 sd from the mean
counts as 10 sd, but for all rows together, where these are what the columns were scaled by. A one-hot
level is a share from 0 to 1. Effects (``z``) are differences from the mean of all rows in sds of all
rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from imdh_cli.core.logs import signed_exp
from imdh_cli.core.pruning import Pruning, cluster_nodes, smooth
from imdh_cli.core.tree import CLIP
from imdh_cli.errors import UsageError
from imdh_cli.model.walk import in_user_units
from imdh_cli.report.cautions import cautions
from imdh_cli.report.choice import choice_of, finite, own_choice
from imdh_cli.report.figures import (
    Cluster,
    Feature,
    Rows,
    Side,
    Split,
    Summary,
    schema,
)
from imdh_cli.report.next_steps import next_steps
from imdh_cli.words import count

if TYPE_CHECKING:
    from imdh_cli.model import Model

__all__ = ["CSV_HEADER", "Summary", "csv_lines", "schema", "summarise"]

CSV_HEADER = (
    "cluster", "node", "rows", "share", "feature", "mean", "sd", "z", "overall_mean", "overall_sd", "name"
)  # fmt: skip
MARKED = 0.2  # a feature nearer than this to the mean of all rows, in sds, marks nothing out
MARKS = 12  # features named as marking a cluster out, at most
FAR = 1e100  # stands for what is too large for a float when it is squared
NEAREST_LIMIT = 2048  # clusters; beyond, all pairs of distances cost too much


def summarise(model: Model, *, min_size: int | None = None, name: str = "") -> Summary:
    """All figures of a model.

    Parameters
    ----------
    model : Model
    min_size : int, optional
        Clusters and nodes with fewer rows are counted but not described; the model's own least size
        when not given.
    name : str
        Of the model file, to be shown.
    """
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # see `choice.finite`
        return _summarise(model, min_size, name)


def _summarise(model: Model, min_size: int | None, name: str) -> Summary:
    asked = model.params.prune
    natural = own_choice(model)
    tree = _Tree(model, natural, asked.min_size if min_size is None else min_size)
    meta = model.metadata
    rows = meta.get("rows", {})
    features = tree.features()
    clusters = tree.clusters()
    summary = Summary(
        name=name,
        version=str(meta.get("version", "")),
        inputs=tuple(map(str, meta.get("inputs", ()))),
        rows=Rows(
            read=int(rows.get("read", tree.n)),
            used=int(rows.get("used", tree.n)),
            skipped=int(rows.get("skipped", 0)),
            bad=int(rows.get("bad", 0)),
            counted=tree.n,
            learned=int(meta.get("learned_rows", rows.get("used", tree.n))),
        ),
        missing=dict(meta.get("missing", {})),
        infinite=dict(meta.get("infinite", {})),
        unseen=dict(meta.get("unseen", {})),
        left_out=tuple((str(c), str(why)) for c, why in meta.get("left_out_columns", ())),
        statistics=str(meta.get("statistics", "")),
        passes=meta.get("passes"),
        preset=str(meta.get("preset", "default")),
        parameters=model.params.to_dict(),
        versions={k: str(v) for k, v in meta.get("versions", {}).items()},
        notes=tuple(map(str, meta.get("notes", ()))),
        tree_depth=model.depth,
        min_size=tree.min_size,
        features=features,
        explained=tree.explained(),
        choice=choice_of(model, natural),
        clusters=clusters,
        splits={i: tree.split(i) for i in tree.cuts if tree.described(i)},
        warnings=(),
        model=model,
        _split_of=tree.split,
    )
    steps = next_steps(model, summary.choice, name)
    return replace(summary, warnings=cautions(summary), next_steps=steps)


def csv_lines(summary: Summary) -> Iterator[str]:
    """The CSV report without line ends: a header, then one line per cluster and feature, in full.

    Where stability is known, its last column is each cluster's Jaccard similarity.
    Withheld figures, and the effect on a constant feature, are empty cells.
    """
    jaccard = {c.cluster: c.jaccard for c in summary.stability.clusters} if summary.stability else None
    yield _csv_line([*CSV_HEADER, *(["jaccard"] if jaccard is not None else [])])
    for c in summary.clusters:
        for j, f in enumerate(summary.features):
            cells: list[Any] = [c.label, c.node, c.rows, c.share, f.name, None, None, None]
            if c.mean is not None and c.sd is not None and c.z is not None:
                z = float(c.z[j]) if f.sd > 0.0 else None
                cells[5:] = [float(c.mean[j]), float(c.sd[j]), z]
            cells += [f.mean, f.sd, c.name]
            yield _csv_line([*cells, jaccard[c.label]] if jaccard is not None else cells)


def _csv_line(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


class _Tree:
    """The model cut at its clusters; everything here is in z until it leaves."""

    def __init__(self, model: Model, natural: Pruning, min_size: int) -> None:
        self.model = model
        self.natural = natural  # gains, depths and excess are the same whatever the number chosen
        self.min_size = min_size
        self.n = int(model.counts[0])
        self.one_hot = _one_hot(model)
        self.logs = model.logs
        label_of_leaf = np.asarray(model.cluster_of_leaf, dtype=np.int64)
        self.n_clusters = int(label_of_leaf[-1])
        self.first, self.last = _label_ranges(label_of_leaf)
        self.cuts = self._cuts()
        self.from_k = _from_k(self.cuts, np.asarray(model.merge_order))
        self.nodes = cluster_nodes(label_of_leaf, model.counts)
        self.names = model.names_of(self.nodes)
        self._moments(label_of_leaf)

    def _cuts(self) -> list[int]:
        """The splits that tell clusters apart, by number.

        A side that is empty, or too small to be a cluster, has the label of a cluster on the other
        side: such a split tells nothing apart.
        """
        node = np.arange(1, self.model.n_splits + 1)
        return [int(i) for i in node[self.last[2 * node - 1] < self.first[2 * node]]]

    def _moments(self, label_of_leaf: np.ndarray) -> None:
        """Rows, mean and sum of squares per cluster, merged from the leaves (Chan)."""
        model, k = self.model, self.n_clusters
        leaves = slice(model.n_splits, model.n_nodes)
        n = model.counts[leaves].astype(np.float64)
        start = np.searchsorted(label_of_leaf, np.arange(1, k + 1))
        self.rows = np.add.reduceat(model.counts[leaves], start)
        total = np.add.reduceat(n[:, None] * model.means[leaves], start, axis=0)
        self.means = total / np.maximum(self.rows, 1)[:, None]
        apart = model.means[leaves] - self.means[label_of_leaf - 1]
        ss = model.sums_of_squares[leaves] + n[:, None] * apart**2
        self.ss = np.add.reduceat(ss, start, axis=0)
        self.mean_all = model.means[0]
        self.sd_all = finite(np.sqrt(model.sums_of_squares[0] / max(self.n, 1)))
        self.clipped = self._clipped()
        known = np.minimum(self._known() / np.maximum(self.n - self._far(), 1), 1.0)
        self.mean_all = np.where(self.clipped, 0.0, self.mean_all)
        self.sd_all = np.where(self.clipped, np.sqrt(known), self.sd_all)

    def _known(self) -> np.ndarray:
        """(d,) cells that the columns were scaled by: the sum of their squares, in z, if none is cut off."""
        return self.model.extras.get("column_counts", np.full(self.model.n_features, self.n)) - self._far()

    def _far(self) -> np.ndarray:
        """(d,) cells that the columns were not scaled by since they lie far from the others."""
        far = {tail["feature"]: tail["cells"] for tail in self.model.metadata.get("tails", ())}
        return np.array([far.get(name, 0) for name in self.model.feature_names])

    def _clipped(self) -> np.ndarray:
        """(d,) bool: columns with values cut off, whose true moments are known: mean 0 and sd 1, in z.

        Known where the rows counted are those that the columns were scaled by. One value cut off stands for
        the square of the limit, and takes away from the sum of squares. Of columns with far cells the moments
        are those of the others.
        """
        model, rows = self.model, self.model.metadata.get("rows", {})
        apart = "counted_apart" in model.metadata or "learned_rows" in model.metadata
        if apart or self.n != rows.get("used") or not np.isfinite(model.scaling.limit):
            return np.zeros(model.n_features, dtype=bool)
        squares = model.sums_of_squares[0] + self.n * model.means[0] ** 2
        cut = (squares > 0.99 * CLIP**2) & (squares < (1.0 - 1e-9) * self._known())
        return cut | (self._far() > 0)

    def explained(self) -> float | None:
        whole = float(self.model.sums_of_squares[0].sum())
        return _explained(float(self.ss.sum()), whole)

    def features(self) -> tuple[Feature, ...]:
        model = self.model
        mean = self._user_mean(self.mean_all)
        sd = self._user_sd(self.mean_all, self.sd_all)
        whole = model.sums_of_squares[0]
        within = self.ss.sum(axis=0)
        return tuple(
            Feature(
                name=name,
                share=bool(self.one_hot[j]),
                mean=float(mean[j]),
                sd=float(sd[j]),
                explained=_explained(float(within[j]), float(whole[j])),
                clipped=bool(self.clipped[j]),
            )
            for j, name in enumerate(model.feature_names)
        )

    def clusters(self) -> tuple[Cluster, ...]:
        nearest, distance = self._nearest()
        return tuple(
            self._cluster(label, int(nearest[label - 1]), float(distance[label - 1]))
            for label in range(1, self.n_clusters + 1)
        )

    def _cluster(self, label: int, nearest: int, distance: float) -> Cluster:
        i = label - 1
        rows = int(self.rows[i])
        cluster = Cluster(
            label=label,
            node=int(self.nodes[i]),
            rows=rows,
            share=rows / max(self.n, 1),
            withheld=rows < max(1, self.min_size),
            name=self.names[i],
        )
        if cluster.withheld:
            return cluster
        sd = finite(np.sqrt(self.ss[i] / rows))
        varied = self.sd_all > 0.0
        unit = np.where(varied, self.sd_all, 1.0)
        z = np.where(varied, (self.means[i] - self.mean_all) / unit, 0.0)
        z = np.clip(finite(z), -FAR, FAR)
        order = np.argsort(-np.abs(z), kind="stable")[:MARKS]
        return replace(
            cluster,
            mean=self._user_mean(self.means[i]),
            sd=self._user_sd(self.means[i], sd),
            z=z,
            spread=_number(np.sqrt(np.mean((sd / unit)[varied] ** 2))) if varied.any() else None,
            marks=tuple(int(j) for j in order if abs(z[j]) >= MARKED),
            nearest=nearest or None,
            distance=distance if nearest else None,
        )

    def _nearest(self) -> tuple[np.ndarray, np.ndarray]:
        """(K,) label of the cluster with the nearest mean (0: none), (K,) the distance in sds."""
        k = self.n_clusters
        label, distance = np.zeros(k, dtype=np.int64), np.zeros(k)
        open_to_see = np.flatnonzero(self.rows >= max(1, self.min_size))
        if not 2 <= len(open_to_see) <= NEAREST_LIMIT:
            return label, distance
        mean = self.means[open_to_see] / np.where(self.sd_all > 0.0, self.sd_all, 1.0)
        for a, i in enumerate(open_to_see):
            square = ((mean - mean[a]) ** 2).sum(axis=1)
            square[a] = np.inf
            b = int(np.argmin(square))
            label[i], distance[i] = open_to_see[b] + 1, _number(np.sqrt(square[b]))
        return label, distance

    def described(self, node: int) -> bool:
        """Whether a node has rows enough to be described."""
        return int(self.model.counts[node - 1]) >= max(1, self.min_size)

    def split(self, node: int) -> Split:
        """Any split with rows enough; see `Summary.split`."""
        model = self.model
        if not 1 <= node <= model.n_nodes:
            raise UsageError(
                f"there is no node {node}: the tree has nodes 1 to {model.n_nodes:,}",
                hint="the root is 1, the children of node i are 2i and 2i + 1",
            )
        if node > model.n_splits:
            raise UsageError(
                f"node {node} is a leaf: it has no split",
                hint=f"splits are nodes 1 to {model.n_splits:,}; its parent is node {node // 2}",
            )
        i = node - 1
        rows = int(model.counts[i])
        if not self.described(node):
            few = f"fewer than {count(self.min_size)}" if rows else "no rows"
            raise UsageError(
                f"node {node} has {few}: not shown",
                hint="choose a node nearer to the root",
            )
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return self._split(node, rows)

    def _split(self, node: int, rows: int) -> Split:
        model, i = self.model, node - 1
        coefficients, bound = in_user_units(model, node)
        whole = float(model.sums_of_squares[0].sum())
        return Split(
            node=node,
            rows=rows,
            share=rows / self.n,
            left=self._side(2 * node),
            right=self._side(2 * node + 1),
            from_k=self.from_k.get(node),
            depth=float(self.natural.depths[i]),
            excess=float(self.natural.excess[i]),
            significant=bool(self.natural.significant[i]),
            gain=_number(self._gain(i) / whole) if whole > 0.0 else 0.0,
            loadings=model.directions[i],
            coefficients=finite(coefficients),
            cut=_number(bound),
            sd=float(model.projection_sd[i]),
            histogram=model.histograms[i],
            density=smooth(model.histograms[i], rows)[0],
            left_mean=self._node_mean(2 * node),
            right_mean=self._node_mean(2 * node + 1),
        )

    def _side(self, node: int) -> Side:
        """What is reached from a split; splits that tell no clusters apart are passed through."""
        i = node - 1
        while self.first[i] < self.last[i] and i + 1 not in self.from_k:
            left, right = 2 * i + 1, 2 * i + 2
            i = left if self.first[left] < self.last[left] else right
        rows = int(self.model.counts[node - 1])
        return Side(i + 1, rows, int(self.first[node - 1]), int(self.last[node - 1]))

    def _gain(self, i: int) -> float:
        ss = self.model.sums_of_squares
        return max(0.0, float(ss[i].sum() - ss[2 * i + 1].sum() - ss[2 * i + 2].sum()))

    def _node_mean(self, node: int) -> np.ndarray | None:
        return self._user_mean(self.model.means[node - 1]) if self.described(node) else None

    def _user_mean(self, z: np.ndarray) -> np.ndarray:
        """(d,) a mean in the user's units; a share is kept within 0 and 1, whatever the rounding."""
        mean = finite(self.model.center + self.model.scale * z)
        mean = np.where(self.logs, finite(signed_exp(np.where(self.logs, mean, 0.0))), mean)
        return np.where(self.one_hot, np.clip(mean, 0.0, 1.0), mean)

    def _user_sd(self, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
        """(d,) a sd in the user's units; of logarithms half of what lies between mean - sd and mean + sd."""
        around = (self._user_mean(mean + sd) - self._user_mean(mean - sd)) / 2.0
        return np.where(self.logs, finite(around), finite(self.model.scale * sd))


def _number(value: Any) -> float:
    return float(finite(np.asarray(value)))


def _explained(within: float, whole: float) -> float | None:
    return float(np.clip(1.0 - _number(within / whole), 0.0, 1.0)) if whole > 0.0 else None


def _label_ranges(label_of_leaf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the first and the last cluster below every node."""
    first, last = [label_of_leaf], [label_of_leaf]
    while len(first[0]) > 1:
        first.insert(0, first[0][0::2])
        last.insert(0, last[0][1::2])
    return np.concatenate(first), np.concatenate(last)


def _from_k(cuts: list[int], merge_order: np.ndarray) -> dict[int, int]:
    """The smallest number of clusters that needs each cut: the last one removed is the first of 2."""
    step = np.empty(len(merge_order) + 1, dtype=np.int64)
    step[merge_order] = np.arange(len(merge_order))
    by_removal = sorted(cuts, key=lambda node: -step[node])
    return {node: k for k, node in enumerate(by_removal, start=2)}


def _one_hot(model: Model) -> np.ndarray:
    """(d,) bool: which columns of the matrix are levels of a text column."""
    return np.repeat(
        [column.levels is not None for column in model.spec.columns],
        [column.width for column in model.spec.columns],
    )
