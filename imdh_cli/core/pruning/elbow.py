"""A curve of costs, from K = 1 -> where it bends: one vote for each Kmax up to which it is looked at."""

from __future__ import annotations

import numpy as np

TINY = 1e-10
MAX_ELBOW = 128  # the largest Kmax that votes


def weighted_elbow(curve: np.ndarray, most: int) -> list[int]:
    """One vote for each Kmax: the sharpest corner, corners far from the ends' tangents weighing less."""
    votes = []
    for k_max in range(3, min(MAX_ELBOW, most) + 1):
        q = curve[:k_max]
        if q[0] <= q[-1]:
            continue
        x = np.arange(k_max) / (k_max - 1)
        y = (q - q[-1]) / (q[0] - q[-1])
        angle = np.arctan(x / (1 - y + TINY)) + np.arctan(y / (1 - x + TINY)) + np.pi / 2
        ends = 2 + x**2 + y**2 + (1 - x) ** 2 + (1 - y) ** 2
        votes.append(int(np.argmin(angle * ends)) + 1)
    return votes


def paper_elbow(curve: np.ndarray, most: int) -> list[int]:
    """The paper's equation (elbow) for 30 values of Kmax from 10 to all, K = 1 never chosen."""
    votes = []
    for k_max in np.minimum(np.ceil(np.linspace(10, most, 30)).astype(int), most):
        q = curve[:k_max]
        spread = q.max() - q.min()
        if k_max < 2 or spread <= 0:
            continue
        x = np.arange(k_max) / (k_max - 1)
        y = (q - q.min()) / spread
        angle = np.arctan(x / (1 - y + TINY)) + np.arctan(y / (1 - x + TINY))
        votes.append(int(np.argmin(angle[1:])) + 2)
    return votes


ELBOWS = {"weighted": weighted_elbow, "paper": paper_elbow}
