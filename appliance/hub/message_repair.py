"""Changes message rows to match their events: `doctor repair --run CHECK --data`."""

import sqlite3

from appliance.checks.repairs import Arguments, CannotRepair
from appliance.hub import event_replay
from appliance.hub.event_replay import ReplayedEvent, State
from appliance.kernel import meta
from appliance.kernel.clock import Clock

_COLUMNS = event_replay.COLUMNS["message"]


def restore_message(connection: sqlite3.Connection, arguments: Arguments, _clock: Clock) -> str:
    """Set a message's row to its events' state, or write a missing row. Columns that no event
    states stay unchanged."""
    message_id = arguments["message"]
    row = event_replay.row_of(connection, "message", message_id)
    state = replay(connection, message_id)
    topic = connection.execute("SELECT 1 FROM topics WHERE id = ?", (state.get("topic_id"),))
    if "topic_id" in state and topic.fetchone() is None:
        raise CannotRepair(f"message {message_id}: the topic that its events name is missing")
    if row is None:
        return _insert(connection, message_id, state)
    if row["version"] > state.get("version", 0):
        raise CannotRepair(
            f"message {message_id}: the row has version {row['version']}, newer than the "
            "message's events; the last event may be lost"
        )
    changed = event_replay.differences(state, row)
    if "principal" in changed:
        connection.execute(
            "UPDATE x_message_principals SET principal = ? WHERE message_id = ?",
            (state["principal"], message_id),
        )
    if changed:
        known = [name for name in _COLUMNS if name in state]
        columns = ", ".join(f"{name} = ?" for name in known)
        values = [state[name] for name in known]
        connection.execute(f"UPDATE messages SET {columns} WHERE id = ?", (*values, message_id))
    return f"changed {', '.join(changed)}" if changed else "the row matches its events"


def _insert(connection: sqlite3.Connection, message_id: str, state: State) -> str:
    known = [name for name in _COLUMNS if name in state]
    columns = ", ".join(known)
    marks = ", ".join("?" for _ in known)
    try:
        rowid = connection.execute(
            f"INSERT INTO messages (id, {columns}) VALUES (?, {marks})",
            (message_id, *(state[name] for name in known)),
        ).lastrowid
    except sqlite3.IntegrityError as error:
        raise CannotRepair(f"message {message_id}: its events lack a fact: {error}") from error
    if state.get("principal"):
        connection.execute(
            "INSERT OR REPLACE INTO x_message_principals (message_id, principal) VALUES (?, ?)",
            (message_id, state["principal"]),
        )
    for table in ("x_fts", "x_cjk"):  # a deleted last row had the same number, and was indexed
        if meta.exists(connection, table):
            connection.execute(f"UPDATE {table} SET indexed = min(indexed, ? - 1)", (rowid,))
    return "wrote the row again"


def replay(connection: sqlite3.Connection, message_id: str) -> State:
    """Return a message's state after all events, with the last edit's and deletion's times. Raises
    CannotRepair if events are missing or out of order."""
    state: State | None = None
    rows = connection.execute(event_replay.OF_ENTITY, ("message", message_id))
    for event in map(ReplayedEvent._make, rows.fetchall()):
        if state is None and event.name != "message.created":
            raise CannotRepair(f"message {message_id}: its event message.created is missing")
        state, broken = event_replay.apply(state, event)
        if broken is not None:
            raise CannotRepair(f"message {message_id}: {broken.message}")
    if not state:
        raise CannotRepair(f"message {message_id}: no event describes it")
    return state
