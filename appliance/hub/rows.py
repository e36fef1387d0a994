"""Generated from the migrations of the hub by `just models`: its rows as tuples."""

from typing import Literal, NamedTuple


class AskRow(NamedTuple):
    """A row in `x_asks`."""

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


class BlobRow(NamedTuple):
    """A row in `x_blobs`."""

    hash: str
    size: int
    media_type: str
    created_ms: int
    kept_steady_ms: int
    removed_ms: int | None


class IncomingRow(NamedTuple):
    """A row in `x_incoming`."""

    name: str
    template: Literal["github", "gitlab", "alertmanager", "grafana", "healthchecks", "json"]
    secret: str
    signature_header: str | None
    topic_id: str | None
    stream: str | None
    to_json: str
    created_at: str


class PluginCursorRow(NamedTuple):
    """A row in `x_plugin_cursors`."""

    plugin: str
    cursor: int
    redo_cursor: int | None
    redo_until: int | None
    updated_at: str


class EventWebhookRow(NamedTuple):
    """A row in `x_webhooks`."""

    id: str
    url: str
    description: str
    wanted_json: str
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
