"""Root in a workspace of another user, who decides where its names point to."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import agentlip, agentlipd
from tests.support.workspaces import Filled

EVE = 65_534
pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def eves() -> Iterator[Path]:
    """A workspace of another user, in a folder that all users may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        agentlipd("down", "--workspace", folder, cwd=Path("/"))
        shutil.rmtree(folder)


def give_away(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, EVE, EVE)


def test_root_does_not_start_in_a_workspace_of_another_user(eves: Path) -> None:
    Filled(eves)
    give_away(eves)
    before = sorted(eves.rglob("*"))
    for words in (["up"], ["up", "--foreground"]):
        done = agentlipd(*words, "--workspace", eves, cwd=Path("/"))
        assert done.code == 4, done
        assert f"{eves} belongs to nobody" in done.err
        assert f"sudo -u nobody agentlipd up --workspace {eves}" in done.err
    assert sorted(eves.rglob("*")) == before
    assert agentlipd("up", "--as-root", "--workspace", eves, cwd=Path("/")).code == 0


def test_root_makes_no_workspace_in_a_folder_of_another_user(eves: Path) -> None:
    give_away(eves)
    for done in (agentlip("init", cwd=eves), agentlipd("up", cwd=eves)):
        assert done.code == 4, done
    assert not list(eves.iterdir())


@pytest.mark.parametrize("name", ["logs/agentlipd.log", "logs", "token"])
def test_start_as_root_follows_no_link_of_another_user(
    eves: Path, tmp_path: Path, name: str
) -> None:
    """Whether it starts or not: the file that the link points to stays as it was."""
    data = Filled(eves).datadir.dir
    victim = tmp_path / "victim"
    link = data / name
    if link.is_dir():
        shutil.rmtree(link)
        victim.mkdir(mode=0o755)
    else:
        link.unlink(missing_ok=True)
        victim.write_text("root's own\n")
    victim.chmod(0o755)
    link.symlink_to(victim)
    give_away(eves)
    agentlipd("up", "--as-root", "--workspace", eves, cwd=Path("/"))
    assert victim.stat().st_mode & 0o777 == 0o755
    assert [*victim.iterdir()] == [] if victim.is_dir() else victim.read_text() == "root's own\n"
