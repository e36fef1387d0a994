"""Remembers whether other agents are online, by the relay's last report.

Presences come with each heartbeat's contacts, and one stays fresh for two heartbeats. So a send
needs no request to the relay, unless the last one failed or the recipient was offline. A relay that
can't be read says nothing about the recipient. A relay that refuses does: the send fails.
"""

import msgspec
from msgspec import Struct

from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.sdk.network.outgoing import SendReport
from appliance.sdk.network.peers import CachedContact
from appliance.sdk.network.relay_client import RelayClient, is_final

LOOKUP_SECONDS = 2.0  # between two lookups: half the requests that a relay allows
TIMEOUT_SECONDS = 1.5  # for a lookup; without a reply the known endpoint is used
ABSENT = ("NOT_FOUND", None)  # a 404's codes if the agent is revoked or unknown


class AgentPresence(Struct, frozen=True, rename="camel"):
    """`online`: None if the relay, which shows the endpoint to contacts, can't be read.
    `refusal`: why the relay refuses for good to show the agent."""

    agent: str
    online: bool | None = None
    endpoint: str | None = None
    last_seen: str | None = None
    refusal: str | None = None

    @property
    def state(self) -> str:
        if self.refusal is not None:
            return "refused"
        return {True: "online", False: "offline", None: "unknown"}[self.online]

    def is_useless(self, report: SendReport) -> bool:
        """Return whether an attempt is useless, because the recipient was not seen since the last
        one."""
        if not report.was_tried_enough or self.online is None:
            return False
        return self.online is False or self.last_seen == report.attempts[-1].last_seen


class Presences:
    """The presences. `online`: agents that are online, each with when this knowledge ends."""

    def __init__(self, relay: RelayClient, clock: Clock, fresh_seconds: float) -> None:
        self._relay, self._clock, self._fresh_seconds = relay, clock, fresh_seconds
        self._next_lookup = float("-inf")
        self.online: dict[str, tuple[float, AgentPresence]] = {}
        self._refused: dict[str, AgentPresence] = {}

    def read(self, name: str) -> AgentPresence:
        """Read a presence from the relay, in one attempt. Unknown if the relay can't be read."""
        try:
            row = self._relay.attempt("GET", f"/presence/{name}", seconds=TIMEOUT_SECONDS)
            return self.note(name, msgspec.convert(row, AgentPresence))
        except ApplianceError as error:
            return self._note_failure(name, error)
        except msgspec.ValidationError:
            return AgentPresence(name)

    def known(self, name: str) -> AgentPresence:
        """Return a fresh presence, or look it up. Unknown if another lookup was a moment ago."""
        if self._relay.revoked:
            return AgentPresence(name, refusal=self._relay.revoked)
        now = self._clock.monotonic()
        until, presence = self.online.get(name, (now, AgentPresence(name)))
        if now < until or now < self._next_lookup:
            return presence if now < until else self._refused.get(name, AgentPresence(name))
        self._next_lookup = now + LOOKUP_SECONDS
        return self.read(name)

    def note(self, name: str, row: AgentPresence | CachedContact) -> AgentPresence:
        """Remember the relay's report."""
        presence = AgentPresence(name, row.online, row.endpoint, row.last_seen)
        self.online.pop(name, None)
        self._refused.pop(name, None)
        if presence.online:
            self.online[name] = self._clock.monotonic() + self._fresh_seconds, presence
        return presence

    def _note_failure(self, name: str, error: ApplianceError) -> AgentPresence:
        """Remember a final refusal, so that no cached endpoint is used; return the presence."""
        presence = AgentPresence(name)
        absent = error.details.get("status") == 404
        if is_final(error, *(ABSENT if absent else ())):
            presence = AgentPresence(name, refusal=error.message)
            self.online.pop(name, None)
            self._refused[name] = presence
        return presence
