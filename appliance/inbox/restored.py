"""Reports an inbox restore's losses."""

import sqlite3

from appliance.workspace.restoring import RestoreContext


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    # Hooks that ran after the backup don't run again.
    connection.execute("UPDATE hook_runs SET outcome = 'lost' WHERE outcome = 'waiting'")
    context.notice(
        "lost",
        "received message",
        "SELECT p.id, p.mesh || ' from ' || p.sender_name FROM present.inbox AS p"
        " WHERE NOT EXISTS (SELECT 1 FROM main.inbox AS r WHERE r.id = p.id)",
    )
