"""What the doctor advises after a failed upload, and while an upload runs."""

from pathlib import Path

import pytest

from appliance.backup.errors import BackupRunning
from appliance.backup.failures import BackupFailure, write_failures
from appliance.kernel.file_lock import file_lock
from appliance.workspace.datadir import DataDir
from tests.support.commands import agentlip
from tests.support.workspaces import Filled

pytestmark = pytest.mark.slow

UPLOAD = "agentlip backup upload"


def hint(workspace: Path) -> str:
    """The hint of the doctor about failed phases of backups; "" without a finding."""
    checked = agentlip("--json", "doctor", "--group", "backup", cwd=workspace).json
    findings = [finding for check in checked["checks"] for finding in check["findings"]]
    hints = [each["hint"] for each in findings if each["check"] == "backup.failures"]
    return hints[0] if hints else ""


def test_hint_of_a_failed_upload_ends_the_finding(tmp_path: Path) -> None:
    workspace, elsewhere = Filled(tmp_path / "workspace").path, tmp_path / "elsewhere"
    target = f'name = "disk"\nurl = "{elsewhere.as_uri()}"\nallow_plain = true\n'
    settings = f"[backup]\nfree_bytes_min = 0\n\n[[backup.targets]]\n{target}"
    (workspace / "agentlip.toml").write_text(settings)
    data = DataDir(workspace)
    agentlip("backup", "create", cwd=workspace)
    refused = agentlip("backup", "upload", cwd=workspace)
    failure = BackupFailure(
        phase="upload", failed_at="2026-11-01T00:00:00.000Z", code="X", error=refused.err
    )
    write_failures(data.backups, [failure])
    assert (refused.code, hint(workspace)) == (18, UPLOAD)
    elsewhere.mkdir()
    (data.dir / "locks").mkdir(exist_ok=True)
    with file_lock(data.dir / "locks" / "backup-disk.lock", BackupRunning()):
        busy = agentlip("backup", "upload", cwd=workspace)
        assert (busy.code, "another process copies" in busy.err) == (12, True)
        assert hint(workspace) == UPLOAD
    assert agentlip(*hint(workspace).split()[1:], cwd=workspace).code == 0
    assert (hint(workspace), len(list(elsewhere.iterdir()))) == ("", 1)
