"""Delivers to the outbox destination `network:NAME`: from an own agent to another agent.

`network:OWN/NAME` also names the sender, for an appliance with several agents. A send expires after
one hour, and as many may wait for each recipient as `network.queue_max`.
"""

import hashlib
import uuid

from appliance.kernel.clock import Clock
from appliance.mailbox.service import Mailbox
from appliance.mesh.fingerprint import DestinationKind
from appliance.network.names import is_agent_name
from appliance.outbox.destination import NETWORK, BadDestination
from appliance.outbox.target import (
    Delivered,
    DeliveryTarget,
    Outgoing,
    Result,
    RetryLater,
    Undeliverable,
)
from appliance.sdk.network.folder import NoNetworkAgent
from appliance.sdk.network.outgoing import DELAYS_MS, EXPIRY_MS, WATCH_MS


class NetworkTarget(DeliveryTarget):
    name = NETWORK.rstrip(":")

    def __init__(self, mailbox: Mailbox, clock: Clock) -> None:
        self.waiting_max = mailbox.settings.queue_max
        self._mailbox = mailbox
        self._clock = clock

    def resolve(self, to: str) -> tuple[DestinationKind, str, str]:
        own, name = _names(to)
        if not is_agent_name(name) or not (own is None or is_agent_name(own)):
            raise BadDestination(
                "an agent's name has only lowercase letters, digits, '_' and '-'",
                details={"field": "to"}, hint="example: network:bert",
            )  # fmt: skip
        return "queue", to, to

    def deliver(self, send: Outgoing) -> Result:
        if self._clock.now_ms() - send.accepted_ms > EXPIRY_MS:
            return Undeliverable("the agent could not be reached within one hour", "EXPIRED")
        own, name = _names(send.destination_ref)
        message_id = _message_id(send)
        try:
            agent = self._mailbox.sender(own)
        except NoNetworkAgent as error:
            return RetryLater(error.message)
        attempt = agent.attempt(name, {**(send.meta or {}), "text": send.body}, message_id)
        agent.outgoing.note_attempt(message_id, name, attempt, send.accepted_ms)
        if attempt.problem is None:
            return Delivered(broker_message_id=message_id)
        if attempt.final:
            return Undeliverable(attempt.problem, str(attempt.http_status or "REFUSED"))
        delay_ms = dict(enumerate(DELAYS_MS, 1)).get(send.attempt, WATCH_MS)
        return RetryLater(attempt.problem, delay_ms / 1000)


def _names(to: str) -> tuple[str | None, str]:
    own, slash, name = to.removeprefix(NETWORK).rpartition("/")
    return (own if slash else None), name


def _message_id(send: Outgoing) -> str:
    """Return an id that stays the same for each attempt, so the recipient drops repetitions."""
    text = f"{send.destination_ref} {send.client_message_id}"
    return str(uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4))
