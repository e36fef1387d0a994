"""Generated from the migrations of the hub by `just models`: its rows as tuples."""

from typing import Literal, NamedTuple


class ChannelRow(NamedTuple):
    """A row of `channels`."""

    id: str
    name: str
    description: str | None
    created_at: str


class EnrichmentRow(NamedTuple):
    """A row of `enrichments`."""

    id: str
    message_id: str
    kind: str
    span_start: int
    span_end: int
    data_json: str
    created_at: str


class EventRow(NamedTuple):
    """A row of `events`."""

    event_id: int
    ts: str
    name: str
    scope_channel_id: str | None
    scope_topic_id: str | None
    scope_topic_id2: str | None
    entity_type: str
    entity_id: str
    data_json: str


class MessageRow(NamedTuple):
    """A row of `messages`."""

    id: str
    topic_id: str
    channel_id: str
    sender: str
    content_raw: str
    version: int
    created_at: str
    edited_at: str | None
    deleted_at: str | None
    deleted_by: str | None


class AttachmentRow(NamedTuple):
    """A row of `topic_attachments`."""

    id: str
    topic_id: str
    kind: str
    key: str | None
    value_json: str
    dedupe_key: str
    source_message_id: str | None
    created_at: str


class TopicRow(NamedTuple):
    """A row of `topics`."""

    id: str
    channel_id: str
    title: str
    created_at: str
    updated_at: str


class AskRow(NamedTuple):
    """A row of `x_asks`."""

    id: str
    message_id: str
    channel_id: str
    state: Literal["waiting", "answered", "defaulted", "expired", "cancelled"]
    asker: str
    principal: str | None
    principal_id: str
    key: str | None
    fingerprint: str
    text: str
    choices_json: str
    default_answer: str | None
    may_answer_json: str
    blocks_json: str
    mail_to_json: str
    mailed: int
    created_at: str
    due_steady_ms: int | None
    answer: str | None
    settled_by: str | None
    settled_principal: str | None
    settled_via: Literal["api", "mail", "webhook", "deadline"] | None
    settled_at: str | None
    reply_id: str | None


class IndexedPairsRow(NamedTuple):
    """A row of `x_cjk`."""

    one: int
    indexed: int


class ChangedPairsRow(NamedTuple):
    """A row of `x_cjk_changed`."""

    message: int
    old_content: str


class EnrichmentSetRow(NamedTuple):
    """A row of `x_enrichment_sets`."""

    message_id: str
    plugin: str
    version: int
    content_hash: bytes
    enrichment_ids: str


class IndexedRow(NamedTuple):
    """A row of `x_fts`."""

    one: int
    indexed: int


class MessagePrincipalRow(NamedTuple):
    """A row of `x_message_principals`."""

    message_id: str
    principal: str


class PluginCursorRow(NamedTuple):
    """A row of `x_plugin_cursors`."""

    plugin: str
    cursor: int
    redo_cursor: int | None
    redo_until: int | None
    updated_at: str


class EventWebhookRow(NamedTuple):
    """A row of `x_webhooks`."""

    id: str
    url: str
    description: str
    wanted_json: str
    format: Literal["native", "cloudevents"]
    enabled: int
    cursor: int
    secret: str
    former_secret: str | None
    former_until_ms: int | None
    created_at: str
    updated_at: str
    generation: int
    failing_since_ms: int | None
    disabled_because: str | None
