"""BACKUPS: what is wrong with backups."""

import os
from typing import Any

from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.failures import BackupFailure, write_failures
from appliance.backup.settings import BackupSettings
from appliance.workspace import swap
from tests.doctor.breakages import HOUR_MS, PEOPLE, Break, Breakage, workspace_now_ms, write
from tests.doctor.workspace import WorkspaceFixture
from tests.support.scheduled_backup import make_backup, verified

_NEW = "only a new backup helps, and it takes as long as it takes"


def sets_of(workspace: WorkspaceFixture) -> BackupDirectory:
    return BackupDirectory(workspace.data, BackupSettings())


def backup(hours_ago: float = 0, result: str = "", checked_hours_ago: float = 0) -> Break:
    """Makes a backup, and a verification of it if there is a `result`."""

    def damage(workspace: WorkspaceFixture) -> None:
        backups, now_ms = sets_of(workspace), workspace_now_ms()
        made = make_backup(backups, now_ms - int(hours_ago * HOUR_MS), "schedule")
        if result:
            verified(backups, made.name, result, now_ms - int(checked_hours_ago * HOUR_MS))

    return damage


def in_newest(change: Any) -> Break:
    """Makes a good backup and calls `change` with its directory."""

    def damage(workspace: WorkspaceFixture) -> None:
        backup(result="good")(workspace)
        backups = sets_of(workspace)
        change(backups.path(backups.newest()))

    return damage


def flipped_in_old_backup(workspace: WorkspaceFixture) -> None:
    """The newer one is whole, and was verified."""
    backup(20)(workspace)
    backups = sets_of(workspace)
    file = backups.path(backups.newest()) / "token"
    file.write_bytes(b"s" + file.read_bytes()[1:])
    backup(1, "good")(workspace)


def old_workspace(workspace: WorkspaceFixture) -> None:
    seconds = workspace_now_ms() / 1000 - 3 * 86_400
    os.utime(workspace.data.token_file, (seconds, seconds))


def failed(workspace: WorkspaceFixture) -> None:
    elsewhere = workspace.data.workspace / "elsewhere"
    elsewhere.mkdir()
    target = f'name = "disk"\nurl = "{elsewhere.as_uri()}"\nallow_plain = true\n'
    write("agentlip.toml", f"[[backup.targets]]\n{target}")(workspace)
    failure = BackupFailure(
        phase="upload", failed_at="2026-11-01T00:00:00.000Z", code="BACKUP_TARGET_FAILED",
        error="the target disk refused it", hint="agentlip backup targets",
    )  # fmt: skip
    write_failures(sets_of(workspace).root, [failure])


def interrupted_restore(workspace: WorkspaceFixture) -> None:
    """Before its commit point, so it is undone."""
    swap.new_folder(workspace.data)


BACKUPS = (
    Breakage("there is no backup", old_workspace, ("backup.age:none",), _NEW),
    Breakage(
        "backup was made while the clock was ahead",
        lambda workspace: (backup(-50, "good", -50)(workspace), backup(1)(workspace)),
        ("backup.age:future",),
        "retention removes it in time",
    ),
    Breakage("backup is old", backup(40, "good"), ("backup.age:old",), _NEW),
    Breakage(
        "backups are switched off",
        write("agentlip.toml", "[backup]\nenabled = false\n"),
        ("backup.age:off",),
        PEOPLE,
    ),
    Breakage("backup is bad", backup(1, "bad"), ("backup.verified:bad",), _NEW),
    Breakage(
        "backup could never be verified",
        backup(1, "inconclusive"),
        ("backup.verified:unproven",),
        "it needs the secret key",
    ),
    Breakage(
        "manifest of a backup is damaged",
        in_newest(lambda path: (path / "manifest.json").write_bytes(b"{")),
        ("backup.whole:unreadable",),
        "what is damaged can't be guessed",
    ),
    Breakage(
        "file of a backup is cut",
        in_newest(lambda path: (path / "token").write_bytes(b"r")),
        ("backup.whole:incomplete",),
        "its content is not known",
    ),
    Breakage(
        "byte of an old backup was flipped",
        flipped_in_old_backup,
        ("backup.content:damaged",),
        "its content is not known",
    ),
    Breakage("upload failed", failed, ("backup.failures:failing",), "the appliance tries again"),
    Breakage(
        "restore was interrupted", interrupted_restore, ("backup.unfinished-restore:interrupted",)
    ),
    Breakage(
        "disk is smaller than the reserve for backups",
        write("agentlip.toml", "[backup]\nfree_bytes_min = 1000000000000000\n"),
        ("backup.space:no-space",),
        PEOPLE,
    ),
)
