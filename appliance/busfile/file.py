"""Opens a bus file: where it is, connections, transactions, and SQLite's errors in words."""

import os
import random
import select
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from appliance.busfile import schema
from appliance.kernel.clock import SystemClock
from appliance.kernel.errors import FileSystemReadOnly, Missing, StorageFull, Unavailable
from appliance.kernel.ownership import WorkspaceNotTrusted, open_own
from appliance.kernel.store_errors import DISK_FULL_BYTES, free_bytes, is_read_only, sqlite_name
from appliance.kernel.store_files import accept_any_text
from appliance.kernel.whole_file import write_whole
from appliance.syscalls import birth_ns
from appliance.workspace.datadir import DIRECTORY as DATA
from appliance.workspace.datadir import upwards

DIRECTORY, EXPORT = ".worker-state", "bus.jsonl"
BUSY_TIMEOUT_MS = 5000
_CACHED_STATEMENTS = 256
_PAUSE_SECONDS = (0.0002, 0.002)  # between two attempts to lock the file
T = TypeVar("T")
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL")
_IGNORED = b"# The bus is not part of the repository; its export may be.\n*\n!bus.jsonl\n"


class BusMissing(Missing):
    code = "BUS_MISSING"
    default_message = "there is no worker bus here"
    default_hint = "create a workspace here: agentlip init; or name one: --workspace DIR"


class BusBusy(Unavailable):
    code = "BUS_BUSY"
    default_message = "another program has kept the bus locked for 5 seconds"
    default_hint = "try again; `fuser -v .worker-state/bus.db` lists the programs that use it"


class BusDamaged(Unavailable):
    code = "BUS_DAMAGED"
    default_message = "the bus file is damaged"
    default_hint = "agentlip doctor --run store; agentlipd down; agentlip recover bus --yes"


class BusNotWritable(Unavailable):
    code = "BUS_NOT_WRITABLE"
    default_message = "the bus file can't be opened for writing"
    default_hint = "check owner and mode: ls -ld .worker-state .worker-state/bus.db"


class BusPaths:
    """One workspace's bus paths. Creating an instance reads nothing."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace.absolute()
        self.dir = self.workspace / DIRECTORY
        self.database = self.dir / "bus.db"
        self.blobs = self.dir / "blobs"
        self.export = self.dir / EXPORT
        self.workers = self.dir / "workers"
        self.last_file = self.dir / "last-file"


def find_paths(explicit: Path | None = None, start: Path | None = None) -> BusPaths:
    """Return the given workspace's bus, or the nearest one above `start`.

    A folder with the file is preferred to nearer ones without it: the export may be part of a
    repository, and each worktree then has a folder with that name. Raises BusMissing.
    """
    if explicit is not None:
        return BusPaths(explicit.expanduser().resolve())
    folders = list(upwards(start or Path.cwd()))
    for name in (f"{DIRECTORY}/bus.db", DIRECTORY, DATA):
        for folder in folders:
            if (folder / name).exists():
                return BusPaths(_check_owner(folder, folder / name))
    raise BusMissing(
        f"no worker bus found; looked for {DIRECTORY} and {DATA} in: "
        + ", ".join(map(str, folders)),
        details={"searched": [str(folder) for folder in folders]},
    )


def _check_owner(folder: Path, path: Path) -> Path:
    """Return `folder`, unless the bus in it belongs to another user."""
    owners = {part.lstat().st_uid for part in (path, path.parent)} | {path.stat().st_uid}
    if owners - {0, os.geteuid()}:
        raise WorkspaceNotTrusted(f"{path} belongs to another user")
    return folder


def connect(paths: BusPaths, *, durable: bool = False, create: bool = True) -> sqlite3.Connection:
    """Open a connection for one thread, with the specification's pragmas.

    durable  each commit waits for the disk (`synchronous` FULL); without it, a power failure may
             undo the last commits, a process's end does not
    create   make the file if it is missing; otherwise raises BusMissing
    """
    if not paths.database.exists():
        if not create:
            raise BusMissing(
                f"there is no worker bus in {paths.workspace}",
                hint="the first claim or message makes the file: agentlip bus claim --help",
            )
        _create_folder(paths)
    with errors_of(paths.dir):
        connection = sqlite3.connect(
            paths.database, isolation_level=None, cached_statements=_CACHED_STATEMENTS
        )
        try:
            _prepare(connection, durable)
            _continue_numbers(connection, paths)
        except BaseException:
            connection.close()
            raise
    return connection


def open_store(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open the appliance's store whose file is the bus."""
    return connect(BusPaths(path.parent.parent), durable=synchronous == "FULL")


def _create_folder(paths: BusPaths) -> None:
    try:
        paths.dir.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(open_own(paths.dir / ".gitignore", flags, 0o666), "wb") as file:
                file.write(_IGNORED)
    except OSError as error:
        raise unwritable(error, paths.workspace) from error


