"""Defines the hub's tools: one row each. Other subsystems offer tools by `tools()`.

A new tool is a row in TOOLS, the row's two structs in `wire.py`, and a short function.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from appliance.hub import wire
from appliance.hub.access import POST, READ
from appliance.hub.recipients import MessageCreated
from appliance.hub.service import Hub
from appliance.kernel.auth import Principal
from appliance.kernel.idempotency import Reply
from appliance.kernel.tool import Tool
from appliance.mcp.wire import (
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
    TopicMade,
    TopicsResult,
    WaitEventsArguments,
)
from appliance.web.health import READ_DOCTOR, Readiness

# -- calling ----------------------------------------------------------------------------------


class HubTools:
    """The hub, the readiness and the doctor for the tools."""

    def __init__(
        self, hub: Hub, readiness: Callable[[], Readiness], doctor: Callable[[str], Any]
    ) -> None:
        """Keep the three. `doctor` returns the report for the named checks; "": all checks."""
        self._hub = hub
        self._readiness = readiness
        self._doctor = doctor

    def list_channels(self, _arguments: NoArguments, who: Principal) -> ChannelsResult:
        page = self._hub.list_channels(wire.ChannelsQuery(), who)
        return msgspec.convert(page, ChannelsResult, from_attributes=True)

    def list_topics(self, arguments: ListTopicsArguments, who: Principal) -> TopicsResult:
        query = wire.TopicsQuery(arguments.limit, arguments.before_id)
        page = self._hub.list_topics(arguments.channel, query, who)
        return msgspec.convert(page, TopicsResult, from_attributes=True)

    def read_topic(self, arguments: ReadTopicArguments, who: Principal) -> MessagesResult:
        query = wire.MessagesQuery(
            topic_id=arguments.topic_id,
            limit=arguments.limit,
            before_id=arguments.before_id,
            after_id=arguments.after_id,
        )
        page = self._hub.page_messages(query, who)
        messages = [_short(message, arguments.max_chars) for message in page.messages]
        if arguments.after_id is None:
            messages.reverse()  # oldest first, as a conversation is read
        return MessagesResult(messages, page.has_more, page.cursor if page.has_more else None)

    def read_message(self, arguments: ReadMessageArguments, who: Principal) -> MessageItem:
        message = self._hub.get_message(arguments.message_id, who).message
        return _short(message, arguments.max_chars)

    def wait_events(self, arguments: WaitEventsArguments, who: Principal) -> EventsResult:
        head, epoch = self._hub.feed.head, self._hub.identity.epoch
        if arguments.epoch not in (None, epoch):
            raise wire.EpochChanged(details={"epoch": epoch, "replay_until": head})
        if arguments.after is None:
            arguments = msgspec.structs.replace(arguments, after=head)
        query = msgspec.convert(arguments, wire.EventsQuery, from_attributes=True)
        listed = msgspec.json.decode(self._hub.list_events(query, who), type=wire.EventList)
        events = [_event_item(row, arguments.max_chars) for row in listed.events]
        cursor = events[-1].id if listed.has_more else listed.replay_until
        return EventsResult(events, cursor, epoch)

    def search(self, arguments: SearchArguments, who: Principal) -> SearchHits:
        return msgspec.convert(self._hub.search(arguments, who), SearchHits, from_attributes=True)

    def status(self, _arguments: NoArguments, who: Principal) -> StatusResult:
        hub, readiness = self._hub, self._readiness()
        return StatusResult(
            ready=readiness.ready,
            version=hub.identity.version,
            db_id=hub.db_id,
            epoch=hub.identity.epoch,
            newest_event=hub.feed.head,
            you=who.name,
            scopes=sorted(who.scopes),
            failing=readiness.failing,
            senders=None if who.senders is None else sorted(who.senders),
        )

    def doctor(self, arguments: DoctorArguments, _who: Principal) -> DoctorResult:
        report = self._doctor(arguments.run)
        findings = [finding for outcome in report.checks for finding in outcome.findings]
        items = msgspec.convert(msgspec.to_builtins(findings), list[FindingItem])
        return DoctorResult(report.verdict, report.age_seconds, items)

    def create_channel(self, arguments: CreateChannelArguments, who: Principal) -> ChannelMade:
        command = wire.CreateChannel(arguments.name, arguments.description)
        reply = self._hub.create_channel(command, who, arguments.idempotency_key)
        made = msgspec.json.decode(reply.body, type=wire.ChannelCreated)
        return ChannelMade(made.channel.id, made.event_id)

    def create_topic(self, arguments: CreateTopicArguments, who: Principal) -> TopicMade:
        reply = self._hub.create_topic(arguments, who, arguments.idempotency_key)
        made = msgspec.json.decode(reply.body, type=wire.TopicChanged)
        return TopicMade(made.topic.id, made.event_id)

    def post_message(self, arguments: PostMessageArguments, who: Principal) -> MessageDone:
        command = msgspec.convert(arguments, wire.CreateMessage, from_attributes=True)
        reply = self._hub.create_message(command, who, arguments.idempotency_key)
        done = msgspec.json.decode(reply.body, type=MessageCreated)
        waiting = [f"{each.name}: {each.before} before it" for each in done.receipts]
        return MessageDone(
            done.message.id, done.message.version, done.event_id, waiting, done.unknown
        )

    def edit_message(self, arguments: EditMessageArguments, who: Principal) -> MessageDone:
        command = wire.EditMessage(arguments.content, arguments.expected_version)
        key = arguments.idempotency_key
        return _done(self._hub.patch_message(arguments.message_id, command, who, key))

    def delete_message(self, arguments: DeleteMessageArguments, who: Principal) -> MessageDone:
        command = wire.DeleteMessage(arguments.actor, arguments.expected_version)
        key = arguments.idempotency_key
        return _done(self._hub.patch_message(arguments.message_id, command, who, key))


def _done(reply: Reply) -> MessageDone:
    done = msgspec.json.decode(reply.body, type=wire.MessageChanged)
    return MessageDone(done.message.id, done.message.version, done.event_id)


def _short(message: wire.Message, max_chars: int) -> MessageItem:
    item = msgspec.convert(message, MessageItem, from_attributes=True)
    short = item.content_raw[:max_chars]
    return msgspec.structs.replace(item, content_raw=short, truncated=short != item.content_raw)


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
        "status", "Status", "Hub readiness, your identity and scopes, and the newest event.",
        NoArguments, StatusResult, READ, HubTools.status,
    ),
    Tool(
        "doctor", "Check for problems", "The appliance's problems, each with a remedy.",
        DoctorArguments, DoctorResult, READ_DOCTOR, HubTools.doctor,
    ),
    Tool(
        "list_channels", "List channels", "All channels, by name.",
        NoArguments, ChannelsResult, READ, HubTools.list_channels,
    ),
    Tool(
        "list_topics", "List topics", "A channel's topics (by id or name), newest activity first.",
        ListTopicsArguments, TopicsResult, READ, HubTools.list_topics,
    ),
    Tool(
        "read_topic", "Read a topic",
        "A topic's newest messages (by id or CHANNEL/TITLE), oldest first; before_id pages back,"
        " after_id forward.",
        ReadTopicArguments, MessagesResult, READ, HubTools.read_topic,
    ),
    Tool(
        "read_message", "Read a message", "One message by its id.",
        ReadMessageArguments, MessageItem, READ, HubTools.read_message,
    ),
    Tool(
        "search", "Search messages", "Messages that contain the words, best match first.",
        SearchArguments, SearchHits, READ, HubTools.search,
    ),
    Tool(
        "wait_events", "Wait for events",
        "Events after a cursor; waits up to wait_s for the first. Pass the cursor and epoch "
        "from the last call to miss none.",
        WaitEventsArguments, EventsResult, READ, HubTools.wait_events, bounded="wait",
    ),
    Tool(
        "post_message", "Post a message",
        "Post to a topic; `to` and @name in the text put it into inboxes.",
        PostMessageArguments, MessageDone, POST, HubTools.post_message, "adds",
    ),
    Tool(
        "create_topic", "Create a topic", "Create a topic in a channel (id or name).",
        CreateTopicArguments, TopicMade, POST, HubTools.create_topic, "adds",
    ),
    Tool(
        "create_channel", "Create a channel", "Create a channel.",
        CreateChannelArguments, ChannelMade, POST, HubTools.create_channel, "adds",
    ),
    Tool(
        "edit_message", "Edit a message", "Replace a message's text.",
        EditMessageArguments, MessageDone, POST, HubTools.edit_message, "replaces",
    ),
    Tool(
        "delete_message", "Delete a message", "Replace a message by a tombstone.",
        DeleteMessageArguments, MessageDone, POST, HubTools.delete_message, "replaces", True,
    ),
)  # fmt: skip


def tools(hub_tools: HubTools) -> list[Tool]:
    return [
        msgspec.structs.replace(tool, call=partial(tool.call, hub_tools), by_channel=True)
        for tool in TOOLS
    ]
