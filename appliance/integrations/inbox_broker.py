"""Connects the inbox to the broker of the same appliance."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from appliance.broker import wire as broker_wire
from appliance.broker.local_connection import LocalConnection
from appliance.broker.registry import Registry
from appliance.broker.service import Broker
from appliance.broker.subsystem import BrokerSubsystem
from appliance.inbox import wire as inbox_wire
from appliance.inbox.subsystem import InboxSubsystem
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.mesh.push import Push
from appliance.mesh.signing import MemberKeys, Signer, rotation_text


class LocalBrokerClient:
    """The BrokerClient for meshes of this appliance's own broker."""

    def __init__(
        self,
        broker: Broker,
        registry: Registry,
        mesh: str,
        signer: Signer,
        send_status: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._broker = broker
        self._mesh = mesh
        self._signer = signer
        self._send_status = send_status

    def subscribe(self, topic: str) -> bool:
        key = self._signer.public_hex
        return self._registry.subscribe(self._mesh, "topic", topic, key).changed

    def unsubscribe(self, topic: str) -> bool:
        key = self._signer.public_hex
        try:
            return self._registry.unsubscribe(self._mesh, "topic", topic, key).changed
        except broker_wire.NoSuchDestination:
            return False  # a topic that does not exist has no subscribers

    def topics(self, after: str, limit: int) -> tuple[list[inbox_wire.InboxTopic], str]:
        own, query = self._signer.public_hex, broker_wire.MeshRowsQuery(after, limit)
        page = self._registry.destinations(self._mesh, "topic", query)
        rows = [
            inbox_wire.InboxTopic(topic.name, own in topic.subscribers)
            for topic in page.destinations
        ]
        return rows, page.next if page.has_more else ""

    def peers(self, after: str, limit: int) -> tuple[list[inbox_wire.Peer], str]:
        own, query = self._signer.public_hex, broker_wire.MeshRowsQuery(after, limit)
        page = self._registry.members(self._mesh, query)
        rows = [
            inbox_wire.Peer(
                member.pubkey, member.name, member.state, member.connected, member.pubkey == own
            )
            for member in page.members
        ]
        return rows, page.next if page.has_more else ""

    def set_status(self, status: str) -> None:
        self._send_status(status)

    @property
    def member_name(self) -> str | None:
        """Our name in the mesh; None: we are not a member."""
        member = self._find_member(self._signer)
        return None if member is None else member.name

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

    def rotate(self, new: Signer) -> None:
        old = self._signer.public_hex
        proof = new.sign(rotation_text(self._mesh, old, new.public_hex)).hex()
        command = broker_wire.RotateMember(new.public_hex, proof)
        self._registry.rotate_member(self._mesh, old, command)

    def accepts_key(self, signer: Signer) -> bool:
        return self._find_member(signer) is not None

    def _find_member(self, signer: Signer) -> Any:
        try:
            mesh = self._broker.directory.mesh(self._mesh)
            return self._broker.directory.member(mesh.id, signer.public_hex)
        except ApplianceError:
            return None


class LocalMeshSubscriber(Loop):
    """Receives from the meshes of this appliance's broker that our key is a member of.

    Each round compares the meshes again, because meshes and members change at any time.
    """

    name = "home_meshes"
    interval_seconds = 1.0

    def __init__(
        self,
        broker: BrokerSubsystem,
        inbox: InboxSubsystem,
        keys: MemberKeys,
        clock: Clock,
        log: Log,
    ) -> None:
        super().__init__(clock, log)
        self._broker = broker
        self._subsystem = inbox
        self._keys = keys
        self._connections: dict[str, LocalConnection] = {}

    def run_once(self, now_ms: int) -> dict[str, int]:
        directory = self._broker.broker.directory
        remote_meshes = self._subsystem.connections
        ours = {
            slug
            for slug in directory.by_slug
            if slug not in remote_meshes and self._client(slug).member_name is not None
        }
        for slug in list(self._connections):
            if slug not in ours or self._connections[slug].closed:
                self._leave(slug)
        for slug in sorted(ours - set(self._connections)):
            self._join(slug, now_ms)
        return {"links": len(self._connections)}

    def stop(self, timeout_seconds: float = 0.5) -> None:
        super().stop(timeout_seconds)
        for slug in list(self._connections):
            self._leave(slug)

    def _join(self, slug: str, now_ms: int) -> None:
        inbox = self._subsystem.inbox

        def receive(pushes: list[Push]) -> None:
            inbox.receive_many(pushes, "local")

        def on_event(event: dict[str, Any]) -> None:
            name, member = event.get("event"), event.get("member")
            if name in ("peer_join", "peer_leave"):
                inbox.announce(str(name), slug, pubkey=member)

        member = self._keys.in_mesh(slug).public_hex
        inbox.add_mesh(slug)
        inbox.broker_clients[slug] = self._client(slug)
        try:
            connection = LocalConnection(self._broker.broker, slug, member, receive, on_event)
        except ApplianceError as error:
            self._subsystem.local[slug] = _state(slug, "waiting", error.message, now_ms)
            return
        self._connections[slug] = connection
        connection.start()
        connection.set_status(inbox.profile(slug).status)
        self._subsystem.local[slug] = _state(slug, "local", "", now_ms)
        inbox.announce("daemon_reconnect", slug)

    def _client(self, slug: str) -> LocalBrokerClient:
        signer = self._keys.in_mesh(slug)
        return LocalBrokerClient(
            self._broker.broker, self._broker.registry, slug, signer,
            partial(self._send_status, slug),
        )  # fmt: skip

    def _send_status(self, slug: str, status: str) -> None:
        if slug in self._connections:
            self._connections[slug].set_status(status)

    def _leave(self, slug: str) -> None:
        connection = self._connections.pop(slug)
        connection.stop()
        self._subsystem.local.pop(slug, None)
        self._subsystem.inbox.broker_clients.pop(slug, None)
        self._subsystem.inbox.announce(
            "daemon_disconnect", slug, reason=connection.closed or "not a member"
        )


def _state(slug: str, state: str, reason: str, now_ms: int) -> inbox_wire.LinkState:
    return inbox_wire.LinkState(slug, state, reason, iso(now_ms), [])
