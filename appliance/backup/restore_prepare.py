"""Makes a restore's new files in a folder: unpacked, checked, with each store's rules applied.

The folder has a workspace's layout. Nothing outside the folder is written.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from appliance.backup import restore_job, restore_rules, small_files, store_copy
from appliance.backup.backup_directory import writing
from appliance.backup.cut import PinnedStore
from appliance.backup.errors import RestoreRefused, VerificationFailed, VersionRefused
from appliance.backup.keys import Identities
from appliance.backup.restore_job import RestoreJob, RestoreSelection
from appliance.backup.store_copy import facts_of, find_differences, row_counts
from appliance.backup.unpack import FileProgress, no_progress, unpack
from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.kernel.ids import random_id
from appliance.kernel.store_declaration import declaration_of, path_of
from appliance.kernel.store_errors import sqlite_name
from appliance.kernel.store_files import open_database
from appliance.kernel.whole_file import write_whole
from appliance.sdk.network.restored import adjust_store
from appliance.shared.segment_chain import JUMP
from appliance.workspace import epochs, manifest, schema
from appliance.workspace.blobs import count_missing
from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.epochs import Epoch
from appliance.workspace.restoring import Noticed

Rows = dict[str, dict[str, int]]


class PreparedFiles(msgspec.Struct):
    """The new files, which are ready to be put in place when `prepare` returns.

    new       the folder with the files
    paths     relative to the workspace
    rows      each table's row count in each store, after the rules
    epoch     the new epoch; "" if the epoch stays
    """

    job: RestoreJob
    new: DataDir
    now_ms: int
    paths: list[str]
    rows: Rows = {}
    notices: list[Noticed] = []
    uncompared: list[str] = []
    epoch: str = ""
    first_event_id: int = 0


def prepare(
    job: RestoreJob,
    selection: RestoreSelection,
    folder: Path,
    identities: Identities | None,
    *,
    progress: FileProgress = no_progress,
    reached: Callable[[str], None] = lambda _: None,
) -> PreparedFiles:
    """Make the new files. Raises BackupDamaged, KeyRefused, VerificationFailed, VersionRefused,
    RestoreRefused or BackupNotWritable."""
    unpack(job.backup_path, job.manifest, folder, identities, progress, selection.files)
    reached("files unpacked")
    paths = sorted(file.path for file in selection.files)
    made = PreparedFiles(job, DataDir(folder), job.work.clock.now_ms(), paths)
    with writing(), _as_errors():
        for store in job.chosen:
            _check_store(made, store)
        restore_rules.check_references(job, made.new)
        for state in made.new.dir.glob(f"{small_files.AGENTS}/*/{small_files.AGENT_STATE}"):
            adjust_store(state, made.now_ms)
        highest = _apply_rules(made)
        reached("rules applied")
        if any(declaration_of(store).numbers_events for store in job.chosen):
            _begin_epoch(made, highest)
        elif manifest.RECORD_STORE in job.chosen:  # the events stay, and so does their epoch
            _write_epoch(made, restore_job.present_epoch(job) or random_id())
    reached("prepared")
    return made


def count_in(target: DataDir, store: str) -> dict[str, int]:
    """Return each table's row count in the store on disk. Raises sqlite3.Error."""
    with closing(open_database(target.database(store), "rw")) as connection:
        return row_counts(connection)


def _check_store(made: PreparedFiles, store: str) -> None:
    """Check that the copy has the rows that the manifest counted, and a schema that this version
    opens."""
    facts = made.job.manifest.stores[store]
    with closing(sqlite3.connect(made.new.database(store), isolation_level=None)) as connection:
        if store in STORES and (state := schema.state(connection, store)).too_new:
            message = f"{store} needs a newer version: its schema is {state.schema}"
            raise VersionRefused(message, details={"name": made.job.manifest.name})
        missing = count_missing(connection, store, made.new.workspace)
        actual = facts_of(connection, store, missing_blobs=missing)
        for difference in find_differences(facts, actual):
            raise VerificationFailed(f"{store}: {difference}", details={"store": store})


def _apply_rules(made: PreparedFiles) -> int:
    """Apply the rules, and return the highest event id given out."""
    job = made.job
    known = max(restore_job.given_out(job), epochs.highest(epochs.read(made.new)))
    highest = max(job.manifest.last_event_id, known)
    for store in job.chosen:
        numbered = declaration_of(store).numbers_events
        context, number, made.rows[store] = restore_rules.apply(
            job, store, made.new.database(store), now_ms=made.now_ms, known=highest * numbered
        )
        made.notices += context.notices
        if context.damaged or not (context.present or job.new):
            made.uncompared.append(store)
        highest = number if numbered else highest
    return highest


def _begin_epoch(made: PreparedFiles, highest: int) -> None:
    """Write the new epoch, and the list of epochs."""
    job, made.epoch, made.first_event_id = made.job, random_id(), highest + JUMP + 1
    _write_epoch(made, made.epoch)
    before = epochs.merge(epochs.read(made.new), epochs.read(job.target))
    begun = Epoch(made.epoch, iso(made.now_ms), job.manifest.name, made.first_event_id, highest)
    path = f"{made.new.dir.name}/{epochs.FILE}"
    text = epochs.continued(before, job.manifest.epoch, begun)
    write_whole(made.new.workspace / path, text.encode())
    if path not in made.paths:
        made.paths.append(path)


def _write_epoch(made: PreparedFiles, epoch: str) -> None:
    """Write the epoch into the store that keeps epochs. The present store is changed in a copy,
    so that the restore stays one change."""
    record = manifest.RECORD_STORE
    if record not in made.job.chosen:
        _copy_record_store(made)
    with closing(sqlite3.connect(made.new.database(record))) as connection:
        connection.execute(meta.SET, (epochs.KEY, epoch))
        connection.commit()
        if record in made.rows:  # the row is new if the store had none
            made.rows[record] = row_counts(connection)


def _copy_record_store(made: PreparedFiles) -> None:
    job, record = made.job, manifest.RECORD_STORE
    present = job.target.database(record)
    if not restore_rules.is_readable(present, job.mode):
        raise RestoreRefused(
            f"the present store {record} can't be read, and the new epoch belongs there",
            hint="restore it too: agentlip backup restore"
            f" {job.manifest.name}{job.store_options} --store {record} --plan",
        )
    with closing(open_database(present, job.mode)) as connection:
        pinned = PinnedStore(record, present, connection)
        store_copy.copy(pinned, made.new.database(record), no_progress)
    made.paths.append(path_of(record))


@contextmanager
def _as_errors() -> Iterator[None]:
    """Convert a full disk error in a statement, or an I/O error, to an OSError for `writing`."""
    try:
        yield
    except sqlite3.Error as error:
        if not sqlite_name(error).startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise
        raise OSError(28, "No space left on device") from error
