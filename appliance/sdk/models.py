"""The structs that SDK clients return. They ignore fields that a newer hub adds.

Names and fields are those of the wire. Fields that another release of the hub may omit have
defaults, so client and hub can be upgraded in any order.
"""

from typing import Any, Literal

import msgspec

from appliance.sdk.errors import Refused

Mode = Literal["one", "later", "all"]
Priority = Literal["now", "next", "low"]


class Scope(msgspec.Struct, frozen=True):
    """The channel and topic of an event; `topic_id2` is the target topic of a move."""

    channel_id: str | None = None
    topic_id: str | None = None
    topic_id2: str | None = None


class Envelope(msgspec.Struct, frozen=True):
    """One event. docs/reference/events.md shows `data` of each `name`; ignore unknown names."""

    event_id: int
    name: str
    ts: str = ""
    scope: Scope = Scope()
    data: dict[str, Any] = {}


class Channel(msgspec.Struct, frozen=True):
    id: str
    name: str
    description: str | None = None
    created_at: str = ""


class Enrichment(msgspec.Struct, frozen=True):
    """A finding of a plugin: `span` is {"start": n, "end": n}, in characters of the text."""

    id: str
    kind: str
    span: dict[str, int]
    data: dict[str, Any] = {}
    plugin: str | None = None
    created_at: str = ""


class Topic(msgspec.Struct, frozen=True):
    id: str
    channel_id: str
    title: str
    created_at: str = ""
    updated_at: str = ""


class Message(msgspec.Struct, frozen=True):
    """`sender` is the name its author gave; `principal` is the token or plugin that created it."""

    id: str
    topic_id: str
    channel_id: str
    sender: str
    content_raw: str
    version: int
    created_at: str = ""
    edited_at: str | None = None
    deleted_at: str | None = None
    deleted_by: str | None = None
    principal: str | None = None


class FoundMessage(Message, frozen=True):
    """A message with the matching part of its text."""

    snippet: str = ""


class Attachment(msgspec.Struct, frozen=True):
    id: str
    topic_id: str
    kind: str
    value_json: dict[str, Any]
    dedupe_key: str
    key: str | None = None
    source_message_id: str | None = None
    created_at: str = ""


class ChannelCreated(msgspec.Struct, frozen=True):
    channel: Channel
    event_id: int


class TopicChanged(msgspec.Struct, frozen=True):
    topic: Topic
    event_id: int


class MessageChanged(msgspec.Struct, frozen=True):
    """No `event_id` if nothing changed, for example when a message was already deleted."""

    message: Message
    event_id: int | None = None


class Moved(msgspec.Struct, frozen=True):
    affected_count: int
    event_ids: list[int] = []


class AttachmentAdded(msgspec.Struct, frozen=True):
    """No `event_id` if the attachment existed already."""

    attachment: Attachment
    event_id: int | None = None


class SearchResult(msgspec.Struct, frozen=True):
    messages: list[FoundMessage]
    fts_used: bool = False
    has_more: bool = False


class SendAccepted(msgspec.Struct, frozen=True):
    """The outbox stored a send. `broker_message_id` if it was delivered before."""

    client_message_id: str
    status: str = ""
    duplicate: bool = False
    broker_message_id: str | None = None


class SendState(msgspec.Struct, frozen=True):
    """`status`: `pending`, `inflight`, `done`, `dead` or `aborted`."""

    id: str
    client_message_id: str
    status: str
    to: str
    mesh: str = ""
    attempts: int = 0
    enqueued_at: str = ""
    next_attempt_at: str | None = None
    last_error: str | None = None
    delivered_at: str | None = None
    broker_message_id: str | None = None


class InboxMessage(msgspec.Struct, frozen=True):
    """A message received from a mesh. `own`: this member sent it."""

    number: int
    id: str
    mesh: str
    sender_pubkey: str
    sender_name: str
    client_message_id: str = ""
    topic: str | None = None
    priority: Priority = "next"
    meta: Any = None
    body: str | None = None
    reply_to_id: str | None = None
    created_at: str = ""
    received_at: str = ""
    own: bool = False


class Ask(msgspec.Struct, frozen=True):
    """A question to a person. `state`: `waiting`, `answered`, `defaulted`, `expired`, `cancelled`.
    Only `answered` and `defaulted` have an `answer`."""

    id: str
    state: str
    text: str = ""
    answer: str | None = None
    answered_by: str | None = None
    message_id: str = ""


class NewMessage(msgspec.Struct, frozen=True):
    """One message of a batch. With your own key you can repeat it in another process."""

    topic_id: str
    sender: str
    content_raw: str
    idempotency_key: str | None = None


BatchOutcome = MessageChanged | Refused
