"""A model's partition of some rows and those of refits -> which clusters and cuts come back.

Hennig (2007), Cluster-wise assessment of cluster stability: the Jaccard similarity of a cluster to the most
similar cluster of each refit, on average. Only partitions of one sample of rows are compared, so what made
them does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from imdh_cli.core.partition import Partition, adjusted_rand
from imdh_cli.words import count, listing

HIGHLY, STABLE, PATTERN = 0.85, 0.75, 0.6  # mean similarities: the readings of the literature
DISSOLVED = 0.5  # a similarity from which down nothing is left of a cluster (Hennig)
BLOCK = 1 << 22  # entries of a matrix of rows by cuts held at once


@dataclass(frozen=True)
class ClusterStability:
    """One cluster over all refits. None where no row of the sample is in it."""

    cluster: int
    name: str | None
    rows: int  # of the sample
    jaccard: float | None  # similarity to its best match, the mean
    lowest: float | None
    recovered: int  # refits with a similarity from STABLE up
    dissolved: int  # and from DISSOLVED down

    @property
    def reading(self) -> str:
        """In words."""
        if self.jaccard is None:
            return "no row in the sample"
        for least, word in ((HIGHLY, "highly stable"), (STABLE, "stable"), (PATTERN, "a pattern")):
            if self.jaccard >= least:
                return word
        return "not to be trusted"


@dataclass(frozen=True)
class SplitStability:
    """One split. returned: share of refits with a cut that parts its rows alike; None: a side is empty."""

    node: int
    returned: float | None


@dataclass(frozen=True)
class Stability:
    """What refits of half samples found.

    found : number of clusters chosen for a refit when none is asked for, and how often. ari_model,
    ari_between : adjusted Rand index of the refits with the model and with each other, the means.
    """

    refits: int
    rows_each: int
    sample: int
    seed: int
    clusters: tuple[ClusterStability, ...]
    splits: tuple[SplitStability, ...]
    found: tuple[tuple[int, int], ...]
    ari_model: float
    ari_between: float | None  # None: of a single refit

    @property
    def headline(self) -> str:
        """In a few words."""
        stable = sum(c.jaccard is not None and c.jaccard >= STABLE for c in self.clusters)
        if len(self.clusters) == 1:
            return "one cluster"
        return f"{stable} of {count(len(self.clusters), 'cluster')} {'is' if stable == 1 else 'are'} stable"

    @property
    def sentence(self) -> str:
        """In words, with what to do."""
        doubtful = [str(c.cluster) for c in self.clusters if c.jaccard is not None and c.jaccard < PATTERN]
        patterns = [
            str(c.cluster) for c in self.clusters if c.jaccard is not None and PATTERN <= c.jaccard < STABLE
        ]
        said = []
        if doubtful:
            noun, verb = ("Cluster", "is") if len(doubtful) == 1 else ("Clusters", "are")
            said.append(f"{noun} {listing(doubtful, 12)} {verb} not to be trusted: other rows give others.")
        if patterns:
            noun, verb = ("Cluster", "shows") if len(patterns) == 1 else ("Clusters", "show")
            said.append(f"{noun} {listing(patterns, 12)} {verb} a pattern without sharp limits.")
        if len(self.clusters) > 1 and not said:
            said.append("Other rows of the same kind would give the same clusters.")
        often = sorted(self.found, key=lambda pair: (-pair[1], pair[0]))
        numbers = listing([f"{k} ({times} of {self.refits})" for k, times in often])
        said.append(f"Clusters chosen when none are asked for: {numbers}.")
        return " ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "refits": self.refits,
            "rows_each": self.rows_each,
            "sample": self.sample,
            "seed": self.seed,
            "sentence": self.sentence,
            "clusters": [vars(c) | {"reading": c.reading} for c in self.clusters],
            "splits": [vars(s).copy() for s in self.splits],
            "found": [{"clusters": k, "times": times} for k, times in self.found],
            "ari_model": self.ari_model,
            "ari_between": self.ari_between,
        }


def assess(
    model: Partition,
    refits: Sequence[Partition],
    nodes: Iterable[int],
    names: Sequence[str | None],
    *,
    rows_each: int,
    seed: int,
) -> Stability:
    """Compare a model's partition of a sample with those of refits of the same rows.

    Parameters
    ----------
    nodes : the splits of the model to look for in the refits
    names : (K,) of the clusters
    rows_each, seed : of the refits, to be told
    """
    own = model.cluster
    labels = [refit.cluster for refit in refits]
    similar = np.array([similarities(own, other, len(names)) for other in labels])
    sizes = np.bincount(own, minlength=len(names) + 1)[1:]
    splits = np.array(sorted(nodes), dtype=np.int64)
    returned = [agreements(model, refit, splits) >= STABLE for refit in refits]
    met = _met_on_both_sides(model, splits)
    between = [adjusted_rand(a, b) for a, b in combinations(labels, 2)]
    return Stability(
        refits=len(refits),
        rows_each=rows_each,
        sample=len(own),
        seed=seed,
        clusters=tuple(
            _cluster(k, name, int(rows), similar[:, k - 1])
            for k, (name, rows) in enumerate(zip(names, sizes, strict=True), start=1)
        ),
        splits=tuple(
            SplitStability(int(node), float(share) if some else None)
            for node, share, some in zip(splits, np.mean(returned, axis=0), met, strict=True)
        ),
        found=tuple(sorted(Counter(refit.found for refit in refits).items())),
        ari_model=float(np.mean([adjusted_rand(own, other) for other in labels])),
        ari_between=float(np.mean(between)) if between else None,
    )


def _cluster(label: int, name: str | None, rows: int, similar: np.ndarray) -> ClusterStability:
    if not rows:
        return ClusterStability(label, name, 0, None, None, 0, 0)
    recovered, dissolved = int((similar >= STABLE).sum()), int((similar <= DISSOLVED).sum())
    return ClusterStability(
        label, name, rows, float(similar.mean()), float(similar.min()), recovered, dissolved
    )


def similarities(own: np.ndarray, other: np.ndarray, clusters: int) -> np.ndarray:
    """(K,) Jaccard similarity of each cluster of `own` to the most similar one of `other`; 0 of an empty one.

    own, other : (n,) int, from 1 up
    """
    cells, both = np.unique(own.astype(np.int64) << 32 | other, return_counts=True)
    a, b = cells >> 32, cells & 0xFFFFFFFF
    similar = np.zeros(clusters)
    np.maximum.at(similar, a - 1, both / (np.bincount(own)[a] + np.bincount(other)[b] - both))
    return similar


def agreements(model: Partition, refit: Partition, nodes: np.ndarray) -> np.ndarray:
    """(m,) how well some cut of a refit parts the rows of each split of the model as it does, 0 to 1.

    Of the rows that meet the split, those that meet a cut of the refit as well are on its two sides; the
    agreement is the smaller one of the sides' Jaccard similarities, of the best cut. So it does not matter in
    which order a tree parts clusters: a cut between B and C is the same whether A is with one of them or not.
    """
    cuts = refit.cuts
    if not len(cuts) or not len(nodes):
        return np.zeros(len(nodes))
    ll, lr, rl, rr = np.zeros((4, len(nodes), len(cuts)))
    left, right = np.zeros((2, len(nodes), 1))
    step = max(1, BLOCK // (len(nodes) + len(cuts)))
    for start in range(0, len(model.leaf), step):
        rows = slice(start, start + step)
        (own_left, own_right), (other_left, other_right) = model.sides(nodes, rows), refit.sides(cuts, rows)
        ll += own_left @ other_left.T
        lr += own_left @ other_right.T
        rl += own_right @ other_left.T
        rr += own_right @ other_right.T
        left += own_left.sum(axis=1, keepdims=True)
        right += own_right.sum(axis=1, keepdims=True)
    straight = np.minimum(ll / np.maximum(left + rl, 1), rr / np.maximum(right + lr, 1))
    crossed = np.minimum(lr / np.maximum(left + rr, 1), rl / np.maximum(right + ll, 1))
    best: np.ndarray = np.maximum(straight, crossed).max(axis=1)
    return best


def _met_on_both_sides(model: Partition, nodes: np.ndarray) -> np.ndarray:
    """(m,) bool: which splits have rows of the sample on both sides."""
    rows = np.bincount(model.leaf, minlength=2 * len(model.cluster_of_leaf))
    for node in range(len(model.cluster_of_leaf) - 1, 0, -1):
        rows[node] = rows[2 * node] + rows[2 * node + 1]
    both: np.ndarray = (rows[2 * nodes] > 0) & (rows[2 * nodes + 1] > 0)
    return both
