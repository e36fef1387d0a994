"""The hub's tools: one row each. Other subsystems offer theirs by `tools()`.

A new tool is a row of TOOLS, the two structs of `wire.py` that it names, and a short function.
"""

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from appliance.hub import wire
from appliance.hub.access import POST, READ
from appliance.hub.service import Hub
from appliance.kernel.auth import Principal
from appliance.kernel.tool import Tool
from appliance.mcp.wire import (
    ChannelItem,
    ChannelMade,
    ChannelsResult,
    CreateChannelArguments,
    CreateTopicArguments,
    DeleteMessageArguments,
    DoctorArguments,
    DoctorResult,
    EditMessageArguments,
    EventItem,
    EventsResult,
    FindingItem,
    Hit,
    ListTopicsArguments,
    MessageDone,
    MessageItem,
    MessagesResult,
    NoArguments,
    PostMessageArguments,
    ReadMessageArguments,
    ReadTopicArguments,
    SearchArguments,
    SearchHits,
    StatusResult,
    TopicItem,
    TopicMade,
    TopicsResult,
    WaitEventsArguments,
)
from appliance.web.health import READ_DOCTOR, Readiness

# -- calling ----------------------------------------------------------------------------------

_channel_made = msgspec.json.Decoder(wire.ChannelCreated).decode
_topic_made = msgspec.json.Decoder(wire.TopicChanged).decode
_message_done = msgspec.json.Decoder(wire.MessageChanged).decode
_listed = msgspec.json.Decoder(wire.EventList).decode


class _Outcome(Struct, frozen=True):
    findings: list[FindingItem]


class _Report(Struct, frozen=True):
    """What the tool reads of the doctor's report."""

    verdict: str
    age_seconds: float
    checks: list[_Outcome]


_reported = msgspec.json.Decoder(_Report).decode


class ToolContext:
    """What tools work with: the hub, the readiness of the appliance, and its doctor."""

    def __init__(
        self, hub: Hub, verdict: Callable[[], Readiness], doctor: Callable[[str], bytes]
    ) -> None:
        """`doctor` returns the report of the checks with these names as JSON; "": all checks."""
        self.hub = hub
        self.verdict = verdict
        self.doctor = doctor


def list_channels(context: ToolContext, _arguments: NoArguments, who: Principal) -> ChannelsResult:
    page = context.hub.list_channels(wire.ChannelsQuery(), who)
    return ChannelsResult(
        [ChannelItem(c.id, c.name, c.description) for c in page.channels], page.has_more
    )


def list_topics(
    context: ToolContext, arguments: ListTopicsArguments, who: Principal
) -> TopicsResult:
    query = wire.TopicsQuery(arguments.limit, arguments.before_id)
    page = context.hub.list_topics(arguments.channel, query, who)
    return TopicsResult(
        [TopicItem(t.id, t.title, t.updated_at) for t in page.topics], page.has_more
    )


def read_topic(
    context: ToolContext, arguments: ReadTopicArguments, who: Principal
) -> MessagesResult:
    query = wire.MessagesQuery(
        topic_id=arguments.topic_id,
        limit=arguments.limit,
        before_id=arguments.before_id,
        after_id=arguments.after_id,
    )
    page = context.hub.page_messages(query, who)
    messages = [_short(message, arguments.max_chars) for message in page.messages]
    if arguments.after_id is None:
        messages.reverse()  # oldest first, as a conversation is read
    return MessagesResult(messages, page.has_more, page.cursor if page.has_more else None)


def read_message(
    context: ToolContext, arguments: ReadMessageArguments, who: Principal
) -> MessageItem:
    message = context.hub.get_message(arguments.message_id, who).message
    return _short(message, arguments.max_chars)


def wait_events(
    context: ToolContext, arguments: WaitEventsArguments, who: Principal
) -> EventsResult:
    hub = context.hub
    epoch = hub.identity.epoch
    if arguments.epoch is not None and arguments.epoch != epoch:
        details = {"epoch": epoch, "replay_until": hub.feed.head}
        raise wire.EpochChanged(details=details)
    query = wire.EventsQuery(
        after=hub.feed.head if arguments.after is None else arguments.after,
        limit=arguments.limit,
        channel_id=arguments.channel,
        topic_id=arguments.topic_id,
        name=arguments.name,
        wait=arguments.wait_s,
    )
    listed = _listed(hub.list_events(query, who))
    rows = listed.events
    cursor = rows[-1].event_id if listed.has_more else listed.replay_until
    return EventsResult([_event_item(row, arguments.max_chars) for row in rows], cursor, epoch)


def search(context: ToolContext, arguments: SearchArguments, who: Principal) -> SearchHits:
    query = wire.SearchQuery(
        q=arguments.query,
        channel_id=arguments.channel,
        topic_id=arguments.topic_id,
        sender=arguments.sender,
        after=arguments.after,
        before=arguments.before,
        limit=arguments.limit,
    )
    result = context.hub.search(query, who)
    hits = [
        Hit(m.id, m.topic_id, m.sender, m.created_at, m.snippet, m.principal)
        for m in result.messages
    ]
    return SearchHits(hits, result.has_more)


