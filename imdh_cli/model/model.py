"""Model <-> model.npz: what `fit` learned, versioned, checked, never pickled.

The arrays are those of the contract; node i of the paper is row i - 1. NumPy is all it needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from imdh_cli.atomic import Target
from imdh_cli.core import pruning
from imdh_cli.core.columns import EVERYWHERE
from imdh_cli.core.lookups import Lookups
from imdh_cli.core.piles import Piles
from imdh_cli.core.pruning import Pruning
from imdh_cli.core.tree import CLIP, FLAT, FrozenTree, Scaling
from imdh_cli.errors import ModelError
from imdh_cli.model import metadata as model_metadata
from imdh_cli.model import npz, validation
from imdh_cli.params import FitParams, PruneParams

if TYPE_CHECKING:
    from imdh_cli.features import FeatureSpec

FORMAT_VERSION = validation.FORMAT_VERSION
_TEXT = ("feature_names", "metadata")


@dataclass
class Model:
    """A learned and pruned tree: d features, depth D, m = 2^D - 1 splits, n = 2^(D+1) - 1 nodes.

    Attributes
    ----------
    feature_names : (d,) list of str, columns of the feature matrix
    center, scale : (d,) float64; z = clip((x - center) / scale, -10, 10)
    directions : (m, d) float64, unit vectors v, in z
    thresholds : (m,) float64; a row goes left (to 2i) iff v . z < threshold
    offsets : (m,) float64, b of the learning rule: threshold - v . pivot
    pivots : (n, d) float64, the means learned, which learning goes on from
    projection_sd : (m,) float64, s
    histograms : (m, 128) int64, of (v . z - threshold) / s in bins of 1/16 on [-4, 4]
    means : (n, d) float64, of the rows counted, in z
    counts : (n,) int64, rows counted
    sums_of_squares : (n, d) float64, per feature, in z, about the mean of the rows counted
    merge_order : (m,) int64, the split removed at each step of the pruning
    cluster_of_leaf : (2^D,) int32, 1..K from left to right
    metadata : dict of plain values: parameters, feature spec, rows, provenance, versions
    extras : arrays that may be missing: the noise of a recount (`core.dither`), and what going
        on with the learning needs (`validation.EXTRAS`)
    """

    feature_names: list[str]
    center: np.ndarray
    scale: np.ndarray
    directions: np.ndarray
    thresholds: np.ndarray
    offsets: np.ndarray
    pivots: np.ndarray
    projection_sd: np.ndarray
    histograms: np.ndarray
    means: np.ndarray
    counts: np.ndarray
    sums_of_squares: np.ndarray
    merge_order: np.ndarray
    cluster_of_leaf: np.ndarray
    metadata: dict[str, Any]
    extras: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """D, the number of split levels."""
        return self.n_splits.bit_length()

    @property
    def n_features(self) -> int:
        """d, columns of the feature matrix (a one-hot column counts once per level)."""
        return self.directions.shape[1]

    @property
    def n_splits(self) -> int:
        """m = 2^D - 1."""
        return len(self.directions)

    @property
    def n_nodes(self) -> int:
        """n = 2^(D+1) - 1."""
        return 2 * self.n_splits + 1

    @property
    def n_clusters(self) -> int:
        """K, the number of clusters chosen."""
        return int(self.cluster_of_leaf[-1])

    def cluster_sizes(self) -> list[int]:
        """Rows counted in each cluster 1..K."""
        rows = self.counts[self.n_splits :]
        return [int(n) for n in np.bincount(self.cluster_of_leaf, rows, self.n_clusters + 1)[1:]]

    @property
    def cluster_nodes(self) -> np.ndarray:
        """The tree node of each cluster, (K,) int64."""
        return pruning.cluster_nodes(self.cluster_of_leaf, self.counts)

    @property
    def spec(self) -> FeatureSpec:
        """Which columns are read, and how cells without a number are treated."""
        from imdh_cli.features import FeatureSpec

        return FeatureSpec.from_dict(self.metadata["features"])

    @property
    def params(self) -> FitParams:
        """The parameters of the fit."""
        return FitParams.from_dict(self.metadata["parameters"])

    @property
    def cluster_names(self) -> list[str | None]:
        """(K,) what people call the clusters; None where there is no name."""
        return self.names_of(pruning.cluster_nodes(self.cluster_of_leaf, self.counts))

    def names_of(self, nodes: Sequence[int] | np.ndarray) -> list[str | None]:
        """The names that people gave to clusters, by their tree nodes; None where there is none."""
        names = self.metadata.get("cluster_names", {})
        return [names.get(str(int(node))) for node in nodes]

    @property
    def noise_shares(self) -> np.ndarray:
        """Of each split, (m,), see `core.tree.FrozenTree`."""
        none = np.empty(0)
        columns = self.extras.get("dither_columns", none).astype(np.int64)
        tree = FrozenTree(self.directions, self.thresholds, self.projection_sd)
        return tree.noise_shares(self.scaling, columns, self.extras.get("dither_squares", none))

    @property
    def piles_shared(self) -> np.ndarray:
        """Of each split and side, (m, 2), see `core.piles.Piles.shared`."""
        nodes = self.counts, self.means, self.sums_of_squares
        return Piles.restored(self.extras).shared(self.directions, *nodes)

    @property
    def copies(self) -> float:
        """What tells how many rows differ (see core.copies), 0 where none are copies."""
        return float(self.extras.get("copies", [0.0])[0])

    @property
    def lookups(self) -> Lookups:
        """Columns that are looked up from some things."""
        return Lookups.restored(self.extras)

    def pruned(self, params: PruneParams) -> Pruning:
        """The clusters of this tree by other parameters, with what makes them doubtful; the model stays.

        Raises
        ------
        UsageError
            When more clusters are asked for than leaves are in use.
        """
        chosen = pruning.prune(
            self.counts,
            self.means,
            self.sums_of_squares,
            self.pivots,
            self.histograms,
            params,
            self.extras.get("histograms_on_piles"),
            np.maximum(self.copies, self.lookups.copies_along(self.directions)),
            self.noise_shares,
            self.piles_shared,
        )
        return model_metadata.doubted(chosen, self.metadata, self.feature_names, self.directions)

    @property
    def scaling(self) -> Scaling:
        """The coordinates of the tree; a missing cell stands at the training mean."""
        if self.params.scale == "none":
            return Scaling(self.center, self.scale, self.extras.get("fill", self.means[0]), np.inf)
        return Scaling(self.center, self.scale, np.zeros(self.n_features), CLIP)

    @property
    def logs(self) -> np.ndarray:
        """(d,) bool: features that are signed logarithms of their column."""
        named = {
            column["name"] for column in self.metadata["features"]["columns"] if column.get("log") is True
        }
        return np.array([name in named for name in self.feature_names])

    @property
    def far_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(d,) float64, twice: cells below and above are no part of what a column was scaled by."""
        named = [tail["feature"] for tail in self.metadata.get("tails", ())]
        far = np.array([name in named for name in self.feature_names])
        low, high = self.center - CLIP * self.scale, self.center + CLIP * self.scale
        return np.where(far, low, -EVERYWHERE), np.where(far, high, EVERYWHERE)

    @property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """(d,) bool, twice: features of one value; and of several with too little spread."""
        spread = np.sqrt(self.sums_of_squares[0] / max(int(self.counts[0]), 1))
        flat = (self.scale == 1.0) & (spread <= FLAT * np.abs(self.center))
        named = self.metadata.get("too_little_spread", [])
        several = np.array([name in named for name in self.feature_names])
        return flat & ~several, flat & several

    @property
    def frozen_tree(self) -> FrozenTree:
        """The hyperplanes, to take rows down."""
        return FrozenTree(self.directions, self.thresholds, self.projection_sd)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that goes into the file, in the file's order; arrays are not copied."""
        text = json.dumps(self.metadata, ensure_ascii=False, sort_keys=True)
        arrays: dict[str, np.ndarray] = {
            "format_version": np.array(FORMAT_VERSION, np.int64),
            "metadata": np.array(text),
            "feature_names": np.array(self.feature_names, dtype=np.str_),
        }
        for name, (dtype, _) in validation.ARRAYS.items():
            if name not in arrays:
                arrays[name] = np.ascontiguousarray(getattr(self, name), dtype)
        for name, (dtype, _) in validation.EXTRAS.items():
            if name in self.extras:
                arrays[name] = np.ascontiguousarray(self.extras[name], dtype)
        return arrays


