"""All meshes and members in memory."""

from collections.abc import Iterable

from appliance.broker import wire
from appliance.broker.rows import MemberRow, MeshRow, WebhookRow

KEY_EPOCHS_MAX = 100
"""How many member keys, current and former, a dm may be addressed to."""


class Directory:
    """Meshes and members after the last change. The store is authoritative."""

    def __init__(
        self,
        meshes: Iterable[MeshRow] = (),
        members: Iterable[MemberRow] = (),
        queues: Iterable[tuple[str, str, str]] = (),
        webhooks: Iterable[WebhookRow] = (),
    ) -> None:
        """`queues`: (mesh_id, name, consumer)."""
        self.by_slug: dict[str, MeshRow] = {}
        self.by_id: dict[str, MeshRow] = {}
        for mesh in meshes:
            self.by_slug[mesh.slug] = self.by_id[mesh.id] = mesh
        self._members: dict[tuple[str, str], MemberRow] = {}
        self.webhooks = {webhook.id: webhook for webhook in webhooks}
        self._keys: set[str] = set()
        for member in members:
            self._members[member.mesh_id, member.pubkey] = member
            self._keys.add(member.pubkey)
        self._queues: dict[tuple[str, str], tuple[str, ...]] = {}
        for mesh_id, name, consumer in queues:
            names = self._queues.get((mesh_id, consumer), ())
            self._queues[mesh_id, consumer] = (*names, name)

    @property
    def members(self) -> int:
        return len(self._members)

    def has_key(self, pubkey: str) -> bool:
        return pubkey in self._keys

    def mesh(self, slug: str) -> MeshRow:
        mesh = self.by_slug.get(slug)
        if mesh is None:
            raise wire.MeshNotFound(details={"mesh": slug[:100]})
        return mesh

    def member(self, mesh_id: str, pubkey: str) -> MemberRow:
        """Return an active member; raise NotAMember or MemberIsRevoked."""
        member = self._members.get((mesh_id, pubkey))
        if member is None:
            raise wire.NotAMember(details={"member": pubkey[:64]})
        if member.revoked_ms is not None:
            details = {"member": pubkey}
            if member.successor is not None:
                details["successor"] = member.successor
            raise wire.MemberIsRevoked(details=details)
        return member

    def members_of(self, mesh_id: str) -> list[MemberRow]:
        """Return members ordered by name."""
        return [row for row in self._members.values() if row.mesh_id == mesh_id]

    def find(self, mesh_id: str, key_or_name: str) -> MemberRow:
        """Return a member by key, else by an active member's name; raise NoSuchMember."""
        member = self._members.get((mesh_id, key_or_name))
        if member is not None:
            return member
        for row in self.members_of(mesh_id):
            if row.name == key_or_name and row.revoked_ms is None:
                return row
        raise wire.NoSuchMember(details={"member": key_or_name[:100]})

    def subscriber(self, mesh_id: str, named: str) -> str:
        """Return that member's key, or `webhook:` and an id as it is."""
        return named if named.startswith("webhook:") else self.find(mesh_id, named).pubkey

    def memberships(self, pubkey: str) -> list[MemberRow]:
        """Return the active members with that key, one per mesh."""
        rows = [row for row in self._members.values() if row.pubkey == pubkey]
        return [row for row in rows if row.revoked_ms is None]

    def recipients(self, mesh_id: str, pubkey: str) -> tuple[str, ...]:
        """Return the recipients whose deliveries this member may claim: itself and its queues."""
        queues = self._queues.get((mesh_id, pubkey), ())
        return (pubkey, *(f"queue:{name}" for name in queues))
