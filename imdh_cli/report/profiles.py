"""Cluster means -> an order of clusters and features in which what is alike stands together."""

from __future__ import annotations

import numpy as np

from imdh_cli.report.figures import Side, Summary


def cluster_order(summary: Summary) -> list[int]:
    """Labels of the described clusters, in the order of the tree with its branches turned.

    From the bottom up, the two branches of each split are turned so that the clusters that meet are as
    alike as they can be (Gruvaeus and Wainer 1972). The tree stays drawable without crossings.
    """
    z = {c.label: c.z for c in summary.clusters if c.z is not None}

    def merged(left: list[int], right: list[int]) -> list[int]:
        if not left or not right:
            return left + right
        turns = [(a, b) for a in (left, left[::-1]) for b in (right, right[::-1])]
        return min(
            (a + b for a, b in turns),
            key=lambda order: float(((z[order[len(left) - 1]] - z[order[len(left)]]) ** 2).sum()),
        )

    orders: dict[int, list[int]] = {}  # by split

    def order_of(side: Side) -> list[int]:
        if side.node in orders:
            return orders[side.node]
        return [k for k in range(side.first, side.last + 1) if k in z]

    for node in sorted(summary.splits, reverse=True):  # children have greater numbers
        split = summary.splits[node]
        orders[node] = merged(order_of(split.left), order_of(split.right))
    return order_of(summary.root)


def feature_order(z: np.ndarray, keep: np.ndarray) -> list[int]:
    """Features ordered so that those with like profiles stand together.

    Each feature is a point in the plane of the two leading components of the profiles; they are taken
    in order of its angle, from the widest gap on (Friendly 2002 does so with correlations).

    Parameters
    ----------
    z : (K, d) float64, effects
    keep : (d',) int, the features to order
    """
    if len(keep) < 3 or len(z) < 2:
        return [int(j) for j in keep]
    profiles = z[:, keep].T
    length = np.sqrt((profiles**2).sum(axis=1))
    profiles = profiles / np.where(length > 0.0, length, 1.0)[:, None]
    u, s, _ = np.linalg.svd(profiles, full_matrices=False)
    plane = np.round(u[:, :2] * s[:2], 9)
    angle = np.arctan2(plane[:, 1], plane[:, 0])
    order = np.lexsort((-length, angle))
    gaps = np.diff(angle[order], append=angle[order[0]] + 2.0 * np.pi)
    start = (int(np.argmax(gaps)) + 1) % len(order)
    return [int(keep[i]) for i in np.roll(order, -start)]


def telling_features(summary: Summary, limit: int) -> np.ndarray:
    """(at most limit,) the features of which the clusters explain most, in the model's order."""
    explained = np.array([-1.0 if f.explained is None else f.explained for f in summary.features])
    return np.sort(np.argsort(-explained, kind="stable")[:limit])
