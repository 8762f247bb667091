"""A model's statistics and those of new rows under its tree -> what has moved, and how much.

Nothing is learned and no row is kept: shares of the clusters, histograms of the projections at the splits,
moments of the features and counts of cells, then (the model's) and now (the rows read).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from imdh_cli.errors import UsageError
from imdh_cli.report.words import percent, quantity, signed, spread
from imdh_cli.words import listing, printable

if TYPE_CHECKING:
    from imdh_cli.core.statistics import Statistics
    from imdh_cli.features import Tally
    from imdh_cli.report.figures import Summary

MODERATE, LARGE = 0.1, 0.25  # the usual bands of the population stability index
# What is worth a sentence: a cluster's part of the index, the means' distance and the change of a spread in
# training sds, the distance of two distributions, a change of a share of the rows.
PART, SHIFT, STRETCH, DISTANCE, ROWS = 0.02, 0.2, 0.25, 0.1, 0.01
Z = 2.326  # the normal law's 99 % point
KOLMOGOROV = 1.628  # and that of the Kolmogorov distribution
NAME = 40  # characters of a name


@dataclass(frozen=True)
class ClusterDrift:
    """One cluster, then and now. psi: its part of the index."""

    cluster: int
    name: str | None
    rows_then: int
    rows_now: int
    share_then: float
    share_now: float
    psi: float


@dataclass(frozen=True)
class SplitDrift:
    """The projections at one split. ks: the largest distance of their distributions at the edges of the
    histogram's bins, None where one is empty. chance: what it stays below 99 times of 100 without drift."""

    node: int
    rows_then: int
    rows_now: int
    ks: float | None
    chance: float | None


@dataclass(frozen=True)
class FeatureDrift:
    """One feature, in the user's units. shift, stretch: the change of the mean and of the sd in sds of then,
    None where it was constant."""

    name: str
    share: bool  # a one-hot level: its mean is a share
    mean_then: float
    mean_now: float
    sd_then: float
    sd_now: float
    shift: float | None
    stretch: float | None


@dataclass(frozen=True)
class CellDrift:
    """Cells of one column without a usable value, as shares of the rows read."""

    column: str
    kind: str  # missing, infinite, unseen
    then: float
    now: float


@dataclass(frozen=True)
class Finding:
    """Something that moved. size: in multiples of what is worth a sentence."""

    size: float
    message: str


@dataclass(frozen=True)
class Drift:
    """Then and now. Shares are of the rows read (left_out) or used (all others)."""

    rows_read: int
    rows_used: int
    psi: float
    chance: float  # what psi stays below 99 times of 100 without drift
    clusters: tuple[ClusterDrift, ...]
    splits: tuple[SplitDrift, ...]
    features: tuple[FeatureDrift, ...]
    cells: tuple[CellDrift, ...]
    left_out: tuple[float, float]  # rows that could not be used, then and now
    clipped: tuple[float, float] | None  # rows with a value farther out than the model sees
    findings: tuple[Finding, ...] = ()  # what moved most first

    @property
    def level(self) -> str:
        """none (below the first band or no more than chance), moderate or large."""
        if self.psi < MODERATE or self.psi <= self.chance:
            return "none"
        return "moderate" if self.psi < LARGE else "large"

    @property
    def headline(self) -> str:
        """In a few words."""
        words = {
            "moderate": "the clusters' shares have moved",
            "large": "the clusters' shares have moved much",
        }
        hold = "no more than chance moves them" if self.psi >= MODERATE else "the clusters' shares hold"
        return f"PSI {self.psi:.3f}, {words.get(self.level, hold)}"

    @property
    def sentence(self) -> str:
        """In words, with what to do."""
        if self.level == "large":
            return "The model describes other rows than these: find the reason below, or fit again."
        if self.level == "moderate":
            return "Look at what moved before the clusters are used as before."
        if self.findings:
            return "The clusters are as large as they were, but not all is as it was."
        return "These rows are like those that the model was made from."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "psi": self.psi,
            "chance": self.chance,
            "level": self.level,
            "sentence": self.sentence,
            "rows": {"read": self.rows_read, "used": self.rows_used},
            "clusters": [vars(c).copy() for c in self.clusters],
            "splits": [vars(s).copy() for s in self.splits],
            "features": [
                {"feature": f.name, **{k: v for k, v in vars(f).items() if k not in ("name", "share")}}
                for f in self.features
            ],
            "cells": [vars(c).copy() for c in self.cells],
            "left_out": dict(zip(("then", "now"), self.left_out, strict=True)),
            "clipped": None
            if self.clipped is None
            else dict(zip(("then", "now"), self.clipped, strict=True)),
            "findings": [vars(f).copy() for f in self.findings],
        }


