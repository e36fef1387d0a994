"""Offers the inbox as tools for agents."""

from collections.abc import Sequence

from appliance.inbox import wire
from appliance.inbox.service import Inbox
from appliance.kernel.tool import Tool


def tools(inbox: Inbox) -> Sequence[Tool]:
    return [
        Tool(
            "inbox_list", "Received messages",
            "Mesh messages after `since` (`next` from the last call); waits up to `wait`"
            " seconds (50) for the first.",
            wire.InboxQuery, None, wire.READ, inbox.page, by_channel=True,
        ),
        Tool(
            "inbox_topics", "Topics in a mesh", "Topics, and whether this appliance subscribes.",
            wire.MeshListQuery, None, wire.READ, inbox.topics, by_channel=True,
        ),
        Tool(
            "inbox_subscribe", "Subscribe to a topic", "Receive a topic's messages.",
            wire.TopicChange, None, wire.WRITE, inbox.subscribe, "adds", idempotent=True,
            by_channel=True,
        ),
    ]  # fmt: skip
