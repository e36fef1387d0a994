"""A real served appliance in a workspace of its own on 127.0.0.1, stopped by its pid."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from appliance.kernel.clock import SystemClock
from appliance.kernel.log import Log
from appliance.workspace.datadir import DataDir
from appliance.workspace.schema import create_workspace
from tests.support import forkserver
from tests.support.commands import ROOT, environment
from tests.support.forkserver import ForkedProcess
from tests.support.until import until

STOP_SECONDS_MAX = 20

PORT_TAKEN = 2  # the server's exit code


class HubProcess:
    """One server process after another in one workspace."""

    probe = "/-/ready"  # what answers 200 when it has started

    def __init__(self, workspace: Path, *flags: str) -> None:
        self.datadir = DataDir(workspace)
        self.flags = flags
        self.environment: dict[str, str] = {}
        self.constants: dict[str, Any] = {}  # dotted names of the code and other values
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        create_workspace(
            self.datadir, clock=SystemClock(), log=Log(sys.stderr.buffer, level="error")
        )
        self.log = workspace / "server.log"

    @property
    def workspace(self) -> Path:
        return self.datadir.workspace

    @property
    def url(self) -> str:
        server = self.datadir.read_server()
        assert server is not None
        return f"http://127.0.0.1:{server.port}"

    @property
    def token(self) -> str:
        return self.datadir.read_token() or ""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *more: str) -> None:
        """Starts it and returns when it is ready."""
        self._spawn(more)
        until(lambda: self._ready_or_again(more), 60, "the server is ready")

    @contextmanager
    def running(self, *more: str, ending: int = signal.SIGTERM) -> Iterator[Self]:
        """It runs while the block does, unless that has ended it before."""
        try:
            self.start(*more)
            yield self
        finally:
            self._end(ending)

    def _spawn(self, more: tuple[str, ...]) -> None:
        arguments = ["--workspace", str(self.workspace), "--port", "0", *self.flags, *more]
        variables = environment(**self.environment)
        forks = forkserver.find("server", environment(), variables)
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            if forks is not None:
                order = forkserver.Order(
                    "appliance.server:main",
                    ["appliance.server", *arguments],
                    str(ROOT),
                    variables,
                    self.constants,
                )
                self.process = forks.fork(order, (nothing.fileno(), log.fileno(), log.fileno()))
                return
            program = ["appliance.server"]
            if self.constants:
                program = ["tests.support.server_with_constants", json.dumps(self.constants)]
            self.process = subprocess.Popen(
                [sys.executable, "-m", *program, *arguments], stdout=log, stderr=log, env=variables
            )

    def _ready_or_again(self, more: tuple[str, ...]) -> bool:
        """A port that it had before may be held for a moment by a connection of somebody's."""
        if more[:1] == ("--port",) and self.process.poll() == PORT_TAKEN:
            self._spawn(more)
        return self._ready()

    def stop(self) -> int:
        """Ends it as an operator does; its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as reply:
            return msgspec.json.decode(reply.read())

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """The whole log after an event, page by page."""
        events: list[dict[str, Any]] = []
        while True:
            page = self.request("GET", f"/api/v1/events?after={after}&limit=1000")["events"]
            if not page:
                return events
            events += page
            after = page[-1]["event_id"]

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")[-4000:]
        server = self.datadir.read_server()
        if server is None or server.pid != self.process.pid:
            return False
        try:
            with urllib.request.urlopen(f"{self.url}{self.probe}", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            return process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)
            raise


@contextmanager
def served(workspace: Path, *flags: str) -> Iterator[HubProcess]:
    """A hub that runs while the block does."""
    with HubProcess(workspace, *flags).running() as hub:
        yield hub
