"""The worker bus as a subsystem."""

from collections.abc import Callable, Sequence

import msgspec

from appliance.bus import wire
from appliance.bus.loops import BusExporter, BusMeter, BusPruner, BusWatcher
from appliance.bus.resources import routes
from appliance.bus.service import Bus, BusFeed
from appliance.bus.settings import BusSettings
from appliance.bus.tools import tools
from appliance.busfile.file import BusPaths
from appliance.host import Host
from appliance.kernel.auth import TokenBook
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool

STORE = "bus"


class BusNeeds(msgspec.Struct, frozen=True):
    """The bus's needs. `segments`: the last message in the segments; None if the appliance
    writes none. `count_claim`: called with the agent after each claim."""

    book: TokenBook
    segments: Callable[[], int | None]
    count_claim: Callable[[str], None] | None = None


class BusSubsystem(Subsystem):
    name = "bus"
    role = Role("the worker bus in .worker-state, over HTTP and for tools")
    sections = {"bus": BusSettings}
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: BusNeeds) -> None:
        settings, paths = host.section(BusSettings), BusPaths(host.datadir.workspace)
        feed = BusFeed()
        # Group commit needs no second reader, and one connection sees all others' commits.
        store = host.open_store(STORE, publish=feed.publish)
        self.stores = (store,)
        self.bus = Bus(store, feed, paths, host.clock, needs.count_claim)
        self._book = needs.book
        loops: list[Loop] = [
            BusWatcher(self.bus, store, host.clock, host.log),
            BusMeter(store, host.clock, host.log),
            BusPruner(paths, settings, needs.segments, host.clock, host.log),
        ]
        if settings.export:
            loops.append(BusExporter(paths, store, host.clock, host.log))
        self.loops = loops

    def routes(self) -> list[Route]:
        return routes(self.bus, self._book)

    def tools(self) -> Sequence[Tool]:
        return tools(self.bus)

    def drain(self) -> None:
        self.bus.close()
