"""A run under way <-> a file beside its output, from which the same command goes on.

The file holds all that learning goes on from, the rows in the shuffle buffer among it: it is written with
owner-only permissions and removed when the run ends well. Rows before the point it was taken at are read
again and passed over, since their order is the same each time.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np

from imdh_cli.core.learn import Position, Snapshot
from imdh_cli.errors import DataError, ModelError, Stopped, UsageError
from imdh_cli.model import npz
from imdh_cli.words import listing

VERSION = 3


class Checkpoint:
    """Writes a snapshot every so many seconds, and finds the one an earlier run left.

    Parameters
    ----------
    path : str
    seconds : float
        Between two writings, at most.
    identity : dict
        What must be the same for another run to go on: parameters, features, inputs.
    resume : bool
        Whether to go on from the file that is there.

    Raises
    ------
    UsageError, DataError
        When there is one to go on from, but of other options or data, or damaged.
    """

    def __init__(self, path: str, seconds: float, identity: dict[str, Any], *, resume: bool) -> None:
        self.path = path
        self.stop = False  # set by a signal: write at the next chance, then end
        self._seconds = seconds
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._last = time.monotonic()
        self.found = self._load() if resume and os.path.exists(path) else None

    def due(self) -> bool:
        """Is it time to write?"""
        return self.stop or time.monotonic() - self._last >= self._seconds

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot in place of the last one; ends the run if it was asked to stop."""
        head = {"version": VERSION, "identity": self._identity}
        head |= {"position": snapshot.position, "values": snapshot.values}
        text = np.array(json.dumps(head, allow_nan=False))
        npz.write_arrays(self.path, {"checkpoint": text, **snapshot.arrays}, force=True, mode=0o600)
        self._last = time.monotonic()
        if self.stop:
            raise Stopped(
                f"interrupted; what was learned so far is in {self.path}",
                "the same command with --resume goes on from there",
            )

    def remove(self) -> None:
        """The run ended well."""
        if os.path.exists(self.path):
            os.remove(self.path)

    def _load(self) -> Snapshot:
        hint = f"to start from the beginning, remove {self.path}"
        try:
            with npz.open_arrays(self.path) as file:
                head = json.loads(str(file.read("checkpoint")))
                self._compare(head, hint)
                arrays = {name: file.read(name) for name in file.headers if name != "checkpoint"}
            counting, epoch, rows = head["position"]
            position = Position(bool(counting), int(epoch), int(rows))
            return Snapshot(position, dict(head["values"]), arrays)
        except (ModelError, KeyError, ValueError, TypeError) as error:
            raise DataError(f"{self.path}: the checkpoint is damaged", hint) from error

    def _compare(self, head: dict[str, Any], hint: str) -> None:
        if head["version"] != VERSION:
            raise UsageError(f"{self.path}: a checkpoint of another version of imdh", hint)
        theirs = head["identity"]
        for kind, mine in self._identity.items():
            if theirs.get(kind) != mine:
                what = _difference(theirs.get(kind), mine)
                error = DataError if kind == "inputs" else UsageError
                raise error(f"{self.path}: the checkpoint is of other {kind}: {what}", hint)


def _difference(theirs: Any, mine: Any, name: str = "") -> str:
    """The first place where two plain values differ, in words."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in [*theirs, *(k for k in mine if k not in theirs)]:
            if theirs.get(key) != mine.get(key):
                return _difference(theirs.get(key), mine.get(key), f"{name}.{key}" if name else key)
    if isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        for a, b in zip(theirs, mine, strict=True):
            if a != b:
                return _difference(a, b, name)
    text = f"{_plainly(theirs)} there, {_plainly(mine)} here"
    return f"{name} {text}" if name else text


def _plainly(value: Any) -> str:
    """A value in a message; of columns their names."""
    if isinstance(value, list):
        named = (item["name"] if isinstance(item, dict) and "name" in item else item for item in value)
        return listing(list(map(str, named)), 5)
    return str(value)
