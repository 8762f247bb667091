"""What a report knows: every figure that any of its forms shows, in the user's own units.

The terminal, the page, the plots, JSON and CSV all read one `Summary`, so they cannot disagree.
`summary.summarise` makes it; `Summary.to_dict` is the JSON report, which ``summary.schema.json``
beside this file describes together with its version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from imdh_cli.compiled.histogram import HALF, PER_SD
from imdh_cli.errors import UsageError
from imdh_cli.report.agreement import Agreement
from imdh_cli.report.choice import Choice
from imdh_cli.report.comparison import Comparison
from imdh_cli.report.drift import Drift
from imdh_cli.report.stability import Stability
from imdh_cli.words import printable

if TYPE_CHECKING:
    from imdh_cli.model import Model

SCHEMA = "imdh-report"
SCHEMA_VERSION = 1
NEAR = 0.1  # projected sds from a cut within which a row could as well be on its other side
NAME = 40  # characters of a cluster's name, where it is shown


@dataclass(frozen=True)
class Feature:
    """One column of the feature matrix, over all rows counted."""

    name: str
    share: bool  # a one-hot level: its mean is a share
    mean: float
    sd: float
    explained: float | None  # share of its variance that lies between clusters; None: constant
    clipped: bool = False  # has values beyond 10 sd, which its mean and sd do not count as 10 sd


@dataclass(frozen=True, eq=False)
class Cluster:
    """One cluster. Arrays have one entry per feature; None where they are withheld or undefined."""

    label: int  # 1..K, left to right in the tree
    node: int  # the paper's number
    rows: int
    share: float
    withheld: bool  # fewer rows than the least size asked for: only counted
    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    z: np.ndarray | None = None
    spread: float | None = None  # root mean square over features of its sd in sds of all rows
    marks: tuple[int, ...] = ()  # feature numbers, farthest from the mean of all rows first
    nearest: int | None = None  # label of the cluster with the nearest mean
    distance: float | None = None  # to it, in sds of all rows (Euclidean)
    name: str | None = None  # as people call it

    @property
    def title(self) -> str:
        """`cluster 3`, or with its name `cluster 3, Nordics`."""
        return f"cluster {self.label}" + (f", {printable(self.name, NAME)}" if self.name else "")


@dataclass(frozen=True)
class Side:
    """What lies on one side of a cut."""

    node: int
    rows: int
    first: int  # labels of the clusters there
    last: int

    @property
    def n_clusters(self) -> int:
        return self.last - self.first + 1

    def labels(self, to: str = "\u2013") -> str:
        """Of the clusters there: `3`, or from one to another."""
        return str(self.first) if self.n_clusters == 1 else f"{self.first}{to}{self.last}"

    def clusters(self, to: str = "\u2013") -> str:
        """As a noun: `cluster 3`, or `clusters` and from one to another."""
        return f"cluster{'' if self.n_clusters == 1 else 's'} {self.labels(to)}"


@dataclass(frozen=True, eq=False)
class Split:
    """One split node: a hyperplane, the rows that meet it and their density across it."""

    node: int
    rows: int
    share: float  # of all rows
    left: Side
    right: Side
    from_k: int | None  # the smallest number of clusters that needs this split; None: below them
    depth: float  # of the valley, 0..1
    excess: float  # excess mass over sqrt(rows); chance stays below 1.5
    significant: bool
    gain: float  # within-cluster sum of squares it takes away, as a share of the whole
    loadings: np.ndarray  # (d,) unit vector in sds of all rows
    coefficients: np.ndarray  # (d,) in user units: left where coefficients . x < cut
    cut: float
    sd: float  # of the projections, in sds of all rows
    histogram: np.ndarray  # (128,) rows, bins of 1/16 projected sd on [-4, 4] about the cut
    density: np.ndarray  # (128,) the histogram smoothed, integrates to 1 per projected sd
    left_mean: np.ndarray | None  # (d,) user units; None: withheld
    right_mean: np.ndarray | None

    @property
    def between(self) -> str:
        """Which clusters it tells apart: `4 and 5 to 7`."""
        return f"{self.left.labels(' to ')} and {self.right.labels(' to ')}"

    @property
    def near(self) -> float:
        """Rows within NEAR projected sds of the cut, by the histogram: parts of bins count in proportion."""
        reach = np.clip(NEAR * PER_SD - np.arange(HALF), 0.0, 1.0)  # of the bins from the cut outwards
        return float(self.histogram[HALF:] @ reach + self.histogram[:HALF][::-1] @ reach)

    @property
    def weights(self) -> np.ndarray:
        """(d,) share of the direction that each feature carries: squared loadings."""
        return self.loadings**2

    def carriers(self, limit: int = 3, enough: float = 0.9) -> list[int]:
        """The features that carry the direction: the fewest with `enough` of it, at most `limit`."""
        order = np.argsort(-self.weights, kind="stable")[:limit]
        reached = np.cumsum(self.weights[order])
        return [int(j) for j in order[: int(np.searchsorted(reached, enough)) + 1]]


@dataclass(frozen=True)
class Border:
    """Two clusters with a cut between them: a row that crossed it would be in the other one."""

    first: int
    second: int
    rows: int  # of both, within NEAR projected sds of the cut between them
    share: float  # of the rows of both


@dataclass(frozen=True)
class Rows:
    """What became of the rows."""

    read: int
    used: int
    skipped: int
    bad: int
    counted: int  # rows that all figures of the report are of
    learned: int  # rows that the tree was learned from: fewer than were used where these are a sample


@dataclass(frozen=True)
class Caution:
    """Something to know before believing the rest."""

    code: str
    message: str


@dataclass(frozen=True, eq=False)
class Summary:
    """Every figure of the report."""

    name: str  # of the model file, "" when unknown
    version: str  # of the program that fitted
    inputs: tuple[str, ...]
    rows: Rows
    missing: dict[str, int]
    infinite: dict[str, int]
    unseen: dict[str, int]
    left_out: tuple[tuple[str, str], ...]  # column, reason
    statistics: str
    passes: int | None
    preset: str
    parameters: dict[str, Any]
    versions: dict[str, str]
    notes: tuple[str, ...]
    tree_depth: int
    min_size: int
    features: tuple[Feature, ...]
    explained: float | None  # share of all variance that lies between the clusters
    choice: Choice
    clusters: tuple[Cluster, ...]
    splits: dict[int, Split]  # those down to the clusters, by node
    warnings: tuple[Caution, ...]
    next_steps: tuple[str, ...] = ()  # what to do
    truth: Agreement | None = None
    comparison: Comparison | None = None  # with another model
    drift: Drift | None = None
    stability: Stability | None = None
    borders: tuple[Border, ...] | None = None  # of the rows of DATA, the most crowded first
    model: Model | None = field(default=None, repr=False)  # for what is drawn from further rows
    _split_of: Callable[[int], Split] | None = field(default=None, repr=False)

    @property
    def clipped(self) -> int:
        """Rows with a value that the model sees cut off, which no histogram holds."""
        m = self.model
        if m is None or not np.isfinite(m.scaling.limit) or not m.projection_sd[0] > 0.0:
            return 0
        return int(m.counts[0]) - int(m.histograms[0].sum())

    @property
    def root(self) -> Side:
        """The whole tree as a side of nothing; its node is the first that tells clusters apart."""
        node = min(self.splits, default=self.clusters[0].node)
        return Side(node, self.rows.counted, 1, len(self.clusters))

    def split(self, node: int) -> Split:
        """The figures of any split of the tree, below the clusters too.

        Raises
        ------
        UsageError
            No such node, a leaf, or one with fewer rows than the least size.
        """
        if node in self.splits:
            return self.splits[node]
        if self._split_of is None:
            raise UsageError(f"node {node} is not part of this summary")
        return self._split_of(node)

    def with_truth(self, truth: Agreement) -> Summary:
        """The same summary with its agreement with known classes."""
        return replace(self, truth=truth)

    def to_dict(self, nodes: Iterable[int] = ()) -> dict[str, Any]:
        """The JSON report: plain finite values, described by summary.schema.json.

        Parameters
        ----------
        nodes : split nodes below the clusters to describe as well
        """
        shown = dict(self.splits)
        shown.update((node, self.split(node)) for node in nodes)
        return {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "model": {
                "name": self.name,
                "imdh_version": self.version,
                "versions": self.versions,
                "depth": self.tree_depth,
                "preset": self.preset,
                "parameters": self.parameters,
                "passes": self.passes,
                "statistics": self.statistics,
                "notes": list(self.notes),
            },
            "data": {
                "inputs": list(self.inputs),
                "rows": vars(self.rows).copy(),
                "missing": self.missing,
                "infinite": self.infinite,
                "unseen": self.unseen,
                "left_out_columns": [{"column": c, "reason": r} for c, r in self.left_out],
                "features": [
                    {
                        "name": f.name,
                        "kind": "share" if f.share else "number",
                        "mean": f.mean,
                        "sd": f.sd,
                        "explained": f.explained,
                    }
                    for f in self.features
                ],
            },
            "choice": self.choice.to_dict(),
            "min_size": self.min_size,
            "explained": self.explained,
            "clusters": [self._cluster_dict(c) for c in self.clusters],
            "splits": [self._split_dict(shown[node]) for node in sorted(shown)],
            "warnings": [vars(w).copy() for w in self.warnings],
            "next_steps": list(self.next_steps),
            "truth": self.truth.to_dict() if self.truth else None,
            "comparison": self.comparison.to_dict() if self.comparison else None,
            "drift": self.drift.to_dict() if self.drift else None,
            "stability": self.stability.to_dict() if self.stability else None,
            "borders": None if self.borders is None else [vars(b).copy() for b in self.borders],
        }

    def _cluster_dict(self, c: Cluster) -> dict[str, Any]:
        profile = []
        if c.mean is not None and c.sd is not None and c.z is not None:
            z: list[float | None] = [
                float(value) if f.sd > 0.0 else None for value, f in zip(c.z, self.features, strict=True)
            ]
            profile = [
                {"feature": f.name, "mean": float(m), "sd": float(s), "z": effect}
                for f, m, s, effect in zip(self.features, c.mean, c.sd, z, strict=True)
            ]
        return {
            "cluster": c.label,
            "name": c.name,
            "node": c.node,
            "rows": c.rows,
            "share": c.share,
            "withheld": c.withheld,
            "spread": c.spread,
            "nearest": c.nearest,
            "distance": c.distance,
            "marks": [self.features[j].name for j in c.marks],
            "profile": profile,
        }

    def _split_dict(self, s: Split) -> dict[str, Any]:
        names = [f.name for f in self.features]
        weights = s.weights
        return {
            "node": s.node,
            "rows": s.rows,
            "share": s.share,
            "from_k": s.from_k,
            "left": vars(s.left).copy(),
            "right": vars(s.right).copy(),
            "depth": s.depth,
            "excess": s.excess,
            "significant": s.significant,
            "gain": s.gain,
            "near": s.near,
            "cut": s.cut,
            "sd": s.sd,
            "histogram": s.histogram.tolist(),
            "density": s.density.tolist(),
            "direction": [
                {
                    "feature": name,
                    "loading": float(s.loadings[j]),
                    "weight": float(weights[j]),
                    "coefficient": float(s.coefficients[j]),
                    "left_mean": None if s.left_mean is None else float(s.left_mean[j]),
                    "right_mean": None if s.right_mean is None else float(s.right_mean[j]),
                }
                for j, name in enumerate(names)
            ],
        }


def schema() -> str:
    """The JSON Schema of `Summary.to_dict`, as text."""
    return resources.files("imdh_cli.report").joinpath("summary.schema.json").read_text("utf-8")
