"""The vocabulary: Check, Finding, Severity, and the Context a check looks at."""

import enum
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.datadir import STORES, DataDir, LockView, ServerFile, look_at_lock
from appliance.kernel.store_errors import NO_ROOM_BYTES
from doctor.settings import DoctorSettings

_SUBSYSTEM_OF = {"events": "hub", "jobs": "export", "mail": "outbox"}  # where names differ
_STEPS_BETWEEN_LOOKS = 50_000
_BUSY_TIMEOUT_SECONDS = 5.0
_SHARED_BYTES_MIN = 32_768  # SQLite's unit of shared memory


class Severity(enum.Enum):
    """How bad. Only `critical` makes the appliance not ready: it can't do its work."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Cost(enum.Enum):
    CHEAP = "cheap"
    EXPENSIVE = "expensive"  # reads whole stores; only when asked for


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong: of what, in a sentence, and the command that mends it."""

    severity: Severity
    subject: str
    sentence: str
    hint: str = ""
    check: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table. `find` never writes. `ready` rows are asked at every /-/ready, so they
    look at numbers the process has anyway, and at a few files' sizes."""

    name: str
    inspects: str
    find: "Callable[[Context], Iterable[Finding]]"
    cost: Cost = Cost.CHEAP
    ready: bool = False


class Context:
    """What checks may look at. Opens a store at most once, read-only, and closes it at the end.

    live        numbers the running appliance gives of itself (see `live.facts`); None if there
                are none, because nothing runs here or it could not be asked
    live_error  why it could not be asked, as a sentence
    off         subsystems that are switched off: their checks and stores are left out
    """

    def __init__(
        self,
        datadir: DataDir,
        settings: DoctorSettings,
        clock: Clock,
        *,
        live: Mapping[str, float] | None = None,
        live_error: str | None = None,
        stores: tuple[str, ...] = STORES,
        off: frozenset[str] = frozenset(),
    ) -> None:
        self.datadir = datadir
        self.settings = settings
        self.clock = clock
        self.live = live
        self.live_error = live_error
        self.off = off
        self._stores = stores
        self._connections: dict[str, sqlite3.Connection] = {}
        self._deadline = float("inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(store for store in self._stores if store not in self.off)

    def is_off(self, name: str) -> bool:
        """Whether a check or setting, by its dotted name, is of a subsystem that is off."""
        first = name.partition(".")[0]
        return _SUBSYSTEM_OF.get(first, first) in self.off

    def give(self, seconds: float) -> None:
        """Reads from now on are interrupted after that time."""
        self._deadline = self.clock.monotonic() + seconds

    def number(self, name: str) -> float | None:
        """What the living process says under that name."""
        return None if self.live is None else self.live.get(name)

    @property
    def disk_trouble(self) -> str | None:
        """Why nothing can be written here now: `full`, `read-only`, or None. It explains what
        else is found, so other checks advise nothing while it lasts."""
        try:
            volume = os.statvfs(self.datadir.dir)
        except OSError:
            return None
        if volume.f_flag & os.ST_RDONLY:
            return "read-only"
        paused = any(self.number(f"{store}.writing_paused") for store in self.stores)
        counted = volume.f_blocks > 0  # some network mounts count nothing
        full = counted and volume.f_bavail * volume.f_frsize < NO_ROOM_BYTES
        return "full" if full or paused else None

    def lock(self) -> LockView:
        return look_at_lock(self.datadir)

    def server(self) -> ServerFile | None:
        return self.datadir.read_server()

    def open(self, store: str) -> sqlite3.Connection:
        """A connection that can't write; raises sqlite3.Error where there is nothing to open."""
        connection = self._connections.get(store)
        if connection is None:
            connection = open_read_only(self.datadir.database(store))
            connection.set_progress_handler(self._is_late, _STEPS_BETWEEN_LOOKS)
            self._connections[store] = connection
        return connection

    def opened(self, *stores: str) -> Iterator[tuple[str, sqlite3.Connection]]:
        """Those stores (all, if none is named) that open; that one does not is said elsewhere."""
        for store in stores or self.stores:
            if store in self.off:
                continue
            try:
                connection = self.open(store)
                connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
            except sqlite3.Error:
                continue
            yield store, connection

    def _is_late(self) -> bool:
        return self.clock.monotonic() > self._deadline


def open_read_only(database: Path) -> sqlite3.Connection:
    """Beside a running hub or alone; leaves a log that a crash left as it is."""
    alone = "&immutable=1" if _needs_no_log(database) else ""
    connection = sqlite3.connect(
        database.absolute().as_uri() + "?mode=ro" + alone,
        uri=True,
        isolation_level=None,
        timeout=_BUSY_TIMEOUT_SECONDS,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _needs_no_log(database: Path) -> bool:
    """Nobody writes it and no commits wait in a log: so none has to be made beside it, for which
    there is no room on a full disk and no right on a read-only one."""
    log, shared = (database.with_name(database.name + suffix) for suffix in ("-wal", "-shm"))
    try:
        volume = os.statvfs(database.parent)
        if log.exists() and log.stat().st_size:
            return False
        # An attempt to open it without room leaves a shorter one.
        in_use = shared.exists() and shared.stat().st_size >= _SHARED_BYTES_MIN
    except OSError:
        return False
    full = volume.f_bavail * volume.f_frsize < NO_ROOM_BYTES
    return bool(volume.f_flag & os.ST_RDONLY) or (full and not in_use)


def is_damage(error: sqlite3.Error) -> bool:
    """The file itself is wrong; everything else is about reaching it."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_interrupted(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
