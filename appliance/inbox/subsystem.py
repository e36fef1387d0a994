"""The inbox as a subsystem of the appliance."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from appliance.host import Host
from appliance.inbox import metrics, queries, wire
from appliance.inbox.broker_connection import STATES, BrokerConnection
from appliance.inbox.events import InboxEvents
from appliance.inbox.http_broker_client import HttpBrokerClient
from appliance.inbox.loops import Sweeper
from appliance.inbox.resources import About, routes
from appliance.inbox.service import BrokerClient, Inbox, OutboxStatus
from appliance.inbox.settings import BrokerEndpoint, InboxSettings
from appliance.inbox.tools import tools
from appliance.kernel.auth import TokenBook
from appliance.kernel.config import BadSettings
from appliance.kernel.errors import ApplianceError
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool
from appliance.mesh.instance import instance_here
from appliance.mesh.signing import MemberKeys, RotationOutcome, Signer

STORE = "inbox"


class OpenInbox:
    """The inbox and its store. The outbox asks it for revoked keys, and the inbox asks the outbox
    for its state: so it is open before both subsystems are built."""

    inbox: Inbox

    def __init__(self, host: Host, keys: MemberKeys, brokers: Mapping[str, BrokerEndpoint]) -> None:
        self.keys = keys
        self.brokers = brokers
        events = InboxEvents(host.log)
        self.store = host.open_store(
            STORE, publish=events.publish, restarted=lambda: self.inbox.find_unpublished()
        )
        self.store.seed_ids(self.store.read(queries.last_id))
        self.inbox = Inbox(
            self.store, events, host.section(InboxSettings), host.clock, host.log,
            keys, brokers,
        )  # fmt: skip


class InboxNeeds(msgspec.Struct, frozen=True):
    opened: OpenInbox
    book: TokenBook
    outbox_status: OutboxStatus


class InboxSubsystem(Subsystem):
    name = "inbox"
    role = Role("messages received from meshes")
    sections = {"inbox": InboxSettings}
    paths = (
        "/v1/compat", "/v1/events", "/v1/health", "/v1/heartbeat", "/v1/inbox", "/v1/peers",
        "/v1/profile", "/v1/topic/list", "/v1/topic/subscribe", "/v1/topic/unsubscribe",
        "/v1/version",
    )  # fmt: skip
    needed_stores = frozenset({STORE})
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: InboxNeeds) -> None:
        inbox, keys, brokers = needs.opened.inbox, needs.opened.keys, needs.opened.brokers
        settings, outbox_status, clock = inbox.settings, needs.outbox_status, host.clock
        self.inbox = inbox
        self.store = needs.opened.store
        self.stores = (self.store,)
        here = instance_here(host.datadir.workspace)
        self.connections: dict[str, BrokerConnection] = {}
        for mesh, endpoint in brokers.items():
            signer = keys.in_mesh(mesh)
            connection = BrokerConnection(
                endpoint, inbox, signer, outbox_status, here, clock, host.log
            )
            self.connections[mesh] = connection
            inbox.broker_clients[mesh] = HttpBrokerClient(endpoint, signer, clock, connection.send)
        self.loops: list[Loop] = [
            Sweeper(self.store, settings, clock, host.log),
            *self.connections.values(),
        ]
        self.local: dict[str, wire.LinkState] = {}
        self._book = needs.book
        self._about = About(inbox, self.links, self._broker_version, outbox_status)
        for state in STATES:
            metrics.links.labels(state).set_function(partial(self._count, state))

    def routes(self) -> list[Route]:
        return routes(self.inbox, self._book, self._about)

    def tools(self) -> Sequence[Tool]:
        return tools(self.inbox)

    def links(self) -> list[wire.LinkState]:
        """The connections of all meshes: to brokers elsewhere and in this process."""
        own = [connection.to_wire() for connection in self.connections.values()]
        return [*own, *self.local.values()]

    def offer_new_key(self, new: Signer) -> dict[str, RotationOutcome]:
        """Ask every broker to replace our key; the outcome by mesh."""
        return {
            mesh: _rotation_outcome(broker_client, new)
            for mesh, broker_client in self.inbox.broker_clients.items()
        }

    def drain(self) -> None:
        self.inbox.feed.close()

    def _broker_version(self, mesh: str) -> str | None:
        connection = self.connections.get(mesh)
        return None if connection is None else connection.broker_version

    def _count(self, state: str) -> int:
        return sum(connection.state == state for connection in self.connections.values())


def brokers_of(
    settings: InboxSettings, outbox_brokers: Sequence[BrokerEndpoint]
) -> dict[str, BrokerEndpoint]:
    """The broker of each mesh. Raises BadSettings if a mesh has two different ones."""
    brokers: dict[str, BrokerEndpoint] = {}
    for endpoint in (*outbox_brokers, *settings.brokers):
        if endpoint.mesh == wire.NETWORK:
            raise BadSettings("settings: inbox.brokers: the mesh 'network' is reserved")
        other = brokers.setdefault(endpoint.mesh, endpoint)
        if other != endpoint:
            raise BadSettings(
                f"settings: inbox.brokers: mesh {endpoint.mesh} has two different brokers"
            )
    return brokers


def _rotation_outcome(broker_client: BrokerClient, new: Signer) -> RotationOutcome:
    try:
        broker_client.rotate(new)
    except ApplianceError as error:
        # If the reply to this or to an earlier request was lost, the broker has the new key.
        if not broker_client.accepts_key(new):
            return "unknown" if isinstance(error, wire.BrokerNotReached) else "refused"
    return "taken"
