"""What a workspace had: its stores and secrets, so that a missing one is never begun anew silently.

The record is a JSON file, `.agentlip/stores.json`, and the same text in the auth store, so that
neither can be removed unnoticed. A workspace without a record (another program's, or an older
version's) gets one at its first open. Each store carries a random id, by which a file of another
workspace is recognised.
"""

import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

import msgspec

from appliance.kernel.clock import Clock, iso
from appliance.kernel.datadir import MANIFEST, STORES, DataDir, suspect_mark
from appliance.kernel.errors import Conflict, Invalid
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log

TOKEN, IDENTITY = "token", "identity"
NAMES = (*STORES, TOKEN, IDENTITY)
FILE = MANIFEST
Mode = Literal["ro", "rw"]
_META_KEY = "x_stores"
_ID_KEY = "x_store_id"
_FILE_BYTES_MAX = 65_536
_BESIDE = ("-wal", "-shm", "-journal")
_BUSY_SECONDS = 5.0


class StoreLost(Conflict):
    code = "STORE_LOST"
    sentence = "a store of this workspace is missing"
    advice = "put a copy back, or create it empty: agentlipd up --accept-loss STORE"

    def __init__(self, name: str, problem: str = "missing") -> None:
        file = file_of(name)
        what = {
            "missing": f"its file .agentlip/{file} is missing",
            "foreign": f".agentlip/{file} belongs to another workspace",
        }[problem]
        other = {TOKEN: "; or issue a new one: agentlip token rotate server"}.get(name, "")
        super().__init__(
            f"{name}: {what}",
            details={"store": name, "file": file, "problem": problem},
            hint=f"put a copy of it back{other}; or create it again without its data:"
            f" agentlipd up --accept-loss {name}",
        )


class Manifest(msgspec.Struct):
    """`stores`: name → its id, "" where it has none. `lost`: name → when its loss was accepted."""

    version: int = 1
    stores: dict[str, str] = {}
    lost: dict[str, str] = {}


def file_of(name: str) -> str:
    """Relative to `.agentlip/`."""
    special = {TOKEN: "token", IDENTITY: "identity/keypair.json", "hub": "db.sqlite3"}
    return special.get(name, f"{name}.sqlite3")


def check_names(names: Iterable[str]) -> frozenset[str]:
    """The values of --accept-loss. Raises Invalid."""
    given = frozenset(names)
    unknown = sorted(given - set(NAMES))
    if unknown:
        raise Invalid(
            f"unknown store: {unknown[0]}",
            details={"field": "accept-loss"},
            hint=f"one of: {', '.join(NAMES)}",
        )
    return given


def read(datadir: DataDir, mode: Mode = "ro") -> Manifest:
    """What file and auth store remember, together; empty where there is no record."""
    of_auth = _decode(_meta(datadir.database("auth"), _META_KEY, mode).encode())
    found = _decode(_text(datadir.dir / FILE)), of_auth
    both = Manifest()
    for each in found:
        for name, store_id in each.stores.items():
            both.stores[name] = both.stores.get(name) or store_id
        both.lost |= each.lost
    return both


def remembered_at(database: Path) -> dict[str, str]:
    """The stores that the file beside a database names."""
    return _decode(_text(database.with_name(FILE))).stores


def lost_stores(
    datadir: DataDir, mode: Mode = "ro", stores: Collection[str] = STORES
) -> list[StoreLost]:
    """What is remembered and not there, or somebody else's. Only `stores` are looked at, and
    secrets."""
    expected = read(datadir, mode).stores or _expected_without_record(datadir, mode)
    lost = []
    for name, store_id in expected.items():
        path = datadir.dir / file_of(name)
        if name in STORES and name not in stores:
            continue
        if name == IDENTITY:
            continue  # a process without a disk of its own needs none: asked where it is loaded
        if name == TOKEN:
            if datadir.read_token() is None:
                lost.append(StoreLost(name))
        elif not path.exists():
            lost.append(StoreLost(name))
        elif store_id and (_id_of(path, mode) or store_id) != store_id:
            lost.append(StoreLost(name, "foreign"))
    return lost


def check(
    datadir: DataDir,
    accepted: Collection[str],
    clock: Clock,
    log: Log,
    stores: Collection[str] = STORES,
) -> None:
    """Before `stores` are opened or made. Raises StoreLost for what was not accepted."""
    lost = lost_stores(datadir, "rw", {*stores, *accepted})
    for error in lost:
        if error.details["store"] not in accepted:
            raise error
    names = {str(error.details["store"]) for error in lost}
    if IDENTITY in accepted and not (datadir.dir / file_of(IDENTITY)).exists():
        names.add(IDENTITY)
    if names:
        _accept(datadir, names, clock, log)
    elif not (datadir.dir / FILE).exists() and read(datadir, "rw").stores:
        log.warning("the record of the stores was missing and was created again", file=FILE)


