"""Adds incoming webhooks to the appliance."""

import msgspec

from appliance.host import Host
from appliance.hub.incoming.resources import routes
from appliance.hub.incoming.service import EnvelopeSink, IncomingWebhooks
from appliance.hub.service import Hub
from appliance.kernel.loop import Pruner
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem

PRUNE_SECONDS = 60.0


class IncomingNeeds(msgspec.Struct, frozen=True):
    """`stream`: None while the courier is off."""

    hub: Hub
    stream: EnvelopeSink | None = None


class IncomingSubsystem(Subsystem):
    """Endpoints and delivery ids are stored in the hub's store."""

    name = "incoming"
    role = Role("signed webhooks from other services", ("hub",))
    needed_stores = frozenset({"hub"})

    def __init__(self, host: Host, needs: IncomingNeeds) -> None:
        self._incoming = IncomingWebhooks(needs.hub, host.clock, needs.stream)
        self.loops = (
            Pruner("incoming_pruner", PRUNE_SECONDS, self._incoming.prune, host.clock, host.log),
        )

    def routes(self) -> list[Route]:
        return routes(self._incoming)
