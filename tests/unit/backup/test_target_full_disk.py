"""Disks that get full: at a target during an upload, and here during an upload and a fetch."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.backup import fetch, targets
from appliance.backup.errors import BackupNotWritable
from appliance.backup.settings import TargetSettings
from tests.support.backup_targets import TargetBackups
from tests.support.smalldisk import MIB, SmallDisk, small_disk

pytestmark = pytest.mark.root
FILES = {"one": os.urandom(MIB), "two": os.urandom(MIB), "three": b"x"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, "tmpfs", 8) as disk:
        yield disk


@pytest.mark.parametrize("free", [0, MIB // 2, 2 * MIB + 4096])
def test_full_target_gets_no_backup_that_counts(tmp_path: Path, disk: SmallDisk, free: int) -> None:
    machine = TargetBackups(tmp_path / "w", TargetSettings(name="disk", url=f"file://{disk.root}"))
    name = machine.add(FILES)
    disk.leave(free)
    assert "No space left" in machine.upload().problem
    seen = targets.report(machine.work, machine.settings.targets[0])
    assert seen.backups == ()
    assert machine.backups.read(name)
    assert list(disk.root.rglob(".writing-*")) == []
    disk.clear()
    assert machine.upload().copied == (name,)
    seen = targets.report(machine.work, machine.settings.targets[0])
    assert (seen.state, seen.backups) == ("ok", (name,))


@pytest.mark.parametrize("free", [0, 3 * MIB // 2])
def test_full_local_disk_gets_no_half_backup(tmp_path: Path, disk: SmallDisk, free: int) -> None:
    (tmp_path / "there").mkdir()
    target = TargetSettings(name="disk", url=f"file://{tmp_path / 'there'}")
    machine = TargetBackups(tmp_path / "w", target)
    name = machine.add(FILES)
    assert machine.upload().copied == (name,)
    other = TargetBackups(disk.root / "w", target)
    with other.backups.only_writer():
        pass
    opened = other.open()

    def progress(_what: str, done: int, _total: int) -> None:
        if done == 0:
            disk.leave(free)

    with other.backups.only_writer(), pytest.raises(BackupNotWritable):
        fetch.fetch(opened, name, other.work, progress)
    assert os.listdir(other.backups.root) == []
    disk.clear()
    with other.backups.only_writer():
        fetch.fetch(opened, name, other.work)
    assert other.backups.read(name) == machine.backups.read(name)
