"""Starting up: what is imported, where it runs, and what it writes to terminals and files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from imdh_cli import runtime
from tests.cli import PROGRAM, ROOT, blobs, descend, imdh, labels, one_line_error, program, start, write

HEAVY = ("numba", "llvmlite", "numpy", "pyarrow", "pandas", "rich", "jinja2", "matplotlib", "fsspec")
HEAVY += ("numpy.ma",)  # for np.unique and pa.array, as a rule
IMPORTED = """
import json, sys
from imdh_cli.cli.main import program
try:
    program()
finally:
    heavy = [name for name in %r if name in sys.modules]
    print(json.dumps(heavy), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """t.csv, and m.npz learned from it."""
    path = tmp_path_factory.mktemp("start")
    X, _ = blobs(2000)
    write(path / "t.csv", X)
    imdh("fit", path / "t.csv", "-o", path / "m.npz")
    return path


# --- what is imported -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("--help", ""),
        ("--version", ""),
        ("fit --help", ""),
        ("assign --help", ""),
        ("report --help", ""),
        ("fit --no-such-option", ""),
        ("prune m.npz -k 2 -o two.npz -f", "numpy"),
        ("prune m.npz --table", "numpy"),
        ("report m.npz --json", "numpy pyarrow"),
        ("report m.npz", "numpy pyarrow rich"),
        ("sql m.npz", "numpy pyarrow"),
        ("fit none.csv -o n.npz", "numpy pyarrow"),
        ("assign m.npz none.csv", "numpy pyarrow"),
        ("fit t.csv -o n.npz -f -q", "llvmlite numpy pyarrow"),
        ("assign m.npz t.csv -o l.csv -f -q", "llvmlite numpy pyarrow"),
    ],
)
def test_only_what_a_command_needs_is_imported(folder, line, allowed):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED % (HEAVY,), *line.split()],
        capture_output=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    found = json.loads(done.stderr.splitlines()[-1])
    assert set(found) <= set(allowed.split()), done.stderr.decode()


ALLOCATED = """
import sys
from imdh_cli.cli.main import program
try:
    program()
finally:
    import pyarrow as pa
    pools = {name: getattr(pa, f"{name}_memory_pool")() for name in pa.supported_memory_backends()}
    print(*(name for name, pool in pools.items() if pool.max_memory()), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "wish",
    [
        "system",
        pytest.param(
            None,
            marks=pytest.mark.skipif(
                not runtime.arrow_has_jemalloc(), reason="no wheel of pyarrow for Linux: no jemalloc, perhaps"
            ),
        ),
    ],
)
def test_arrow_takes_all_memory_with_one_allocator(folder, tmp_path, wish):
    """Pages of Parquet files, too, which pyarrow takes from the allocator chosen when Arrow was loaded."""
    pq.write_table(pa.table({"x": np.arange(3000.0), "y": np.arange(3000.0) % 7}), tmp_path / "t.parquet")
    words = ["fit", tmp_path / "t.parquet", "-o", tmp_path / "n.npz", "-q", "--n-init", "1"]
    env = {name: value for name, value in os.environ.items() if name != runtime.ARROW_MEMORY}
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATED, *map(str, words)],
        capture_output=True,
        text=True,
        env=env | {"PYTHONPATH": str(ROOT)} | ({runtime.ARROW_MEMORY: wish} if wish else {}),
        timeout=60,
        check=True,
    )
    assert done.stderr.split() == [wish or "jemalloc"]


# --- where it runs --------------------------------------------------------------------------------


@pytest.fixture
def installed(folder) -> Iterator[Path]:
    """A copy of the package, without compiled code, that anybody may read and nobody may write; m.npz."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        shutil.copytree(ROOT / "imdh_cli", copy / "imdh_cli", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(folder / "m.npz", copy)
        (copy / "imdh_cli" / "compiled" / "__pycache__").touch()  # no folder can be made, not even by root
        paths = [copy, *copy.rglob("*")]
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
        yield copy
        for path in paths:
            if path.is_dir():
                path.chmod(0o755)


