"""Generated from the migrations of the broker by `just models`: its rows as tuples."""

from typing import Literal, NamedTuple


class DedupeRow(NamedTuple):
    """A row in `client_message_dedupe`."""

    mesh_id: str
    client_message_id: str
    broker_message_id: str
    history_id: str
    request_fingerprint: bytes
    destination_kind: Literal["topic", "dm", "queue"]
    destination_ref: str
    first_seen_ms: int
    expires_ms: int | None
    history_available: int
    sender_pubkey: str | None


class MemberRow(NamedTuple):
    """A row in `member`."""

    mesh_id: str
    pubkey: str
    name: str
    added_ms: int
    revoked_ms: int | None
    successor: str | None


class MentionRow(NamedTuple):
    """A row in `mention_index`."""

    mesh_id: str
    mentioned_pubkey: str
    broker_message_id: str


class MeshRow(NamedTuple):
    """A row in `mesh`."""

    id: str
    slug: str
    dedupe_mode: Literal["retention_scoped", "permanent"]
    dedupe_retention_days: int
    message_retention_days: int
    concurrency: Literal["prefer_newest", "prefer_oldest", "allow_concurrent"]
    created_ms: int


class HistoryRow(NamedTuple):
    """A row in `message_history`."""

    id: str
    mesh_id: str
    broker_message_id: str
    destination_kind: str
    destination_ref: str
    sender_pubkey: str
    created_ms: int


class QueuedMessageRow(NamedTuple):
    """A row in `message_queue`."""

    id: str
    mesh_id: str
    client_message_id: str | None
    destination_kind: Literal["dm", "queue"]
    destination_ref: str
    sender_pubkey: str
    sender_name: str
    priority: Literal["now", "next", "low"]
    meta: str | None
    body: str
    reply_to_id: str | None
    created_ms: int
    skew_ms: int


class DestinationRow(NamedTuple):
    """A row in `place`."""

    mesh_id: str
    kind: Literal["topic", "queue"]
    name: str
    created_ms: int


class DestinationSubscriptionRow(NamedTuple):
    """A row in `subscription`."""

    mesh_id: str
    kind: str
    name: str
    subscriber: str
    since_ms: int


class TopicMessageRow(NamedTuple):
    """A row in `topic_message`."""

    id: str
    mesh_id: str
    client_message_id: str | None
    topic: str
    sender_pubkey: str
    sender_name: str
    priority: Literal["now", "next", "low"]
    meta: str | None
    body: str
    reply_to_id: str | None
    created_ms: int
    skew_ms: int


class UsedNonceRow(NamedTuple):
    """A row in `used_nonce`."""

    expires_ms: int
    digest: bytes
    member: str


class WebhookRow(NamedTuple):
    """A row in `webhook`."""

    mesh_id: str
    id: str
    url: str
    added_ms: int
    secret: str
    former_secret: str | None
    former_until_ms: int | None
    enabled: int
    failing_since_ms: int | None
    disabled_because: str | None
