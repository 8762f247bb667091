"""Models without any learning: planted Gaussians and a tree grown by hand, in plain NumPy.

`make_model` gives a valid model, `make` also the rows it was made of, so that a test can compute any
figure again from the rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from imdh_cli.core.pruning import prune
from imdh_cli.features import Column, FeatureSpec
from imdh_cli.model import Model
from imdh_cli.params import Clusters, FitParams, LearnParams, PruneParams

CLIP = 10.0


class Made(NamedTuple):
    """A model and the truth about it."""

    model: Model
    X: np.ndarray  # (n, d) float64, the user's units
    leaf: np.ndarray  # (n,) node number of each row's leaf
    cluster: np.ndarray  # (n,) 1..K
    planted: np.ndarray  # (n,) 0..k-1, the Gaussian of each row


def plant(n: int, d: int, k: int, seed: int = 0, distance: float = 8.0) -> tuple:
    """X (n, d) and the Gaussian of each row; units differ widely between columns."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((k, d))
    centers *= distance / np.sqrt(2 * d) * np.linspace(1.0, 1.6, k)[:, None]
    planted = rng.choice(k, n, p=np.linspace(1, 3, k) / np.linspace(1, 3, k).sum())
    Z = centers[planted] + rng.standard_normal((n, d))
    unit = 10.0 ** rng.integers(-3, 6, d)
    return unit * (Z + rng.integers(-5, 50, d)), planted


def make_model(depth: int = 4, d: int = 5, k: int = 4, seed: int = 0, n: int = 2000) -> Model:
    """A valid model of n rows, d features and k planted clusters, with up to 2^depth leaves."""
    return make(depth, d, k, seed, n).model


def make(
    depth: int = 4,
    d: int = 5,
    k: int = 4,
    seed: int = 0,
    n: int = 2000,
    *,
    names: Sequence[str] | None = None,
    levels: Sequence[str] = (),
    clusters: Clusters = "auto",
    min_size: int = 1,
    X: np.ndarray | None = None,
) -> Made:
    """As `make_model`, with the rows.

    Parameters
    ----------
    names : of the d columns; x1, x2 ... by default
    levels : of one more, one-hot column "kind"; which level a row has depends on its Gaussian
    clusters, min_size : of the pruning
    X : (n, d) rows to use instead of planted ones
    """
    if X is None:
        X, planted = plant(n, d, k, seed)
    else:
        planted = np.zeros(len(X), dtype=np.int64)
        n, d = X.shape
    names = list(names or [f"x{j + 1}" for j in range(d)])
    columns = [Column(name) for name in names]
    if levels:
        rng = np.random.default_rng([seed, 1])
        level = np.where(rng.random(n) < 0.9, planted, rng.integers(0, 99, n)) % len(levels)
        X = np.hstack([X, np.eye(len(levels))[level]])
        columns.append(Column("kind", tuple(levels)))
        names += [f"kind={value}" for value in levels]
    center, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0.0] = 1.0
    Z = np.clip((X - center) / scale, -CLIP, CLIP)
    tree = grow(Z, depth, seed)
    moments = node_moments(Z, tree["leaf"], depth)
    params = FitParams(
        learn=LearnParams(depth=depth), prune=PruneParams(clusters=clusters, min_size=min_size)
    )
    pruning = prune(
        moments["counts"],
        moments["means"],
        moments["sums_of_squares"],
        moments["means"],
        tree["histograms"],
        params.prune,
    )
    m = 2**depth - 1
    centers = np.einsum("ij,ij->i", tree["directions"], moments["means"][:m])
    model = Model(
        feature_names=names,
        center=center,
        scale=scale,
        directions=tree["directions"],
        thresholds=tree["thresholds"],
        offsets=tree["thresholds"] - centers,
        pivots=moments["means"].copy(),
        projection_sd=tree["projection_sd"],
        histograms=tree["histograms"],
        **moments,
        merge_order=np.asarray(pruning.merge_order, dtype=np.int64),
        cluster_of_leaf=np.asarray(pruning.cluster_of_leaf, dtype=np.int32),
        metadata={
            "program": "imdh",
            "version": "0.1.0",
            "parameters": params.to_dict(),
            "preset": "default",
            "features": FeatureSpec(tuple(columns), "skip").to_dict(),
            "left_out_columns": [],
            "rows": {"read": n, "used": n, "skipped": 0, "bad": 0, "counted": n},
            "missing": {},
            "infinite": {},
            "unseen": {},
            "statistics": "recounted",
            "passes": 2,
            "choice": {
                "requested": clusters,
                "clusters": int(pruning.n_clusters),
                "clarity": pruning.clarity,
                "alternatives": [int(k) for k in pruning.alternatives],
                "largest": int(pruning.largest),
            },
            "inputs": ["planted.csv"],
            "versions": {"python": "3.11", "numpy": "2.0", "numba": "0.60", "pyarrow": "17.0"},
            "notes": [],
        },
    )
    return Made(model, X, tree["leaf"], model.cluster_of_leaf[tree["leaf"] - m - 1], planted)