def test_a_read_only_package_and_no_home(folder, installed):
    """As in a container: nothing can be kept, so each run compiles, and only -v speaks of it."""
    done = subprocess.run(
        [*PROGRAM, "assign", "m.npz", "-", "-v"],
        env={"PYTHONPATH": str(installed), "HOME": "/dev/null"},
        cwd=installed,
        input=(folder / "t.csv").read_bytes(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    X = np.loadtxt(folder / "t.csv", delimiter=",", skiprows=1)
    assert done.stdout.decode().split() == ["cluster", *map(str, descend(folder / "m.npz", X).label)]
    assert b"cannot be kept between runs" in done.stderr


@pytest.mark.long
def test_several_first_runs_at_once(folder, tmp_path):
    """All compile and write the same cache."""
    (tmp_path / "cache").mkdir()
    outs = [tmp_path / f"{k}.csv" for k in range(4)]
    words = ["assign", folder / "m.npz", folder / "t.csv", "-q", "-o"]
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    running = [start(*words, out, env=env, stderr=subprocess.PIPE) for out in outs]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, b"")
    assert len({out.read_bytes() for out in outs}) == 1
    assert list((tmp_path / "cache").rglob("*.o"))


@pytest.mark.long
def test_a_run_says_that_it_compiles_when_it_does(folder, tmp_path):
    """The first one, and one after the code could have been written by somebody else."""
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    words = ["assign", folder / "m.npz", folder / "t.csv", "-o", tmp_path / "l.csv", "-f"]
    assert "compiling (first run only)" in program(*words, env=env).err
    assert "compiling" not in program(*words, env=env).err
    for file in (tmp_path / "cache").rglob("descend-*.o"):
        file.chmod(0o666)
    assert "compiling (first run only)" in program(*words, env=env).err


@pytest.fixture(scope="module")
def foreign(tmp_path_factory) -> Path:
    """A folder with \u0436.csv of columns gr\u00f6\u00dfe and \u9577\u3055, and m.npz."""
    path = tmp_path_factory.mktemp("foreign")
    X, _ = blobs(300, d=2)
    write(path / "\u0436.csv", X, ["gr\u00f6\u00dfe", "\u9577\u3055"])
    imdh("fit", path / "\u0436.csv", "-o", path / "m.npz")
    return path


PLAIN = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "words", [["report", "m.npz"], ["report", "m.npz", "--json"], ["report", "m.npz", "--node", "1"]]
)
def test_a_plain_locale_is_no_failure(foreign, words):
    ran = program(*words, cwd=foreign, env=PLAIN)
    assert ran.err == ""
    if "--json" in words:
        assert [f["name"] for f in ran.json["data"]["features"]] == ["gr\u00f6\u00dfe", "\u9577\u3055"]


def test_an_error_in_a_plain_locale_is_one_line(foreign):
    ran = program("fit", "\u0436.csv", "-c", "breite", "-o", "n.npz", cwd=foreign, env=PLAIN, status=3)
    assert "no column" in one_line_error(ran.err)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
def test_a_file_whose_name_is_no_utf_8_can_be_planned(foreign):
    name = os.fsdecode(b"t\xff.csv")
    (foreign / name).write_bytes((foreign / "\u0436.csv").read_bytes())
    plan = imdh("fit", foreign / name, "-n", "--json").json
    assert plan["files"][0]["name"] == str(foreign / name)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
def test_a_file_whose_name_is_no_utf_8_is_learned_from_and_written(foreign):
    """The model names its input with U+FFFD for what is no text."""
    data, model, out = (foreign / os.fsdecode(name) for name in (b"u\xff.csv", b"m\xff.npz", b"l\xff.csv"))
    data.write_bytes((foreign / "\u0436.csv").read_bytes())
    imdh("fit", data, "-o", model)
    imdh("assign", model, data, "-o", out)
    assert len(labels(out)) == 300
    assert "u\ufffd.csv" in imdh("report", model, "--json").text


# --- threads --------------------------------------------------------------------------------------


