"""Connects the inbox to the broker in the same appliance."""

from functools import partial

import msgspec

from appliance.broker import wire as broker_wire
from appliance.broker.local_connection import LocalConnection
from appliance.broker.service import Broker
from appliance.broker.subsystem import BrokerSubsystem
from appliance.inbox import wire as inbox_wire
from appliance.inbox.service import Inbox
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.mesh.signing import Signer


class LocalBrokerClient:
    """The BrokerClient for meshes whose broker is this appliance."""

    def __init__(self, broker: BrokerSubsystem, mesh: str, signer: Signer) -> None:
        self._broker = broker.broker
        self._registry = broker.registry
        self._mesh = mesh
        self._signer = signer

    def subscribe(self, topic: str, wanted: bool) -> bool:
        change = self._registry.subscribe if wanted else self._registry.unsubscribe
        return change(self._mesh, "topic", topic, self._signer.public_hex).changed

    def topics(self, after: str, limit: int) -> inbox_wire.BrokerTopics:
        query = broker_wire.MeshRowsQuery(after, limit)
        page = self._registry.destinations(self._mesh, "topic", query)
        return msgspec.convert(page, inbox_wire.BrokerTopics, from_attributes=True)

    def members(self, after: str, limit: int) -> inbox_wire.BrokerMembers:
        page = self._registry.members(self._mesh, broker_wire.MeshRowsQuery(after, limit))
        return msgspec.convert(page, inbox_wire.BrokerMembers, from_attributes=True)

    def rename(self, name: str) -> None:
        try:
            command = msgspec.convert({"name": name}, broker_wire.RenameMember)
        except msgspec.ValidationError:
            raise Invalid(
                "name is not valid for a member",
                details={"field": "name"},
                hint="use at most 100 letters, digits, '_', '.' and '-'",
            ) from None
        self._registry.rename_member(self._mesh, self._signer.public_hex, command)

    def rotate(self, pubkey: str, proof: str) -> None:
        command = broker_wire.RotateMember(pubkey, proof)
        self._registry.rotate_member(self._mesh, self._signer.public_hex, command)

    def accepts_key(self, signer: Signer) -> bool:
        return name_of(self._broker, self._mesh, signer) is not None


def name_of(broker: Broker, mesh: str, signer: Signer) -> str | None:
    """Return the name of the mesh member with this key; None without such a member."""
    directory = broker.directory
    try:
        return directory.member(directory.mesh(mesh).id, signer.public_hex).name
    except ApplianceError:
        return None


class LocalMeshSubscriber(Loop):
    """Receives from the own broker's meshes that have this appliance's key as a member.

    Each round compares the meshes again, because meshes and members change at any time.
    """

    name = "local_meshes"
    interval_seconds = 1.0

    def __init__(self, broker: BrokerSubsystem, inbox: Inbox, log: Log) -> None:
        super().__init__(inbox.clock, log)
        self._subsystem = broker
        self._broker = broker.broker
        self._inbox = inbox
        self._connections: dict[str, LocalConnection] = {}

    def run_once(self, now_ms: int) -> dict[str, int]:
        ours = {
            slug: name
            for slug in self._broker.directory.by_slug.keys() - self._inbox.brokers.keys()
            if (name := name_of(self._broker, slug, self._inbox.keys.in_mesh(slug))) is not None
        }
        for slug, connection in list(self._connections.items()):
            if slug not in ours or connection.closed:
                self._leave(slug)
        for slug in sorted(ours.keys() - self._connections.keys()):
            self._inbox.member_names[slug] = ours[slug]
            self._join(slug)
        return {"links": len(self._connections)}

    def stop(self, timeout_seconds: float = 0.5) -> None:
        super().stop(timeout_seconds)
        for slug in list(self._connections):
            self._leave(slug)

    def _join(self, slug: str) -> None:
        inbox = self._inbox
        signer = inbox.keys.in_mesh(slug)
        inbox.add_mesh(slug)
        inbox.broker_clients[slug] = LocalBrokerClient(self._subsystem, slug, signer)
        try:
            connection = LocalConnection(
                self._broker, slug, signer.public_hex,
                partial(inbox.receive_many, way="local"), partial(inbox.on_broker_event, slug),
            )  # fmt: skip
        except ApplianceError as error:
            inbox.set_link(slug, "waiting", error.message)
            return
        self._connections[slug] = connection
        connection.start()
        inbox.open_link(slug, "local", connection.set_status)

    def _leave(self, slug: str) -> None:
        connection = self._connections.pop(slug)
        connection.stop()
        for by_mesh in (self._inbox.links, self._inbox.broker_clients, self._inbox.member_names):
            by_mesh.pop(slug, None)
        self._inbox.close_link(slug, connection.closed or "not a member")
