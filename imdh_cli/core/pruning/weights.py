"""Moments of nodes and histograms of splits -> what each split is worth, by the paper or by its valley.

    SS      sum of squares of a node's rows about their mean
    G       gain of a split: SS(j) - SS(2j) - SS(2j+1)
    delta   depth of its valley, E its excess mass: see `valleys`

Sums of squares alone find clusters in one Gaussian; depths alone are noise where rows are few. A split
counts when E says that two modes are there, in the order of what both together are worth.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from imdh_cli.core.pruning.cut import children
from imdh_cli.core.pruning.valleys import (
    LEAST_ROWS,
    PLAIN,
    SIGNIFICANT,
    SURE,
    are_few,
    eased,
    excess_mass,
    of_few,
    valley_depths,
    without_piles,
)

MOST_RATIO = 1e6  # of sums of squares, above and below a split


def _none() -> np.ndarray:
    return np.empty(0, dtype=bool)


@dataclass(frozen=True)
class Splits:
    """What is known of each split, (m,), and of each node, (n,).

    counts, squares (n,) : rows and sum of squares. gains : G. charged : gains of sums of squares about the
    learned means, the paper's, which may be negative. depths, excess : delta, E / sqrt(n), where n may be
    that of few rows (see `valleys.of_few`), or of fewer that are no copies (see core.copies). significant :
    a valley of its own; kept : or one below it. plain, eased : no noise, piles or few rows to speak of, and
    what thresholds are multiplied by (see `valleys.eased`). min_rows : the least that a cluster may have.
    """

    counts: np.ndarray
    squares: np.ndarray
    gains: np.ndarray
    charged: np.ndarray
    depths: np.ndarray
    excess: np.ndarray
    plain: np.ndarray
    eased: np.ndarray
    min_rows: int
    significant: np.ndarray = field(default_factory=_none)
    kept: np.ndarray = field(default_factory=_none)

    @classmethod
    def summarise(
        cls,
        counts: np.ndarray,
        means: np.ndarray,
        sums_of_squares: np.ndarray,
        pivots: np.ndarray,
        histograms: np.ndarray,
        min_rows: int,
        on_piles: np.ndarray | None = None,
        copies: float | np.ndarray = 0.0,
        noise_shares: np.ndarray | None = None,
    ) -> Splits:
        """From the arrays that `prune` is given, judged at the usual threshold."""
        m = len(histograms)
        squares = sums_of_squares.sum(axis=1)
        about_pivots = squares + counts * ((means - pivots) ** 2).sum(axis=1)
        rows = np.maximum(counts[:m], histograms.sum(axis=1))  # noise may bring in more than there are
        gains = []
        for ss in (squares, about_pivots):
            left, right = children(ss)
            gains.append(ss[:m] - left - right)
        depths, excess = valley_depths(histograms, rows, noise_shares), excess_mass(histograms, rows)
        lesser = np.minimum(*children(counts))
        excess = of_few(excess, depths, rows, lesser)
        if on_piles is not None:
            excess = without_piles(excess, depths, histograms, on_piles)
        plain = ~are_few(depths, rows, lesser)
        if noise_shares is not None:
            plain &= noise_shares <= PLAIN
        if on_piles is not None:
            plain &= ~on_piles.any(axis=1)
        alike = 1.0 + copies * counts[0]  # rows that count for one
        excess = excess / np.sqrt(alike)
        return cls(
            counts=counts,
            squares=squares,
            gains=np.maximum(gains[0], 0.0),
            charged=gains[1],
            depths=depths,
            excess=excess,
            plain=plain,
            eased=eased(counts[:m] / alike, means.shape[1], plain),
            min_rows=min_rows,
        ).judge(SIGNIFICANT)

    def judge(self, threshold: float) -> Splits:
        """The same with `significant` and `kept` by a threshold for E / sqrt(n), that of the eighth level but
        where it is one beyond doubt."""
        significant = (
            (self.counts[: len(self.gains)] >= LEAST_ROWS)
            & (self.excess > threshold * (self.eased if threshold < SURE else 1.0))
            & (self.depths > 0.0)
            & (self.lesser >= self.min_rows)
        )
        kept = significant.copy()
        for i in range(len(kept) - 1, 0, -1):
            kept[(i - 1) // 2] |= kept[i]
        return replace(self, significant=significant, kept=kept)

    @property
    def lesser(self) -> np.ndarray:
        """Rows on the side of each split that has fewer, (m,)."""
        return np.minimum(*children(self.counts))


class SplitWeight(Protocol):
    """In which order splits are removed, and what that costs.

    meaning : what the curve of a report shows by this weight, in words. signed : a cost may be negative, so
    that the sums of squares stand for the costs there.
    """

    meaning: str
    signed: bool

    def order_key(self, splits: Splits) -> tuple[np.ndarray, ...]:
        """(m,) each, a rank and what decides where it is the same: the least goes first."""

    def cost(self, splits: Splits) -> np.ndarray:
        """What is lost with each split, (m,)."""

    def most(self, valleys: int) -> int | None:
        """The largest number of clusters that may be chosen where there are `valleys`; None for any."""


class ValleyWeight:
    """Splits that are not kept first, least G (0.001 + delta) first, or least G where none is kept, then the
    kept ones, least G delta first (0 where not significant itself).

    The cost of a significant split is delta n ln(SS / (SS_left + SS_right)), a likelihood gain: free of the
    node's own spread, so that one wide cluster does not own the curve.
    """

    meaning = "Separation between clusters that stopping at K gives up, as a share of all there is."
    signed = False

    def order_key(self, splits: Splits) -> tuple[np.ndarray, ...]:
        worth = splits.gains * (0.001 + splits.depths) if splits.kept.any() else splits.gains
        valley = np.where(splits.significant, splits.gains * splits.depths, 0.0)
        return splits.kept, np.where(splits.kept, valley, worth), worth

    def cost(self, splits: Splits) -> np.ndarray:
        m = len(splits.gains)
        inside = sum(children(splits.squares))
        ratio = np.divide(splits.squares[:m], inside, out=np.full(m, MOST_RATIO), where=inside > 0)
        logs = np.log(np.clip(ratio, 1.0, MOST_RATIO))
        return np.where(splits.significant, splits.depths * splits.counts[:m] * logs, 0.0)

    def most(self, valleys: int) -> int | None:
        return valleys


class SquaresWeight:
    """The paper's: the gain of sums of squares about the learned means, of which a small node's is poor, so
    that its split is charged for it."""

    meaning = "Variance left within K clusters, as a share of the variance of all rows."
    signed = True

    def order_key(self, splits: Splits) -> tuple[np.ndarray, ...]:
        return np.zeros(len(splits.charged)), splits.charged

    def cost(self, splits: Splits) -> np.ndarray:
        return splits.charged

    def most(self, valleys: int) -> int | None:
        return None


WEIGHTS: dict[str, SplitWeight] = {"valley": ValleyWeight(), "ss": SquaresWeight()}
