"""Asks the relay's admins whether to approve an agent."""

import hashlib

from appliance.hub.ask import wire
from appliance.hub.ask.own_asks import OwnAsks
from appliance.hub.ask.service import Asks
from appliance.kernel.clock import DAY_MS, Clock
from appliance.relay.loops import APPROVE, REVOKE

ANSWER_SECONDS = 7 * 86_400  # then another question follows


class HubApprovalAsks(OwnAsks):
    """Questions in the hub. An admin answers with a token that has the admin's name, or by mail."""

    sender = "relay"

    def __init__(self, asks: Asks, clock: Clock) -> None:
        super().__init__(asks)
        self._clock = clock

    def ask(self, agent: str, admin: str, email: str, text: str) -> str:
        mail_to = [email] if email in self._asks.settings.mail_to else []
        command = wire.CreateAsk(
            f"Approve this agent at the relay?\n\n{text}", self.sender, [APPROVE, REVOKE],
            None, ANSWER_SECONDS, [admin, *mail_to], [f"agent {agent}"], mail_to=mail_to,
        )  # fmt: skip
        day = self._clock.now_ms() // DAY_MS
        key = hashlib.sha256(f"{day}\n{admin}\n{text}".encode()).hexdigest()
        return self._create(command, key).id
