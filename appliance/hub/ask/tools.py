"""The tool for agents: ask a person, and come back for the answer."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from appliance.hub.access import POST
from appliance.hub.ask import wire
from appliance.hub.ask.service import Asks
from appliance.hub.wire import Id, Key, Sender, TopicReference
from appliance.kernel.auth import Principal
from appliance.kernel.errors import Invalid
from appliance.kernel.tool import Tool

_created = msgspec.json.Decoder(wire.AskShown).decode


class AskPersonArguments(Struct, frozen=True, forbid_unknown_fields=True):
    text: wire.AskText | None = None
    sender: Annotated[Sender, Meta(description="your name")] | None = None
    choices: Annotated[list[wire.Choice], Meta(max_length=wire.CHOICES_MAX)] = []
    default: Annotated[wire.Answer, Meta(description="the answer at the deadline")] | None = None
    deadline_seconds: wire.Seconds | None = None
    blocks: Annotated[list[wire.Blocked], Meta(max_length=20)] = []
    topic_id: TopicReference | None = None
    ask_id: Annotated[Id, Meta(description="instead of text: keep waiting for it")] | None = None
    wait_s: Annotated[float, Meta(ge=0, le=wire.WAIT_SECONDS_MAX)] = 20.0
    idempotency_key: Key | None = None


class AskPersonResult(Struct, frozen=True, omit_defaults=True):
    ask_id: str
    state: wire.State
    answer: str | None = None
    answered_by: str | None = None


def tools(asks: Asks) -> Sequence[Tool]:
    def ask_person(arguments: AskPersonArguments, who: Principal) -> AskPersonResult:
        ask_id = arguments.ask_id or _create(asks, arguments, who)
        ask = asks.show(ask_id, arguments.wait_s, who, POST).ask
        return AskPersonResult(ask.id, ask.state, ask.answer, ask.answered_by)

    return [
        Tool(
            "ask_person", "Ask a person",
            "Ask a person and wait up to wait_s for the answer. While the state is waiting, call"
            " again with ask_id, now or later.",
            AskPersonArguments, AskPersonResult, POST, ask_person, "adds", by_channel=True,
        ),
    ]  # fmt: skip


def _create(asks: Asks, arguments: AskPersonArguments, who: Principal) -> str:
    if arguments.text is None or arguments.sender is None:
        raise Invalid(
            "text and sender are required, or ask_id",
            details={"field": "text"},
            hint="pass text and sender to ask, or ask_id to go on waiting",
        )
    command = wire.CreateAsk(
        arguments.text, arguments.sender, arguments.choices, arguments.default,
        arguments.deadline_seconds, [], arguments.blocks, arguments.topic_id,
    )  # fmt: skip
    return _created(asks.create(command, who, arguments.idempotency_key).body).ask.id
