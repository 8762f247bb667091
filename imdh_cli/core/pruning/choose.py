"""Splits and their weight -> the number of clusters, and how sure that is.

Paper: section 3 (pruning and the elbow).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from imdh_cli.core.pruning.cut import clusters_after, in_use_after, removal_order
from imdh_cli.core.pruning.elbow import ELBOWS
from imdh_cli.core.pruning.valleys import EMPTY, LAX, SURE
from imdh_cli.core.pruning.weights import WEIGHTS, Splits, SplitWeight
from imdh_cli.params import PruneParams

MOSTLY = 0.8  # the part of the significant valleys from which on such a tree is one of gaps, or
LAST_MOSTLY = (
    2 / 3
)  # of the lowest ones: planted clusters have 0.65 and more, tables of the world 0.5 at most


@dataclass(frozen=True)
class Nested:
    """The prunings from the most clusters to one, each within the one before.

    order (m,) : splits as they are removed. curve, total_ss (largest,) : at index K - 1, what removing splits
    down to K has cost, and the sum of squares within K clusters. valleys : clusters when exactly the kept
    splits stand (S + 1). apart : V + 1, clusters with gaps between them, where nearly all of the V
    significant valleys, or of the lowest of them, are empty; else 0.
    """

    order: np.ndarray
    curve: np.ndarray
    total_ss: np.ndarray
    valleys: int
    apart: int

    @classmethod
    def of(cls, splits: Splits, weight: SplitWeight) -> Nested:
        """Splits that divide off too few rows for a min_size above one go first, whatever their weight."""
        m = len(splits.gains)
        void = (splits.lesser < splits.min_rows) & (splits.min_rows > 1)
        rank, *deciding = weight.order_key(splits)
        order = removal_order(zip(np.where(void, -1, rank), *deciding, strict=True))
        after = clusters_after(order, splits.counts, splits.min_rows)
        steps = np.array([int(np.argmax(after <= k)) for k in range(1, int(after[0]) + 1)])
        # Small leaves joined.
        steps[-1] = int(np.argmax(in_use_after(order, splits.counts, splits.min_rows)))
        spent = np.concatenate([[0.0], np.cumsum(weight.cost(splits)[order - 1])])
        lost = np.concatenate([[0.0], np.cumsum(splits.gains[order - 1])])
        return cls(
            order, spent[steps], splits.squares[m:].sum() + lost[steps], kept_clusters(splits), apart(splits)
        )


def kept_clusters(splits: Splits) -> int:
    """Clusters when exactly the kept splits stand (S + 1)."""
    in_use = 0
    stack = [1]
    while stack:
        node = stack.pop()
        if node > len(splits.kept) or not splits.kept[node - 1]:
            in_use += bool(splits.counts[node - 1] >= splits.min_rows)
        else:
            stack += [2 * node, 2 * node + 1]
    return max(1, in_use)


def apart(splits: Splits) -> int:
    """V + 1 where nearly all of the V significant valleys are nearly empty, or of those that have none below
    them, else 0.

    Over many clusters a valley is narrow beside the spread of the rows, and looks filled: the last ones tell.
    """
    significant = splits.significant
    divided = np.zeros_like(significant)  # a significant split stands below
    for i in range(len(significant) - 1, 0, -1):
        divided[(i - 1) // 2] |= significant[i] | divided[i]
    for some, mostly in ((significant, MOSTLY), (significant & ~divided, LAST_MOSTLY)):
        if some.any() and np.mean(splits.depths[some] >= EMPTY) >= mostly:
            return int(np.count_nonzero(significant)) + 1
    return 0


def choose(nested: Nested, params: PruneParams, most: int) -> tuple[int, np.ndarray]:
    """The automatic number of clusters, at most `most`, and the votes for each, (largest,).

    Where clusters have gaps between them, no fewer than these make: over many like clusters a curve bends
    early. More, where a gap is reached through cuts that have none, as those that divide off a few rows.
    """
    votes = np.zeros(len(nested.curve), dtype=np.int64)
    limit = min(most, WEIGHTS[params.weight].most(nested.valleys) or most)
    if limit == 1:
        return 1, votes
    for k in ELBOWS[params.elbow](nested.curve, most):
        votes[k - 1] += 1
    eligible = votes[1:most]
    k = int(np.argmax(eligible)) + 2 if eligible.any() else max(nested.valleys, 2)
    if nested.apart and (params.weight, params.elbow) == ("valley", "weighted"):
        k = max(k, nested.apart)
    return min(k, limit), votes


def clarity(
    k: int, splits: Splits, nested: Nested, params: PruneParams, most: int
) -> tuple[str, tuple[int, ...]]:
    """Whether other readings of the same summaries give the same number, and those that do not.

    All significant valleys; those without cuts through a cluster; the choice by a stricter test; all
    valleys by a laxer one. Of planted clusters said to be clear, 97 of 100 have the planted number.
    """
    if not splits.kept.any():
        return "none", ()
    at_sure, _ = choose(Nested.of(splits.judge(SURE), WEIGHTS[params.weight]), params, most)
    at_lax = kept_clusters(splits.judge(LAX))
    without_cuts_through = int(np.count_nonzero(splits.significant)) + 1
    others = {nested.valleys, without_cuts_through, at_sure, at_lax} - {k}
    return ("close" if others else "clear"), tuple(sorted(others))
