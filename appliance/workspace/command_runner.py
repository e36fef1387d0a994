"""Runs the command line in a child process, to keep heavy work off the event loop.

The server uses gevent's `subprocess`, so other greenlets run during the wait.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

import appliance
from appliance.kernel.child_environment import child_environment
from appliance.kernel.errors import Unavailable
from appliance.workspace.datadir import DataDir

ERRORS_BYTES_MAX = 64 * 1024
END_SECONDS = 2.0


class CommandTooSlow(Unavailable):
    code = "CHILD_TOO_SLOW"
    default_message = "the command exceeded its time limit and was stopped"
    default_hint = "request a smaller range, or raise the limit in agentlip.toml"


class ChildOutput(NamedTuple):
    code: int
    out: bytes
    err: bytes


class CommandRunner:
    """Runs `agentlip …` in this workspace, with the current settings of one section.

    The command leads a process group, and everything in it is stopped with it.
    """

    def __init__(self, datadir: DataDir, section: str, settings: msgspec.Struct) -> None:
        """`section`: the name of the section of agentlip.toml that `settings` are of."""
        self._datadir = datadir
        self._secrets = section == "backup"  # its targets read the keys of object stores
        self._environment = {
            f"AGENTLIP_{section.upper()}__{name.upper()}": msgspec.json.encode(value).decode()
            for name, value in msgspec.structs.asdict(settings).items()
        }

    def run(
        self,
        arguments: Sequence[str],
        seconds_max: float,
        *,
        niceness: int = 0,
        too_slow_hint: str | None = None,
    ) -> ChildOutput:
        """Run a command and return its output. An interrupted call stops the command.

        niceness       above 0 lowers its CPU priority
        too_slow_hint  the hint of CommandTooSlow
        """
        environment = {**child_environment(secrets=self._secrets), **self._environment}
        environment["AGENTLIP_WORKSPACE"] = str(self._datadir.workspace)
        process = subprocess.Popen(
            [sys.executable, "-m", appliance.__name__, *arguments, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=self._datadir.workspace,
            process_group=0,
        )
        if niceness:
            with suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
        try:
            out, err = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            raise CommandTooSlow(
                f"the command was stopped after {seconds_max:g} s", hint=too_slow_hint
            ) from None
        finally:
            if process.poll() is None:
                _end(process)
        return ChildOutput(process.returncode, out, err[-ERRORS_BYTES_MAX:])


class CommandError(msgspec.Struct, frozen=True):
    """An error as the command line prints it with --json."""

    error: str = "the command failed without an error message"
    code: str = "INTERNAL_ERROR"
    hint: str = ""


def error_of(done: ChildOutput) -> CommandError:
    for line in reversed(done.err.splitlines()):
        try:
            return msgspec.json.decode(line, type=CommandError)
        except msgspec.DecodeError:
            continue
    return CommandError()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Asks the command and its children to end, and kills what is left after END_SECONDS."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
