"""A restore of notes: says which notes are lost."""

import sqlite3

from appliance.workspace.restoring import RestoreContext


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    context.notice(
        "lost",
        "note",
        "SELECT number, text FROM present.note AS p"
        " WHERE NOT EXISTS (SELECT 1 FROM main.note AS r WHERE r.number = p.number)",
    )
