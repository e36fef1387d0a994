"""The operations of incoming webhooks: accept deliveries; add, show, test and remove endpoints."""

import hashlib
import re
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from appliance.hub.access import POST
from appliance.hub.events import encode
from appliance.hub.incoming import metrics, queries, senders, wire, writes
from appliance.hub.incoming.event import DeliveredEvent
from appliance.hub.incoming.queries import PRINCIPAL
from appliance.hub.incoming.templates import read_event
from appliance.hub.rows import IncomingRow
from appliance.hub.service import Hub, keyed_request
from appliance.hub.text import check_name
from appliance.kernel import webhook_signature
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, PayloadTooLarge, Unavailable
from appliance.kernel.idempotency import KeyedRequest, Reply, call_once, stored_reply
from appliance.web.body import BodyPlan

KEYS_MAX = 100_000  # delivery ids, about 300 bytes each; older ones than 48 hours are pruned too
PRUNED_MAX = 5_000  # in one transaction, which other writes wait for
ATTACHED_BYTES_MAX = 200 * 1024  # larger payloads are left out of an envelope: it may have 256 KiB

EnvelopeSink = Callable[[str, bytes], None]
"""(stream, envelope). Envelopes with the same id are stored once."""

_is_secret = re.compile(r"[!-~]{16,200}").fullmatch
# Verifies requests to unknown names: nobody has its secret.
NOBODY = IncomingRow("", "json", secrets.token_hex(32), None, None, None, "[]", "")


class Delivery(msgspec.Struct, frozen=True):
    """A verified request. `event`: None for a ping."""

    row: IncomingRow
    keys: list[str]
    event: DeliveredEvent | None
    body: bytes

    @property
    def text(self) -> str:
        return "" if self.event is None else self.event.markdown()

    @property
    def identities(self) -> list[KeyedRequest]:
        """Return the keys in the idempotency table. A repeated id with other content is a
        repetition too, so all have the same fingerprint."""
        return [(PRINCIPAL, "POST", f"incoming/{self.row.name}", key, "") for key in self.keys]


