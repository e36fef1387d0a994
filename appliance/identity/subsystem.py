"""The identity as a part of the appliance: loaded before whoever signs with it."""

from appliance.identity.resources import routes
from appliance.identity.service import Identity, Tell
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem


class ArchiveKeeper(Loop):
    """Forgets rotated-out keys when their grace time is over."""

    name = "identity_archive"
    interval_seconds = 3600.0

    def __init__(self, identity: Identity, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._identity = identity

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"forgotten": self._identity.tidy_archive()}


class IdentitySubsystem(Subsystem):
    name = "identity"
    needs = frozenset({"inbox"})  # brokers are told of a new key as the inbox asks them

    def __init__(self, identity: Identity, tell: Tell | None, clock: Clock, log: Log) -> None:
        """`tell` has every broker take a new key; without it the key can't be rotated."""
        self._identity = identity
        self._tell = tell
        self.loops = (ArchiveKeeper(identity, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._identity, self._tell)
