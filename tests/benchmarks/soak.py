"""Fits and labellings under random kills, signals, closed pipes and full disks: is anything lost?

Each round takes one command and one fault, both at random. The fault fault_injection at a random moment, or
just when something is being written. After each run: is the old output intact or the new one whole,
to the byte; is nothing left over; is the exit status a documented one, and what is said on stderr true?
A fit with a checkpoint is given up to three faults and then goes on: its model must have the bytes of a
run that nothing happened to. Linux only. A disk is filled by a small file system in memory where a
namespace of one's own may mount one; limits on the size of files are tried everywhere.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks import common
from tests.benchmarks.fault_injection import (
    DEVICE,
    FULL,
    INT,
    KILL,
    LIMIT,
    NONE,
    PIPE,
    TERM,
    TWICE,
    Content,
    End,
    Job,
    Runner,
    Strike,
    content,
    resize,
)

ROWS = 120_000
NAMESPACE = "IMDH_SOAK_NAMESPACE"  # set where this process may mount
STATUSES = {
    KILL: {0, -signal.SIGKILL},
    TERM: {0, 130},
    INT: {0, 130},
    TWICE: {0, 130, -signal.SIGINT},
    FULL: {0, 1},
    LIMIT: {0, 1},
    DEVICE: {1},
    PIPE: {0},
    NONE: {0},
}
AT_ONCE = (KILL, TWICE)  # nothing of the program runs after it: a hidden temporary may stay behind


# --- what is run


def make_data(folder: Path) -> tuple[list[Path], Path]:
    """Three Parquet files of several row groups, and a CSV of the first one's rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((6, 4))
    x = centres[rng.integers(0, 6, ROWS)] + rng.standard_normal((ROWS, 4))
    columns = {f"x{j}": x[:, j].round(6) for j in range(4)}
    table = pa.table(columns | {"name": [f"row {i}" for i in range(ROWS)]})
    size = ROWS // 3
    paths = [folder / f"part-{k}.parquet" for k in range(3)]
    for k, path in enumerate(paths):
        pq.write_table(table.slice(k * size, size), path, row_group_size=size // 4)
    text = folder / "rows.csv"
    table.slice(0, size).to_pandas().to_csv(text, index=False)
    return paths, text


def make_jobs(parts: Sequence[Path], text: Path, model: Path) -> list[Job]:
    """Every way of meeting rows with a checkpoint, every kind of output of labels, and pipes."""
    files = tuple(map(str, parts))
    common_words = ("-q", "-f", "-o", "m.npz", "--checkpoint", "0.03", "--resume")
    buffer = ("--buffer-rows", "4000")
    label = ("assign", str(model), *files, "--keep", "name", "-q", "-f")
    stream = ("assign", str(model), "-", "--keep-all", "-q")
    return [
        Job(
            "fit, shuffled, 2 passes",
            ("fit", *files, *common_words, *buffer, "--passes", "2", "--recount", "yes"),
            "m.npz",
        ),
        Job(
            "fit, 1 pass in order",
            ("fit", *files, *common_words, "--shuffle", "none", "--passes", "1", "--recount", "no"),
            "m.npz",
        ),
        Job("fit, in memory", ("fit", str(text), *common_words), "m.npz"),
        Job(
            "fit, stream, 2 passes",
            ("fit", "-", *common_words, *buffer, "--passes", "2"),
            "m.npz",
            text,
        ),
        Job("fit, to a pipe", ("fit", str(text), "-q", "-o", "-"), "-"),
        Job("assign, CSV", (*label, "-o", "labels.csv"), "labels.csv"),
        Job("assign, Parquet", (*label, "-o", "labels.parquet"), "labels.parquet"),
        Job("assign, packed CSV", (*stream, "-f", "-o", "labels.csv.gz"), "labels.csv.gz", text),
        Job("assign, partitions", (*label, "--partition-by-cluster", "clusters"), "clusters"),
        Job("assign, to a pipe", stream, "-", text),
    ]


# --- what is checked


def put_old(path: Path) -> None:
    """An earlier output of the same kind."""
    if path.suffix:
        path.write_bytes(b"an old output\n" * 500)
    else:
        (path / "cluster=77").mkdir(parents=True)
        (path / "cluster=77" / "part-0.parquet").write_bytes(b"an old output\n" * 500)


@dataclass
class Found:
    """What a run left. wrong: what must not be."""

    finished: bool  # the new output stands there
    temporaries: int
    wrong: list[str] = field(default_factory=list)


def examine(job: Job, fault: str, end: End, folder: Path, old: Content, whole: Content) -> Found:
    """Hold what a run left against what may be.

    Parameters
    ----------
    old, whole : what stood at the output before; what the finished output is
    """
    now = content(folder / job.output) if job.output != "-" else old
    found = Found(finished=end.status == 0 if job.output == "-" else now == whole, temporaries=0)
    wrong = found.wrong
    if end.status not in STATUSES[fault]:
        wrong.append(f"status {end.status}")
    if job.output != "-":
        if now not in (old, whole):
            wrong.append("the output is neither the old one nor the new one whole")
        elif end.status == 0 and now != whole:
            wrong.append("status 0 without the output")
        elif end.status == 1 and now != old:
            wrong.append("status 1 with the output replaced")
        if "no file was written" in end.err and now != old:
            wrong.append("it says that no file was written, and one was")
    if "Traceback" in end.err or "a bug in imdh" in end.err:
        wrong.append("a traceback or a bug on stderr")
    if end.status == 1 and sum(line.startswith("error: ") for line in end.err.splitlines()) != 1:
        wrong.append("a failure is not one error line")
    if end.status == 0 and fault == PIPE and end.err:
        wrong.append("a closed pipe is not quiet")
    for path in folder.iterdir():
        if path.name == job.output:
            continue
        if path.name == f"{job.output}.checkpoint" and job.checkpointed:
            if end.status == 0:
                wrong.append("the checkpoint outlives the run that ended well")
            if path.stat().st_mode & 0o777 != 0o600:
                wrong.append("the checkpoint can be read by others")
        elif fault in AT_ONCE and end.status < 0 and path.name[0] == "." and path.suffix == ".tmp":
            found.temporaries += 1
        else:
            wrong.append(f"{path.name} was left behind")
    return found


# --- rounds


class Soak:
    """Rounds of jobs and faults, and what came of them."""

    def __init__(self, folder: Path, seed: int, *, small: Path | None) -> None:
        self.rng = random.Random(seed)
        self.disk = folder / "disk"
        self.small = small
        self.scratch = folder / "tmp"
        self.counts: dict[str, Counter[str]] = {}
        self.rounds: Counter[str] = Counter()
        self.resumed = 0
        self.wrong: list[str] = []
        for path in (self.disk, self.scratch):
            path.mkdir()
        inputs = folder / "data"
        inputs.mkdir()
        parts, text = make_data(inputs)
        model = inputs / "model.npz"
        common.imdh("fit", *parts, "-o", model, "-q", "-k", "6")
        self.inputs = inputs
        self.before = content(inputs)
        self.runner = Runner(self.scratch)
        self.jobs = make_jobs(parts, text, model)
        self.printed: dict[str, bytes] = {}
        for job in self.jobs:
            self._clean(self.disk)
            self.printed[job.name] = self.runner.measure(job, self.disk)

    def round(self) -> None:
        """One job, struck once, or with a checkpoint up to three times; then it has to end well."""
        job = self.rng.choices(self.jobs, [2 if j.checkpointed else 1 for j in self.jobs])[0]
        faults = [f for f in job.faults if f != FULL or self.small is not None]
        fault_injection = [self._strike(self.rng.choice(faults))]
        if job.checkpointed:
            fault_injection += [self._strike(self.rng.choice(faults)) for _ in range(self.rng.randint(0, 2))]
        folder = self.disk
        if self.small is not None and any(s.fault == FULL for s in fault_injection):
            folder = self.small
        self._clean(folder)
        self.rounds[job.name] += 1
        if job.output != "-" and self.rng.random() < 0.5:
            put_old(folder / job.output)
        ended = False
        for strike in fault_injection:
            ended = self._once(job, folder, strike)
            if ended:
                break
        if job.checkpointed and not ended:
            self.resumed += (folder / f"{job.output}.checkpoint").exists()
            self._once(job, folder, Strike(NONE, False, 0, 0))
        if any(self.scratch.iterdir()):
            self.wrong.append(f"{job.name}: something was left in TMPDIR")
            self._clean(self.scratch)
        if content(self.inputs) != self.before:
            raise SystemExit(f"{job.name}: an input was changed")

    def _strike(self, fault: str) -> Strike:
        share = self.rng.uniform(0, 0.9 if fault == PIPE else 1.1)
        return Strike(fault, self.rng.random() < 0.5, share, self.rng.random())

    def _once(self, job: Job, folder: Path, strike: Strike) -> bool:
        """One run, examined. Whether its output is there now."""
        for path in folder.glob(".*.tmp"):  # what an earlier kill left was counted then
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        old = content(folder / job.output) if job.output != "-" else None
        end = self.runner.run(job, folder, strike)
        found = examine(job, strike.fault, end, folder, old, self.runner.whole[job.name])
        if job.output == "-" and not self.printed[job.name].startswith(end.out):
            found.wrong.append("what went into the pipe is not the beginning of the output")
        counts = self.counts.setdefault(strike.fault, Counter())
        counts["runs"] += 1
        counts["finished"] += found.finished
        counts["temporaries"] += found.temporaries
        counts["wrong"] += bool(found.wrong)
        for text in found.wrong:
            line = (
                f"{job.name}, {strike.fault}: {text}; status {end.status}; {' '.join(end.err.split())[-200:]}"
            )
            print(line, file=sys.stderr)
            self.wrong.append(line)
        return found.finished

    @staticmethod
    def _clean(folder: Path) -> None:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def result(self) -> dict[str, Any]:
        """Plain values, in the order of the table."""
        return {
            "rounds": dict(self.rounds),
            "faults": {fault: dict(self.counts[fault]) for fault in STATUSES if fault in self.counts},
            "resumed": self.resumed,
            "wrong": self.wrong,
        }


def text(result: Mapping[str, Any]) -> str:
    """The table of RESULTS.md."""
    lines = [
        [name, *(str(c.get(key, 0)) for key in ("runs", "finished", "temporaries", "wrong"))]
        for name, c in result["faults"].items()
    ]
    header = ["what struck", "runs", "ended well all the same", "hidden temporaries left", "wrong"]
    wrong = [f"- {line}" for line in result["wrong"][:10]]
    return "\n\n".join(
        [
            f"{result['minutes']:g} minutes, {sum(result['rounds'].values())} rounds of "
            f"{len(result['rounds'])} kinds of fit and assign; {result['resumed']} fits went on from a "
            "checkpoint to the bytes of an undisturbed run. Wrong is: an output half written or lost, "
            "anything left over that should not be, another exit status than documented, a traceback, "
            "other bytes.",
            common.markdown_table(header, lines),
            *(["\n".join(wrong)] if wrong else []),
            common.provenance_line(result),
        ]
    )


def may_mount() -> bool:
    """Can a namespace of one's own mount a file system?"""
    script = "mount -t tmpfs none /mnt"
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def soak(minutes: float, seed: int, folder: Path, *, mounting: bool) -> Iterator[dict[str, Any]]:
    """Rounds for so long; the result after each."""
    small = None
    if mounting:
        small = folder / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "none", small], check=True)
        resize(small, None)
    work = Soak(folder, seed, small=small)
    fixed = {**common.provenance(), "minutes": minutes, "seed": seed}
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        work.round()
        yield {**fixed, **work.result()}
    if small is not None:
        subprocess.run(["umount", small], check=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Soak, save, print; exit status 1 when something was wrong."""
    parser = common.parser(__doc__, "soak")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the faults and their moments")
    options = parser.parse_args(arguments)
    result = common.load(options.json)
    if not options.table:
        if NAMESPACE not in os.environ and may_mount():
            words = [sys.executable, "-m", "tests.benchmarks.soak", *(arguments or sys.argv[1:])]
            command = ["unshare", "--mount", "--map-root-user", *words]
            os.execvpe(command[0], command, os.environ | {NAMESPACE: "1"})
        signal.signal(signal.SIGINT, signal.default_int_handler)  # children must not inherit "ignored"
        with common.scratch_folder() as folder:
            mounting = NAMESPACE in os.environ
            for result in soak(options.minutes, options.seed, Path(folder), mounting=mounting):
                common.save(result, options.json)
    common.finish(options, "soak", text(result))
    if result["wrong"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
