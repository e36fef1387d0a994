"""Tools for agents: catch up, read and write handoff notes."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from appliance.hub.access import POST, READ
from appliance.hub.catchup import wire
from appliance.hub.catchup.service import CatchUps
from appliance.hub.wire import EventId, TopicReference
from appliance.kernel.auth import Principal
from appliance.kernel.tool import Tool

_changed = msgspec.json.Decoder(wire.TopicStateChanged).decode


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: wire.Name | None = None


class CatchUpArguments(ToolCall, frozen=True, kw_only=True):
    since: wire.Since = 0
    tokens: wire.Tokens = 2000


class ReadHandoffArguments(Struct, frozen=True, forbid_unknown_fields=True):
    topic_id: TopicReference


class WriteHandoffArguments(ToolCall, frozen=True, kw_only=True):
    topic_id: TopicReference
    note: wire.Note
    expected_version: Annotated[int, Meta(ge=0, description="as you read it; 0: none yet")] = 0
    up_to_event: EventId | None = None


def tools(catch_ups: CatchUps) -> Sequence[Tool]:
    def catch_up(arguments: CatchUpArguments, who: Principal) -> wire.CatchUpText:
        query = wire.CatchUpQuery(arguments.name, arguments.since, arguments.tokens)
        made = catch_ups.catch_up(query, who)
        return wire.CatchUpText(made.text, made.next)

    def read_handoff(arguments: ReadHandoffArguments, who: Principal) -> wire.TopicStateShown:
        return catch_ups.topic_state(arguments.topic_id, who)

    def write_handoff(arguments: WriteHandoffArguments, who: Principal) -> wire.TopicStateChanged:
        command = msgspec.convert(arguments, wire.WriteHandoff, from_attributes=True)
        return _changed(catch_ups.write_handoff(arguments.topic_id, command, who).body)

    return [
        Tool(
            "catch_up", "Catch up",
            "Questions, claims, entries and topics for you, most urgent first, within tokens."
            " Pass `next` as since the next time.",
            CatchUpArguments, wire.CatchUpText, READ, catch_up, by_channel=True,
        ),
        Tool(
            "read_handoff", "Read a handoff note",
            "A topic's handoff note, and whether the topic is resolved. Read this before messages.",
            ReadHandoffArguments, wire.TopicStateShown, READ, read_handoff, by_channel=True,
        ),
        Tool(
            "write_handoff", "Write a handoff note",
            "Replace a topic's note for those who join later: state, decisions, what is open.",
            WriteHandoffArguments, wire.TopicStateChanged, POST, write_handoff, "replaces",
            by_channel=True,
        ),
    ]  # fmt: skip
