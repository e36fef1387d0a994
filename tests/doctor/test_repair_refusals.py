"""Repairs that are refused, or that fail: the data stays as it was."""

import json
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.checks.step import Step
from doctor.derived import DERIVED
from doctor.repair import FAILED, REFUSED, DiskUnusable
from tests.doctor.breakages import skipped_index
from tests.doctor.repairs import (
    apply,
    drop_search,
    in_sql,
    leave_server_file,
    open_token,
    read_elsewhere,
    repair,
)
from tests.doctor.workspace import WorkspaceFixture
from tests.support.database_files import damage_table
from tests.support.smalldisk import small_disk

pytestmark = pytest.mark.usefixtures("some_messages")


def test_refused_step_ends_a_repair_with_an_error_code(workspace: WorkspaceFixture) -> None:
    """Also if the checks find no error: search works without its index, only slower."""
    drop_search(workspace)
    with read_elsewhere(workspace.data.database("hub")):
        result = repair(workspace, "--yes")
        report = json.loads(repair(workspace, "--yes", "--json").stdout)
    assert result.exit_code == 3
    assert result.stdout.endswith("0 steps done; the checks now find problems: 1 (hub.search).\n")
    assert [step["outcome"] for step in report["results"]] == [REFUSED]
    assert [each["check"] for each in report["checks"] if each["findings"]] == ["hub.search"]
    assert "find no problems" in repair(workspace, "--yes").stdout


def test_indexes_are_not_rebuilt_without_a_copy_if_one_is_damaged(
    workspace: WorkspaceFixture,
) -> None:
    """It may contain what its table has lost."""
    skipped_index(workspace)
    in_sql(workspace, "DROP INDEX idx_messages_topic")
    result = repair(workspace, "--run", "store.objects", "--yes")
    assert "[failed]" in result.stdout
    assert "first: agentlip doctor repair rebuild indexes --yes" in result.stdout
    assert workspace.find("store.integrity") != []
    assert repair(workspace, "--all", "--yes").exit_code == 0
    assert workspace.find_all() == []


@pytest.mark.parametrize(
    ("action", "what"), [("vacuum", ""), *(("rebuild", what) for what in DERIVED)]
)
def test_damaged_store_is_never_changed(
    workspace: WorkspaceFixture, action: str, what: str
) -> None:
    workspace.talk(500)
    database = workspace.data.database("hub")
    damage_table(database)
    whole = database.read_bytes()
    step = Step(
        check="x", subject="hub", message="", action=action,
        arguments={"store": "hub", "what": what},
    )  # fmt: skip
    (result,) = apply(workspace, step)
    assert result.outcome == FAILED
    assert "damaged" in result.reason
    assert database.read_bytes() == whole


def test_link_is_never_followed(workspace: WorkspaceFixture, tmp_path: Path) -> None:
    secret = tmp_path / "mounted"
    secret.write_text("token")
    secret.chmod(0o644)
    workspace.data.token_file.unlink()
    workspace.data.token_file.symlink_to(secret)
    (workspace.data.dir / "elsewhere").symlink_to(tmp_path)
    for path in (".agentlip/token", ".agentlip/elsewhere/mounted", "../mounted", str(secret)):
        step = Step(
            check="host.private", subject="token", message="", action="set-mode",
            arguments={"path": path, "mode": "0700"},
        )  # fmt: skip
        (result,) = apply(workspace, step)
        assert result.outcome == FAILED, path
    assert stat.S_IMODE(secret.stat().st_mode) == 0o644


def test_repair_without_space_for_its_copies_is_refused(
    workspace: WorkspaceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_search(workspace)
    usage = SimpleNamespace(free=workspace.data.database("hub").stat().st_size)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    result = repair(workspace, "--yes")
    assert result.exit_code == 3
    assert "nothing was repaired" in result.stderr
    assert not (workspace.data.dir / "repairs").exists()


@pytest.mark.root
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_repair_on_an_unusable_disk_names_the_disk(tmp_path: Path, trouble: str) -> None:
    with small_disk(tmp_path, "tmpfs", 24) as disk:
        workspace = WorkspaceFixture(disk.root / "w")
        workspace.talk()
        open_token(workspace)
        leave_server_file(workspace)
        if trouble == "full":
            disk.fill()
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(disk.root)], check=True)
        result = repair(workspace, "--yes")
        output = result.stdout + result.stderr
        if trouble == "full":
            assert result.exit_code == 3
            assert "the disk is full" in output
        else:  # which explains every finding that a repair could change
            assert result.exit_code == 2
            assert "Nothing to repair" in output
            assert "the file system is read-only" in output
        with pytest.raises(DiskUnusable):
            apply(workspace)
        assert workspace.data.server_file.exists()
