"""Records a workspace's stores and secrets, so that a lost one is never recreated silently.

The record is a JSON file, `.agentlip/stores.json`. A workspace that another program made gets a
record at its first start. Each store has a random id, which detects another workspace's file.
"""

import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from appliance.kernel import commit_count, event_ids, meta, store_declaration
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Conflict, Invalid
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.ownership import read_small
from appliance.kernel.store_declaration import DECLARATIONS, declaration_of
from appliance.kernel.store_files import open_database, suspect_marker
from appliance.shared.segment_chain import JUMP
from appliance.workspace import epochs
from appliance.workspace.contents import CONTENTS
from appliance.workspace.datadir import BESIDE, MANIFEST, SHARED_STORES, STORES, DataDir

TOKEN, IDENTITY = "token", "identity"
CHAINS = tuple(store for store in SHARED_STORES if declaration_of(store).head)
"""Shared stores that are recorded too: without their file, another chain would begin."""
NAMES = (*STORES, *SHARED_STORES, TOKEN, IDENTITY)
FILES_MAX = 300  # files that are recorded, so that the record stays small
FILE = MANIFEST
RECORD_STORE = next(store for store, each in DECLARATIONS.items() if each.keeps_record)
Mode = Literal["ro", "rw", "unused"]


class StoreLost(Conflict):
    code = "STORE_LOST"
    default_message = "a store is missing in this workspace"
    default_hint = "restore a copy, or create it empty: agentlipd up --accept-loss STORE"

    def __init__(
        self, name: str, problem: str = "missing", newest: int = 0, given_out: int = 0, of: str = ""
    ) -> None:
        """Take, as `behind`, the newest event id in the store, and the newest that was given
        out."""
        self.store, self.newest, self.given_out, self.of = name, newest, given_out, of
        file = file_of(name)
        path, row = f".agentlip/{file}", "event"
        if name in DECLARATIONS:
            path = store_declaration.path_of(name)
            row = "event" if declaration_of(name).numbers_events else "commit"
        what = {
            "missing": f"its file {path} is missing",
            "empty": f"its file {path} is empty",
            "foreign": f"{path} belongs to {of or 'another workspace'}",
            "behind": f"{path} ends with {row} {newest}, but {row} {given_out} was given"
            " out: an older file was put back, or its write-ahead log was removed or damaged",
        }[problem]
        super().__init__(
            f"{name}: {what}",
            details={"store": name, "file": file, "problem": problem},
            hint=_swap(path, store_declaration.path_of(of))
            if of
            else (
                f"restore a copy; or go on without this store: agentlipd up --accept-loss {name}"
            ),
        )


def _swap(first: str, second: str) -> str:
    a, b = sorted((first, second))  # one command for both, to run once
    return f"agentlipd down; mv {a} {a}.other; mv {b} {a}; mv {a}.other {b}"


class RecordUnreadable(Conflict):
    code = "RECORD_UNREADABLE"
    default_message = "the list of stores, stores.json, can't be read"
    default_hint = "mv .agentlip/stores.json .agentlip/backups/; agentlipd up # if none is missing"


class WorkspaceManifest(msgspec.Struct):
    """The record. `stores`: name → id, "" without an id. `lost`: name → when the loss was
    accepted."""

    version: int = 1
    stores: dict[str, str] = {}
    lost: dict[str, str] = {}


def file_of(name: str) -> str:
    """Return the file for a store or secret, relative to `.agentlip/`."""
    secrets = {TOKEN: "token", IDENTITY: "identity/keypair.json"}
    return secrets.get(name) or store_declaration.file_of(name)


def check_names(names: Iterable[str]) -> frozenset[str]:
    """Validate --accept-loss values. Raises Invalid."""
    given = frozenset(name.rstrip("/") for name in names)
    unknown = sorted(name for name in given - set(NAMES) if not name.startswith("network/"))
    if unknown:
        raise Invalid(f"unknown store: {unknown[0]}", hint=f"use one of: {', '.join(NAMES)}")
    return given


def read(datadir: DataDir) -> WorkspaceManifest:
    """Return the record; empty if there is none."""
    return _decode(read_small(datadir.dir / FILE))


def unreadable(datadir: DataDir) -> list[str]:
    """Return the record and the event note, if they exist and can't be read."""
    readable = {FILE: _decode(read_small(datadir.dir / FILE)).stores,
                store_declaration.NEWEST_EVENT: event_ids.read(datadir.dir)}  # fmt: skip
    return [name for name, content in readable.items()
            if not content and (datadir.dir / name).exists()]  # fmt: skip


def value_in_record(datadir: DataDir, key: str, mode: Mode = "ro") -> str:
    """Return a `meta` value from the store that keeps the record; "" if it can't be read."""
    return _meta(datadir.database(RECORD_STORE), key, mode)


def remembered_at(database: Path) -> dict[str, str]:
    """Return the stores that the record beside a database names."""
    return _decode(read_small(database.with_name(FILE))).stores


