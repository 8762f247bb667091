"""Running a command and striking it: kills, signals, closed pipes, full disks, at a chosen moment.

Linux only: /proc tells when a program handles signals and when it is writing.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.benchmarks import common

HUNG = 120.0  # seconds after which a run is called hung
KILL, TERM, INT, TWICE = "kill -9", "SIGTERM", "SIGINT", "a second signal"
FULL, LIMIT, DEVICE, PIPE, NONE = "full disk", "size limit", "full device", "closed pipe", "no fault"


@dataclass(frozen=True)
class Job:
    """A command. output: a name in the folder it runs in, or "-"; words tell it, too."""

    name: str
    words: tuple[str, ...]
    output: str
    stdin: Path | None = None

    @property
    def checkpointed(self) -> bool:
        return "--checkpoint" in self.words

    @property
    def faults(self) -> tuple[str, ...]:
        """Which can strike it."""
        return (KILL, TERM, INT, TWICE, *((PIPE, DEVICE) if self.output == "-" else (FULL, LIMIT)))


@dataclass(frozen=True)
class End:
    """How a run ended. status: negative for a signal. out: what was read of its standard output."""

    status: int
    out: bytes
    err: str


@dataclass
class Strike:
    """One fault for one run.

    now : strike a little after something begins to be written, else anywhere
    share : of the run's usual time, or of its output's size, at which it fault_injection
    extra : 0 to 1, the little time after
    """

    fault: str
    now: bool
    share: float
    extra: float


class Runner:
    """Runs jobs in a folder under a strike. seconds, size: of each job when nothing happens."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.seconds: dict[str, float] = {}
        self.whole: dict[str, Content] = {}
        self.size: dict[str, int] = {}
        self._env = os.environ | {"PYTHONPATH": str(common.ROOT), "TMPDIR": str(scratch)}

    def run(self, job: Job, folder: Path, strike: Strike) -> End:
        """Start, strike, wait."""
        room = int(strike.share * self.size.get(job.name, 0)) if strike.fault in (FULL, LIMIT) else None
        limited: Callable[[], None] | None = None
        if strike.fault == FULL:
            resize(folder, used(folder) + (room or 0))
        elif strike.fault == LIMIT:
            bound = max(1, room or 0)

            def limited() -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))

        target: Any = subprocess.PIPE if job.output == "-" else subprocess.DEVNULL
        if strike.fault == DEVICE:
            target = os.open("/dev/full", os.O_WRONLY)
        said = self.scratch.parent / "stderr"
        with open(job.stdin or os.devnull, "rb") as source, open(said, "wb") as err:
            process = subprocess.Popen(
                [*common.IMDH, *job.words],
                cwd=folder,
                env=self._env,
                stdin=source,
                stdout=target,
                stderr=err,
                preexec_fn=limited,
            )
            try:
                out = self._strike(process, job, folder, strike)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return End(-signal.SIGALRM, b"", "it hung")
            finally:
                if strike.fault == DEVICE:
                    os.close(target)
                if strike.fault == FULL:
                    resize(folder, None)
        return End(process.returncode, out, said.read_text(errors="replace"))

    def _strike(self, process: subprocess.Popen[bytes], job: Job, folder: Path, strike: Strike) -> bytes:
        """Wait for the moment, strike, wait for the end; what was read of its output meanwhile."""
        read: list[bytes] = []
        reader = None
        if process.stdout is not None:
            most = self._part(job, strike) if strike.fault == PIPE else -1
            reader = threading.Thread(target=_read, args=(process.stdout, most, read))
            reader.start()
        if strike.fault in (KILL, TERM, INT, TWICE):
            until(process, lambda: listens(process.pid))
            if strike.now:
                until(process, lambda: bool(read) or writes(process.pid, folder))
            pause = strike.extra * 0.2 if strike.now else strike.share * self.seconds[job.name]
            try:
                process.wait(pause)
            except subprocess.TimeoutExpired:
                first = {KILL: signal.SIGKILL, TERM: signal.SIGTERM}.get(strike.fault, signal.SIGINT)
                process.send_signal(first)
                if strike.fault == TWICE:
                    time.sleep(strike.extra * 0.05)
                    process.send_signal(signal.SIGINT)
        process.wait(HUNG)
        if reader is not None:
            reader.join()
        return b"".join(read)

    def _part(self, job: Job, strike: Strike) -> int:
        return int(strike.share * self.size[job.name])

    def measure(self, job: Job, folder: Path) -> bytes:
        """A run that nothing happens to: how long it takes, what it writes; its standard output."""
        start = time.perf_counter()
        end = self.run(job, folder, Strike(NONE, False, 0, 0))
        if end.status != 0:
            raise SystemExit(f"{job.name} ends with {end.status} by itself: {end.err}")
        self.seconds[job.name] = time.perf_counter() - start
        path = folder / job.output
        self.whole[job.name] = digest(end.out) if job.output == "-" else content(path)
        self.size[job.name] = len(end.out) if job.output == "-" else used(path)
        return end.out


def _read(pipe: IO[bytes], most: int, into: list[bytes]) -> None:
    """Read to the end, or so many bytes, then close."""
    with pipe:
        while most and (data := os.read(pipe.fileno(), 1 << 16 if most < 0 else min(most, 1 << 16))):
            into.append(data)
            most -= len(data) if most > 0 else 0


def until(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    """Wait until it is so, or the process has ended."""
    late = time.monotonic() + HUNG
    while process.poll() is None and not ready():
        if time.monotonic() > late:
            raise subprocess.TimeoutExpired(process.args, HUNG)
        time.sleep(0.002)


def listens(pid: int) -> bool:
    """Does the process handle SIGTERM by now? Before it does, the system ends it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    mask = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def writes(pid: int, folder: Path) -> bool:
    """Has the process a file open in the folder, with a name or without?"""
    start = str(folder.resolve()) + "/"
    try:
        for link in os.scandir(f"/proc/{pid}/fd"):
            if os.readlink(link.path).startswith(start):
                return True
    except OSError:  # it ended, or has just closed it
        pass
    return False


def resize(folder: Path, size: int | None) -> None:
    """Give the file system at `folder` so many bytes (whole pages); None: plenty."""
    pages = -(-(size or 1 << 28) // resource.getpagesize()) + 2  # a folder's own pages
    option = f"remount,size={pages * resource.getpagesize()}"
    subprocess.run(["mount", "-o", option, folder], check=True)


# --- what stands in a folder

Content = str | dict[str, str] | None  # the digest of a file, of each file in a folder; nothing there


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content(path: Path) -> Content:
    """What stands at a path."""
    if path.is_dir():
        inside = [p for p in sorted(path.rglob("*")) if p.is_file()]
        return {str(p.relative_to(path)): digest(p.read_bytes()) for p in inside}
    return digest(path.read_bytes()) if path.exists() else None


def used(path: Path) -> int:
    """Bytes in a file or folder, in whole pages."""
    page = resource.getpagesize()
    files = [p for p in ([path] if path.is_file() else path.rglob("*")) if not p.is_symlink()]
    return sum(-(-p.stat().st_size // page) * page for p in files)