def test_more_threads_than_processors_are_capped_with_a_note(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    ran = imdh("fit", folder / "t.csv", "--threads", 8, "-o", tmp_path / "m.npz")
    assert "note: --threads 8: this process may use 1, which is what is used" in ran.err
    assert "--threads" not in imdh("fit", folder / "t.csv", "--threads", 1, "-o", tmp_path / "n.npz").err
    assert imdh("fit", folder / "t.csv", "-n", "--json").json["threads"] == 1


@pytest.mark.skipif(not shutil.which("taskset"), reason="no taskset here")
def test_a_process_bound_to_one_processor_uses_one_thread(folder, tmp_path):
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *PROGRAM]
    words = ["fit", folder / "t.csv", "--threads", "8", "-o", tmp_path / "m.npz"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "note: --threads 8: this process may use 1, which is what is used" in done.stderr


@pytest.mark.parametrize(
    ("files", "threads"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, 7),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 7),
        ({}, 7),
    ],
)
def test_the_quota_of_the_control_group_caps_the_threads(monkeypatch, tmp_path, files, threads):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)), raising=False)
    monkeypatch.setattr(runtime, "Path", lambda name: tmp_path / Path(name).relative_to("/sys/fs/cgroup"))
    assert runtime.usable_threads() == threads


# --- terminals and files --------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch) -> pytest.MonkeyPatch:
    """The environment of a terminal."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_terminal_sees_progress_that_goes_away(folder, terminal, tmp_path):
    seen = imdh("fit", folder / "t.csv", "-o", tmp_path / "m.npz", terminal=True).err
    assert "learning" in seen
    assert "2,000 rows" in seen
    assert "\x1b[" in seen
    assert seen.rstrip().endswith(f"wrote {tmp_path}/m.npz")


@pytest.mark.parametrize("words", [["--no-progress"], ["--quiet"]])
def test_progress_can_be_switched_off(folder, terminal, tmp_path, words):
    seen = imdh("fit", folder / "t.csv", "-o", tmp_path / "m.npz", *words, terminal=True).err
    assert "learning" not in seen
    assert "\r" not in seen
    assert "\x1b" not in seen


def test_a_dumb_terminal_gets_plain_lines(folder, terminal, tmp_path):
    terminal.setenv("TERM", "dumb")
    seen = imdh("fit", folder / "t.csv", "-o", tmp_path / "m.npz", terminal=True).err
    assert "2,000 rows used of 2,000" in seen
    assert "\x1b" not in seen
    assert "\r" not in seen


@pytest.mark.parametrize("off", ["NO_COLOR", "--no-color"])
def test_colour_can_be_switched_off_and_progress_stays(folder, terminal, tmp_path, off):
    words = ["--no-color"] if off.startswith("-") else []
    if not words:
        terminal.setenv("NO_COLOR", "1")
    (tmp_path / "t.csv").write_text((folder / "t.csv").read_text() + "1,,3\n")
    seen = imdh("fit", tmp_path / "t.csv", "-o", tmp_path / "m.npz", *words, terminal=True).err
    assert "learning" in seen
    assert "note: 1 of 2,001 rows" in seen
    assert not [code for code in seen.split("\x1b[")[1:] if code.split("m")[0].replace(";", "").isdigit()]


def test_stderr_in_a_file_has_no_carriage_returns_and_no_escapes(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for words in (["fit", folder / "t.csv", "-v", "-o", tmp_path / "m.npz"],
                  ["assign", folder / "m.npz", folder / "t.csv", "-v", "-o", tmp_path / "l.csv"],
                  ["prune", folder / "m.npz", folder / "t.csv", "-v", "-o", tmp_path / "p.npz"],
                  ["report", folder / "m.npz", folder / "t.csv", "--truth", "x1"]):  # fmt: skip
        ran = imdh(*words)
        assert "\r" not in ran.err
        assert "\x1b" not in ran.err
        assert b"\x1b" not in ran.out
    assert len(labels(tmp_path / "l.csv")) == 2000


def test_what_the_data_say_cannot_move_the_cursor(tmp_path):
    """A name with an escape code in it is shown, not obeyed."""
    X, _ = blobs(300, d=2)
    bad = "x\x1b[2J\ry"
    write(tmp_path / "t.parquet", X, [bad, "b"], word=["w"] * 300)
    imdh("fit", tmp_path / "t.parquet", "-o", tmp_path / "m.npz")
    for words in (["fit", tmp_path / "t.parquet", "-n"], ["report", tmp_path / "m.npz"],
                  ["fit", tmp_path / "t.parquet", "-v", "-x", f'"{bad}1"', "-o", tmp_path / "n.npz"],
                  ["fit", tmp_path / "t.parquet", "-v", "-o", tmp_path / "n.npz"]):  # fmt: skip
        ran = imdh(*words, status=3 if "-x" in words else 0)
        assert "\x1b" not in ran.text + ran.err
        assert "\r" not in ran.text + ran.err
