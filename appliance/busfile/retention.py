"""Bounds a bus: how far an agent may be behind, what may be pruned, and space.

Live agents' cursors hold back both. A cursor is live while the agent shows a sign of life, a
heartbeat or an ack, within some days, and until retired.
"""

import sqlite3
from collections.abc import Collection
from pathlib import Path

import msgspec

from appliance.busfile import blobs, jsonl
from appliance.busfile.file import EXPORT, errors_of, folder_of, transaction
from appliance.kernel import meta
from appliance.kernel.clock import DAY_MS, HOUR_MS, Clock
from appliance.kernel.errors import Exhausted, Missing
from appliance.kernel.store_files import VACUUM_BYTES_MAX, vacuum_pays

LAG_MAX = 10_000  # messages that wait for one agent
LIVE_MS = 7 * DAY_MS
PRUNE_BATCH_MAX = 1000  # rows in one transaction, so that others wait for some milliseconds
BLOB_AGE_MS = HOUR_MS  # younger ones may belong to a message that is about to be published
HELD_KEY, DELETED_KEY = "x_segments_seq", "x_deleted"  # in `meta`
# Parameter: signs of life after this time.
LIVE_CURSORS = """SELECT agent_id, last_acked_seq AS position FROM cursors
    LEFT JOIN x_retired_cursors USING (agent_id, last_acked_seq)
    LEFT JOIN heartbeats USING (agent_id)
    WHERE retired_at_ms IS NULL AND max(updated_at_ms, coalesce(ts_ms, 0)) > ?"""


class AgentLags(Exhausted):
    code = "BUS_AGENT_LAGS"
    default_message = "too many messages wait for an agent"
    default_hint = "start that agent, or let its messages go: agentlip bus cursor retire AGENT"


class CursorRow(msgspec.Struct, frozen=True):
    """A cursor, and whether it holds back pruning."""

    agent_id: str
    last_acked_seq: int
    updated_at_ms: int
    live: bool


def check_lag(
    connection: sqlite3.Connection, now_ms: int, to_agent: str | None, seq: int, lag_max: int
) -> None:
    """Raise AgentLags if more messages than `lag_max` wait for an agent that gets message `seq`.

    Only agents that are far behind are counted, which are few.
    """
    behind = connection.execute(
        f"SELECT agent_id, position FROM ({LIVE_CURSORS}) WHERE position < ?"
        " AND (? IS NULL OR agent_id = ?) ORDER BY position",
        (now_ms - LIVE_MS, seq - lag_max, to_agent, to_agent),
    ).fetchall()
    for agent, position in behind:
        if _waiting(connection, agent, position, lag_max) > lag_max:
            raise AgentLags(
                f"{agent} has more than {lag_max:,} messages to read",
                details={"agent": agent, "last_acked_seq": position},
            )


def _waiting(connection: sqlite3.Connection, agent: str, position: int, enough: int) -> int:
    """Return how many messages wait for an agent; above `enough`, not all are counted."""
    counted = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM messages WHERE to_agent IS NULL AND seq > ?1"
        " LIMIT ?3) UNION ALL SELECT count(*) FROM (SELECT 1 FROM messages"
        " WHERE to_agent = ?2 AND seq > ?1 LIMIT ?3)",
        (position, agent, enough + 1),
    )
    return sum(count for (count,) in counted)


def lags(connection: sqlite3.Connection, now_ms: int) -> list[tuple[int, str]]:
    """Return how many messages wait for each live agent, most first."""
    live = connection.execute(LIVE_CURSORS, (now_ms - LIVE_MS,)).fetchall()
    counted = ((_waiting(connection, agent, position, LAG_MAX), agent) for agent, position in live)
    return sorted(counted, reverse=True)


def cursors(connection: sqlite3.Connection, now_ms: int) -> list[CursorRow]:
    """Return all cursors, the one that is furthest behind first."""
    rows = connection.execute(
        "SELECT agent_id, last_acked_seq, updated_at_ms, agent_id IN"
        f" (SELECT agent_id FROM ({LIVE_CURSORS})) FROM cursors ORDER BY last_acked_seq, agent_id",
        (now_ms - LIVE_MS,),
    )
    return [CursorRow(agent, seq, at_ms, bool(live)) for agent, seq, at_ms, live in rows]


