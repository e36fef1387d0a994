"""Makes the new files of a restore in a folder: unpacked, checked, with the rules of each store.

The folder has the layout of a workspace. Nothing outside of it is written.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from appliance.backup import restore_job, restore_rules, small_files
from appliance.backup.backup_directory import writing
from appliance.backup.blobs import count_missing
from appliance.backup.errors import VerificationFailed, VersionRefused
from appliance.backup.keys import Identities
from appliance.backup.restore_job import RestoreJob, RestoreSelection
from appliance.backup.store_copy import facts_of, find_differences, row_counts
from appliance.backup.unpack import TellFile, unpack
from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.kernel.ids import random_id
from appliance.kernel.store_declaration import declaration_of
from appliance.kernel.store_errors import sqlite_name
from appliance.kernel.store_files import open_database
from appliance.kernel.whole_file import write_whole
from appliance.sdk.network.restored import restored
from appliance.shared.segment_chain import JUMP
from appliance.workspace import epochs, manifest, schema
from appliance.workspace.datadir import STORES, DataDir
from appliance.workspace.epochs import Epoch
from appliance.workspace.restoring import Noticed

Rows = dict[str, dict[str, int]]


class PreparedFiles(msgspec.Struct, frozen=True):
    """The new files, ready to be put in place.

    paths     relative to the workspace
    rows      of each table of each store, after the rules
    epoch     the new epoch
    """

    paths: tuple[str, ...]
    rows: Rows
    notices: tuple[Noticed, ...]
    uncompared: tuple[str, ...]
    old_epoch: str
    epoch: str
    first_event_id: int


class _Preparation:
    def __init__(self, job: RestoreJob, folder: Path, now_ms: int) -> None:
        self.job = job
        self.new = DataDir(folder)
        self.now_ms = now_ms
        self.rows: Rows = {}
        self.notices: list[Noticed] = []
        self.uncompared: list[str] = []
        self.paths: list[str] = []


def prepare(
    job: RestoreJob,
    selection: RestoreSelection,
    folder: Path,
    identities: Identities | None,
    *,
    now_ms: int,
    tell: TellFile | None = None,
    reached: Callable[[str], None] = lambda _: None,
) -> PreparedFiles:
    """Raises BackupDamaged, KeyRefused, VerificationFailed, VersionRefused, RestoreRefused or
    BackupNotWritable."""
    wanted = {file.path for file in selection.files}
    unpack(
        job.backup_path,
        job.manifest,
        folder,
        identities,
        only=lambda file: file.path in wanted,
        tell=tell,
    )
    reached("files unpacked")
    made = _Preparation(job, folder, now_ms)
    made.paths += sorted(wanted)
    with writing(), _as_errors():
        for store in job.manifest.stores:
            _check_store(made, store)
        for state in made.new.dir.glob(f"{small_files.AGENTS}/*/{small_files.AGENT_STATE}"):
            restored(state, now_ms)
        highest = _apply_rules(made)
        reached("rules applied")
        epoch, first = _begin_epoch(made, highest)
    reached("prepared")
    return PreparedFiles(
        paths=tuple(made.paths),
        rows=made.rows,
        notices=tuple(made.notices),
        uncompared=tuple(made.uncompared),
        old_epoch=restore_job.present_epoch(job) or job.manifest.epoch,
        epoch=epoch,
        first_event_id=first,
    )


def count_in(target: DataDir, store: str) -> dict[str, int]:
    """The rows of each table of the store, as they are on the disk now. Raises sqlite3.Error."""
    with closing(open_database(target.database(store), "rw")) as connection:
        return row_counts(connection)


def _check_store(made: _Preparation, store: str) -> None:
    """The copy has the rows that the manifest counted, and a schema that this version opens."""
    facts = made.job.manifest.stores[store]
    with closing(sqlite3.connect(made.new.database(store), isolation_level=None)) as connection:
        if store in STORES and (state := schema.state(connection, store)).too_new:
            raise VersionRefused(f"{store} needs a newer version: its schema is {state.schema}")
        missing = count_missing(connection, store, made.new.workspace)
        actual = facts_of(connection, store, missing_blobs=missing)
        for difference in find_differences(facts, actual):
            raise VerificationFailed(f"{store}: {difference}", details={"store": store})


def _apply_rules(made: _Preparation) -> int:
    """The highest event id that was given out."""
    job = made.job
    known = max(restore_job.given_out(job), epochs.highest(_epochs_in_backup(made)))
    highest = max(job.manifest.last_event_id, known)
    for store in job.manifest.stores:
        numbered = declaration_of(store).numbers_events
        present = Path("/nonexistent") if job.new else job.target.database(store)
        done = restore_rules.apply(
            job,
            store,
            made.new.database(store),
            present,
            now_ms=made.now_ms,
            known=highest if numbered else 0,
        )
        context = done.context
        made.notices += context.notices
        if context.damaged or not (context.present or job.new):
            made.uncompared.append(store)
        highest = done.highest if numbered else highest
        made.rows[store] = done.rows
    return highest


def _begin_epoch(made: _Preparation, highest: int) -> tuple[str, int]:
    """Writes the new epoch into the store that keeps it, and the list of epochs."""
    job, record, epoch = made.job, manifest.RECORD_STORE, random_id()
    with closing(sqlite3.connect(made.new.database(record))) as connection:
        connection.execute(meta.SET, (epochs.KEY, epoch))
        connection.commit()
        made.rows[record] = row_counts(connection)  # the row is new if the store had none
    first = highest + JUMP + 1
    before = epochs.merge(_epochs_in_backup(made), restore_job.known_epochs(job))
    begun = Epoch(epoch, iso(made.now_ms), job.manifest.name, first, highest)
    path = f"{made.new.dir.name}/{epochs.FILE}"
    text = epochs.continued(before, job.manifest.epoch, begun)
    write_whole(made.new.workspace / path, text.encode())
    if path not in made.paths:
        made.paths.append(path)
    return epoch, first


def _epochs_in_backup(made: _Preparation) -> tuple[Epoch, ...]:
    return epochs.read(made.new)


@contextmanager
def _as_errors() -> Iterator[None]:
    """A full disk during a statement is an OSError for `writing`."""
    try:
        yield
    except sqlite3.Error as error:
        if not sqlite_name(error).startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise
        raise OSError(28, "No space left on device") from error
