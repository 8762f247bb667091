"""How the program ends: one status for each kind of end, whole outputs or none, no tracebacks."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from imdh_cli.errors import ExitStatus
from tests.cli import (
    PROGRAM,
    ROOT,
    arrays,
    blobs,
    descend,
    imdh,
    one_line_error,
    program,
    shell,
    start,
    write,
)
from tests.needs import full_device

ROWS = 40_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """t.csv, m.npz learned from it, and long.csv: its rows over and over, more than a pipe holds."""
    path = tmp_path_factory.mktemp("status")
    X, _ = blobs(ROWS)
    write(path / "t.csv", X.round(6))
    imdh("fit", path / "t.csv", "-o", path / "m.npz")
    header, *rows = (path / "t.csv").read_text().splitlines(keepends=True)
    (path / "long.csv").write_text("".join([header, *rows * 4]))
    return path


# --- one test for each status ---------------------------------------------------------------------


def test_0_done(folder):
    assert imdh("report", folder / "m.npz", status=0).status == ExitStatus.DONE


def test_1_a_bug_is_one_line_and_a_traceback_only_with_debug(folder, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("imdh_cli.pipeline.prune.reprune", broken)
    ran = imdh("prune", folder / "m.npz", "-k", 2, status=1)
    assert one_line_error(ran.err) == "a bug in imdh: RuntimeError: two lines"
    assert "--debug" in ran.err
    assert "Traceback" in imdh("prune", folder / "m.npz", "-k", 2, "--debug", status=1).err


def test_1_no_memory_is_said_in_words(folder, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("imdh_cli.pipeline.prune.reprune", broken)
    assert one_line_error(imdh("prune", folder / "m.npz", "-k", 2, status=1).err) == "out of memory"


def test_1_an_output_that_cannot_be_written(folder, tmp_path):
    ran = imdh("fit", folder / "t.csv", "-o", tmp_path / "no" / "m.npz", status=1)
    assert "no such folder" in one_line_error(ran.err)


USAGE = [
    ["fit", "t.csv", "--no-such-option"],
    ["fit", "t.csv", "-x", "a\rb"],
    ["fit", "t.csv", "--depth", "15"],
    ["fit", "t.csv", "-k", "some"],
    ["fit", "t.csv", "--passes", "0"],
    ["fit", "t.csv", "--seed", "-1"],
    ["fit", "t.csv", "--bandwidth", "0"],
    ["fit", "t.csv", "--threads", "0"],
    ["fit", "t.csv", "--batch-rows", "0"],
    ["fit", "t.csv", "--buffer-rows", "0"],
    ["fit", "t.csv", "--alpha", "x"],
    ["fit", "t.csv", "--delimiter", "ab"],
    ["fit", "t.csv", "--encoding", "klingon"],
    ["fit", "t.csv", "--decimal", ";"],
    ["fit", "t.csv", "-o", "t.csv"],
    ["fit", "t.csv", "-o", "t.csv", "--force"],
    ["fit", "t.csv", "-o", "m.npz"],
    ["fit", "t.csv", "-o", "."],
    ["fit", "t.csv", "-o", ""],
    ["fit", "-", "-", "-o", "n.npz"],
    ["prune", "m.npz", "-k", "0"],
    ["prune", "m.npz", "-k", "257"],
    ["prune"],
    ["assign", "m.npz", "t.csv", "-o", "labels.xlsx"],
    ["assign", "m.npz", "t.csv", "-o", "m.npz", "-f"],
    ["assign", "m.npz", "t.csv", "--with", "x"],
    ["report", "m.npz", "--node", "0"],
    ["report", "m.npz", "--tree", "--colour"],
    ["cluster"],
    ["--colour"],
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_2_usage(folder, monkeypatch, words):
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    ran = imdh(*words, status=2)
    one_line_error(ran.err)
    assert ran.out == b""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("command", ["fit", "prune", "assign", "report"])
def test_2_an_unknown_option_names_the_help_page(command):
    ran = imdh(command, "--no-such-option", status=2)
    assert "--no-such-option" in one_line_error(ran.err)
    assert f"hint: see imdh {command} --help" in ran.err


def test_2_a_mistyped_command_is_guessed():
    assert "Did you mean 'assign'" in one_line_error(imdh("asign", status=2).err)


def test_3_data(folder, tmp_path):
    ran = imdh("fit", tmp_path / "none.csv", "-o", tmp_path / "m.npz", status=3)
    assert "no such file" in one_line_error(ran.err)
    assert list(tmp_path.iterdir()) == []


def test_4_model(folder):
    for words in (["prune"], ["assign"], ["report"]):
        truth = ["--truth", "x1"] if words == ["report"] else []
        ran = imdh(*words, folder / "t.csv", folder / "t.csv", *truth, status=4)
        assert "not a model" in one_line_error(ran.err)


def test_130_interrupted(folder, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("imdh_cli.pipeline.prune.reprune", interrupted)
    ran = imdh("prune", folder / "m.npz", "-k", 2, status=130)
    assert ran.err == "imdh: interrupted; no file was written\n"


def test_130_interrupted_while_the_program_is_imported(tmp_path):
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = program("--version", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}, status=130)
    assert (ran.out, ran.err) == (b"", "")


def test_130_interrupted_before_the_command_runs(monkeypatch):
    monkeypatch.setattr("imdh_cli.runtime.arrow_has_jemalloc", lambda: os.kill(os.getpid(), signal.SIGINT))
    ran = imdh("--version", status=130)
    assert (ran.out, ran.err) == (b"", "")


# --- help -----------------------------------------------------------------------------------------


HELP = [[], ["--help"], ["-h"], *([name, "-h"] for name in ("fit", "prune", "assign", "report"))]


@pytest.mark.parametrize("words", HELP)
def test_help_starts_with_examples(words):
    text = imdh(*words).text
    assert text.startswith("Usage: imdh")
    assert text.index("Examples:") < text.index("Options:")


def test_the_help_page_tells_what_each_status_means():
    text = " ".join(imdh("--help").text.split())
    told = re.findall(r"(\d+) [a-z]", text[text.index("Exit status:") :])
    assert list(map(int, told)) == sorted(ExitStatus)


def test_the_version():
    from imdh_cli import __version__

    assert imdh("--version").text == imdh("-V").text == f"imdh {__version__}\n"


def test_the_shell_can_complete_commands_and_options():
    asked = {"COMP_WORDS": "imdh as", "COMP_CWORD": "1", "_IMDH_COMPLETE": "bash_complete"}
    assert program(env=asked).text.split() == ["plain,assign"]


def test_no_data_and_a_terminal_gives_the_help():
    keyboard, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [*PROGRAM, "fit"], stdin=terminal, capture_output=True, cwd=ROOT, timeout=60, check=False
        )
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"Usage: imdh fit")


# --- pipes and full disks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("imdh assign m.npz - --keep-all < long.csv | head -3", 3),
        ("imdh prune m.npz --table -q | head -1", 1),
        ("imdh report m.npz --json | head -2", 2),
        ("imdh report m.npz | true", 0),
        ("imdh report m.npz --tree | true", 0),
        ("imdh report m.npz --node 1 | true", 0),
        ("imdh assign m.npz - < t.csv | true", 0),
        ("imdh fit --help | true", 0),
    ],
)
def test_a_closed_pipe_is_quiet(folder, line, shown):
    ran = shell(line, folder)
    assert (ran.status, ran.err, len(ran.text.splitlines())) == (0, "", shown)


def test_labels_of_a_stream_come_row_by_row(folder):
    X = np.loadtxt(folder / "t.csv", delimiter=",", skiprows=1, max_rows=2)
    said = imdh("assign", folder / "m.npz", "-", stdin=(folder / "t.csv").read_bytes()).text.split()
    assert said[:3] == ["cluster", *map(str, descend(folder / "m.npz", X).label)]


def test_nobody_listening_to_stderr_does_not_stop_the_work(folder, tmp_path):
    ran = shell(f"imdh fit {folder}/t.csv --n-init 1 -v -o m.npz 2>&1 | true", tmp_path)
    assert ran.status == 0
    assert len(arrays(tmp_path / "m.npz")["counts"]) == 511


@pytest.mark.parametrize(
    ("line", "status", "out", "err"),
    [
        ("imdh prune m.npz --json 2>&-", 0, "{", ""),
        ("imdh report none.npz 2>&-", 4, "", ""),
        ("imdh prune m.npz >&-", 0, "", "3 clusters"),
        ("imdh report m.npz >&-", 1, "", "error: cannot write standard output: bad file descriptor\n"),
        (
            "imdh assign m.npz t.csv -q >&-",
            1,
            "",
            "error: cannot write standard output: bad file descriptor\n",
        ),
        ("imdh prune m.npz - -o n.npz <&-", 3, "", "error: stdin: "),
        ("imdh prune m.npz <&- >&- 2>&-", 0, "", ""),
    ],
)
def test_streams_that_the_shell_has_closed(folder, line, status, out, err):
    ran = shell(line, folder)
    assert ran.status == status
    assert ran.text[:1] == out
    assert ran.err.startswith(err)
    assert len(ran.err.splitlines()) <= 2
    assert (ran.err == "") == (err == "")


def test_what_goes_to_stdout_goes_there_alone(folder):
    """A model on stdout: the summary, as JSON or a table, is on stderr."""
    for words in (["fit", "t.csv", "--json", "-q", "--n-init", 1], ["prune", "m.npz", "--table"]):
        ran = program(*words, "-o", "-", cwd=folder)
        with np.load(io.BytesIO(ran.out), allow_pickle=False) as model:
            assert len(model["counts"]) == 511
        assert ran.err
        assert "wrote -" not in ran.err


@pytest.mark.parametrize(
    "line",
    [
        "imdh assign m.npz t.csv -o /dev/full",
        "imdh assign m.npz t.csv > /dev/full",
        "imdh report m.npz > /dev/full",
        "imdh report m.npz --html - > /dev/full",
        "imdh prune m.npz --table > /dev/full",
        "imdh sql m.npz > /dev/full",
        "imdh fit t.csv -n -q > /dev/full",
        "imdh fit --help > /dev/full",
    ],
)
def test_a_full_device_is_an_error_with_a_hint(folder, line):
    full_device()
    ran = shell(line, folder)
    assert ran.status == 1
    said, hint = ran.err.splitlines()
    assert re.fullmatch("error: cannot write (standard output|/dev/full): no space left on device", said)
    assert hint == "hint: free some space, or write elsewhere"


def test_a_full_disk_leaves_the_old_output(folder, tmp_path):
    (tmp_path / "old.csv").write_text("old")
    (tmp_path / "old.npz").write_bytes((folder / "m.npz").read_bytes())
    ran = shell(f"ulimit -f 8; imdh assign {folder}/m.npz {folder}/t.csv --keep-all -f -o old.csv", tmp_path)
    assert ran.status == 1
    assert "cannot write" in one_line_error(ran.err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.csv", "old.npz"]
    assert (tmp_path / "old.csv").read_text() == "old"


def test_the_same_output_twice_is_refused_without_force(folder, tmp_path):
    out = tmp_path / "l.csv"
    imdh("assign", folder / "m.npz", folder / "t.csv", "-o", out)
    before = out.stat()
    imdh("assign", folder / "m.npz", folder / "t.csv", "-o", out, status=2)
    assert out.stat() == before
    imdh("assign", folder / "m.npz", folder / "t.csv", "-o", out, "--force")
    assert out.stat().st_ino != before.st_ino


def test_an_input_is_never_an_output_under_any_name(folder, tmp_path):
    data = tmp_path / "t.csv"
    data.write_bytes((folder / "t.csv").read_bytes())
    (tmp_path / "link.csv").symlink_to(data)
    os.link(data, tmp_path / "hard.csv")
    for out in ("link.csv", "hard.csv", "t.csv"):
        ran = imdh("assign", folder / "m.npz", data, "-f", "-o", tmp_path / out, status=2)
        assert "is also an input" in one_line_error(ran.err)
    ran = shell(f"imdh assign {folder}/m.npz t.csv >> t.csv", tmp_path)
    assert ran.status == 2
    assert data.read_bytes() == (folder / "t.csv").read_bytes()


# --- signals --------------------------------------------------------------------------------------


class Fed:
    """A program that reads a stream without an end, and is in the middle of it."""

    def __init__(self, *words: object, cwd: Path) -> None:
        self.process = start(
            *words,  # type: ignore[arg-type]
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._text = (cwd / "t.csv").read_bytes()
        self._ending = threading.Event()
        self._read = threading.Event()
        self._feeder = threading.Thread(target=self._feed)
        self._feeder.start()
        assert self._read.wait(60), "it does not read"

    def _feed(self) -> None:
        assert self.process.stdin is not None
        body = self._text[self._text.index(b"\n") + 1 :]
        try:
            self.process.stdin.write(self._text)
            self._read.set()  # more than a pipe holds has been taken
            while not self._ending.is_set():
                self.process.stdin.write(body)
        except (BrokenPipeError, ValueError):
            self._read.set()

    def end(self) -> tuple[int, str]:
        """Wait for it; its status and what it said."""
        assert self.process.stderr is not None
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self._ending.set()
            self._feeder.join()
        said = self.process.stderr.read().decode()
        for stream in (self.process.stdin, self.process.stderr):
            try:
                stream.close()  # type: ignore[union-attr]
            except BrokenPipeError:
                pass
        return self.process.returncode, said


@pytest.mark.parametrize(("command", "number"), [("assign", signal.SIGTERM), ("fit", signal.SIGINT)])
def test_a_signal_leaves_the_old_output_and_no_trace(folder, tmp_path, command, number):
    (tmp_path / "t.csv").symlink_to(folder / "t.csv")
    (tmp_path / "m.npz").symlink_to(folder / "m.npz")
    words = {
        "assign": ["assign", "m.npz", "-", "-f", "-o", "out.parquet"],
        "fit": ["fit", "-", "-f", "-o", "out.npz", "--buffer-rows", 1000],
    }[command]
    out = tmp_path / words[4]
    out.write_text("old")
    fed = Fed(*words, cwd=tmp_path)
    fed.process.send_signal(number)
    status, said = fed.end()
    assert (status, said) == (130, "imdh: interrupted; no file was written\n")
    assert out.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_signal_while_waiting_for_a_silent_stream(folder):
    process = start("assign", "m.npz", "-", cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write((folder / "t.csv").read_bytes()[:2000])
    process.stdin.flush()
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(20) == 130
    finally:
        process.kill()
        said = process.stderr.read()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
    assert said == b"imdh: interrupted; no file was written\n"


def test_a_second_signal_would_end_it_at_once(folder, monkeypatch):
    then: list[object] = []

    def interrupted(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            then.extend([signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)])

    monkeypatch.setattr("imdh_cli.pipeline.prune.reprune", interrupted)
    imdh("prune", folder / "m.npz", "-k", 2, status=130)
    assert then == [signal.SIG_DFL, signal.SIG_DFL]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_signal_ends_it_while_nobody_reads_its_pipe(folder, threads):
    """As in `imdh assign ... | less`, after the first page."""
    words = ["assign", "m.npz", "long.csv", "--batch-rows", 2000, "--threads", threads]
    process = start(*words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as pipe, process.stderr as err:
        assert pipe.read(1)
        time.sleep(1)  # by now the pipe is full
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(20) == 130
        finally:
            process.kill()
        assert b"interrupted" in err.read()


def test_a_signal_while_the_output_is_put_in_place_changes_nothing(folder, tmp_path, monkeypatch):
    from imdh_cli import model

    save = model.save

    def interrupted(*words: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        save(*words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "save", interrupted)
    ran = imdh("prune", folder / "m.npz", "-k", 2, "-o", tmp_path / "two.npz")
    assert "interrupted" not in ran.err
    assert (tmp_path / "two.npz").exists()


LATE = """
import os, signal, sys
from imdh_cli.cli import signals
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)
signals.listen()
signals.keep_status(3)
sys.late = Late()  # goes in the interpreter's last steps
"""


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.kill(os.getpid(), signal.SIGINT); sys.exit(0)"])
def test_a_signal_on_the_way_out_does_not_change_the_status(end):
    done = subprocess.run([sys.executable, "-c", LATE + end], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (3, b"")


def test_an_interruption_within_executed_text_has_the_same_status(tmp_path):
    """Libraries execute text while they are imported."""
    (tmp_path / "interrupted.py").write_text(
        "import sys\nfrom imdh_cli.cli import signals\n"
        "try:\n    exec('raise KeyboardInterrupt')\nexcept KeyboardInterrupt:\n    pass\n"
        "signals.keep_status(130)\nsys.exit(130)\n"
    )
    program = [sys.executable, "-m", "interrupted"]
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    assert subprocess.run(program, cwd=tmp_path, env=env, check=False).returncode == 130


CALLBACK = """
import ctypes, os, signal, sys, time
from imdh_cli.cli import signals
signals.listen()
callback = ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    callback()
    time.sleep(20)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_signal_in_a_callback_of_compiled_code_is_not_lost():
    """Where Python prints what is raised and goes on."""
    done = subprocess.run([sys.executable, "-c", CALLBACK], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


READING = """
import io, os, signal, threading, time
import pyarrow.csv
from click.testing import CliRunner
from imdh_cli.cli.fit import fit
CliRunner().invoke(fit, ["none.csv"])
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
text = io.BytesIO(b"a,b\\n" + b"1.5,2.5\\n" * 100000)
for k in range(60):
    other = threading.Timer(0.0005 * (k % 12), os.kill, (os.getpid(), signal.SIGINT))
    other.start()
    pyarrow.csv.read_csv(text)
    text.seek(0)
    other.join()
    time.sleep(0.001)
    assert len(seen) == k + 1, k
"""


def test_a_signal_while_arrow_reads_is_not_lost():
    done = subprocess.run([sys.executable, "-c", READING], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_stays_ignored_where_the_shell_has_it_ignored(folder, monkeypatch):
    """As for `imdh ... &` in a script."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(str(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))

    monkeypatch.setattr("imdh_cli.pipeline.prune.reprune", broken)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert "RuntimeError: True" in imdh("prune", folder / "m.npz", "-k", 2, status=1).err
    finally:
        signal.signal(signal.SIGINT, before)


CHILD_OF_THE_SUITE = """
import subprocess, sys
import tests.conftest
child = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
sys.exit(subprocess.run([sys.executable, "-c", child], stderr=subprocess.DEVNULL).returncode == 0)
"""


def test_a_suite_in_a_shells_background_can_interrupt_its_programs():
    """Where SIGINT was ignored at the start, and children would inherit that."""
    background = ["bash", "-c", 'trap \'\' INT; exec "$0" "$@"', sys.executable, "-c", CHILD_OF_THE_SUITE]
    assert subprocess.run(background, cwd=ROOT, check=False).returncode == 0
