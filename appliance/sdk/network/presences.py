"""Remembers whether other agents are online, by the relay's last report.

Presences come with each heartbeat's contacts, and one stays fresh for two heartbeats. So a send
needs no request to the relay, unless the last one failed or the recipient was offline.
"""

import msgspec
from msgspec import Struct

from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.sdk.network.peers import CachedContact
from appliance.sdk.network.relay_client import RelayClient

LOOKUP_SECONDS = 2.0  # between two lookups: half the requests that a relay allows
TIMEOUT_SECONDS = 1.5  # for a lookup; without a reply the known endpoint is used


class AgentPresence(Struct, frozen=True, rename="camel"):
    """`online`: None if the relay, which shows the endpoint to contacts, can't be read."""

    agent: str
    online: bool | None = None
    endpoint: str | None = None
    last_seen: str | None = None

    @property
    def state(self) -> str:
        return {True: "online", False: "offline", None: "unknown"}[self.online]


class Presences:
    """The presences. `online`: agents that are online, each with when this knowledge ends."""

    def __init__(self, relay: RelayClient, clock: Clock, fresh_seconds: float) -> None:
        self._relay, self._clock, self._fresh_seconds = relay, clock, fresh_seconds
        self._next_lookup = float("-inf")
        self.online: dict[str, tuple[float, AgentPresence]] = {}

    def read(self, name: str) -> AgentPresence:
        """Read a presence from the relay, in one attempt. Unknown if this fails."""
        try:
            row = self._relay.attempt("GET", f"/presence/{name}", seconds=TIMEOUT_SECONDS)
            return self.note(name, msgspec.convert(row, AgentPresence))
        except (ApplianceError, msgspec.ValidationError):
            return AgentPresence(name)

    def known(self, name: str) -> AgentPresence:
        """Return a fresh presence, or look it up. Unknown if another lookup was a moment ago."""
        now = self._clock.monotonic()
        until, presence = self.online.get(name, (now, AgentPresence(name)))
        if now < until or now < self._next_lookup:
            return presence if now < until else AgentPresence(name)
        self._next_lookup = now + LOOKUP_SECONDS
        return self.read(name)

    def note(self, name: str, row: AgentPresence | CachedContact) -> AgentPresence:
        """Remember the relay's report."""
        presence = AgentPresence(name, row.online, row.endpoint, row.last_seen)
        self.online.pop(name, None)
        if presence.online:
            self.online[name] = self._clock.monotonic() + self._fresh_seconds, presence
        return presence
