"""What a model must be: names, types and shapes of its arrays, and what their numbers must satisfy.

Everything is checked before a model is used and before one is written, so that no later code has to
ask whether a direction is a unit vector or a histogram is negative. Every fault is a ModelError of
one line that names the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from imdh_cli.compiled.histogram import BINS
from imdh_cli.core.one_hot import MOST_LEVELS
from imdh_cli.core.state import FORMER, SCHEMA, ArraySpec
from imdh_cli.core.statistics import merge_moments
from imdh_cli.errors import ModelError
from imdh_cli.model.metadata import MAX_CHARACTERS, MAX_COUNT
from imdh_cli.model.npz import Header
from imdh_cli.params import MAX_DEPTH

FORMAT_VERSION = 1
MAX_NAME = 1 << 16  # characters of a feature's name

# Shapes in the letters of the contract: d features, m splits, n nodes, L leaves.
ARRAYS: dict[str, ArraySpec] = {
    "format_version": ArraySpec("<i8", ()),
    "metadata": ArraySpec("<U", ()),
    "feature_names": ArraySpec("<U", ("d",)),
    "center": ArraySpec("<f8", ("d",)),
    "scale": ArraySpec("<f8", ("d",)),
    "directions": ArraySpec("<f8", ("m", "d")),
    "thresholds": ArraySpec("<f8", ("m",)),
    "offsets": ArraySpec("<f8", ("m",)),
    "pivots": ArraySpec("<f8", ("n", "d")),
    "projection_sd": ArraySpec("<f8", ("m",)),
    "histograms": ArraySpec("<i8", ("m", BINS)),
    "means": ArraySpec("<f8", ("n", "d")),
    "counts": ArraySpec("<i8", ("n",)),
    "sums_of_squares": ArraySpec("<f8", ("n", "d")),
    "merge_order": ArraySpec("<i8", ("m",)),
    "cluster_of_leaf": ArraySpec("<i4", ("L",)),
}
# A model may lack these: what going on with the learning needs, the noise of a recount, and piles.
EXTRAS: dict[str, ArraySpec] = SCHEMA | {"histograms_on_piles": ArraySpec("<i8", ("m", BINS))}

# Of models made before: no longer of use, and not read.
RETIRED = ("code_steps", "column_codes", "column_code_counts")

# Of these, all are there or none.
TOGETHER = {
    what: [name for name in EXTRAS if name.startswith(prefix)]
    for prefix, what in (
        ("dither_", "the noise"),
        ("hot_", "the one-hot columns"),
        ("coarse_", "the columns of classes"),
        ("spike_", "the spikes"),
        ("lookup_", "the columns of things"),
        ("pile_", "the piles"),
        ("far_", "far cells"),
        (FORMER, "the tree before cuts were moved"),
    )
}

# Squares of the largest, summed over all rows and features, are still finite numbers. The squares of
# values whose spread is less than the smallest scale are 0, and a spread of 0 has the scale 1.
LARGEST = 1e140
LARGEST_SQUARES = 1e300
SMALLEST_SCALE = 1e-160
SQUARES = ("sums_of_squares", "column_squares", "far_squares", "window_squares")
NEVER_NEGATIVE = (
    "dither_per_bin",
    "dither_rooms",
    "dither_squares",
    "hot_shares",
    "copies",
    "lookup_groups",
    "projection_sd",
    "sums_of_squares",
    "mean_squares",
    "variances",
    "column_squares",
    "far_squares",
    "window_squares",
)
_UNIT = 1e-6  # how far a direction's length may be from 1
_NEAR = 1e-6  # relative, for numbers that must follow from others


def check_headers(headers: Mapping[str, Header]) -> None:
    """Names, types and shapes, from the headers alone. Raises ModelError."""
    unknown = [name for name in headers if name not in {*ARRAYS, *EXTRAS, *RETIRED}]
    missing = [name for name in ARRAYS if name not in headers]
    if missing:
        _fault(f"has no array {missing[0]}")
    for what, names in TOGETHER.items():
        lost = [name for name in names if name not in headers]
        if 0 < len(lost) < len(names):
            _fault(f"has no array {lost[0]}, though others of {what}")
    sizes = _sizes(headers)
    for name, header in headers.items():
        if name in unknown or name in RETIRED:
            continue
        dtype, symbols = (ARRAYS | EXTRAS)[name]
        text = dtype == "<U"
        if header.dtype[:2] != dtype if text else header.dtype != dtype:
            _fault(f"{name} has the type {header.dtype}, not {dtype}")
        shape = tuple(sizes[s] if isinstance(s, str) else s for s in symbols)
        if header.shape != shape:
            _fault(f"{name} has the shape {_shape(header.shape)}, not {_shape(shape)}")
        limit = MAX_CHARACTERS if name == "metadata" else MAX_NAME
        if text and int(header.dtype[2:]) > limit:
            _fault(f"{name} has texts of {header.dtype[2:]} characters")
    if unknown:
        _fault(f"holds {unknown[0]}, which is no array of format {FORMAT_VERSION}")


def check_version_header(headers: Mapping[str, Header]) -> None:
    """Is there a version to read? Raises ModelError."""
    if "format_version" not in headers:
        _fault("not a model file: it has no format_version")
    if headers["format_version"] != Header("<i8", ()):
        _fault("format_version is no single int64")


def check_version(version: int) -> None:
    """Raises ModelError for a format this program does not read."""
    if version != FORMAT_VERSION:
        hint = "update imdh" if version > FORMAT_VERSION else "fit the model again"
        _fault(f"format {version}; this imdh reads {FORMAT_VERSION}", hint)


def check_arrays(arrays: Mapping[str, np.ndarray]) -> None:
    """Every number of a model whose headers have passed. Raises ModelError."""
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            _check_size(name, array)
        if array.dtype.kind == "U":
            _check_text(name, array)
    names = arrays["feature_names"].tolist()
    if len(set(names)) < len(names):
        _fault("feature_names holds a name twice")
    if not (arrays["scale"] >= SMALLEST_SCALE).all():
        _fault(f"scale must be positive, {SMALLEST_SCALE:g} or more")
    for name, array in arrays.items():
        if name.removeprefix(FORMER) in NEVER_NEGATIVE and not (array >= 0).all():
            _fault(f"{name} must not be negative")
        if name.removeprefix(FORMER) == "learning_scale" and not (array >= SMALLEST_SCALE).all():
            _fault(f"{name} must be positive, {SMALLEST_SCALE:g} or more")
    for name, (dtype, _) in (ARRAYS | EXTRAS).items():
        if name in arrays and dtype == "<i8" and name != "merge_order":
            _check_range(name, arrays[name], 0, MAX_COUNT)
        if name.removeprefix(FORMER) in ("directions", "learning_directions") and name in arrays:
            _check_directions(name, arrays[name])
    _check_offsets(arrays)
    _check_moments(arrays)
    _check_histograms(arrays["histograms"], arrays["counts"])
    for name in SCHEMA:
        if name.endswith(("_columns", "_finer")) and name in arrays:
            _check_range(name, arrays[name], 0, len(names) - 1)
    _check_one_hot(arrays)
    _check_coarse(arrays)
    if "spike_moved" in arrays and not (arrays["spike_moved"] <= 1.0).all():
        _fault("spike_moved must be 1 at most")
    if "copies" in arrays and not arrays["copies"][0] <= 1.0:
        _fault("copies must be 1 at most")
    if "lookup_things" in arrays and not (arrays["lookup_things"] >= 1.0).all():
        _fault("lookup_things must be 1 at least")
    if "histograms_on_piles" in arrays and (arrays["histograms_on_piles"] > arrays["histograms"]).any():
        _fault("histograms_on_piles hold more rows than histograms")
    _check_merge_order(arrays["merge_order"])
    _check_clusters(arrays["cluster_of_leaf"])


def _sizes(headers: Mapping[str, Header]) -> dict[str, int]:
    directions = headers["directions"].shape
    if len(directions) != 2 or directions[1] < 1:
        _fault(f"directions has the shape {_shape(directions)}, not (splits, features)")
    m, d = directions
    if m & (m + 1) or not 1 <= (m + 1).bit_length() - 1 <= MAX_DEPTH:
        _fault(f"directions has {m} rows, which is no full tree of 1 to {MAX_DEPTH} levels")

    def length(name: str) -> int:
        shape = headers[name].shape if name in headers else (0,)
        return shape[0] if len(shape) == 1 else 0

    own = {"c": "dither", "e": "hot", "q": "coarse", "w": "spike", "r": "lookup", "p": "pile"}
    free = {size: length(f"{what}_columns") for size, what in own.items()}
    return {"d": d, "m": m, "n": 2 * m + 1, "L": m + 1, **free}


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "of a single value"


def _check_text(name: str, array: np.ndarray) -> None:
    """No lone surrogates and nothing beyond Unicode: both make later encoding fail."""
    points = np.atleast_1d(array).view("<u4")
    if ((points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))).any():
        _fault(f"{name} holds a character that does not exist")


def _check_size(name: str, array: np.ndarray) -> None:
    if not np.isfinite(array).all():
        _fault(f"{name} holds a number that is not finite")
    limit = LARGEST_SQUARES if name.removeprefix(FORMER) in SQUARES else LARGEST
    if array.size and max(array.max(), -array.min()) > limit:
        _fault(f"{name} holds a number beyond {limit:g}")


def _check_range(name: str, array: np.ndarray, low: int, high: int) -> None:
    if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        _fault(f"{name} must be between {low} and {high}")


def _check_coarse(arrays: Mapping[str, np.ndarray]) -> None:
    """Columns with noise, each once, that go along with others than these."""
    if "coarse_columns" not in arrays:
        return
    columns = arrays["coarse_columns"]
    if (np.diff(columns) <= 0).any():
        _fault("coarse_columns are not in ascending order")
    if not np.isin(columns, arrays.get("dither_columns", [])).all():
        _fault("coarse_columns are not all among dither_columns")
    if np.isin(arrays["coarse_finer"], columns).any():
        _fault("coarse_finer holds columns that are coarse themselves")


def _check_one_hot(arrays: Mapping[str, np.ndarray]) -> None:
    """Groups one after the other, none too large, whose rows are not more than all."""
    if "hot_groups" not in arrays or not len(groups := arrays["hot_groups"]):
        return
    if (
        groups[0] != 0
        or not np.isin(np.diff(groups), (0, 1)).all()
        or np.bincount(groups).max() > MOST_LEVELS
    ):
        _fault(f"hot_groups are not 0, 1, 2 ... in order, each up to {MOST_LEVELS} times")
    if (np.diff(arrays["hot_columns"]) <= 0).any():
        _fault("hot_columns are not in ascending order")
    if not (np.bincount(groups, arrays["hot_shares"]) <= 1.0 + _NEAR).all():
        _fault("hot_shares of a group sum up to more than 1")


def _check_directions(name: str, directions: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", directions, directions))
    wrong = np.flatnonzero(~(np.abs(lengths - 1) <= _UNIT))
    if len(wrong):
        _fault(f"{name}: node {wrong[0] + 1} has the length {lengths[wrong[0]]:.6g}, not 1")


def _check_offsets(arrays: Mapping[str, np.ndarray]) -> None:
    """offset = threshold - v . pivot, up to rounding."""
    v, thresholds, offsets = arrays["directions"], arrays["thresholds"], arrays["offsets"]
    pivots = arrays["pivots"][: len(v)]
    with np.errstate(over="ignore", invalid="ignore"):
        centers = np.einsum("ij,ij->i", v, pivots)
        room = _NEAR * (1 + np.abs(thresholds) + np.einsum("ij,ij->i", np.abs(v), np.abs(pivots)))
        wrong = np.flatnonzero(~(np.abs(thresholds - centers - offsets) <= room))
    if len(wrong):
        _fault(f"offsets: node {wrong[0] + 1} does not fit its threshold, direction and pivot")


def _check_moments(arrays: Mapping[str, np.ndarray]) -> None:
    """A node's count, mean and sums of squares are those of its children together."""
    stored = (arrays["counts"], arrays["means"], arrays["sums_of_squares"])
    left, right = ((stored[0][i::2], stored[1][i::2], stored[2][i::2]) for i in (1, 2))
    m = len(left[0])
    with np.errstate(over="ignore", invalid="ignore"):
        counts, means, squares = merge_moments(left, right)
        # What rounding may do grows with the values that were summed, not with their mean.
        size = np.maximum(np.abs(left[1]), np.abs(right[1]))
        size += np.sqrt(squares / np.maximum(counts, 1)[:, None])
        mean_room = _NEAR * size + 1e-300
        square_room = _NEAR * (squares + counts[:, None] * size**2) + 1e-300
        wrong = {
            "counts": stored[0][:m] != counts,
            "means": ~(np.abs(stored[1][:m] - means) <= mean_room).all(axis=1),
            "sums_of_squares": ~(np.abs(stored[2][:m] - squares) <= square_room).all(axis=1),
        }
    for name, nodes in wrong.items():
        if nodes.any():
            _fault(f"{name}: node {np.argmax(nodes) + 1} differs from its children together")


def _check_histograms(histograms: np.ndarray, counts: np.ndarray) -> None:
    _check_range("histograms", histograms, 0, MAX_COUNT)
    if (histograms.sum(axis=1) > counts[0]).any():
        _fault("histograms hold more rows than were counted")


def _check_merge_order(order: np.ndarray) -> None:
    m = len(order)
    if not np.array_equal(np.sort(order), np.arange(1, m + 1)):
        _fault(f"merge_order does not hold every split from 1 to {m} once")
    step = np.empty(m + 1, np.int64)
    step[order] = np.arange(m)
    parents = np.arange(1, (m + 1) // 2)
    late = (step[2 * parents] > step[parents]) | (step[2 * parents + 1] > step[parents])
    if late.any():
        _fault(f"merge_order removes node {parents[late][0]} before its children")


def _check_clusters(cluster_of_leaf: np.ndarray) -> None:
    steps = np.diff(cluster_of_leaf.astype(np.int64))
    if cluster_of_leaf[0] != 1 or not ((steps == 0) | (steps == 1)).all():
        _fault("cluster_of_leaf does not number clusters 1, 2, 3 ... from left to right")


def _fault(message: str, hint: str | None = None) -> NoReturn:
    raise ModelError(message, hint)
