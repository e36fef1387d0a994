"""Names each table's columns, in its struct's field order."""

from appliance.hub import wire

CHANNEL = ", ".join(wire.Channel.__struct_fields__)
TOPIC = ", ".join(wire.Topic.__struct_fields__)
ATTACHMENT = ", ".join(wire.Attachment.__struct_fields__)
ENVELOPE_COLUMNS = (
    "event_id, ts, name, scope_channel_id, scope_topic_id, scope_topic_id2, data_json"
)
STORED_MESSAGE = wire.Message.__struct_fields__[:-1]  # without `principal`
# The text as bytes: spliced into a response, never parsed.
EVENT_COLUMNS = ENVELOPE_COLUMNS.replace(
    "data_json", "entity_type, entity_id, CAST(data_json AS BLOB)"
)


def message_columns(table: str) -> str:
    """Return a message's columns; `table` is `messages` or its alias in the statement."""
    columns = ", ".join(f"{table}.{name}" for name in STORED_MESSAGE)
    return (
        f"{columns}, (SELECT principal FROM x_message_principals"
        f" WHERE message_id = {table}.id) AS principal"
    )


MESSAGE = message_columns("messages")


def first_since(order: str) -> str:
    """Return the query for the first message at or after a time, in any topic: `order` follows
    creation, so each topic's messages from that time begin there. One index lookup."""
    return (
        f"SELECT {order} FROM messages WHERE created_at >= ? ORDER BY created_at, {order} LIMIT 1"
    )
