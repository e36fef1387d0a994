"""Changes the inbox, each time inside one transaction."""

from collections.abc import Sequence

import msgspec

from appliance.inbox import queries, wire
from appliance.inbox.event import of_message
from appliance.inbox.rows import ReceivedMessageRow
from appliance.kernel.batch import Tx
from appliance.mesh.push import Push

Hook = tuple[int, str]  # its command's position in the settings, and its `on`
_WRITTEN = ReceivedMessageRow._fields[1:]  # SQLite makes the number
INSERT = (
    f"INSERT INTO inbox ({', '.join(_WRITTEN)}) VALUES (:{', :'.join(_WRITTEN)})"
    f" ON CONFLICT (mesh, client_message_id) DO NOTHING RETURNING {queries.COLUMNS}"
)


def receive(tx: Tx, push: Push, own: bool, hooks: Sequence[Hook] = ()) -> bool:
    """Store a message with its waiting hook runs and publish its event. Return False, without an
    event, if the message is stored already."""
    written = {
        **msgspec.structs.asdict(push),
        "id": tx.new_id("in_"),
        "client_message_id": push.client_message_id or f"broker:{push.message_id}",
        "broker_message_id": push.message_id,
        "meta": msgspec.json.encode(push.meta).decode() if push.meta else None,
        "received_at": tx.now_ms,
        "own": own,
    }
    row = tx.execute(INSERT, written).fetchone()
    if row is None:
        return False
    # Listeners read the meta, which is therefore decoded.
    message = msgspec.structs.replace(queries.message_of(row), meta=push.meta or None)
    tx.publish(of_message(message))
    for position, hook in hooks:
        values = (tx.new_id("run_"), tx.now_ms, hook, push.mesh, written["id"], position)
        tx.execute(
            "INSERT INTO hook_runs (id, at, hook, event, mesh, inbox_id, command, outcome,"
            " duration_ms, truncated, said_bytes, acts)"
            " VALUES (?, ?, ?, 'message', ?, ?, ?, 'waiting', 0, 0, 0, '[]')",
            values,
        )
    return True


def note_revoked(tx: Tx, mesh: str, pubkey: str) -> None:
    tx.execute(
        "INSERT INTO revoked (mesh, pubkey, since_ms) VALUES (?, ?, ?) ON CONFLICT (mesh)"
        " DO UPDATE SET pubkey = excluded.pubkey, since_ms = excluded.since_ms",
        (mesh, pubkey, tx.now_ms),
    )


def note_accepted(tx: Tx, mesh: str) -> None:
    tx.execute("DELETE FROM revoked WHERE mesh = ?", (mesh,))


def change_profile(tx: Tx, mesh: str, command: wire.ChangeProfile) -> wire.ProfileReply:
    """Change the profile. Omitted fields stay unchanged."""
    changed = {
        name: value
        for name in ("summary", "status", "visible")
        if (value := getattr(command, name)) is not None
    }
    profile = msgspec.structs.replace(queries.profile(tx, mesh), **changed)
    tx.execute(
        "REPLACE INTO profiles (mesh, summary, status, visible, changed_at) VALUES (?, ?, ?, ?, ?)",
        (mesh, profile.summary, profile.status, profile.visible, tx.now_ms),
    )
    return queries.profile(tx, mesh)


def prune(tx: Tx, table: str, before_ms: int, limit: int) -> int:
    """Delete up to `limit` expired rows."""
    column = {"inbox": "received_at", "hook_runs": "at"}[table]
    cursor = tx.execute(
        f"DELETE FROM {table} WHERE number IN"
        f" (SELECT number FROM {table} WHERE {column} < ? ORDER BY {column} LIMIT ?)",
        (before_ms, limit),
    )
    return cursor.rowcount