class IncomingWebhooks:
    """One per process. `stream`: stores envelopes; None while the courier is off."""

    def __init__(self, hub: Hub, clock: Clock, stream: EnvelopeSink | None = None) -> None:
        self._hub = hub
        self._store = hub.store
        self._clock = clock
        self._stream = stream
        self._rows: dict[str, IncomingRow] | None = None
        self._plan = BodyPlan(dict[str, Any], wire.BODY_BYTES_MAX)
        self.read_body = self._plan.read

    @property
    def _endpoints(self) -> dict[str, IncomingRow]:
        """Return the endpoints, in memory: a wrong signature must not cost a read."""
        if self._rows is None:
            self._rows = self._store.read(queries.endpoints)
        return self._rows

    # -- deliveries ------------------------------------------------------------------------

    def accept(self, name: str, headers: senders.Headers, body: bytes) -> Reply:
        """Verify and accept a request. A repeated delivery gets the first one's reply, with the
        status 200. Raises DeliveryRefused, DeliveryStale or Invalid."""
        row = self._endpoints.get(name, NOBODY)
        verified = senders.verify(row, headers, body, self._clock.now_ms() // 1000)
        return self._accept(self._read(row, verified, headers, body))

    def _accept(self, delivery: Delivery) -> Reply:
        row = delivery.row
        if delivery.event is None:
            return Reply(200, encode(wire.DeliveryAccepted(row.name, ping=True)))
        send = self._post if row.stream is None else self._enqueue
        reply = send(delivery, delivery.event)
        counted = metrics.duplicates if reply.replayed else metrics.accepted
        counted.labels(row.template).inc()
        return msgspec.structs.replace(reply, status=200) if reply.replayed else reply

    def _read(
        self, row: IncomingRow, verified: senders.Verified, headers: senders.Headers, body: bytes
    ) -> Delivery:
        payload = self._plan.decode(body)
        event = read_event(row.template, headers, payload)
        keys = [] if event is None else senders.keys_of(row, verified, headers, payload, body)
        return Delivery(row, keys, event, body)

    def _post(self, delivery: Delivery, event: DeliveredEvent) -> Reply:
        return self._store.write(
            writes.accept_once, delivery.identities, writes.post, delivery.row, event,
            delivery.text,
        )  # fmt: skip

    def _enqueue(self, delivery: Delivery, event: DeliveredEvent) -> Reply:
        """Store the envelope, then the ids. After a crash between both, the sender's repetition
        has the same envelope id, by which the courier recognizes it."""
        if self._stream is None:
            raise wire.NoCourier
        row, identities = delivery.row, delivery.identities
        for identity in identities:
            if (before := self._store.read(stored_reply, identity)) is not None:
                return before
        envelope_id, envelope = self._envelope(delivery, event)
        assert row.stream is not None, "the endpoint has no topic"
        self._stream(row.stream, envelope)
        return self._store.write(writes.accept_once, identities, writes.record, row, envelope_id)

    def _envelope(self, delivery: Delivery, event: DeliveredEvent) -> tuple[str, bytes]:
        row, key = delivery.row, (delivery.keys or [secrets.token_hex(16)])[0]
        id_ = "in_" + hashlib.sha256(f"{row.name}\n{key}".encode()).hexdigest()[:32]
        fits = len(delivery.body) <= ATTACHED_BYTES_MAX
        payload = {
            **writes.attachment_of(row, event), "text": delivery.text,
            "body": msgspec.Raw(delivery.body) if fits else None,
        }  # fmt: skip
        return id_, encode({
            "id": id_, "ts": iso(self._clock.now_ms()), "type": f"incoming.{row.template}",
            "from": f"incoming:{row.name}", "payload": payload,
        })  # fmt: skip

    def prune(self, _now_ms: int) -> int:
        excess = self._store.read(queries.count_keys) - KEYS_MAX
        return self._store.write(writes.prune, min(excess, PRUNED_MAX)) if excess > 0 else 0

    # -- endpoints -------------------------------------------------------------------------

    def create(
        self, command: wire.CreateEndpoint, principal: Principal, key: str | None = None
    ) -> Reply:
        if (command.topic_id is None) == (command.stream is None):
            raise wire.BadEndpoint("an incoming webhook needs either a topic or a stream")
        if command.signature_header is not None and command.template != "json":
            raise wire.BadEndpoint("only the template json has a header of its own")
        if command.stream is not None and command.to:
            raise wire.BadEndpoint("an envelope has no addressees: leave out `to`")
        if command.secret is not None and not _is_secret(command.secret):
            raise wire.BadEndpoint("a secret has 16 to 200 visible ASCII characters, no spaces")
        for name in command.to:
            check_name(to=name)
        if command.stream is not None and self._stream is None:
            raise wire.NoCourier
        identity = keyed_request(principal, "POST", "incoming", key, command)
        topic = command.topic_id and self._hub.access.find_topic(principal, POST, command.topic_id)
        command = msgspec.structs.replace(command, topic_id=topic)
        secret = command.secret or webhook_signature.new_secret()
        return self._change(*call_once(identity, writes.create, command, secret))

    def delete(self, name: str) -> Reply:
        return self._change(writes.delete, name)

    def list_all(self) -> wire.EndpointList:
        return wire.EndpointList([writes.to_wire(row) for row in self._endpoints.values()])

    def show(self, name: str) -> wire.EndpointShown:
        return wire.EndpointShown(writes.to_wire(self._require(name)))

    def test(self, name: str, command: wire.TestDelivery) -> wire.DeliveryTested:
        """Return what a payload becomes, as if its sender had signed it."""
        row, body = self._require(name), command.payload.encode()
        if len(body) > wire.BODY_BYTES_MAX:
            raise PayloadTooLarge(details={"bytes_max": wire.BODY_BYTES_MAX})
        headers = {"x-github-delivery": f"test-{secrets.token_hex(8)}"}
        headers |= {name.lower(): value for name, value in command.headers.items()}
        delivery = self._read(row, senders.Verified(None, False), headers, body)
        accepted = None
        if command.send:
            accepted = msgspec.json.decode(self._accept(delivery).body, type=wire.DeliveryAccepted)
        fields = {} if delivery.event is None else writes.attachment_of(row, delivery.event)
        id_ = next((key.removeprefix("id:") for key in delivery.keys), None)
        return wire.DeliveryTested(id_, delivery.text, fields, accepted)

    def _require(self, name: str) -> IncomingRow:
        row = self._endpoints.get(name)
        if row is None:
            raise wire.NoSuchEndpoint(details={"name": name})
        return row

    def _change(self, function: Any, *args: Any) -> Reply:
        try:
            reply: Reply = self._store.write(function, *args)
            return reply
        finally:
            self._rows = None


def count_refusal(error: ApplianceError) -> None:
    """Count a refused delivery by its reason."""
    reasons = {
        wire.DeliveryRefused: "credential", wire.DeliveryStale: "stale", PayloadTooLarge: "size",
    }  # fmt: skip
    reason = (
        "unavailable" if isinstance(error, Unavailable) else reasons.get(type(error), "payload")
    )
    metrics.refused.labels(reason).inc()