def save(model: Model, path: Target, *, force: bool = False, inputs: Sequence[Target] = ()) -> None:
    """Write `model` whole or not at all; equal models give equal bytes.

    Parameters
    ----------
    force : may an existing file be replaced?
    inputs : what the run read, which is never written to

    Raises
    ------
    UsageError, OutputError
        As `atomic.check_target`, or the disk is full.
    ModelError
        The model is one that `load` would refuse: a bug of the caller.
    """
    arrays = model.arrays()
    headers = {k: npz.Header(a.dtype.str, a.shape) for k, a in arrays.items()}
    validation.check_headers(headers)
    _checked(arrays)
    npz.write_arrays(path, arrays, force=force, inputs=inputs)


def load(source: Target | BinaryIO) -> Model:
    """Read a model, of whatever origin, and check all of it.

    Parameters
    ----------
    source : path, or a binary file that can be sought

    Raises
    ------
    ModelError
        Missing, damaged, hostile, of another format, or holding numbers no model can have.
    """
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "model"
    try:
        with npz.open_arrays(source) as file:
            # The version first: another format may have other arrays.
            validation.check_version_header(file.headers)
            validation.check_version(int(file.read("format_version")))
            validation.check_headers(file.headers)
            arrays = {array: file.read(array) for array in file.headers if array not in validation.RETIRED}
        return _model(arrays, _checked(arrays))
    except ModelError as error:
        raise ModelError(f"{name}: {error.message}", error.hint or _HINT) from error


_HINT = "copy the file again, or fit the model again; imdh fit -o MODEL.npz writes models"


def _checked(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The metadata of arrays that are all in order."""
    validation.check_arrays(arrays)
    metadata = model_metadata.parse(str(arrays["metadata"]))
    clusters = arrays["cluster_of_leaf"]
    model_metadata.check(
        metadata,
        depth=len(clusters).bit_length() - 1,
        names=arrays["feature_names"].tolist(),
        clusters=int(clusters[-1]),
    )
    return metadata


def _model(arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> Model:
    extras = {name: arrays[name] for name in validation.EXTRAS if name in arrays}
    plain = {name: arrays[name] for name in validation.ARRAYS if name not in _TEXT}
    del plain["format_version"]
    names = arrays["feature_names"].tolist()
    return Model(feature_names=names, metadata=metadata, extras=extras, **plain)
