"""Hints are followed as an operator follows them, in a shell, until their findings are gone."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.checks.check import Finding
from doctor.run import examine, select
from tests.doctor.breakages import LOST, Breakage, UsedWorkspace
from tests.doctor.test_breakages import BREAKAGES, named, serious
from tests.support.commands import agentlipd, environment, succeed

pytestmark = pytest.mark.slow

FOLLOWED_MAX = 6
SECONDS_MAX = 120
PROGRAMS = ("agentlip", "agentlipd", "chmod", "chown", "mkdir", "mv", "rm", "ls", "timedatectl")
ENDLESS = (
    "settings are not TOML", "settings contradict each other", "settings of another implementation",
    "secret file is missing", "logs are large", "schema of a newer program",
    "migration was changed", "column was added", "clock was set", "clock is behind",
    "a rate limit that refuses normal use", "message was inserted", "send is a dead letter",
    "successor of a send is missing", "copy of a member was refused",
    "send waits for long",
)  # fmt: skip
"""Breakages whose findings no command ends: people decide, or wait."""


HINT = re.compile(r"(?m)^Hint: (.+)$")
CONFUSED = (
    "unknown store", "is not damaged; nothing was changed", "Traceback", "No such command",
    "No such option", "not found", "syntax error", "unexpected argument",
)  # fmt: skip


@pytest.fixture(scope="session")
def kept_once(used_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The used workspace with a verified backup."""
    path = tmp_path_factory.mktemp("kept") / "workspace"
    shutil.copytree(used_once, path, symlinks=True)
    for arguments in (("create",), ("verify", "--latest")):
        succeed("backup", *arguments, cwd=path)
    return path


@pytest.fixture
def of_row(
    row: Breakage, used_once: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[UsedWorkspace]:
    """Where only a copy helps, the operator has one."""
    origin = request.getfixturevalue("kept_once") if row.unrepaired == LOST else used_once
    path = tmp_path / "workspace"
    shutil.copytree(origin, path, symlinks=True)
    yield UsedWorkspace(path)
    agentlipd("down", cwd=path)


def findings_of(workspace: UsedWorkspace) -> list[Finding]:
    with workspace.context() as context:
        outcomes = examine(context, select([], True))
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    return [finding for finding in serious(findings) if not finding.explained_by]


def command_of(hint: str) -> str:
    """The hint, or what follows its last colon if words are before it; "" without a command."""
    for text in (hint, hint.rpartition(": ")[2]):
        if text.split(" ")[0] in PROGRAMS:
            return text
    return ""


def run(command: str, workspace: UsedWorkspace) -> str:
    """What the command printed."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["sh", "-c", command], cwd=workspace.data.workspace, env=environment(PATH=path),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    return f"$ {command}\n{done.stdout}{done.stderr}(exit code {done.returncode})\n"


def follow(workspace: UsedWorkspace) -> tuple[list[Finding], str]:
    """The findings that are left when no hint is new, and what was printed. The hint of a command
    that refuses is followed too."""
    followed: list[str] = []
    printed = ""
    for _ in range(FOLLOWED_MAX):
        findings = findings_of(workspace)
        commands = (command_of(finding.hint) for finding in findings)
        refused = HINT.findall(printed.rpartition("\n$ ")[2])
        hints = (*map(command_of, refused), *commands)
        command = next((each for each in hints if each and each not in followed), None)
        if command is None:
            return findings, printed
        followed.append(command)
        output = run(command, workspace)
        if "agentlipd up" in output and not workspace.context().lock().held:
            run("agentlipd up", workspace)
            output += run(command, workspace)
        printed += output
    pytest.fail(f"the hints don't end:\n{printed}")


@pytest.mark.parametrize("row", BREAKAGES, ids=lambda row: row.name.replace(" ", "-"))
def test_following_the_hints_ends_the_findings(row: Breakage, of_row: UsedWorkspace) -> None:
    row.damage(of_row)
    left, printed = follow(of_row)
    assert not [word for word in CONFUSED if word in printed], printed
    if row.name not in ENDLESS:
        assert named(left) == set(), f"{left}\n{printed}"
