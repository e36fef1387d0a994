"""Manages meshes, members, topics, queues and webhooks, and sends the resulting events."""

from collections.abc import Callable
from typing import Any

from appliance.broker import (
    admin_writes,
    listings,
    metrics,
    queries,
    views,
    webhook_wire,
    wire,
)
from appliance.broker.dispatch import REVOKED
from appliance.broker.orphans import Orphan, find_orphans
from appliance.broker.rows import MemberRow, MeshRow
from appliance.broker.service import Broker
from appliance.kernel import webhook_signature
from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.kernel.log import without_path
from appliance.kernel.page import ROW_BYTES, take_page, text_bytes
from appliance.kernel.reader import PAGE_BYTES_MAX
from appliance.kernel.registered_webhook import requested_secret
from appliance.mesh import signing

PRUNED = "pruned_ms"
ALL = wire.MeshRowsQuery()
FANOUT_SECONDS_MAX = 300.0  # age below which the orphan check ignores delivery rows
PAGE_MAX = 500  # rows in one reply; a larger limit is clamped
ORPHAN_ROWS_MAX = 1_000  # orphans per rule that one orphan check counts


class Registry:
    def __init__(self, broker: Broker, check_url: Callable[[str], None] | None) -> None:
        """`check_url`: None if nothing calls webhooks."""
        self._check_url = check_url
        self._broker = broker
        self._store = broker.store
        self.orphan_count: int | None = None

    # -- meshes ------------------------------------------------------------------------------

    def meshes(self, member: str | None) -> wire.MeshList:
        """Return all meshes; for a member, the member's meshes."""
        rows = self._broker.directory.by_slug.values()
        if member is not None:
            mesh_ids = {row.mesh_id for row in self._broker.directory.memberships(member)}
            return wire.MeshList([views.mesh_to_wire(row) for row in rows if row.id in mesh_ids])
        return wire.MeshList([views.mesh_to_wire(row) for row in rows])

    def create_mesh(self, command: wire.CreateMesh) -> wire.MeshReply:
        row = self._store.write(admin_writes.create_mesh, command)
        self._broker.reload()
        return wire.MeshReply(views.mesh_to_wire(row))

    def show_mesh(self, slug: str) -> wire.MeshReply:
        return wire.MeshReply(views.mesh_to_wire(self._mesh(slug)))

    def change_mesh(self, slug: str, command: wire.ChangeMesh) -> wire.MeshReply:
        self._store.write(admin_writes.change_mesh, self._mesh(slug).id, command)
        self._broker.reload()
        return self.show_mesh(slug)

    # -- members -----------------------------------------------------------------------------

    def members(self, slug: str, query: wire.MeshRowsQuery = ALL) -> wire.MemberList:
        name, _, pubkey = query.after.partition(":")
        rows = self._broker.directory.members_of(self._mesh(slug).id)
        later = (row for row in rows if (row.name, row.pubkey) > (name, pubkey))
        page, more = take_page(later, query.limit, PAGE_BYTES_MAX, lambda _row: ROW_BYTES)
        after = f"{page[-1].name}:{page[-1].pubkey}" if page else query.after
        return wire.MemberList([self._to_wire(row) for row in page], more, after)

    def add_member(self, slug: str, command: wire.AddMember) -> wire.MemberReply:
        mesh = self._mesh(slug)
        check_key(command.pubkey)
        self._store.write(admin_writes.add_member, mesh.id, command.pubkey, command.name)
        self._broker.reload()
        return self._member(mesh, command.pubkey)

    def rename_member(
        self, slug: str, key_or_name: str, command: wire.RenameMember
    ) -> wire.MemberReply:
        """Rename a member. Messages that were accepted before keep the old name."""
        mesh = self._mesh(slug)
        pubkey = self._broker.directory.find(mesh.id, key_or_name).pubkey
        self._store.write(admin_writes.rename_member, mesh.id, pubkey, command.name)
        self._broker.reload()
        self._broadcast(mesh, "member_renamed", pubkey, name=command.name)
        return self._member(mesh, pubkey)

    def revoke_member(self, slug: str, key_or_name: str) -> wire.MemberReply:
        """Refuse a member's requests from now on, and close all connections."""
        mesh = self._mesh(slug)
        pubkey = self._broker.directory.find(mesh.id, key_or_name).pubkey
        done = self._store.write(admin_writes.revoke_member, mesh.id, pubkey)
        self._broker.reload()
        if done:
            self._broadcast(mesh, "member_revoked", pubkey)
        for connection in self._broker.dispatch.connections_of(mesh.id, pubkey):
            connection.close(REVOKED, "member_revoked")
        return self._member(mesh, pubkey)

    def rotate_member(
        self, slug: str, key_or_name: str, command: wire.RotateMember
    ) -> wire.MemberReply:
        """Replace the member's key; `proof` shows that it has the new key's private half."""
        mesh = self._mesh(slug)
        old = self._broker.directory.find(mesh.id, key_or_name)
        self._broker.directory.member(mesh.id, old.pubkey)
        check_key(command.pubkey)
        text = signing.rotation_text(slug, old.pubkey, command.pubkey)
        if not signing.is_good(command.pubkey, text, command.proof):
            raise wire.BadSignature("the proof is not a signature by the new key")
        self._store.write(admin_writes.rotate_member, mesh.id, old.pubkey, command.pubkey, old.name)
        self._broker.reload()
        self._broadcast(mesh, "member_keypair_rotated", old.pubkey, successor=command.pubkey)
        for connection in self._broker.dispatch.connections_of(mesh.id, old.pubkey):
            connection.close(REVOKED, "member_keypair_rotated")
        return self._member(mesh, command.pubkey)

    # -- topics and queues ---------------------------------------------------------------------

    def destinations(
        self, slug: str, kind: wire.TopicOrQueue, query: wire.MeshRowsQuery = ALL
    ) -> wire.DestinationList:
        mesh, limit = self._mesh(slug), min(query.limit, queries.DESTINATIONS_MAX)
        page, more = self._store.read(listings.destinations, mesh.id, kind, query.after, limit)
        return wire.DestinationList(page, more, page[-1].name if page else query.after)

    def create_destination(
        self, slug: str, kind: wire.TopicOrQueue, name: str
    ) -> tuple[wire.DestinationReply, bool]:
        mesh = self._mesh(slug)
        made = self._store.write(admin_writes.create_destination, mesh.id, kind, name)
        destination = self._store.read(queries.destination, mesh.id, kind, name)
        return wire.DestinationReply(destination), made

    def subscribe(self, slug: str, kind: str, name: str, subscriber: str) -> wire.ChangeReply:
        mesh = self._mesh(slug)
        if subscriber.startswith("webhook:"):
            if kind == "queue":
                raise Invalid("webhooks subscribe to topics", details={"field": "subscriber"})
            self._check_webhook_url(None)
        key = self._broker.directory.subscriber(mesh.id, subscriber)
        done = self._store.write(admin_writes.subscribe, mesh.id, kind, name, key)
        self._broker.reload()
        return wire.ChangeReply(done)

    def unsubscribe(self, slug: str, kind: str, name: str, subscriber: str) -> wire.ChangeReply:
        mesh = self._mesh(slug)
        key = self._broker.directory.subscriber(mesh.id, subscriber)
        done = self._store.write(admin_writes.unsubscribe, mesh.id, kind, name, key)
        self._broker.reload()
        return wire.ChangeReply(done)

    # -- webhooks ------------------------------------------------------------------------------

    def webhooks(self, slug: str, query: wire.MeshRowsQuery = ALL) -> webhook_wire.MeshWebhookList:
        mesh_id, rows = self._mesh(slug).id, self._broker.directory.webhooks.values()
        later = (row for row in rows if row.mesh_id == mesh_id and row.id > query.after)
        page, more = take_page(
            later, query.limit, PAGE_BYTES_MAX, lambda row: ROW_BYTES + text_bytes(row.url)
        )
        shown = [row._replace(url=without_path(row.url)) for row in page]
        webhooks = [views.webhook_to_wire(row, self._broker.steady) for row in shown]
        return webhook_wire.MeshWebhookList(webhooks, more, page[-1].id if page else query.after)

    def show_webhook(self, slug: str, webhook_id: str) -> webhook_wire.MeshWebhookReply:
        row = self._store.read(queries.webhook, self._mesh(slug).id, webhook_id)
        return webhook_wire.MeshWebhookReply(views.webhook_to_wire(row, self._broker.steady))

    def add_webhook(
        self, slug: str, command: webhook_wire.CreateMeshWebhook
    ) -> webhook_wire.MeshWebhookChanged:
        """Add a webhook; only this reply contains its secret."""
        mesh = self._mesh(slug)
        self._check_webhook_url(command.url)
        secret = requested_secret(command.secret, False) or webhook_signature.new_secret()
        webhook_id = self._store.write(admin_writes.add_webhook, mesh.id, command.url, secret)
        self._broker.reload()
        return webhook_wire.MeshWebhookChanged(self.show_webhook(slug, webhook_id).webhook, secret)

    def change_webhook(
        self, slug: str, webhook_id: str, command: webhook_wire.ChangeMeshWebhook
    ) -> webhook_wire.MeshWebhookChanged:
        mesh = self._mesh(slug)
        if command.url is not None:
            self._check_webhook_url(command.url)
        secret = requested_secret(command.secret, command.new_secret)
        self._store.write(admin_writes.change_webhook, mesh.id, webhook_id, command, secret)
        self._broker.reload()
        self._broker.dispatch.changed_webhooks.add(webhook_id)
        self._broker.dispatch.webhook_work.set()
        return webhook_wire.MeshWebhookChanged(self.show_webhook(slug, webhook_id).webhook, secret)

    def remove_webhook(self, slug: str, webhook_id: str) -> wire.ChangeReply:
        mesh = self._mesh(slug)
        if not self._store.write(admin_writes.remove_webhook, mesh.id, webhook_id):
            raise webhook_wire.WebhookNotFound(details={"webhook_id": webhook_id[:100]})
        self._broker.reload()
        return wire.ChangeReply(True)

    # -- reading ---------------------------------------------------------------------------------

    def history(self, slug: str, member: str | None, query: wire.HistoryQuery) -> wire.HistoryPage:
        mesh = self._mesh(slug)
        limit = min(query.limit, PAGE_MAX)
        page, more = self._store.read(listings.history, mesh.id, slug, member, query.after, limit)
        after = page[-1].history_id if page else query.after
        return wire.HistoryPage(page, after, more)

    def status(self) -> wire.BrokerStatus:
        broker = self._broker
        counted = self._store.read(queries.counts)
        pruned = self._store.read(queries.noted_ms, PRUNED)
        jump_ms, jumped_at = broker.steady.last_jump
        return wire.BrokerStatus(
            meshes=len(broker.directory.by_id),
            members=broker.directory.members,
            links=len(broker.dispatch),
            orphans=self.orphan_count,
            pruned_at=None if pruned is None else iso(pruned),
            broker_id=broker.signatures.broker_id,
            epoch=broker.epoch,
            clock_jump_seconds=jump_ms / 1000,
            clock_jumped_at=jumped_at,
            **counted,
        )

    def check_orphans(self) -> list[Orphan]:
        """Run the orphan check now. Every orphan is a broker fault, logged as an error."""
        before_ms = self._broker.clock.now_ms() - int(FANOUT_SECONDS_MAX * 1000)
        rows = self._store.read_slow(find_orphans, before_ms, ORPHAN_ROWS_MAX)
        self.orphan_count = len(rows)
        metrics.orphans.set(len(rows))
        metrics.orphan_checks.labels("something" if rows else "nothing").inc()
        if rows:
            rules = sorted({row.rule for row in rows})
            self._broker.log.error("broker_atomicity_violation_found", count=len(rows), rules=rules)
        return rows

    # -- steps -------------------------------------------------------------------------------------

    def _mesh(self, slug: str) -> MeshRow:
        return self._broker.directory.mesh(slug)

    def _member(self, mesh: MeshRow, pubkey: str) -> wire.MemberReply:
        return wire.MemberReply(self._to_wire(self._broker.directory.find(mesh.id, pubkey)))

    def _to_wire(self, row: MemberRow) -> wire.Member:
        connections = self._broker.dispatch.connections_of(row.mesh_id, row.pubkey)
        running_on = next((link.instance.name for link in connections if link.instance), None)
        refused = next((link.refused.name for link in connections if link.refused), None)
        return views.member_to_wire(row, bool(connections), running_on, refused)

    def _broadcast(self, mesh: MeshRow, event: str, pubkey: str, **more: Any) -> None:
        frame = {"type": "event", "event": event, "mesh": mesh.slug, "member": pubkey, **more}
        self._broker.dispatch.broadcast(mesh.id, frame)

    def _check_webhook_url(self, url: str | None) -> None:
        if self._check_url is None:
            raise webhook_wire.WebhooksNotAvailable
        if url is not None:
            self._check_url(url)


def check_key(pubkey: str) -> None:
    if not signing.is_key(pubkey):
        raise Invalid(
            "pubkey is not an ed25519 public key",
            details={"field": "pubkey"},
            hint="pass 64 lowercase hexadecimal digits, as printed by agentlip mesh keygen",
        )
