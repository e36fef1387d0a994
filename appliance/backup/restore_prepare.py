"""Makes the new files of a restore in a folder: unpacked, checked, with the rules of each store.

The folder has the layout of a workspace. Nothing outside of it is written.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from appliance.backup import restore_job, restore_rules, small_files
from appliance.backup.backup_directory import writing
from appliance.backup.blobs import count_missing
from appliance.backup.errors import RestoreRefused, VerificationFailed, VersionRefused
from appliance.backup.keys import Identities
from appliance.backup.restore_job import RestoreJob, RestoreSelection
from appliance.backup.store_copy import facts_of, find_differences, row_counts
from appliance.backup.unpack import TellFile, unpack
from appliance.kernel import meta
from appliance.kernel.clock import iso
from appliance.kernel.ids import random_id
from appliance.kernel.store_declaration import declaration_of, path_of
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
    epoch     the new epoch; "" if it stays
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
        for store in job.chosen:
            _check_store(made, store)
        _check_references(made)
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


def count_in(target: DataDir, stores: Iterable[str]) -> Rows:
    """The rows of each table of each of these stores, as they are on the disk now."""
    rows: Rows = {}
    for store in stores:
        with closing(open_database(target.database(store), "rw")) as connection:
            rows[store] = row_counts(connection)
    return rows


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


def _check_references(made: _Preparation) -> None:
    job = made.job
    if not job.stores:
        return
    before = {store: job.target.database(store) for store in STORES}
    after = before | {store: made.new.database(store) for store in job.chosen}
    restore_rules.check_references(after, before)
    ours = small_files.identity_of(small_files.read_all(job.target))
    if ours != job.manifest.identity:
        named = [store for store in job.chosen if declaration_of(store).restore.names_member_key]
        if named:
            raise RestoreRefused(
                f"the member key was replaced since the backup, and {named[0]} names it",
                hint=f"restore everything: agentlip backup restore {job.manifest.name} --plan",
            )


def _apply_rules(made: _Preparation) -> int:
    """The highest event id."""
    job = made.job
    known = max(restore_job.given_out(job), epochs.highest(_epochs_in_backup(made)))
    highest = 0
    for store in job.chosen:
        numbered = declaration_of(store).numbers_events
        floor = max(job.manifest.last_event_id, known) if numbered else 0
        present = Path("/nonexistent") if job.new else job.target.database(store)
        done = restore_rules.apply(
            job,
            store,
            made.new.database(store),
            present,
            now_ms=made.now_ms,
            known=floor,
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
    job = made.job
    if not job.new_epoch:
        return "", 0
    record = manifest.RECORD_STORE
    if record not in job.chosen:
        _copy_record_store(made)
        highest = highest or restore_job.given_out(job)
    events_raised = any(declaration_of(store).numbers_events for store in job.chosen)
    if not events_raised:
        highest = max(_present_events(job), job.manifest.last_event_id)
    epoch = random_id()
    with closing(sqlite3.connect(made.new.database(record))) as connection:
        connection.execute(meta.SET, (epochs.KEY, epoch))
        connection.commit()
        if record in made.rows:  # the row of the epoch is new if the store had none
            made.rows[record] = row_counts(connection)
    first = highest + (JUMP if events_raised else 0) + 1
    before = epochs.merge(_epochs_in_backup(made), restore_job.known_epochs(job))
    begun = Epoch(epoch, iso(made.now_ms), job.manifest.name, first, highest)
    path = f"{made.new.dir.name}/{epochs.FILE}"
    text = epochs.continued(before, job.manifest.epoch, begun)
    write_whole(made.new.workspace / path, text.encode())
    if path not in made.paths:
        made.paths.append(path)
    return epoch, first


def _copy_record_store(made: _Preparation) -> None:
    """The present store with the epoch is changed in a copy, so that the swap stays one change."""
    record, job = manifest.RECORD_STORE, made.job
    present = job.target.database(record)
    if not restore_rules.is_readable(present, made.job.mode):
        raise RestoreRefused(
            f"the present store {record} can't be read, and the new epoch belongs there",
            hint=f"restore it too: --store {record}",
        )
    file = made.new.database(record)
    file.touch(mode=0o600)
    with (
        closing(open_database(present, made.job.mode)) as source,
        closing(sqlite3.connect(file)) as copy,
    ):
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
    made.paths.append(path_of(record))


def _present_events(job: RestoreJob) -> int:
    """The highest event id that the present stores gave out."""
    numbers = [restore_job.given_out(job)]
    for store in STORES:
        path = job.target.database(store)
        if not job.new and declaration_of(store).numbers_events and path.exists():
            with suppress(sqlite3.Error), closing(open_database(path, job.mode)) as connection:
                numbers += [row[0] for row in connection.execute("SELECT seq FROM sqlite_sequence")]
    return max(numbers)


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
