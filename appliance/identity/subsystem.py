"""The identity as a subsystem."""

import msgspec

from appliance.host import Host
from appliance.identity.resources import routes
from appliance.identity.service import MemberIdentity, PublishKey
from appliance.identity.settings import IdentitySettings
from appliance.kernel.loop import Pruner
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Subsystem


class IdentityNeeds(msgspec.Struct, frozen=True):
    """The identity's needs. `publish_key` sends a new key to every broker; without it the key
    can't be rotated."""

    identity: MemberIdentity
    publish_key: PublishKey | None


class IdentitySubsystem(Subsystem):
    name = "identity"
    sections = {"identity": IdentitySettings}
    needed_stores = frozenset({"inbox"})  # the inbox sends a new key to brokers

    def __init__(self, host: Host, needs: IdentityNeeds) -> None:
        self._needs = needs
        prune = needs.identity.prune_archive
        self.loops = (Pruner("identity_pruner", 3600.0, prune, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self._needs.identity, self._needs.publish_key)