def grow(Z: np.ndarray, depth: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Cut every node where the density of one of a few directions is lowest near its mean."""
    n, d = Z.shape
    m = 2**depth - 1
    rng = np.random.default_rng([seed, 2])
    directions = np.zeros((m, d))
    directions[np.arange(m), np.arange(m) % d] = 1.0
    thresholds, projection_sd = np.zeros(m), np.zeros(m)
    histograms = np.zeros((m, 128), dtype=np.int64)
    node = np.ones(n, dtype=np.int64)
    for i in range(1, m + 1):
        here = np.flatnonzero(node == i)
        if not len(here):
            continue
        v = directions[i - 1]
        threshold = float(np.mean(Z[here] @ v))
        if len(here) >= 50:  # a search pays where there is something to find; a deep tree is made fast
            tried = [v, *_directions(Z[here], rng)]
            best = min((_lowest(Z[here] @ v) + (v,) for v in tried), key=lambda t: t[0])
            _, threshold, v = best
        p = Z[here] @ v
        s = float(p.std())
        directions[i - 1], thresholds[i - 1], projection_sd[i - 1] = v, threshold, s
        if s > 0.0:
            u = np.clip((p - threshold) / s, -3.999, 3.999)
            inside = np.abs(Z[here]).max(axis=1) < CLIP
            histograms[i - 1] = np.bincount(
                np.floor((u[inside] + 4.0) * 16.0).astype(np.int64), minlength=128
            )
        node[here] = 2 * i + (p >= threshold)
    return {
        "directions": directions,
        "thresholds": thresholds,
        "projection_sd": projection_sd,
        "histograms": histograms,
        "leaf": node,
    }


def _directions(Z: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The leading direction, and those between pairs of rows far from each other."""
    c = Z - Z.mean(axis=0)
    if len(Z) < 3 or not c.any():
        return []
    few = c[: min(500, 30_000 // Z.shape[1])]  # of wide rows fewer do, and take no seconds
    found = [np.linalg.svd(few, full_matrices=False)[2][0]]
    for _ in range(6):
        a = Z[rng.integers(len(Z))]
        gap = Z[np.argmax(((Z[:500] - a) ** 2).sum(axis=1))] - a
        if gap.any():
            found.append(gap / np.sqrt(gap @ gap))
    return [v / np.sqrt(v @ v) for v in found]


def _lowest(p: np.ndarray) -> tuple[float, float]:
    """The least smoothed density within one sd of the mean, relative to its peak, and where."""
    s = p.std()
    if s == 0.0:
        return np.inf, float(p.mean())
    at = p.mean() + s * np.linspace(-1.0, 1.0, 81)
    grid = p.mean() + s * np.linspace(-3.0, 3.0, 121)
    few, h = p[:: max(1, len(p) // 400)], 1.06 * s * max(4, len(p)) ** -0.2
    f = np.exp(-0.5 * ((at[:, None] - few) / h) ** 2).sum(axis=1)
    peak = np.exp(-0.5 * ((grid[:, None] - few) / h) ** 2).sum(axis=1).max()
    i = int(np.argmin(f))
    return float(f[i] / peak), float(at[i])


def node_moments(Z: np.ndarray, leaf: np.ndarray, depth: int) -> dict[str, np.ndarray]:
    """counts (n,), means (n, d) and sums_of_squares (n, d) of every node, from the rows."""
    n_nodes = 2 ** (depth + 1) - 1
    counts = np.zeros(n_nodes, dtype=np.int64)
    means, ss = np.zeros((2, n_nodes, Z.shape[1]))
    order = np.argsort(leaf, kind="stable")
    Z, leaf = Z[order], leaf[order]
    for i in range(1, n_nodes + 1):
        below = depth + 1 - i.bit_length()
        lo, hi = np.searchsorted(leaf, [i << below, (i + 1) << below])
        if hi > lo:
            rows = Z[lo:hi]
            counts[i - 1] = hi - lo
            means[i - 1] = rows.mean(axis=0)
            ss[i - 1] = ((rows - means[i - 1]) ** 2).sum(axis=0)
    return {"counts": counts, "means": means, "sums_of_squares": ss}
