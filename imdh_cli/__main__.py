"""`imdh`, and `python -m imdh_cli`."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # `typing` takes 5 ms, in which Ctrl-C would still show a traceback
if TYPE_CHECKING:
    from typing import NoReturn


def program() -> NoReturn:
    """Run the command line in a process of its own.

    What it imports takes 0.03 s or more, in which Python would show where Ctrl-C found it.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from imdh_cli.cli.main import program as run

    run()


if __name__ == "__main__":
    program()
