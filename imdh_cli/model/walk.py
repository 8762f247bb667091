"""A model -> the cuts that so many clusters need, as plain nodes: for what leaves the program's own tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from imdh_cli.core import pruning
from imdh_cli.errors import UsageError

if TYPE_CHECKING:
    from imdh_cli.model.model import Model


@dataclass(frozen=True)
class Cut:
    """One cut, and what lies on its two sides: another cut, or the label of a cluster.

    node : number in the tree. direction (d,), threshold : a row goes left iff direction . z < threshold.
    coefficients (d,), bound : the same in the user's own units, coefficients . x < bound, for rows that
    have no coordinate beyond the clip of z.
    """

    node: int
    direction: np.ndarray
    threshold: float
    coefficients: np.ndarray
    bound: float
    left: Cut | int
    right: Cut | int

    def __iter__(self) -> Iterator[Cut]:
        """This cut and all below it, from the root down and from left to right."""
        yield self
        for side in (self.left, self.right):
            if isinstance(side, Cut):
                yield from side


def labels_of_leaves(model: Model, clusters: int | None = None) -> np.ndarray:
    """The cluster of each leaf, (2^D,) int32 of 1..K: the model's own, or at another number of clusters.

    Raises
    ------
    UsageError
        When the tree cannot be cut into so many.
    """
    if clusters is None:
        return model.cluster_of_leaf
    order, counts, min_size = model.merge_order, model.counts, model.params.prune.min_size
    if clusters < 1:
        raise UsageError(f"{clusters} clusters were asked for", "use -k 1 or more")
    if clusters > pruning.largest(order, counts, min_size):
        raise pruning.too_many(clusters, order, counts, min_size)
    return pruning.cut(order, counts, clusters, min_size)[1]


def in_user_units(model: Model, node: int) -> tuple[np.ndarray, float]:
    """The cut of a node as coefficients (d,) and a bound: coefficients . x < bound goes left."""
    with np.errstate(over="ignore", invalid="ignore"):  # only a forged scale is so small
        coefficients = model.directions[node - 1] / model.scale
        return coefficients, float(model.thresholds[node - 1] + coefficients @ model.center)


def walk(model: Model, clusters: int | None = None) -> Cut | int:
    """The root of the cuts that tell the clusters apart; the label 1 where there is but one cluster.

    No cut stands where both sides are of one cluster.

    Raises
    ------
    UsageError
        As `labels_of_leaves`.
    """
    label, stop = pruning.labels_of_nodes(labels_of_leaves(model, clusters))

    def below(node: int) -> Cut | int:
        i = node - 1
        if stop[i]:
            return int(label[i])
        return Cut(
            node,
            model.directions[i],
            float(model.thresholds[i]),
            *in_user_units(model, node),
            left=below(2 * node),
            right=below(2 * node + 1),
        )

    return below(1)
