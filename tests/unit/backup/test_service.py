"""Pages of backups."""

import pytest

from appliance.backup import service
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.catalogue import BackupCatalogue
from appliance.backup.service import Backups
from appliance.backup.settings import BackupSettings
from appliance.backup.state import BackupActivity
from appliance.backup.wire import BackupsQuery
from appliance.workspace.datadir import DataDir
from tests.support.backup_commands import make_backup
from tests.support.clock import FakeClock
from tests.support.pages import pages_of

CLOCK = FakeClock()


@pytest.fixture
def directory(tmp_path):
    datadir = DataDir(tmp_path)
    datadir.dir.mkdir()
    return BackupDirectory(datadir, BackupSettings())


def backups_of(directory):
    return Backups(
        directory, BackupCatalogue(directory), BackupActivity(directory.root), BackupSettings()
    )


def test_pages_have_every_backup_once_newest_first(directory, monkeypatch):
    names = [make_backup(directory, CLOCK.now_ms() + hour * 3_600_000).name for hour in range(7)]
    monkeypatch.setattr(service, "PAGE_MAX", 3)
    backups = backups_of(directory)
    pages = pages_of(lambda after: backups.list_page(BackupsQuery(limit=100, after=after)))
    assert [len(page.backups) for page in pages] == [3, 3, 1]
    assert pages[-1].next is None
    assert [row.name for page in pages for row in page.backups] == sorted(names, reverse=True)
