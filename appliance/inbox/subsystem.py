"""The inbox as a subsystem."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from appliance.host import Host
from appliance.inbox import metrics, wire
from appliance.inbox.broker_connection import STATES, BrokerConnection
from appliance.inbox.http_broker_client import HttpBrokerClient
from appliance.inbox.loops import InboxPruner
from appliance.inbox.resources import About, routes
from appliance.inbox.service import STORE, BrokerClient, Inbox, MeshOutbox
from appliance.inbox.settings import InboxSettings
from appliance.inbox.tools import tools
from appliance.kernel.auth import TokenBook
from appliance.kernel.errors import ApplianceError
from appliance.kernel.loop import Loop
from appliance.kernel.route import Route
from appliance.kernel.subsystem import Role, Subsystem
from appliance.kernel.tool import Tool
from appliance.mesh.broker_endpoint import BrokerEndpoint
from appliance.mesh.instance import instance_here
from appliance.mesh.signing import MemberKeys, RotationOutcome, Signer, rotation_text


class InboxNeeds(msgspec.Struct, frozen=True):
    """The inbox's needs. The inbox is open before both subsystems are built, because inbox and
    outbox read each other's state. `outbox`: None if disabled."""

    inbox: Inbox
    book: TokenBook
    outbox: MeshOutbox | None


def open_inbox(host: Host, keys: MemberKeys, brokers: Mapping[str, BrokerEndpoint]) -> Inbox:
    settings = host.section(InboxSettings)
    return Inbox(host.open_store, settings, host.clock, host.log, keys, brokers)


class InboxSubsystem(Subsystem):
    name = "inbox"
    role = Role("messages received from meshes")
    sections = {"inbox": InboxSettings}
    needed_stores = frozenset({STORE})
    scopes = wire.SCOPES

    def __init__(self, host: Host, needs: InboxNeeds) -> None:
        inbox = needs.inbox
        self.inbox = inbox
        self.stores = (inbox.store,)
        here = instance_here(host.datadir.workspace)
        self.loops: list[Loop] = [InboxPruner(inbox, host.log)]
        for mesh, endpoint in inbox.brokers.items():
            signer = inbox.keys.in_mesh(mesh)
            inbox.broker_clients[mesh] = HttpBrokerClient(endpoint, signer, host.clock)
            self.loops.append(BrokerConnection(endpoint, inbox, needs.outbox, here, host.log))
        self._routes = routes(inbox, needs.book, About(inbox, needs.outbox))
        for state in STATES:
            metrics.links.labels(state).set_function(partial(self._count, state))

    def routes(self) -> list[Route]:
        return self._routes

    def tools(self) -> Sequence[Tool]:
        return tools(self.inbox)

    def offer_new_key(self, new: Signer) -> dict[str, RotationOutcome]:
        """Request every broker to replace our key, and return the outcome by mesh."""
        return {
            mesh: self._offer_new_key(mesh, broker_client, new)
            for mesh, broker_client in self.inbox.broker_clients.items()
        }

    def _offer_new_key(
        self, mesh: str, broker_client: BrokerClient, new: Signer
    ) -> RotationOutcome:
        text = rotation_text(mesh, self.inbox.keys.in_mesh(mesh).public_hex, new.public_hex)
        try:
            broker_client.rotate(new.public_hex, new.sign(text).hex())
        except ApplianceError as error:
            # If the reply to this or to an earlier request was lost, the broker has the new key.
            if not broker_client.accepts_key(new):
                return "unknown" if isinstance(error, wire.BrokerNotReached) else "refused"
        return "taken"

    def drain(self) -> None:
        self.inbox.feed.close()

    def _count(self, state: str) -> int:
        return sum(self.inbox.links[mesh].state == state for mesh in self.inbox.brokers)
