"""What crosses the hub's door: requests, replies, events, errors (hub spec §0.8, §0.9)."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Invalid, Missing

PROTOCOL_VERSION = "v1"
TOMBSTONE = "[deleted]"
CONTENT_BYTES_MAX = 65_536
BATCH_MAX = 500
PAGE_MAX = 1000

Id = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
Reference = Annotated[str, Meta(min_length=1, max_length=100, description="an id, or a name")]
ChannelName = Annotated[str, Meta(min_length=1, max_length=100)]
Title = Annotated[str, Meta(min_length=1, max_length=200)]
Sender = Annotated[str, Meta(min_length=1, max_length=200)]
Content = Annotated[str, Meta(description="at most 65,536 bytes of UTF-8")]
Version = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Key = Annotated[str, Meta(min_length=1, max_length=255)]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]
EventId = Annotated[int, Meta(ge=0, le=2**63 - 1)]


# -- nouns -------------------------------------------------------------------------


class Channel(Struct, frozen=True):
    id: str
    name: str
    description: str | None
    created_at: str


class Topic(Struct, frozen=True):
    id: str
    channel_id: str
    title: str
    created_at: str
    updated_at: str


class Message(Struct, frozen=True):
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


# -- requests ----------------------------------------------------------------------


class CreateChannel(Struct, frozen=True):
    name: ChannelName
    description: Annotated[str, Meta(max_length=2000)] | None = None


class CreateTopic(Struct, frozen=True):
    channel_id: Id
    title: Title


class RenameTopic(Struct, frozen=True):
    title: Title


class CreateMessage(Struct, frozen=True):
    topic_id: Id
    sender: Sender
    content_raw: Content


class BatchMessage(Struct, frozen=True):
    topic_id: Id
    sender: Sender
    content_raw: Content
    idempotency_key: Key | None = None


class CreateMessages(Struct, frozen=True):
    messages: Annotated[list[BatchMessage], Meta(min_length=1, max_length=BATCH_MAX)]


class EditMessage(Struct, frozen=True, tag_field="op", tag="edit"):
    content_raw: Content
    expected_version: Version | None = None


class DeleteMessage(Struct, frozen=True, tag_field="op", tag="delete"):
    actor: Sender
    expected_version: Version | None = None


PatchMessage = EditMessage | DeleteMessage


# -- queries (the part of a URL behind the question mark) ------------------------------


class TopicsQuery(Struct, frozen=True):
    limit: Limit = 50
    before_id: Id | None = None


class ChannelsQuery(Struct, frozen=True):
    limit: Limit = PAGE_MAX


class MessagesQuery(Struct, frozen=True):
    channel_id: Id | None = None
    topic_id: Id | None = None
    limit: Limit = 50
    before_id: Id | None = None
    after_id: Id | None = None


class EventsQuery(Struct, frozen=True):
    after: EventId = 0
    limit: Limit = 100
    tail: Limit | None = None
    channel_id: Id | None = None
    topic_id: Id | None = None
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    wait: Annotated[float, Meta(ge=0)] = 0.0


class StreamQuery(Struct, frozen=True):
    after: EventId | None = None
    channel_id: list[Reference] = []
    topic_id: list[Reference] = []


# -- replies -----------------------------------------------------------------------


class Health(Struct, frozen=True):
    status: str
    instance_id: str
    db_id: str
    schema_version: int
    protocol_version: str
    epoch: str
    uptime_seconds: int
    pid: int
    version: str


class ChannelList(Struct, frozen=True):
    channels: list[Channel]
    has_more: bool = False


class TopicList(Struct, frozen=True):
    topics: list[Topic]
    has_more: bool = False


class MessageList(Struct, frozen=True):
    messages: list[Message]
    has_more: bool
    cursor: str | None = None


class ChannelCreated(Struct, frozen=True):
    channel: Channel
    event_id: int


class TopicChanged(Struct, frozen=True):
    topic: Topic
    event_id: int


class MessageChanged(Struct, frozen=True):
    message: Message
    event_id: int | None


class BatchResult(Struct, frozen=True, omit_defaults=True):
    message: Message | None = None
    event_id: int | None = None
    error: str | None = None
    code: str | None = None
    details: dict[str, Any] | None = None
    hint: str | None = None


class BatchResults(Struct, frozen=True):
    results: list[BatchResult]


class Scope(Struct, frozen=True, omit_defaults=True):
    channel_id: str | None = None
    topic_id: str | None = None
    topic_id2: str | None = None


class Entity(Struct, frozen=True):
    type: str
    id: str


class EventRow(Struct, frozen=True):
    event_id: int
    ts: str
    name: str
    scope: Scope
    entity: Entity
    data_json: dict[str, Any]


class EventList(Struct, frozen=True):
    events: list[EventRow]
    replay_until: int


# -- event payloads (hub spec §0.9, event catalog) --------------------------------------


class ChannelData(Struct, frozen=True):
    channel: Channel


class TopicData(Struct, frozen=True):
    topic: Topic


class TopicRenamed(Struct, frozen=True):
    topic_id: str
    old_title: str
    new_title: str


class MessageEdited(Struct, frozen=True):
    message_id: str
    old_content: str
    new_content: str
    version: int


class MessageDeleted(Struct, frozen=True):
    message_id: str
    deleted_by: str
    version: int


# -- frames of the socket ----------------------------------------------------------------


class Subscriptions(Struct, frozen=True):
    channels: Annotated[list[Reference], Meta(max_length=1000)] = []
    topics: Annotated[list[Reference], Meta(max_length=1000)] = []


class Hello(Struct, frozen=True, tag_field="type", tag="hello"):
    after_event_id: EventId = 0
    subscriptions: Subscriptions | None = None
    epoch: str | None = None


class Request(Struct, frozen=True, tag_field="type", tag="request"):
    id: Annotated[str, Meta(max_length=128)] | int
    op: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    idempotency_key: Key | None = None


class HelloOk(Struct, frozen=True, tag_field="type", tag="hello_ok"):
    replay_until: int
    latest_event_id: int
    instance_id: str
    epoch: str
    protocol_version: str = PROTOCOL_VERSION


# -- errors ----------------------------------------------------------------------------


class NoSuchChannel(Missing):
    sentence = "channel not found"
    advice = "agentlip channel list"


class NoSuchTopic(Missing):
    sentence = "topic not found"
    advice = "agentlip topic list --channel NAME"


class NoSuchMessage(Missing):
    sentence = "message not found"
    advice = "agentlip msg tail --topic-id ID"


class NameTaken(Conflict):
    code = "ALREADY_EXISTS"
    sentence = "that name is taken"
    advice = "use the one that exists; its id is in details"


class VersionConflict(Conflict):
    code = "VERSION_CONFLICT"
    sentence = "version conflict"
    advice = "read the message again and decide with what it says now"


class CannotEditDeleted(Invalid):
    sentence = "cannot edit deleted message"
    advice = "a tombstone stays; post a new message instead"


class KeyReused(Conflict):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    sentence = "this idempotency key was used with another request"
    advice = "use a new key for a new request; retry with the same body"


class KeyInProgress(Conflict):
    code = "IDEMPOTENCY_IN_PROGRESS"
    sentence = "the first request with this idempotency key is still running"
    advice = "wait, then send the same request again"


class EpochChanged(Conflict):
    code = "EPOCH_CHANGED"
    sentence = "the database was restored; cursors of the former epoch mean nothing here"
    advice = "start again from event 0, or from replay_until to skip history"
