"""Raw rows -> columns of numbers that are a notation of something else, whose distances are not its own.

A date as 20240131: a day and the next are 1 apart, or 70 at the end of a month and 8870 at that of a year. A
time as 1545 or 7.30: between 1559 and 1600 there is nothing. An angle as its sine and cosine: a circle, whose
rows crowd at both ends of each of the two. An amount beside its price and pieces: rows of one piece lie on a
plane, of two on the next. A price beside one with a fee, or an age beside the year of birth where people were
asked in a few years: rows lie on lines. Event times cut at the end of follow-up: rows lie on the diagonal.
Numbers given out in blocks, as by clinic: between the blocks there is none. Valleys that a notation makes are
as deep as any.

Designed on planted tables; in 1,863 columns of numbers of 55 public tables none was found, and none is there.
Sums, cut times and blocks were found in 14 of 147 other ones: ids, games won and lost, fares of three kinds,
columns that are one in a fifth of the rows or more; and in none of 7,600 drawn pairs and 4,800 drawn columns
of measurements in whole numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["day", "month", "year", "clock", "circle", "product", "sum", "cut", "blocks"]

MOST = 0.99  # of the cells of a column that have a number, or of the rows of two: those that are a notation
DISTINCT = 12  # dates, and minutes of times
HOURS, TIMES = 3, 60  # of times that are different; HHMMSS ends at
DAY = 240_000
PIECES = 100  # different numbers of pieces, at most
FACTORS = 24  # columns of which products are looked for, at most
ROUNDED = 0.006  # by how much an amount may be off: it is told in hundredths, or exactly
YEARS = 1900, 2100  # of dates, and
NUMBERED = 1990, 2035  # of longer numbers, hardly one of which begins with them by chance,
CONSECUTIVE = 0.75  # of the years from the first to the last
DIGITS = 4  # behind the year, at least. Those of a quantity would go on from one year to the next;
FILLED = 0.75  # numbers that begin anew each year fill less of the room between
TOLERANCE = 1e-2  # of x^2 + y^2
ANGLES = 5  # different values of either
PROBE, SLACK = 64, 3  # rows that most pairs of columns fail at, and how many more may be off by chance
VALUES, LINES = 25, 20  # different values of a column, at least, and of a sum of two, at most
APART = 3.0  # steps of the columns, between two lines that have a gap between them, and
BEYOND = 0.05  # of the rows, on either side of it
ROUNDING = 1e-9  # of the larger
EQUAL = 0.2, 0.95  # part of the rows in which two columns are equal, and
ONE_VALUE = 0.05  # of the rows: those of a value, as 0, are equal for another reason
STANDS_OUT = 5.0  # times the rows that are a step off
NEIGHBOURS = 20  # on either side, that tell how densely numbers lie
TIES = 20.0  # rows that come again, were numbers drawn by chance, at least, and
FEWER = 0.25  # the part of these that come again where they were given out
MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@dataclass(frozen=True)
class Notation:
    """Columns of the matrix that are one.

    kind : day (YYYYMMDD), month (YYYYMM), year (and four or more further digits), clock (HHMM, HHMMSS or
    H.MM), circle (of two columns), product (of three, the second times the third, which has few values), sum
    (of two or more, the first and each other of which have a sum or difference of few values), cut (likewise,
    equal in many rows), or blocks (whole numbers given out, with gaps).
    """

    kind: Kind
    columns: tuple[int, ...]


def notations(sample: np.ndarray, skip: np.ndarray) -> list[Notation]:
    """Those in rows (n, d) with NaN for a cell to be filled. skip : (d,) bool, columns not looked at."""
    some = np.count_nonzero(~np.isnan(sample), axis=0)
    large = np.count_nonzero(sample > 100 * YEARS[0], axis=0)
    within = np.count_nonzero((sample >= 0) & (sample < DAY), axis=0)
    found = []
    for j in np.flatnonzero(~skip & (some > 0) & (np.maximum(large, within) >= MOST * some)).tolist():
        x = sample[:, j]
        x = x[~np.isnan(x)]
        kind: Kind | None = "clock" if _are_times(x) else None
        if kind is None and large[j] >= MOST * some[j]:
            kind = _date(x)
        if kind is not None:
            found.append(Notation(kind, (j,)))
    found += [Notation("blocks", (j,)) for j in np.flatnonzero(~skip).tolist() if _in_blocks(sample[:, j])]
    found += [Notation("circle", pair) for pair in _circles(sample, skip)]
    products = [Notation("product", three) for three in _products(sample, skip)]
    amounts = np.isin(np.arange(len(skip)), [p.columns[0] for p in products])
    return found + products + _of_two(sample, skip | amounts)


def _date(x: np.ndarray) -> Kind | None:
    """What the numbers of a column are a notation of."""
    whole = x == np.floor(x)
    kinds: tuple[tuple[Kind, Callable[[np.ndarray], np.ndarray]], ...] = ("day", _days), ("month", _months)
    for kind, is_date in kinds:
        dates = x[whole & is_date(x)]
        if len(dates) >= MOST * len(x) and _several(dates, DISTINCT) and _several(dates // 100, 2):
            return kind
    room = 10.0 ** (np.floor(np.log10(np.median(x))) - 3)  # of what is behind the year
    years, rest = np.divmod(x, room)
    numbered = whole & (years >= NUMBERED[0]) & (years <= NUMBERED[1])
    if room < 10**DIGITS or np.count_nonzero(numbered) < MOST * len(x) or not _several(x, DISTINCT):
        return None
    different = np.unique(years[numbered])
    consecutive = len(different) >= CONSECUTIVE * (different[-1] - different[0] + 1)
    filled = np.quantile(rest[numbered], MOST) >= FILLED * room
    return "year" if len(different) >= 2 and consecutive and not filled else None


def _are_times(x: np.ndarray) -> bool:
    """Whether the numbers of a column (n,) are HHMM, HHMMSS or H.MM, most of them after one o'clock: small
    counts have hardly any digits of hours."""
    for minute in (1.0, 100.0, 0.01):  # what a minute counts for
        whole = np.rint(x / min(minute, 1.0))
        told = np.abs(whole * min(minute, 1.0) - x) < 1e-9
        hours, minutes = np.divmod(whole // max(minute, 1.0), 100)
        times = told & (hours >= 0) & (hours < 24) & (minutes < 60) & (whole % max(minute, 1.0) < 60)
        enough = _several(x, TIMES) and _several(hours, HOURS) and _several(minutes, DISTINCT)
        if enough and np.median(hours) >= 1 and np.count_nonzero(times) >= MOST * len(x):
            return True
    return False


def _days(x: np.ndarray) -> np.ndarray:
    """(n,) bool: YYYYMMDD of a day that there is."""
    months, day = np.divmod(x, 100)
    year, month = np.divmod(months, 100)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0)) & (month == 2)
    last = MONTH_DAYS[np.clip(month, 0, 12).astype(np.int64)] + leap
    return _months(months) & (day >= 1) & (day <= last)


def _months(x: np.ndarray) -> np.ndarray:
    """(n,) bool: YYYYMM."""
    year, month = np.divmod(x, 100)
    return (year >= YEARS[0]) & (year <= YEARS[1]) & (month >= 1) & (month <= 12)


def _several(x: np.ndarray, n: int) -> bool:
    return int(np.count_nonzero(np.diff(np.sort(x)))) >= n - 1


def _circles(sample: np.ndarray, skip: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of columns that are sine and cosine of an angle; a column is of one at most."""
    with np.errstate(over="ignore"):
        squares = sample**2
    inside = squares <= 1.0 + TOLERANCE
    some = np.count_nonzero(~np.isnan(sample), axis=0)
    may = ~skip & (np.count_nonzero(inside, axis=0) >= MOST * np.maximum(some, 1))
    may &= (sample < 0.0).any(axis=0) & (sample > 0.0).any(axis=0)
    columns = [j for j in np.flatnonzero(may).tolist() if _several(sample[inside[:, j], j], ANGLES)]
    found: list[tuple[int, int]] = []
    while columns:
        first, *columns = columns
        probe = _on_circle(squares[:PROBE, [first]], squares[:PROBE, columns], SLACK)
        for other in [j for j, may_be in zip(columns, probe, strict=True) if may_be]:
            if _on_circle(squares[:, [first]], squares[:, [other]])[0]:
                found.append((first, other))
                columns.remove(other)
                break
    return found