def stability_index(then: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Each cluster's part of the population stability index, (K,): (q - p) ln(q / p), p and q its shares.

    then, now : (K,) rows, some. An empty cluster counts as half a row.
    """
    p, q = (np.maximum(rows, 0.5) / rows.sum() for rows in (then, now))
    parts: np.ndarray = (q - p) * np.log(q / p)
    return parts


def compare_shares(
    then: np.ndarray, now: np.ndarray, names: Sequence[str | None]
) -> tuple[ClusterDrift, ...]:
    """Each of K clusters: rows (K,) then and now, some of both, and names."""
    parts = stability_index(then, now)
    all_then, all_now = float(then.sum()), float(now.sum())
    found = zip(names, then.tolist(), now.tolist(), parts.tolist(), strict=True)
    return tuple(
        ClusterDrift(k, name, int(a), int(b), a / all_then, b / all_now, part)
        for k, (name, a, b, part) in enumerate(found, start=1)
    )


def index_by_chance(clusters: int, then: int, now: int) -> float:
    """What the index stays below 99 times of 100 for so many rows of one population.

    Times n m / (n + m) it is about a chi-square of K - 1 degrees of freedom (its point: Wilson and Hilferty).
    """
    if clusters < 2:
        return 0.0
    part = 2.0 / (9.0 * (clusters - 1))
    point = (clusters - 1) * (1.0 - part + Z * part**0.5) ** 3
    return float(point * (1.0 / then + 1.0 / now))


def measure(summary: Summary, statistics: Statistics, tally: Tally) -> Drift:
    """Compare the rows counted under a model's tree with those that the model holds.

    Parameters
    ----------
    summary : Summary
        Of the model, with the model.
    statistics : Statistics
        Of the new rows, at least one of them used, under the model's tree and in its coordinates.
    tally : Tally
        What became of the new rows.
    """
    model = summary.model
    if model is None:
        raise UsageError("a summary without its model cannot be compared with rows")
    counts, means, squares = statistics.of_nodes()
    then = np.array([c.rows for c in summary.clusters])
    now = np.bincount(model.cluster_of_leaf, weights=statistics.counts, minlength=len(then) + 1)[1:]
    clusters = compare_shares(then, now, [c.name for c in summary.clusters])
    rows = summary.rows
    drift = Drift(
        rows_read=tally.rows,
        rows_used=tally.used,
        psi=sum(c.psi for c in clusters),
        chance=index_by_chance(len(then), int(then.sum()), int(now.sum())),
        clusters=clusters,
        splits=tuple(
            _split(i, model.histograms[i - 1], statistics.histograms[i - 1], model.counts, counts)
            for i in sorted(summary.splits)
        ),
        features=tuple(_features(summary, means[0], np.sqrt(squares[0] / counts[0]))),
        cells=tuple(_cells(summary, tally)),
        left_out=((rows.skipped + rows.bad) / max(1, rows.read), (tally.skipped + tally.bad) / tally.rows),
        clipped=_clipped(summary, counts[0], statistics.histograms[0]),
    )
    carriers = {
        i: listing([printable(summary.features[j].name, NAME) for j in split.carriers(2)])
        for i, split in summary.splits.items()
    }
    findings = sorted(_findings(drift, carriers), key=lambda f: -f.size)
    return Drift(**{**vars(drift), "findings": tuple(f for f in findings if f.size >= 1.0)})


def _split(
    node: int, then: np.ndarray, now: np.ndarray, counts_then: np.ndarray, counts_now: np.ndarray
) -> SplitDrift:
    a, b = int(then.sum()), int(now.sum())
    rows = int(counts_then[node - 1]), int(counts_now[node - 1])
    if not a or not b:
        return SplitDrift(node, *rows, None, None)
    ks = float(np.abs(np.cumsum(then) / a - np.cumsum(now) / b).max())
    return SplitDrift(node, *rows, ks, KOLMOGOROV * (1.0 / a + 1.0 / b) ** 0.5)


def _features(summary: Summary, means: np.ndarray, sds: np.ndarray) -> Iterator[FeatureDrift]:
    model = summary.model
    assert model is not None
    means, sds = model.center + model.scale * means, model.scale * sds
    for f, mean, sd in zip(summary.features, means.tolist(), sds.tolist(), strict=True):
        some = f.sd > 0.0
        shift, stretch = ((mean - f.mean) / f.sd, sd / f.sd - 1.0) if some else (None, None)
        yield FeatureDrift(f.name, f.share, f.mean, mean, f.sd, sd, shift, stretch)


def _cells(summary: Summary, tally: Tally) -> Iterator[CellDrift]:
    """Of every column that has such cells then or now."""
    for kind in ("missing", "infinite", "unseen"):
        then, now = getattr(summary, kind), getattr(tally, kind)
        for column in dict.fromkeys([*then, *now]):
            shares = then.get(column, 0) / max(1, summary.rows.read), now.get(column, 0) / tally.rows
            if any(shares):
                yield CellDrift(column, kind, *shares)


def _clipped(summary: Summary, rows: int, histogram: np.ndarray) -> tuple[float, float] | None:
    """Rows that no histogram holds since a value of theirs was cut off; None where nothing ever is."""
    model = summary.model
    assert model is not None
    if not np.isfinite(model.scaling.limit) or not model.projection_sd[0] > 0.0:
        return None
    then = 1.0 - int(model.histograms[0].sum()) / int(model.counts[0])
    return then, 1.0 - int(histogram.sum()) / int(rows)


def _findings(d: Drift, carriers: Mapping[int, str]) -> Iterator[Finding]:
    """All that moved farther than by chance. carriers: what each direction is made of."""
    rows = d.rows_used
    for c in d.clusters:
        noise = Z * (c.share_then * (1.0 - c.share_then) * (1.0 / rows + 1.0 / max(1, c.rows_then))) ** 0.5
        if abs(c.share_now - c.share_then) > noise:
            name = f" ({printable(c.name, NAME)})" if c.name else ""
            moved = f"{percent(c.share_then)} of the rows then, {percent(c.share_now)} now"
            yield Finding(c.psi / PART, f"cluster {c.cluster}{name}: {moved}")
    for f in d.features:
        name = printable(f.name, NAME)
        if f.shift is None or f.stretch is None:
            if f.sd_now + abs(f.mean_now - f.mean_then) > 1e-9 * abs(f.mean_then):
                yield Finding(10.0, f"{name}: {f.mean_then:g} throughout then, not so now")
            continue
        if abs(f.shift) > Z * (1.0 + f.stretch) / rows**0.5:
            means = [quantity(m, f.sd_then, share=f.share) for m in (f.mean_then, f.mean_now)]
            text = f"{name}: mean {means[0]} then, {means[1]} now ({signed(f.shift, 2)} sd)"
            yield Finding(abs(f.shift) / SHIFT, text)
        if abs(f.stretch) > Z / rows**0.5:
            sds = [spread(s, share=f.share) for s in (f.sd_then, f.sd_now)]
            yield Finding(abs(f.stretch) / STRETCH, f"{name}: sd {sds[0]} then, {sds[1]} now")
    for s in d.splits:
        if s.ks is not None and s.chance is not None and s.ks > s.chance:
            where = f"node {s.node} ({carriers[s.node]})"
            text = f"{where}: other projections, KS distance {s.ks:.2f} (by chance below {s.chance:.2f})"
            yield Finding(s.ks / DISTANCE, text)
    kinds = {
        "missing": "missing cells",
        "infinite": "cells infinite or beyond 1e100",
        "unseen": "unseen levels",
    }
    shares = [(f"{printable(c.column, NAME)}: {kinds[c.kind]}", (c.then, c.now)) for c in d.cells]
    shares += [("rows that could not be used", d.left_out)]
    shares += [] if d.clipped is None else [("rows beyond 10 sd, where the model's sight ends", d.clipped)]
    for what, (then, now) in shares:
        yield Finding(abs(now - then) / ROWS, f"{what}: {percent(then)} then, {percent(now)} now")
