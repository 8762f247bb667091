"""The number of clusters, in data where it is known.

Null shapes (a uniform cube, a Gaussian, a uniform ball, a lognormal, columns of 0 and 1, of 1 to 5) hold
one cluster. Planted
Gaussians are well separated: two centres are at least 4 times the sum of the two standard deviations
apart. *Planted*: weights uniform between 1 and 20, standard deviations between 1 and 5, centres
Gaussian. *Packed*, which is harder: the weights 1 and 20 and the spreads 1 and 5 always occur, and
the centres lie in the smallest box that holds them. *In one column*: equal Gaussians, 9 standard
deviations apart in one column, the others noise. *Beside 0/1 columns*: three equal ones 9 apart in two
columns, the others coin flips. A grid of 10 x 10 equal clusters is the hardest.
20,000 rows each. Fits run in this process, by the package's functions, with the default parameters
and passes as named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from imdh_cli import features
from imdh_cli.params import FeatureParams, FitParams, SourceParams
from imdh_cli.pipeline.fit import fit as fit_rows
from imdh_cli.sources import open_source
from tests.benchmarks import common

N_ROWS = 20_000
DIMENSIONS = (2, 10, 50)
COUNTS = (3, 7, 20, 50)
MAX_WEIGHT = 20.0
MAX_SPREAD = 5.0
SEPARATION = 4.0
CENTRES = 20.0  # standard deviation of the planted centres in each column
# planted number -> how far off still counts as found, by dimension
TOLERANCE = {3: (0, 0, 0), 7: (0, 0, 0), 20: (3, 1, 1), 50: (0, 0, 0)}


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


NULLS: dict[str, Callable[..., np.ndarray]] = {
    "uniform cube": cube,
    "Gaussian": gaussian,
    "uniform ball": ball,
    "lognormal": lognormal,
    "0/1 columns": coin_flips,
    "columns of 1 to 5": ratings,
}


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


def grid(rng: np.random.Generator) -> np.ndarray:
    """(N_ROWS, 2) float64, 10 x 10 equal Gaussians, 8 standard deviations apart."""
    which = rng.integers(0, 10, (N_ROWS, 2))
    return 8.0 * which + rng.standard_normal((N_ROWS, 2))


# --- measuring


def select_features(rows: np.ndarray, seed: int, how: Mapping[str, Any], folder: Path) -> tuple[int, str]:
    """The number of clusters chosen for these rows, and how clear it is said to be."""
    path = folder / "rows.arrow"
    table = pa.table({f"x{j}": column for j, column in enumerate(rows.T.copy())})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    params = FitParams(seed=seed, **how)
    with closing(open_source([str(path)], SourceParams())) as source:
        found = fit_rows(source, features.select_features(source, FeatureParams()), params)
    return found.pruning.n_clusters, found.pruning.clarity


# How the null shapes are learned; the planted ones as `imdh fit` does by default: four passes, a recount.
WAYS: dict[str, dict[str, Any]] = {
    "one pass": {"passes": 1, "recount": "no"},
    "two passes": {"passes": 2, "recount": "yes"},
    "default": {},
}


def cases() -> Iterator[tuple[str, dict[str, Any], Callable[..., Any]]]:
    """(key, what it is, rng -> rows) of every cell of the table."""
    for way in WAYS:
        for name, draw in NULLS.items():
            for d in DIMENSIONS:
                about = {"kind": name, "d": d, "k": 1, "way": way}
                yield f"{name}, d {d}, {way}", about, partial(draw, d=d)
    for kind, plant in (("planted", planted), ("packed", packed)):
        for k in COUNTS:
            for d in DIMENSIONS:
                about = {"kind": kind, "d": d, "k": k, "way": "default"}
                yield f"{kind} {k}, d {d}", about, partial(plant, k=k, d=d)
    for k in (2, 3):
        for d in DIMENSIONS:
            about = {"kind": "in one column", "d": d, "k": k, "way": "default"}
            yield f"in one column {k}, d {d}", about, partial(in_one_column, k=k, d=d)
    for d in DIMENSIONS[1:]:
        about = {"kind": "beside 0/1 columns", "d": d, "k": 3, "way": "default"}
        yield f"beside codes, d {d}", about, partial(beside_codes, k=3, d=d)
    yield "grid", {"kind": "grid", "d": 2, "k": 100, "way": "default"}, grid


def measure(draws: int, only: str | None, result: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """The result so far, after every cell."""
    found = {**common.provenance(), "draws": draws, "cells": {}}
    if only:
        found["cells"] = dict(result.get("cells", {}))
    for key, about, draw in cases():
        if only and only not in key:
            continue
        start = time.perf_counter()
        chosen = []
        for seed in range(draws):
            rows = draw(np.random.default_rng([seed, about["d"], about["k"]]))
            chosen.append(select_features(rows, seed, WAYS[about["way"]], folder))
        found["cells"][key] = about | {
            "chosen": [k for k, _ in chosen],
            "clarity": [clarity for _, clarity in chosen],
        }
        print(f"{key}: {time.perf_counter() - start:.0f} s", flush=True)
        yield found


# --- the table


def title(cell: Mapping[str, Any]) -> str:
    """The first column of the table."""
    if cell["kind"] in NULLS:
        return f"{cell['kind']}, {cell['way']}"
    return "10 x 10 grid" if cell["kind"] == "grid" else f"{cell['k']} {cell['kind']}"


def tolerance(cell: Mapping[str, Any]) -> int:
    """How far from the planted number still counts as found."""
    by_dimension = TOLERANCE.get(cell["k"], (0,) * len(DIMENSIONS))
    return by_dimension[DIMENSIONS.index(cell["d"])]


def hits(cell: Mapping[str, Any]) -> str:
    """How often it was found, and where not always, the mean that was chosen."""
    chosen, planted = np.array(cell["chosen"]), cell["k"]
    within = tolerance(cell)
    share = 100 * np.mean(np.abs(chosen - planted) <= within)
    notes = [f"+-{within}"] * (within > 0) + [f"mean {chosen.mean():.1f}"] * bool(share < 100)
    return f"{share:.0f} %" + (f" ({', '.join(notes)})" if notes else "")


def clear_and_right(cells: Mapping[str, Mapping[str, Any]], kind: str) -> tuple[int, int]:
    """Of the fits said to be clear, how many there were and how many had the planted number."""
    pairs = [
        (chosen == cell["k"])
        for cell in cells.values()
        if cell["kind"] == kind
        for chosen, clarity in zip(cell["chosen"], cell["clarity"], strict=True)
        if clarity == "clear"
    ]
    return len(pairs), sum(pairs)


def text(result: Mapping[str, Any]) -> str:
    """The table of RESULTS.md."""
    cells: Mapping[str, Mapping[str, Any]] = result["cells"]
    rows: dict[str, dict[int, str]] = {}
    for cell in cells.values():
        rows.setdefault(title(cell), {})[cell["d"]] = hits(cell)
    lines = [[name, *(row.get(d, "") for d in DIMENSIONS)] for name, row in rows.items()]
    said = {kind: clear_and_right(cells, kind) for kind in ("planted", "packed")}
    shares = [
        f"{kind}: {n} fits, {100 * right / max(n, 1):.1f} % of them right"
        for kind, (n, right) in said.items()
    ]
    return "\n\n".join(
        [
            f"How often the number of clusters was found, {result['draws']} draws each of "
            f"{N_ROWS:,} rows. The first lines hold one cluster.",
            common.markdown_table(["data", *(f"d = {d}" for d in DIMENSIONS)], lines),
            f"Said to be clear, {'; '.join(shares)}.",
            common.provenance_line(result),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, save after every cell, print."""
    parser = common.parser(__doc__, "planted")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", help="only the cells whose name holds this")
    options = parser.parse_args(arguments)
    result = common.load(options.json)
    if not options.table:
        with common.scratch_folder() as folder:
            for step in measure(options.draws, options.only, result, Path(folder)):
                result = step
                common.save(result, options.json)
    common.finish(options, "planted", text(result))


if __name__ == "__main__":
    main()
