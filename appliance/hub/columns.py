"""The columns of each noun, in the order of its struct."""

CHANNEL = "id, name, description, created_at"
TOPIC = "id, channel_id, title, created_at, updated_at"
MESSAGE = (
    "id, topic_id, channel_id, sender, content_raw, version,"
    " created_at, edited_at, deleted_at, deleted_by"
)
EVENT_COLUMNS = (
    "event_id, ts, name, scope_channel_id, scope_topic_id, scope_topic_id2, data_json,"
    " entity_type, entity_id"
)
ENVELOPE_COLUMNS = (
    "event_id, ts, name, scope_channel_id, scope_topic_id, scope_topic_id2, data_json"
)
