"""The workspace that the product made and used: once for all tests, copied for each."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.checks.check import Finding, Problem
from tests.doctor.breakages import UsedWorkspace
from tests.doctor.printed_hints import check_hint
from tests.doctor.used import use
from tests.doctor.workspace import WorkspaceFixture


@pytest.fixture
def some_messages(workspace: WorkspaceFixture) -> None:
    """The workspace has some messages, all of them indexed."""
    workspace.talk(5)
    workspace.index()


@pytest.fixture(scope="session")
def used_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("used") / "workspace"
    use(path)
    return path


@pytest.fixture
def copy_used(used_once: Path) -> Callable[[Path], UsedWorkspace]:
    """Copies it to a path that does not exist yet."""

    def copy(path: Path) -> UsedWorkspace:
        shutil.copytree(used_once, path, symlinks=True)
        return UsedWorkspace(path)

    return copy


@pytest.fixture
def used(copy_used: Callable[[Path], UsedWorkspace], tmp_path: Path) -> UsedWorkspace:
    return copy_used(tmp_path / "workspace")


@pytest.fixture(autouse=True)
def hints_can_be_parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every hint of a finding in these tests names a command that exists, with what it needs."""
    hints: set[str] = set()
    make = Problem.finding

    def finding(*args: Any, **more: Any) -> Finding:
        made = make(*args, **more)
        hints.add(made.hint)
        return made

    monkeypatch.setattr(Problem, "finding", finding)
    yield
    for hint in sorted(hints):
        check_hint(hint)
