"""The number of clusters, in data where it is known.

Null shapes (a uniform cube, a Gaussian, a uniform ball, a lognormal, columns of 0 and 1, of 1 to 5, heavy
tails) hold one cluster, and so do columns of *whole numbers*: uniform over 10 to 500 values, rounded normals,
counts and their logarithms, hours beside weekdays, each alone and beside one continuous column; and columns
*as they are recorded*: at four hours and seldom others, with defaults, cut at both ends of a scale, with a
flag of what another column says. *Piles* hold one value far more often than others: half zeros, values cut at
both ends. There the pile and the rest may be told apart, up to a straight cut on each side of it. Planted
Gaussians are well separated: two centres are at least 4 times the sum of the two standard deviations apart.
*Planted*: weights uniform between 1 and 20, standard deviations between 1 and 5, centres Gaussian; the same
rounded to whole numbers; four of them beside ten *sentinel cells* of -99999. *Packed*, which is harder: the
weights 1 and 20 and the spreads 1 and 5 always occur, and the centres lie in the smallest box that holds
them. *In one column*: equal Gaussians, 9 standard deviations apart in one column, the others noise. *Beside
0/1 columns*: three equal ones 9 apart in two columns, the others coin flips. A grid of 10 x 10 equal clusters
is the hardest.
20,000 rows each, but for a grid of 100,000. Fits run in this process, by the package's functions, with the
default parameters and passes as named.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from imdh_cli.params import FitParams
from tests.benchmarks import common, in_process
from tests.benchmarks.quick import half

N_ROWS = 20_000
DIMENSIONS = (2, 10, 50)
WHOLE_DIMENSIONS = (1, 2, 3, 10)
COUNTS = (3, 7, 20, 50)
MAX_WEIGHT = 20.0
MAX_SPREAD = 5.0
SEPARATION = 4.0
CENTRES = 20.0  # standard deviation of the planted centres in each column
TOLERANCE = {20: 1, 50: 1, 100: 3}  # planted number -> how far off still counts as found
SPARSE = -99999.0  # what stands for a missing value in too many tables


# --- data


def cube(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, uniform on a cube."""
    return rng.random((N_ROWS, d))


