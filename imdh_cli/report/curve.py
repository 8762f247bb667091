"""The curve that the number of clusters is read from, and how much of it is worth a look."""

from __future__ import annotations

import numpy as np

from imdh_cli.core.pruning import WEIGHTS
from imdh_cli.report.figures import Choice, Summary


def curve_of(summary: Summary) -> tuple[np.ndarray, str]:
    """(L,) the curve, 1 at K = 1, and what it means in words."""
    weight = WEIGHTS[summary.parameters.get("prune", {}).get("weight", "valley")]
    choice = summary.choice
    return choice.unexplained if weight.signed else choice.given_up, weight.meaning


def curve_length(choice: Choice, available: int) -> int:
    """Enough of the curve to see the elbow and what comes after it."""
    largest = max(choice.clusters, choice.runner_up or 0)
    return min(available, max(20, 128 if largest > 50 else 5 * largest // 2, largest + 2))
