"""The identity subsystem."""

from appliance.identity.resources import routes
from appliance.identity.service import MemberIdentity, PublishKey
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem


class ArchivePruner(Loop):
    """Removes rotated-out keys at the end of their grace period."""

    name = "identity_archive"
    interval_seconds = 3600.0

    def __init__(self, identity: MemberIdentity, clock: Clock, log: Log) -> None:
        super().__init__(clock, log)
        self._identity = identity

    def run_once(self, now_ms: int) -> dict[str, int]:
        return {"forgotten": self._identity.prune_archive()}


class IdentitySubsystem(Subsystem):
    name = "identity"
    paths = ("/v1/identity",)
    needs = frozenset({"inbox"})  # the inbox sends a new key to brokers

    def __init__(
        self, identity: MemberIdentity, publish_key: PublishKey | None, clock: Clock, log: Log
    ) -> None:
        """`publish_key` sends a new key to every broker; without it the key can't be rotated."""
        self._identity = identity
        self._publish_key = publish_key
        self.loops = (ArchivePruner(identity, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._identity, self._publish_key)
