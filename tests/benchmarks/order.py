"""What the order of the rows costs: sorted files against the shuffled file.

Every Parquet file of a folder that has a `target` column is written shuffled, sorted by class, by
its first feature and by its first principal component, as Parquet of 50 row groups and as CSV, and
learned with a buffer of a twentieth of the rows. The loss is the NMI (arithmetic, x100) of the
shuffled file less that of the sorted one, means over seeds. A sorted stream on stdin should be
warned of, a shuffled one not. Command lines are run in this process: there are a thousand of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from imdh_cli.cli.main import cli
from tests.benchmarks import common
from tests.benchmarks.accuracy import TARGET, classes, read_labels, scores, sets_of

ORDERS = ("shuffled", "class", "first feature", "principal component")
FORMATS = ("parquet", "csv")
ROW_GROUPS = 50
BUFFER_PART = 20  # --buffer-rows is the rows divided by this
WARNING = "early and late rows differ"  # of the warning about sorted streams


def arrangements(table: pa.Table) -> dict[str, np.ndarray]:
    """Order -> (n,) int, the rows in that order. Ties stay as in the shuffled file."""
    shuffled = np.random.default_rng(0).permutation(table.num_rows)
    rows = np.column_stack(
        [table.column(name).to_numpy() for name in table.column_names if name != TARGET]
    ).astype(np.float64)[shuffled]
    spread = rows.std(axis=0)
    z = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    direction = np.linalg.eigh(z.T @ z)[1][:, -1]
    keys = {
        "class": classes(table)[shuffled],
        "first feature": rows[:, 0],
        "principal component": z @ direction,
    }
    return {"shuffled": shuffled} | {
        name: shuffled[np.argsort(key, kind="stable")] for name, key in keys.items()
    }


def write(table: pa.Table, path: Path) -> None:
    """Parquet of ROW_GROUPS row groups, or CSV."""
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=-(-table.num_rows // ROW_GROUPS))


def imdh(*words: str | Path) -> None:
    """A command line of imdh; its errors are raised."""
    cli.main([str(word) for word in words], prog_name="imdh", standalone_mode=False)


def measure_file(data: Path, truth: np.ndarray, seed: int, n_classes: int, folder: Path) -> dict[str, float]:
    """NMI with the automatic number of clusters and with the number of classes."""
    model, labels = folder / "m.npz", folder / "labels.parquet"
    buffer = str(max(1, truth.size // BUFFER_PART))
    words = ["--seed", str(seed), "--buffer-rows", buffer, "-f", "-q"]
    imdh("fit", data, "-x", TARGET, "-o", model, *words)
    imdh("assign", model, data, "-o", labels, "-f", "-q")
    automatic = scores(truth, read_labels(labels))["nmi"]
    imdh("assign", model, data, "-k", str(n_classes), "-o", labels, "-f", "-q")
    return {"auto": automatic, "given": scores(truth, read_labels(labels))["nmi"]}


def warned(data: Path, n_rows: int, folder: Path) -> bool:
    """Whether `imdh fit -` warns of the order of these rows."""
    buffer = str(max(1, n_rows // BUFFER_PART))
    words = ["-x", TARGET, "-o", str(folder / "m.npz"), "--buffer-rows", buffer, "-f"]
    found = common.run([*common.IMDH, "fit", "-", *words], stdin=data)
    return WARNING in found.stderr


def measure_set(data: Path, seeds: int, folder: Path) -> dict[str, Any]:
    """Order -> format -> {"auto", "given"}: NMI of each seed; and the warnings on streams."""
    table = pq.read_table(data)
    truth = classes(table)
    n_classes = int(truth.max()) + 1
    result: dict[str, Any] = {"rows": table.num_rows, "nmi": {}, "warned": {}}
    for order, taken in arrangements(table).items():
        rows = table.take(taken)
        result["nmi"][order] = {}
        for suffix in FORMATS:
            path = folder / f"rows.{suffix}"
            write(rows, path)
            runs = [measure_file(path, truth[taken], seed, n_classes, folder) for seed in range(seeds)]
            result["nmi"][order][suffix] = {mode: [run[mode] for run in runs] for mode in ("auto", "given")}
        result["warned"][order] = warned(folder / "rows.csv", table.num_rows, folder)
    return result


def losses(entry: Mapping[str, Any], mode: str) -> dict[tuple[str, str], float]:
    """(order, format) -> NMI lost against the shuffled file of that format."""
    nmi = entry["nmi"]
    return {
        (order, suffix): fmean(nmi["shuffled"][suffix][mode]) - fmean(nmi[order][suffix][mode])
        for order in ORDERS[1:]
        for suffix in FORMATS
    }


def text(result: Mapping[str, Any]) -> str:
    """The table of RESULTS.md."""
    sets: Mapping[str, Any] = result["sets"]
    some = next(iter(sets.values()))
    seeds = {name: len(entry["nmi"]["shuffled"]["parquet"]["auto"]) for name, entry in sets.items()}
    most = max(seeds.values())
    fewer = "".join(f", {name} {n}" for name, n in seeds.items() if n < most)
    keys = list(losses(some, "auto"))
    header = ["set", "shuffled", *(f"{order}, {suffix}" for order, suffix in keys)]
    lines = []
    for name, entry in sets.items():
        lost = {mode: losses(entry, mode) for mode in ("auto", "given")}
        base = [
            fmean(fmean(entry["nmi"]["shuffled"][suffix][mode]) for suffix in FORMATS)
            for mode in ("auto", "given")
        ]
        cells = [f"{lost['auto'][key]:+.1f} / {lost['given'][key]:+.1f}" for key in keys]
        lines.append([name, f"{base[0]:.1f} / {base[1]:.1f}", *cells])
    for title, total in (("mean", fmean), ("worst", max)):
        cells = [
            " / ".join(
                f"{total([losses(entry, mode)[key] for entry in sets.values()]):+.1f}"
                for mode in ("auto", "given")
            )
            for key in keys
        ]
        lines.append([title, "", *cells])
    told = sum(entry["warned"][order] for entry in sets.values() for order in ORDERS[1:])
    wrong = sum(entry["warned"]["shuffled"] for entry in sets.values())
    return "\n\n".join(
        [
            f"NMI of the shuffled file, and what the sorted ones lose (less is better; negative: a "
            f"gain), K automatic / given, means over {most} seeds{fewer}; `--buffer-rows` is a twentieth of "
            "the rows.",
            common.markdown_table(header, lines),
            f"As streams on stdin, {told} of {3 * len(sets)} sorted files were warned of, and "
            f"{wrong} of {len(sets)} shuffled ones.",
            common.provenance_line(result),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, save after every set, print."""
    parser = common.parser(__doc__, "order")
    parser.add_argument("data", type=Path, nargs="?", help="folder of Parquet files")
    parser.add_argument("--only", help="comma-separated names of sets")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    result = common.load(options.json)
    if not options.table:
        if options.data is None:
            parser.error("name the folder of the data")
        result = measure(options, result)
    common.finish(options, "order", text(result))


def measure(options: argparse.Namespace, result: dict[str, Any]) -> dict[str, Any]:
    """Every set of the folder, the smallest first."""
    files = sets_of(options.data, options.only)
    kept = result.get("sets", {}) if options.only else {}
    result = {**common.provenance(), "sets": dict(kept)}
    with common.scratch_folder() as folder:
        for path in files:
            start = time.perf_counter()
            result["sets"][path.stem] = measure_set(path, options.seeds, Path(folder))
            common.save(result, options.json)
            print(f"{path.stem}: {time.perf_counter() - start:.0f} s", flush=True)
    return result


if __name__ == "__main__":
    main()
