"""Speed and memory as ratios, each pair interleaved in one run, medians of at least five.

- fit (one pass, no recount) and assign against a bare pyarrow scan of the same file to float64
  matrices, Parquet and CSV, whole processes, start-up and all
- fit against MiniBatchKMeans(256).partial_fit fed the same batches
- fit of a column of vectors against fit of as many columns
- one thread against two
- learning alone against a plain loop of the same rule, compiled alike
- time per row and peak memory at 1, 4 and 16 million rows
- cold and warm start

The data are made in a temporary folder ($TMPDIR; up to 3 GB at a time at full scale).
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import common

JOBS = [sys.executable, "-m", "tests.benchmarks.jobs"]
# features -> rows: files of 0.3 to 0.6 GB as Parquet
ROWS = {5: 8_000_000, 20: 4_000_000, 100: 800_000, 784: 100_000}
PEER_ROWS = 1_000_000  # MiniBatchKMeans needs some 15 s for these
LEARN_ROWS = {5: 1_000_000, 20: 1_000_000, 100: 1_000_000, 784: 200_000}
VECTORS = 100_000
MILLIONS = (1, 4, 16)
ONE_PASS = ("--passes", "1", "--recount", "no", "--depth", "8", "-f", "-q", "--no-progress")
SAMPLE = common.ROOT / "sample_data" / "cities.parquet"


def environment() -> dict[str, str]:
    """Without the settings made for old OpenBLAS builds, which slow new ones; with modules kept compiled."""
    dropped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def job(*words: str | Path, **settings: str) -> common.Run:
    """One of `jobs.py`, with more settings in its environment."""
    return common.run([*JOBS, *words], env=environment() | settings)


def imdh(*words: str | Path) -> common.Run:
    """An imdh command."""
    return common.imdh(*words, env=environment())


def pair(ours: Callable[[], common.Run], theirs: Callable[[], common.Run], repeats: int) -> dict[str, float]:
    """Both in turn, after one of each that is not counted: median seconds, and of the ratios."""
    ours(), theirs()
    runs = [(ours(), theirs()) for _ in range(repeats)]
    return {
        "ours": median(a.seconds for a, _ in runs),
        "theirs": median(b.seconds for _, b in runs),
        "ratio": median(a.seconds / b.seconds for a, b in runs),
        "ours_peak_mb": median(a.peak_mb for a, _ in runs),
        "theirs_peak_mb": median(b.peak_mb for _, b in runs),
    }


class Bench:
    """The measurements; each yields (name, figures)."""

    def __init__(self, folder: Path, repeats: int, scale: float) -> None:
        self.folder = folder
        self.repeats = repeats
        self.scale = scale
        self.model = folder / "m.npz"

    def data(self, suffix: str, d: int, n_rows: int | None = None) -> Path:
        """A fresh file; the one before is removed, so that the disk need not hold all."""
        for old in self.folder.glob("data.*"):
            old.unlink()
        path = self.folder / f"data.{suffix}"
        job("make", path, str(int((n_rows or ROWS[d]) * self.scale)), str(d))
        return path

    def fit(self, path: Path, *words: str) -> Callable[[], common.Run]:
        """One pass over a file."""
        return partial(imdh, "fit", path, "-o", self.model, *ONE_PASS, *words)

    def assign(self, path: Path) -> Callable[[], common.Run]:
        """Labels of a file, as Parquet, by the model fitted last."""
        out = self.folder / "labels.parquet"
        return partial(imdh, "assign", self.model, path, "-o", out, "-f", "-q", "--no-progress")

    def against_scan(self) -> Iterator[tuple[str, dict[str, float]]]:
        """fit against the bare scan; at d = 20 also assign, Parquet to Parquet."""
        for suffix in ("parquet", "csv"):
            for d in ROWS:
                path = self.data(suffix, d)

                scan = partial(job, "scan", path)
                yield f"fit {suffix} d={d}", pair(self.fit(path), scan, self.repeats)
                if d == 20:
                    yield f"assign {suffix} d={d}", pair(self.assign(path), scan, self.repeats)

    def against_peer(self) -> Iterator[tuple[str, dict[str, float]]]:
        """fit against MiniBatchKMeans of 256 centres fed the same batches."""
        path = self.data("parquet", 20, PEER_ROWS)
        yield (
            "fit against MiniBatchKMeans d=20",
            pair(self.fit(path), partial(job, "minibatch", path), self.repeats),
        )

    def vectors(self) -> Iterator[tuple[str, dict[str, float]]]:
        """One column of 768 float32 in a list against as many columns of the same."""
        for old in self.folder.glob("data.*"):
            old.unlink()
        lists, columns = self.folder / "data.lists.parquet", self.folder / "data.columns.parquet"
        job("vectors", lists, columns, str(int(VECTORS * self.scale)), "768")
        yield "fit vectors d=768", pair(self.fit(lists), self.fit(columns), self.repeats)

    def threads(self) -> Iterator[tuple[str, dict[str, float]]]:
        """One thread against two, where learning and not reading takes the time."""
        for d in (20, 100):
            path = self.data("parquet", d)
            one, two = (self.fit(path, "--threads", n) for n in "12")
            yield f"two threads against one d={d}", pair(two, one, self.repeats)

    def kernel(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Learning alone, rows in memory: the plain loop, one thread and two in turn, in one process; by code
        for this processor and, where it can run it, by code for one with vectors of 32 bytes."""
        codes: dict[str, dict[str, str]] = {"": {}}
        if platform.machine() == "x86_64":
            codes[", haswell"] = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}
        for d, n_rows in LEARN_ROWS.items():
            rows = str(int(n_rows * self.scale))
            for code, settings in codes.items():
                done = job("learn", rows, str(d), str(self.repeats), **settings)
                yield f"learning alone d={d}{code}", json.loads(done.stdout)

    def memory(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Peak memory and time per row of fit at 1, 4 and 16 million rows of 20."""
        for millions in MILLIONS:
            n_rows = millions * 1_000_000
            path = self.data("parquet", 20, n_rows)
            runs = [self.fit(path)() for _ in range(self.repeats)]
            seconds = median(run.seconds for run in runs)
            yield (
                f"fit {millions} million rows",
                {
                    "ours": seconds,
                    "ours_peak_mb": median(run.peak_mb for run in runs),
                    "microseconds_per_row": 1e6 * seconds / (n_rows * self.scale),
                },
            )

    def start(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Commands that hardly compute; `cold` with an empty cache, so that kernels are compiled."""
        quick = {"--help": ["--help"], "--version": ["--version"]}
        for name, words in quick.items():
            runs = [imdh(*words) for _ in range(self.repeats + 1)][1:]
            yield f"imdh {name}", {"ours": median(run.seconds for run in runs)}
        words = ["fit", str(SAMPLE), "-c", "latitude,longitude", "-o", str(self.model), "-f", "-q"]
        imdh(*words)
        runs = [imdh(*words) for _ in range(self.repeats)]
        yield "fit of the sample data, warm", {"ours": median(run.seconds for run in runs)}
        runs = []
        for i in range(self.repeats):
            home = self.folder / f"home{i}"
            home.mkdir(exist_ok=True)
            # A cache beside the package, as in a checkout, would be found before one in the home.
            env = environment() | {"HOME": str(home), "NUMBA_CACHE_DIR": str(home)}
            runs.append(common.imdh(*words, env=env))
        yield "fit of the sample data, cold", {"ours": median(run.seconds for run in runs)}


SECTIONS: dict[str, Callable[[Bench], Iterator[tuple[str, dict[str, float]]]]] = {
    "scan": Bench.against_scan,
    "peer": Bench.against_peer,
    "vectors": Bench.vectors,
    "threads": Bench.threads,
    "kernel": Bench.kernel,
    "memory": Bench.memory,
    "start": Bench.start,
}


def text(result: Mapping[str, Any]) -> str:
    """The tables of RESULTS.md."""
    figures: Mapping[str, Mapping[str, float]] = result["figures"]
    pairs, alone, learning = [], [], []
    for name, found in figures.items():
        if "one_thread" in found:
            keys = ("plain_loop", "one_thread", "two_threads", "longest_stage")
            rates = [f"{found['rows'] / found[k] / 1e6:.2f}" if k in found else "" for k in keys]
            ratios = [f"{found[k]:.2f}" if k in found else "" for k in ("gain", "ratio")]
            learning.append([name, *rates, *ratios])
        elif "ratio" in found:
            other = {
                "two": "one thread",
                "fit against MiniBatchKMeans d=20": "MiniBatchKMeans",
                "fit vectors d=768": "768 columns",
            }
            beside = other.get(name, other.get(name.split()[0], "bare scan"))
            ratio = found["ratio"]
            faster = beside != "bare scan"
            pairs.append(
                [
                    name,
                    beside,
                    f"{found['ours']:.2f} s",
                    f"{found['theirs']:.2f} s",
                    f"{1 / ratio:.2f} x faster" if faster else f"{ratio:.2f} x the time",
                    f"{found['ours_peak_mb']:.0f} MB",
                ]
            )
        else:
            per_row = found.get("microseconds_per_row")
            peak = found.get("ours_peak_mb")
            alone.append(
                [
                    name,
                    f"{found['ours']:.2f} s",
                    f"{per_row:.3f} us" if per_row else "",
                    f"{peak:.0f} MB" if peak else "",
                ]
            )
    parts = [
        "Whole processes, start-up included; one pass, depth 8, float64. Medians of "
        f"{result['repeats']} interleaved pairs. Rows: "
        + ", ".join(f"{int(n * result['scale']):,} of {d}" for d, n in ROWS.items())
        + f"; beside MiniBatchKMeans {int(PEER_ROWS * result['scale']):,} of 20.",
        common.markdown_table(["what", "beside", "imdh", "the other", "ratio", "imdh's peak"], pairs),
        "Million rows a second:",
        common.markdown_table(
            ["what", "plain loop", "one thread", "two threads", "by the longest of 8 stages"]
            + ["one / plain", "two / one"],
            learning,
        ),
        common.markdown_table(["what", "time", "per row", "peak memory"], alone),
        common.provenance_line(result),
    ]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, save after every figure, print."""
    parser = common.parser(__doc__, "speed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows (quick: 0.05)")
    parser.add_argument("--only", default=",".join(SECTIONS), help="comma-separated sections")
    options = parser.parse_args(arguments)
    result = common.load(options.json)
    if not options.table:
        wanted = options.only.split(",")
        kept = result.get("figures", {}) if set(wanted) != set(SECTIONS) else {}
        result = {
            **common.provenance(),
            "repeats": options.repeats,
            "scale": options.scale,
            "figures": dict(kept),
        }
        with common.scratch_folder() as folder:
            bench = Bench(Path(folder), options.repeats, options.scale)
            for section in wanted:
                start = time.perf_counter()
                for name, figures in SECTIONS[section](bench):
                    result["figures"][name] = figures
                    common.save(result, options.json)
                    print(f"{name}: {figures}", flush=True)
                print(f"({section}: {time.perf_counter() - start:.0f} s)", flush=True)
    common.finish(options, "speed", text(result))


if __name__ == "__main__":
    main()
