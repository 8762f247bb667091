"""What learning goes on from: one table of arrays, which model files, checkpoints and updates all follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, NamedTuple, get_type_hints

import numpy as np

from imdh_cli.compiled.histogram import BINS
from imdh_cli.core.spikes import POINTS


class ArraySpec(NamedTuple):
    """dtype as NumPy writes it; shape in numbers and letters: d features, m splits, n nodes, L leaves, c
    columns that are dithered, e that are levels of one, p values that are piles, w that are spikes."""

    dtype: str
    shape: tuple[str | int, ...]


Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class LearnerState:
    """A learner between two blocks. A field that is None has in a model the value of its own array."""

    learned_counts: Annotated[Array, "<i8", "n"]  # rows that every node has met
    mean_squares: Annotated[Array, "<f8", "m"]  # rho2: mean square per coordinate
    learned_offsets: Annotated[Array, "<f8", "m"]  # b, not moved where a split is flat
    variances: Annotated[Array, "<f8", "m"]  # s2: projected variance
    anchors: Annotated[Array, "<f8", "m"]  # the offset that the penalty is about
    fill: Annotated[Array, "<f8", "d"]  # the z of a missing cell
    column_counts: Annotated[Array, "<i8", "d"]  # cells that hold a number
    column_shifts: Annotated[Array, "<f8", "d"]  # what the sums are taken about
    column_sums: Annotated[Array, "<f8", "d"]  # sum of x - shift, of the cells that are not far
    column_squares: Annotated[Array, "<f8", "d"]  # sum of (x - shift)^2 of these
    # Which cells are far, and their sums; in models without these none is.
    far_low: Annotated[Array | None, "<f8", "d"] = None  # cells below, and
    far_high: Annotated[Array | None, "<f8", "d"] = None  # above
    far_counts: Annotated[Array | None, "<i8", "d"] = None  # are so many,
    far_sums: Annotated[Array | None, "<f8", "d"] = None  # of which the sum of x - shift is this,
    far_squares: Annotated[Array | None, "<f8", "d"] = None  # and that of (x - shift)^2
    # The coordinates learned in, where rows had not all been met.
    learning_directions: Annotated[Array | None, "<f8", "m", "d"] = None  # v, unit
    learning_pivots: Annotated[Array | None, "<f8", "n", "d"] = None  # means of the rows met
    learning_center: Annotated[Array | None, "<f8", "d"] = None
    learning_scale: Annotated[Array | None, "<f8", "d"] = None
    # The last two windows of statistics.
    window_rows: Annotated[Array | None, "<i8", 2] = None  # rows met, and how many end the window under way
    window_counts: Annotated[Array | None, "<i8", 2, "L"] = None  # rows counted at every leaf
    window_means: Annotated[Array | None, "<f8", 2, "L", "d"] = None
    window_squares: Annotated[Array | None, "<f8", 2, "L", "d"] = None  # sums of squares about the means
    window_histograms: Annotated[Array | None, "<i8", 2, "m", BINS] = None  # of projections
    # The room around values that come again (see core.dither), where some column has such.
    dither_columns: Annotated[Array | None, "<i8", "c"] = None
    dither_origins: Annotated[Array | None, "<f8", "c"] = None
    dither_per_bin: Annotated[Array | None, "<f8", "c"] = None
    dither_rooms: Annotated[Array | None, "<f8", "c", BINS, 2] = None
    dither_squares: Annotated[Array | None, "<f8", "c"] = None
    dither_piled: Annotated[Array | None, "<i8", "c"] = None
    # Columns that are the levels of one (see core.one_hot).
    hot_columns: Annotated[Array | None, "<i8", "e"] = None
    hot_groups: Annotated[Array | None, "<i8", "e"] = None
    hot_shares: Annotated[Array | None, "<f8", "e"] = None
    # Columns that are classes of a finer one (see core.coarse).
    coarse_columns: Annotated[Array | None, "<i8", "q"] = None
    coarse_finer: Annotated[Array | None, "<i8", "q"] = None
    coarse_lines: Annotated[Array | None, "<f8", "q", 2] = None
    # Single values that far more rows have than those around (see core.spikes).
    spike_columns: Annotated[Array | None, "<i8", "w"] = None
    spike_values: Annotated[Array | None, "<f8", "w"] = None
    spike_moved: Annotated[Array | None, "<f8", "w"] = None
    spike_quantiles: Annotated[Array | None, "<f8", "w", POINTS] = None
    copies: Annotated[Array | None, "<f8", 1] = None  # of rows (see core.copies)
    # Columns that are looked up from some thing (see core.lookups).
    lookup_columns: Annotated[Array | None, "<i8", "r"] = None
    lookup_groups: Annotated[Array | None, "<i8", "r"] = None
    lookup_things: Annotated[Array | None, "<f8", "r"] = None
    # The values that hold far more rows than their neighbours (see core.piles).
    pile_columns: Annotated[Array | None, "<i8", "p"] = None
    pile_values: Annotated[Array | None, "<f8", "p"] = None
    # Where cuts were moved shortly before the end: all of this as it was then, which the model's tree is of.
    former: LearnerState | None = None

    def to_arrays(self, prefix: str = "") -> dict[str, np.ndarray]:
        """By name, what is None left out."""
        values = {name: getattr(self, name) for name in SPECS}
        arrays = {prefix + name: value for name, value in values.items() if value is not None}
        return arrays | ({} if self.former is None else self.former.to_arrays(prefix + FORMER))

    def copy(self) -> LearnerState:
        """With arrays of its own."""
        return LearnerState.from_arrays({name: array.copy() for name, array in self.to_arrays().items()})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str = "") -> LearnerState:
        """The inverse of `to_arrays`; arrays of other names are ignored.

        Raises
        ------
        KeyError
            When one that is needed is missing.
        """
        names = [name for name in SPECS if name in REQUIRED or prefix + name in arrays]
        own = {name: arrays[prefix + name] for name in names}
        has_former = any(prefix + FORMER + name in arrays for name in SPECS)
        return cls(**own, former=cls.from_arrays(arrays, prefix + FORMER) if has_former else None)


FORMER = "former_"  # before the names of its arrays
REQUIRED = frozenset(f.name for f in fields(LearnerState) if f.default is MISSING)
SPECS = {
    name: ArraySpec(hint.__metadata__[0], hint.__metadata__[1:])
    for name, hint in get_type_hints(LearnerState, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
NOISE = (
    "dither_",
    "hot_",
    "coarse_",
    "spike_",
    "copies",
    "lookup_",
    "pile_",
)  # how the names begin of what rows are counted with
# Noise, piles and which cells are far are what they were.
FORMERLY = [name for name in SPECS if not name.startswith((*NOISE, "far_"))]
SCHEMA = SPECS | {FORMER + name: SPECS[name] for name in FORMERLY}
