"""Signed logarithms: sign(x) log(1 + |x|) spreads money and counts, and leaves 0 and signs as they are."""

from __future__ import annotations

import numpy as np

LONG = 20.0  # times the middle half: as wide as 98 % of very unequal amounts are; of a normal column 3.5


def signed_log(x: np.ndarray) -> np.ndarray:
    """sign(x) log(1 + |x|)."""
    return np.copysign(np.log1p(np.abs(x)), x)


def signed_exp(y: np.ndarray) -> np.ndarray:
    """The inverse: sign(y) (e^|y| - 1)."""
    with np.errstate(over="ignore"):
        return np.copysign(np.expm1(np.abs(y)), y)


def spread_by_logs(quantiles: np.ndarray) -> np.ndarray:
    """(d,) bool: columns of very unequal amounts that their logarithms spread.

    quantiles : (4, d), 1, 25, 75 and 99 %. What is 0 to 1 is hardly changed by the logarithm, so it is tried.
    """

    def width(q: np.ndarray) -> np.ndarray:
        middle = q[2] - q[1]
        return np.divide(q[3] - q[0], middle, out=np.zeros_like(middle), where=middle > 0.0)

    before, after = width(quantiles), width(signed_log(quantiles))
    return (before > LONG) & (after < before / 2.0)
