"""The inbox and the broker of this same appliance: asked as a member, and received from."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from appliance.broker import wire as broker_wire
from appliance.broker.local import LocalLink
from appliance.broker.subsystem import BrokerSubsystem
from appliance.inbox import lists
from appliance.inbox import wire as inbox_wire
from appliance.inbox.subsystem import InboxSubsystem
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.kernel.subsystem import Subsystem
from appliance.mesh.signing import MemberKeys, Signer, rotation_text

PLACE_KIND = "topic"


class LocalBrokerClient:
    """The broker of this appliance, asked as its member."""

    def __init__(self, broker: BrokerSubsystem, mesh: str, signer: Signer) -> None:
        self._registry = broker.registry
        self._broker = broker.broker
        self._mesh = mesh
        self._signer = signer
        self.say: Callable[[str], None] = lambda _status: None

    def subscribe(self, topic: str) -> None:
        self._registry.subscribe(self._mesh, PLACE_KIND, topic, self._signer.public_hex)

    def unsubscribe(self, topic: str) -> None:
        with suppress(broker_wire.NoSuchDestination):  # nobody subscribes to what is gone
            self._registry.unsubscribe(self._mesh, PLACE_KIND, topic, self._signer.public_hex)

    def topics(self, after: str, limit: int, bytes_max: int) -> tuple[list[tuple[str, bool]], str]:
        own = self._signer.public_hex

        def ask(after: str, limit: int) -> tuple[list[tuple[str, bool]], str]:
            query = broker_wire.MeshRowsQuery(after, limit)
            page = self._registry.places(self._mesh, PLACE_KIND, query)
            rows = [(place.name, own in place.subscribers) for place in page.places]
            return rows, page.next if page.has_more else ""

        return lists.gather(ask, after, limit, bytes_max, lists.topic_bytes)

    def peers(self, after: str, limit: int, bytes_max: int) -> tuple[list[inbox_wire.Peer], str]:
        own = self._signer.public_hex

        def ask(after: str, limit: int) -> tuple[list[inbox_wire.Peer], str]:
            page = self._registry.members(self._mesh, broker_wire.MeshRowsQuery(after, limit))
            rows = [
                inbox_wire.Peer(one.pubkey, one.name, one.state, one.connected, one.pubkey == own)
                for one in page.members
            ]
            return rows, page.next if page.has_more else ""

        return lists.gather(ask, after, limit, bytes_max, lists.peer_bytes)

    def say_status(self, status: str, visible: bool, summary: str) -> None:
        del visible, summary  # brokers know the status only
        self.say(status)

    @property
    def member_name(self) -> str | None:
        """What we are called there, from memory; None: no member."""
        try:
            mesh = self._broker.directory.mesh(self._mesh)
            return self._broker.directory.member(mesh.id, self._signer.public_hex).name
        except ApplianceError:
            return None

    def rename(self, name: str) -> None:
        try:
            command = msgspec.convert({"name": name}, broker_wire.RenameMember)
        except msgspec.ValidationError:
            raise Invalid("that is no name of a member", details={"field": "name"}) from None
        self._registry.rename_member(self._mesh, self._signer.public_hex, command)

    def rotate(self, new: Signer) -> None:
        old = self._signer.public_hex
        proof = new.sign(rotation_text(self._mesh, old, new.public_hex)).hex()
        command = broker_wire.RotateMember(new.public_hex, proof)
        self._registry.rotate_member(self._mesh, old, command)

    @property
    def is_member(self) -> bool:
        return self.knows(self._signer)

    def knows(self, other: Signer) -> bool:
        try:
            mesh = self._broker.directory.mesh(self._mesh)
            self._broker.directory.member(mesh.id, other.public_hex)
        except ApplianceError:
            return False
        return True


class LocalMeshSubscriber(Loop):
    """Receives from the meshes of our own broker in which our key is a member.

    Looks again and again: a mesh is made, a member added, revoked or rotated while we run.
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
        self._links: dict[str, LocalLink] = {}

    def run_once(self, now_ms: int) -> dict[str, int]:
        directory = self._broker.broker.directory
        elsewhere = self._subsystem.receivers
        ours = {slug for slug in directory.by_slug if slug not in elsewhere and self._is_in(slug)}
        for slug in list(self._links):
            if slug not in ours or self._links[slug].closed is not None:
                self._leave(slug)
        for slug in sorted(ours - set(self._links)):
            self._join(slug, now_ms)
        return {"links": len(self._links)}

    def stop(self, timeout_seconds: float = 0.5) -> None:
        super().stop(timeout_seconds)
        for slug in list(self._links):
            self._leave(slug)

    def _join(self, slug: str, now_ms: int) -> None:
        inbox = self._subsystem.inbox

        def take(pushes: list[broker_wire.Push]) -> None:
            inbox.receive_many([_push(push) for push in pushes], "local")

        def hear(event: dict[str, Any]) -> None:
            name, member = event.get("event"), event.get("member")
            if name in ("peer_join", "peer_leave"):
                inbox.announce(str(name), slug, pubkey=member)

        signer = self._keys.in_mesh(slug)
        broker_client = LocalBrokerClient(self._broker, slug, signer)
        inbox.know(slug)
        inbox.broker_clients[slug] = broker_client
        try:
            link = self._broker.subscribe_local(slug, signer.public_hex, take, hear)
        except ApplianceError as error:
            self._subsystem.local[slug] = _state(slug, "waiting", error.message, now_ms)
            return
        self._links[slug] = link
        broker_client.say = link.set_status
        link.set_status(inbox.profile(slug).status)
        self._subsystem.local[slug] = _state(slug, "local", "", now_ms)
        inbox.announce("daemon_reconnect", slug)

    def _is_in(self, slug: str) -> bool:
        return LocalBrokerClient(self._broker, slug, self._keys.in_mesh(slug)).is_member

    def _leave(self, slug: str) -> None:
        link = self._links.pop(slug)
        reason = link.closed[1] if link.closed is not None else "no member"
        link.stop()
        self._subsystem.local.pop(slug, None)
        self._subsystem.inbox.broker_clients.pop(slug, None)
        self._subsystem.inbox.announce("daemon_disconnect", slug, reason=reason)


def _push(push: broker_wire.Push) -> inbox_wire.Push:
    return inbox_wire.Push(**msgspec.structs.asdict(push))


def _state(slug: str, state: str, reason: str, now_ms: int) -> inbox_wire.LinkState:
    return inbox_wire.LinkState(slug, state, reason, iso(now_ms), [])


class LocalMeshes(Subsystem):
    """The loop as a part of the appliance, which rests while either store is damaged."""

    name = "local_meshes"
    needs = frozenset({"inbox", "broker"})

    def __init__(self, subscriber: LocalMeshSubscriber) -> None:
        self.loops = (subscriber,)
