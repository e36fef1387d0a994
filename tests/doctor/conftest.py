"""The workspace that the product made and used: once for all tests, copied for each."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doctor.breakages import UsedWorkspace
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
