"""Backups of schemas that were on the main branch: restored, and migrated by a start."""

import sys
from pathlib import Path

import pytest

from appliance.backup import restore
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.create import create_backup
from appliance.backup.restore_job import RestoreJob
from appliance.kernel.log import Log
from appliance.workspace.datadir import WriterLock
from appliance.workspace.migration import load
from appliance.workspace.schema import create_workspace
from tests.migrations.test_former import EDITED, FORMER, name_of, workspace_of
from tests.support.restored_workspace import CLOCK, SETTINGS, rows_of

pytestmark = pytest.mark.slow
OPENED = [archive for archive in FORMER if name_of(archive) not in EDITED]
MESSAGES = "SELECT id, content_raw FROM messages ORDER BY id"


@pytest.mark.parametrize("archive", OPENED[::8], ids=name_of)
def test_backup_of_an_older_schema_is_restored_and_migrated(archive: Path, tmp_path: Path) -> None:
    datadir = workspace_of(archive, tmp_path)
    before = rows_of(datadir, MESSAGES)
    work = BackupWorkspace(datadir, SETTINGS, BackupDirectory(datadir, SETTINGS), CLOCK)
    with work.backups.only_writer():
        made = create_backup(work, reason="manual")
    done = restore.apply(RestoreJob(work, made, datadir), None)
    older = {store for store, facts in made.stores.items() if facts.schema < len(load(store))}
    assert done.plan.migrations.keys() <= older | {"hub"}
    with WriterLock(datadir, "test"):
        create_workspace(
            datadir, clock=CLOCK, log=Log(sys.stderr.buffer, level="error"), locked=True
        )
    assert rows_of(datadir, MESSAGES) == before
    assert rows_of(datadir, "SELECT value FROM meta WHERE key = 'epoch'", "auth") == [
        (done.plan.epoch,)
    ]
