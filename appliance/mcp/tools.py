"""The tools, one row each, and what they take and give.

A tool is for a model that pays for every word: names say what is done, descriptions only
what names can't say, results leave out what is null or known. A new tool is a row of TOOLS,
the two structs it names, and a function of a few lines.
"""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from appliance.hub import wire
from appliance.hub.access import POST, READ
from appliance.hub.service import Hub
from appliance.kernel.auth import Principal
from appliance.web.health import Verdict

WAIT_SECONDS_MAX = 50  # clients commonly give up after 60

Key = Annotated[
    str, Meta(min_length=1, max_length=255, description="same key again: same answer, done once")
]
# Without the pattern of ids: what has none of ours is not found, and that says more.
Id = Annotated[str, Meta(min_length=1, max_length=64)]
Few = Annotated[int, Meta(ge=1, le=200)]
MaxChars = Annotated[int, Meta(ge=1, le=65_536, description="longer texts are cut")]


class ToolArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments: a misspelt one is told, not ignored."""


class ToolResult(Struct, frozen=True, omit_defaults=True):
    """A result without what it doesn't have."""


class NoArguments(ToolArguments, frozen=True):
    pass


# -- what there is ----------------------------------------------------------------------------


class Channel(ToolResult, frozen=True):
    id: str
    name: str
    description: str | None = None


class Channels(ToolResult, frozen=True):
    channels: list[Channel]
    has_more: bool = False


class ListTopics(ToolArguments, frozen=True):
    channel: wire.Reference
    limit: Few = 30
    before_id: Id | None = None


class Topic(ToolResult, frozen=True):
    id: str
    title: str
    updated_at: str


class Topics(ToolResult, frozen=True):
    topics: list[Topic]
    has_more: bool = False


class ReadTopic(ToolArguments, frozen=True):
    topic_id: Id
    limit: Few = 20
    before_id: Id | None = None
    after_id: Id | None = None
    max_chars: MaxChars = 4000


class Message(ToolResult, frozen=True):
    id: str
    sender: str
    at: str
    content: str
    version: int = 1
    truncated: bool = False
    deleted_by: str | None = None
    principal: str | None = None


class Messages(ToolResult, frozen=True):
    """`cursor`: pass it as before_id (or after_id, if that was given) for the next page."""

    messages: list[Message]
    has_more: bool = False
    cursor: str | None = None


class WaitEvents(ToolArguments, frozen=True):
    after: (
        Annotated[int, Meta(ge=0, le=2**63 - 1, description="a cursor; left out: only what is new")]
        | None
    ) = None
    epoch: Annotated[str, Meta(max_length=64, description="as given with the cursor")] | None = None
    channel: wire.Reference | None = None
    topic_id: Id | None = None
    name: Annotated[str, Meta(max_length=100, description="e.g. message.created")] | None = None
    limit: Few = 50
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 20.0
    max_chars: MaxChars = 4000


class Event(ToolResult, frozen=True):
    id: int
    name: str
    at: str
    channel_id: str | None = None
    topic_id: str | None = None
    message: Message | None = None
    data: dict[str, Any] | None = None
    truncated: bool = False


class Events(ToolResult, frozen=True):
    """Empty: the time was up. Keep cursor and epoch, and pass them next time."""

    events: list[Event]
    cursor: int
    epoch: str


class Search(ToolArguments, frozen=True):
    query: Annotated[
        str, Meta(min_length=1, max_length=1000, description='words, "a phrase", one OR two')
    ]
    channel: wire.Reference | None = None
    topic_id: Id | None = None
    sender: Annotated[str, Meta(max_length=200)] | None = None
    after: Annotated[str, Meta(max_length=40, description="a date or time")] | None = None
    before: Annotated[str, Meta(max_length=40)] | None = None
    limit: Few = 20


class Hit(ToolResult, frozen=True):
    message_id: str
    topic_id: str
    sender: str
    at: str
    snippet: str
    principal: str | None = None


class Found(ToolResult, frozen=True):
    messages: list[Hit]
    has_more: bool = False


class Status(ToolResult, frozen=True):
    ready: bool
    version: str
    db_id: str
    epoch: str
    newest_event: int
    you: str
    scopes: list[str]
    failing: list[str] = []
    senders: list[str] | None = None


# -- what can be changed ----------------------------------------------------------------------


class CreateChannel(ToolArguments, frozen=True):
    name: wire.ChannelName
    description: Annotated[str, Meta(max_length=2000)] | None = None
    idempotency_key: Key | None = None


class ChannelMade(ToolResult, frozen=True):
    channel_id: str
    event_id: int


class CreateTopic(ToolArguments, frozen=True):
    channel: wire.Reference
    title: wire.Title
    idempotency_key: Key | None = None


class TopicMade(ToolResult, frozen=True):
    topic_id: str
    event_id: int


