"""The hub's wire format: requests, responses, events, errors (hub spec §0.8, §0.9)."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from appliance.kernel.errors import Conflict, Invalid, Missing, Unavailable
from appliance.kernel.scopes import Scopes

READ, POST, ADMIN = "hub:read", "hub:post", "hub:admin"
SCOPES = Scopes(frozenset({READ, POST, ADMIN}), free=frozenset({READ}))
PROTOCOL_VERSION, TOMBSTONE = "v1", "[deleted]"
CONTENT_BYTES_MAX = 65_536
BATCH_MAX = 500
PAGE_MAX = 1000  # rows in one response; a larger `limit` is clamped
VALUE_BYTES_MAX, VERSION_MAX = 16_384, 2**63 - 1
RECIPIENTS_MAX = 50  # names in `to`: each gets a row, and a receipt in the reply
ACK_SECONDS_MAX = 90 * 86_400

Id = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
Reference = Annotated[str, Meta(min_length=1, max_length=100, description="an id, or a name")]
TopicReference = Annotated[
    str, Meta(min_length=1, max_length=301, description="an id, or CHANNEL/TITLE")
]
ChannelName = Annotated[str, Meta(min_length=1, max_length=100)]
Title = Annotated[str, Meta(min_length=1, max_length=200)]
Sender = Annotated[str, Meta(min_length=1, max_length=200)]
Content = Annotated[str, Meta(description="at most 65,536 bytes in UTF-8")]
Version = Annotated[int, Meta(ge=1, le=VERSION_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=255)]
Limit = Annotated[int, Meta(ge=1, description="clamped to the maximum")]
Kind = Annotated[str, Meta(min_length=1, max_length=100)]
DedupeKey = Annotated[str, Meta(min_length=1, max_length=500)]
Instant = Annotated[str, Meta(max_length=40, description="ISO 8601; UTC without a zone")]
Mode = Literal["one", "later", "all"]
EventId = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Recipients = Annotated[
    list[Sender], Meta(max_length=RECIPIENTS_MAX, description="names that get an inbox entry")
]
AckSeconds = Annotated[
    int, Meta(ge=1, le=ACK_SECONDS_MAX, description="seconds in which `to` has to acknowledge")
]
_WISH = r"^(remind|reassign:.+)$"
OnOverdue = Annotated[
    str, Meta(max_length=210, pattern=_WISH, description="then: remind, or reassign:NAME")
]


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
    """`principal`: the token or plugin that created it; null if another program did."""

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
    principal: str | None = None


class Attachment(Struct, frozen=True):
    id: str
    topic_id: str
    kind: str
    key: str | None
    value_json: dict[str, Any]
    dedupe_key: str
    source_message_id: str | None
    created_at: str


class FoundMessage(Message, frozen=True, kw_only=True):
    """A message with the snippet that a search matched."""

    snippet: str


# -- requests ----------------------------------------------------------------------


class CreateChannel(Struct, frozen=True):
    name: ChannelName
    description: Annotated[str, Meta(max_length=2000)] | None = None


class CreateTopic(Struct, frozen=True):
    channel_id: Reference
    title: Title


class RenameTopic(Struct, frozen=True):
    title: Title


class CreateMessage(Struct, frozen=True, omit_defaults=True):
    topic_id: TopicReference
    sender: Sender
    content_raw: Content
    to: Recipients = []
    ack_by_seconds: AckSeconds | None = None
    on_overdue: OnOverdue | None = None


class BatchMessage(CreateMessage, frozen=True, omit_defaults=True):
    idempotency_key: Key | None = None


class CreateMessages(Struct, frozen=True):
    messages: Annotated[list[BatchMessage], Meta(min_length=1, max_length=BATCH_MAX)]


class EditMessage(Struct, frozen=True, tag_field="op", tag="edit"):
    content_raw: Content
    expected_version: Version | None = None


class DeleteMessage(Struct, frozen=True, tag_field="op", tag="delete"):
    actor: Sender
    expected_version: Version | None = None


class MoveMessage(Struct, frozen=True, tag_field="op", tag="move_topic"):
    to_topic_id: TopicReference
    mode: Mode
    expected_version: Version | None = None


PatchMessage = EditMessage | DeleteMessage | MoveMessage


class AddAttachment(Struct, frozen=True):
    kind: Kind
    value_json: Annotated[dict[str, Any], Meta(description="at most 16,384 bytes as JSON")]
    key: Annotated[str, Meta(max_length=100, description="empty: none")] | None = None
    dedupe_key: DedupeKey | None = None
    source_message_id: Id | None = None


# -- query strings ---------------------------------------------------------------------


class TopicsQuery(Struct, frozen=True):
    limit: Limit = 50
    before_id: Id | None = None


class ChannelsQuery(Struct, frozen=True):
    limit: Limit = PAGE_MAX
    after_name: ChannelName | None = None


class MessagesQuery(Struct, frozen=True):
    channel_id: Reference | None = None
    topic_id: TopicReference | None = None
    limit: Limit = 50
    before_id: Id | None = None
    after_id: Id | None = None
    since: Instant | None = None  # oldest first, from the first message at or after this time


class AttachmentsQuery(TopicsQuery, frozen=True):
    kind: Kind | None = None


class SearchQuery(Struct, frozen=True):
    q: Annotated[str, Meta(min_length=1, description='words, "a phrase", one OR two')]
    channel_id: Reference | None = None
    topic_id: TopicReference | None = None
    sender: Sender | None = None
    after: Instant | None = None
    before: Instant | None = None
    limit: Limit = 50
    prefix: bool = False  # the last word also matches longer words
    order: Literal["best", "newest"] = "best"


class EventsQuery(Struct, frozen=True):
    after: EventId = 0
    limit: Limit = 100
    tail: Limit | None = None
    before: EventId | None = None  # only events with a lower id
    channel_id: Reference | None = None
    topic_id: TopicReference | None = None
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    wait: Annotated[float, Meta(ge=0)] = 0.0


class StreamQuery(Struct, frozen=True):
    after: EventId | None = None
    channel_id: list[Reference] = []
    topic_id: list[TopicReference] = []


# -- replies -----------------------------------------------------------------------


class Health(Struct, frozen=True):
    """While the hub is switched off, `db_id` is "" and `schema_version` 0."""

    status: str
    instance_id: str
    db_id: str
    schema_version: int
    protocol_version: str
    epoch: str
    uptime_seconds: int
    pid: int
    version: str
    features: tuple[str, ...]  # courier, outbox and relay features, for their clients
    ok: bool = True
    read_only: bool = False  # every change is refused


class ChannelList(Struct, frozen=True):
    channels: list[Channel]
    has_more: bool = False


class TopicList(Struct, frozen=True):
    topics: list[Topic]
    has_more: bool = False


class OneMessage(Struct, frozen=True):
    message: Message


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


class Moved(Struct, frozen=True):
    affected_count: int
    event_ids: list[int]


class AttachmentAdded(Struct, frozen=True, omit_defaults=True):
    attachment: Attachment
    event_id: int | None
    deduplicated: bool = False


class AttachmentList(Struct, frozen=True):
    attachments: list[Attachment]
    has_more: bool
    cursor: str | None = None


class SearchResult(Struct, frozen=True):
    messages: list[FoundMessage]
    fts_used: bool
    has_more: bool


class BatchResult(Struct, frozen=True, omit_defaults=True):
    message: Message | None = None
    event_id: int | None = None
    replayed: bool = False
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
    has_more: bool = False


# -- event payloads (hub spec §0.9, event catalog); `principal`: the token or plugin ------


class ChannelData(Struct, frozen=True):
    channel: Channel
    principal: str | None = None


class TopicData(Struct, frozen=True):
    topic: Topic
    principal: str | None = None


class TopicRenamed(Struct, frozen=True):
    topic_id: str
    old_title: str
    new_title: str
    principal: str | None = None


class MessageEdited(Struct, frozen=True):
    message_id: str
    old_content: str
    new_content: str
    version: int
    principal: str | None = None


class MessageDeleted(Struct, frozen=True):
    message_id: str
    deleted_by: str
    version: int
    principal: str | None = None


class MessageMoved(Struct, frozen=True):
    message_id: str
    old_topic_id: str
    new_topic_id: str
    channel_id: str
    mode: str
    version: int
    principal: str | None = None


class AttachmentData(Struct, frozen=True):
    attachment: Attachment
    principal: str | None = None


# -- socket frames -----------------------------------------------------------------------


class Subscriptions(Struct, frozen=True):
    channels: Annotated[list[Reference], Meta(max_length=1000)] = []
    topics: Annotated[list[TopicReference], Meta(max_length=1000)] = []


class HubHello(Struct, frozen=True, tag_field="type", tag="hello"):
    after_event_id: EventId = 0
    subscriptions: Subscriptions | None = None
    epoch: str | None = None


class SocketRequest(Struct, frozen=True, tag_field="type", tag="request"):
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
    default_message = "channel not found"
    default_hint = "agentlip channel list"


class NoSuchTopic(Missing):
    default_message = "topic not found"
    default_hint = "agentlip topic list --channel NAME"


class UnknownCursor(Invalid):
    """`details.field` is `before_id` or `after_id`."""

    default_message = "the id to continue from doesn't exist in this list"
    default_hint = "pass the last id from the previous page, or no id"

    def __init__(self, field: str, value: str) -> None:
        super().__init__(f"no item with this {field}", details={"field": field, "id": value[:100]})


class NoSuchMessage(Missing):
    default_message = "message not found"
    default_hint = "agentlip msg tail --topic-id ID"


class NameTaken(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "the name is already taken"
    default_hint = "use the existing one; its id is in details"


class VersionConflict(Conflict):
    code = "VERSION_CONFLICT"
    default_message = "version conflict"
    default_hint = "read the message again, then retry with its current version"


class VersionsUsedUp(Conflict):
    code = "VERSIONS_USED_UP"
    default_message = "the message's version number is exhausted"
    default_hint = "post a new message instead"


class CannotEditDeleted(Invalid):
    default_message = "cannot edit deleted message"
    default_hint = "a deleted message can't be restored; post a new message instead"


class CrossChannelMove(Invalid):
    code = "CROSS_CHANNEL_MOVE"
    default_message = "cross-channel move forbidden"
    default_hint = "choose a topic in the message's channel: agentlip topic list --channel CHANNEL"


class MessagesMoved(Conflict):
    code = "MESSAGES_MOVED"
    default_message = "messages moved by concurrent retopic"
    default_hint = "read the message again to see its topic, then retry"


class TooManyToMove(Invalid):
    default_message = (
        "too many messages; use mode=later with smaller anchor, or delete old messages first"
    )
    default_hint = (
        "move the newest first: agentlip msg retopic MESSAGE --to-topic-id TOPIC --mode later"
    )


class BadUrl(Invalid):
    default_message = "the address is not a valid http, https or file URL"
    default_hint = 'example: {"url": "https://example.com/page"}'


class TooManyListeners(Unavailable):
    default_message = "too many clients are waiting for events"
    default_hint = "use the WebSocket"


class EpochChanged(Conflict):
    code = "EPOCH_CHANGED"
    default_message = "the database was restored: cursors from the previous epoch are invalid"
    default_hint = "start again from event 0, or from replay_until to skip the history"
