"""Clusters against known classes in minutes: many sets and seeds in one process, paired with another run.

`python -m tests.benchmarks.accuracy --quick FOLDER [FOLDER ...]`. Sets of more than 20,000 rows, and of more
than 4 million cells, are measured on a fixed random sample. With `--against JSON`, the differences from that
run, seed by seed. Sets are in one of two halves by a seeded hash of their name: design on one, look at the
other only to accept or refuse (`--half A`, `--half B`).
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from imdh_cli.params import FitParams
from tests.benchmarks import common, in_process

MOST_ROWS = 20_000
MOST_CELLS = 4_000_000
MEASURES = (("auto", "nmi"), ("auto", "ari"), ("given", "nmi"), ("given", "ari"))


def half(name: str) -> str:
    """A or B, at random but always the same."""
    return "AB"[hashlib.sha256(f"halves 1 {name}".encode()).digest()[0] & 1]


def rows_of(path: Path, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) float64 and classes (n,), all rows or a fixed sample of them."""
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != target]
    most = min(MOST_ROWS, MOST_CELLS // len(names))
    if table.num_rows > most:
        table = table.take(np.sort(np.random.default_rng(0).choice(table.num_rows, most, replace=False)))
    X = np.column_stack([table.column(name).to_numpy() for name in names]).astype(np.float64)
    return X, np.unique(table.column(target).to_numpy(zero_copy_only=False), return_inverse=True)[1]


def measure(
    paths: Sequence[Path], target: str, seeds: int, scores: Any, params: FitParams | None = None
) -> dict[str, Any]:
    """Every set under every seed, the number of clusters chosen and given."""
    found: dict[str, Any] = {}
    for path in paths:
        X, truth = rows_of(path, target)
        k = int(truth.max()) + 1
        runs = []
        start = time.perf_counter()
        for seed in range(seeds):
            model = in_process.fit_rows(X, replace(params or FitParams(), seed=seed)).model
            runs.append(
                {
                    "seed": seed,
                    "auto": scores(truth, in_process.labels(model, X)),
                    "given": scores(truth, in_process.labels(in_process.with_clusters(model, k), X)),
                    "clarity": model.metadata["choice"]["clarity"],
                }
            )
        seconds = (time.perf_counter() - start) / seeds
        shape = {"rows": len(X), "features": X.shape[1], "classes": k, "half": half(path.stem)}
        found[path.stem] = {**shape, "seconds": seconds, "runs": runs}
    return found


def column(entry: Mapping[str, Any], mode: str, measure: str) -> list[float]:
    """One measure over the seeds."""
    return [run[mode][measure] for run in entry["runs"]]


def text(result: Mapping[str, Any], against: Mapping[str, Any]) -> str:
    """The table: each set, the means of the halves and of all, the spread between seeds, differences."""
    sets: Mapping[str, Mapping[str, Any]] = result["sets"]
    others: Mapping[str, Mapping[str, Any]] = against.get("sets", {})

    def line(title: str, names: Sequence[str]) -> list[str]:
        means = [fmean(fmean(column(sets[n], *m)) for n in names) for m in MEASURES]
        spread = [fmean(stdev(column(sets[n], mode, "nmi")) for n in names) for mode in ("auto", "given")]
        k = fmean(fmean(column(sets[n], "auto", "k")) for n in names)
        cells = [title, f"{means[0]:.1f}/{means[1]:.1f}", f"{k:.1f}", f"{means[2]:.1f}/{means[3]:.1f}"]
        cells += [f"{spread[0]:.1f}", f"{spread[1]:.1f}", f"{fmean(sets[n]['seconds'] for n in names):.2f}"]
        both = [n for n in names if n in others]
        if both:
            gains = []
            for m in MEASURES:
                pairs = [zip(column(sets[n], *m), column(others[n], *m), strict=False) for n in both]
                gains.append(fmean(fmean(a - b for a, b in pair) for pair in pairs))
            cells += [f"{gains[0]:+.1f}/{gains[1]:+.1f}", f"{gains[2]:+.1f}/{gains[3]:+.1f}"]
        return cells

    lines = [line(f"{n} ({sets[n]['half']})", [n]) for n in sets]
    for title, taken in (("half A", "A"), ("half B", "B"), ("all", "AB")):
        names = [n for n in sets if sets[n]["half"] in taken]
        if names:
            lines.append(line(title, names))
    header = ["set", "automatic", "K", "K given", "sd", "sd given", "s"]
    header += ["difference", "K given"] if others else []
    width = max(len(cells) for cells in lines)
    return common.markdown_table(header[:width], [cells + [""] * (width - len(cells)) for cells in lines])


def run(options: argparse.Namespace, files: Sequence[Path], target: str, scores: Any) -> None:
    """Measure, save, print."""
    if options.half:
        files = [path for path in files if half(path.stem) == options.half]
    result = common.load(options.json)
    if not options.table:
        start = time.perf_counter()
        result = {**common.provenance(), "sets": measure(files, target, options.seeds, scores)}
        result["seconds"] = time.perf_counter() - start
        common.save(result, options.json)
    print(text(result, common.load(options.against) if options.against else {}))
    print(f"\n{result['seconds']:.0f} s in all. {common.provenance_line(result)}")
