"""An appliance of our own: started for a measurement, stopped after it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.bench.client import NOW, Http, encode
from tests.bench.machine import ROOT
from tests.bench.target import RowFailed, Target, of_workspace

# As shipped, but for the rate limits: raised far above the load, not switched off, so that
# their work is still done; and but for the first backup, which is measured by its own suite.
SETTINGS = {
    "AGENTLIP_LIMITS__PER_CONNECTION": "1000000",
    "AGENTLIP_LIMITS__GLOBAL": "1000000",
    "AGENTLIP_STORE__SYNCHRONOUS": "FULL",
    "AGENTLIP_HUB__MAX_RETOPIC_BATCH": "10000",  # P8 moves as many
    "AGENTLIP_BACKUP__ENABLED": "false",
}
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0


class Served:
    """A context: `target` is good inside. `started_ms` is from the spawn to health."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.started_ms = 0.0
        self.target: Target

    def __enter__(self) -> "Served":
        self.workspace.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "appliance.server", "--port", "0"]
        with self._log.open("ab") as log:
            began = NOW()
            self._process = subprocess.Popen(
                [*command, "--workspace", str(self.workspace)],
                cwd=ROOT, env=environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        try:
            self.target = self._wait_until_healthy(began)
        except BaseException:
            self._end()
            raise
        self.started_ms = (NOW() - began) * 1000
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if error is None and self._process.returncode != 0:
            raise RowFailed(f"the server ended with {self._process.returncode}: {self._tail()}")

    @property
    def _log(self) -> Path:
        return self.workspace / "server.log"

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-1000:]

    def _wait_until_healthy(self, began: float) -> Target:
        while NOW() - began < START_SECONDS_MAX:
            if self._process.poll() is not None:
                raise RowFailed(f"the server did not start: {self._tail()}")
            with suppress(OSError, ValueError, KeyError, RowFailed):
                target = of_workspace(self.workspace)
                if target.pid == self._process.pid and is_healthy(target):
                    return target
            time.sleep(0.001)
        raise RowFailed(f"not healthy within {START_SECONDS_MAX:g} s: {self._tail()}")

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_healthy(target: Target) -> bool:
    connection = Http(target)
    try:
        status, _ = connection.ask(encode(target, "GET", "/health"))
    finally:
        connection.close()
    return status == 200


def environment() -> dict[str, str]:
    """Ours, without settings of the appliance that happen to be in it."""
    inherited = {name: value for name, value in os.environ.items() if "AGENTLIP_" not in name}
    return {**inherited, **SETTINGS, "PYTHONPATH": str(ROOT)}