def expected(datadir: DataDir) -> dict[str, str]:
    """Return what has to be there: name → id. A note shows that a store was there, even if the
    record is lost."""
    noted = [store for store in DECLARATIONS if commit_count.read(datadir.workspace, store)]
    return {**dict.fromkeys(noted, ""), **read(datadir).stores}


def lost_stores(
    datadir: DataDir, mode: Mode = "ro", stores: Collection[str] = STORES
) -> list[StoreLost]:
    """Return recorded stores that are missing, belong to another workspace, or lack events that
    were given out. Check `stores` and the secrets."""
    names = expected(datadir)
    owners = {store_id: name for name, store_id in names.items()}
    lost = []
    for name, store_id in names.items():
        path = datadir.database(name) if name in DECLARATIONS else datadir.dir / file_of(name)
        # Not every workspace needs keys: the identity subsystem checks them.
        if name not in (*stores, TOKEN):
            continue
        is_gone = datadir.read_token() is None if name == TOKEN else not path.exists()
        if is_gone or is_empty(path):
            if name not in set(SHARED_STORES) - set(CHAINS):  # other programs may remove the file
                lost.append(StoreLost(name, "missing" if is_gone else "empty"))
        elif store_id and (own := _id_of(path, name, mode) or store_id) != store_id:
            lost.append(StoreLost(name, "foreign", of=owners.get(own, "")))
        elif name != TOKEN and (error := _behind(datadir, name, mode)):
            lost.append(error)
    return lost


def lost_files(datadir: DataDir) -> dict[str, list[str]]:
    """Return the folders that lack recorded files, with these files' names."""
    lost: dict[str, list[str]] = {}
    for name in read(datadir).stores:
        folder, _, file = name.rpartition("/")
        if folder and not (datadir.dir / name).exists():
            lost.setdefault(folder, []).append(file)
    return lost


def check(
    datadir: DataDir,
    accepted: Collection[str],
    clock: Clock,
    log: Log,
    stores: Collection[str] = STORES,
) -> None:
    """Raise StoreLost for a lost store unless accepted. Call before `stores` are opened or
    created."""
    if FILE in unreadable(datadir):
        raise RecordUnreadable
    # A write-ahead log stays unchanged: a refused start must not remove readable data.
    lost = lost_stores(datadir, "unused", {*stores, *SHARED_STORES, *accepted})
    for error in lost:
        if error.details["store"] not in accepted:
            raise error
        if error.details["problem"] == "behind":
            log.warning("commits were lost; the store goes on without them", **error.details)
            manifest = read(datadir)
            manifest.lost[error.store] = iso(clock.now_ms())
            _write(datadir, manifest)
            leave = _leave_events if declaration_of(error.store).numbers_events else _leave_commits
            leave(datadir, error, clock)
    names = {str(e.details["store"]) for e in lost if e.details["problem"] != "behind"}
    if IDENTITY in accepted and not (datadir.dir / file_of(IDENTITY)).exists():
        names.add(IDENTITY)
    names |= lost_files(datadir).keys() & set(accepted)
    if names:
        _accept(datadir, names, clock, log)


def remember(datadir: DataDir, stores: Collection[str] = STORES) -> None:
    """Add existing files to the record. Call with the lock held and `stores` migrated. A chain
    that began since then, because its file was removed, does not replace the recorded chain."""
    manifest = read(datadir)
    for store in (*stores, *CHAINS):
        path = datadir.database(store)
        if path.is_file() and not (store in CHAINS and manifest.stores.get(store)):
            # A file whose id can't be read may be damaged.
            manifest.stores[store] = _id_of(path, store, "rw") or manifest.stores.get(store, "")
    for name in (TOKEN, IDENTITY):
        if (datadir.dir / file_of(name)).exists():
            manifest.stores.setdefault(name, "")
    files = (path for row in CONTENTS if row.recorded for path in row.find(datadir.workspace))
    for path in islice(files, FILES_MAX):
        manifest.stores[path.relative_to(datadir.dir).as_posix()] = ""
    _write(datadir, manifest)


def forget(datadir: DataDir, folder: str) -> None:
    """Remove the files below a folder from the record: they were put aside on purpose."""
    manifest = read(datadir)
    kept = {name: id_ for name, id_ in manifest.stores.items() if not name.startswith(f"{folder}/")}
    _write(datadir, msgspec.structs.replace(manifest, stores=kept))


def begin_chains(datadir: DataDir) -> None:
    """Make each shared store that has a chain, before its first record, so that the first start
    records the store. Call after `check`."""
    for store in CHAINS:
        if not (path := datadir.database(store)).exists():
            store_declaration.open_shared(store, path, "FULL").close()


