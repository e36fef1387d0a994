"""Where subsystems meet: the outbox's sends and this appliance's broker, the broker's deliveries
and its inbox, a hook's acts and the outbox, the webhooks of hub and courier and the outbox. Each
knows only its own side's shapes."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from appliance.broker import wire as broker_wire
from appliance.broker.calling import Called
from appliance.broker.local import LocalLink
from appliance.broker.parts import Parts as BrokerParts
from appliance.hub.webhooks.service import Handed, Webhooks
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.kernel.log import Log
from appliance.kernel.loop import Loop
from appliance.outbox import wire as outbox_wire
from appliance.outbox.hooks.service import Order
from appliance.outbox.identity.service import Identity
from appliance.outbox.inbox import lists
from appliance.outbox.inbox import wire as inbox_wire
from appliance.outbox.inbox.parts import Parts as InboxParts
from appliance.outbox.inbox.remote import Remote
from appliance.outbox.inbox.service import Inbox, Signer
from appliance.outbox.inbox.signed import rotation_text
from appliance.outbox.service import Outbox
from appliance.outbox.target import Later, LocalTarget, Outgoing, Refused, item_of
from appliance.outbox.webhook import WEBHOOK, Call, WebhookTarget

PLACE_KIND = "topic"
# Principals of sends that the appliance asks for itself; no token is called like them.
HOOKS, WEBHOOKS, COURIER = "appliance:hooks", "appliance:webhooks", "appliance:courier"


def home_target(
    broker: BrokerParts,
    own_key: Callable[[str], str],
    suspended: ApplianceError | None = None,
) -> LocalTarget:
    """Sends to the broker of this same appliance, as the member that we are there. While it is
    suspended nobody knows its meshes: sends wait."""

    def ask(sends: Sequence[Outgoing]) -> list[tuple[int, Any, float | None]]:
        if suspended is not None:
            raise suspended
        # All sends of one call are of one mesh.
        key = own_key(sends[0].mesh)
        answers = broker.broker.accept_many(key, [item_of(send) for send in sends])
        told = []
        for status, body in answers:
            shown = body if isinstance(body, dict) else msgspec.to_builtins(body)
            told.append((status, shown, shown.get("retry_after")))
        return told

    def serves(mesh: str) -> bool:
        return suspended is not None or mesh in broker.broker.directory.by_slug

    return LocalTarget(ask, serves)


def refusal_of(
    inbox: Inbox, broker: BrokerParts, identity: Identity
) -> Callable[[str], ApplianceError | None]:
    """Why the outbox takes no sends to a mesh now: its broker revoked our key. Of a broker
    elsewhere the inbox remembers it; the broker here is asked."""

    def refusal(mesh: str) -> ApplianceError | None:
        row = broker.broker.directory.by_slug.get(mesh)
        revoked = None
        if isinstance(inbox.desks.get(mesh), Remote):
            revoked = inbox.revoked.get(mesh)
        elif row is not None:
            own = identity.in_mesh(mesh).public_hex
            try:
                broker.broker.directory.member(row.id, own)
            except broker_wire.MemberIsRevoked as error:
                revoked = None if "successor" in error.details else own
            except broker_wire.NotAMember:
                pass  # it may be added yet: sends wait
        if revoked is None:
            return None
        return outbox_wire.MemberRevoked(details={"mesh": mesh, "member": revoked})

    return refusal


def on_revoked(inbox: Inbox, identity: Identity) -> Callable[[str, str], None]:
    """What a broker said of the key in force; of a former key it says nothing new."""

    def note(mesh: str, pubkey: str) -> None:
        if pubkey == identity.in_mesh(mesh).public_hex and isinstance(
            inbox.desks.get(mesh), Remote
        ):
            inbox.note_revoked(mesh, pubkey)

    return note


def send_order(outbox: Outbox) -> Callable[[Order], None]:
    """What a hook may send goes the way of every send."""

    def send(order: Order) -> None:
        outbox.send(
            outbox_wire.Send(
                to=order.to,
                message=order.message,
                meta=order.meta,
                reply_to_id=order.reply_to_id,
                client_message_id=order.client_message_id,
                mesh=order.mesh,
            ),
            principal=HOOKS,
        )

    return send


# -- webhooks ------------------------------------------------------------------------------

DISABLED_RETRY_SECONDS = 30.0


class WebhookBook:
    """The hub's webhooks as the outbox asks for them, attempt by attempt."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks

    def find(self, send: Outgoing) -> Call | Refused | Later:
        meta = send.meta or {}
        ready = self._webhooks.ready(
            send.destination_ref,
            str(meta.get("webhook-id", send.client_message_id)),
            str(meta.get("content-type", "application/json")),
            send.body.encode(),
        )
        if ready == "deleted":
            return Refused("the webhook was deleted", "WEBHOOK_DELETED")
        if isinstance(ready, str):
            return Later("the webhook is disabled", DISABLED_RETRY_SECONDS)
        return Call(ready.url, ready.headers)

    def tell(self, ref: str, outcome: str) -> None:
        self._webhooks.heard(ref, outcome)


