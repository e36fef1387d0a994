"""Restores a backup: `plan` describes the changes, `apply` makes them as one change.

Order in `apply`: check, unpack beside the present files, check again, back up the present state,
commit, put in place. Until the commit the workspace is unchanged; afterwards every start completes
the restore (`workspace/swap.py`).
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain
from pathlib import Path

import msgspec

from appliance.backup import keys, restore_job, restore_prepare, restore_settings
from appliance.backup.backup_directory import check_space, writing
from appliance.backup.create import create_backup
from appliance.backup.errors import StoreNotCopied
from appliance.backup.keys import Identities
from appliance.backup.restore_job import Mode, RestoreJob, RestoreSelection
from appliance.backup.restore_prepare import PreparedFiles, Rows
from appliance.backup.restore_settings import ChangedSetting
from appliance.backup.unpack import FileProgress, no_progress
from appliance.kernel.clock import iso
from appliance.kernel.errors import ApplianceError
from appliance.workspace import schema, swap
from appliance.workspace.contents import list_beside
from appliance.workspace.datadir import STORES, WriterLock, read_lock
from appliance.workspace.restoring import Noticed
from appliance.workspace.swap import SwapJournal, SwappedFile

Reached = Callable[[str], None]


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A restore's planned or finished changes. Paths are relative to the workspace, sizes in
    bytes.

    added       backup files that are not there now; with `replaced` all files that are written
    removed     present files that are not in the backup
    settings    the differences in agentlip.toml
    migrations  stores that the next start migrates, as `3 → 5`
    notices     what is lost, revoked and sent again, with the first ids of each
    uncompared  stores with an unreadable present file: lost rows and revocations are unknown
    epoch       the new epoch; "" if the epoch stays, or is not chosen yet
    first_event_id  the new epoch's first event; 0 if the epoch stays
    """

    name: str
    cut_at: str
    workspace: str
    running: bool
    replaced: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    settings: tuple[ChangedSetting, ...]
    migrations: dict[str, str]
    notices: tuple[Noticed, ...]
    uncompared: tuple[str, ...]
    old_epoch: str
    epoch: str
    first_event_id: int
    bytes_needed: int
    bytes_free: int


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished restore's result. `rows`: each table's row count in each store, counted before
    the commit.

    safety     the backup with the state before; "" without one
    kept_as    the folder with the files before, if they could not be backed up
    undo       the command that brings the state before back; "" without one
    """

    plan: RestorePlan
    rows: Rows
    safety: str
    kept_as: str
    undo: str


def plan(
    job: RestoreJob, identities: Identities | None, progress: FileProgress = no_progress
) -> RestorePlan:
    """Make the new files in a temporary directory (TMPDIR) and compare. The workspace is not
    changed, and may be running. Raises every error that `apply` raises before the commit."""
    keys.check(job.backup_path, job.manifest, identities)
    running = not job.new and read_lock(job.target).held
    folders = tempfile.TemporaryDirectory(prefix="agentlip-restore-")
    with folders as folder, _hold_for_plan(job) as mode:
        job = msgspec.structs.replace(job, mode=mode)
        restore_job.check(job)
        selection = restore_job.select(job)
        root = Path(folder) / "new"
        root.mkdir(mode=0o700)
        prepared = restore_prepare.prepare(job, selection, root, identities, progress=progress)
        planned = _plan(job, selection, prepared)
    return msgspec.structs.replace(planned, epoch="", running=running)


def apply(
    job: RestoreJob,
    identities: Identities | None,
    *,
    progress: FileProgress = no_progress,
    reached: Reached = lambda _: None,
) -> RestoreResult:
    """Restore the backup. Raises HubRunning while the appliance runs, and any error that forbids
    the restore before anything is changed. `reached` is called after each step, for tests."""
    keys.check(job.backup_path, job.manifest, identities)
    if job.new:  # gets folders, once known to be empty
        restore_job.check(job)
        with writing():
            job.target.workspace.mkdir(parents=True, exist_ok=True)
            swap.make_folders(job.target.dir / "locks")
    job = msgspec.structs.replace(job, mode="rw")
    others = nullcontext() if job.new else job.work.backups.only_writer()
    with swap.hold_stopped(job.target, job.work.clock), others, ExitStack() as users:
        restore_job.check(job)
        selection = restore_job.select(job)
        check_space(
            restore_job.bytes_needed(job, selection),
            restore_job.bytes_free(job.target),
            f"free space: df -h {job.target.workspace}; or restore elsewhere: --into DIR",
        )
        try:
            new = swap.new_folder(job.target)
            prepared = restore_prepare.prepare(
                job, selection, new, identities, progress=progress, reached=reached
            )
            planned = _plan(job, selection, prepared)
            safety, kept_as = _safety_copy(job, progress)
            users.enter_context(restore_job.without_users(job))
            reached("safety copy made")
            swap.commit(job.target, _journal(selection, prepared, kept_as))
        except BaseException:
            swap.settle(job.target)
            raise
        schema.make_folders(job.target)
    return RestoreResult(
        plan=planned,
        rows=prepared.rows,
        safety=safety,
        kept_as=f"{job.target.dir.name}/backups/{kept_as}" if kept_as else "",
        undo=f"agentlip backup restore {safety}{job.store_options} --yes" if safety else "",
    )


@contextmanager
def _hold_for_plan(job: RestoreJob) -> Iterator[Mode]:
    """Lock a stopped workspace while a plan reads, so that no files are left beside the stores."""
    mode: Mode = "rw"
    with ExitStack() as stack:
        if not job.new:
            try:
                stack.enter_context(WriterLock(job.target, "plan"))
            except ApplianceError:  # a running appliance, or a read-only directory
                mode = "ro"
        yield mode


def _safety_copy(job: RestoreJob, progress: FileProgress) -> tuple[str, str]:
    """Return the name of a backup with the present state. If the stores are too damaged to back
    up, return the name of the folder that will keep their files."""
    if not any(job.target.database(store).exists() for store in STORES):
        return "", ""
    try:
        made = create_backup(job.work, reason="before-restore", progress=progress)
    except StoreNotCopied:
        stamp = iso(job.work.clock.now_ms())[:19].replace("-", "").replace(":", "")
        return "", f"replaced-{stamp}Z"
    return made.name, ""


def _journal(selection: RestoreSelection, prepared: PreparedFiles, kept_as: str) -> SwapJournal:
    files = [SwappedFile(path) for path in prepared.paths]
    beside = chain.from_iterable(map(list_beside, prepared.job.chosen))
    files += [SwappedFile(path, new=False) for path in (*selection.removed, *beside)]
    return SwapJournal(keep_as=kept_as, files=tuple(files))


def _plan(job: RestoreJob, selection: RestoreSelection, prepared: PreparedFiles) -> RestorePlan:
    there = [path for path in prepared.paths if (job.target.workspace / path).exists()]
    return RestorePlan(
        name=job.manifest.name,
        cut_at=job.manifest.cut_at,
        workspace=str(job.target.workspace),
        running=False,
        replaced=tuple(there),
        added=tuple(path for path in prepared.paths if path not in there),
        removed=selection.removed,
        kept=tuple(path for path in selection.kept if path not in prepared.paths),
        settings=restore_settings.compare(job.target, prepared.new),
        migrations=restore_job.pending(job),
        notices=tuple(prepared.notices),
        uncompared=tuple(prepared.uncompared),
        old_epoch=restore_job.present_epoch(job) or job.manifest.epoch,
        epoch=prepared.epoch,
        first_event_id=prepared.first_event_id,
        bytes_needed=restore_job.bytes_needed(job, selection),
        bytes_free=restore_job.bytes_free(job.target),
    )
