"""DATA as the commands take and open them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from imdh_cli import runtime
from imdh_cli.errors import DataError, ModelError, UsageError
from imdh_cli.option import Given, borrowed
from imdh_cli.params import FeatureParams, Missing, SourceParams

if TYPE_CHECKING:
    from imdh_cli.cli.console import Console
    from imdh_cli.sources import TableSource


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How commands that have a model read DATA."""

    missing: Missing | None = borrowed(FeatureParams, "missing", None, default="as MODEL was fitted")
    source: Given[SourceParams]


def locations_of(
    command: str, data: tuple[str, ...], console: Console, model: str | None = None
) -> tuple[str, ...]:
    """What to read: the arguments; stdin when there are none and it is no terminal.

    Raises
    ------
    UsageError
        At a terminal, after the help page.
    ModelError, DataError
        As `check_data`.
    """
    if not data and _at_terminal():
        click.echo(click.get_current_context().get_help() + "\n", err=True)
        raise UsageError("no DATA were named", "name files or folders, or - for stdin")
    if not data:
        console.say("no DATA were named: reading stdin")
    if "-" in data and _at_terminal():
        console.say("reading what is typed; Ctrl-D ends it")
    check_data(command, data, model)
    return data or ("-",)


def _at_terminal() -> bool:
    return sys.stdin is None or sys.stdin.isatty()


def check_data(command: str, data: Sequence[str], model: str | None = None) -> None:
    """Refuse models among DATA: a slip of the hand that deserves better words than those for any zip.

    Raises
    ------
    ModelError
        When MODEL and DATA were exchanged.
    DataError
        When a model stands where data belong.
    """
    found = next((name for name in data if is_model(name)), None)
    if found is None:
        return
    if model is not None and os.path.isfile(model) and not is_model(model):
        raise ModelError(
            f"{model}: not a model file, but {found} is", f"the model comes first: imdh {command} MODEL DATA"
        )
    usage = "imdh fit DATA" if model is None else f"imdh {command} MODEL DATA"
    raise DataError(f"{found}: this is a model, not data", f"name the data: {usage}")


def is_model(name: str) -> bool:
    """Whether a file is a zip of NumPy arrays with the version of a model among them."""
    if not os.path.isfile(name):
        return False
    try:
        with open(name, "rb") as file:
            head = file.read(64)
    except OSError:
        return False
    if not (head.startswith(b"PK\x03\x04") and b".npy" in head):
        return False
    import zipfile

    try:
        with zipfile.ZipFile(name) as archive:
            return "format_version.npy" in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return b"format_version.npy" in head  # the first entry of a model that was cut


def source_params(given: Given[SourceParams], console: Console) -> SourceParams:
    """The reading options, with no more threads than there are processors."""
    usable = runtime.usable_threads()
    params = given.over(SourceParams(threads=usable))
    if params.threads <= usable:
        return params
    console.note(f"--threads {params.threads}: this process may use {usable}, which is what is used")
    return replace(params, threads=usable)


def opened(locations: Sequence[str], params: SourceParams) -> closing[TableSource]:
    """DATA, for a `with` statement."""
    from imdh_cli import sources

    runtime.settle_arrow(params.threads)
    return closing(sources.open_source(locations, params))
