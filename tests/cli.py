"""Command lines for the tests: in this process where that is enough, as programs where it is not.

`imdh` runs the same entry point as the program, with streams of its own, and catches the exit status.
`program` starts Python anew: for signals, pipes, environments and what is imported.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imdh_cli.cli.main import main
from tests.needs import missing

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = [sys.executable, "-m", "imdh_cli"]
Word = str | int | float | os.PathLike[str]


@dataclass(frozen=True)
class Ran:
    """What a command line left behind. out: stdout as bytes. err: stderr as text."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.TextIOWrapper):
    """A stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


def imdh(*words: Word, stdin: bytes = b"", status: int | None = 0, terminal: bool = False) -> Ran:
    """Run `imdh WORDS` in this process; anything but `status` (None: any) fails the test.

    terminal: stderr calls itself one.
    """
    out, err = io.BytesIO(), io.BytesIO()
    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"),
        "stdout": io.TextIOWrapper(out, encoding="utf-8"),
        "stderr": (Terminal if terminal else io.TextIOWrapper)(err, encoding="utf-8", write_through=True),
        "argv": ["imdh", *map(str, words)],
    }
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in streams.items():
            patch.setattr(sys, name, value)
        patch.setattr(os, "_exit", sys.exit)  # by which an interrupted program ends that has daemon threads
        try:
            with pytest.raises(SystemExit) as left:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    streams["stdout"].flush()
    ran = Ran(int(left.value.code or 0), out.getvalue(), err.getvalue().decode())
    assert status is None or ran.status == status, f"status {ran.status}\n{ran.err}"
    return ran


def program(
    *words: Word,
    stdin: bytes | None = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    status: int | None = 0,
    before: Sequence[str] = (),
) -> Ran:
    """Run `imdh WORDS` as a program.

    env: changes to the environment. status None: any. before: the words of a program that starts it.
    """
    done = subprocess.run(
        [*before, *PROGRAM, *map(str, words)],
        input=stdin,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | dict(env or {}),
        cwd=cwd,
        timeout=120,
        check=False,
    )
    ran = Ran(done.returncode, done.stdout, done.stderr.decode())
    assert status is None or ran.status == status, f"status {ran.status}\n{ran.err}"
    return ran


def heeding_modes() -> list[str]:
    """What to start a program by that may read and write only what a file's mode allows, which holds for all
    users but root, who can give that privilege away, if allowed to."""
    if os.geteuid() != 0:
        return []
    words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if not shutil.which("setpriv") or subprocess.run([*words, *PROGRAM, "--version"], cwd=ROOT).returncode:
        missing("modes", "root may read and write everything, and cannot give that away here")
    return words


def start(
    *words: Word, cwd: Path = ROOT, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """The same, not waited for, in a process group of its own."""
    whole = os.environ | {"PYTHONPATH": str(ROOT)} | dict(env or {})
    command = [*PROGRAM, *map(str, words)]
    return subprocess.Popen(command, env=whole, cwd=cwd, start_new_session=True, **options)


def shell(line: str, cwd: Path) -> Ran:
    """A line of bash in which `imdh` is the program and a failure anywhere in a pipe counts."""
    quoted = " ".join(f"'{word}'" for word in PROGRAM)
    script = f'imdh() {{ {quoted} "$@"; }}; set -o pipefail; {line}'
    done = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=cwd,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr.decode())


def blobs(
    rows: int, k: int = 3, d: int = 3, seed: int = 0, distance: float = 12.0
) -> tuple[np.ndarray, np.ndarray]:
    """X (rows, d) of k round clusters in random order, and (rows,) which one: 0..k-1.

    They lie along a line that is askew to all axes, `distance` sds apart: any cut between two of them is
    empty, and no first direction misses them.
    """
    rng = np.random.default_rng(seed)
    which = rng.integers(0, k, rows)
    askew = np.linspace(1.0, 2.0, d) * (-1.0) ** np.arange(d)
    askew *= distance / np.sqrt((askew**2).sum())
    return which[:, None] * askew + rng.standard_normal((rows, d)), which


def write(path: Path, X: np.ndarray, names: Sequence[str] | None = None, **more: Any) -> Path:
    """X and further columns as a table, in the format that the suffix names; CSV keeps every digit."""
    names = list(names or [f"x{j + 1}" for j in range(X.shape[1])])
    table = pa.table({name: X[:, j] for j, name in enumerate(names)} | more)
    if path.suffix == ".csv":
        path.write_text(csv_text(table))
    else:
        pq.write_table(table, path, row_group_size=max(1, -(-len(X) // 7)))
    return path


def csv_text(table: pa.Table) -> str:
    """Header and rows by Python's `repr`, which reads back as the same double; no quoting."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    lines = [",".join(table.column_names)]
    lines += [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    return "\n".join(lines) + "\n"


def arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a model file but the metadata, by NumPy alone."""
    with np.load(path, allow_pickle=False) as model:
        return {name: model[name] for name in model.files if name != "metadata"}


def metadata(path: Path) -> dict[str, Any]:
    """The metadata of a model file."""
    with np.load(path, allow_pickle=False) as model:
        return json.loads(str(model["metadata"]))


def assert_same_arrays(a: Path, b: Path) -> None:
    """Every array of two models has the same bytes."""
    one, other = arrays(a), arrays(b)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value.dtype == other[name].dtype, name
        assert value.shape == other[name].shape, name
        assert value.tobytes() == other[name].tobytes(), name


@dataclass(frozen=True)
class Descent:
    """Rows taken down a model's tree with NumPy alone: (rows,) each, but path (rows, depth)."""

    leaf: np.ndarray  # its number
    label: np.ndarray
    projection: np.ndarray  # (rows, depth) v . z at each split on the way
    path: np.ndarray  # (rows, depth) the splits on the way, by number
    z: np.ndarray  # (rows, d)


def descend(path: Path, X: np.ndarray) -> Descent:
    """The model file's own recipe: standardise, go left where v . z < threshold, look the leaf up."""
    m = arrays(path)
    z = np.clip((X - m["center"]) / m["scale"], -10, 10)
    splits = len(m["thresholds"])
    depth = (splits + 1).bit_length() - 1
    node = np.ones(len(X), dtype=np.int64)
    path_, projection = [], []
    for _ in range(depth):
        p = (z * m["directions"][node - 1]).sum(axis=1)
        path_.append(node)
        projection.append(p)
        node = 2 * node + (p >= m["thresholds"][node - 1])
    label = m["cluster_of_leaf"][node - splits - 1]
    return Descent(node, label, np.column_stack(projection), np.column_stack(path_), z)


def second_choices(model: Path, X: np.ndarray) -> list[tuple[int | None, float]]:
    """For each row the cluster beyond the nearest cut that parts it from another, and how far the cut is."""
    m, way = arrays(model), descend(model, X)
    leaves, label = len(m["cluster_of_leaf"]), m["cluster_of_leaf"]
    depth = leaves.bit_length() - 1

    def below(node: int) -> set[int]:
        low = depth + 1 - node.bit_length()
        return set(label[(node << low) - leaves : ((node + 1) << low) - leaves].tolist())

    found: list[tuple[int | None, float]] = []
    for z, path, projection, own in zip(way.z, way.path, way.projection, way.label, strict=True):
        cuts = [i for i in range(depth) if len(below(int(path[i]))) > 1]  # those that tell clusters apart
        gap = {
            i: abs(projection[i] - m["thresholds"][path[i] - 1]) / m["projection_sd"][path[i] - 1]
            for i in cuts
        }
        found.append((None, np.inf))
        for i in sorted(cuts, key=lambda i: gap[i]):
            node = 2 * path[i] + (projection[i] < m["thresholds"][path[i] - 1])  # the other side
            while len(below(int(node))) > 1:
                node = 2 * node + (z @ m["directions"][node - 1] >= m["thresholds"][node - 1])
            (other,) = below(int(node))
            if other != own:
                found[-1] = other, gap[i]
                break
    return found


def labels(path: Path, name: str = "cluster") -> np.ndarray:
    """The label column of a CSV or Parquet output."""
    if path.suffix == ".csv":
        import pandas as pd

        return pd.read_csv(path)[name].to_numpy()
    return pq.read_table(path, columns=[name]).column(0).to_numpy()


def one_line_error(err: str) -> str:
    """What a command that failed says: one `error:` line and at most a `hint:`, no traceback."""
    lines = [line for line in err.splitlines() if not line.startswith(("note:", "warning:"))]
    assert lines, err
    assert lines[0].startswith("error: "), err
    assert all(line.startswith("hint: ") for line in lines[1:]), err
    assert len(lines) <= 2, err
    return lines[0].removeprefix("error: ")