class PostMessage(ToolArguments, frozen=True):
    topic_id: Id
    sender: Annotated[str, Meta(min_length=1, max_length=200, description="who you are")]
    content: wire.Content
    idempotency_key: Key | None = None


class EditMessage(ToolArguments, frozen=True):
    message_id: Id
    content: wire.Content
    expected_version: wire.Version | None = None
    idempotency_key: Key | None = None


class DeleteMessage(ToolArguments, frozen=True):
    message_id: Id
    actor: Annotated[str, Meta(min_length=1, max_length=200, description="who you are")]
    expected_version: wire.Version | None = None
    idempotency_key: Key | None = None


class MessageDone(ToolResult, frozen=True):
    """`event_id` missing: nothing had to be changed."""

    message_id: str
    version: int
    event_id: int | None = None


# -- calling ----------------------------------------------------------------------------------

_channel_made = msgspec.json.Decoder(wire.ChannelCreated).decode
_topic_made = msgspec.json.Decoder(wire.TopicChanged).decode
_message_done = msgspec.json.Decoder(wire.MessageChanged).decode
_listed = msgspec.json.Decoder(wire.EventList).decode


class ToolContext:
    """What tools work with."""

    def __init__(self, hub: Hub, verdict: Callable[[], Verdict]) -> None:
        self.hub = hub
        self.verdict = verdict

    def channel_id(self, reference: str, who: Principal, scope: str = READ) -> str:
        """The channel of that id or name. One that the caller may not touch is not there."""
        found = self.hub.filter_for([reference], [])
        (channel_id,) = found.channels
        only = who.channels_for(scope)
        if found.unresolved or (only is not None and channel_id not in only):
            raise wire.NoSuchChannel(details={"channel": reference}, hint="list_channels")
        return channel_id


def list_channels(bench: ToolContext, _asked: NoArguments, who: Principal) -> Channels:
    found = bench.hub.list_channels(wire.ChannelsQuery(), who)
    return Channels([Channel(c.id, c.name, c.description) for c in found.channels], found.has_more)


def list_topics(bench: ToolContext, asked: ListTopics, who: Principal) -> Topics:
    query = wire.TopicsQuery(asked.limit, asked.before_id)
    found = bench.hub.list_topics(bench.channel_id(asked.channel, who), query, who)
    return Topics([Topic(t.id, t.title, t.updated_at) for t in found.topics], found.has_more)


def read_topic(bench: ToolContext, asked: ReadTopic, who: Principal) -> Messages:
    query = wire.MessagesQuery(
        topic_id=asked.topic_id,
        limit=asked.limit,
        before_id=asked.before_id,
        after_id=asked.after_id,
    )
    page = bench.hub.page_messages(query, who)
    messages = [_short(message, asked.max_chars) for message in page.messages]
    if asked.after_id is None:
        messages.reverse()  # a conversation is read from its beginning
    return Messages(messages, page.has_more, page.cursor if page.has_more else None)


def wait_events(bench: ToolContext, asked: WaitEvents, who: Principal) -> Events:
    hub = bench.hub
    epoch = hub.identity.epoch
    if asked.epoch is not None and asked.epoch != epoch:
        details = {"epoch": epoch, "replay_until": hub.feed.head}
        raise wire.EpochChanged(details=details, hint="call again with after 0 and no epoch")
    query = wire.EventsQuery(
        after=hub.feed.head if asked.after is None else asked.after,
        limit=asked.limit,
        channel_id=_channel(bench, asked.channel, who),
        topic_id=asked.topic_id,
        name=asked.name,
        wait=asked.wait_s,
    )
    listed = _listed(hub.list_events(query, who))
    rows = listed.events
    cursor = rows[-1].event_id if listed.has_more else listed.replay_until
    return Events([_told(row, asked.max_chars) for row in rows], cursor, epoch)


def search(bench: ToolContext, asked: Search, who: Principal) -> Found:
    query = wire.SearchQuery(
        q=asked.query,
        channel_id=_channel(bench, asked.channel, who),
        topic_id=asked.topic_id,
        sender=asked.sender,
        after=asked.after,
        before=asked.before,
        limit=asked.limit,
    )
    found = bench.hub.search(query, who)
    hits = [
        Hit(m.id, m.topic_id, m.sender, m.created_at, m.snippet, m.principal)
        for m in found.messages
    ]
    return Found(hits, found.has_more)


def status(bench: ToolContext, _asked: NoArguments, who: Principal) -> Status:
    hub, verdict = bench.hub, bench.verdict()
    return Status(
        ready=verdict.ready,
        version=hub.identity.version,
        db_id=hub.db_id,
        epoch=hub.identity.epoch,
        newest_event=hub.feed.head,
        you=who.name,
        scopes=sorted(who.scopes),
        failing=verdict.failing,
        senders=None if who.senders is None else sorted(who.senders),
    )


