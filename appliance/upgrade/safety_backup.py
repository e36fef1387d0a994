"""The backup before a migration: one consistent backup of all stores, checked, and kept.

Only a backup has all stores at one moment, so only it can bring a workspace back.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from appliance.backup import create, keys, stored, unpack
from appliance.backup.backup_directory import BackupDirectory
from appliance.backup.errors import BackupError, KeyRefused
from appliance.backup.first_data import has_same_rows
from appliance.backup.manifest import BackupManifest, Reason
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.process.starting import announced
from appliance.upgrade.errors import MigrationNotSaved
from appliance.upgrade.plan import pending_stores
from appliance.workspace.datadir import DataDir
from appliance.workspace.upgrade import MigrationFailed

REASON: Reason = "before-migration"


def save(
    datadir: DataDir,
    settings: BackupSettings,
    stores: tuple[str, ...],
    clock: Clock,
    log: Log,
    *,
    backup: bool = True,
    way_out: str = "agentlipd up --migrate-without-backup",
) -> str:
    """Makes the backup if one of `stores` has data and is older than this program.

    Returns its name, or that of an earlier attempt's backup if no row came or went since. ""
    without `backup`, or if nothing is pending. Call with the writer lock held, before anything is
    migrated. Raises MigrationNotSaved, whose hint names `way_out`, the command without a backup;
    and what `pending_stores` raises.
    """
    pending = pending_stores(datadir, stores)
    if not pending or not backup:
        return ""
    try:
        with announced(datadir, "making a backup before a migration"):
            manifest, made = _save(datadir, settings, clock)
    except (ApplianceError, OSError) as error:
        raise _not_saved(error, datadir, settings, way_out) from error
    log.info(
        "backup made before the migration" if made else "an earlier attempt has made the backup",
        backup=manifest.name,
        stores=pending,
    )
    return manifest.name


@contextmanager
def naming(saved: str) -> Iterator[None]:
    """Adds the way back to the error of a migration that failed: the backup, and its command."""
    try:
        yield
    except MigrationFailed as error:
        if not saved:
            raise
        raise MigrationFailed(
            f"{error.message}; the backup {saved} has all stores as they were before",
            details={**error.details, "backup": saved},
            hint=f"agentlip backup restore {saved}; then install the previous version",
        ) from error


def _save(datadir: DataDir, settings: BackupSettings, clock: Clock) -> tuple[BackupManifest, bool]:
    """The backup, and whether it was made now."""
    backups = BackupDirectory(datadir, settings)
    with backups.only_writer():
        earlier = _earlier(datadir, backups, settings)
        if earlier is not None:
            return earlier, False
        manifest = create.create_backup(datadir, backups, settings, reason=REASON, clock=clock)
        try:
            _check(backups.path(manifest.name), manifest, settings)
        except ApplianceError:
            backups.remove(manifest.name)
            raise
    return manifest, True


def _earlier(
    datadir: DataDir, backups: BackupDirectory, settings: BackupSettings
) -> BackupManifest | None:
    """The newest backup from before a migration, if it is whole and the stores have its rows: then
    an attempt since has failed, and the stores may be half migrated. None: it can't be used."""
    for name in reversed(backups.names()):
        with suppress(BackupError):
            manifest = backups.read(name)
            if manifest.reason == REASON:
                if not has_same_rows(datadir, manifest):
                    return None
                _check(backups.path(name), manifest, settings)
                return manifest
    return None


def _check(path: Path, manifest: BackupManifest, settings: BackupSettings) -> None:
    """Decodes each file, and compares sizes and hashes; without the key of an encrypted backup,
    those of the stored files only."""
    try:
        identities = keys.load(settings, None)
        secret_keys = keys.keys_of(manifest, identities)
        keys.check(path, manifest, identities)
    except KeyRefused:
        unpack.check_hashes(path, manifest)
        return
    for file in manifest.files:
        stored.read(path, file, stored.Nowhere(), secret_keys)


def _not_saved(
    error: ApplianceError | OSError, datadir: DataDir, settings: BackupSettings, way_out: str
) -> MigrationNotSaved:
    why = error.message if isinstance(error, ApplianceError) else str(error.strerror or error)
    folder = datadir.workspace / settings.directory
    first = f"free space: df -h {folder}; agentlip backup prune"
    if isinstance(error, BackupError) and error.code != "BACKUP_NOT_WRITABLE":
        first = error.hint
    return MigrationNotSaved(
        f"no backup could be made before the migration, so nothing was changed: {why}",
        details={**getattr(error, "details", {})},
        hint=f"{first}; or without a backup: {way_out}",
    )
