"""Restores the hub: reports losses."""

import sqlite3

from appliance.workspace.restoring import RestoreContext

_ROWS = (
    ("event", "events", "event_id", "name"),
    ("channel", "channels", "id", "name"),
    ("topic", "topics", "id", "title"),
    ("message", "messages", "id", "sender"),
    ("attachment", "topic_attachments", "id", "kind"),
    ("webhook", "x_webhooks", "id", "url"),
    ("ask", "x_asks", "id", "asker"),
    ("inbox entry", "x_entries", "id", "name"),
    ("incoming webhook", "x_incoming", "name", "template"),
    ("incoming webhook", "x_incoming", "name", "template"),
)


def adjust_store(connection: sqlite3.Connection, context: RestoreContext) -> None:
    del connection
    for noun, table, column, columns in _ROWS:
        context.notice(
            "lost",
            noun,
            f"SELECT p.{column}, p.{columns} FROM present.{table} AS p"
            f" WHERE NOT EXISTS (SELECT 1 FROM main.{table} AS r WHERE r.{column} = p.{column})",
        )
    context.notice(
        "lost",
        "message change",
        "SELECT p.id, 'version ' || p.version FROM present.messages AS p"
        " JOIN main.messages AS r ON r.id = p.id WHERE p.version > r.version",
    )
    context.notice(
        "lost",
        "answer to an ask, which waits again",
        "SELECT p.id, p.state FROM present.x_asks AS p JOIN main.x_asks AS r ON r.id = p.id"
        " WHERE r.state = 'waiting' AND p.state <> 'waiting'",
    )
    context.notice(
        "lost",
        "acknowledgement of an inbox entry, which waits again",
        "SELECT p.id, p.name || ': ' || p.state FROM present.x_entries AS p"
        " JOIN main.x_entries AS r ON r.id = p.id"
        " WHERE r.settled_at IS NULL AND p.settled_at IS NOT NULL",
    )
