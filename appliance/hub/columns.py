"""The columns of each noun, in the order of its struct."""

CHANNEL = "id, name, description, created_at"
TOPIC = "id, channel_id, title, created_at, updated_at"
EVENT_COLUMNS = (
    "event_id, ts, name, scope_channel_id, scope_topic_id, scope_topic_id2, data_json,"
    " entity_type, entity_id"
)
ENVELOPE_COLUMNS = (
    "event_id, ts, name, scope_channel_id, scope_topic_id, scope_topic_id2, data_json"
)
_STORED = (
    "id", "topic_id", "channel_id", "sender", "content_raw", "version",
    "created_at", "edited_at", "deleted_at", "deleted_by",
)  # fmt: skip


def message_columns(table: str) -> str:
    """Of a message in `table`: `messages`, or what the statement calls it."""
    columns = ", ".join(f"{table}.{name}" for name in _STORED)
    return (
        f"{columns}, (SELECT principal FROM x_message_principals"
        f" WHERE message_id = {table}.id) AS principal"
    )


MESSAGE = message_columns("messages")
