"""What the measurements share: running a command, versions, JSON, tables, the markers of RESULTS.md.

Only the standard library at the top: a child's peak memory is never less than that of the process
which started it, so the process that measures has to be small.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
PAGE = RESULTS.parent / "RESULTS.md"
IMDH = [sys.executable, "-m", "imdh_cli"]
PACKAGES = ("imdh", "numpy", "numba", "pyarrow", "scikit-learn")


@dataclass(frozen=True)
class Run:
    """One finished command: wall and CPU seconds, peak resident memory in MB, what it printed."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    stdout: str
    stderr: str


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    stdin: Path | None = None,
) -> Run:
    """Run a command to its end; a status other than 0 raises RuntimeError with its stderr."""
    words = [os.fspath(word) for word in command]
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        open(stdin or os.devnull, "rb") as source,
    ):
        start = time.perf_counter()
        child = subprocess.Popen(
            words, stdin=source, stdout=out, stderr=err, env=dict(env) if env else None, cwd=ROOT
        )
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode(errors="replace"))
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}\nended with {child.returncode}:\n{printed[1]}")
    peak = usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024 * 1024)
    return Run(seconds, usage.ru_utime + usage.ru_stime, peak, printed[0], printed[1])


def imdh(*words: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Run:
    """Run `imdh WORDS...` of this checkout as a person would."""
    return run([*IMDH, *words], env=env)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for data that are made here and thrown away (in $TMPDIR)."""
    return tempfile.TemporaryDirectory(prefix="imdh-bench-")


def provenance() -> dict[str, Any]:
    """When, with what and on what it was measured."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "missing"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions,
        "machine": {
            "cpu": _cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "system": platform.system(),
        },
    }


def provenance_line(result: Mapping[str, Any]) -> str:
    """The date, versions and machine of a result in one line."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    machine = result["machine"]
    return (
        f"Measured {result['date']}; {versions}; "
        f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB."
    )


def load(path: Path) -> dict[str, Any]:
    """An earlier result, {} when there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def save(result: Mapping[str, Any], path: Path) -> None:
    """Write a result, whole or not at all: long runs save after every step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    temporary.replace(path)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that is also readable as plain text: first column left, the others right."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def row(cells: Sequence[str]) -> str:
        texts = [cell.rjust(w) for cell, w in zip(cells, widths, strict=True)]
        texts[0] = cells[0].ljust(widths[0])
        return "| " + " | ".join(texts) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join([row(lines[0]), rule, *(row(line) for line in lines[1:])])


def markers(name: str) -> tuple[str, str]:
    """The two lines of RESULTS.md between which the table `name` stands."""
    return f"<!-- {name}: made by tests/benchmarks -->", f"<!-- end of {name} -->"


def put_into_page(name: str, text: str, page: Path = PAGE) -> bool:
    """Replace what stands between the markers of `name`; False when the page has none."""
    begin, end = markers(name)
    old = page.read_text()
    if begin not in old or end not in old:
        return False
    head, rest = old.split(begin, 1)
    tail = rest.split(end, 1)[1]
    page.write_text(f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}")
    return True


def parser(description: str | None, name: str) -> argparse.ArgumentParser:
    """The options every measurement has."""
    made = argparse.ArgumentParser(
        prog=f"python -m tests.benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", type=Path, default=RESULTS / f"{name}.json", help="where the figures go")
    made.add_argument(
        "--write", action="store_true", help=f"put the table into {PAGE.name}, between its markers"
    )
    made.add_argument("--table", action="store_true", help="measure nothing: print the table again")
    return made


def finish(options: argparse.Namespace, name: str, text: str) -> None:
    """Print the table, and put it into RESULTS.md when asked."""
    print(text)
    if options.write and not put_into_page(name, text):
        raise SystemExit(f"{PAGE.name} has no markers {markers(name)}")


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
