"""Restores the outbox: sends that were in flight when the backup was made may have arrived.
Receivers know their ids, so they are sent again."""

import sqlite3

from appliance.workspace.restoring import RestoreContext

_LOST = (
    "SELECT p.id, p.destination_kind || ' ' || p.destination_ref FROM present.outbox AS p"
    " WHERE NOT EXISTS (SELECT 1 FROM main.outbox AS r WHERE r.id = p.id) AND p.status {} 'done'"
)


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    context.notice("lost", "send", _LOST.format("<>"))
    context.notice("lost-delivered", "send", _LOST.format("="))
    context.notice(
        "sent-again",
        "send",
        "SELECT r.id, r.destination_kind || ' ' || r.destination_ref FROM main.outbox AS r"
        " JOIN present.outbox AS p ON p.id = r.id"
        " WHERE r.status IN ('pending', 'inflight') AND p.status = 'done'",
    )
    connection.execute("UPDATE outbox SET status = 'pending' WHERE status = 'inflight'")
