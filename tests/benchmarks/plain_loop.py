"""The update rule as one would first write it: row by row, level by level, compiled by numba with our flags.

What `learning alone` is compared with. It standardises, learns and counts all that a pass of `core.learner`
does, without moving cuts; trees come out the same but for rounding (tests/test_benchmarks.py).
"""

from __future__ import annotations

import math

import numba
import numpy as np

from imdh_cli.compiled.histogram import BINS, PER_SD
from imdh_cli.compiled.kernel import FASTMATH
from imdh_cli.core.statistics import Statistics
from imdh_cli.core.tree import Scaling, Tree
from imdh_cli.params import LearnParams

ROOT_2PI = math.sqrt(2.0 * math.pi)


@numba.njit(nogil=True, error_model="numpy", fastmath=FASTMATH)
def learn(X, center, scale, limit, rule, V, M, T, B, RHO2, S2, histograms, counts, means, squares):
    """rule: alpha, C, delta, q, r, rate, clamp. Upper case: by node, as in `core.tree.Tree`."""
    alpha, C, delta, q, r, rate, clamp = rule
    n, d = X.shape
    m = len(B)
    z = np.empty(d)
    for row in range(n):
        clipped = False
        for f in range(d):
            z[f] = min(max((X[row, f] - center[f]) / scale[f], -limit), limit)
            clipped |= abs(z[f]) >= limit
        i = 0
        while i < m:
            T[i] += 1
            t = T[i]
            p = 0.0
            c2 = 0.0
            for f in range(d):
                M[i, f] += (z[f] - M[i, f]) / t
                c = z[f] - M[i, f]
                p += V[i, f] * c
                c2 += c * c
            RHO2[i] += (c2 / d - RHO2[i]) / t
            S2[i] += (p * p - S2[i]) / (t + 1)
            s = math.sqrt(S2[i])
            h = delta * s * (t + 1.0) ** -q
            b = B[i]
            if h > 0.0:
                if not clipped:
                    histograms[
                        i, int(min(max(math.floor((p - b) / s * PER_SD) + BINS // 2, 0), BINS - 1))
                    ] += 1
                step = (t + 1.0) ** -r
                k = (b - p) * math.exp(-0.5 * ((b - p) / h) ** 2) / (ROOT_2PI * h * h * h)
                pull = 2.0 * C * math.copysign(max(abs(b) - alpha * s, 0.0), b)
                far = clamp * alpha * s
                B[i] = min(max(b - rate * (pull - s * s * s * k) * step, -far), far)
                g = rate * math.sqrt(d * RHO2[i]) * k * step
                if g != 0.0:
                    square = 0.0
                    for f in range(d):
                        V[i, f] -= g * (z[f] - M[i, f])
                        square += V[i, f] * V[i, f]
                    shrink = 1.0 / math.sqrt(square)
                    p = 0.0
                    for f in range(d):
                        V[i, f] *= shrink
                        p += V[i, f] * (z[f] - M[i, f])
            i = 2 * i + (2 if p >= B[i] else 1)
        T[i] += 1
        counts[i - m] += 1
        for f in range(d):
            M[i, f] += (z[f] - M[i, f]) / T[i]
            gap = z[f] - means[i - m, f]
            means[i - m, f] += gap / counts[i - m]
            squares[i - m, f] += gap * (z[f] - means[i - m, f])


def learn_pass(X: np.ndarray, scaling: Scaling, params: LearnParams, tree: Tree) -> Statistics:
    """Learn a pass over X (rows, d), in place, by the rule of `--step scaled`; what was counted."""
    p = params
    counted = Statistics.empty(tree.depth, X.shape[1])
    learn(
        X,
        scaling.center,
        scaling.scale,
        scaling.limit,
        (p.alpha, p.penalty, p.bandwidth, p.bandwidth_decay, p.learning_decay, p.rate, p.clamp),
        tree.directions,
        tree.pivots,
        tree.learned,
        tree.offsets,
        tree.mean_squares,
        tree.variances,
        counted.histograms,
        counted.counts,
        counted.means,
        counted.sums_of_squares,
    )
    return counted
