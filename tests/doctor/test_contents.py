"""Every file and folder of a workspace is in the list that backups, checks and `recover` use."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.kernel.store_declaration import DECLARATIONS, path_of
from appliance.workspace.contents import CONTENTS
from appliance.workspace.datadir import BESIDE
from doctor.all_checks import CHECKS
from doctor.checks.leftovers import TEMPORARY
from tests.doctor.breakages import UsedWorkspace
from tests.support.commands import succeed
from tests.support.servedhub import ServedHub

pytestmark = pytest.mark.slow


def is_known(path: str) -> bool:
    names = [path, *(path.removesuffix(end) for end in BESIDE if path.endswith(end))]
    return any(row.matches(name) for row in CONTENTS for name in names)


def unknown(workspace: Path) -> list[str]:
    """The files, sockets and empty folders that no row names."""
    strangers = []
    for path in workspace.rglob("*"):
        name, is_folder = path.relative_to(workspace).as_posix(), path.is_dir()
        if is_folder and any(path.iterdir()):
            continue
        if not (is_known(f"{name}/" if is_folder else name) or TEMPORARY.fullmatch(path.name)):
            strangers.append(name)
    return strangers


def test_every_file_of_a_used_workspace_is_in_the_list(
    copy_used: Callable[[Path], UsedWorkspace], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("c")  # the path of a socket has at most 107 bytes
    used = copy_used(folder / "w")
    root = used.data.workspace
    (root / "server.log").unlink()
    settings = "[http]\nunix_socket = true\n[roles]\nrelay = true\n"
    hub = ServedHub(root, "--no-limits", settings=settings)
    hub.log = folder / "server.log"
    with hub.running():
        succeed("backup", "create", cwd=root)
        succeed("bus", "export", cwd=root)
        assert unknown(root) == []
        assert stat.S_ISSOCK(hub.datadir.socket_file.stat().st_mode)
    used.data.database("inbox").write_bytes(b"")
    for command in (
        ("doctor", "repair", "rebuild", "indexes", "--yes"),
        ("backup", "restore", "--latest", "--yes"),
    ):
        succeed(*command, cwd=root)
    assert unknown(root) == []
    named = [row for row in CONTENTS if any(row.find(root))]
    assert len(named) > len(DECLARATIONS) + 12, "the workspace was not used"
    (root / ".agentlip/forgotten.json").write_text("{}")
    (root / ".agentlip/network/anna/diary").mkdir()
    assert unknown(root) == [".agentlip/forgotten.json", ".agentlip/network/anna/diary"]


def test_rows_name_checks_that_exist_and_stores_have_texts() -> None:
    checks = {check.name for check in CHECKS}
    assert [name for row in CONTENTS for name in row.checks if name not in checks] == []
    assert {path_of(store) for store in DECLARATIONS} <= {row.path for row in CONTENTS}
    assert [row.path for row in CONTENTS if not row.contents] == []
    assert len({row.path for row in CONTENTS}) == len(CONTENTS)
    assert [row.path for row in CONTENTS if row.kind and row.kind != "blob" and not row.checks] == [
        ".agentlip/network/*/key.next", ".agentlip/epochs.json",
    ]  # fmt: skip
