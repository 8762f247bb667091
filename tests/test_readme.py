"""The commands of the README and of the pages behind it run, in order, and print what they show.

Blocks marked `console` hold commands after `$ ` and, below each, what it prints (both streams).
They share one folder that has `sample_data`. In what is shown, a line `...` stands for any lines;
times, rates and memory may differ; other numbers must agree within 2 %: another processor may round
the last digits of a hyperplane otherwise, and a handful of rows may then fall on its other side.

`python tests/test_readme.py` runs the commands and writes what they print into the pages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[1]
# In the order in which their commands run, since later ones use the files of earlier ones.
PAGES = [ROOT / "README.md", *(ROOT / "imdh_cli" / name / "README.md" for name in ("engines", "model"))]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
# What depends on the machine and the moment: 1.2 s, 34 ms, 5.6 million rows/s, 123 MB.
FREE = re.compile(
    r"\d[\d,.]*(?: (?:thousand|million))? ?(?:rows/s|rows per second|seconds|ms|min|s|[kMG]i?B)\b"
)


@dataclass
class Command:
    """One command and what the README says it prints."""

    line: str
    shown: list[str] = field(default_factory=list)


def commands(block: str) -> list[Command]:
    """The commands of a console block; a line that ends with a backslash goes on below."""
    found: list[Command] = []
    going_on = False
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:]))
        elif going_on:
            found[-1].line += "\n" + line
        else:
            found[-1].shown.append(line)
            continue
        going_on = line.endswith("\\")
    return found


def run(line: str, folder: Path) -> str:
    """Both streams of a shell command, as a person sees them on a terminal of 100 columns."""
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    return "\n".join(row.rstrip() for row in done.stdout.strip("\n").splitlines())


def same_line(shown: str, printed: str) -> bool:
    """Equal but for blanks, machine-dependent figures, and 2 % in other numbers."""
    shown, printed = (FREE.sub("<free>", " ".join(text.split())) for text in (shown, printed))
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    values = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(abs(a - b) <= max(0.02 * abs(a), 0.015) for a, b in values)


def same_output(shown: list[str], printed: list[str]) -> bool:
    """Line by line; `...` stands for any number of lines."""
    if not shown:
        return not printed
    if shown[0].strip() == "...":
        return any(same_output(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and same_line(shown[0], printed[0]) and same_output(shown[1:], printed[1:])


def folder_with_samples(parent: Path) -> Path:
    """Where the commands run."""
    (parent / "sample_data").symlink_to(ROOT / "sample_data")
    return parent


BLOCKS = [block for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all blocks: later ones use the files of earlier ones."""
    return folder_with_samples(tmp_path_factory.mktemp("readme"))


def cases() -> list[Any]:
    """The blocks; one that learns from twenty samples of the cities takes longer than all the others."""
    found = []
    for block in BLOCKS:
        long = any("--stability" in command.line for command in commands(block))
        found.append(
            pytest.param(block, marks=pytest.mark.long if long else (), id=block[2:].split("\n")[0][:40])
        )
    return found


@pytest.mark.parametrize("block", cases())
def test_commands_print_what_the_readme_shows(block: str, folder: Path) -> None:
    """Each command of a block, in order."""
    for command in commands(block):
        printed = run(command.line, folder)
        assert same_output(command.shown, printed.splitlines()), f"$ {command.line}\n{printed}"


def python_blocks() -> list[str]:
    return [block for page in PAGES for block in PYTHON.findall(page.read_text(encoding="utf-8"))]


def test_every_block_of_python_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the one that reads the model, which is tested by its labels, and Spark's (test_spark.py)."""
    monkeypatch.chdir(folder)
    blocks = [block for block in python_blocks() if "np.load" not in block and "pyspark" not in block]
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_numpy_alone_gives_the_labels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of Python that read the model label every row as `imdh assign` does."""
    (lines,) = (block for block in python_blocks() if "np.load" in block)
    if not (folder / "cities.npz").exists():  # when this test runs alone
        run("imdh fit sample_data/cities.parquet -c latitude,longitude -o cities.npz", folder)
    run("imdh assign cities.npz sample_data/cities.parquet -o labels.parquet -f", folder)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(lines, names)
    labels = pq.read_table("labels.parquet").column("cluster").to_numpy()
    assert labels.size == 69_472
    assert np.array_equal(names["cluster"], labels)


def test_figures_may_only_differ_where_they_must() -> None:
    """Times are free, counts within 2 %, words not at all."""
    assert same_line("read 69,472 rows in 0.9 s", "read 69,470 rows in 12.3 s")
    assert not same_line("read 69,472 rows in 0.9 s", "read 60,472 rows in 0.9 s")
    assert not same_line("6 clusters", "6 leaves")
    assert same_output(["a", "...", "z"], ["a", "b", "c", "z"])
    assert not same_output(["a", "...", "z"], ["a", "b"])
    printed = ["2 rows", "a 3", "b 4", "c 5", "b 6"]
    assert abridged(["1 rows", "...", "b 1", "a 1"], printed) == ["2 rows", "...", "b 4", "c 5"]


def abridged(shown: list[str], printed: list[str]) -> list[str]:
    """What is printed now, with `...` where it was: behind one goes on the line most alike to that shown."""
    lines, place, behind_gap = [], 0, False
    for line in shown:
        gap = line.strip() == "..."
        if gap or place == len(printed):
            lines.append(line)
        else:
            if behind_gap:
                words = NUMBER.sub("#", line)
                alike = [
                    SequenceMatcher(None, words, NUMBER.sub("#", now)).ratio() for now in printed[place:]
                ]
                place += alike.index(max(alike))
            lines.append(printed[place])
            place += 1
        behind_gap = gap
    return lines


def refresh() -> None:
    """Write into the pages what their commands print now; what stands beside a `...` is to be looked at."""
    with tempfile.TemporaryDirectory() as name:
        folder = folder_with_samples(Path(name))

        def replaced(match: re.Match[str]) -> str:
            parts = []
            for command in commands(match[1]):
                printed = run(command.line, folder).splitlines()
                if any(line.strip() == "..." for line in command.shown):
                    printed = abridged(command.shown, printed)
                parts.append("\n".join([f"$ {command.line}", *printed]).rstrip())
            return "```console\n" + "\n".join(parts) + "\n```"

        for page in PAGES:
            page.write_text(BLOCK.sub(replaced, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    refresh()
