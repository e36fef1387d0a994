"""The arguments and results of the tools. Results omit null and known values."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from appliance.hub import wire

WAIT_SECONDS_MAX = 50  # clients commonly give up after 60

Key = Annotated[
    str, Meta(min_length=1, max_length=255, description="for retries: one key acts once")
]
# No pattern: an invalid id is reported as not found, which is more helpful.
Id = Annotated[str, Meta(min_length=1, max_length=64)]
TopicReference = Annotated[str, Meta(min_length=1, max_length=301)]
Few = Annotated[int, Meta(ge=1, le=200)]
EventName = Annotated[str, Meta(min_length=1, max_length=100, description="e.g. message.created")]
MaxChars = Annotated[int, Meta(ge=1, le=65_536, description="longer texts are cut")]


class ToolArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments. Unknown fields are refused."""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """A result. Fields with default values are omitted."""


class NoArguments(ToolArguments, frozen=True):
    pass


# -- reading ----------------------------------------------------------------------------------


class ChannelItem(ToolResult, frozen=True):
    id: str
    name: str
    description: str | None = None


class ChannelsResult(ToolResult, frozen=True):
    channels: list[ChannelItem]
    has_more: bool = False


class ListTopicsArguments(ToolArguments, frozen=True):
    channel: wire.Reference
    limit: Few = 30
    before_id: Id | None = None


class TopicItem(ToolResult, frozen=True):
    id: str
    title: str
    updated_at: str


class TopicsResult(ToolResult, frozen=True):
    topics: list[TopicItem]
    has_more: bool = False


class ReadMessageArguments(ToolArguments, frozen=True):
    message_id: Id
    max_chars: MaxChars = 65_536


class ReadTopicArguments(ToolArguments, frozen=True):
    topic_id: TopicReference
    limit: Few = 20
    before_id: Id | None = None
    after_id: Id | None = None
    max_chars: MaxChars = 4000


class MessageItem(ToolResult, frozen=True):
    id: str
    sender: str
    created_at: str = field(name="at")
    content_raw: str = field(name="content")
    version: int = 1
    truncated: bool = False
    deleted_by: str | None = None
    principal: str | None = None


class MessagesResult(ToolResult, frozen=True):
    """`cursor`: pass it as before_id (or after_id, if that was given) for the next page."""

    messages: list[MessageItem]
    has_more: bool = False
    cursor: str | None = None


class WaitEventsArguments(ToolArguments, frozen=True):
    after: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, description="a cursor; without it only new events")]
        | None
    ) = None
    epoch: Annotated[str, Meta(max_length=64, description="as given with the cursor")] | None = None
    channel_id: wire.Reference | None = field(name="channel", default=None)
    topic_id: TopicReference | None = None
    name: EventName | None = None
    limit: Few = 50
    wait: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = field(name="wait_s", default=20.0)
    max_chars: MaxChars = 4000


class EventItem(ToolResult, frozen=True):
    id: int
    name: str
    at: str
    channel_id: str | None = None
    topic_id: str | None = None
    message: MessageItem | None = None
    data: dict[str, Any] | None = None
    truncated: bool = False


class EventsResult(ToolResult, frozen=True):
    """Empty after a timeout. Keep cursor and epoch, and pass them in the next call."""

    events: list[EventItem]
    cursor: int
    epoch: str


class SearchArguments(wire.SearchQuery, frozen=True, forbid_unknown_fields=True):
    q: Annotated[
        str, Meta(min_length=1, max_length=1000, description='words, "a phrase", one OR two')
    ] = field(name="query")
    channel_id: wire.Reference | None = field(name="channel", default=None)
    topic_id: TopicReference | None = None
    limit: Few = 20


class Hit(ToolResult, frozen=True):
    id: str = field(name="message_id")
    topic_id: str
    sender: str
    created_at: str = field(name="at")
    snippet: str
    principal: str | None = None


class SearchHits(ToolResult, frozen=True):
    messages: list[Hit]
    has_more: bool = False


class StatusResult(ToolResult, frozen=True):
    ready: bool
    version: str
    db_id: str
    epoch: str
    newest_event: int
    you: str
    scopes: list[str]
    failing: list[str] = []
    senders: list[str] | None = None


class DoctorArguments(ToolArguments, frozen=True):
    run: Annotated[
        str, Meta(max_length=2000, description="checks or groups, with commas; default: all")
    ] = ""


class FindingItem(ToolResult, frozen=True):
    """A problem, as in the doctor's report. `explained_by`: the check and problem that cause it."""

    check: str
    severity: str
    subject: str
    sentence: str
    hint: str = ""
    explained_by: str = ""


class DoctorResult(ToolResult, frozen=True):
    """`age_seconds`: since the checks ran."""

    verdict: str
    age_seconds: float
    findings: list[FindingItem] = []


# -- changing ---------------------------------------------------------------------------------


class CreateChannelArguments(wire.CreateChannel, frozen=True, forbid_unknown_fields=True):
    idempotency_key: Key | None = None


class ChannelMade(ToolResult, frozen=True):
    channel_id: str
    event_id: int


class CreateTopicArguments(wire.CreateTopic, frozen=True, forbid_unknown_fields=True):
    channel_id: wire.Reference = field(name="channel")
    idempotency_key: Key | None = None


class TopicMade(ToolResult, frozen=True):
    topic_id: str
    event_id: int


class PostMessageArguments(ToolArguments, frozen=True):
    topic_id: wire.TopicReference
    sender: Annotated[wire.Sender, Meta(description="your name")]
    content_raw: wire.Content = field(name="content")
    to: wire.Recipients = []
    ack_by_seconds: wire.AckSeconds | None = None
    on_overdue: wire.OnOverdue | None = None
    idempotency_key: Key | None = None


class EditMessageArguments(ToolArguments, frozen=True):
    message_id: Id
    content: wire.Content
    expected_version: wire.Version | None = None
    idempotency_key: Key | None = None


class DeleteMessageArguments(ToolArguments, frozen=True):
    message_id: Id
    actor: Annotated[wire.Sender, Meta(description="your name")]
    expected_version: wire.Version | None = None
    idempotency_key: Key | None = None


class MessageDone(ToolResult, frozen=True):
    """Without `event_id`, nothing had to be changed. `waiting`: each recipient's earlier entries.
    `unknown`: names without an inbox."""

    message_id: str
    version: int
    event_id: int | None = None
    waiting: list[str] = []
    unknown: list[str] = []
