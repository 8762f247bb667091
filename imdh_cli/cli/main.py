"""The entry point: `imdh COMMAND`. The only code that ends the program, with a documented status."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from typing import NoReturn, TextIO

import click

from imdh_cli import runtime
from imdh_cli.cli import signals
from imdh_cli.cli.help import HELP, ExamplesGroup
from imdh_cli.errors import ExitStatus, ImdhError, Stopped
from imdh_cli.version import __version__

COMMANDS = {
    "fit": "Learn clusters in one pass over the data; write the model.",
    "prune": "Choose the number of clusters again, without data.",
    "assign": "Label every row by a model.",
    "report": "Show what was found.",
    "sql": "Write the labels as SQL, for a database.",
}


@click.group(
    cls=ExamplesGroup,
    commands_help=COMMANDS,
    invoke_without_command=True,
    context_settings=HELP | {"max_content_width": 100},
    examples="""
    imdh fit data.parquet -o model.npz            # learn the tree, choose the number of clusters
    imdh report model.npz                         # what was found
    imdh assign model.npz data.parquet -o labels.csv --keep id
    imdh prune model.npz -k 12                    # another number of clusters, no data needed
    zcat big.csv.gz | imdh fit - -o model.npz     # streams, too
    """,
    epilog="""
    Exit status: 0 done, 1 failed (a full disk, an output that cannot be written, other labels in sql --check,
    a bug), 2 the command line is wrong, 3 the data cannot be used as asked, 4 the model file cannot be used,
    5 the rows have drifted farther than --fail-above allows, 130 interrupted. Outputs appear whole or not at
    all.

    Environment: NUMBA_CACHE_DIR, a folder for compiled code instead of the package's or the user's cache;
    TMPDIR, for streams that are read more than once; NO_COLOR.

    \b
    Completion: eval "$(_IMDH_COMPLETE=bash_source imdh)"    in ~/.bashrc; zsh_source in ~/.zshrc
                _IMDH_COMPLETE=fish_source imdh | source     in ~/.config/fish/config.fish
    """,
)
@click.version_option(__version__, "-V", "--version", prog_name="imdh", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Cluster tables that do not fit in memory.

    One pass learns a tree of minimum density hyperplanes; a small model file keeps it; a second pass
    labels the rows. Memory does not grow with the rows.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


class _WithoutPandas:
    """pyarrow imports pandas with the first array that it makes of Python values, which takes 0.3 s; commands
    have no use for it."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def program() -> NoReturn:
    """`main` in a process of its own."""
    sys.meta_path.insert(0, _WithoutPandas())
    try:
        main()
    finally:
        gc.freeze()  # the process ends: to look for garbage once more would take 0.02 s


def main() -> NoReturn:
    """Run the command line and exit with a status of `errors.ExitStatus`."""
    _open_closed_streams()
    try:
        signals.listen()
        _start_light()
        status = _outcome()
    except KeyboardInterrupt:  # while something else was being told
        status = ExitStatus.INTERRUPTED
    _leave(status)


def _outcome() -> int:
    """Run the command line; tell what went wrong. The status to exit with."""
    debug = "--debug" in sys.argv[1:]
    try:
        _run()
        sys.stdout.flush()
        return ExitStatus.DONE
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        _tell(error.format_message(), _usage_hint(error))
        return ExitStatus.USAGE
    except click.ClickException as error:
        _tell(error.format_message(), None)
        return ExitStatus.USAGE
    except Stopped as stopped:
        _tell(stopped.message, stopped.hint, kind="imdh")
        return ExitStatus.INTERRUPTED
    except (KeyboardInterrupt, click.Abort):
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write("\n")  # after the terminal's ^C
        _tell("interrupted; no file was written", None, kind="imdh")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout)
        return ExitStatus.DONE
    except ImdhError as error:
        if debug:
            _traceback()
        _tell(error.message, error.hint)
        return error.status
    except MemoryError:
        _tell("out of memory", "use a smaller --buffer-rows or --depth, or fewer columns")
        return ExitStatus.FAILED
    except OSError as error:  # reading and writing files ends in an ImdhError: this is stdout, or the system
        if debug:
            _traceback()
        _silence(sys.stdout)
        if error.filename:
            _tell(f"{error.filename}: {error.strerror or error}", None)
        else:
            _tell_unwritten(error)
        return ExitStatus.FAILED
    except Exception as error:
        if debug:
            _traceback()
        text = " ".join(str(error).split())[:300]
        _tell(
            f"a bug in imdh: {type(error).__name__}: {text}",
            "run the command again with --debug, and report what it prints to the maintainers",
        )
        return ExitStatus.FAILED


