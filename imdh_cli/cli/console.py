"""What commands say on stderr: notes, progress on a terminal, summaries."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imdh_cli.option import option
from imdh_cli.words import printable, speed_in_words

if TYPE_CHECKING:
    from imdh_cli.pipeline.feature_rows import Progress


@dataclass(frozen=True)
class OutputOptions:
    """What any command writes, and how much it says."""

    force: bool = option(False, "Replace an output that exists.", "-f", "--force", neutral=True)
    quiet: bool = option(False, "No summary, notes or progress; errors only.", "-q", "--quiet", neutral=True)
    verbose: bool = option(False, "Tell more: files, columns, caches.", "-v", "--verbose", neutral=True)
    debug: bool = option(False, "Show the traceback of an error.", neutral=True)
    no_progress: bool = option(False, "No progress display.", neutral=True)
    no_color: bool = option(False, "No colours (as with NO_COLOR set).", neutral=True)


class Console:
    """stderr, as quiet or talkative as asked. Nothing here is data; data go to stdout."""

    def __init__(self, o: OutputOptions) -> None:
        self.quiet = o.quiet
        self.verbose = o.verbose and not o.quiet
        terminal = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._progress = terminal and not self.quiet and not o.no_progress
        self._color = terminal and not o.no_color and not os.environ.get("NO_COLOR")
        self._display: Any = None
        self._task: Any = None
        self._name = ""
        self._told: set[str] = set()

    def say(self, text: str) -> None:
        """One line."""
        if not self.quiet:
            self._write(printable(text))

    def note(self, text: str, *, warning: bool = False) -> None:
        """One line that a person may need, said once."""
        if self.quiet or text in self._told:
            return
        self._told.add(text)
        kind = "warning" if warning else "note"
        mark = f"\x1b[33m{kind}:\x1b[0m" if self._color else f"{kind}:"
        self._write(f"{mark} {printable(text)}")

    def detail(self, text: str) -> None:
        """One line for --verbose."""
        if self.verbose:
            self._write(printable(text))

    def _write(self, line: str) -> None:
        try:
            if self._display is not None:
                self._display.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                print(line, file=sys.stderr, flush=True)
        except OSError:  # nobody listens (`2>&1 | head -1`), or there is no room: the work goes on
            self.quiet = True

    def on_progress(self) -> Callable[[Progress], None] | None:
        """The callback for `pipeline`, or None where nobody would see it."""
        return self._advance if self._progress else None

    def _advance(self, p: Progress) -> None:
        if self._display is None:
            self._open()
        fraction = None
        if p.total_rows:
            fraction = p.rows / p.total_rows
        elif p.size:
            fraction = p.read / p.size
        if p.task != self._name:
            self._name, self._started = p.task, time.monotonic()
            if self._task is not None:
                self._display.remove_task(self._task)
            self._task = self._display.add_task(p.task, total=None, rows="", speed="")
        elapsed = time.monotonic() - self._started
        speed = speed_in_words(p.rows / elapsed) if elapsed > 0.2 else ""
        self._display.update(
            self._task,
            completed=min(fraction, 1.0) if fraction is not None else None,
            total=1.0 if fraction is not None else None,
            rows=f"{p.rows:,} rows",
            speed=speed,
        )

    def _open(self) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._started = time.monotonic()
        self._display = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rows]}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=RichConsole(stderr=True, no_color=not self._color),
            transient=True,
        )
        self._display.start()

    def close(self) -> None:
        """Take the progress display away."""
        if self._display is not None:
            self._display.stop()
            self._display = self._task = None
            self._name = ""

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
