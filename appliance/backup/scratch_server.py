"""Runs a real server process on a restored copy, read-only, on 127.0.0.1, for this process only.

The server has separate settings and no inherited environment, so nothing that the copy names is
read, called or delivered to. The system ends the server with the parent process.
"""

import http.client
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from appliance import syscalls
from appliance.backup.deadline import Deadline, Inconclusive
from appliance.backup.errors import BackupLibraryMissing
from appliance.kernel.child_environment import child_environment
from appliance.kernel.clock import Clock
from appliance.sdk.discovery import Endpoint, ask_health, fetch
from appliance.workspace.datadir import DataDir

SECONDS_READY_MAX = 120.0
SECONDS_STOP_MAX = 10.0
SECONDS_REPLY_MAX = 60.0
POLL_SECONDS = 0.05
_BODY_BYTES_MAX = 256 * 1024 * 1024
_LOG_BYTES_MAX = 64 * 1024
_SERVER_MODULES = ("falcon", "gevent", "gunicorn", "peewee")
_NOT_OF_THE_COPY = ("STORAGE_FULL", "DATA_DIR_NOT_WRITABLE", "PORT_TAKEN")
"""Error codes that do not concern the restored files."""


class ServerFailed(Exception):
    """A server that doesn't start on the copy or doesn't serve the copy; the text explains why."""


def check_installed() -> None:
    """Check the installation. Raises BackupLibraryMissing for the light part of Agentlip."""
    missing = [name for name in _SERVER_MODULES if find_spec(name) is None]
    if missing:
        raise BackupLibraryMissing(
            f"a backup is verified by a server, which is not installed: {', '.join(missing)}"
        )


class ScratchServer:
    """A server that is ready inside `with ScratchServer(…) as server:` and ended behind the
    block.

    Raises ServerFailed, and Inconclusive if the server is killed by a signal or takes too long.
    """

    def __init__(self, scratch: DataDir, clock: Clock, deadline: Deadline) -> None:
        self._scratch = scratch
        self._clock = clock
        self._deadline = deadline
        self._settings = scratch.dir / "verify.toml"
        self._log = scratch.dir / "verify.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._endpoint: Endpoint | None = None
        self.db_id = ""

    def __enter__(self) -> Self:
        self._settings.write_text("[roles]\nmcp = false\n")
        self._scratch.server_file.unlink(missing_ok=True)
        token = self._scratch.read_token()
        if token is None:
            raise ServerFailed("the backup has no token, so no client could use the copy")
        self._process = self._spawn()
        try:
            self._endpoint = self._ready(self._process, token)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def get(self, target: str) -> bytes:
        """Return a response body with status 200. Raises ServerFailed or Inconclusive."""
        assert self._endpoint is not None
        self._deadline.check()
        try:
            status, body = fetch(self._endpoint, target, SECONDS_REPLY_MAX, _BODY_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            self._check_alive()
            self._deadline.check()
            raise ServerFailed(f"the server stopped responding: {error}") from None
        if status != 200:
            text = body[:200].decode("utf-8", "replace")
            raise ServerFailed(f"the server responds with {status}: {text}")
        return body

    def _spawn(self) -> subprocess.Popen[bytes]:
        inherited = child_environment().items()
        kept = {name: value for name, value in inherited if not name.startswith("AGENTLIP_")}
        arguments = [
            sys.executable, "-Pm", "appliance.server", "--workspace", str(self._scratch.workspace),
            "--config", str(self._settings), "--host", "127.0.0.1", "--port", "0",
            "--no-limits", "--read-only",
        ]  # fmt: skip
        parent = os.getpid()
        with self._log.open("wb") as log:
            return subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept,
                cwd=self._scratch.workspace,
                preexec_fn=lambda: _end_with(parent),
            )

    def _ready(self, process: subprocess.Popen[bytes], token: str) -> Endpoint:
        until = self._clock.monotonic() + min(SECONDS_READY_MAX, self._deadline.left())
        while self._clock.monotonic() < until:
            self._check_alive()
            server = self._scratch.read_server()
            if server is not None and server.pid == process.pid and server.port:
                endpoint = Endpoint("127.0.0.1", server.port, token=token)
                health = ask_health(endpoint)
                if health is not None and health.instance_id == server.instance_id:
                    self.db_id = health.db_id
                    return endpoint
            _pause(process)
        self._deadline.check()
        raise Inconclusive(f"the server was not ready after {SECONDS_READY_MAX:g} s")

    def _check_alive(self) -> None:
        code = None if self._process is None else self._process.poll()
        if code is None:
            return
        if code < 0:
            raise Inconclusive(f"the server was ended by {signal.Signals(-code).name}")
        lines = last_lines(self._log)
        if any(f'"code":"{code}"' in line for code in _NOT_OF_THE_COPY for line in lines):
            raise Inconclusive(f"the server can't run here: {reason(lines)}")
        raise ServerFailed(f"the server does not run on the copy: {reason(lines)}")

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(SECONDS_STOP_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _pause(process: subprocess.Popen[Any]) -> None:
    """Wait a moment, or less if the process ends."""
    try:
        process.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return


def _end_with(parent: int) -> None:
    """Run in the child, before the child becomes the server."""
    syscalls.die_with_parent()
    if os.getppid() != parent:  # ended already
        os._exit(1)


def last_lines(log: Path) -> list[str]:
    return log.read_bytes()[-_LOG_BYTES_MAX:].decode("utf-8", "replace").splitlines()


def reason(lines: list[str]) -> str:
    """Return the error that the server printed last."""
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return (errors or lines or ["it printed no error"])[-1]
