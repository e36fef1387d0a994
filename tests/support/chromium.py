"""A real browser for tests of pages: headless Chromium over its DevTools protocol.

It runs without a network of its own, in a temporary profile, and ends with the tests.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support.until import until

SECONDS_MAX = 60
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")  # the first takes half the time
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
    "--remote-debugging-port=0", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip
KEYS = {
    "Tab": 9, "Enter": 13, " ": 32, "End": 35, "ArrowUp": 38, "ArrowDown": 40, "Escape": 27,
}  # fmt: skip


class BrowserPage:
    """A tab. `problems` has all console errors and exceptions, `requests` all addresses loaded.
    `beside()` opens another one with the same cookies and storage."""

    def __init__(
        self, socket: ClientConnection, beside: "Callable[[], AbstractContextManager[BrowserPage]]"
    ) -> None:
        self._socket = socket
        self.beside = beside
        self._number = 0
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # beside other tabs

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(
            json.dumps({"id": self._number, "method": method, "params": params}), text=True
        )
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                if "navigated" in message.get("error", {}).get("message", ""):
                    return self.call(method, **params)
                assert "error" not in message, message
                return message["result"]

    def open(self, address: str) -> bool:
        """Go to an address as a person does who pastes it. False: only the part behind the `#` is
        new, so the page that is open stays."""
        self._loaded = False
        is_new = "loaderId" in self.call("Page.navigate", url=address)
        while is_new and not self._loaded:
            self._receive()
        return is_new

    def reload(self) -> None:
        self._loaded = False
        self.call("Page.reload")
        while not self._loaded:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, as a user does."""
        fields = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS.get(key, ord(key[0]))}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **fields)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """`scheme`: light or dark, as the system of the user says. It wants no motion either, so
        that no color is on its way."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=SECONDS_MAX))
        match message.get("method"), message.get("params"):
            case "Page.loadEventFired", _:
                self._loaded = True
            case "Network.requestWillBeSent", params:
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown", params:
                self.problems.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled", params if params["type"] in ("error", "assert"):
                self.problems.append(str(params["args"]))
            case "Log.entryAdded", params if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(params["entry"]["text"])
        return message


@contextmanager
def browser_page() -> Iterator[BrowserPage]:
    """A tab with cookies and storage of its own. Skips the test if there is no Chromium."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        if os.environ.get("CONTAINERS_MUST_RUN") == "1":  # in CI nothing may be left out
            pytest.fail("chromium is missing")
        pytest.skip("chromium is missing; run: apt-get install chromium-headless-shell")
    address, path = _start(program)
    with connect(address + path, max_size=None, ping_interval=None) as browser:
        context = _ask(browser, "Target.createBrowserContext", disposeOnDetach=True)

        @contextmanager
        def tab() -> Iterator[BrowserPage]:
            target = _ask(browser, "Target.createTarget", url="about:blank", **context)["targetId"]
            page = f"/devtools/page/{target}"
            with connect(address + page, max_size=None, ping_interval=None) as socket:
                yield BrowserPage(socket, tab)

        with tab() as first:
            yield first


@cache
def _start(program: str) -> tuple[str, str]:
    """Start the browser of this process, which ends with it. Returns its address and path."""
    profile = Path(tempfile.mkdtemp())
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    # The last one is called first. Debian's program is a script, which would not end the browser.
    atexit.register(shutil.rmtree, profile, ignore_errors=True)
    atexit.register(os.killpg, process.pid, signal.SIGKILL)

    def lines() -> list[str]:
        assert process.poll() is None, "the browser ended"
        file = profile / "DevToolsActivePort"
        return file.read_text().split() if file.exists() else []

    until(lambda: len(lines()) == 2, SECONDS_MAX, "the browser listens")
    port, path = lines()
    return f"ws://127.0.0.1:{port}", path


def _ask(browser: ClientConnection, method: str, **params: Any) -> dict[str, Any]:
    browser.send(json.dumps({"id": 1, "method": method, "params": params}), text=True)
    while (message := json.loads(browser.recv(timeout=SECONDS_MAX))).get("id") != 1:
        pass
    return dict(message["result"])
