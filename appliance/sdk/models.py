"""What an SDK client hands out: frozen structs that ignore what a newer hub adds.

Their names and fields are the wire's; what a hub of another release may leave out has a
default, so that both sides can be upgraded in any order.
"""

from typing import Any, Literal

import msgspec

from appliance.sdk.errors import Refused

Mode = Literal["one", "later", "all"]


class Scope(msgspec.Struct, frozen=True):
    """Where an event belongs; `topic_id2` is where a message was moved to."""

    channel_id: str | None = None
    topic_id: str | None = None
    topic_id2: str | None = None


class Envelope(msgspec.Struct, frozen=True):
    """One event. `data` is what docs/events.md shows for `name`; names may be new to you."""

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
    """What a plugin found: `span` is {"start": n, "end": n}, in characters of the text."""

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
    """`sender` is what its author said; `principal` is the token or plugin that created it."""

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
    """A message with the piece of its text that a search found."""

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
    """`event_id` None: nothing changed, as when a deleted message is deleted again."""

    message: Message
    event_id: int | None = None


class Moved(msgspec.Struct, frozen=True):
    affected_count: int
    event_ids: list[int] = []


class AttachmentAdded(msgspec.Struct, frozen=True):
    """`event_id` None: it was there already."""

    attachment: Attachment
    event_id: int | None = None


class SearchResult(msgspec.Struct, frozen=True):
    messages: list[FoundMessage]
    fts_used: bool = False
    has_more: bool = False


class NewMessage(msgspec.Struct, frozen=True):
    """One of a batch. With a key of your own a repetition is safe even in another process."""

    topic_id: str
    sender: str
    content_raw: str
    idempotency_key: str | None = None


BatchOutcome = MessageChanged | Refused
