"""Backups are copied to targets: completely or not at all, continued after every interruption."""

import math
import os
from collections.abc import Iterable

import msgspec
import pytest

from appliance.backup import targets
from appliance.backup.errors import BackupRunning, TargetFailed, TargetUnreachable
from appliance.backup.settings import TargetSettings
from appliance.backup.target import BackupTarget
from appliance.backup.targets import TargetReport
from appliance.backup.upload import upload_backup
from appliance.backup.upload_state import read_state
from appliance.kernel.file_lock import file_lock
from tests.support.backup_targets import PassedTarget, TargetBackups

FILES = {"hub.sqlite3.zst.age": os.urandom(3500), "small": b"x", "empty": b""}


class Breaking(PassedTarget):
    """Fails at the given write, before or after it."""

    def __init__(self, real: BackupTarget, at: int, after: bool) -> None:
        super().__init__(real)
        self._at, self._after = at, after
        self.written: list[str] = []

    def write(self, name: str, content: Iterable[bytes]) -> None:
        self.written.append(name)
        due = len(self.written) == self._at
        if due and not self._after:
            raise TargetUnreachable("cut before")
        super().write(name, content)
        if due:
            raise TargetUnreachable("cut after")


def report(local: TargetBackups) -> TargetReport:
    """With every byte compared of the backups that are there."""
    target = local.settings.targets[0]
    seen = targets.report(local.work, target)
    real = local.open()
    for name in seen.backups:
        for file in (local.backups.path(name) / each for each in FILES):
            assert b"".join(real.read(f"{name}/{file.name}")) == file.read_bytes()
    return seen


def upload_through(local: TargetBackups, breaking: Breaking, name: str) -> None:
    upload_backup(local.work, name, breaking, allow_plain=False, ends=math.inf)


def test_copied_backup_is_present_and_whole(local: TargetBackups) -> None:
    name = local.add(FILES)
    assert local.upload().copied == (name,)
    seen = report(local)
    assert (seen.state, seen.backups, seen.missing) == ("ok", (name,), ())
    state = read_state(local.datadir.backups, "offsite")
    assert (state.newest, state.problem) == (name, "")
    assert seen.last_upload == state.finished_at != ""
    assert local.upload().copied == ()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 5))  # three files, the manifest
def test_upload_that_breaks_at_any_write_does_not_count_and_continues(
    local: TargetBackups, at: int, after: bool
) -> None:
    name = local.add(FILES)
    real = local.open()
    breaking = Breaking(real, at, after)
    with pytest.raises(TargetUnreachable):
        upload_through(local, breaking, name)
    if not (after and at == 4):
        assert report(local).backups == ()
    again = Breaking(real, 0, after)
    upload_through(local, again, name)
    assert not set(breaking.written[: at - 1]) & set(again.written)
    seen = report(local)
    assert (seen.state, seen.backups) == ("ok", (name,))


def test_file_that_is_gone_after_it_was_sent_is_noticed(local: TargetBackups) -> None:
    name = local.add(FILES)
    real = local.open()

    class Losing(Breaking):
        def write(self, name: str, content: Iterable[bytes]) -> None:
            super().write(name, content)
            if name.endswith("small"):
                self.remove(name)

    with pytest.raises(TargetFailed, match="but stored other bytes"):
        upload_through(local, Losing(real, 0, False), name)
    assert report(local).backups == ()
    assert local.upload().copied == (name,)
    assert report(local).state == "ok"


def test_locally_damaged_backup_is_not_copied(local: TargetBackups) -> None:
    bad, good = local.add(FILES), local.add(FILES, day=1)
    file = local.backups.path(bad) / "small"
    file.write_bytes(b"y")
    done = local.upload()
    assert (done.code, done.copied) == ("BACKUP_DAMAGED", (good,))
    with pytest.raises(TargetFailed) as caught:
        targets.raise_failures([done])
    assert caught.value.details["targets"][0]["copied"] == (good,)
    assert report(local).backups == (good,)
    assert read_state(local.datadir.backups, "offsite").problem == done.problem


def test_plain_backups_are_copied_only_if_the_target_allows_it(
    local: TargetBackups, target: TargetSettings
) -> None:
    old, new = local.add(FILES, encrypted=False), local.add(FILES, day=1)
    assert (local.upload().copied, local.upload().problem) == ((new,), "")
    plain = local.add(FILES, day=2, encrypted=False)
    assert local.upload().code == "BACKUP_PLAIN_REFUSED"
    local.with_targets(msgspec.structs.replace(target, allow_plain=True))
    assert local.upload().copied == (old, plain)


def test_busy_target_does_not_fail_the_upload(local: TargetBackups) -> None:
    local.add(FILES)
    before = local.upload()
    local.add(FILES, day=1)
    folder = local.datadir.dir / "locks"
    with file_lock(folder / "backup-offsite.lock", BackupRunning()):
        busy = local.upload()
    assert busy.code == "BACKUP_RUNNING"
    state = read_state(local.datadir.backups, "offsite")
    assert (state.newest, state.problem) == (before.copied[0], "")
    with pytest.raises(BackupRunning):
        targets.raise_failures([busy])
    failed = msgspec.structs.replace(busy, code="BACKUP_TARGET_FAILED")
    with pytest.raises(TargetFailed):
        targets.raise_failures([busy, failed])
