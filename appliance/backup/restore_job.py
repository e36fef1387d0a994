"""Prepares a restore: which files are replaced, and what forbids the restore. Only reads."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from appliance.backup.backup_directory import BackupWorkspace
from appliance.backup.errors import BackupDamaged, RestoreRefused, VersionRefused
from appliance.backup.manifest import BackupFile, BackupManifest
from appliance.backup.small_files import AGENTS, KEY_PAIR
from appliance.kernel import event_ids
from appliance.kernel.errors import Invalid
from appliance.kernel.store_declaration import DECLARATIONS, path_of
from appliance.workspace import epochs, manifest, migration, swap
from appliance.workspace.blobs import folder_of
from appliance.workspace.contents import CONTENTS
from appliance.workspace.datadir import SHARED_STORES, DataDir
from appliance.workspace.open_files import kept_unused

_DIRECTORY = ".agentlip"
_TOKEN = f"{_DIRECTORY}/token"
Mode = Literal["ro", "rw"]
_IDENTITY, _AGENTS = f"{_DIRECTORY}/identity", f"{_DIRECTORY}/{AGENTS}"


class RestoreJob(msgspec.Struct, frozen=True):
    """A restore's source, selection and target.

    work    the workspace that has the backup
    stores  only these; none: all stores in the backup
    target  the workspace itself, or a new directory
    new     the target is a new directory, so nothing is replaced
    mode    how present stores are opened: `rw` with the writer lock held, which leaves nothing
            beside them; otherwise `ro`

    With `revive`, tokens, members and secrets that were revoked since the backup are valid again.
    """

    work: BackupWorkspace
    manifest: BackupManifest
    target: DataDir
    stores: tuple[str, ...] = ()
    new: bool = False
    revive: bool = False
    mode: Mode = "ro"

    @property
    def backup_path(self) -> Path:
        return self.work.backups.path(self.manifest.name)

    @property
    def chosen(self) -> tuple[str, ...]:
        """Return the stores to restore."""
        named = self.stores or self.manifest.stores
        return tuple(store for store in self.manifest.stores if store in named)

    @property
    def store_options(self) -> str:
        """Return the command options that restore exactly these stores."""
        return "".join(f" --store {store}" for store in self.stores)


class RestoreSelection(msgspec.Struct, frozen=True):
    """Paths relative to the workspace. `removed`: there now, and not in the backup."""

    files: tuple[BackupFile, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]


def check(job: RestoreJob) -> None:
    """Check the restore before anything is unpacked. Raises RestoreRefused, VersionRefused,
    BackupDamaged or Invalid."""
    _check_stores(job)
    with without_users(job):
        pass
    if job.new:
        _check_new(job.target, job.manifest.name)
    else:
        _check_workspace(job)
        _check_epoch(job)


@contextmanager
def without_users(job: RestoreJob) -> Iterator[None]:
    """Refuse the restore while another program has a shared store open, because the program
    would continue with the replaced file. Raises StoreInUse. Until the end of the block, no
    program can begin to use that file.

    A plan beside a running appliance, which has the file open too, is not refused."""
    with ExitStack() as locks:
        for store in set(job.chosen) & set(SHARED_STORES) if job.mode == "rw" else ():
            locks.enter_context(kept_unused(job.target.database(store)))
        yield


def select(job: RestoreJob) -> RestoreSelection:
    """Return the files to unpack, the present files to remove, and the files that stay."""
    root = job.target.workspace
    owned = (path for row in CONTENTS if row.replaced for path in row.find(root))
    present = {path.relative_to(root).as_posix() for path in owned}
    if job.stores:
        paths = {*map(path_of, job.stores), *map(folder_of, job.stores)}
        parts = [f for f in job.manifest.files if paths & {f.path, str(Path(f.path).parent)}]
        return RestoreSelection(tuple(parts), (), tuple(sorted(present - paths)))
    secrets = _kept_secrets(job)
    files = [
        file
        for file in job.manifest.files
        if not (file.kind == "secret" and _place_of(file.path) in secrets)
    ]
    present = {path for path in present if _place_of(path) not in secrets}
    removed = sorted(present - {file.path for file in files})
    kept = [f"{_DIRECTORY}/backups", f"{_DIRECTORY}/logs", *secrets]
    if not any(file.kind == "settings" for file in files) and job.target.settings_file.exists():
        kept.append(job.target.settings_file.name)
    return RestoreSelection(tuple(files), tuple(removed), () if job.new else tuple(kept))


def bytes_needed(job: RestoreJob, selection: RestoreSelection) -> int:
    """Return the bytes for the new files beside the present files, and for a backup of the
    present files."""
    safety = sum(map(job.target.store_bytes, DECLARATIONS))
    return sum(file.bytes for file in selection.files) + safety + job.work.settings.free_bytes_min


def bytes_free(target: DataDir) -> int:
    folder = target.dir
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def given_out(job: RestoreJob) -> int:
    """Return the highest event id that the workspace is known to have given out, without the
    stores."""
    noted = event_ids.read(job.target.dir)
    return max(epochs.highest(epochs.read(job.target)), noted.number if noted else 0)


def present_epoch(job: RestoreJob) -> str:
    """Return the workspace's epoch before the restore; "" if unknown."""
    noted = event_ids.read(job.target.dir)
    written = manifest.value_in_record(job.target, epochs.KEY, job.mode)
    return written or (noted.owner if noted else "")


