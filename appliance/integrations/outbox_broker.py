"""Connects the outbox to the broker in the same appliance, and checks the own membership."""

from collections.abc import Collection, Sequence

from appliance.broker import wire as broker_wire
from appliance.broker.service import Broker
from appliance.inbox.service import Inbox
from appliance.kernel.errors import ApplianceError
from appliance.mesh.signing import MemberKeys
from appliance.outbox import wire as outbox_wire
from appliance.outbox.service import BROKER, Membership
from appliance.outbox.target import DeliveryTarget, Outgoing, Result, item_of, result_of


class OwnBroker(DeliveryTarget):
    """The own broker as a target, with this appliance as a member in each mesh. While the broker is
    suspended, its meshes are unknown and sends wait."""

    name = BROKER
    takes_batches = True

    def __init__(
        self, broker: Broker, keys: MemberKeys, suspended: ApplianceError | None = None
    ) -> None:
        self._broker = broker
        self._keys = keys
        self._suspended = suspended

    def serves(self, mesh: str) -> bool:
        return self._suspended is not None or mesh in self._broker.directory.by_slug

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        """Deliver sends that are all for one mesh."""
        if self._suspended is not None:
            raise self._suspended
        member = self._keys.in_mesh(sends[0].mesh).public_hex
        answers = self._broker.accept_many(member, [item_of(send) for send in sends])
        return [
            result_of(send, status, body, body.get("retry_after"))
            for send, (status, body) in zip(sends, answers, strict=True)
        ]

    def unknown(self, mesh: str, ids: Sequence[str]) -> list[str] | None:
        if self._suspended is not None:
            return None
        query = broker_wire.UnknownQuery(mesh, list(ids))
        try:
            return self._broker.unknown(query, self._keys.in_mesh(mesh).public_hex).unknown
        except ApplianceError:
            return None


class MeshSendPermission(Membership):
    """Decides whether the own key may send to a mesh. The inbox stores the answer for remote
    brokers' meshes (`remote`); the own broker decides about the others. Either subsystem may be
    disabled (None): then the first refused send shows the state."""

    def __init__(
        self, inbox: Inbox | None, broker: Broker | None, keys: MemberKeys, remote: Collection[str]
    ) -> None:
        self._inbox = inbox
        self._broker = broker
        self._keys = keys
        self._remote = frozenset(remote)

    def refusal(self, mesh: str) -> ApplianceError | None:
        """Return the error for sends to a mesh whose broker revoked the own key."""
        if mesh in self._remote:
            revoked = None if self._inbox is None else self._inbox.revoked.get(mesh)
        else:
            revoked = self._find_revocation(mesh)
        if revoked is None:
            return None
        return outbox_wire.MemberRevoked(details={"mesh": mesh, "member": revoked})

    def on_revoked(self, mesh: str, pubkey: str) -> None:
        """Note that a broker revoked `pubkey`. Former keys are ignored."""
        if self._inbox is None or mesh not in self._remote:
            return
        if pubkey == self._keys.in_mesh(mesh).public_hex:
            self._inbox.note_revoked(mesh, pubkey)

    def _find_revocation(self, mesh: str) -> str | None:
        if self._broker is None:
            return None
        directory, own = self._broker.directory, self._keys.in_mesh(mesh).public_hex
        try:
            directory.member(directory.mesh(mesh).id, own)
        except broker_wire.MemberIsRevoked as error:
            return None if "successor" in error.details else own
        except (broker_wire.MeshNotFound, broker_wire.NotAMember):
            pass  # may be added later: sends wait
        return None
