"""Backups are copied to targets: completely or not at all, continued after every interruption."""

import os
from collections.abc import Iterable

import pytest

from appliance.backup import targets
from appliance.backup.errors import TargetFailed, TargetUnreachable, UploadPartial
from appliance.backup.target import BackupTarget
from appliance.backup.targets import TargetReport, UploadOutcome
from appliance.backup.transfer import UploadState, read_state
from appliance.backup.upload import Upload
from appliance.kernel.clock import SystemClock
from tests.support.backups_for_targets import TargetBackups

FILES = {"hub.sqlite3.zst.age": os.urandom(3500), "small": b"x", "empty": b""}


class Breaking:
    """Passes everything to a real target, and fails at the given write, before or after it."""

    def __init__(self, real: BackupTarget, at: int, after: bool) -> None:
        self._real, self._at, self._after = real, at, after
        self.name = real.name
        self.written: list[str] = []

    def list(self, below: str = "") -> dict[str, int]:
        return self._real.list(below)

    def read(self, name: str) -> Iterable[bytes]:
        return self._real.read(name)

    def write(self, name: str, content: Iterable[bytes]) -> None:
        self.written.append(name)
        due = len(self.written) == self._at
        if due and not self._after:
            raise TargetUnreachable("cut before")
        self._real.write(name, content)
        if due:
            raise TargetUnreachable("cut after")

    def remove(self, name: str) -> None:
        self._real.remove(name)


def copy(local: TargetBackups, *names: str) -> list[UploadOutcome]:
    outcomes = []
    for target in local.settings.targets:
        outcomes += targets.upload(local.access(), target, names or local.backups.names())
    return outcomes


def report(local: TargetBackups) -> TargetReport:
    """With every byte compared of the backups that are there."""
    target = local.settings.targets[0]
    seen = targets.report(local.access(), target)
    real = local.access().open(target)
    for name in seen.backups:
        for file in (local.backups.path(name) / each for each in FILES):
            assert b"".join(real.read(f"{name}/{file.name}")) == file.read_bytes()
    return seen


def state_of(local: TargetBackups, name: str) -> UploadState:
    state = read_state(local.backups.path(name), local.settings.targets[0])
    assert state is not None
    return state


def upload_through(local: TargetBackups, breaking: Breaking, name: str) -> None:
    target = local.settings.targets[0]
    Upload(local.backups, target, breaking, SystemClock(), 3600.0).run(name)


def test_copied_backup_is_present_and_whole(local: TargetBackups) -> None:
    name = local.add(FILES)
    assert [each.result for each in copy(local)] == ["copied"]
    seen = report(local)
    assert (seen.state, seen.backups, seen.missing) == ("ok", (name,), ())
    assert seen.last_upload == state_of(local, name).finished_at != ""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 5))  # three files, the manifest
def test_upload_that_breaks_at_any_write_does_not_count_and_continues(
    local: TargetBackups, at: int, after: bool
) -> None:
    name = local.add(FILES)
    real = local.access().open(local.settings.targets[0])
    breaking = Breaking(real, at, after)
    with pytest.raises(TargetUnreachable):
        upload_through(local, breaking, name)
    if not (after and at == 4):
        assert report(local).backups == ()
    assert state_of(local, name).status == "failed"
    again = Breaking(real, 0, after)
    upload_through(local, again, name)
    assert not set(breaking.written[: at - 1]) & set(again.written)
    seen = report(local)
    assert (seen.state, seen.backups, seen.unfinished) == ("ok", (name,), ())


def test_file_that_is_gone_after_it_was_sent_is_noticed(
    local: TargetBackups,
) -> None:
    name = local.add(FILES)
    real = local.access().open(local.settings.targets[0])

    class Losing(Breaking):
        def write(self, name: str, content: Iterable[bytes]) -> None:
            super().write(name, content)
            if name.endswith("small"):
                self.remove(name)

    with pytest.raises(TargetFailed, match="does not have it as it was sent"):
        upload_through(local, Losing(real, 0, False), name)
    assert report(local).backups == ()
    assert copy(local)[0].result == "copied"
    assert report(local).state == "ok"


def test_locally_damaged_backup_is_not_copied(local: TargetBackups) -> None:
    bad, good = local.add(FILES), local.add(FILES, day=1)
    file = local.backups.path(bad) / "small"
    file.write_bytes(b"y")
    outcomes = copy(local)
    assert [(each.code, each.result) for each in outcomes] == [
        ("BACKUP_DAMAGED", "failed"),
        ("", "copied"),
    ]
    with pytest.raises(UploadPartial) as caught:
        targets.raise_failures(outcomes)
    assert caught.value.details["outcomes"][0]["name"] == bad
    assert report(local).backups == (good,)