def _run() -> None:
    """As click's own `main`, which takes a closed pipe for a failure and an EOFError for Ctrl-C."""
    if "_IMDH_COMPLETE" in os.environ:  # the shell asks what could be typed next
        cli.main(prog_name="imdh", standalone_mode=False)
        return
    with cli.make_context("imdh", sys.argv[1:]) as context:
        cli.invoke(context)


def _start_light() -> None:
    """Three settings for what is imported from here on: 0.04 of the 0.58 processor seconds of a short run,
    and 0 to 9 % of those of a fit of 4 million rows of 20.

    Modules are made of objects that stay, so that looking among them for garbage finds none; and nothing
    here multiplies matrices large enough for NumPy's BLAS to need a thread for each processor. Arrow takes
    all memory with jemalloc: while it is loaded is the only time to say so for the pages of Parquet files.
    """
    gc.set_threshold(200_000, 20, 20)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if runtime.arrow_has_jemalloc():
        os.environ.setdefault(runtime.ARROW_MEMORY, "jemalloc")


def _open_closed_streams() -> None:
    """What the shell has closed (`<&-`, `2>&-`) is opened as nothing, before a file takes its number.

    Nothing can be read from it; it takes messages; but labels written to a closed stdout are an error.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def _tell(message: str, hint: str | None, *, kind: str = "error") -> None:
    with contextlib.suppress(OSError, ValueError):
        from imdh_cli.words import printable

        sys.stderr.write(f"{kind}: {printable(message)}\n")
        if hint:
            sys.stderr.write(f"hint: {printable(hint)}\n")
        sys.stderr.flush()


def _tell_unwritten(error: OSError) -> None:
    from imdh_cli.atomic import unwritten

    said = unwritten("standard output", error)
    _tell(said.message, said.hint)


def _usage_hint(error: click.UsageError) -> str:
    for word in sys.argv[1:]:
        if word.startswith("-") and len(word) > 1 and os.path.exists(word):
            return f"a file whose name starts with - is given as ./{word}"
    if error.ctx is not None:
        return f"see {error.ctx.command_path} --help"
    # click's parser does not say whose option lacks its value.
    command = next((word for word in sys.argv[1:2] if word in COMMANDS), None)
    return f"see imdh {command} --help" if command else "see imdh --help"


def _traceback() -> None:
    import traceback

    traceback.print_exc()


def _silence(stream: TextIO) -> None:
    """Python flushes once more on its way out: to a pipe that is closed, or that nobody reads."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _leave(status: int) -> NoReturn:
    """Exit; what stdout still holds and cannot take is a failure, not a traceback."""
    if status == ExitStatus.INTERRUPTED:
        _silence(sys.stdout)
        if any(thread.daemon for thread in threading.enumerate()):
            os._exit(status)  # a thread that waits for a pipe nobody reads would hold Python's own exit up
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(sys.stdout)
    except OSError as error:
        _silence(sys.stdout)
        if status == ExitStatus.DONE:  # else the error is known already
            _tell_unwritten(error)
        status = ExitStatus.FAILED
    try:
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody reads it: Python's own last flush would make the status 120
        _silence(sys.stderr)
    signals.keep_status(int(status))
    sys.exit(int(status))


if __name__ == "__main__":
    main()
