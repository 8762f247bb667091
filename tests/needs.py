"""What some tests need of a machine beside Python."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(what: str, why: str) -> NoReturn:
    """End a test for want of `browser`, `postgres`, `modes` (a program that file modes hold for), `mount`,
    `full` (the device /dev/full), `x86` (a processor), `views` (Arrow 18, which turns view types into others:
    17 is the oldest that the package runs with), or a program by its name.

    Failed, where IMDH_REQUIRE names it: `.ci/run` names all that it installs and all that the machine can do,
    so that no test drops out there unseen.
    """
    if what in os.environ.get("IMDH_REQUIRE", "").split():
        pytest.fail(f"{why}, and IMDH_REQUIRE names {what}")
    # `make test` has to pass on a bare machine: without root nothing can be installed there, and a container
    # may allow neither mounts nor giving up privileges. To pass there would be to claim what was never seen.
    pytest.skip(why)


def full_device() -> None:
    """End a test where no file can be opened for writing and takes nothing: macOS has none, and a full disk
    takes root to mount."""
    if not os.path.exists("/dev/full"):
        missing("full", "there is no /dev/full")
