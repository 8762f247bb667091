"""The values of a column and the rows of each -> room around them in which single values are no humps.

Spread over half a step to either side, whole numbers have no gaps between them, but there are columns whose
values go up and down without saying anything of clusters:

    codes           of a few kinds of things, in an order that means nothing: a rare one between two frequent
                    ones is no valley. Up to SCALE values always count as such, as from so few none can tell;
                    up to MOST_CODES do where the rows of values are still rough when those that stand up are
                    taken away. They get so much room that the column has one hump.
    round numbers   ages told in tens, prices that end with 9: values at even distances that hold far more
                    rows than those around. They get so much room that the column has no more humps than
                    without what they hold too much.
    often met       a few values that have nearly all rows, with rare ones in between: hours 0, 6, 12 and 18
                    and now and then another, packs of 6, 12 and 24. The column is looked at as if it had only
                    these, and what is in between gets room as they do. Of 48 tables of twelve such kinds,
                    half of them with three blobs beside the column, 11 had the right number of clusters,
                    with this 47.

What humps a column has is seen in its histogram, of all rows and of parts of them, since a tree looks at ever
smaller parts. The first two rules were chosen on tables of codes without clusters, with classes that no
column tells alone, and of rounded ages, prices and incomes, 10,000 rows of 20 kinds: where there were 5 to 37
clusters in one column and up to 38 in 20 columns of codes there is one in nearly all. On forty-five sets with
known classes the scores stay within what seeds differ by, with the number of classes given a little above.
"""

from __future__ import annotations

import numpy as np

from imdh_cli.compiled import valleys
from imdh_cli.compiled.histogram import BINS, HALF
from imdh_cli.core.pruning.valleys import LAX

SCALE = 10  # values that ratings have at most
MOST_CODES = 64
WIDER = 1.4  # times the least room that leaves one hump: within clusters a column is another one
ROUGH = 0.12  # the part of rows by which those of values differ from the values around; planted humps with a
ROUGH_PAIR = 0.35  # sd of 0.7 steps and more have 0.26 at most, so that of two humps more is asked
SPIKES = 5  # values that stand up, the first and the last one apart
STANDS_UP = 2.0  # times the rows of the values around
NO_ACCIDENT = 4.0  # roots of a value's rows
EVEN, MOSTLY = 0.05, 0.8  # how near to multiples of the usual gap the others are, and how many of them
HALVINGS = 8
OFTEN, NEARLY_ALL = 0.01, 0.9  # the part of the rows that a value often met has, and all of these together
RARE = 0.2  # times the rows of the two around it that a value between them has at most
WINDOWS = [  # the parts of all rows in which a column is looked at
    (first / parts, (first + width) / parts)
    for parts, width in ((1, 1), (4, 2), (8, 2))
    for first in range(parts - width + 1)
]


def room_without_spikes(values: np.ndarray, counts: np.ndarray, room: np.ndarray, far: float) -> np.ndarray:
    """The room below and above each value, (u, 2), nowhere less than `room`.

    values, counts : (u,), in ascending order, and the rows of each. room : (u, 2), half way to neighbours.
    far : what no room is widened beyond.
    """
    if len(values) < 3:
        return room
    modes = humps(values, counts, room)
    if modes.max() == 1:
        return room
    smooth = np.minimum(counts, around(counts))
    most = min((values[-1] - values[0]) / 2, far)  # where all rooms meet in the middle
    if are_codes(smooth, int(modes.max())):
        least = np.ones_like(modes)
    elif (gaps := between_round_numbers(values, counts, smooth)) is not None:
        least = humps(values, smooth, room)
        most = min(most, float(np.median(gaps)))
    else:
        return room
    if (modes <= least).all():
        return room
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if (humps(values, counts, np.maximum(room, middle)) <= least).all():
            high = middle
        else:
            low = middle
    widened: np.ndarray = np.maximum(room, min(WIDER * high, most))
    return widened


def often_met(counts: np.ndarray) -> np.ndarray:
    """Which values of a column make it what it is, (u,) bool, by the rows of each in ascending order: all of
    them; or of more than SCALE a few that have nearly all rows, if rare ones lie in most gaps between these.
    Between two groups of rounded numbers there is one such gap, and none within them."""
    everyone = np.ones(len(counts), dtype=bool)
    often = counts >= OFTEN * counts.sum()
    at = np.flatnonzero(often)
    if len(counts) <= SCALE or not 2 <= len(at) <= MOST_CODES:
        return everyone
    if counts[at].sum() < NEARLY_ALL * counts.sum():
        return everyone
    between = at[0] + np.flatnonzero(~often[at[0] : at[-1]])
    above = np.searchsorted(at, between)
    rare = counts[between] <= RARE * np.minimum(counts[at[above - 1]], counts[at[above]])
    apart = len(np.unique(above)) > (len(at) - 1) / 2
    return often if apart and rare.all() else everyone