def retire_cursor(connection: sqlite3.Connection, now_ms: int, agent: str) -> int:
    """Retire a cursor, which holds nothing back until its agent acks again. Return its position."""
    added = connection.execute(
        "INSERT OR REPLACE INTO x_retired_cursors (agent_id, last_acked_seq, retired_at_ms)"
        " SELECT agent_id, last_acked_seq, ? FROM cursors WHERE agent_id = ?"
        " RETURNING last_acked_seq",
        (now_ms, agent),
    ).fetchall()
    if not added:
        raise Missing(f"{agent} has no cursor", hint="agentlip bus cursor list")
    return int(added[0][0])


def hold(connection: sqlite3.Connection, seq: int | None) -> None:
    """Keep the messages above `seq`, the last one in the appliance's segments; None: no segments
    are written. The number is in the file, for pruning without the appliance."""
    if seq is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (HELD_KEY,))
    elif meta.value(connection, HELD_KEY) != str(seq):
        connection.execute(meta.SET, (HELD_KEY, str(seq)))


def prunable(connection: sqlite3.Connection, now_ms: int) -> int:
    """Return the number up to which messages may be pruned: every live cursor has passed it, and so
    have the export and the segments, if any."""
    exported = jsonl.last_exported(connection, folder_of(connection) / EXPORT)
    (position,) = connection.execute(
        f"SELECT min(position) FROM (SELECT position FROM ({LIVE_CURSORS}) UNION ALL"
        " SELECT ? UNION ALL"
        " SELECT CAST(value AS INTEGER) FROM meta WHERE key = ? UNION ALL"
        " SELECT seq FROM sqlite_sequence WHERE name = 'messages')",
        (now_ms - LIVE_MS, exported, HELD_KEY),
    ).fetchone()
    return int(position or 0)


def prune(connection: sqlite3.Connection, now_ms: int, older_than_ms: int) -> int:
    """Delete up to PRUNE_BATCH_MAX messages that are old enough and that nobody waits for.
    Return how many."""
    deleted = connection.execute(
        "DELETE FROM messages WHERE seq IN (SELECT seq FROM messages WHERE seq <= ? AND ts_ms < ?"
        " ORDER BY seq LIMIT ?)",
        (prunable(connection, now_ms), now_ms - older_than_ms, PRUNE_BATCH_MAX),
    )
    subtract = "UPDATE meta SET value = value - ? WHERE key = ?"
    connection.execute(subtract, (deleted.rowcount, DELETED_KEY))
    return deleted.rowcount


def prune_all(connection: sqlite3.Connection, clock: Clock, older_than_ms: int) -> int:
    """Call `prune` until nothing is left, each time in a transaction. Return how many were
    deleted."""
    total = 0
    while True:
        with transaction(connection):
            count = prune(connection, clock.now_ms(), older_than_ms)
        total += count
        if count < PRUNE_BATCH_MAX:
            return total


def missing_blobs(connection: sqlite3.Connection, folder: Path) -> list[str]:
    """Return references to missing blobs that messages name."""
    return sorted(_used_refs(connection) - set(blobs.names(folder)))


def orphan_blobs(
    connection: sqlite3.Connection, folder: Path, now_ms: int, kept: Collection[str]
) -> list[Path]:
    """Return blobs that no message refers to, except new ones and those that others `kept`."""
    used = _used_refs(connection).union(kept)
    paths = [folder / name for name in blobs.names(folder) if name not in used]
    return [path for path in paths if path.stat().st_mtime * 1000 < now_ms - BLOB_AGE_MS]


def _used_refs(connection: sqlite3.Connection) -> set[str]:
    query = "SELECT DISTINCT payload_ref FROM messages WHERE payload_ref IS NOT NULL"
    return {ref for (ref,) in connection.execute(query)}


def delete_orphans(
    connection: sqlite3.Connection, folder: Path, now_ms: int, kept: Collection[str]
) -> int:
    """Delete orphan blobs; return how many. In a transaction that writes, so that no message
    with such a blob is published meanwhile."""
    orphans = orphan_blobs(connection, folder, now_ms, kept)
    for path in orphans:
        path.unlink(missing_ok=True)
    return len(orphans)


def vacuum(connection: sqlite3.Connection, bytes_max: float = VACUUM_BYTES_MAX) -> bool:
    """Give unused pages back to the disk, if they are many. Outside a transaction.

    Writers wait for as long as that takes. Raises BusBusy if another program is writing.
    """
    if not vacuum_pays(connection, bytes_max):
        return False
    with transaction(connection):  # has pruned messages; the next search makes a new index
        connection.execute("DROP TABLE IF EXISTS x_messages_fts")
    with errors_of(folder_of(connection)):
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return True
