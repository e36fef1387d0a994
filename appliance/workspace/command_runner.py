"""Runs the command line in a child process, to keep heavy work off the event loop."""

import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

import appliance
from appliance.child.command import CommandResult, Commands
from appliance.kernel.child_environment import child_environment
from appliance.kernel.errors import Unavailable
from appliance.workspace.datadir import DataDir

OUTPUT_BYTES_MAX = 64 * 1024 * 1024  # a report about all channels has some megabytes
ERRORS_BYTES_MAX = 64 * 1024
END_SECONDS = 2.0


class CommandTooSlow(Unavailable):
    code = "CHILD_TOO_SLOW"
    default_message = "the command exceeded its time limit and was stopped"
    default_hint = "request a smaller range, or raise the limit in agentlip.toml"


class CommandRunner:
    """Runs `agentlip …` in this workspace, with one section's current settings.

    Everything that the command started ends with the command.
    """

    def __init__(
        self, datadir: DataDir, section: str, settings: msgspec.Struct, commands: Commands
    ) -> None:
        """Take the section's name in agentlip.toml, and its settings."""
        self._datadir = datadir
        self._commands = commands
        # Backup targets read the object store keys.
        self._environment = child_environment(secrets=section == "backup")
        self._environment["AGENTLIP_WORKSPACE"] = str(datadir.workspace)
        for name, value in msgspec.structs.asdict(settings).items():
            variable = f"AGENTLIP_{section.upper()}__{name.upper()}"
            self._environment[variable] = msgspec.json.encode(value).decode()

    def run(
        self,
        arguments: Sequence[str],
        seconds_max: float,
        *,
        niceness: int = 0,
        too_slow_hint: str | None = None,
    ) -> CommandResult:
        """Run a command and return its output. An interrupted call stops the command.

        niceness       above 0 lowers the CPU priority
        too_slow_hint  the hint of CommandTooSlow
        """
        done = self._commands.run(
            [sys.executable, "-Pm", appliance.__name__, *arguments, "--json"],
            b"",
            self._environment,
            folder=self._datadir.workspace,
            seconds_max=seconds_max,
            kill_after_seconds=END_SECONDS,
            output_bytes_max=OUTPUT_BYTES_MAX,
            errors_bytes_max=ERRORS_BYTES_MAX,
            niceness=niceness,
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
