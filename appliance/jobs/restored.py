"""Adapts jobs to a restore: running runs are lost, and schedules continue from now."""

import sqlite3

from appliance.kernel.clock import iso
from appliance.workspace.restoring import RestoreContext


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    context.notice(
        "lost",
        "run",
        "SELECT p.id, p.job FROM present.runs AS p"
        " WHERE NOT EXISTS (SELECT 1 FROM main.runs AS r WHERE r.id = p.id)",
    )
    connection.execute("UPDATE attempts SET state = 'lost' WHERE state = 'running'")
    connection.execute(
        "UPDATE runs SET state = 'lost', error = 'a backup was restored', ended_at = ?"
        " WHERE state IN ('queued', 'waiting', 'running')",
        (iso(context.now_ms),),
    )
    connection.execute("UPDATE jobs SET cron_from_ms = ?", (context.now_ms,))
