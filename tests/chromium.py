"""A headless Chromium for the tests: driven over its debugging pipe, no library needed.

`find` says where one is, `needed` ends a test that has none; `Browser` opens pages and tells what happened:
errors on the console, requests that would leave the machine, what the accessibility tree holds, how wide the
page is.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.needs import missing

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of an installed browser; CHROMIUM names one that stands elsewhere."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


def needed() -> str:
    """The same, for a test that needs one."""
    return find() or missing("browser", "no Chromium is installed (or named by CHROMIUM)")


PLACE = """
import fcntl, os, sys
a, b = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(a, 3)
os.dup2(b, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One browser with one page; a context manager."""

    def __init__(self, path: str, *, timeout: float = 30.0) -> None:
        self._timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="imdh-chromium-", ignore_cleanup_errors=True)
        # The browser reads its orders from descriptor 3 and answers on descriptor 4: a small program
        # puts them there (a shell takes no numbers above 9, and a forked test process warns).
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PLACE, str(to_read), str(to_write), path]
            + ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
            + ["--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"]
            + ["--hide-scrollbars", f"--user-data-dir={self._folder.name}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        os.set_blocking(self._from, False)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self._session = None
            self.send("Browser.close")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One order, and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait for it, on a screen of that size."""
        self.events.clear()
        mobile = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=path.absolute().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of a fragment of JavaScript, which the page itself need not allow."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["text"])
        return result["result"].get("value")

    def complaints(self) -> list[str]:
        """What stands on the console: errors, warnings, refused resources, dialogs."""
        found = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method == "Log.entryAdded":
                found.append(params["entry"]["text"])
            elif method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"])
            elif method == "Runtime.consoleAPICalled":
                found.append(str(params["args"]))
            elif method == "Page.javascriptDialogOpening":
                found.append(params["message"])
        return found

    def requests(self) -> list[str]:
        """Addresses that were asked for, beside the page and what it holds itself."""
        asked = [
            e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith(("file:", "data:"))]

    def accessible(self) -> list[tuple[str, str]]:
        """(role, name) of all that a screen reader meets."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def screenshot(self, path: Path, *, full: bool = True) -> None:
        """A picture of the page, all of it or what the screen shows."""
        result = self.send("Page.captureScreenshot", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(result["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it would be printed."""
        result = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(result["data"]))

    def _receive(self) -> dict[str, Any]:
        """The next message; an event is kept as well."""
        until = time.monotonic() + self._timeout
        while b"\0" not in self._buffer:
            if time.monotonic() > until:
                raise TimeoutError("the browser does not answer")
            try:
                got = os.read(self._from, 1 << 20)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if not got:
                raise RuntimeError("the browser has ended")
            self._buffer += got
        head, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(head)
        if "method" in message:
            self.events.append(message)
        return message
