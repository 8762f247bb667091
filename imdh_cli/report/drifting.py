"""A model's statistics and those of new rows under its tree -> what has moved, and how much.

Nothing is learned and no row is kept: shares of the clusters, histograms of the projections at the splits,
moments of the features and counts of cells, then (the model's) and now (the rows read).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from imdh_cli.core.logs import signed_exp, signed_log
from imdh_cli.errors import UsageError
from imdh_cli.report.drift import (
    CellDrift,
    Drift,
    FeatureDrift,
    Finding,
    SplitDrift,
    Z,
    compare_shares,
    index_by_chance,
)
from imdh_cli.report.figures import Summary
from imdh_cli.report.words import percent, quantity, signed, spread
from imdh_cli.words import listing, printable

if TYPE_CHECKING:
    from imdh_cli.core.columns import ColumnMoments
    from imdh_cli.core.statistics import Statistics
    from imdh_cli.features import Tally
    from imdh_cli.model import Model

# What is worth a sentence: a cluster's part of the index, the means' distance and the change of a spread in
# training sds, the distance of two distributions, a change of a share of the rows.
PART, SHIFT, STRETCH, DISTANCE, ROWS = 0.02, 0.2, 0.25, 0.1, 0.01
KOLMOGOROV = 1.628  # the 99 % point of the Kolmogorov distribution
NAME = 40  # characters of a name


def measure(summary: Summary, statistics: Statistics, moments: ColumnMoments, tally: Tally) -> Drift:
    """Compare the rows counted under a model's tree with those that the model holds.

    Parameters
    ----------
    summary : Summary
        Of the model, with the model.
    statistics : Statistics
        Of the new rows, at least one of them used, under the model's tree and in its coordinates.
    moments : ColumnMoments
        Of the new rows in the user's units, where no value is cut off. Not used where the model holds only
        moments of values cut off: like is compared with like. Far cells, of columns that the model scaled
        without such, are apart in it.
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
    if summary.clipped and not any(f.clipped for f in summary.features):
        features = model.center + model.scale * means[0], model.scale * np.sqrt(squares[0] / counts[0])
    else:
        features = _unclipped(moments, int(counts[0]), model.center + model.scale * model.scaling.fill)
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
        features=tuple(_features(model, summary, *features)),
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


def _unclipped(moments: ColumnMoments, rows: int, fill: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and sds, (d,) each, with cells that are missing at `fill`, (d,), where they stood then."""
    (mean, sd), far = moments.near, moments.far_count
    known = (moments.count - far) / np.maximum(rows - far, 1)
    gap = known * (1.0 - known) * (mean - fill) ** 2
    return known * mean + (1.0 - known) * fill, np.sqrt(known * sd**2 + gap)


def _features(model: Model, summary: Summary, means: np.ndarray, sds: np.ndarray) -> Iterator[FeatureDrift]:
    own = model.scale * np.sqrt(model.sums_of_squares[0] / max(int(model.counts[0]), 1))
    for j, (f, mean, sd) in enumerate(zip(summary.features, means.tolist(), sds.tolist(), strict=True)):
        then, unit = (float(signed_log(np.array(f.mean))), float(own[j])) if model.logs[j] else (f.mean, f.sd)
        shift, stretch = ((mean - then) / unit, sd / unit - 1.0) if unit > 0.0 else (None, None)
        if model.logs[j]:  # compared as they were learned from, told in the user's units
            low, mean, high = signed_exp(np.array([mean - sd, mean, mean + sd])).tolist()
            sd = (high - low) / 2.0
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
    return summary.clipped / int(model.counts[0]), 1.0 - int(histogram.sum()) / int(rows)


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
