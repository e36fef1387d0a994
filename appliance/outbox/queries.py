"""Reads of the outbox. Each has a row limit."""

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple, TypeVar

from appliance.kernel import meta
from appliance.kernel.meta import Executor
from appliance.kernel.page import take_page
from appliance.kernel.reader import Reader
from appliance.outbox import wire
from appliance.outbox.rows import SendRow

T = TypeVar("T")

COLUMNS = ", ".join(SendRow._fields)

# The partial index of each status. SQLite uses it only for a literal, so statuses are written out.
INDEX = {
    "pending": "outbox_waiting",
    "inflight": "outbox_inflight",
    "dead": "outbox_dead",
    "aborted": "outbox_aborted",
}


EPOCH = "epoch:"  # and the mesh: a key in meta
LOST = "accepted by its broker and gone: the broker was restored from an earlier backup"


def require(reader: Executor, any_id: str) -> SendRow:
    """A send by row id or client_message_id. Raises NoSuchSend."""
    for column in ("id", "client_message_id"):
        row = reader.execute(
            f"SELECT {COLUMNS} FROM outbox WHERE {column} = ?", (any_id,)
        ).fetchone()
        if row is not None:
            return SendRow(*row)
    raise wire.NoSuchSend(details={"id": any_id})


# The rest of a chain, oldest first. UNION instead of UNION ALL, so that it also ends if the rows of
# a damaged file form a cycle.
_FOLLOWING = (
    "WITH RECURSIVE following (id) AS (VALUES (?) UNION SELECT one.superseded_by"
    " FROM following JOIN outbox AS one ON one.id = following.id"
    " WHERE one.superseded_by IS NOT NULL)"
)
_LEADING = (
    "WITH RECURSIVE leading (id) AS (VALUES (?) UNION SELECT one.id"
    " FROM leading JOIN outbox AS one"
    " ON one.superseded_by IS NOT NULL AND one.superseded_by = leading.id)"
)


def chain(
    reader: Reader,
    row_id: str,
    after: str | None,
    make: Callable[[SendRow], T],
    size: Callable[[T], int],
    limit: int,
    bytes_max: int,
) -> tuple[list[T], bool]:
    """The chain of redrives that includes a row, oldest first, from behind `after`; and whether
    there is more of it."""
    start = after or _first_of_chain(reader, row_id)
    columns = ", ".join(f"outbox.{name}" for name in SendRow._fields)
    rows = reader.execute(
        f"{_FOLLOWING} SELECT {columns} FROM following CROSS JOIN outbox ON"
        " outbox.id = following.id WHERE outbox.id IS NOT ?",
        (start, after),
    )
    with closing(rows):
        return take_page((make(SendRow(*row)) for row in rows), limit, bytes_max, size)


def _first_of_chain(reader: Reader, row_id: str) -> str:
    """Id of the first row in the chain of that row."""
    row = reader.row(
        _LEADING + " SELECT id FROM leading WHERE NOT EXISTS"
        " (SELECT 1 FROM outbox WHERE superseded_by IS NOT NULL AND superseded_by = leading.id)",
        (row_id,),
    )
    return row_id if row is None else str(row[0])


def inspect(
    reader: Reader,
    any_id: str,
    after: str | None,
    make: Callable[[SendRow], T],
    size: Callable[[T], int],
    send_bytes: Callable[[SendRow], int],
    limit: int,
) -> tuple[SendRow, list[T], bool]:
    """A send, and as much of its chain as fits in the page beside it. Raises NoSuchSend."""
    row = require(reader, any_id)
    bytes_left = reader.limit.page_bytes_max - send_bytes(row)
    return (row, *chain(reader, row.id, after, make, size, limit, bytes_left))


def waiting(reader: Executor, route: str, ref: str, limit: int) -> int:
    """How many sends of one destination are pending or in flight, counted up to `limit`."""
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
    """(delivered_at, rowid, id, client_message_id) of sends that the mesh's broker has accepted and
    whose payload is kept, in the order of delivery."""
    return reader.execute(
        "SELECT delivered_at, rowid, id, client_message_id FROM outbox INDEXED BY outbox_done"
        " WHERE status = 'done' AND payload_dropped_at IS NULL AND (delivered_at, rowid) > (?, ?)"
        " AND mesh = ? AND target = 'broker' ORDER BY delivered_at, rowid LIMIT ?",
        (*after, mesh, limit),
    ).fetchall()


def broker_epoch(reader: Executor, mesh: str) -> str | None:
    """The epoch of the mesh's broker with which all sends were last compared."""
    return meta.value(reader, EPOCH + mesh)


class OutboxStats(NamedTuple):
    """Counts by status and of `lost` dead letters, the steady time at which the oldest pending send
    was accepted, and bytes used by the file."""

    depth: dict[str, int]
    lost: int
    oldest_ms: int | None
    bytes_used: int


def stats(reader: Executor) -> OutboxStats:
    """Reads small indexes only: delivered sends are not counted."""
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
    """Routes whose first pending send is due, with its time; and whether any send is pending.

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
