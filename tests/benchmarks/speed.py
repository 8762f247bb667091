"""Speed and memory as ratios, each pair interleaved in one run, medians of at least five.

- fit (one pass, no recount) and assign against a bare pyarrow scan of the same file to float64
  matrices, Parquet and CSV, whole processes, start-up and all; at d = 20 by code for haswell, too
- fit of a sample of 16 million rows against the scan, in 61 row groups and in 1,000
- fit and assign against the k-means of scikit-learn and faiss, BIRCH and river, and what each finds
- the processor time of each step of a fit, and what eight processors would make of it
- fit of a column of vectors against fit of as many columns
- one thread against two
- learning alone against a plain loop of the same rule, compiled alike
- time per row and peak memory at 1, 4 and 16 million rows
- cold and warm start

The data are made in a temporary folder ($TMPDIR; up to 3 GB at a time at full scale). What a command does not
measure stays as it was: `--only csv,memory,wide --repeats 3` should take a quarter of an hour on idle cores.
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
PEER_ROWS = 1_000_000
PEERS = ("minibatch-20", "minibatch-256", "kmeans-20", "bisecting-20", "faiss-20", "birch-20", "river-20")
LEARN_ROWS = {5: 1_000_000, 20: 1_000_000, 100: 1_000_000, 784: 200_000}
VECTORS = 100_000
WIDE, WIDE_ROWS = 3072, 25_000
SAMPLED, OF_ROWS, GROUPS = 1_000_000, 16_000_000, 1000
CODES = {"haswell": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}}  # vectors of 32 bytes
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


def imdh(*words: str | Path, **settings: str) -> common.Run:
    """An imdh command, with more settings in its environment."""
    return common.imdh(*words, env=environment() | settings)


def codes() -> dict[str, dict[str, str]]:
    """Code for this processor and, where it can run it, for one with vectors of 32 bytes: what is added to
    the name of a measurement, and settings."""
    return {"": {}} | ({", haswell": CODES["haswell"]} if platform.machine() == "x86_64" else {})


def pair(ours: Callable[[], common.Run], theirs: Callable[[], common.Run], repeats: int) -> dict[str, float]:
    """Both in turn, after one of each that is not counted: median seconds, and of the ratios."""
    ours(), theirs()
    runs = [(ours(), theirs()) for _ in range(repeats)]
    return {
        "ours": median(a.seconds for a, _ in runs),
        "theirs": median(b.seconds for _, b in runs),
        "ratio": median(a.seconds / b.seconds for a, b in runs),
        "ratio_cpu": median(a.cpu_seconds / b.cpu_seconds for a, b in runs),
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

    def data(self, suffix: str, d: int, n_rows: int | None = None, groups: int | None = None) -> Path:
        """A fresh file; the one before is removed, so that the disk need not hold all."""
        for old in self.folder.glob("data.*"):
            old.unlink()
        path = self.folder / f"data.{suffix}"
        rows = int((n_rows or ROWS[d]) * self.scale)
        grouped = ["-", str(max(1, rows // groups))] if groups is not None else []
        job("make", path, str(rows), str(d), *grouped)
        return path

    def fit(self, path: Path, *words: str, **settings: str) -> Callable[[], common.Run]:
        """One pass over a file."""
        return partial(imdh, "fit", path, "-o", self.model, *ONE_PASS, *words, **settings)

    def assign(self, path: Path, labels: str = "labels", **settings: str) -> Callable[[], common.Run]:
        """Labels of a file, as Parquet, by the model fitted last."""
        out = self.folder / f"{labels}.parquet"
        return partial(imdh, "assign", self.model, path, "-o", out, "-f", "-q", "--no-progress", **settings)

    def parquet(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Parquet against the bare scan."""
        return self._against_scan("parquet")

    def csv(self) -> Iterator[tuple[str, dict[str, float]]]:
        """CSV against the bare scan."""
        return self._against_scan("csv")

    def _against_scan(self, suffix: str) -> Iterator[tuple[str, dict[str, float]]]:
        """fit; at d = 20 by all codes, and assign, to Parquet."""
        for d in ROWS:
            path = self.data(suffix, d)
            scan = partial(job, "scan", path)
            for code, settings in codes().items() if d == 20 else [("", {})]:
                yield f"fit {suffix} d={d}{code}", pair(self.fit(path, **settings), scan, self.repeats)
                if d == 20:
                    ours = self.assign(path, **settings)
                    yield f"assign {suffix} d={d}{code}", pair(ours, scan, self.repeats)

    def sample(self) -> Iterator[tuple[str, dict[str, float]]]:
        """A sample of many rows, one pass over it, against the bare scan of all; and whether it finds the
        clusters that a fit of all finds."""
        size = str(int(SAMPLED * self.scale))
        for groups in (None, GROUPS):
            path = self.data("parquet", 20, OF_ROWS, groups)
            self.fit(path)()
            self.assign(path, "all")()
            ours = self.fit(path, "--sample", size)
            found = pair(ours, partial(job, "scan", path), self.repeats)
            self.assign(path)()
            labels = [self.folder / f"{name}.parquet" for name in ("all", "labels")]
            found |= json.loads(job("ari", *labels).stdout)
            of = f"{OF_ROWS // 1_000_000} million rows"
            yield f"fit --sample {size} of {of}{f', {groups:,} row groups' if groups else ''}", found

    def wide(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Very many columns against the bare scan."""
        path = self.data("parquet", WIDE, WIDE_ROWS)
        for code, settings in codes().items():
            ours = self.fit(path, **settings)
            yield f"fit parquet d={WIDE}{code}", pair(ours, partial(job, "scan", path), self.repeats)

    def against_peers(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Whole processes over one file, in turn: learn, label all rows, write the labels."""
        for old in self.folder.glob("data.*"):
            old.unlink()
        path, classes = self.folder / "data.parquet", self.folder / "classes.npy"
        job("make", path, str(int(PEER_ROWS * self.scale)), "20", classes)
        labels, theirs = self.folder / "labels.parquet", self.folder / "labels.npy"
        quiet = ("-f", "-q", "--no-progress")

        def ours(*words: str, **settings: str) -> list[common.Run]:
            fit = imdh("fit", path, "-o", self.model, *quiet, *words, **settings)
            return [fit, imdh("assign", self.model, path, "-o", labels, *quiet, **settings)]

        one_pass = ("--passes", "1", "--recount", "no")
        ways: dict[str, Callable[[], list[common.Run]]] = {
            **{f"imdh{code}": partial(ours, **settings) for code, settings in codes().items()},
            **{
                f"imdh, one pass{code}": partial(ours, *one_pass, **settings)
                for code, settings in codes().items()
            },
            **{name: partial(self._peer, name, path, theirs) for name in PEERS},
        }
        for settings in codes().values():
            ours(*one_pass, **settings)  # compiled
        found: dict[str, list[list[common.Run]]] = {name: [] for name in ways}
        scores: dict[str, dict[str, float]] = {}
        for _ in range(self.repeats):
            for name, way in ways.items():
                if found[name] and not found[name][-1]:
                    continue  # it did not finish
                found[name].append(way())
                if name not in scores and found[name][-1]:
                    made = labels if name.startswith("imdh") else theirs
                    scores[name] = json.loads(job("nmi", made, classes).stdout)
        for name, runs in found.items():
            done = [run for run in runs if run]
            figures = {"peer": 1.0, "finished": float(bool(done)), **scores.get(name, {})}
            if done:
                figures["seconds"] = median(sum(part.seconds for part in run) for run in done)
                figures["cpu_seconds"] = median(sum(part.cpu_seconds for part in run) for run in done)
                figures["peak_mb"] = median(max(part.peak_mb for part in run) for run in done)
            yield f"peer {name}", figures

    def _peer(self, name: str, path: Path, labels: Path) -> list[common.Run]:
        """Nothing where it takes too long."""
        try:
            return [job("peer", name, path, labels)]
        except RuntimeError as error:
            if "not within the time" in str(error):
                return []
            raise

    def steps(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Processor seconds of each step of one pass over a Parquet file."""
        for d in ROWS:
            path = self.data("parquet", d)
            runs = [json.loads(job("stages", path, **settings).stdout) for settings in [CODES["haswell"]] * 3]
            yield f"steps d={d}", min(runs, key=lambda run: float(run["paced_8"]))

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
        """Learning alone, rows in memory: the plain loop, one thread and two in turn, in one process."""
        for d, n_rows in LEARN_ROWS.items():
            rows = str(int(n_rows * self.scale))
            for code, settings in codes().items():
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
    "parquet": Bench.parquet,
    "csv": Bench.csv,
    "wide": Bench.wide,
    "sample": Bench.sample,
    "peers": Bench.against_peers,
    "steps": Bench.steps,
    "vectors": Bench.vectors,
    "threads": Bench.threads,
    "kernel": Bench.kernel,
    "memory": Bench.memory,
    "start": Bench.start,
}


def with_figures(known: Mapping[str, Any], name: str, found: Any) -> dict[str, Any]:
    """All figures, new ones in the place of old ones of the same name, or of that name "before"."""
    names = [name if old == f"{name}, before" else old for old in known]
    kept = dict(zip(names, known.values(), strict=True))
    return kept | {name: found}


def text(result: Mapping[str, Any]) -> str:
    """The tables of RESULTS.md."""
    figures: Mapping[str, Mapping[str, float]] = result["figures"]
    pairs, alone, learning, peers, steps = [], [], [], [], []
    for name, found in figures.items():
        if "one_thread" in found:
            keys = ("plain_loop_cpu", "one_thread_cpu", "paced_2", "paced_8", "one_thread", "two_threads")
            rates = [f"{found['rows'] / found[k] / 1e6:.2f}" if k in found else "" for k in keys]
            ratios = [f"{found[k]:.2f}" if k in found else "" for k in ("gain", "ratio")]
            learning.append([name, *rates, *ratios])
        elif "peer" in found:
            cells = ["did not finish", "", "", "", ""]
            if found["finished"]:
                cells = [f"{found[k]:.1f}" for k in ("seconds", "cpu_seconds")]
                cells += [f"{found['nmi']:.3f}", f"{found['clusters']:.0f}", f"{found['peak_mb']:.0f} MB"]
            peers.append([name.removeprefix("peer "), *cells])
        elif "busy" in found:
            busy: Mapping[str, float] = found["busy"]  # type: ignore[assignment]
            each = ", ".join(f"{step} {1e9 * s / found['rows']:.0f}" for step, s in busy.items())
            steps.append([name.removeprefix("steps "), each, f"{found['rows'] / found['paced_8'] / 1e6:.2f}"])
        elif "ratio" in found:
            other = {"two": "one thread", "fit vectors d=768": "768 columns"}
            beside = other.get(name, other.get(name.split()[0], "bare scan"))
            if "ari" in found:
                name = f"{name} (ARI with a fit of all {found['ari']:.3f})"
            ratio = found["ratio"]
            faster = beside != "bare scan"
            pairs.append(
                [
                    name,
                    beside,
                    f"{found['ours']:.2f} s",
                    f"{found['theirs']:.2f} s",
                    f"{1 / ratio:.2f} x faster" if faster else f"{ratio:.2f} x the time",
                    f"{found['ratio_cpu']:.2f}" if "ratio_cpu" in found else "",
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
        + ".",
        common.markdown_table(
            ["what", "beside", "imdh", "the other", "ratio", "of processor time", "imdh's peak"], pairs
        ),
        "Learning alone, in million rows a second of processor time; by the steps of two and eight threads, "
        "where each has a processor: as fast as the longest step, or as all of them shared out; by the "
        "clock:",
        common.markdown_table(
            ["what", "plain loop", "one thread", "two, by steps", "eight, by steps", "one, by the clock"]
            + ["two, by the clock", "one / plain", "two / one, by the clock"],
            learning,
        ),
        "Steps of one pass over a Parquet file on eight threads, code for haswell, in processor nanoseconds "
        "a row; columns can be decoded by any number of threads, cuts are moved while all wait; and million "
        "rows a second that eight processors would make of it:",
        common.markdown_table(["what", "steps", "by eight"], steps),
        f"{int(PEER_ROWS * result['scale']):,} rows of 20 from Parquet, 20 Gaussians; each reads the file, "
        "learns, labels all rows and writes the labels. BIRCH was told the right threshold, all but imdh the "
        "number of clusters. Wall and processor seconds, NMI with the Gaussians:",
        common.markdown_table(["what", "s", "processor s", "NMI", "clusters", "peak memory"], peers),
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
                    result["figures"] = with_figures(result["figures"], name, figures)
                    common.save(result, options.json)
                    print(f"{name}: {figures}", flush=True)
                print(f"({section}: {time.perf_counter() - start:.0f} s)", flush=True)
    common.finish(options, "speed", text(result))


if __name__ == "__main__":
    main()