def _accept(datadir: DataDir, names: set[str], clock: Clock, log: Log) -> None:
    manifest = read(datadir)
    now_ms = clock.now_ms()
    for name in sorted(names):
        log.warning("a store was lost; it is created again, empty", store=name, file=file_of(name))
        for recorded in [each for each in manifest.stores if each.rpartition("/")[0] == name]:
            del manifest.stores[recorded]
        manifest.stores.pop(name, None)
        manifest.lost[name] = iso(now_ms)
        path = datadir.database(name) if name in DECLARATIONS else None
        if path is not None and (not path.exists() or is_empty(path)):
            path.unlink(missing_ok=True)
            _put_aside(path, now_ms)
    restarted = any(declaration_of(name).numbers_events for name in names)
    if restarted and datadir.database(RECORD_STORE).exists():
        # Event numbers begin again: clients' cursors must not be taken for new ones.
        with closing(open_database(datadir.database(RECORD_STORE), "rw")) as connection:
            connection.execute("DELETE FROM meta WHERE key = 'epoch'")
    _write(datadir, manifest)


def _behind(datadir: DataDir, store: str, mode: Mode) -> StoreLost | None:
    """Return the error if the store lacks commits, or events from this epoch or its former
    epochs."""
    database = datadir.database(store)
    noted = commit_count.read(datadir.workspace, store)  # first: an appliance may be running
    if declaration_of(store).numbers_events:
        epoch = value_in_record(datadir, epochs.KEY, mode)
        owners = {epoch, *(each for _, each in epochs.first_ids(datadir, epoch))}
    else:
        owners = {_id_of(database, store, mode)} if noted else set()
    if noted is None or noted.owner not in owners:
        return None
    if not database.is_file() or suspect_marker(database).exists():  # a FIFO would not open
        return None
    with suppress(sqlite3.Error), closing(open_database(database, mode)) as connection:
        newest = commit_count.newest(connection, store)
        if newest < noted.number:
            return StoreLost(store, "behind", newest=newest, given_out=noted.number)
    return None


def _leave_events(datadir: DataDir, error: StoreLost, clock: Clock) -> None:
    """Begin an epoch in which no lost event's id is given out again. The ids are raised last, so
    that the loss has to be accepted again after an interruption."""
    old, epoch = value_in_record(datadir, epochs.KEY, "rw"), random_id()
    begun = epochs.Epoch(
        epoch, iso(clock.now_ms()), "", error.given_out + JUMP + 1, error.given_out
    )
    text = epochs.continued(epochs.read(datadir), old, begun)
    datadir.write_private(datadir.dir / epochs.FILE, text)
    with closing(open_database(datadir.database(RECORD_STORE), "rw")) as connection:
        connection.execute(meta.SET, (epochs.KEY, epoch))
    with closing(open_database(datadir.database(error.store), "rw")) as connection:
        event_ids.keep_sequence(connection, "events", error.given_out + JUMP)


def _leave_commits(datadir: DataDir, error: StoreLost, _clock: Clock) -> None:
    """Let the store go on without the commits. A lost row's number is never given out again."""
    declaration = declaration_of(error.store)
    with closing(open_database(datadir.database(error.store), "rw")) as connection:
        for table in declaration.restore.raised:
            number = event_ids.sequence(connection, table)
            event_ids.keep_sequence(connection, table, max(number, error.given_out) + JUMP)
        if declaration.commits:
            event_ids.keep_sequence(connection, declaration.commits, error.given_out)
        else:
            connection.execute(meta.SET, (commit_count.KEY, str(error.given_out)))


def is_empty(file: Path) -> bool:
    """Return whether the file has no byte, which no program that saves its data leaves."""
    return file.is_file() and file.stat().st_size == 0


def _put_aside(database: Path, now_ms: int) -> None:
    """Rename the lost file's log, which must not be applied to the new file."""
    for suffix in BESIDE:
        leftover = database.with_name(database.name + suffix)
        if leftover.exists():
            leftover.rename(database.with_name(f"{database.name}.lost-{now_ms}{suffix}"))
    suspect_marker(database).unlink(missing_ok=True)


def _id_of(database: Path, store: str, mode: Mode) -> str:
    """Return the id in a store's file; "" if it has none or can't be read."""
    return _meta(database, declaration_of(store).id_key, mode)


def _write(datadir: DataDir, manifest: WorkspaceManifest) -> None:
    text = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2).decode()
    text += "\n"
    if read_small(datadir.dir / FILE) != text.encode():
        datadir.write_private(datadir.dir / FILE, text)


def _decode(text: bytes | None) -> WorkspaceManifest:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(text or b"", type=WorkspaceManifest)
    return WorkspaceManifest()


def _meta(database: Path, key: str, mode: Mode) -> str:
    """Return a `meta` value; "" if it can't be read. Never creates a database.

    With the lock held use `rw`, which leaves no log behind; beside a running appliance `ro`. With
    `unused`, for a workspace without an appliance, nothing is written, not even a log.
    """
    if database.is_file() and not suspect_marker(database).exists():
        with suppress(sqlite3.Error), closing(open_database(database, mode)) as connection:
            return meta.value(connection, key) or ""
    return ""
