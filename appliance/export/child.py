"""Runs the command line in a child process, to keep heavy work off the event loop.

The server uses gevent's `subprocess`, so other greenlets run during the wait.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

import appliance
from appliance.export.settings import ExportSettings
from appliance.kernel.datadir import DataDir
from appliance.kernel.errors import Unavailable

ERRORS_BYTES_MAX = 64 * 1024


class CommandTooSlow(Unavailable):
    code = "CHILD_TOO_SLOW"
    default_message = "the command exceeded its time limit and was stopped"
    default_hint = "request a smaller range, or raise export.report_seconds_max"


class ExportCommandResult(NamedTuple):
    code: int
    out: bytes
    err: bytes


class CommandRunner:
    """Runs `agentlip …` in this workspace with the current settings of [export]."""

    def __init__(self, datadir: DataDir, settings: ExportSettings) -> None:
        self._datadir = datadir
        self._environment = {
            f"AGENTLIP_EXPORT__{name.upper()}": msgspec.json.encode(value).decode()
            for name, value in msgspec.structs.asdict(settings).items()
        }

    def run(self, arguments: Sequence[str], seconds_max: float) -> ExportCommandResult:
        """Run a command and return its output. An interrupted call stops the command."""
        environment = {**os.environ, **self._environment}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        environment["AGENTLIP_WORKSPACE"] = str(self._datadir.workspace)
        process = subprocess.Popen(
            [sys.executable, "-m", appliance.__name__, *arguments, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self._datadir.workspace,
        )
        try:
            out, err = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            raise CommandTooSlow(f"the command was stopped after {seconds_max:g} s") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        return ExportCommandResult(process.returncode, out, err[-ERRORS_BYTES_MAX:])


class CommandError(msgspec.Struct, frozen=True):
    """An error as the command line prints it with --json."""

    error: str = "the command failed without an error message"
    code: str = "INTERNAL_ERROR"
    hint: str = ""


def error_of(done: ExportCommandResult) -> CommandError:
    for line in reversed(done.err.splitlines()):
        try:
            return msgspec.json.decode(line, type=CommandError)
        except msgspec.DecodeError:
            continue
    return CommandError()
