"""Adds work over A2A to the appliance."""

from collections.abc import Callable

import msgspec

from appliance import __version__
from appliance.host import Host
from appliance.hub.a2a.cards import Cards
from appliance.hub.a2a.resources import routes
from appliance.hub.a2a.service import Tasks
from appliance.hub.a2a.settings import A2aSettings
from appliance.hub.ask.service import Asks
from appliance.hub.incoming.service import EnvelopeSink
from appliance.hub.service import Hub
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.mesh.signing import Signer


class A2aNeeds(msgspec.Struct, frozen=True):
    """`own_url`: this process's address. `signer`: the member key. `asks`, `stream`:
    None while their roles are off."""

    hub: Hub
    own_url: Callable[[], str]
    signer: Signer | None = None
    asks: Asks | None = None
    stream: EnvelopeSink | None = None


class A2aSubsystem(Subsystem):
    """Tasks are stored in the hub's store, as topics and entries."""

    name = "a2a"
    role = Role("work from agents elsewhere, over A2A", ("hub", "entries"))
    sections = {"a2a": A2aSettings}
    needed_stores = frozenset({"hub"})

    def __init__(self, host: Host, needs: A2aNeeds) -> None:
        settings = host.section(A2aSettings)
        self._tasks = Tasks(needs.hub, host.clock, settings, needs.asks, needs.stream)
        own_url = needs.own_url
        self._cards = Cards(lambda: settings.url or own_url(), __version__, needs.signer)

    def routes(self) -> list[Route]:
        return routes(self._tasks, self._cards)
