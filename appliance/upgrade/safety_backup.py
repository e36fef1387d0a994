"""Makes the backup before a migration: one consistent, checked backup with all stores, which is
kept.

Only a backup has all stores at one moment, so only a backup can restore a workspace.
"""

from collections.abc import Sequence
from contextlib import suppress

from appliance.backup import create, unpack
from appliance.backup.backup_directory import BackupDirectory, BackupWorkspace
from appliance.backup.errors import BackupError
from appliance.backup.first_data import has_same_rows
from appliance.backup.manifest import BackupManifest, Reason
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.log import Log
from appliance.process.starting import announce_phase
from appliance.workspace.datadir import DataDir

REASON: Reason = "before-migration"


class MigrationNotSaved(Unavailable):
    code = "MIGRATION_NOT_SAVED"
    default_message = "no backup could be made before the migration, so nothing was changed"
    default_hint = "df -h .agentlip; or without a backup: agentlipd up --migrate-without-backup"


def save(
    datadir: DataDir, settings: BackupSettings, pending: Sequence[str], clock: Clock, log: Log
) -> str:
    """Make a backup before the `pending` stores are migrated.

    Return the backup's name, or the name of an earlier attempt's backup if no row came or went
    since. Call with the writer lock held, before anything is migrated. Raises MigrationNotSaved.
    """
    try:
        with announce_phase(datadir, "making a backup before a migration"):
            name = _save(datadir, settings, clock)
    except (ApplianceError, OSError) as error:
        first = error.hint if isinstance(error, ApplianceError) else "df -h .agentlip"
        raise MigrationNotSaved(
            f"{MigrationNotSaved.default_message}: {error}",
            hint=f"{first}; or without a backup: agentlipd up --migrate-without-backup",
        ) from error
    log.info("the state before the migration is in a backup", backup=name, stores=pending)
    return name


def _save(datadir: DataDir, settings: BackupSettings, clock: Clock) -> str:
    backups = BackupDirectory(datadir, settings, clock)
    with backups.only_writer():
        if (earlier := _find_earlier(datadir, backups)) is not None:
            return earlier.name
        work = BackupWorkspace(datadir, settings, backups, clock)
        made = create.create_backup(work, reason=REASON)
        try:
            unpack.check_hashes(backups.path(made.name), made)
        except ApplianceError:
            backups.remove(made.name)
            raise
        return made.name


def _find_earlier(datadir: DataDir, backups: BackupDirectory) -> BackupManifest | None:
    """Return the newest backup made before a migration, if the backup is undamaged and the
    stores still have exactly the saved rows. In that case an attempt has failed since, and the
    stores may be half migrated."""
    for name in reversed([listed.name for listed in backups.list()]):
        with suppress(BackupError):
            manifest = backups.read(name)
            if manifest.reason == REASON:
                unpack.check_hashes(backups.path(name), manifest)
                return manifest if has_same_rows(datadir, manifest) else None
    return None