def are_places(X: np.ndarray, rows: np.ndarray) -> bool:
    """Whether some rows (k,) of X (n, d) are a few places in space, each of them many times: then one column
    tells nearly all of the others, and its values are no codes. Of up to SCALE columns and values."""
    d = X.shape[1]
    if not 1 < d <= SCALE:
        return False
    most = 0
    for column in X[rows].T:
        ordered = np.sort(column[~np.isnan(column)])
        values = min(len(ordered), 1) + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
        if values > SCALE:
            return False
        most = max(most, values)
    return len(np.unique(X[rows], axis=0)) <= 2 * most


def humps(values: np.ndarray, counts: np.ndarray, room: np.ndarray) -> np.ndarray:
    """How many humps that are no accident a column has in each of WINDOWS, (g,), when the rows of each value
    are spread evenly over its room; parameters as above."""
    left, right = values - room[:, 0] - values[0], values + room[:, 1] - values[0]
    height = counts / room.sum(axis=1)
    begun, left_of = (np.concatenate([[0.0], np.cumsum(v)]) for v in (height, height * left))
    ended, right_of = (np.concatenate([[0.0], np.cumsum(v)]) for v in (height, height * right))
    share = np.cumsum(counts) / counts.sum()
    last = len(values) - 1
    histograms = np.zeros((len(WINDOWS), BINS), dtype=np.int64)
    for k, (low, high) in enumerate(WINDOWS):
        i, j = np.minimum(np.searchsorted(share, [low, high]), last)
        edges = np.linspace(left[i], right[j], BINS - 1)
        a, b = np.searchsorted(left, edges), np.searchsorted(right, edges)
        below = edges * (begun[a] - ended[b]) - left_of[a] + right_of[b]
        histograms[k, 1:-1] = np.rint(np.maximum(np.diff(below), 0.0))
    return _modes(histograms, histograms.sum(axis=1), valleys.make_work())


def _modes(histograms: np.ndarray, rows: np.ndarray, work: valleys.Work) -> np.ndarray:
    """Modes of histograms (g, 128), valleys between them being no accident among so many rows, (g,)."""
    worth, place, depth = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64), np.empty(len(rows))
    valleys.best_places(histograms, rows, LAX, 0.0, HALF, work, worth, place, depth)
    modes = np.ones(len(rows), dtype=np.int64)
    more = np.flatnonzero(worth > 0.0)
    if len(more):
        left = np.arange(BINS) < place[more, None]
        parts = (np.where(side, histograms[more], 0) for side in (left, ~left))
        modes[more] = sum(_modes(part, rows[more], work) for part in parts)
    return modes


def around(counts: np.ndarray) -> np.ndarray:
    """Of each value the median of its rows and those of the two on either side, (u,)."""
    padded = np.pad(counts, 2, mode="reflect")
    median: np.ndarray = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    return median


def no_accident(counts: np.ndarray, smooth: np.ndarray) -> np.ndarray:
    """Which values have more rows (u,) than so many (u,) by more than chance, (u,) bool."""
    more: np.ndarray = counts - smooth > NO_ACCIDENT * np.sqrt(counts)
    return more


def half_way(values: np.ndarray, most: float = np.inf) -> np.ndarray:
    """The room below and above each value in ascending order, half way to its neighbours, (u, 2). No gap
    counts for more than `most`."""
    gaps = np.minimum(np.diff(values), most)
    return np.stack([np.append(gaps[0], gaps), np.append(gaps, gaps[-1])], axis=1) / 2


def are_codes(smooth: np.ndarray, modes: int) -> bool:
    """By the rows of values (u,), none more than around."""
    if len(smooth) <= SCALE:
        return True
    total = max(float(smooth.sum()), 1.0)
    rough = np.abs(smooth - around(smooth)).sum() / total
    by_accident = 2 * np.sqrt(smooth).sum() / total
    return len(smooth) <= MOST_CODES and rough > max(ROUGH if modes > 2 else ROUGH_PAIR, by_accident)


def between_round_numbers(values: np.ndarray, counts: np.ndarray, smooth: np.ndarray) -> np.ndarray | None:
    """The gaps between values that stand up, (s - 1,), if these are many and at even distances."""
    spikes = (counts > STANDS_UP * smooth) & no_accident(counts, smooth)
    if np.count_nonzero(spikes[1:-1]) < SPIKES:
        return None
    gaps = np.diff(values[spikes])
    times = gaps / np.median(gaps)
    return gaps if np.mean(np.abs(times - np.rint(times)) < EVEN) >= MOSTLY else None