class MeshHooks:
    """Webhooks of meshes, called as those of the hub are."""

    def __init__(self, target: WebhookTarget) -> None:
        self._target = target

    @property
    def seconds_max(self) -> float:
        return self._target.attempt_seconds_max

    def check(self, url: str) -> None:
        self._target.check_url(url)

    def call(self, url: str, headers: dict[str, str], body: str) -> Called:
        result = self._target.attempt(Call(url, headers), body)
        if isinstance(result, Later):
            return Called("failed", result.reason, result.retry_after_seconds)
        return Called("gone", result.reason) if isinstance(result, Refused) else Called("delivered")


class WebhookPost:
    """The outbox as the hub's feeder sees it."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def waiting(self, webhook_id: str, most: int) -> int:
        return self._outbox.waiting(WEBHOOK, webhook_id, most)

    def take(self, handed: Sequence[Handed]) -> int:
        sends = [
            outbox_wire.Send(
                to=one.webhook_id,
                message=one.body,
                meta={"webhook-id": one.message_id, "content-type": one.content_type},
                client_message_id=one.key,
                target=WEBHOOK,
            )
            for one in handed[: self._outbox.settings.batch_max]
        ]
        try:
            results = self._outbox.send_many(sends, inside=True, principal=WEBHOOKS)
        except ApplianceError:
            return 0  # busy, or no room on the disk: they stay in the log
        for place, result in enumerate(results):
            # An id that is used up was taken before; whatever else is wrong, nothing is skipped.
            if isinstance(result, ApplianceError) and not isinstance(result, outbox_wire.IdReused):
                return place
        return len(results)


def webhook_sink(outbox: Callable[[], Outbox]) -> Callable[[str, str, dict[str, Any]], None]:
    """Takes what the courier's triggers send as webhooks: (url, key, payload), unsigned."""

    def take(url: str, key: str, payload: dict[str, Any]) -> None:
        body = msgspec.json.encode(payload, order="deterministic")
        digest = hashlib.sha256(b"\0".join((key.encode(), url.encode(), body))).hexdigest()
        send = outbox_wire.Send(
            to=url, message=body.decode(), client_message_id=f"cw_{digest}", target=WEBHOOK
        )
        with suppress(outbox_wire.IdReused):  # it was taken before
            outbox().send(send, inside=True, principal=COURIER)

    return take


class HomeDesk:
    """The broker of this appliance, asked as its member."""

    def __init__(self, broker: BrokerParts, mesh: str, signer: Signer) -> None:
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


class HomeMeshes(Loop):
    """Receives from the meshes of our own broker in which our key is a member.

    Looks again and again: a mesh is made, a member added, revoked or rotated while we run.
    """

    name = "home_meshes"
    interval_seconds = 1.0

    def __init__(
        self, broker: BrokerParts, inbox: InboxParts, identity: Identity, clock: Clock, log: Log
    ) -> None:
        super().__init__(clock, log)
        self._broker = broker
        self._parts = inbox
        self._identity = identity
        self._links: dict[str, LocalLink] = {}

    def run_once(self, now_ms: int) -> dict[str, int]:
        directory = self._broker.broker.directory
        elsewhere = self._parts.receivers
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
        inbox = self._parts.inbox

        def take(pushes: list[broker_wire.Push]) -> None:
            inbox.receive_many([_push(push) for push in pushes], "local")

        def hear(event: dict[str, Any]) -> None:
            name, member = event.get("event"), event.get("member")
            if name in ("peer_join", "peer_leave"):
                inbox.announce(str(name), slug, pubkey=member)

        signer = self._identity.in_mesh(slug)
        desk = HomeDesk(self._broker, slug, signer)
        inbox.know(slug)
        inbox.desks[slug] = desk
        try:
            link = self._broker.subscribe_local(slug, signer.public_hex, take, hear)
        except ApplianceError as error:
            self._parts.local[slug] = _state(slug, "waiting", error.message, now_ms)
            return
        self._links[slug] = link
        desk.say = link.set_status
        link.set_status(inbox.profile(slug).status)
        self._parts.local[slug] = _state(slug, "local", "", now_ms)
        inbox.announce("daemon_reconnect", slug)

    def _is_in(self, slug: str) -> bool:
        return HomeDesk(self._broker, slug, self._identity.in_mesh(slug)).is_member

    def _leave(self, slug: str) -> None:
        link = self._links.pop(slug)
        reason = link.closed[1] if link.closed is not None else "no member"
        link.stop()
        self._parts.local.pop(slug, None)
        self._parts.inbox.desks.pop(slug, None)
        self._parts.inbox.announce("daemon_disconnect", slug, reason=reason)


def _push(push: broker_wire.Push) -> inbox_wire.Push:
    return inbox_wire.Push(**msgspec.structs.asdict(push))


def _state(slug: str, state: str, reason: str, now_ms: int) -> inbox_wire.LinkState:
    return inbox_wire.LinkState(slug, state, reason, iso(now_ms), [])
