"""A disk that gets full in any phase of a backup: no backup, no remains, an error with the
reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.backup import create
from appliance.backup.errors import BackupNotWritable
from tests.support.real_backups import Backups
from tests.support.restored_workspace import content_of
from tests.support.smalldisk import MIB, SmallDisk, small_disk
from tests.support.workspaces import Filled

pytestmark = [pytest.mark.root, pytest.mark.slow]

PAGE = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path, "tmpfs", 16) as disk:
        yield disk


def backups_on(disk: SmallDisk, filled: Filled) -> Backups:
    (disk.root / "backups").mkdir()
    return Backups(filled.path, directory=str(disk.root / "backups"))


def failed_at(backups: Backups) -> str:
    """The last file that was being copied when the backup failed; "" if it didn't."""
    last = "nothing"

    def progress(file: str, done: int, total: int) -> None:
        nonlocal last
        last = file

    try:
        backups.create(progress=progress)
    except BackupNotWritable:
        return last
    return ""


def test_disk_that_gets_full_in_any_phase_leaves_nothing(
    disk: SmallDisk, filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before is switched off here: space can be used up by others after it."""
    monkeypatch.setattr(create, "_check_space", lambda *_: None)
    backups = backups_on(disk, filled)
    first = backups.create().name
    before = content_of(filled.datadir)
    phases = set()
    free = 0
    while phase := disk.leave(free) or failed_at(backups):
        phases.add(phase)
        assert backups.backups.names() == [first], free
        assert backups.remains == [], free
        free += 4 * PAGE if free < 64 * PAGE else 32 * PAGE
        assert free < 16 * MIB
    assert "db.sqlite3" in phases
    assert free > 20 * PAGE
    assert content_of(filled.datadir) == before
    disk.clear()
    assert len(backups.backups.names()) == 2
    for name in backups.backups.names():
        backups.unpack(name, filled.path.parent / name)
