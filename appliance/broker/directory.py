"""Rows as structs, and the picture of all meshes that is kept in memory."""

from collections.abc import Iterable

from msgspec import Struct

from appliance.broker import webhook_wire, wire
from appliance.kernel.clock import iso

KEY_EPOCHS_MAX = 100
"""Keys of one member, the one in force and former ones, to which a dm may be addressed."""


class MeshRow(Struct, frozen=True):
    id: str
    slug: str
    dedupe_mode: str
    dedupe_retention_days: int
    message_retention_days: int
    concurrency: str
    created_ms: int

    def shown(self) -> wire.Mesh:
        return wire.Mesh(
            self.slug,
            self.dedupe_mode,  # type: ignore[arg-type]
            self.dedupe_retention_days,
            self.message_retention_days,
            self.concurrency,  # type: ignore[arg-type]
            iso(self.created_ms),
        )


class MemberRow(Struct, frozen=True):
    mesh_id: str
    pubkey: str
    name: str
    added_ms: int
    revoked_ms: int | None
    successor: str | None

    def shown(self, connected: bool = False) -> wire.Member:
        state = "active" if self.revoked_ms is None else "revoked"
        return wire.Member(
            self.pubkey,
            self.name,
            state,  # type: ignore[arg-type]
            iso(self.added_ms),
            connected,
            self.successor,
        )


class HookRow(Struct, frozen=True):
    """A webhook as it is stored, secrets included: never shown as it is."""

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
        """Those that sign now: the one in force first."""
        if self.former_secret is None or now_ms >= (self.former_until_ms or 0):
            return [self.secret]
        return [self.secret, self.former_secret]

    def shown(self, now_ms: int) -> webhook_wire.Hook:
        rotating = len(self.secrets(now_ms)) > 1 and self.former_until_ms is not None
        return webhook_wire.Hook(
            self.id,
            self.url,
            iso(self.added_ms),
            enabled=bool(self.enabled),
            failing_since=None if self.failing_since_ms is None else iso(self.failing_since_ms),
            disabled_because=self.disabled_because,
            rotating_until=iso(self.former_until_ms or 0) if rotating else None,
        )


class Directory:
    """Meshes and members as of the last change. The store is the truth; this is read often."""

    def __init__(
        self,
        meshes: Iterable[MeshRow] = (),
        members: Iterable[MemberRow] = (),
        queues: Iterable[tuple[str, str, str]] = (),
        hooks: Iterable[HookRow] = (),
    ) -> None:
        """`queues`: (mesh_id, name, consumer)."""
        self.by_slug: dict[str, MeshRow] = {}
        self.by_id: dict[str, MeshRow] = {}
        for mesh in meshes:
            self.by_slug[mesh.slug] = self.by_id[mesh.id] = mesh
        self._members: dict[tuple[str, str], MemberRow] = {}
        self.hooks = tuple(hooks)
        self._keys: set[str] = set()
        for member in members:
            self._members[member.mesh_id, member.pubkey] = member
            self._keys.add(member.pubkey)
        self._queues: dict[tuple[str, str], tuple[str, ...]] = {}
        for mesh_id, name, consumer in queues:
            held = self._queues.get((mesh_id, consumer), ())
            self._queues[mesh_id, consumer] = (*held, name)

    @property
    def members(self) -> int:
        return len(self._members)

    def knows(self, pubkey: str) -> bool:
        return pubkey in self._keys

    def mesh(self, slug: str) -> MeshRow:
        mesh = self.by_slug.get(slug)
        if mesh is None:
            raise wire.NoSuchMesh(details={"mesh": slug[:100]})
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
        for one in self._members.values():
            if one.mesh_id == mesh_id and one.name == key_or_name and one.revoked_ms is None:
                return one
        raise wire.NoSuchMember(details={"member": key_or_name[:100]})

    def of_key(self, pubkey: str) -> list[MemberRow]:
        """The meshes in which that key is an active member."""
        found = [one for one in self._members.values() if one.pubkey == pubkey]
        return [one for one in found if one.revoked_ms is None]

    def recipients(self, mesh_id: str, pubkey: str) -> tuple[str, ...]:
        """What this member may claim: its own deliveries, and those of its queues."""
        queues = self._queues.get((mesh_id, pubkey), ())
        return (pubkey, *(f"queue:{name}" for name in queues))