def _products(sample: np.ndarray, skip: np.ndarray) -> list[tuple[int, int, int]]:
    """Columns that are another one times one of few values, which are whole numbers: (column, other, few)."""
    columns = np.flatnonzero(~skip & ~np.isnan(sample).all(axis=0))[: FACTORS + 1]
    if not 3 <= len(columns) <= FACTORS:
        return []
    rows = sample[~np.isnan(sample[:, columns]).any(axis=1)]
    whole = [j for j in columns.tolist() if (rows[:, j] == np.rint(rows[:, j])).all()]
    few = [j for j in whole if 2 <= len(np.unique(rows[:, j])) <= PIECES]
    found: list[tuple[int, int, int]] = []
    for j, other in itertools.product(few, columns.tolist()):
        may = [c for c in columns.tolist() if c not in (j, other)]
        probe = np.count_nonzero(_off(rows[:PROBE], may, other, j), axis=0) <= SLACK
        for c in [c for c, may_be in zip(may, probe, strict=True) if may_be and _several(rows[:, c], PIECES)]:
            if np.count_nonzero(_off(rows, [c], other, j)) <= (1.0 - MOST) * len(rows):
                found.append((c, other, j))
    return found


def _of_two(sample: np.ndarray, skip: np.ndarray) -> list[Notation]:
    """Columns whose sum or difference has few values, or that are equal in many rows. The first of them
    aside, a column is of one notation."""
    probe = sample[np.linspace(0, len(sample) - 1, min(PROBE, len(sample))).astype(np.int64)]
    columns = [j for j in np.flatnonzero(~skip)[:FACTORS].tolist() if _several(probe[:, j], ANGLES)]
    kinds: tuple[tuple[Kind, Callable[..., np.ndarray], Callable[..., bool]], ...] = (
        ("sum", _may_be_on_lines, _on_lines),
        ("cut", _may_be_cut_short, _cut_short),
    )
    found = []
    for kind, may_be, is_kind in kinds:
        left = columns
        while left:
            first, *left = left
            may = np.array(left, dtype=np.int64)[may_be(probe[:, [first]], probe[:, left])]
            if of_it := [j for j in may.tolist() if is_kind(*_known(sample, first, j))]:
                found.append(Notation(kind, (first, *of_it)))
                columns, left = ([j for j in part if j not in of_it] for part in (columns, left))
    return found


