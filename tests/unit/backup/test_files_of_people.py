"""Job files and plugins are in backups, and a restore brings them back."""

from pathlib import Path

import pytest

from appliance.backup import small_files
from appliance.backup.errors import BackupNotWritable
from tests.support.restored_workspace import BackedUp

FILES = {
    "jobs/nightly.toml": 'command = ["true"]\ncron = "0 2 * * *"\n',
    "plugins/tickets.py": "def enrich(message, config):\n    return []\n",
    "plugins/team/later.py": "VERSION = 1\n",
}


def write(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_lost_job_files_and_plugins_are_restored(workspace: BackedUp) -> None:
    root = workspace.datadir.workspace
    write(root)
    made = workspace.back_up()
    for name in FILES:
        (root / name).unlink()
    (root / "jobs/newer.toml").write_text("")
    done = workspace.restore(made)
    assert {name: (root / name).read_text() for name in FILES} == FILES
    assert set(FILES) <= set(done.plan.added)
    assert (root / "jobs/newer.toml").exists(), "files that the backup lacks are the user's"


def test_too_many_files_are_refused_and_not_left_out(
    workspace: BackedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(workspace.datadir.workspace)
    monkeypatch.setattr(small_files, "_FILES_MAX", 3)
    with pytest.raises(BackupNotWritable, match="more than 3"):
        workspace.back_up()
