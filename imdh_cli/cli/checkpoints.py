"""`imdh fit --checkpoint` and `--resume`: a run that can be stopped, and gone on with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imdh_cli.cli.signals import on_first
from imdh_cli.errors import UsageError
from imdh_cli.option import option, parameters
from imdh_cli.params import SourceParams

if TYPE_CHECKING:
    from imdh_cli.cli.console import Console
    from imdh_cli.pipeline.checkpoint import Checkpoint

SECONDS = 60.0  # between two checkpoints of a run that goes on from one


@dataclass(frozen=True)
class CheckpointOptions:
    """Whether a run writes its state down, and whether it starts from one."""

    checkpoint: float | None = option(
        None,
        "Write the state to OUTPUT.checkpoint so often; it holds rows of the data.",
        min=0,
        above=True,
        metavar="SECONDS",
    )
    resume: bool = option(False, "Go on from OUTPUT.checkpoint where an earlier run left one.")


def open_checkpoint(o: CheckpointOptions, output: str, identity: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint of this run, if one is asked for or gone on from.

    Parameters
    ----------
    identity : what must be the same for another run to go on, by what it is called

    Raises
    ------
    UsageError, DataError
        When the one to go on from is of other options or data.
    """
    if o.checkpoint is None and not o.resume:
        return None
    if output == "-":
        raise UsageError("--checkpoint and --resume need an output with a name", "name it with -o FILE")
    from imdh_cli.pipeline.checkpoint import Checkpoint

    seconds = SECONDS if o.checkpoint is None else o.checkpoint
    return Checkpoint(_path(output), seconds, identity, resume=o.resume)


def went_on(o: CheckpointOptions, output: str) -> bool:
    """Whether an output may be there: a run was killed between writing it and removing its checkpoint."""
    return o.resume and os.path.exists(_path(output))


def report_stale(console: Console, o: CheckpointOptions, output: str, *, dry_run: bool) -> None:
    """A checkpoint of an earlier run that this one does not go on from: it holds rows of the data."""
    path = _path(output)
    if o.resume or output == "-" or not os.path.exists(path):
        return
    if o.checkpoint is not None and not dry_run:
        console.note(f"{path} of an earlier run is replaced; --resume would have gone on from it")
    else:
        console.note(f"{path} holds rows of an earlier run: --resume goes on from it, or remove it")


def report_found(console: Console, checkpoint: Checkpoint, o: CheckpointOptions) -> None:
    """From where this run starts."""
    if checkpoint.found is not None:
        console.say(f"going on from {checkpoint.path}")
    elif o.resume:
        console.note(f"there is no {checkpoint.path} to go on from: starting from the beginning")


def end_with(checkpoint: Checkpoint) -> None:
    """From here on the first signal writes a checkpoint and ends; the next one ends at once."""

    def first() -> None:
        checkpoint.stop = True

    on_first(first)


def _path(output: str) -> str:
    """Beside the output."""
    return f"{output}.checkpoint"


def reading_identity(params: SourceParams) -> dict[str, Any]:
    """All that decides which rows are read, and what they say."""
    return {p.name: getattr(params, p.name) for p in parameters(SourceParams) if not p.option.neutral}


def input_identity(location: str) -> dict[str, Any]:
    """What tells one input from another without reading it; a folder by all that lies in it."""
    if location == "-" or "://" in location:
        return {"name": location}
    found = {"name": os.path.abspath(location)}
    if os.path.isdir(location):
        files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(location) for name in names)
        return found | {"files": [_file_identity(path) for path in files]}
    return found | _file_identity(location)


def _file_identity(path: str) -> dict[str, Any]:
    try:
        status = os.stat(path)
    except OSError:  # a pattern; what it matches is told by its name
        return {}
    return {"file": os.path.basename(path), "bytes": status.st_size, "changed": status.st_mtime_ns}
