"""Keeps the present audit log in a restore: it has the backup's records, and all later ones."""

import sqlite3

from appliance.workspace.restoring import RestoreContext


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    """Keep the backup's log if the present one is another chain, or was cut."""
    there = context.carry(
        "CREATE TEMP TABLE carried AS SELECT * FROM present.log"
        " WHERE (SELECT max(seq) FROM present.log) >= (SELECT coalesce(max(seq), 0) FROM main.log)"
        " AND (SELECT value FROM present.meta WHERE key = 'x_store_id')"
        " = (SELECT value FROM main.meta WHERE key = 'x_store_id')"
    )
    if there and connection.execute("SELECT count(*) FROM carried").fetchone()[0]:
        connection.execute("DELETE FROM log")
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'log'")
        connection.execute("INSERT INTO log SELECT * FROM carried ORDER BY seq")
