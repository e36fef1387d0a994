"""The identity subsystem."""

from appliance.identity.resources import routes
from appliance.identity.service import MemberIdentity, PublishKey
from appliance.kernel.clock import Clock
from appliance.kernel.log import Log
from appliance.kernel.loop import Pruner
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem


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
        self.loops = (Pruner("identity_archive", 3600.0, identity.prune_archive, clock, log),)

    def routes(self) -> list[Route]:
        return routes(self._identity, self._publish_key)