def status(context: ToolContext, _arguments: NoArguments, who: Principal) -> StatusResult:
    hub, verdict = context.hub, context.verdict()
    return StatusResult(
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


def doctor(context: ToolContext, arguments: DoctorArguments, _who: Principal) -> DoctorResult:
    report = _reported(context.doctor(arguments.run))
    findings = [finding for outcome in report.checks for finding in outcome.findings]
    return DoctorResult(report.verdict, report.age_seconds, findings)


def create_channel(
    context: ToolContext, arguments: CreateChannelArguments, who: Principal
) -> ChannelMade:
    command = wire.CreateChannel(arguments.name, arguments.description)
    made = _channel_made(context.hub.create_channel(command, who, arguments.idempotency_key).body)
    return ChannelMade(made.channel.id, made.event_id)


def create_topic(
    context: ToolContext, arguments: CreateTopicArguments, who: Principal
) -> TopicMade:
    command = wire.CreateTopic(arguments.channel, arguments.title)
    made = _topic_made(context.hub.create_topic(command, who, arguments.idempotency_key).body)
    return TopicMade(made.topic.id, made.event_id)


def post_message(
    context: ToolContext, arguments: PostMessageArguments, who: Principal
) -> MessageDone:
    command = wire.CreateMessage(arguments.topic_id, arguments.sender, arguments.content)
    return _done(context.hub.create_message(command, who, arguments.idempotency_key).body)


def edit_message(
    context: ToolContext, arguments: EditMessageArguments, who: Principal
) -> MessageDone:
    command = wire.EditMessage(arguments.content, arguments.expected_version)
    return _done(
        context.hub.patch_message(
            arguments.message_id, command, who, arguments.idempotency_key
        ).body
    )


def delete_message(
    context: ToolContext, arguments: DeleteMessageArguments, who: Principal
) -> MessageDone:
    command = wire.DeleteMessage(arguments.actor, arguments.expected_version)
    return _done(
        context.hub.patch_message(
            arguments.message_id, command, who, arguments.idempotency_key
        ).body
    )


def _done(body: bytes) -> MessageDone:
    done = _message_done(body)
    return MessageDone(done.message.id, done.message.version, done.event_id)


def _short(message: wire.Message, max_chars: int) -> MessageItem:
    content = message.content_raw
    return MessageItem(
        id=message.id,
        sender=message.sender,
        at=message.created_at,
        content=content[:max_chars],
        version=message.version,
        truncated=len(content) > max_chars,
        deleted_by=message.deleted_by,
        principal=message.principal,
    )


def _event_item(row: wire.EventRow, max_chars: int) -> EventItem:
    channel_id, topic_id = row.scope.channel_id, row.scope.topic_id
    if row.name == "message.created":
        message = _short(msgspec.convert(row.data_json["message"], wire.Message), max_chars)
        return EventItem(row.event_id, row.name, row.ts, channel_id, topic_id, message)
    data = {
        name: value[:max_chars] if isinstance(value, str) else value
        for name, value in row.data_json.items()
    }
    return EventItem(
        row.event_id, row.name, row.ts, channel_id, topic_id,
        data=data, truncated=data != row.data_json,
    )  # fmt: skip


# -- the table --------------------------------------------------------------------------------


TOOLS: tuple[Tool, ...] = (
    Tool(
        "status", "Status", "Readiness of the hub, your identity and scopes, and the newest event.",
        NoArguments, StatusResult, READ, status,
    ),
    Tool(
        "doctor", "Check for problems", "Problems of the appliance, each with a remedy.",
        DoctorArguments, DoctorResult, READ_DOCTOR, doctor,
    ),
    Tool(
        "list_channels", "List channels", "All channels, by name.",
        NoArguments, ChannelsResult, READ, list_channels,
    ),
    Tool(
        "list_topics", "List topics", "Topics of a channel (id or name), newest activity first.",
        ListTopicsArguments, TopicsResult, READ, list_topics,
    ),
    Tool(
        "read_topic", "Read a topic",
        "The newest messages of a topic (id or CHANNEL/TITLE), oldest first; before_id pages back,"
        " after_id forward.",
        ReadTopicArguments, MessagesResult, READ, read_topic,
    ),
    Tool(
        "read_message", "Read a message", "One message by its id.",
        ReadMessageArguments, MessageItem, READ, read_message,
    ),
    Tool(
        "search", "Search messages", "Messages that contain the words, best match first.",
        SearchArguments, SearchHits, READ, search,
    ),
    Tool(
        "wait_events", "Wait for events",
        "Events after a cursor; waits up to wait_s for the first. Pass the cursor and epoch of the"
        " last call to miss none.",
        WaitEventsArguments, EventsResult, READ, wait_events,
    ),
    Tool(
        "post_message", "Post a message", "Post to a topic.",
        PostMessageArguments, MessageDone, POST, post_message, "adds",
    ),
    Tool(
        "create_topic", "Create a topic", "Create a topic in a channel (id or name).",
        CreateTopicArguments, TopicMade, POST, create_topic, "adds",
    ),
    Tool(
        "create_channel", "Create a channel", "Create a channel.",
        CreateChannelArguments, ChannelMade, POST, create_channel, "adds",
    ),
    Tool(
        "edit_message", "Edit a message", "Replace the text of a message.",
        EditMessageArguments, MessageDone, POST, edit_message, "replaces",
    ),
    Tool(
        "delete_message", "Delete a message", "Replace a message by a tombstone.",
        DeleteMessageArguments, MessageDone, POST, delete_message, "replaces", idempotent=True,
    ),
)  # fmt: skip


def tools(context: ToolContext) -> list[Tool]:
    return [
        msgspec.structs.replace(tool, call=partial(tool.call, context), by_channel=True)
        for tool in TOOLS
    ]
