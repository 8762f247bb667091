"""Summary -> one HTML page: no script, no network, under 2 MB whatever the model.

Everything that is drawn comes from the summary; the template escapes all text. What would make the
page too large is left out by a budget that is said on the page, and `--csv` or `--json` has it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from imdh_cli.report import provenance, scatter, svg
from imdh_cli.report.agreement import Agreement
from imdh_cli.report.curve import curve_length, curve_of
from imdh_cli.report.drift import Drift
from imdh_cli.report.figures import Cluster, Side, Split, Summary
from imdh_cli.report.layout import Frame
from imdh_cli.report.profiles import cluster_order, feature_order, telling_features
from imdh_cli.report.scatter import Scatter
from imdh_cli.report.stability import Stability
from imdh_cli.report.words import percent, quantity, signed, similarity, spread
from imdh_cli.words import count, listing, printable, short

LIMIT = 2_000_000  # bytes of a page
NAME = 48  # characters of a name
LINES = 10  # features in the table of one cluster
STEPS = 5  # of the colour scale, on either side of the middle
HALF_SD = 0.5  # one step


@dataclass(frozen=True)
class Budget:
    """How much is shown at most; cut down until the page is small enough."""

    clusters: int = 128
    cluster_lines: int = 1000  # lines of all clusters' tables together
    splits: int = 127
    loadings: int = 5  # lines of one split's table
    features: int = 60  # rows of the heat map
    classes: int = 60
    curve: int = 128
    listed: int = 60  # entries of any list of names
    images: int = 600_000  # bytes of pictures of samples

    def smaller(self) -> Budget:
        """Less of everything."""
        return Budget(**{name: max(1, int(0.6 * value)) for name, value in vars(self).items()})


def build(
    summary: Summary,
    samples: Mapping[int, Scatter] | None = None,
    *,
    command: str = "",
) -> str:
    """The page.

    Parameters
    ----------
    summary : Summary
    samples : mapping of node to Scatter, optional
        Rows to draw at the splits (`scatter.Sampler`); the page then says that it shows rows.
    command : str
        The command line that made the page, to be shown.
    """
    budget = Budget()
    pictures = {node: (sample, _picture(summary, sample)) for node, sample in (samples or {}).items()}
    while True:
        page = _Page(summary, pictures, command, budget).render()
        if len(page.encode("utf-8", "surrogatepass")) < LIMIT or budget.clusters == 1:
            return page
        budget = budget.smaller()


def _picture(summary: Summary, sample: Scatter) -> str:
    frame = Frame.of(summary.split(sample.node), 1.0)
    return scatter.picture(sample, frame.low, frame.high)


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("imdh_cli.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=_percent, similarity=similarity, signed=_minus(signed), name=_name, number=lambda n: f"{n:,}"
    )
    return environment.get_template("page.html")


class _Page:
    """The words and numerals of one page."""

    def __init__(
        self,
        summary: Summary,
        samples: Mapping[int, tuple[Scatter, str]],
        command: str,
        budget: Budget,
    ) -> None:
        self.s = summary
        self.samples = samples
        self.command = command
        self.b = budget
        largest = sorted(summary.clusters, key=lambda c: -c.rows)[: budget.clusters]
        self.shown = sorted(largest, key=lambda c: c.label)
        by_k = sorted(summary.splits.values(), key=lambda split: split.from_k or 0)
        self.splits = sorted(by_k[: budget.splits], key=_tree_order)
        self.parent = {
            side.node: (split, side is split.left)
            for split in summary.splits.values()
            for side in (split.left, split.right)
        }

    def render(self) -> str:
        s = self.s
        return _template().render(
            s=s,
            choice=s.choice,
            title=self._title(),
            facts=self._facts(),
            shown=[self._cluster(c) for c in self.shown],
            rest=len(s.clusters) - len(self.shown),
            largest=max((c.share for c in self.shown), default=1.0) or 1.0,
            tree=svg.tree(s, self.b.clusters, self._phrase) if s.splits else None,
            groups=len(s.clusters) > self.b.clusters,
            heat=self._heat(),
            curve=self._curve(),
            splits=self._splits(),
            more_splits=len(s.splits) - len(self.splits),
            sampled=len(self.samples) > 0,
            borders=(s.borders or ())[: self.b.listed],
            more_borders=len(s.borders or ()) - self.b.listed,
            truth=self._truth(s.truth) if s.truth else None,
            comparison=self._truth(s.comparison.agreement) if s.comparison else None,
            matches=s.comparison.matches[: self.b.clusters] if s.comparison else (),
            drift=self._drift(s.drift) if s.drift else None,
            stability=self._stability(s.stability) if s.stability else None,
            provenance=provenance.tables(s, self.b.listed),
            command=printable(self.command, 500),
            refit=provenance.command(s),
            steps=STEPS,
        )

    def _title(self) -> str:
        inputs = listing([_name(name) for name in self.s.inputs], 3)
        return inputs or _name(self.s.name) or "the data"

    def _facts(self) -> list[tuple[str, str]]:
        s = self.s
        facts = [
            ("rows", f"{s.rows.used:,}"),
            ("features", f"{len(s.features):,}"),
            ("clusters", f"{len(s.clusters):,}"),
        ]
        if s.explained is not None and len(s.clusters) > 1:
            facts.append(("variance between clusters", percent(s.explained)))
        facts.append(("leaves in use", f"{s.choice.largest:,} of {2**s.tree_depth:,}"))
        return facts

    # --- clusters ---------------------------------------------------------------------------------

    def _phrase(self, label: int, limit: int = 3) -> str:
        """Its name, ▲ petal length ▼ sepal width: what marks a cluster out, in the picture of the tree."""
        c = self.s.clusters[label - 1]
        words = [short(c.name, 20)] if c.name else []
        if c.z is not None:
            words += [f"{_arrow(c.z[j])}\u00a0{short(self.s.features[j].name, 20)}" for j in c.marks[:limit]]
        return "  ".join(words)

    def _cluster(self, c: Cluster) -> dict[str, Any]:
        lines = min(LINES, max(3, self.b.cluster_lines // max(1, len(self.shown))))
        table = []
        if c.z is not None:
            order = np.argsort(-np.abs(c.z), kind="stable")[:lines]
            table = [self._line(c, int(j)) for j in order]
        return {
            "c": c,
            "marks": [(_arrow(line["z"]), line) for line in table[:3] if abs(line["z"]) >= 0.2],
            "lines": table,
            "more": len(self.s.features) - len(table) if c.z is not None else 0,
            "path": self._path(c.node),
            "few": count(self.s.min_size),
        }

    def _line(self, c: Cluster, j: int) -> dict[str, Any]:
        f = self.s.features[j]
        assert c.mean is not None
        assert c.sd is not None
        assert c.z is not None
        mean, sd, z = float(c.mean[j]), float(c.sd[j]), float(c.z[j])
        inside = sd / f.sd if f.sd > 0.0 else 0.0
        return {
            "name": f.name,
            "mean": mean,
            "mean_text": _minus(quantity)(mean, f.sd, share=f.share),
            "sd": sd,
            "sd_text": spread(sd, share=f.share),
            "all": f.mean,
            "all_text": _minus(quantity)(f.mean, f.sd, share=f.share),
            "z": z,
            "at": _percent_of_range(z),
            "from": _percent_of_range(z - inside),
            "to": _percent_of_range(z + inside),
        }

    def _path(self, node: int) -> list[dict[str, Any]]:
        """The way from the root to a node: what the rows have more or less of at each split."""
        steps = []
        while node in self.parent:
            split, left = self.parent[node]
            j = split.carriers(1)[0]
            higher = (split.loadings[j] > 0) != left
            steps.append({"node": split.node, "name": self.s.features[j].name, "higher": higher})
            node = split.node
        return steps[::-1]

    # --- heat map ---------------------------------------------------------------------------------

    def _heat(self) -> dict[str, Any] | None:
        labels = [c.label for c in self.shown if c.z is not None]
        if len(labels) < 2:
            return None
        order = [k for k in cluster_order(self.s) if k in set(labels)]
        z = np.array([self.s.clusters[k - 1].z for k in order])
        keep = telling_features(self.s, self.b.features)
        rows = [
            {
                "name": self.s.features[j].name,
                "explained": self.s.features[j].explained,
                "cells": [(_step(value), _minus(signed)(value)) for value in map(float, z[:, j])],
            }
            for j in feature_order(z, keep)
        ]
        return {
            "order": order,
            "rows": rows,
            "left_out": len(self.s.features) - len(rows),
            "dense": len(order) > 24,
        }

    # --- the choice -------------------------------------------------------------------------------

    def _curve(self) -> dict[str, Any] | None:
        c = self.s.choice
        values, meaning = curve_of(self.s)
        if len(values) < 3 or values[0] <= 0.0:
            return None
        n = curve_length(c, len(values))
        named = {c.clusters, c.runner_up, *(a.clusters for a in c.alternatives)}
        shown = [k for k in range(1, n + 1) if k <= self.b.curve or k in named]
        return {
            "picture": svg.curve(c, values, n),
            "meaning": meaning,
            "rows": [
                (k, float(c.given_up[k - 1]), float(c.unexplained[k - 1]), int(c.votes[k - 1]), k in named)
                for k in shown
            ],
        }

    # --- splits -----------------------------------------------------------------------------------

    def _splits(self) -> list[dict[str, Any]]:
        room = self.b.images
        drawn = set()
        for split in sorted(self.splits, key=lambda split: split.from_k or 0):
            size = len(self.samples[split.node][1]) if split.node in self.samples else 0
            if 0 < size <= room:
                room -= size
                drawn.add(split.node)
        return [self._split(split, split.node in drawn) for split in self.splits]

    def _split(self, split: Split, drawn: bool) -> dict[str, Any]:
        sample, image = self.samples[split.node] if drawn else (None, None)
        order = np.argsort(-split.weights, kind="stable")[: self.b.loadings]
        high = scatter.HEIGHT / scatter.WIDTH * svg.CARD[0] if image else 0.0
        return {
            "split": split,
            "near": _percent(split.near / split.rows),
            "picture": svg.card(split, image, high),
            "left": self._side(split.left),
            "right": self._side(split.right),
            "loadings": [self._loading(split, int(j)) for j in order],
            "more": len(split.loadings) - len(order),
            "sample": sample,
        }

    def _loading(self, split: Split, j: int) -> dict[str, Any]:
        f = self.s.features[j]
        means = [None if m is None else float(m[j]) for m in (split.left_mean, split.right_mean)]
        return {
            "name": f.name,
            "loading": float(split.loadings[j]),
            "weight": float(split.weights[j]),
            "left": _minus(quantity)(means[0], f.sd, share=f.share),
            "right": _minus(quantity)(means[1], f.sd, share=f.share),
        }

    def _side(self, side: Side) -> dict[str, Any]:
        one = side.n_clusters == 1
        return {
            "side": side,
            "one": one,
            "name": f"cluster {side.first}" if one else f"clusters {side.first} to {side.last}",
            "href": f"#cluster-{side.first}" if one else f"#node-{side.node}",
        }

    # --- then and now -----------------------------------------------------------------------------

    def _drift(self, d: Drift) -> dict[str, Any]:
        by_part = sorted(d.clusters, key=lambda c: -c.psi)[: self.b.clusters]
        features = sorted(d.features, key=lambda f: -abs(f.shift or 0.0))[: self.b.features]
        linked = {split.node for split in self.splits}
        splits = [s for s in d.splits if s.node in linked]
        return {
            "d": d,
            "findings": [finding.message for finding in d.findings[: self.b.listed]],
            "clusters": sorted(by_part, key=lambda c: c.cluster),
            "more_clusters": len(by_part) < len(d.clusters),
            "largest": max(max(c.share_then, c.share_now) for c in d.clusters),
            "features": [
                {
                    "f": f,
                    "mean_then": _minus(quantity)(f.mean_then, f.sd_then, share=f.share),
                    "mean_now": _minus(quantity)(f.mean_now, f.sd_then, share=f.share),
                    "sd_then": spread(f.sd_then, share=f.share),
                    "sd_now": spread(f.sd_now, share=f.share),
                    "shift": _minus(signed)(f.shift, 2),
                }
                for f in features
            ],
            "splits": sorted(splits, key=lambda s: -(s.ks or 0.0)),
            "more": len(features) < len(d.features) or len(splits) < len(d.splits),
        }

    # --- refits -----------------------------------------------------------------------------------

    def _stability(self, s: Stability) -> dict[str, Any]:
        least = sorted(s.clusters, key=lambda c: -1.0 if c.jaccard is None else c.jaccard)
        shown = sorted(least[: self.b.clusters], key=lambda c: c.cluster)
        linked = {split.node: split for split in self.splits}
        return {
            "s": s,
            "clusters": shown,
            "more_clusters": len(s.clusters) - len(shown),
            "splits": [
                {
                    "node": p.node,
                    "returned": p.returned,
                    "between": linked[p.node].between,
                }
                for p in s.splits
                if p.node in linked
            ],
        }

    # --- known classes ----------------------------------------------------------------------------

    def _truth(self, t: Agreement) -> dict[str, Any]:
        cells = np.array(t.table)
        clusters = [c.label for c in self.shown]
        by_size = np.argsort(-cells.sum(axis=1), kind="stable")[: self.b.classes]
        rows = []
        for i in sorted(map(int, by_size)):
            total = max(1, int(cells[i].sum()))  # a cluster of another model may be empty
            counts = [int(cells[i][k - 1]) for k in clusters]
            rows.append(
                (t.classes[i], int(cells[i].sum()), [(n, min(4, round(4 * n / total))) for n in counts])
            )
        return {
            "t": t,
            "clusters": clusters,
            "rows": rows,
            "left_out": len(t.classes) - len(rows),
            "measures": [
                ("ARI", t.ari, "adjusted Rand index"),
                ("NMI", t.nmi_arithmetic, "mutual information over the mean entropy"),
                ("NMI, geometric", t.nmi_geometric, "over the geometric mean of the entropies"),
                ("homogeneity", t.homogeneity, "1: every cluster holds one class"),
                ("completeness", t.completeness, "1: every class lies in one cluster"),
            ],
        }


def _name(text: str) -> str:
    return printable(text, NAME)


def _minus(function: Any) -> Any:
    """Numerals with a true minus sign."""
    return lambda *args, **options: function(*args, **options).replace("-", "\u2212")


def _percent(share: float | None) -> str:
    return percent(share).replace(" ", "\u00a0")


def _arrow(z: float) -> str:
    return "\u25b2" if z > 0 else "\u25bc"


def _percent_of_range(z: float, reach: float = 3.0) -> str:
    """Where an effect lies on a scale from -reach to reach, in percent; what is beyond lies at the end."""
    return f"{100.0 * (min(max(z, -reach), reach) + reach) / (2.0 * reach):.1f}"


def _step(z: float) -> str:
    """The class of a colour: n5 .. n1, z, p1 .. p5."""
    k = min(STEPS, int(abs(z) / HALF_SD + 0.5))
    return "z" if k == 0 else f"{'p' if z > 0 else 'n'}{k}"


def _tree_order(split: Split) -> tuple[int, ...]:
    """Depth first, a split before those below it: the path of turns from the root."""
    return tuple(map(int, f"{split.node:b}"[1:]))
