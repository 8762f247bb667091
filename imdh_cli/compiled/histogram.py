"""The geometry of every histogram of projections: 128 bins of 1/16 projected sd on [-4, 4] about the cut."""

from __future__ import annotations

import numpy as np

BINS = 128
PER_SD = 16.0  # bins
HALF = BINS // 2  # bins on either side of the cut
REACH = HALF / PER_SD  # projected sds from the cut to either end; what lies beyond is in the end bins
HALVED_GAUSSIAN = 1.0 - 2.0 / np.pi  # variance of a standard Gaussian about the mean of its half
LEAST_BANDWIDTH = 0.75  # bins, under which they would be seen as modes
EDGES = np.arange(BINS + 1) / PER_SD - REACH
CENTRES = (np.arange(BINS) + 0.5) / PER_SD - REACH
