"""Rows as structs, and all meshes and members in memory."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from appliance.broker import webhook_wire, wire
from appliance.kernel.clock import iso

KEY_EPOCHS_MAX = 100
"""How many keys of one member, current and former, a dm may be addressed to."""


class MeshRow(Struct, frozen=True):
    id: str
    slug: str
    dedupe_mode: wire.Mode
    dedupe_retention_days: int
    message_retention_days: int
    concurrency: wire.Concurrency
    created_ms: int

    def to_wire(self) -> wire.Mesh:
        return wire.Mesh(
            self.slug,
            self.dedupe_mode,
            self.dedupe_retention_days,
            self.message_retention_days,
            self.concurrency,
            iso(self.created_ms),
        )


class MemberRow(Struct, frozen=True):
    mesh_id: str
    pubkey: str
    name: str
    added_ms: int
    revoked_ms: int | None
    successor: str | None

    def to_wire(
        self, connected: bool = False, running_on: str | None = None, refused: str | None = None
    ) -> wire.Member:
        return wire.Member(
            self.pubkey,
            self.name,
            "active" if self.revoked_ms is None else "revoked",
            iso(self.added_ms),
            connected,
            self.successor,
            running_on,
            refused,
        )


class MeshWebhookRow(Struct, frozen=True):
    """A stored webhook with its secrets. Replies contain `to_wire()` only."""

    mesh_id: str
    id: str
    url: str
    added_ms: int
    secret: str
    former_secret: str | None = None
    former_until_ms: int | None = None
    enabled: int = 1
    failing_since_ms: int | None = None
    disabled_because: str | None = None

    def secrets(self, now_ms: int) -> list[str]:
        """The secrets that sign now, by the steady clock: the current one first."""
        if self.former_secret is None or now_ms >= (self.former_until_ms or 0):
            return [self.secret]
        return [self.secret, self.former_secret]

    def to_wire(
        self, now_ms: int, wall_iso: Callable[[int | None], str | None]
    ) -> webhook_wire.MeshWebhook:
        """`now_ms` of the steady clock, whose times `wall_iso` shows."""
        rotating = len(self.secrets(now_ms)) > 1
        return webhook_wire.MeshWebhook(
            self.id,
            self.url,
            iso(self.added_ms),
            enabled=bool(self.enabled),
            failing_since=wall_iso(self.failing_since_ms),
            disabled_because=self.disabled_because,
            rotating_until=wall_iso(self.former_until_ms if rotating else None),
        )


class Directory:
    """Meshes and members as of the last change. The store is authoritative."""

    def __init__(
        self,
        meshes: Iterable[MeshRow] = (),
        members: Iterable[MemberRow] = (),
        queues: Iterable[tuple[str, str, str]] = (),
        webhooks: Iterable[MeshWebhookRow] = (),
    ) -> None:
        """`queues`: (mesh_id, name, consumer)."""
        self.by_slug: dict[str, MeshRow] = {}
        self.by_id: dict[str, MeshRow] = {}
        for mesh in meshes:
            self.by_slug[mesh.slug] = self.by_id[mesh.id] = mesh
        self._members: dict[tuple[str, str], MemberRow] = {}
        self.webhooks = tuple(webhooks)
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
        """An active member; raises NotAMember or MemberIsRevoked."""
        member = self._members.get((mesh_id, pubkey))
        if member is None:
            raise wire.NotAMember(details={"member": pubkey[:64]})
        if member.revoked_ms is not None:
            details = {"member": pubkey}
            if member.successor is not None:
                details["successor"] = member.successor
            raise wire.MemberIsRevoked(details=details)
        return member

    def find(self, mesh_id: str, key_or_name: str) -> MemberRow:
        """By key, else by the name of an active member; raises NoSuchMember."""
        member = self._members.get((mesh_id, key_or_name))
        if member is not None:
            return member
        for row in self._members.values():
            if row.mesh_id == mesh_id and row.name == key_or_name and row.revoked_ms is None:
                return row
        raise wire.NoSuchMember(details={"member": key_or_name[:100]})

    def memberships(self, pubkey: str) -> list[MemberRow]:
        """The active members with that key, one per mesh."""
        rows = [row for row in self._members.values() if row.pubkey == pubkey]
        return [row for row in rows if row.revoked_ms is None]

    def recipients(self, mesh_id: str, pubkey: str) -> tuple[str, ...]:
        """The recipients whose deliveries this member may claim: itself and its queues."""
        queues = self._queues.get((mesh_id, pubkey), ())
        return (pubkey, *(f"queue:{name}" for name in queues))
