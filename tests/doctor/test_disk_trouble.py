"""On a full or read-only disk the doctor names the cause first and advises nothing else."""

import os
import shutil
import subprocess

import pytest

from appliance.checks.check import Severity
from doctor import clear
from tests.doctor.backup_breakages import backup
from tests.doctor.breakages import UsedWorkspace, server_file
from tests.doctor.workspace import HEALTHY_STORE, WorkspaceFixture
from tests.support.commands import agentlip
from tests.support.servedhub import ServedHub
from tests.support.smalldisk import small_disk


def remount(disk, *options):
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(disk.root)], check=True)


def assert_cause_first(findings, words):
    """Notes aside: the first finding is the disk, and only the machine's rows advise anything. The
    appliance is not ready."""
    serious = [finding for finding in findings if finding.severity is not Severity.INFO]
    assert (serious[0].check, serious[0].severity) == ("host.disk", Severity.CRITICAL)
    assert words in serious[0].message
    assert serious[0].hint
    advised = [
        finding for finding in serious if finding.hint and not finding.check.startswith("host.")
    ]
    assert not advised
    assert not [
        finding for finding in serious if "snapshot" in finding.hint or "cp " in finding.hint
    ]


@pytest.mark.root
@pytest.mark.parametrize(("kind", "leftover"), [("ext4", True), ("tmpfs", False)])
def test_read_only_disk_is_the_cause(tmp_path, kind, leftover):
    with small_disk(tmp_path, kind, 24) as disk:
        workspace = WorkspaceFixture(disk.root / "w")
        workspace.talk()
        if leftover:  # commits of a crash wait in a log that can't be opened for reading now
            log = workspace.data.database("hub").with_name("db.sqlite3-wal")
            log.write_bytes(b"\0" * 4096)
        remount(disk, "ro")
        assert_cause_first(workspace.find_all(), "read-only")
        if not leftover:
            assert workspace.find("store.opens") == []
            assert workspace.find("store.whole") == []
            assert not clear.clear_suspect(workspace.data, "hub")


@pytest.mark.root
def test_read_only_disk_is_the_only_problem_of_a_workspace_with_everything(tmp_path, used_once):
    with small_disk(tmp_path, "tmpfs", 256) as disk:
        workspace = disk.root / "w"
        shutil.copytree(used_once, workspace, symlinks=True)
        with ServedHub(workspace).running():  # which leaves nothing in the logs of the stores
            pass
        before = checks_with_findings(workspace)
        remount(disk, "ro")
        assert checks_with_findings(workspace) - before == {"host.disk"}


@pytest.mark.root
def test_read_only_disk_explains_what_nobody_can_write(tmp_path, used_once):
    """The appliance was killed, its backup is old, and the next one has no space."""
    with small_disk(tmp_path, "tmpfs", 256) as disk:
        workspace = UsedWorkspace(disk.root / "w")
        shutil.copytree(used_once, workspace.data.workspace, symlinks=True, dirs_exist_ok=True)
        server_file(pid=999_999_999)(workspace)
        backup(hours_ago=400)(workspace)
        filler = disk.root / "filler"
        with filler.open("wb") as file:
            file.truncate(0)
            os.posix_fallocate(file.fileno(), 0, 150 * 1024 * 1024)
        before = {each.check for each in workspace.find_all()}
        assert {"host.server-file", "backup.age", "backup.space"} <= before
        remount(disk, "ro")
        findings = [each for each in workspace.find_all() if each.severity is not Severity.INFO]
        assert {each.check for each in findings if not each.explained_by} == {"host.disk"}
        causes = {each.check: each.explained_by for each in findings}
        for check in ("host.server-file", "backup.age"):
            assert causes[check] == "host.disk:read-only"


def checks_with_findings(workspace):
    report = agentlip("doctor", "--all", "--json", cwd=workspace).json
    return {row["check"] for check in report["checks"] for row in check["findings"]}


@pytest.mark.root
def test_read_only_disk_below_a_workspace_served_read_only_leaves_it_ready(tmp_path):
    with small_disk(tmp_path, "tmpfs", 24) as disk:
        workspace = WorkspaceFixture(disk.root / "w")
        remount(disk, "ro")
        for served, severity in ((0.0, Severity.CRITICAL), (1.0, Severity.ERROR)):
            workspace.live = {"hub.read_only": served}
            assert [each.severity for each in workspace.find("host.disk")] == [severity]


def test_paused_writing_is_explained_by_the_disk(tmp_path):
    """It is not called full: the disk of this test has space, so something else is wrong."""
    workspace = WorkspaceFixture(tmp_path)
    with workspace.running({**HEALTHY_STORE, "writing_paused": 1.0, "writer_alive": 0.0}):
        assert_cause_first(workspace.find_all(), "writing is paused, although")
        assert {finding.subject for finding in workspace.find("store.writer")} == {"hub"}
