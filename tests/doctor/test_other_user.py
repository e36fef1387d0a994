"""The doctor as a user who may not use the workspace: it says so, and does not crash."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from doctor.cli import app
from tests.doctor.breakages import UsedWorkspace

NOBODY = 65_534
pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def workspace(copy_used: Callable[[Path], UsedWorkspace]) -> Iterator[UsedWorkspace]:
    """Root's workspace in a folder that all users may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        used = copy_used(folder / "workspace")
        used.data.workspace.chmod(0o755)
        yield used
    finally:
        shutil.rmtree(folder)


def doctor_of(uid: int, workspace: UsedWorkspace, *arguments: str) -> tuple[int, str]:
    """The exit code and the output of the doctor in a process of that user. The same command runs
    before without changes, so that all its modules are loaded."""

    def run(words: Sequence[str] = arguments) -> Any:
        where = ["--workspace", str(workspace.data.workspace)]
        return CliRunner().invoke(app, [*where, *words])

    run([word.replace("--yes", "--dry-run") for word in arguments])
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.close(receiving)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            done = run()
            code = done.exit_code if done.exception is None or done.exit_code != 1 else 98
            text = done.output if code != 98 else repr(done.exception)
            os.write(sending, text.encode()[:60_000])
        finally:
            os._exit(code)
    os.close(sending)
    with os.fdopen(receiving, "rb") as file:
        text = file.read().decode()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), text


@pytest.mark.parametrize("arguments", [("--all",), ("repair", "--yes")])
def test_workspace_that_the_user_may_not_enter_is_refused(
    workspace: UsedWorkspace, arguments: tuple[str, ...]
) -> None:
    code, text = doctor_of(NOBODY, workspace, *arguments)
    assert code == 3, text
    assert "Traceback" not in text
    assert "ermission" in text or "can't" in text


def test_files_that_the_user_may_not_read_are_not_called_lost(workspace: UsedWorkspace) -> None:
    """The directory is open, its files are not."""
    workspace.data.dir.chmod(0o755)
    code, text = doctor_of(NOBODY, workspace, "--json", "--all")
    assert code == 2, text
    checks = {each["check"]: each["findings"] for each in json.loads(text)["checks"]}
    [other] = checks["host.owner"]
    assert (other["subject"], other["problem"]) == (".agentlip", "other-user")
    assert other["hint"].startswith("sudo -u root agentlip doctor --workspace ")
    assert {each["problem"] for each in checks["store.opens"]} == {"unopenable"}
    unexplained = {
        name
        for name, findings in checks.items()
        for each in findings
        if each["severity"] != "info" and not each["explained_by"]
    }
    assert unexplained == {"host.owner", "host.private"}
    assert not [
        each["hint"]
        for findings in checks.values()
        for each in findings
        if "recover" in each["hint"] or "accept-loss" in each["hint"]
    ], "what can't be read is not called lost"


def test_repair_of_another_user_changes_nothing(workspace: UsedWorkspace) -> None:
    workspace.data.dir.chmod(0o755)
    workspace.data.token_file.chmod(0o644)
    code, text = doctor_of(NOBODY, workspace, "repair", "--yes")
    assert code in (2, 3), text
    assert "Traceback" not in text
    assert workspace.data.token_file.stat().st_mode & 0o777 == 0o644
    assert not (workspace.data.dir / "repairs").exists()
