"""Adds inboxes to the appliance."""

from collections.abc import Sequence

import msgspec

from appliance.host import Host
from appliance.hub.entries.loops import EntryDeadlines
from appliance.hub.entries.resources import routes
from appliance.hub.entries.service import Entries
from appliance.hub.entries.tools import tools
from appliance.hub.service import Hub
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool


class EntriesNeeds(msgspec.Struct, frozen=True):
    hub: Hub


class EntriesSubsystem(Subsystem):
    """Entries are stored in the hub's store."""

    name = "entries"
    role = Role("inboxes of senders: addressed messages and receipts", ("hub",))
    needed_stores = frozenset({"hub"})

    def __init__(self, host: Host, needs: EntriesNeeds) -> None:
        self.entries = Entries(needs.hub, host.clock)
        self.loops: tuple[Loop, ...] = (EntryDeadlines(self.entries, host.clock, host.log),)

    def routes(self) -> list[Route]:
        return routes(self.entries)

    def tools(self) -> Sequence[Tool]:
        return tools(self.entries)
