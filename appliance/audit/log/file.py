"""Appends to the audit log's chain, reads pages, and verifies the chain.

Each call opens the file, so that the appliance and commands can write in turn. An append is one
transaction, and is on the disk when it returns. A full disk has a reserve for acts that free space.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.audit.log.record import AuditRecord, detail_of
from appliance.kernel import meta
from appliance.kernel.commit_count import CommitCount
from appliance.kernel.errors import StorageFull, Unavailable
from appliance.kernel.ownership import open_own
from appliance.kernel.store_declaration import STORE_ID_KEY, path_of
from appliance.kernel.store_errors import DISK_FULL_BYTES, free_bytes, is_read_only
from appliance.kernel.store_files import UNUSED, open_database
from appliance.kernel.whole_file import write_whole

STORE = "audit"
ROWS_MAX = 50_000  # about 25 MB; the oldest are pruned, and stay in exported segments
ROWS_PRUNED = 1_000  # by one append
RESERVE = "audit.reserve"
RESERVE_BYTES = 128 * 1024
PRUNE = "prune the audit log"
_SCHEMA = files("appliance.audit.log").joinpath("schema.sql").read_text("utf-8")
_COLUMNS = ", ".join(AuditRecord._fields)
_INSERT = f"INSERT INTO log ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INTENT = "SELECT 1 FROM log WHERE seq = ? AND act = ? AND began IS NULL"
_LAST = "SELECT seq, hash FROM log ORDER BY seq DESC LIMIT 1"
_ALL = f"SELECT {_COLUMNS} FROM log WHERE seq > ? ORDER BY seq"
_GIVEN_OUT = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'log'"
_PRUNED = "SELECT detail FROM log WHERE act = ? ORDER BY seq DESC LIMIT 1"
_ACTS = """
SELECT a.seq, strftime('%Y-%m-%dT%H:%M:%fZ', a.at_ms / 1000.0, 'unixepoch'), a.act, a.actor, a.via,
  coalesce(o.phase, nullif(a.phase, 'began'), 'unknown'),
  coalesce(strftime('%Y-%m-%dT%H:%M:%fZ', o.at_ms / 1000.0, 'unixepoch'), ''),
  a.detail, coalesce(o.detail, '{}')
FROM log AS a LEFT JOIN log AS o ON o.began = a.seq
WHERE a.began IS NULL AND a.seq < ?1 AND (?2 = '' OR a.actor = ?2) ORDER BY a.seq DESC LIMIT ?3"""


class AuditUnavailable(Unavailable):
    code = "AUDIT_UNAVAILABLE"
    default_message = "the audit log can't be written, so administrative acts are refused"
    default_hint = "ls -l .agentlip; if it is damaged: agentlipd down; agentlip recover audit --yes"


class AuditedAct(msgspec.Struct, frozen=True):
    """An act. `outcome` is `unknown` while the act runs, or if the process ended before recording
    an outcome.

    began  the request, the caller, and the state before
    ended  the reply or the error, and the state after
    """

    number: int
    at: str
    act: str
    actor: str
    via: str
    outcome: str
    ended_at: str
    began: msgspec.Raw
    ended: msgspec.Raw


class ChainHead(NamedTuple):
    """A chain's newest record. `chain`: the chain's id; `source`: where the head was noted, such
    as a backup."""

    seq: int
    hash: str
    source: str
    chain: str


class ChainVerification(NamedTuple):
    """A verification. `broken`: the number of the first record that is not as written; 0: none.
    `former`: where heads were noted for other chains, which this chain replaced."""

    chain: str
    former: list[str]
    records: int
    head: int
    hash: str
    broken: int = 0
    problem: str = ""


def file_in(workspace: Path) -> Path:
    return workspace / path_of(STORE)


def open_store(path: Path, _synchronous: str = "FULL") -> sqlite3.Connection:
    """Open a connection that writes durably; make the file if it is missing."""
    with suppress(FileExistsError):
        os.close(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    connection = open_database(path, "rw")
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        if not meta.exists(connection, "log"):
            connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def make_model(model: sqlite3.Connection, _present: sqlite3.Connection) -> None:
    """Make in `model` the log's tables, as in every log file."""
    model.executescript(_SCHEMA)


def append(path: Path, record: AuditRecord) -> int:
    """Append a record durably; return its number. Raises AuditUnavailable or StorageFull."""
    reserve = path.with_name(RESERVE)
    try:
        try:
            return _append(path, record)
        except (sqlite3.Error, OSError):
            if not (_is_full(path) and reserve.exists()):
                raise
            reserve.unlink()
            return _append(path, record)
    except (sqlite3.Error, OSError) as error:
        if _is_full(path):
            raise StorageFull from None
        raise AuditUnavailable(f"{AuditUnavailable.default_message}: {error}") from None


def _is_full(path: Path) -> bool:
    return free_bytes(path.parent) < DISK_FULL_BYTES


