"""Generated from the migrations of the hub by `just models`: its peewee models."""

import peewee

from appliance.kernel.model import Table


class Channel(Table):
    id = peewee.TextField(primary_key=True)
    name = peewee.TextField()
    description = peewee.TextField(null=True)
    created_at = peewee.TextField()

    class Meta:
        table_name = "channels"


class Enrichment(Table):
    id = peewee.TextField(primary_key=True)
    message_id = peewee.TextField()
    kind = peewee.TextField()
    span_start = peewee.IntegerField()
    span_end = peewee.IntegerField()
    data_json = peewee.TextField()
    created_at = peewee.TextField()

    class Meta:
        table_name = "enrichments"


class Message(Table):
    id = peewee.TextField(primary_key=True)
    topic_id = peewee.TextField()
    channel_id = peewee.TextField()
    sender = peewee.TextField()
    content_raw = peewee.TextField()
    version = peewee.IntegerField()
    created_at = peewee.TextField()
    edited_at = peewee.TextField(null=True)
    deleted_at = peewee.TextField(null=True)
    deleted_by = peewee.TextField(null=True)

    class Meta:
        table_name = "messages"


class Attachment(Table):
    id = peewee.TextField(primary_key=True)
    topic_id = peewee.TextField()
    kind = peewee.TextField()
    key = peewee.TextField(null=True)
    value_json = peewee.TextField()
    dedupe_key = peewee.TextField()
    source_message_id = peewee.TextField(null=True)
    created_at = peewee.TextField()

    class Meta:
        table_name = "topic_attachments"


class Topic(Table):
    id = peewee.TextField(primary_key=True)
    channel_id = peewee.TextField()
    title = peewee.TextField()
    created_at = peewee.TextField()
    updated_at = peewee.TextField()

    class Meta:
        table_name = "topics"


class Ask(Table):
    id = peewee.TextField(primary_key=True)
    message_id = peewee.TextField()
    channel_id = peewee.TextField()
    state = peewee.TextField()
    asker = peewee.TextField()
    principal = peewee.TextField(null=True)
    principal_id = peewee.TextField()
    key = peewee.TextField(null=True)
    fingerprint = peewee.TextField()
    text = peewee.TextField()
    choices_json = peewee.TextField()
    default_answer = peewee.TextField(null=True)
    may_answer_json = peewee.TextField()
    blocks_json = peewee.TextField()
    mail_to_json = peewee.TextField()
    mailed = peewee.IntegerField()
    created_at = peewee.TextField()
    due_steady_ms = peewee.IntegerField(null=True)
    answer = peewee.TextField(null=True)
    settled_by = peewee.TextField(null=True)
    settled_principal = peewee.TextField(null=True)
    settled_via = peewee.TextField(null=True)
    settled_at = peewee.TextField(null=True)
    reply_id = peewee.TextField(null=True)

    class Meta:
        table_name = "x_asks"


class EnrichmentSet(Table):
    message_id = peewee.TextField()
    plugin = peewee.TextField()
    version = peewee.IntegerField()
    content_hash = peewee.BlobField()
    enrichment_ids = peewee.TextField()

    class Meta:
        table_name = "x_enrichment_sets"
        primary_key = peewee.CompositeKey("message_id", "plugin")


class PluginCursor(Table):
    plugin = peewee.TextField(primary_key=True)
    cursor = peewee.IntegerField()
    redo_cursor = peewee.IntegerField(null=True)
    redo_until = peewee.IntegerField(null=True)
    updated_at = peewee.TextField()

    class Meta:
        table_name = "x_plugin_cursors"


class EventWebhook(Table):
    id = peewee.TextField(primary_key=True)
    url = peewee.TextField()
    description = peewee.TextField()
    wanted_json = peewee.TextField()
    enabled = peewee.IntegerField()
    cursor = peewee.IntegerField()
    secret = peewee.TextField()
    former_secret = peewee.TextField(null=True)
    former_until_ms = peewee.IntegerField(null=True)
    created_at = peewee.TextField()
    updated_at = peewee.TextField()
    generation = peewee.IntegerField()
    failing_since_ms = peewee.IntegerField(null=True)
    disabled_because = peewee.TextField(null=True)

    class Meta:
        table_name = "x_webhooks"
