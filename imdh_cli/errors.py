"""Errors people can act on: one line, one hint, one exit status. Imports nothing of the package."""

from __future__ import annotations

from enum import IntEnum

# In a hint, behind what is piped into the command; `cli.command` makes it the words that were typed.
PIPE = "| imdh ... -"


class ExitStatus(IntEnum):
    """What the shell sees. Documented by `imdh --help`; one test each."""

    DONE = 0
    FAILED = 1  # a bug, a full disk, an output that could not be written, SQL that gives other labels
    USAGE = 2  # the command line is wrong
    DATA = 3  # the input cannot be used as asked
    MODEL = 4  # the model file cannot be used
    DRIFTED = 5  # the rows have drifted from the model, farther than --fail-above allows
    INTERRUPTED = 130  # SIGINT or SIGTERM


class ImdhError(Exception):
    """An expected failure.

    Parameters
    ----------
    message : str
        One line that names the file, row, column and value where they are known.
    hint : str, optional
        What to type instead.
    """

    status = ExitStatus.FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ImdhWarning(UserWarning):
    """What the commands say as a warning, for programs."""


class UsageError(ImdhError):
    """The options contradict each other or the data: exit status 2."""

    status = ExitStatus.USAGE


class DataError(ImdhError):
    """The input cannot be used as asked: exit status 3."""

    status = ExitStatus.DATA


class ModelError(ImdhError):
    """The model file is missing, damaged, hostile or of another format: exit status 4."""

    status = ExitStatus.MODEL


class OutputError(ImdhError):
    """An output could not be written: exit status 1."""

    status = ExitStatus.FAILED


class Drifted(ImdhError):
    """The rows have drifted farther from the model than was allowed: exit status 5."""

    status = ExitStatus.DRIFTED


class Stopped(KeyboardInterrupt):
    """Interrupted, with the state written down: exit status 130.

    Parameters
    ----------
    message, hint : str
        As in `ImdhError`.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
