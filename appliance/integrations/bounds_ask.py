"""Asks people whether a topic that agents filled may go on."""

from contextlib import suppress

import msgspec

from appliance.hub.access import POST, READ
from appliance.hub.ask import wire
from appliance.hub.ask.service import Asks
from appliance.hub.bounds.service import CONTINUE, KEEP
from appliance.kernel.auth import Principal
from appliance.kernel.pauses import StoredPause

SENDER = "bounds"
PRINCIPAL = Principal("appliance:bounds", "appliance:bounds", frozenset({POST, READ}))


class HubTopicAsks:
    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    def ask(self, pause: StoredPause) -> str:
        topic = pause.topic or pause.subject
        text = f"The topic {topic} is paused: {pause.reason}. Continue?"
        command = wire.CreateAsk(text, SENDER, [CONTINUE, KEEP], blocks=[f"topic {topic}"[:200]])
        reply = self._asks.create(command, PRINCIPAL, f"pause-{pause.id}")
        return msgspec.json.decode(reply.body, type=wire.AskShown).ask.id

    def answer(self, ask_id: str) -> str | None:
        try:
            ask = self._asks.show(ask_id, 0.0, PRINCIPAL).ask
        except wire.NoSuchAsk:  # the hub was recovered
            return ""
        return None if ask.state == "waiting" else ask.answer or ""

    def cancel(self, ask_id: str) -> None:
        with suppress(wire.NoSuchAsk, wire.AskSettled):
            self._asks.cancel(ask_id, wire.CancelAsk(SENDER), PRINCIPAL)
