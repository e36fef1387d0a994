"""Reads the outbox. Each read has a row limit."""

from typing import NamedTuple, TypeVar

from appliance.kernel import meta
from appliance.kernel.meta import Executor
from appliance.kernel.reader import Reader
from appliance.outbox import wire
from appliance.outbox.rows import SendRow

T = TypeVar("T")

COLUMNS = ", ".join(SendRow._fields)

# Each status has a partial index. SQLite uses one only for a literal, so statuses are spelled out.
INDEX = {
    "pending": "outbox_waiting",
    "inflight": "outbox_inflight",
    "dead": "outbox_dead",
    "aborted": "outbox_aborted",
}


CHAIN_MAX = 100  # redrives shown for one send
EPOCH = "epoch:"  # and the mesh: a key in meta
LOST = "accepted by its broker and gone: the broker was restored from an earlier backup"


def require(reader: Executor, any_id: str) -> SendRow:
    """Return a send by row id or client_message_id. Raises NoSuchSend."""
    for column in ("id", "client_message_id"):
        row = reader.execute(
            f"SELECT {COLUMNS} FROM outbox WHERE {column} = ?", (any_id,)
        ).fetchone()
        if row is not None:
            return SendRow(*row)
    raise wire.NoSuchSend(details={"id": any_id})


# UNION instead of UNION ALL, to end even if a damaged file's rows form a cycle. A successor is
# stored after the replaced send.
_CHAIN = (
    "WITH RECURSIVE chain (member) AS (VALUES (?) UNION SELECT one.superseded_by"
    " FROM chain JOIN outbox AS one ON one.id = member WHERE one.superseded_by IS NOT NULL"
    " UNION SELECT one.id FROM chain JOIN outbox AS one"
    " ON one.superseded_by IS NOT NULL AND one.superseded_by = member)"
    f" SELECT {COLUMNS} FROM chain CROSS JOIN outbox ON id = member"
    " ORDER BY outbox.rowid DESC LIMIT ?"
)


def inspect(reader: Reader, any_id: str) -> tuple[SendRow, list[SendRow]]:
    """Return a send, and its redrive chain's newest sends, oldest first. Raises NoSuchSend."""
    row = require(reader, any_id)
    chain = reader.rows(_CHAIN, (row.id, CHAIN_MAX), limit=CHAIN_MAX)
    return row, [SendRow(*sent) for sent in reversed(chain)]


def waiting(reader: Executor, route: str, ref: str, limit: int) -> int:
    """Return how many sends to one destination are pending or in flight, counted up to `limit`."""
    count: int = reader.execute(
        "SELECT count(*) FROM (SELECT 1 FROM outbox INDEXED BY outbox_open"
        " WHERE status IN ('pending', 'inflight') AND route = ? AND destination_kind = 'queue'"
        " AND destination_ref = ? LIMIT ?)",
        (route, ref, limit),
    ).fetchone()[0]
    return count


def last_id(reader: Executor) -> str | None:
    row_id: str | None = reader.execute("SELECT max(id) FROM outbox").fetchone()[0]
    return row_id


def list_delivered(
    reader: Executor, mesh: str, after: tuple[int, int], limit: int
) -> list[tuple[int, int, str, str]]:
    """Return (delivered_at, rowid, id, client_message_id) for sends that the mesh's broker has
    accepted and whose payload is kept, in delivery order."""
    return reader.execute(
        "SELECT delivered_at, rowid, id, client_message_id FROM outbox INDEXED BY outbox_done"
        " WHERE status = 'done' AND payload_dropped_at IS NULL AND (delivered_at, rowid) > (?, ?)"
        " AND mesh = ? AND target = 'broker' ORDER BY delivered_at, rowid LIMIT ?",
        (*after, mesh, limit),
    ).fetchall()


def broker_epoch(reader: Executor, mesh: str) -> str | None:
    """Return the mesh broker's epoch with which all sends were last compared."""
    return meta.value(reader, EPOCH + mesh)


class OutboxStats(NamedTuple):
    """Counts by status and `lost` dead letters, the steady time at which the oldest pending send
    was accepted, and the bytes that the file uses."""

    depth: dict[str, int]
    lost: int
    oldest_ms: int | None
    bytes_used: int


def stats(reader: Executor) -> OutboxStats:
    """Return the counts from small indexes only: delivered sends are not counted."""
    execute = reader.execute
    depth = {
        status: execute(
            # Partial indexes serve a literal only.
            f"SELECT count(*) FROM outbox INDEXED BY {index} WHERE status = " + repr(status)
        ).fetchone()[0]
        for status, index in INDEX.items()
    }
    oldest = execute(
        "SELECT accepted_steady_ms FROM outbox INDEXED BY outbox_waiting WHERE status = 'pending'"
        " ORDER BY id LIMIT 1"
    ).fetchone()
    (pages,) = execute("PRAGMA page_count").fetchone()
    (free,) = execute("PRAGMA freelist_count").fetchone()
    (size,) = execute("PRAGMA page_size").fetchone()
    (lost,) = execute(
        "SELECT count(*) FROM outbox INDEXED BY outbox_dead WHERE status = 'dead'"
        " AND last_error = ?",
        (LOST,),
    ).fetchone()
    return OutboxStats(depth, lost, oldest[0] if oldest else None, (pages - free) * size)


def routes_due(reader: Executor, now_ms: int, limit: int) -> tuple[list[tuple[str, int]], bool]:
    """Return routes whose first pending send is due, with its time; and whether any send is
    pending.

    Each route costs one index lookup.
    """
    routes: list[tuple[str, int]] = []
    last = ""
    while len(routes) < limit:
        row = reader.execute(
            "SELECT route, next_attempt_at FROM outbox WHERE status = 'pending' AND route > ?"
            " ORDER BY route, next_attempt_at LIMIT 1",
            (last,),
        ).fetchone()
        if row is None:
            break
        last = row[0]
        if row[1] <= now_ms:
            routes.append(row)
    return routes, last != ""
