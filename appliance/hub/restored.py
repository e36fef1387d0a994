"""What a restore of the hub loses, and the restore of one channel."""

import sqlite3
from typing import NamedTuple

from appliance.workspace.restoring import RestoreContext

_ROWS = (
    ("event", "events", "event_id", "name"),
    ("channel", "channels", "id", "name"),
    ("topic", "topics", "id", "title"),
    ("message", "messages", "id", "sender"),
    ("attachment", "topic_attachments", "id", "kind"),
    ("webhook", "x_webhooks", "id", "url"),
    ("ask", "x_asks", "id", "asker"),
)
_TOPICS = "(SELECT id FROM source.topics WHERE channel_id = :id)"
_MESSAGES = "(SELECT id FROM source.messages WHERE channel_id = :id)"
_EVENT = (
    "ts, name, scope_channel_id, scope_topic_id, scope_topic_id2, entity_type, entity_id, data_json"
)
# The rows of a channel, in the order of their references.
_OF_CHANNEL = {
    "channels": "id = :id",
    "topics": "channel_id = :id",
    "messages": "channel_id = :id ORDER BY rowid",
    "topic_attachments": f"topic_id IN {_TOPICS}",
    "enrichments": f"message_id IN {_MESSAGES}",
    "x_enrichment_sets": f"message_id IN {_MESSAGES}",
    "x_message_principals": f"message_id IN {_MESSAGES}",
    "x_asks": "channel_id = :id",
    "events": f"scope_channel_id = :id OR scope_topic_id IN {_TOPICS} ORDER BY event_id",
}


class CopiedChannel(NamedTuple):
    """`rows`: how many were copied, by table."""

    channel_id: str
    name: str
    rows: dict[str, int]


def restored(connection: sqlite3.Connection, context: RestoreContext) -> None:
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
        "change of a message",
        "SELECT p.id, 'version ' || p.version FROM present.messages AS p"
        " JOIN main.messages AS r ON r.id = p.id WHERE p.version > r.version",
    )
    context.notice(
        "lost",
        "answer of an ask, which waits again",
        "SELECT p.id, p.state FROM present.x_asks AS p JOIN main.x_asks AS r ON r.id = p.id"
        " WHERE r.state = 'waiting' AND p.state <> 'waiting'",
    )


def copy_channel(connection: sqlite3.Connection, channel: str) -> CopiedChannel | None:
    """Copies a channel, by its name or id, from the attached database `source`. Events keep their
    order and get new ids. None if there is no such channel."""
    row = connection.execute(
        "SELECT id, name FROM source.channels WHERE id = :channel OR name = :channel ORDER BY name",
        {"channel": channel},
    ).fetchone()
    if row is None:
        return None
    rows = {}
    for table, condition in _OF_CHANNEL.items():
        columns, maybe = (_EVENT, f" ({_EVENT})") if table == "events" else ("*", "")
        copy = f"INSERT INTO {table}{maybe} SELECT {columns} FROM source.{table} WHERE {condition}"
        rows[table] = connection.execute(copy, {"id": row[0]}).rowcount
    return CopiedChannel(row[0], row[1], rows)
