"""The tree's arrays -> the same arrays in other coordinates, or frozen.

NumPy only. Nodes are the paper's: root 1, children 2i and 2i + 1; arrays hold node i at index i - 1.
A tree of depth D has m = 2^D - 1 splits, 2^D leaves and n = 2 m + 1 nodes. d is the number of features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from imdh_cli.compiled.memory import by_node

CLIP = 10.0  # standardised coordinates are cut to [-10, 10]
FLAT = 1e-14  # sd by mean: rounding leaves a constant large value with a spread of a few last digits
FLAT_PROJECTION = 1e-12  # a projected sd below this part of the coordinates is rounding, not spread
HELD = 10**12  # what counts as rows learned from where a cut is to stay
MARGIN = 1e-10  # by which part of the coordinates the cut of a flat split is moved


@dataclass(frozen=True)
class Scaling:
    """From the user's units to the coordinates of the tree: z = clip((x - center) / scale, -limit, limit).

    center, scale, fill : (d,) float64, scale > 0; fill is the z of a missing cell. limit : 10, or inf.
    """

    center: np.ndarray
    scale: np.ndarray
    fill: np.ndarray
    limit: float

    def equals(self, other: Scaling) -> bool:
        """Whether both are the same coordinates."""
        return np.array_equal(self.center, other.center) and np.array_equal(self.scale, other.scale)

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Standardise (rows, d) in plain NumPy: the recipe that the compiled one equals bit for bit."""
        Z = (X - self.center) / self.scale
        return np.clip(np.where(np.isnan(Z), self.fill, Z), -self.limit, self.limit)