def _prepare(connection: sqlite3.Connection, durable: bool) -> None:
    accept_any_text(connection)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").fetchall()
    connection.execute("PRAGMA foreign_keys = ON")
    _switch_to_wal(connection)
    connection.execute(
        "PRAGMA synchronous = NORMAL" if not durable else "PRAGMA synchronous = FULL"
    )
    if _until_free(lambda: schema.missing(connection)):
        with transaction(connection):
            schema.open_schema(connection)


def _continue_numbers(connection: sqlite3.Connection, paths: BusPaths) -> None:
    """Continue message and fence numbers above those that a former, deleted or replaced file
    gave out. A file that was copied with its folder has not replaced another one."""
    with suppress(FileNotFoundError):  # removed just now: nobody goes on with this file
        if _last_file(paths) == _identify(connection, paths):
            return
        with transaction(connection):
            last, present = _last_file(paths), _identify(connection, paths)
            if not present.startswith(last):
                schema.execute(connection, schema.RAISE)
                if last.rpartition(b" ")[2] == present.rpartition(b" ")[2]:
                    schema.note_replaced(connection)
            write_whole(paths.last_file, _identify(connection, paths))  # `fence` has risen


def _identify(connection: sqlite3.Connection, paths: BusPaths) -> bytes:
    (bus,) = connection.execute("SELECT id || ' ' || fence FROM x_bus").fetchone()
    file = f"{paths.database.stat().st_ino} {birth_ns(paths.database)}"
    return f"{bus} {file} {paths.dir.stat().st_ino}".encode()


def _last_file(paths: BusPaths) -> bytes:
    return paths.last_file.read_bytes() if paths.last_file.is_file() else b""


@contextmanager
def changing(paths: BusPaths) -> Iterator[sqlite3.Connection]:
    """Yield a new connection in a transaction that writes, so in the file that is there now."""
    with closing(connect(paths)) as connection, transaction(connection):
        yield connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL. SQLite does not wait for locks here if several programs create the file at
    once."""
    mode = _until_free(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    if mode != "wal":
        raise BusNotWritable(f"SQLite can't use its log here; journal_mode is {mode}")


def _until_free(attempt: Callable[[], T]) -> T:
    """Repeat `attempt` while another program has a lock or makes the tables, with short random
    pauses."""
    clock = SystemClock()
    deadline = clock.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            return attempt()
        except (sqlite3.OperationalError, schema.BusUnfinished) as error:
            busy = isinstance(error, schema.BusUnfinished) or sqlite_name(error).startswith(_BUSY)
            if not busy or clock.monotonic() > deadline:
                raise
        sleep(random.uniform(*_PAUSE_SECONDS))


def sleep(seconds: float) -> None:
    """Wait in a process that nobody has to wake."""
    select.select([], [], [], seconds)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run a writing transaction: the whole block or nothing. Keep the block short: others wait.

    Raises BusBusy if another program has the file locked for too long, StorageFull, BusDamaged.
    """
    yield from _within(connection, _begin_writing)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run several reads that see the same state."""
    yield from _within(connection, lambda reader: reader.execute("BEGIN"))


def _begin_writing(connection: sqlite3.Connection) -> None:
    """Begin with short pauses between attempts. SQLite's own pauses grow to 100 ms, so under load
    the program that has waited for longest would wait for longer still."""
    connection.execute("PRAGMA busy_timeout = 0").fetchall()
    try:
        _until_free(lambda: connection.execute("BEGIN IMMEDIATE"))
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}").fetchall()


def _within(
    connection: sqlite3.Connection, begin: Callable[[sqlite3.Connection], object]
) -> Iterator[sqlite3.Connection]:
    try:
        begin(connection)
        yield connection
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:  # SQLite itself rolls back on some errors
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise translate(error, folder_of(connection)) from None
        raise


def folder_of(connection: sqlite3.Connection) -> Path:
    """Return the folder with the connection's file."""
    rows = connection.execute("PRAGMA database_list").fetchall()
    return Path(rows[0][2] if rows else "").parent


@contextmanager
def errors_of(folder: Path) -> Iterator[None]:
    """Translate SQLite's errors with `translate`."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, folder) from None


def translate(error: sqlite3.Error, folder: Path) -> Exception:
    """Return the client's error. Only BusBusy means that another program was first."""
    name = sqlite_name(error)
    if name.startswith(_BUSY):
        return BusBusy()
    if name == "SQLITE_FULL":
        return StorageFull()
    if name.startswith(("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
        return _unwritable(folder, f"the bus file can't be read or written: {error}")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR")):
        return BusDamaged(f"the bus file is damaged: {error}")
    return error


def unwritable(error: OSError, folder: Path) -> Exception:
    """Return the client's error when a file beside the database can't be written."""
    return _unwritable(folder, f"a bus file can't be written: {error.strerror}")


def _unwritable(folder: Path, message: str) -> Exception:
    if is_read_only(folder):
        return FileSystemReadOnly()
    return StorageFull() if free_bytes(folder) < DISK_FULL_BYTES else BusNotWritable(message)
