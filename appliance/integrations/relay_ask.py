"""Asks the relay's admins whether to approve an agent."""

import hashlib
from contextlib import suppress

import msgspec

from appliance.hub.access import POST, READ
from appliance.hub.ask import wire
from appliance.hub.ask.service import Asks
from appliance.kernel.auth import Principal
from appliance.kernel.clock import DAY_MS, Clock
from appliance.relay.loops import APPROVE, REVOKE

PRINCIPAL = Principal("appliance:relay", "appliance:relay", frozenset({POST, READ}))
ANSWER_SECONDS = 7 * 86_400  # then another question follows


class HubApprovalAsks:
    """Questions in the hub. An admin answers with a token that has the admin's name, or by mail."""

    def __init__(self, asks: Asks, clock: Clock) -> None:
        self._asks = asks
        self._clock = clock

    def ask(self, agent: str, admin: str, email: str, text: str) -> str:
        mail_to = [email] if email in self._asks.settings.mail_to else []
        command = wire.CreateAsk(
            f"Approve this agent at the relay?\n\n{text}", "relay", [APPROVE, REVOKE],
            None, ANSWER_SECONDS, [admin, *mail_to], [f"agent {agent}"], mail_to=mail_to,
        )  # fmt: skip
        day = self._clock.now_ms() // DAY_MS
        key = hashlib.sha256(f"{day}\n{admin}\n{text}".encode()).hexdigest()
        reply = self._asks.create(command, PRINCIPAL, key)
        return msgspec.json.decode(reply.body, type=wire.AskShown).ask.id

    def answer(self, ask_id: str) -> str | None:
        try:
            ask = self._asks.show(ask_id, 0.0, PRINCIPAL).ask
        except wire.NoSuchAsk:  # the hub was restored
            return ""
        return None if ask.state == "waiting" else ask.answer or ""

    def cancel(self, ask_id: str) -> None:
        with suppress(wire.NoSuchAsk, wire.AskSettled):
            self._asks.cancel(ask_id, wire.CancelAsk("relay"), PRINCIPAL)