def _known(sample: np.ndarray, one: int, other: int) -> np.ndarray:
    """The numbers of two columns in the rows that have both, (2, rows)."""
    pair = sample[:, [one, other]].T
    return pair[:, ~np.isnan(pair).any(axis=0)]


def _may_be_on_lines(x: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which columns of others (n, k) may have a sum or difference of few values with x (n, 1), (k,) bool."""
    rounding = ROUNDING * np.fmax.reduce(np.fmax(np.abs(x), np.abs(others)), axis=0)
    few = [
        np.count_nonzero(np.diff(np.sort(sums, axis=0), axis=0) > rounding, axis=0)
        for sums in (x + others, x - others)
    ]
    return np.minimum(*few) < LINES + SLACK


def _on_lines(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether the sum or the difference of two columns (n,) has few values, and a gap wider than theirs."""
    step = max(_step(x), _step(y))
    if np.isinf(step):
        return False
    rounding = ROUNDING * max(np.abs(x).max(), np.abs(y).max())
    for sums in (np.sort(x + y), np.sort(x - y)):
        begins = np.flatnonzero(np.diff(sums, prepend=-np.inf) > rounding)
        rows = np.diff(begins, append=len(sums))
        if np.sort(rows)[-LINES:].sum() < MOST * len(sums):
            continue
        beyond = np.minimum(begins, len(sums) - begins)[1:]
        if (np.diff(sums[begins])[beyond >= BEYOND * len(sums)] >= APART * step).any():
            return True
    return False


def _may_be_cut_short(x: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which columns of others (n, k) are equal to x (n, 1) in some rows, (k,) bool."""
    may: np.ndarray = np.count_nonzero(x == others, axis=0) > SLACK
    return may


def _cut_short(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two columns (n,) are equal in many rows, of many values, and hardly nearly so."""
    step = max(_step(x), _step(y))
    equal = x == y
    rows = np.unique(x[equal], return_counts=True)[1]
    several = rows[rows <= ONE_VALUE * len(x)].sum() if np.isfinite(step) else 0
    a_step_off = np.count_nonzero(~equal & (np.abs(x - y) <= step)) / 2
    some, most = (share * len(x) for share in EQUAL)
    return bool(several >= some and max(some, STANDS_OUT * a_step_off) <= equal.sum() <= most)


def _step(x: np.ndarray) -> float:
    """The usual gap between the different values of a column (n,), infinite where these are few."""
    gaps = np.diff(np.sort(x))
    gaps = gaps[gaps > 0.0]
    return float(np.median(gaps)) if len(gaps) >= VALUES - 1 else np.inf


def _in_blocks(x: np.ndarray) -> bool:
    """Whether the whole numbers of a column (n,) come again far less often than by chance, or all equally
    often, and have a gap."""
    if (x[:PROBE] % 1.0 > 0.0).any():
        return False
    x = np.sort(x[~np.isnan(x)])
    begins = np.flatnonzero(np.diff(x, prepend=-np.inf))
    rows = np.diff(begins, append=len(x))
    if len(rows) and np.count_nonzero(rows == max(np.median(rows), 2)) >= MOST * len(rows):
        x = x[begins]  # each comes equally often, as in a panel
    n, k = len(x), NEIGHBOURS
    if n <= 4 * k or (x % 1.0 > 0.0).any():
        return False
    spans = x[2 * k :] - x[: -2 * k]
    density = 2 * k / np.maximum(spans, 1.0)
    ties = len(spans) - np.sum(-np.expm1(-density) / density)
    gaps = np.diff(x)
    return bool(
        ties >= TIES
        and np.count_nonzero(gaps == 0.0) <= FEWER * ties
        and (gaps[2 * k : -2 * k] > np.maximum(spans[: -2 * k - 1], spans[2 * k + 1 :])).any()
    )


def _off(rows: np.ndarray, columns: list[int], one: int, other: int) -> np.ndarray:
    """Where columns (k) of rows (n, d) are not what two others are, multiplied, (n, k) bool."""
    amounts = (rows[:, one] * rows[:, other])[:, None]
    off: np.ndarray = np.abs(rows[:, columns] - amounts) > ROUNDED + 1e-9 * np.abs(amounts)
    return off


def _on_circle(x: np.ndarray, others: np.ndarray, slack: int = 0) -> np.ndarray:
    """Of each column of `others` (n, k), (k,) bool: most of its squares and those of x (n, 1) add up to 1."""
    sums = x + others
    known = np.count_nonzero(~np.isnan(sums), axis=0)
    off = np.count_nonzero(np.abs(sums - 1.0) > TOLERANCE, axis=0)
    return (known > 0) & (off <= (1.0 - MOST) * known + slack)
