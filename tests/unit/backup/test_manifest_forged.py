"""A backup that somebody forged: what its manifest, modes and settings can't do."""

import os

import pytest
from msgspec.structs import replace

from appliance.backup import manifest as manifests
from appliance.backup.errors import BackupDamaged
from appliance.backup.manifest import BackupManifest
from tests.support.restored_workspace import BackedUp

FORGED = [
    ("store", ".agentlip/evil.sqlite3"),
    ("store", ".agentlip/token"),
    ("secret", ".ssh/authorized_keys"),
    ("secret", ".agentlip/identity/../../.ssh/authorized_keys"),
    ("secret", "/etc/cron.d/job"),
    ("settings", ".bashrc"),
    ("record", ".agentlip/server.json"),
    ("settings", ".git/hooks/post-checkout"),
    ("record", ".agentlip/backups/../stores.json"),
    ("settings", "package.json"),
]


def sealed(workspace: BackedUp, made: BackupManifest, **fields: object) -> BackupManifest:
    """The backup with another manifest, whose hash is right."""
    forged = replace(made, **fields)
    (workspace.backups.path(made.name) / manifests.FILE).write_bytes(manifests.encode(forged))
    return forged


def test_only_files_that_backups_contain_are_restored(workspace: BackedUp) -> None:
    made = workspace.back_up()
    for kind, path in FORGED:
        sealed(workspace, made, files=(replace(made.files[0], kind=kind, path=path), *made.files))
        with pytest.raises(BackupDamaged, match="don't contain"):
            workspace.backups.read(made.name)
    sealed(workspace, made)
    assert workspace.backups.read(made.name) == made


@pytest.mark.parametrize("text", ["\x1b[2Jgood", "e\u202eno"])
def test_text_of_a_manifest_cannot_control_a_terminal(workspace: BackedUp, text: str) -> None:
    made = workspace.back_up()
    sealed(workspace, made, epoch=text)
    with pytest.raises(BackupDamaged, match="control characters"):
        workspace.backups.read(made.name)


def test_restored_files_have_no_mode_that_the_appliance_does_not_write(workspace: BackedUp) -> None:
    workspace.datadir.settings_file.write_text("[log]\n")
    made = workspace.back_up()
    files = tuple(replace(file, mode=0o7777) for file in made.files)
    workspace.restore(sealed(workspace, made, files=files), revive=True)
    modes = {file.path: os.stat(workspace.datadir.workspace / file.path).st_mode for file in files}
    assert modes.pop("agentlip.toml") & 0o7777 == 0o644
    assert modes.pop(".agentlip/token") & 0o7777 == 0o600
    assert {mode & 0o7777 for mode in modes.values()} == {0o640}
