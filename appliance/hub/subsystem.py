"""The hub's subsystem."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from appliance.host import Host
from appliance.hub import wire
from appliance.hub.loops import Indexer, catch_up, prune_keys
from appliance.hub.requests import Requests
from appliance.hub.resources import health_route, routes
from appliance.hub.service import Hub, health_of
from appliance.hub.settings import HubSettings
from appliance.hub.stream import HubSession
from appliance.kernel import event_ids
from appliance.kernel.auth import Principal, TokenBook
from appliance.kernel.feed import Feed
from appliance.kernel.loop import Pruner
from appliance.kernel.process_identity import ProcessIdentity
from appliance.kernel.route import Route, SocketRoute
from appliance.kernel.subsystem import Role, Subsystem
from appliance.web.socket import REQUEST_BYTES_MAX, Socket

STORE = "hub"


class HubNeeds(msgspec.Struct, frozen=True):
    identity: ProcessIdentity
    book: TokenBook


class HubSubsystem(Subsystem):
    name = "hub"
    role = Role("channels, topics, messages, events and search")
    sections = {"hub": HubSettings}
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: HubNeeds) -> None:
        settings, clock, log = host.section(HubSettings), host.clock, host.log
        identity = needs.identity
        self.feed = Feed()
        self.store = host.open_store(
            STORE, publish=self.feed.publish, restarted=self._publish_missed, catch_up=catch_up()
        )
        self.stores = (self.store,)
        self.hub = Hub(self.store, self.feed, settings, clock, identity, needs.book)
        if not self.store.settings.read_only:
            event_ids.begin(host.datadir.dir, identity.epoch, self.feed.head)
        self.hub.steady.open()  # the first write, whose process opens the note of event ids
        self.loops = (
            Indexer(self.store, self.feed, clock, log),
            Pruner("hub_key_pruner", 30.0, partial(prune_keys, self.store), clock, log),
        )

    def routes(self) -> list[Route]:
        return routes(self.hub)

    def sockets(self) -> list[SocketRoute]:
        return [
            SocketRoute(
                "/ws", wire.READ, self._serve, token_in_query=True,
                frame_bytes_max=REQUEST_BYTES_MAX, charges_writes=True,
            )
        ]  # fmt: skip

    def drain(self) -> None:
        self.feed.close()

    def _publish_missed(self) -> None:
        """Publish committed but unpublished events from the log after a writer restart."""
        self.feed.jump(self.hub.newest_event())
        self.hub.pauses.load()

    def _serve(
        self, socket: Socket, who: Principal, charge: Callable[[int], None], _query: Any
    ) -> int:
        requests = Requests(self.hub, charge)
        return HubSession(socket, self.hub, who, requests).run()


class HealthSubsystem(Subsystem):
    """Serves `/health` for the process alone while the hub is switched off."""

    name = "health"

    def __init__(self, host: Host, needs: HubNeeds) -> None:
        self._health = partial(health_of, needs.identity, host.clock)

    def routes(self) -> list[Route]:
        return [health_route(self._health)]