class FrozenTree(NamedTuple):
    """Hyperplanes that no longer move: a row goes left (to 2i) iff v.z < threshold.

    directions : (m, d) float64, unit. thresholds, deviations (projected sd) : (m,) float64.
    """

    directions: np.ndarray
    thresholds: np.ndarray
    deviations: np.ndarray

    @property
    def depth(self) -> int:
        return len(self.thresholds).bit_length()

    def noise_shares(self, scaling: Scaling, columns: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """Which part of the variance along each direction is noise that rows were learned from with, (m,).

        columns, squares : (c,), features that have some, and its mean square in the user's units.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # in a forged model
            noise = self.directions[:, columns] ** 2 @ (squares / scaling.scale[columns] ** 2)
            squares_along = self.deviations**2
            return np.divide(noise, squares_along, out=np.zeros(len(noise)), where=squares_along > 0)


@dataclass
class Tree:
    """What learning goes on from.

    directions : (m, d) float64, unit. pivots : (n, d) float64, means of all rows that reached the node.
    learned : (n,) int64, how many those were. offsets (b), mean_squares (rho2), variances (s2) : (m,).
    anchors : (m,), the offset that the penalty holds the cut near: 0 is the mean, another place that of a
    cut that was moved there (see reseating).
    """

    directions: np.ndarray
    pivots: np.ndarray
    learned: np.ndarray
    offsets: np.ndarray
    mean_squares: np.ndarray
    variances: np.ndarray
    anchors: np.ndarray

    @classmethod
    def start(
        cls,
        depth: int,
        d: int,
        *,
        start: str = "random",
        seed: int = 0,
        number: int = 0,
        axes: np.ndarray | None = None,
    ) -> Tree:
        """An unlearned tree: `random` unit directions from the seed, or for node i the `axis` (i - 1) mod d.

        number : of several trees from one seed.
        axes : the features to go round, all by default. Along one that is constant nothing is ever learned.
        """
        tree = cls.empty(depth, d)
        directions, splits = tree.directions, len(tree.directions)
        if start == "axis":
            axes = np.arange(d) if axes is None or not len(axes) else axes
            directions[np.arange(splits), axes[np.arange(splits) % len(axes)]] = 1.0
        else:
            directions[:] = np.random.default_rng([seed, 1, number]).standard_normal((splits, d))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        return tree

    @classmethod
    def empty(cls, depth: int, d: int) -> Tree:
        """All zeros, directions too."""
        splits, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
        return cls(
            directions=by_node(splits, d),
            pivots=by_node(nodes, d),
            learned=by_node(nodes, dtype=np.int64),
            offsets=by_node(splits),
            mean_squares=by_node(splits),
            variances=by_node(splits),
            anchors=by_node(splits),
        )

    @property
    def depth(self) -> int:
        return (len(self.offsets) + 1).bit_length() - 1

    def frozen(self) -> tuple[np.ndarray, np.ndarray]:
        """Thresholds and offsets of the hyperplanes as they stand: a row goes left iff v.z < threshold.

        A split that saw no spread (one distinct row) is moved a hair to the left of its mean, so that
        rows equal to that mean go right beyond any doubt of rounding. threshold - v.pivot = offset.
        """
        at_pivot = np.einsum("ij,ij->i", self.directions, self.pivots[: len(self.offsets)])
        size = 1.0 + np.abs(self.offsets + at_pivot)
        flat = np.sqrt(self.variances) <= FLAT_PROJECTION * size
        offsets = self.offsets - np.where(flat, MARGIN * size, 0.0)
        return offsets + at_pivot, offsets

    def freeze(self) -> FrozenTree:
        """As it stands, to take rows down."""
        thresholds, _ = self.frozen()
        return FrozenTree(self.directions, thresholds, np.sqrt(self.variances))

    def put(self, node: int, direction: np.ndarray, threshold: float, Z: np.ndarray, *, hold: bool) -> None:
        """The cut z.direction = threshold in the place of that of `node`, which the rows Z (n, d) reach.

        direction : (d,), unit. hold : it does not learn any more, and its place is there and not at the mean.
        """
        i = node - 1
        self.start_below(node)
        self.directions[i] = direction
        self.pivots[i] = Z.mean(axis=0)
        self.learned[i] = HELD if hold else len(Z)
        self.mean_squares[i] = Z.var(axis=0).mean()
        self.variances[i] = (Z @ direction).var()
        self.offsets[i] = threshold - direction @ self.pivots[i]
        self.anchors[i] = self.offsets[i] if hold else 0.0

    def start_below(self, node: int) -> None:
        """Forget what was learned below a split, in place, but for the directions."""
        splits = splits_below(node, self.depth) - 1
        for array in (self.offsets, self.mean_squares, self.variances, self.anchors):
            array[splits] = 0.0
        nodes = splits_below(node, self.depth + 1) - 1
        self.learned[nodes] = 0
        self.pivots[nodes] = 0.0

    def deeper(self, levels: int, seed: int) -> Tree:
        """The same splits with more levels below, which nothing was learned of: they start as those of a tree
        that had been as deep from the seed on."""
        grown = Tree.start(self.depth + levels, self.directions.shape[1], seed=seed)
        splits = len(self.offsets)
        for name, array in vars(self).items():
            getattr(grown, name)[:splits] = array[:splits]
        return grown

    def re_express(self, old: Scaling, new: Scaling) -> None:
        """Move to the coordinates of `new`, in place: each hyperplane stays the same set of points in x.

        z = (s1 / s0) z' + (c1 - c0) / s0, so v.(z - m) = b becomes v'.(z' - m') = b' with
        v' = (s1 / s0) v / |(s1 / s0) v| and offset, anchor and projected sd divided by the same norm.
        """
        ratio = new.scale / old.scale
        self.pivots[:] = (self.pivots - (new.center - old.center) / old.scale) / ratio
        self.pivots[self.learned == 0] = 0.0
        self.directions *= ratio
        norms = np.linalg.norm(self.directions, axis=1)
        self.directions /= norms[:, None]
        self.offsets /= norms
        self.anchors /= norms
        self.variances /= norms**2
        self.mean_squares *= np.mean(ratio**-2.0)


def level_of(node: int) -> int:
    """Depth of a node below the root, which is at 0."""
    return node.bit_length() - 1


def splits_below(node: int, depth: int) -> np.ndarray:
    """Numbers of the splits below a node of a tree of that depth, (k,) int64, by level from left to right."""
    levels = [np.arange(node << k, (node + 1) << k) for k in range(1, depth - level_of(node))]
    return np.concatenate([np.empty(0, dtype=np.int64), *levels])
