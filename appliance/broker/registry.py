"""Meshes, members, topics, queues, webhooks: changed here, and told to who is connected."""

from typing import Any

from appliance.broker import admin_writes, inspect, listings, metrics, queries, webhook_wire, wire
from appliance.broker.directory import MeshRow
from appliance.broker.dispatch import REVOKED
from appliance.broker.service import Broker
from appliance.broker.webhook_caller import Caller
from appliance.kernel import webhook_signature
from appliance.kernel.clock import iso
from appliance.kernel.errors import Invalid
from appliance.mesh import signing

SWEPT = "swept_ms"
ALL = wire.MeshRowsQuery()


class Registry:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._settings = broker.settings
        self.orphans_found: int | None = None

    # -- meshes ------------------------------------------------------------------------------

    def meshes(self, member: str | None) -> wire.MeshList:
        """All; for a member its own."""
        rows = self._broker.directory.by_slug.values()
        if member is not None:
            rows_of = {one.mesh_id for one in self._broker.directory.of_key(member)}
            return wire.MeshList([row.shown() for row in rows if row.id in rows_of])
        return wire.MeshList([row.shown() for row in rows])

    def create_mesh(self, command: wire.CreateMesh) -> wire.MeshShown:
        row = self._store.write(admin_writes.create_mesh, command, self._settings.meshes_max)
        self._broker.reload()
        return wire.MeshShown(row.shown())

    def show_mesh(self, slug: str) -> wire.MeshShown:
        return wire.MeshShown(self._mesh(slug).shown())

    def change_mesh(self, slug: str, command: wire.ChangeMesh) -> wire.MeshShown:
        self._store.write(admin_writes.change_mesh, self._mesh(slug).id, command)
        self._broker.reload()
        return self.show_mesh(slug)

    # -- members -----------------------------------------------------------------------------

    def members(self, slug: str, query: wire.MeshRowsQuery = ALL) -> wire.MemberList:
        mesh, connected = self._mesh(slug), self._broker.dispatch.connected
        limit = min(query.limit, self._settings.members_max)
        page, more, last = self._store.read(listings.members, mesh.id, query.after, limit)
        shown = [row.shown(bool(connected(mesh.id, row.pubkey))) for row in page]
        return wire.MemberList(shown, more, last)

    def add_member(self, slug: str, command: wire.AddMember) -> wire.MemberShown:
        mesh = self._mesh(slug)
        check_key(command.pubkey)
        most = self._settings.members_max
        self._store.write(admin_writes.add_member, mesh.id, command.pubkey, command.name, most)
        self._broker.reload()
        return self._member(mesh, command.pubkey)

    def rename_member(
        self, slug: str, key_or_name: str, command: wire.RenameMember
    ) -> wire.MemberShown:
        """Messages keep the name that their sender had."""
        mesh = self._mesh(slug)
        pubkey = self._broker.directory.find(mesh.id, key_or_name).pubkey
        self._store.write(admin_writes.rename_member, mesh.id, pubkey, command.name)
        self._broker.reload()
        self._tell(mesh, "member_renamed", pubkey, name=command.name)
        return self._member(mesh, pubkey)

    def revoke_member(self, slug: str, key_or_name: str) -> wire.MemberShown:
        """At once: what it sends is refused, its connections hear why and end."""
        mesh = self._mesh(slug)
        pubkey = self._broker.directory.find(mesh.id, key_or_name).pubkey
        done = self._store.write(admin_writes.revoke_member, mesh.id, pubkey)
        self._broker.reload()
        if done:
            self._tell(mesh, "member_revoked", pubkey)
        for receiver in self._broker.dispatch.connected(mesh.id, pubkey):
            receiver.close(REVOKED, "member_revoked")
        return self._member(mesh, pubkey)

    def rotate_member(
        self, slug: str, key_or_name: str, command: wire.RotateMember
    ) -> wire.MemberShown:
        """The member goes on under a new key, whose possession the proof shows."""
        mesh = self._mesh(slug)
        old = self._broker.directory.find(mesh.id, key_or_name)
        self._broker.directory.member(mesh.id, old.pubkey)
        check_key(command.pubkey)
        text = signing.rotation_text(slug, old.pubkey, command.pubkey)
        if not signing.is_good(command.pubkey, text, command.proof):
            raise wire.BadSignature("the proof is not the new key's signature")
        self._store.write(admin_writes.rotate_member, mesh.id, old.pubkey, command.pubkey, old.name)
        self._broker.reload()
        self._tell(mesh, "member_keypair_rotated", old.pubkey, successor=command.pubkey)
        for receiver in self._broker.dispatch.connected(mesh.id, old.pubkey):
            receiver.close(REVOKED, "member_keypair_rotated")
        return self._member(mesh, command.pubkey)

    # -- topics and queues ---------------------------------------------------------------------

    def places(self, slug: str, kind: str, query: wire.MeshRowsQuery = ALL) -> wire.PlaceList:
        mesh, settings = self._mesh(slug), self._settings
        limit = min(query.limit, settings.places_max)
        page, more = self._store.read(
            listings.places, mesh.id, kind, query.after, limit, settings.subscribers_max
        )
        return wire.PlaceList(page, more, page[-1].name if page else query.after)

    def create_place(self, slug: str, kind: str, name: str) -> tuple[wire.PlaceShown, bool]:
        mesh = self._mesh(slug)
        made = self._store.write(
            admin_writes.create_place, mesh.id, kind, name, self._settings.places_max
        )
        return self._place(mesh, kind, name), made

    def subscribe(self, slug: str, kind: str, name: str, subscriber: str) -> wire.Done:
        mesh = self._mesh(slug)
        if subscriber.startswith("webhook:"):
            if kind == "queue":
                raise Invalid("webhooks subscribe to topics", details={"field": "subscriber"})
            self._need_hooks()
        else:
            subscriber = self._broker.directory.find(mesh.id, subscriber).pubkey
        most = self._settings.subscribers_max
        done = self._store.write(admin_writes.subscribe, mesh.id, kind, name, subscriber, most)
        self._broker.reload()
        return wire.Done(done)

    def unsubscribe(self, slug: str, kind: str, name: str, subscriber: str) -> wire.Done:
        mesh = self._mesh(slug)
        if not subscriber.startswith("webhook:"):
            subscriber = self._broker.directory.find(mesh.id, subscriber).pubkey
        done = self._store.write(admin_writes.unsubscribe, mesh.id, kind, name, subscriber)
        self._broker.reload()
        return wire.Done(done)

    # -- webhooks ------------------------------------------------------------------------------

    def hooks(self, slug: str, query: wire.MeshRowsQuery = ALL) -> webhook_wire.HookList:
        mesh, now_ms = self._mesh(slug), self._broker.clock.now_ms()
        limit = min(query.limit, self._settings.places_max)
        page, more = self._store.read(listings.hooks, mesh.id, query.after, limit)
        last = page[-1].id if page else query.after
        return webhook_wire.HookList([row.shown(now_ms) for row in page], more, last)

    def show_hook(self, slug: str, hook_id: str) -> webhook_wire.HookShown:
        row = self._store.read(queries.hook, self._mesh(slug).id, hook_id)
        return webhook_wire.HookShown(row.shown(self._broker.clock.now_ms()))

    def add_hook(self, slug: str, command: webhook_wire.CreateHook) -> webhook_wire.HookChanged:
        """The answer holds its secret, this once."""
        mesh, most = self._mesh(slug), self._settings.places_max
        self._need_hooks().check(command.url)
        secret = checked(command.secret) or webhook_signature.new_secret()
        hook_id = self._store.write(admin_writes.add_hook, mesh.id, command.url, secret, most)
        self._broker.reload()
        return webhook_wire.HookChanged(self.show_hook(slug, hook_id).webhook, secret)

    def change_hook(
        self, slug: str, hook_id: str, command: webhook_wire.ChangeHook
    ) -> webhook_wire.HookChanged:
        mesh = self._mesh(slug)
        if command.url is not None:
            self._need_hooks().check(command.url)
        if command.secret is not None and command.new_secret:
            raise Invalid("secret and new_secret exclude each other", hint="give one of them",
                          details={"field": "new_secret"})  # fmt: skip
        secret = webhook_signature.new_secret() if command.new_secret else checked(command.secret)
        grace_ms = int(self._settings.webhook_secret_grace_hours * 3_600_000)
        self._store.write(admin_writes.change_hook, mesh.id, hook_id, command, secret, grace_ms)
        self._broker.reload()
        self._broker.dispatch.wake_hooks()
        return webhook_wire.HookChanged(self.show_hook(slug, hook_id).webhook, secret)

    def hook_deliveries(
        self, slug: str, hook_id: str, query: webhook_wire.HookDeliveriesQuery
    ) -> webhook_wire.HookDeliveries:
        """What it has not taken yet."""
        mesh = self._mesh(slug)
        row = self._store.read(queries.hook, mesh.id, hook_id)
        limit = min(query.limit, self._settings.page_max)
        found, more, last = self._store.read(
            listings.hook_deliveries, mesh.id, row.id, f"hook-{row.id}", query.after, limit
        )
        return webhook_wire.HookDeliveries(found, more, more, last)

    def remove_hook(self, slug: str, hook_id: str) -> wire.Done:
        mesh = self._mesh(slug)
        if not self._store.write(admin_writes.remove_hook, mesh.id, hook_id):
            raise webhook_wire.NoSuchHook(details={"webhook_id": hook_id[:100]})
        self._broker.reload()
        return wire.Done(True)

    # -- looking ---------------------------------------------------------------------------------

    def history(self, slug: str, member: str | None, query: wire.HistoryQuery) -> wire.History:
        mesh = self._mesh(slug)
        limit = min(query.limit, self._settings.page_max)
        page, more = self._store.read(listings.history, mesh.id, slug, member, query.after, limit)
        after = page[-1].history_id if page else query.after
        return wire.History(page, after, more)

    def status(self) -> wire.Status:
        broker = self._broker
        counted = self._store.read(queries.counts)
        swept = self._store.read(queries.noted_ms, SWEPT)
        jump_ms, jumped_at = broker.jumps.last
        return wire.Status(
            meshes=len(broker.directory.by_id),
            members=broker.directory.members,
            links=len(broker.dispatch),
            orphans=self.orphans_found,
            swept_at=None if swept is None else iso(swept),
            broker_id=broker.signatures.broker_id,
            clock_jump_seconds=jump_ms / 1000,
            clock_jumped_at=jumped_at,
            **counted,
        )

    def orphans(self) -> wire.Orphans:
        """Look now. Anything found is a fault of the broker, and logged as such."""
        before_ms = self._broker.clock.now_ms() - int(self._settings.fanout_seconds_max * 1000)
        most = self._settings.orphan_rows_max
        found = self._store.read_slow(inspect.orphans, before_ms, most)
        self.orphans_found = len(found)
        metrics.orphans.set(len(found))
        metrics.orphan_checks.labels("something" if found else "nothing").inc()
        if found:
            rules = sorted({one.rule for one in found})
            self._broker.log.error(
                "broker_atomicity_violation_found", count=len(found), rules=rules
            )
        slugs = {mesh.id: mesh.slug for mesh in self._broker.directory.by_id.values()}
        return wire.Orphans(
            [
                wire.Orphan(one.rule, slugs.get(one.mesh, one.mesh), one.broker_message_id,
                            one.sentence)
                for one in found[:most]
            ]
        )  # fmt: skip

    # -- steps -------------------------------------------------------------------------------------

    def _mesh(self, slug: str) -> MeshRow:
        return self._broker.directory.mesh(slug)

    def _member(self, mesh: MeshRow, pubkey: str) -> wire.MemberShown:
        connected = bool(self._broker.dispatch.connected(mesh.id, pubkey))
        return wire.MemberShown(self._broker.directory.find(mesh.id, pubkey).shown(connected))

    def _place(self, mesh: MeshRow, kind: str, name: str) -> wire.PlaceShown:
        most = self._settings.subscribers_max
        return wire.PlaceShown(self._store.read(queries.place, mesh.id, kind, name, most))

    def _tell(self, mesh: MeshRow, event: str, pubkey: str, **more: Any) -> None:
        frame = {"type": "event", "event": event, "mesh": mesh.slug, "member": pubkey, **more}
        self._broker.dispatch.tell(mesh.id, frame)

    def _need_hooks(self) -> Caller:
        if self._broker.hook_caller is None:
            raise webhook_wire.NoWebhooks
        return self._broker.hook_caller


def checked(secret: str | None) -> str | None:
    """Raises BadSecret."""
    if secret is not None:
        webhook_signature.key_of(secret)
    return secret


def check_key(pubkey: str) -> None:
    if not signing.is_key(pubkey):
        raise Invalid(
            "pubkey is no ed25519 public key",
            details={"field": "pubkey"},
            hint="64 lowercase hexadecimal digits; agentlip mesh keygen makes a pair",
        )