def pending(job: RestoreJob) -> dict[str, str]:
    """Return the stores that the next start migrates: `3 → 5` by store."""
    return {store: f"{own} → {newest}" for store, own, newest in _schemas(job) if own < newest}


def _check_stores(job: RestoreJob) -> None:
    listed = {file.path for file in job.manifest.files}
    needed = [store for store, declared in DECLARATIONS.items() if declared.needed]
    for store in job.stores:
        if store not in job.manifest.stores:
            known = ", ".join(sorted(job.manifest.stores))
            raise Invalid(f"the backup has no store {store}", hint=f"use one of: {known}")
    for store in {*job.manifest.stores, *needed}:
        if store not in DECLARATIONS:
            message = f"the backup has the store {store}, which this version lacks"
            raise VersionRefused(message, details={"name": job.manifest.name})
        if path_of(store) not in listed:
            raise BackupDamaged(f"the backup lacks a file for the store {store}")
    for store, own, newest in _schemas(job):
        if own > newest:
            raise VersionRefused(
                f"{store} has schema {own} in the backup; this version {newest} at most",
                details={"store": store, "schema": own, "schema_max": newest},
                hint=f"install agentlip {job.manifest.app_version} or later",
            )


def _schemas(job: RestoreJob) -> Iterator[tuple[str, int, int]]:
    """Yield each chosen store's schema in the backup, and this version's schema. Shared stores
    have none."""
    for store in set(job.chosen) - set(SHARED_STORES):
        yield store, job.manifest.stores[store].schema, migration.load(store)[-1].number


def _check_new(target: DataDir, backup: str) -> None:
    """Check a new directory. An interrupted restore may have left files in the directory."""
    inside = [path.name for path in target.workspace.glob("*") if path != target.dir]
    inside += [
        path.name
        for path in target.dir.glob("*")
        if path.name not in ("locks", swap.FOLDER, swap.FILE)
    ]
    if inside or (target.workspace.exists() and not target.workspace.is_dir()):
        message = f"{target.workspace} is not an empty directory"
        raise RestoreRefused(message, details={"name": backup})


def _check_workspace(job: RestoreJob) -> None:
    """Check that the store ids belong to this workspace, or that their loss was accepted. Only
    restoring the record settles that the record then has different ids."""
    record = manifest.read(job.target)
    lost = () if job.stores else record.lost
    for store in job.chosen:
        recorded, theirs = record.stores.get(store, ""), job.manifest.stores[store].store_id
        if recorded and theirs and recorded != theirs and store not in lost:
            details = {"name": job.manifest.name, "store": store}
            raise RestoreRefused(
                f"the backup belongs to another workspace: its store {store} has the id {theirs},"
                f" here it has {recorded}",
                details={**details, "theirs": theirs, "ours": recorded},
            )


def _check_epoch(job: RestoreJob) -> None:
    """Check the epoch. A backup with a history that this workspace never had comes from a
    diverged copy."""
    ours = present_epoch(job)
    known = {epoch.epoch for epoch in epochs.read(job.target)} | {ours}
    lost = manifest.read(job.target).lost
    theirs = job.manifest.epoch
    if ours and theirs and theirs not in known and not lost:
        raise RestoreRefused(
            f"the backup has the epoch {job.manifest.epoch}, which this workspace never had: a "
            "copy of the workspace made it",
            details={"name": job.manifest.name, "theirs": theirs, "ours": sorted(known)},
        )


def _kept_secrets(job: RestoreJob) -> list[str]:
    """Return the present token, member key and agents, which stay: the backup's secrets may have
    been replaced because somebody else had them."""
    if job.revive:
        return []
    workspace = job.target.workspace
    token = [_TOKEN] if job.target.read_token() else []
    agents = [
        f"{_AGENTS}/{key.parent.name}" for key in job.target.dir.glob(f"{AGENTS}/*/agent.json")
    ]
    return token + ([_IDENTITY] if (workspace / KEY_PAIR).is_file() else []) + sorted(agents)


def _place_of(path: str) -> str:
    """Return `.agentlip/identity` or `.agentlip/network/NAME` for a file inside, else the path."""
    folder = path.rpartition("/")[0]
    return folder if folder == _IDENTITY or folder.startswith(f"{_AGENTS}/") else path
