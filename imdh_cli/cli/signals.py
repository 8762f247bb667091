"""SIGINT and SIGTERM: the first one ends the run well, the second one at once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_BOTH = (signal.SIGINT, signal.SIGTERM)
_Handler = Callable[[int, FrameType | None], None]


def listen() -> None:
    """From here on the first signal is a KeyboardInterrupt."""
    on_first(_interrupt)
    atexit.unregister(_ignore)
    atexit.register(_ignore)
    if sys.unraisablehook is sys.__unraisablehook__:  # else somebody else listens
        sys.unraisablehook = _not_raised


def _interrupt() -> None:
    raise KeyboardInterrupt


def _not_raised(lost: Any) -> None:
    """An exception in a callback or a destructor goes nowhere; an interruption comes again, a bit later."""
    if lost.exc_type is KeyboardInterrupt:
        on_first(_interrupt)
        again = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        again.daemon = True
        again.start()
    elif not (lost.exc_type is OSError and "due to race condition" in str(lost.exc_value)):
        # (that one: two signals came at once, and the first has put the system's own handling back)
        sys.__unraisablehook__(lost)


def on_first(then: Callable[[], None]) -> None:
    """From here on the first signal does `then`; after it the system's own handling is back."""

    def first(number: int, frame: FrameType | None) -> None:
        for each in _BOTH:
            signal.signal(each, signal.SIG_DFL)
        then()

    _handle(first)


def finish_first(output: str | None) -> None:
    """From here on the first signal changes nothing: what is left is to put `output` in place.

    A run interrupted there could not say whether a file was written. A pipe has no such moment, and its
    reader may never take what is left.
    """
    from imdh_cli.atomic import is_special

    if output != "-" and (output is None or not is_special(output)):
        on_first(lambda: None)


def keep_status(status: int) -> None:
    """From here on any signal ends at once, with this status: all is done and said."""
    # `python -m` ends by SIGINT itself where text that a library executes was interrupted, though it was
    # caught since; text executed to its end makes it forget that.
    exec("")

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(status)

    _handle(leave)


def _handle(handler: _Handler) -> None:
    for number in _BOTH:
        # `nohup cmd &` in a script ignores SIGINT, and so do we
        if number != signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _ignore() -> None:
    """Python's last steps would put the system's own handling back, and another status with it."""
    for number in _BOTH:
        signal.signal(number, signal.SIG_IGN)
