"""What all tests share."""

from __future__ import annotations

import os
import signal

# As the program has it: threads of BLAS that wait for one another take ten times as long on busy processors.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is imported

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """IMDH_TEST_PART=1/2: the first of two parts that run side by side, of about the same size."""
    if part := os.environ.get("IMDH_TEST_PART"):
        number, parts = map(int, part.split("/"))
        files = sorted({item.path for item in items}, key=lambda path: (path.stat().st_size, path))
        turns = [i % (2 * parts) for i in range(len(files))]  # there and back
        mine = {
            f for f, turn in zip(files, turns, strict=True) if min(turn, 2 * parts - 1 - turn) == number - 1
        }
        config.hook.pytest_deselected(items=[item for item in items if item.path not in mine])
        items[:] = [item for item in items if item.path in mine]


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory) -> None:
    """The kernel's code is kept already: what a command says depends on no test before it."""
    from tests.cli import blobs, imdh, write

    folder = tmp_path_factory.mktemp("compiled")
    data = write(folder / "t.csv", blobs(300)[0])
    imdh("fit", data, "-o", folder / "m.npz")
    imdh("assign", folder / "m.npz", data, "--with", "runner_up")
    imdh("prune", folder / "m.npz", data)