def _append(path: Path, record: AuditRecord) -> int:
    with closing(open_store(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        number = _insert(connection, record)
        (first,) = connection.execute("SELECT min(seq) FROM log").fetchone()
        if number - first >= ROWS_MAX:
            _prune(connection, first + ROWS_PRUNED - 1, record.at_ms)
        connection.execute("COMMIT")
        noted = CommitCount(connection, path, STORE)
        noted.close()
    if not path.with_name(RESERVE).exists():
        with suppress(OSError):
            write_whole(path.with_name(RESERVE), b"\0" * RESERVE_BYTES)
    return number


def _insert(connection: sqlite3.Connection, record: AuditRecord) -> int:
    last, digest = connection.execute(_LAST).fetchone() or (0, "")
    (given_out,) = connection.execute(_GIVEN_OUT).fetchone()
    if record.began and connection.execute(_INTENT, (record.began, record.act)).fetchone() is None:
        record = record._replace(began=None)  # a restore has put another chain in place
    linked = record.behind(max(last, given_out), digest)
    connection.execute(_INSERT, linked)
    return linked.seq


def _prune(connection: sqlite3.Connection, until: int, now_ms: int) -> None:
    """Delete the oldest records. A record notes that, with the hash that the chain begins with."""
    row = connection.execute("SELECT hash FROM log WHERE seq = ?", (until,)).fetchone()
    detail = prune_detail(until, row[0] if row else "")
    _insert(connection, AuditRecord(0, now_ms, PRUNE, "done", None, "appliance:audit", "", detail))
    connection.execute("DELETE FROM log WHERE seq <= ?", (until,))


def prune_detail(until: int, digest: str) -> str:
    return detail_of({"until": until, "hash": digest})


def acts(path: Path, before: int, limit: int, actor: str = "") -> list[AuditedAct]:
    """Return acts with numbers below `before`, newest first. With `actor` only that actor's
    acts."""
    with _reading(path) as connection:
        rows = connection.execute(_ACTS, (before, actor, limit)).fetchall()
    return [AuditedAct(*row[:-2], *map(_raw, row[-2:])) for row in rows]


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def records(path: Path, after: int = 0) -> Iterator[AuditRecord]:
    """Yield all records above a number, oldest first."""
    with _reading(path) as connection:
        yield from map(AuditRecord._make, connection.execute(_ALL, (after,)))


def verify(path: Path, heads: Iterable[ChainHead] = ()) -> ChainVerification:
    """Verify every link, that no record is missing, and that the chain has these heads."""
    with _reading(path) as connection:
        chain, noted = meta.value(connection, STORE_ID_KEY) or "", list(heads)
        known = {head.seq: head for head in noted if head.chain == chain}
        former = [head.source for head in noted if head.chain != chain]
        (given_out,) = connection.execute(_GIVEN_OUT).fetchone()
        pruned = connection.execute(_PRUNED, (PRUNE,)).fetchone()
        done = ChainVerification(chain, former, 0, 0, "")
        for row in connection.execute(_ALL, (0,)):
            record = AuditRecord._make(row)
            problem = _problem(record, done, pruned, known.pop(record.seq, None))
            if problem:
                broken = done.head + 1 if done.records else record.seq
                return done._replace(broken=broken, problem=problem)
            done = ChainVerification(chain, former, done.records + 1, record.seq, record.hash)
    ahead = [head for head in known.values() if head.seq > done.head]
    if ahead or given_out > done.head:
        source = min(ahead).source if ahead else "the numbers that were given out"
        problem = f"the records from here on are missing, by {source}"
        return done._replace(broken=done.head + 1, problem=problem)
    return done


def _problem(
    record: AuditRecord, done: ChainVerification, pruned: Any, noted: ChainHead | None
) -> str:
    """Return the error in a record after the verified ones; "" if nothing is."""
    if not done.records and (record.seq > 1 or record.previous):
        if pruned is None or pruned[0] != prune_detail(record.seq - 1, record.previous):
            return "the records before it are missing, and were not pruned"
    elif record.seq != done.head + 1:
        return f"it is missing; the next one is {record.seq}"
    elif record.previous != done.hash:
        return f"it does not follow record {done.head}"
    if noted is not None and noted.hash != record.hash:
        return f"it is another one than {noted.source} noted"
    return "" if record.expected_hash() == record.hash else "its content was changed"


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file for reading. A missing file, because nothing was recorded, reads as empty."""
    try:
        # SQLite can make no log beside it there.
        mode = UNUSED if is_read_only(path.parent) or _is_full(path) else "rw"
        there = open_database(path, mode) if path.exists() else sqlite3.connect(":memory:")
        with closing(there) as connection:
            if not path.exists():
                connection.executescript(_SCHEMA)
            yield connection
    except sqlite3.Error as error:
        raise AuditUnavailable(f"the audit log can't be read: {error}") from None
