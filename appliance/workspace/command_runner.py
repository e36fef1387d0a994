"""Runs the command line in a child process, to keep heavy work off the event loop."""

import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

import appliance
from appliance.kernel.child_environment import child_environment
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import Unavailable
from appliance.kernel.subprocess_runner import CommandResult, run
from appliance.workspace.datadir import DataDir

OUTPUT_BYTES_MAX = 64 * 1024 * 1024  # a report of all channels has some megabytes
ERRORS_BYTES_MAX = 64 * 1024
END_SECONDS = 2.0


class CommandTooSlow(Unavailable):
    code = "CHILD_TOO_SLOW"
    default_message = "the command exceeded its time limit and was stopped"
    default_hint = "request a smaller range, or raise the limit in agentlip.toml"


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
    ) -> CommandResult:
        """Run a command and return its output. An interrupted call stops the command.

        niceness       above 0 lowers its CPU priority
        too_slow_hint  the hint of CommandTooSlow
        """
        environment = {**child_environment(secrets=self._secrets), **self._environment}
        environment["AGENTLIP_WORKSPACE"] = str(self._datadir.workspace)
        done = run(
            [sys.executable, "-m", appliance.__name__, *arguments, "--json"],
            b"",
            environment,
            folder=self._datadir.workspace,
            seconds_max=seconds_max,
            kill_after_seconds=END_SECONDS,
            output_bytes_max=OUTPUT_BYTES_MAX,
            errors_bytes_max=ERRORS_BYTES_MAX,
            niceness=niceness,
            clock=SystemClock(),
        )
        if done.timed_out:
            raise CommandTooSlow(
                f"the command was stopped after {seconds_max:g} s", hint=too_slow_hint
            )
        if done.code is None or done.truncated:
            raise Unavailable("the command could not be started, or its output is too long")
        return done


class CommandError(msgspec.Struct, frozen=True):
    """An error as the command line prints it with --json."""

    error: str = "the command failed without an error message"
    code: str = "INTERNAL_ERROR"
    hint: str = ""


def error_of(done: CommandResult) -> CommandError:
    for line in reversed(done.errors.splitlines()):
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(line, type=CommandError)
    return CommandError()
