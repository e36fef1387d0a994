"""A target with `prune` loses what retention no longer keeps, and keeps everything else."""

import msgspec
import pytest

from appliance.backup import remote_prune
from appliance.backup.errors import TargetUnreachable
from appliance.backup.remote import names_in
from appliance.backup.settings import TargetSettings
from appliance.backup.target import BackupTarget
from tests.support.backup_targets import PassedTarget, TargetBackups


def at_target(local: TargetBackups) -> list[str]:
    return names_in(local.open().list()).present


def forget(local: TargetBackups, *names: str) -> None:
    """As the local prune does."""
    with local.backups.only_writer():
        for name in names:
            local.backups.remove(name)


@pytest.fixture
def pruned(local: TargetBackups, target: TargetSettings) -> TargetBackups:
    """A workspace that keeps two backups, here and at its target."""
    pruning = msgspec.structs.replace(target, prune=True)
    local.with_targets(pruning, keep_last=2, keep_hourly=0, keep_daily=0)
    return local


def test_backups_that_retention_does_not_keep_are_removed(pruned: TargetBackups) -> None:
    names = [pruned.add(day=day) for day in range(4)]
    pruned.upload()
    assert at_target(pruned) == names  # all are local
    forget(pruned, *names[:2])
    assert pruned.upload().removed == tuple(names[:2])
    assert at_target(pruned) == names[2:]
    opened = pruned.open()
    assert not any(file.startswith(tuple(names[:2])) for file in opened.list())


def test_backups_of_another_workspace_stay(pruned: TargetBackups) -> None:
    other = [pruned.add(day=day, db_id="db-2") for day in range(3)]
    pruned.upload()
    forget(pruned, *other)
    ours = [pruned.add(day=day) for day in range(10, 13)]
    pruned.upload()
    forget(pruned, ours[0])
    pruned.upload()
    assert at_target(pruned) == [*other, *ours[1:]]


def test_nothing_is_removed_when_a_backup_could_not_be_copied(pruned: TargetBackups) -> None:
    names = [pruned.add(day=day) for day in range(4)]
    pruned.upload()
    forget(pruned, names[0])
    broken = pruned.add(day=5)
    next(pruned.backups.path(broken).glob("hub*")).write_bytes(b"damaged")
    pruned.upload()
    assert names[0] in at_target(pruned)


def test_interrupted_removal_leaves_no_backup_that_counts(pruned: TargetBackups) -> None:
    names = [pruned.add(day=day) for day in range(3)]
    pruned.upload()
    forget(pruned, names[0])
    opened = pruned.open()
    for allowed in range(20):
        cutting = Cutting(opened, allowed)
        try:
            remote_prune.prune(cutting, pruned.work)
        except TargetUnreachable:
            assert names[0] not in at_target(pruned) or allowed == 0
        else:
            break
    assert not any(file.startswith(names[0]) for file in opened.list())
    assert at_target(pruned) == names[1:]


class Cutting(PassedTarget):
    """Removes as many files as allowed, then is unreachable."""

    def __init__(self, real: BackupTarget, allowed: int) -> None:
        super().__init__(real)
        self._allowed = allowed

    def remove(self, name: str) -> None:
        if self._allowed == 0:
            raise TargetUnreachable("cut")
        self._allowed -= 1
        super().remove(name)
