"""Asks people whether other agents may become contacts."""

from contextlib import suppress

import msgspec

from appliance.hub.access import POST, READ
from appliance.hub.ask import wire
from appliance.hub.ask.service import Asks
from appliance.kernel.auth import Principal
from appliance.mailbox.contact_asks import ContactQuestion

SENDER = "network"
PRINCIPAL = Principal("appliance:network", "appliance:network", frozenset({POST, READ}))


class HubContactAsks:
    def __init__(self, asks: Asks) -> None:
        self._asks = asks

    def follow(self, question: ContactQuestion) -> str | None:
        ask = self._find_or_create(question)
        return None if ask.state == "waiting" else ask.answer or ""

    def cancel(self, question: ContactQuestion) -> None:
        with suppress(wire.AskSettled):
            ask = self._find_or_create(question)
            self._asks.cancel(ask.id, wire.CancelAsk(SENDER), PRINCIPAL)

    def _find_or_create(self, question: ContactQuestion) -> wire.Ask:
        command = wire.CreateAsk(
            question.text, SENDER, list(question.choices), None, question.seconds,
            blocks=[f"agent {question.agent}"],
        )  # fmt: skip
        reply = self._asks.create(command, PRINCIPAL, question.key)
        return msgspec.json.decode(reply.body, type=wire.AskShown).ask
