"""Adds files that agents put to the appliance."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from appliance.busfile.blobs import discard_partial
from appliance.busfile.file import BusPaths
from appliance.host import Host
from appliance.hub.blobs.collector import Collector
from appliance.hub.blobs.resources import routes
from appliance.hub.blobs.service import Blobs
from appliance.hub.blobs.settings import BlobSettings
from appliance.hub.blobs.tools import tools
from appliance.hub.service import Hub
from appliance.kernel.loop import Pruner
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool

COLLECT_SECONDS = 60.0


class BlobNeeds(msgspec.Struct, frozen=True):
    """`is_backed_up`: whether a backup reads the workspace's files now."""

    hub: Hub
    is_backed_up: Callable[[], bool]


class BlobSubsystem(Subsystem):
    """Rows are in the hub's store, content in the worker bus's folder."""

    name = "blobs"
    role = Role("files that agents put and name in texts", ("hub",))
    sections = {"blobs": BlobSettings}
    needed_stores = frozenset({"hub"})

    def __init__(self, host: Host, needs: BlobNeeds) -> None:
        settings = host.section(BlobSettings)
        self._blobs = Blobs(needs.hub, host.datadir, settings, needs.is_backed_up)
        collect = Collector(self._blobs, host.datadir, settings, host.clock).run
        self.loops = (Pruner("blob_collector", COLLECT_SECONDS, collect, host.clock, host.log),)
        if not self._blobs.store.settings.read_only:
            with suppress(OSError):
                discard_partial(BusPaths(host.datadir.workspace).blobs)

    def routes(self) -> list[Route]:
        return routes(self._blobs)

    def tools(self) -> Sequence[Tool]:
        return tools(self._blobs)
