"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

# As the program has it: threads of BLAS that wait for one another take ten times as long on busy processors.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported
# Else each of the three hundred programs that tests start compiles its sources: 0.1 of its 0.5 seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import settings

# A change must not turn red by an example that the change before it was not asked: under CI the examples
# are the same each time; by hand they are new ones. No deadline: processors are shared.
settings.register_profile("short", max_examples=20, deadline=None, derandomize=bool(os.environ.get("CI")))
settings.register_profile("long", settings.get_profile("short"), max_examples=200)
settings.load_profile("short")

# A shell starts a background job with SIGINT ignored, which children inherit: here they can be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def cheap() -> Iterator[None]:
    """What takes time in this process and no test depends on; programs that tests start have it.

    Of few rows four trees are learned by default: here one, since nothing but the choice among several
    (test_restarts.py) depends on their number. A sync of the disk takes 20 ms and matters when power is lost;
    `os.fstat` refuses what `os.fsync` does.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("imdh_cli.core.learn.TREES", 1)
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled(cheap, tmp_path_factory) -> None:
    """The kernel's code is kept already: what a command says depends on no test before it."""
    from tests.cli import blobs, imdh, write

    folder = tmp_path_factory.mktemp("compiled")
    data = write(folder / "t.csv", blobs(300)[0])
    imdh("fit", data, "-o", folder / "m.npz")
    imdh("assign", folder / "m.npz", data, "--with", "runner_up")
    imdh("prune", folder / "m.npz", data)
