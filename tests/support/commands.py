"""Runs our command lines as a user does: other processes, their output, their exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import forkserver

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60
NOT_PASSED = ("AGENTLIP_", "PYTEST_")  # pytest has a variable with the name of the test
FIRST_BACKUP = "AGENTLIP_BACKUP__FIRST_SECONDS"


class CommandOutput:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode("utf-8")
        self.err = err.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<exit {self.code}\nout: {self.out}\nerr: {self.err}>"

    @property
    def json(self) -> Any:
        """Standard output, which must be exactly one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**more: str) -> dict[str, str]:
    """Ours without settings; with TESTS_WITHOUT_FTS5 set, SQLite has no FTS5 there.

    No command finds a workspace in this repository or above it: that one is the user's. What it
    serves makes no backups in the background, unless a test says so: those would take part in
    what tests of load, of kills and of files see.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_PASSED)}
    path = [str(ROOT)]
    if "TESTS_WITHOUT_FTS5" in kept:
        path.insert(0, str(ROOT / "tests" / "support" / "without_fts5"))
    kept["AGENTLIP_CEILING_DIRECTORIES"] = str(ROOT)
    # Any free port: 7464, the default, may be the user's own.
    ours = {"AGENTLIP_HTTP__PORT": "0", FIRST_BACKUP: "1000000"}
    return {**kept, "PYTHONPATH": os.pathsep.join(path), **ours, **more}


def command(name: str, *arguments: str) -> list[str]:
    entry = f"from appliance.cli import {name}; {name}()"
    return [sys.executable, "-c", entry, *map(str, arguments)]


def run(name: str, *arguments: Any, cwd: Path, stdin: bytes = b"", **env: str) -> CommandOutput:
    assert ROOT not in (cwd, *cwd.parents), "a workspace in the repository is the user's"
    words = [name, *map(str, arguments)]
    order = forkserver.Order(f"appliance.cli:{name}", words, str(cwd), environment(**env))
    return _complete("commands", order, command(*words), stdin)


def start_that_ends(workspace: Path, *flags: str) -> CommandOutput:
    """A server that is expected to end by itself."""
    words = ["appliance.server", "--workspace", str(workspace), "--port", "0", *flags]
    order = forkserver.Order("appliance.server:main", words, str(ROOT), environment())
    return _complete("server", order, [sys.executable, "-m", *words])


def _complete(
    kind: str, order: forkserver.Order, command: list[str], stdin: bytes = b""
) -> CommandOutput:
    """Runs the order, or the command if its environment is another one."""
    forks = forkserver.find(kind, environment(), order.variables)
    if forks is not None:
        return CommandOutput(*forks.complete(order, stdin, SECONDS_MAX))
    done = subprocess.run(
        command, input=stdin, capture_output=True, cwd=order.folder, env=order.variables,
        timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    return CommandOutput(done.returncode, done.stdout, done.stderr)


def agentlip(*arguments: Any, cwd: Path, stdin: bytes = b"", **env: str) -> CommandOutput:
    return run("agentlip", *arguments, cwd=cwd, stdin=stdin, **env)


def succeed(*arguments: Any, **more: Any) -> CommandOutput:
    """The output of `agentlip`, whose exit code must be 0."""
    output = agentlip(*arguments, **more)
    assert output.code == 0, output
    return output


def agentlipd(*arguments: Any, cwd: Path, **env: str) -> CommandOutput:
    return run("agentlipd", *arguments, cwd=cwd, **env)