def gaussian(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, one spherical Gaussian."""
    return rng.standard_normal((N_ROWS, d))


def ball(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, uniform on a ball."""
    rows = rng.standard_normal((N_ROWS, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * rng.random((N_ROWS, 1)) ** (1 / d)


def lognormal(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, independent lognormal columns."""
    return np.exp(rng.standard_normal((N_ROWS, d)))


def coin_flips(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, independent columns of 0 and 1, each with a chance of its own."""
    return (rng.random((N_ROWS, d)) < rng.uniform(0.1, 0.9, d)).astype(float)


def ratings(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, independent columns of whole numbers from 1 to 5."""
    return np.clip(np.round(3 + rng.standard_normal((N_ROWS, d))), 1, 5)


def student(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, independent Student t of 2 degrees of freedom: its variance is infinite."""
    return rng.standard_t(2, (N_ROWS, d))


def wide_lognormal(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, independent lognormal columns of sd 2."""
    return np.exp(2 * rng.standard_normal((N_ROWS, d)))


def counts(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, Poisson counts, each column of a mean of its own between 1 and 30."""
    return rng.poisson(np.exp(rng.uniform(0, np.log(30), d)), (N_ROWS, d)).astype(float)


def times_of_week(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, hours of the day and days of the week in turn."""
    return np.column_stack([rng.integers(0, (24, 7)[j % 2], N_ROWS) for j in range(d)]).astype(float)


NULLS: dict[str, Callable[..., np.ndarray]] = {
    "uniform cube": cube,
    "Gaussian": gaussian,
    "uniform ball": ball,
    "lognormal": lognormal,
    "0/1 columns": coin_flips,
    "columns of 1 to 5": ratings,
    "Student t": student,
    "wide lognormal": wide_lognormal,
}

WHOLE: dict[str, Callable[..., np.ndarray]] = {
    **{
        f"whole numbers, {values} values": lambda rng, d, values=values: rng.integers(
            0, values, (N_ROWS, d)
        ).astype(float)
        for values in (10, 24, 72, 150, 500)
    },
    **{
        f"rounded normal, sd {sd}": lambda rng, d, sd=sd: np.rint(sd * rng.standard_normal((N_ROWS, d)))
        for sd in (1, 4, 20)
    },
    "Poisson": counts,
    "log1p of Poisson": lambda rng, d: np.log1p(counts(rng, d)),
    "hour x weekday": times_of_week,
}


def half_zeros(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, normal, but half of the first column is exactly 0."""
    rows = rng.standard_normal((N_ROWS, d))
    rows[rng.random(N_ROWS) < 0.5, 0] = 0.0
    return rows


def cut_tails(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, normal, the first column cut at -1 and 1: a sixth of the rows at either end."""
    rows = rng.standard_normal((N_ROWS, d))
    rows[:, 0] = np.clip(rows[:, 0], -1.0, 1.0)
    return rows


def mostly(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, hours 0, 6, 12 and 18, and one row in 40 any hour."""
    rows = rng.choice([0.0, 6.0, 12.0, 18.0], (N_ROWS, d))
    return np.where(rng.random((N_ROWS, d)) < 0.025, rng.integers(0, 24, (N_ROWS, d)), rows)


def defaults(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, normal, but a third of each column one of two values."""
    rows, u = rng.standard_normal((N_ROWS, d)), rng.random((N_ROWS, d))
    return np.select([u < 0.15, u < 0.35], [-0.6, 1.0], rows)


def scales(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, whole numbers from 0 to 100, what lies beyond at the ends."""
    return np.clip(np.rint(rng.normal(50, 42, (N_ROWS, d))), 0, 100)


def hours_and_nights(rng: np.random.Generator, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, hours of the day, and in turn whether the one before is of the night."""
    rows = rng.integers(0, 24, (N_ROWS, d)).astype(float)
    before = rows[:, 0 : d - 1 : 2]
    rows[:, 1::2] = (before >= 22) | (before < 6)
    return rows


RECORDED: dict[str, Callable[..., np.ndarray]] = {
    "hours told four times a day": mostly,
    "two defaults": defaults,
    "scales of 0 to 100": scales,
    "hours and nights": hours_and_nights,
}
PILES: dict[str, Callable[..., np.ndarray]] = {"half zeros": half_zeros, "cut tails": cut_tails}


def spread_out(rng: np.random.Generator, low: float, high: float, k: int) -> np.ndarray:
    """(k,) float64, log-uniform on [low, high], the least and the largest always among them."""
    drawn = np.exp(rng.uniform(np.log(low), np.log(high), k))
    drawn[:2] = low, high
    return rng.permutation(drawn)


def separated(draw: Callable[[float], np.ndarray], size: float, spreads: np.ndarray) -> np.ndarray:
    """(k, d) float64: points of `draw(size)`, all well separated; the size grows until they are."""
    placed: list[np.ndarray] = []
    tries = 0
    while len(placed) < len(spreads):
        point = draw(size)
        spread = spreads[len(placed)]
        if all(
            np.linalg.norm(point - other) >= SEPARATION * (spread + s)
            for other, s in zip(placed, spreads, strict=False)
        ):
            placed.append(point)
        tries += 1
        if tries % 100 == 0:
            size *= 1.05
    return np.array(placed)


def mixture(
    rng: np.random.Generator, centres: np.ndarray, weights: np.ndarray, spreads: np.ndarray
) -> np.ndarray:
    """(N_ROWS, d) float64, spherical Gaussians with these weights and standard deviations."""
    which = rng.choice(len(weights), N_ROWS, p=weights / weights.sum())
    noise = rng.standard_normal((N_ROWS, centres.shape[1]))
    return centres[which] + spreads[which, None] * noise


def planted(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, k Gaussians of different weights and spreads, far from each other."""
    weights, spreads = rng.uniform(1, MAX_WEIGHT, k), rng.uniform(1, MAX_SPREAD, k)
    centres = separated(lambda size: rng.normal(0, size, d), CENTRES, spreads)
    return mixture(rng, centres, weights, spreads)


def packed(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, k Gaussians of very different weights and spreads, close together."""
    weights, spreads = spread_out(rng, 1, MAX_WEIGHT, k), spread_out(rng, 1, MAX_SPREAD, k)
    side = 2 * SEPARATION * spreads.mean() * k ** (1 / d) / np.sqrt(d)
    centres = separated(lambda size: rng.uniform(0, size, d), side, spreads)
    return mixture(rng, centres, weights, spreads)


def in_one_column(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, k equal Gaussians in a row along the first column."""
    rows = rng.standard_normal((N_ROWS, d))
    rows[:, 0] += 9.0 * rng.integers(0, k, N_ROWS)
    return rows


def beside_codes(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, k equal Gaussians on a circle in two columns, and d - 2 columns of 0 and 1."""
    angles = 2 * np.pi * rng.integers(0, k, N_ROWS) / k
    rows = 4.5 / np.sin(np.pi / k) * np.column_stack([np.cos(angles), np.sin(angles)])
    return np.hstack([rows + rng.standard_normal((N_ROWS, 2)), coin_flips(rng, d - 2)])


def grid(rng: np.random.Generator, rows: int) -> np.ndarray:
    """(rows, 2) float64, 10 x 10 equal Gaussians, 8 standard deviations apart."""
    which = rng.integers(0, 10, (rows, 2))
    return 8.0 * which + rng.standard_normal((rows, 2))


def rounded(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, planted clusters in whole numbers: steps of a fifth to all of their sd."""
    return np.rint(planted(rng, k, d))


def distinct_points(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, k points, each of them many times."""
    return rng.standard_normal((k, d))[rng.integers(0, k, N_ROWS)]


def sentinel_cells(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    """(N_ROWS, d) float64, planted clusters, and ten cells of the first column are not numbers but a code."""
    rows = planted(rng, k, d)
    rows[rng.choice(N_ROWS, 10, replace=False), 0] = SPARSE
    return rows


# --- measuring


# How the null shapes are learned; the planted ones as `imdh fit` does by default: four passes, a recount.
WAYS: dict[str, dict[str, Any]] = {
    "one pass": {"passes": 1, "recount": "no"},
    "two passes": {"passes": 2, "recount": "yes"},
    "default": {},
}


def cases() -> Iterator[tuple[str, dict[str, Any], Callable[..., Any]]]:
    """(key, what it is, rng -> rows) of every cell of the table."""

    def about(kind: str, d: int, k: int, way: str = "default", **more: Any) -> dict[str, Any]:
        return {"kind": kind, "d": d, "k": k, "way": way, **more}

    for way in WAYS:
        for name, draw in NULLS.items():
            for d in DIMENSIONS:
                yield f"{name}, d {d}, {way}", about(name, d, 1, way), partial(draw, d=d)
    for name, draw in (WHOLE | RECORDED).items():
        for d in WHOLE_DIMENSIONS:
            yield f"{name}, d {d}", about(name, d, 1, beside=0), partial(draw, d=d)
            beside = partial(beside_continuous, draw=draw, d=d)
            yield f"{name} beside one, d {d}", about(name, d, 1, beside=1), beside
    for name, draw in PILES.items():
        for d in WHOLE_DIMENSIONS:
            yield f"{name}, d {d}", about(name, d, 1, most=3), partial(draw, d=d)
    for kind, plant in (("planted", planted), ("packed", packed)):
        for k in COUNTS:
            for d in DIMENSIONS:
                yield f"{kind} {k}, d {d}", about(kind, d, k), partial(plant, k=k, d=d)
    for d in DIMENSIONS:
        yield f"rounded planted 7, d {d}", about("rounded planted", d, 7), partial(rounded, k=7, d=d)
        yield f"distinct points 5, d {d}", about("distinct points", d, 5), partial(distinct_points, k=5, d=d)
        yield f"sentinel cells 4, d {d}", about("sentinel cells", d, 4), partial(sentinel_cells, k=4, d=d)
    for k in (2, 3):
        for d in DIMENSIONS:
            yield f"in one column {k}, d {d}", about("in one column", d, k), partial(in_one_column, k=k, d=d)
    for d in DIMENSIONS[1:]:
        yield f"beside codes, d {d}", about("beside 0/1 columns", d, 3), partial(beside_codes, k=3, d=d)
    for rows in (N_ROWS, 100_000):
        yield f"grid of {rows}", about("grid", 2, 100, rows=rows), partial(grid, rows=rows)


def beside_continuous(rng: np.random.Generator, draw: Callable[..., np.ndarray], d: int) -> np.ndarray:
    """(N_ROWS, d + 1) float64, d columns as drawn and a normal one."""
    return np.column_stack([draw(rng, d), rng.standard_normal(N_ROWS)])


def measure(options: argparse.Namespace, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The result so far, after each draw of all cells: whatever was drawn by then is a whole table."""
    found = {**common.provenance(), "draws": 0, "cells": {}}
    if options.only or options.half:
        found["cells"] = dict(result.get("cells", {}))
    wanted = {}
    for key, about, draw in cases():
        if (options.only and options.only not in key) or options.half not in (None, half(about["kind"])):
            continue
        if options.quick and about["way"] != "default":
            continue
        wanted[key] = draw
        found["cells"][key] = {**about, "chosen": [], "clarity": []}
    start = time.process_time()
    for seed in range(options.draws):
        for key, draw in wanted.items():
            cell = found["cells"][key]
            rows = draw(np.random.default_rng([seed, cell["d"], cell["k"]]))
            chosen = in_process.fit_rows(rows, FitParams(seed=seed, **WAYS[cell["way"]])).pruning
            cell["chosen"].append(chosen.n_clusters)
            cell["clarity"].append(chosen.clarity)
        found["draws"] = seed + 1
        print(f"{seed + 1} draws, {time.process_time() - start:.0f} processor seconds", flush=True)
        yield found


# --- the table


def title(cell: Mapping[str, Any]) -> str:
    """The first column of the table."""
    if cell["kind"] in NULLS:
        return f"{cell['kind']}, {cell['way']}"
    if cell["kind"] == "grid":
        return f"10 x 10 grid of {cell.get('rows', N_ROWS):,}"
    if cell["k"] == 1:
        return cell["kind"] + " beside a continuous one" * cell.get("beside", 0)
    return f"{cell['k']} {cell['kind']}"


def right(cell: Mapping[str, Any]) -> np.ndarray:
    """Of each draw, (draws,) bool, whether the planted number was found, within what counts as found."""
    chosen, within = np.array(cell["chosen"]), TOLERANCE.get(cell["k"], 0)
    found: np.ndarray = (chosen >= cell["k"] - within) & (chosen <= cell.get("most", cell["k"] + within))
    return found


def hits(cell: Mapping[str, Any]) -> str:
    """How often it was found, and where not always, the mean that was chosen."""
    share, mean = 100 * np.mean(right(cell)), np.mean(cell["chosen"])
    within = TOLERANCE.get(cell["k"], 0)
    notes = [f"+-{within}"] * (within > 0) + [f"mean {mean:.1f}"] * bool(share < 100)
    return f"{share:.0f} %" + (f" ({', '.join(notes)})" if notes else "")


def clear_and_right(cells: Mapping[str, Mapping[str, Any]], kind: str | None = None) -> tuple[int, int]:
    """Of the fits said to be clear, how many there were and how many had the planted number."""
    said = [
        bool(is_right)
        for cell in cells.values()
        if kind in (None, cell["kind"])
        for is_right, clarity in zip(right(cell), cell["clarity"], strict=True)
        if clarity == "clear"
    ]
    return len(said), sum(said)


def text(result: Mapping[str, Any]) -> str:
    """The table of RESULTS.md."""
    cells: Mapping[str, Mapping[str, Any]] = result["cells"]
    rows: dict[str, dict[int, str]] = {}
    for cell in cells.values():
        rows.setdefault(title(cell), {})[cell["d"]] = hits(cell)
    dimensions = sorted({cell["d"] for cell in cells.values()})
    lines = [[name, *(row.get(d, "") for d in dimensions)] for name, row in rows.items()]
    said = {"planted": "planted", "packed": "packed", "all lines": None}
    shares = [
        f"{name}: {n} fits, {100 * good / max(n, 1):.1f} % of them right"
        for name, (n, good) in ((name, clear_and_right(cells, kind)) for name, kind in said.items())
    ]
    return "\n\n".join(
        [
            f"How often the number of clusters was found, {result['draws']} draws each of "
            f"{N_ROWS:,} rows. The first lines hold one cluster.",
            common.markdown_table(["data", *(f"d = {d}" for d in dimensions)], lines),
            f"Said to be clear, {'; '.join(shares)}.",
            common.provenance_line(result),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, save after every draw, print."""
    parser = common.parser(__doc__, "planted")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", help="only the cells whose name holds this")
    parser.add_argument("--half", choices=["A", "B"], help="only this half of the kinds")
    parser.add_argument("--quick", action="store_true", help="only fits with the default passes")
    options = parser.parse_args(arguments)
    result = common.load(options.json)
    if not options.table:
        for step in measure(options, result):
            result = step
            common.save(result, options.json)
    common.finish(options, "planted", text(result))


if __name__ == "__main__":
    main()
