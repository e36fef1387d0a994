"""Adapts the worker bus to a restore: claims end, and fences stay above those given out."""

import sqlite3

from appliance.kernel import meta
from appliance.shared.segment_chain import JUMP
from appliance.workspace.restoring import RestoreContext


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    connection.execute("DELETE FROM task_claims")
    if meta.exists(connection, "x_fences"):
        connection.execute("UPDATE x_fences SET fence = fence + ?", (JUMP,))
    context.notice(
        "lost",
        "bus message",
        "SELECT p.id, p.type || ' from ' || p.from_agent FROM present.messages AS p"
        " WHERE NOT EXISTS (SELECT 1 FROM main.messages AS r WHERE r.id = p.id)",
    )