def remember(datadir: DataDir, stores: Collection[str] = STORES) -> None:
    """Adds what is there to the record. Under the lock, with `stores` migrated."""
    manifest = read(datadir, "rw")
    for store in stores:
        path = datadir.database(store)
        if path.exists():
            manifest.stores[store] = _identify(path, store, manifest.stores.get(store, ""))
    for name in (TOKEN, IDENTITY):
        if (datadir.dir / file_of(name)).exists():
            manifest.stores.setdefault(name, "")
    _write(datadir, manifest)


def forget(datadir: DataDir, name: str) -> None:
    """The caller puts that file aside: the next start may begin it anew."""
    manifest = read(datadir, "rw")
    if manifest.stores.pop(name, None) is not None:
        _write(datadir, manifest)


def _accept(datadir: DataDir, names: set[str], clock: Clock, log: Log) -> None:
    manifest = read(datadir, "rw")
    now_ms = clock.now_ms()
    for name in sorted(names):
        log.warning("a store was lost; it is created again, empty", store=name, file=file_of(name))
        manifest.stores.pop(name, None)
        manifest.lost[name] = iso(now_ms)
        if name in STORES and not datadir.database(name).exists():
            _put_aside(datadir.database(name), now_ms)
    if "hub" in names and datadir.database("auth").exists():
        # Event numbers begin again: cursors of clients must not be taken for new ones.
        with _opened(datadir.database("auth")) as connection:
            connection.execute("DELETE FROM meta WHERE key = 'epoch'")
            connection.commit()
    _write(datadir, manifest)


def _put_aside(database: Path, now_ms: int) -> None:
    """A log of the lost file must not be played into the new one."""
    for suffix in _BESIDE:
        leftover = database.with_name(database.name + suffix)
        if leftover.exists():
            leftover.rename(database.with_name(f"{database.name}.lost-{now_ms}{suffix}"))
    suspect_mark(database).unlink(missing_ok=True)


def _id_of(database: Path, mode: Mode) -> str:
    """The id a store's file carries; "" where it has none or can't be read."""
    key = "db_id" if database.name == file_of("hub") else _ID_KEY
    return _meta(database, key, mode)


def _expected_without_record(datadir: DataDir, mode: Mode) -> dict[str, str]:
    """An older version's workspace: hub and auth were always made together, by us."""
    hub, auth = datadir.database("hub"), datadir.database("auth")
    ours = _meta(auth, "epoch", mode) or _meta(
        hub, "x_schema", mode
    )  # else being made, or another's
    return {"hub": "", "auth": ""} if ours else {}


def _identify(path: Path, store: str, known: str) -> str:
    found = _id_of(path, "rw")
    if found or known or store == "hub":
        return found or known  # a file whose id can't be read may be damaged: not written
    with suppress(sqlite3.Error), _opened(path) as connection:
        connection.execute(
            "INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)",
            (_ID_KEY, random_id()),
        )
        connection.commit()
    return _id_of(path, "rw")


def _write(datadir: DataDir, manifest: Manifest) -> None:
    text = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2).decode()
    text += "\n"
    if _text(datadir.dir / FILE) != text.encode():
        datadir.write_private(datadir.dir / FILE, text)
    auth = datadir.database("auth")
    if auth.exists() and _meta(auth, _META_KEY, "rw") != text:
        with suppress(sqlite3.Error), _opened(auth) as connection:
            connection.execute(
                "INSERT INTO meta (key, value) VALUES (?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (_META_KEY, text),
            )
            connection.commit()


def _decode(text: bytes) -> Manifest:
    try:
        return msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError:
        return Manifest()


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES_MAX)
    except OSError:
        return b""


def _meta(database: Path, key: str, mode: Mode) -> str:
    """A value of the table meta; "" where it can't be read. Never makes a database.

    Under the lock `rw`, which leaves no log behind; beside a running appliance `ro`.
    """
    if not database.exists() or suspect_mark(database).exists():
        return ""
    try:
        with _opened(database, mode) as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    except sqlite3.Error:
        return ""
    return "" if row is None else str(row[0])


def _opened(database: Path, mode: Mode = "rw") -> "closing[sqlite3.Connection]":
    uri = f"{database.absolute().as_uri()}?mode={mode}"
    return closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS))