def create_channel(bench: ToolContext, asked: CreateChannel, who: Principal) -> ChannelMade:
    command = wire.CreateChannel(asked.name, asked.description)
    made = _channel_made(bench.hub.create_channel(command, who, asked.idempotency_key).body)
    return ChannelMade(made.channel.id, made.event_id)


def create_topic(bench: ToolContext, asked: CreateTopic, who: Principal) -> TopicMade:
    command = wire.CreateTopic(bench.channel_id(asked.channel, who, POST), asked.title)
    made = _topic_made(bench.hub.create_topic(command, who, asked.idempotency_key).body)
    return TopicMade(made.topic.id, made.event_id)


def post_message(bench: ToolContext, asked: PostMessage, who: Principal) -> MessageDone:
    command = wire.CreateMessage(asked.topic_id, asked.sender, asked.content)
    return _done(bench.hub.create_message(command, who, asked.idempotency_key).body)


def edit_message(bench: ToolContext, asked: EditMessage, who: Principal) -> MessageDone:
    command = wire.EditMessage(asked.content, asked.expected_version)
    return _done(
        bench.hub.patch_message(asked.message_id, command, who, asked.idempotency_key).body
    )


def delete_message(bench: ToolContext, asked: DeleteMessage, who: Principal) -> MessageDone:
    command = wire.DeleteMessage(asked.actor, asked.expected_version)
    return _done(
        bench.hub.patch_message(asked.message_id, command, who, asked.idempotency_key).body
    )


def _channel(bench: ToolContext, reference: str | None, who: Principal) -> str | None:
    return None if reference is None else bench.channel_id(reference, who)


def _done(body: bytes) -> MessageDone:
    done = _message_done(body)
    return MessageDone(done.message.id, done.message.version, done.event_id)


def _short(message: wire.Message, max_chars: int) -> Message:
    content = message.content_raw
    return Message(
        id=message.id,
        sender=message.sender,
        at=message.created_at,
        content=content[:max_chars],
        version=message.version,
        truncated=len(content) > max_chars,
        deleted_by=message.deleted_by,
        principal=message.principal,
    )


def _told(row: wire.EventRow, max_chars: int) -> Event:
    channel_id, topic_id = row.scope.channel_id, row.scope.topic_id
    if row.name == "message.created":
        message = _short(msgspec.convert(row.data_json["message"], wire.Message), max_chars)
        return Event(row.event_id, row.name, row.ts, channel_id, topic_id, message)
    data = {
        name: value[:max_chars] if isinstance(value, str) else value
        for name, value in row.data_json.items()
    }
    return Event(
        row.event_id, row.name, row.ts, channel_id, topic_id,
        data=data, truncated=data != row.data_json,
    )  # fmt: skip


# -- the table --------------------------------------------------------------------------------


class Tool(Struct, frozen=True):
    """A row. `changes`: nothing, something new, or what is there (and may be lost)."""

    name: str
    title: str
    description: str
    takes: type[ToolArguments]
    gives: type[ToolResult]
    scope: str
    call: Callable[[ToolContext, Any, Principal], ToolResult]
    changes: str = "nothing"
    idempotent: bool = False


TOOLS: tuple[Tool, ...] = (
    Tool(
        "status", "Status", "Is the hub well, who are you to it, and how far is its log.",
        NoArguments, Status, READ, status,
    ),
    Tool(
        "list_channels", "List channels", "All channels, by name.",
        NoArguments, Channels, READ, list_channels,
    ),
    Tool(
        "list_topics", "List topics", "Topics of a channel (id or name), newest activity first.",
        ListTopics, Topics, READ, list_topics,
    ),
    Tool(
        "read_topic", "Read a topic",
        "The newest messages of a topic, oldest of them first; before_id pages back, after_id on.",
        ReadTopic, Messages, READ, read_topic,
    ),
    Tool(
        "search", "Search messages", "Messages that hold the words, the best first.",
        Search, Found, READ, search,
    ),
    Tool(
        "wait_events", "Wait for events",
        "Events after a cursor; with none yet, waits up to wait_s for the first. Never misses"
        " one: pass the cursor and epoch of the last call.",
        WaitEvents, Events, READ, wait_events,
    ),
    Tool(
        "post_message", "Post a message", "Post to a topic.",
        PostMessage, MessageDone, POST, post_message, "adds",
    ),
    Tool(
        "create_topic", "Create a topic", "Make a topic in a channel (id or name).",
        CreateTopic, TopicMade, POST, create_topic, "adds",
    ),
    Tool(
        "create_channel", "Create a channel", "Make a channel.",
        CreateChannel, ChannelMade, POST, create_channel, "adds",
    ),
    Tool(
        "edit_message", "Edit a message", "Replace the text of a message.",
        EditMessage, MessageDone, POST, edit_message, "replaces",
    ),
    Tool(
        "delete_message", "Delete a message", "Turn a message into a tombstone.",
        DeleteMessage, MessageDone, POST, delete_message, "replaces", idempotent=True,
    ),
)  # fmt: skip
