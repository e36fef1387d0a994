"""Delivery targets: their protocols, their results, and how a broker's reply becomes a result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from appliance.mesh.fingerprint import DestinationKind, Priority

Meta = dict[str, Any]
MAIL, CODE_MAIL = "mail", "code-mail"
TRANSIENT_STATUSES = frozenset({401, 408, 425, 429})
"""4xx statuses that are not about the send, which is retried. 401 is about the request's signature:
a wrong clock must not dead-letter a whole outbox. Every other 4xx is final, except KEY_REFUSALS."""
KEY_REFUSALS = frozenset({"NOT_A_MEMBER", "MEMBER_REVOKED"})
"""Codes for refusals because of the member's key. The send is retried: the key may be added
later."""


class Outgoing(msgspec.Struct, frozen=True):
    """A send that is being delivered. `attempt` counts from 1."""

    mesh: str
    client_message_id: str
    fingerprint: bytes
    destination_kind: DestinationKind
    destination_ref: str
    reply_to_id: str | None
    priority: Priority
    meta: Meta | None
    body: str
    attempt: int
    accepted_ms: int
    target: str
    traceparent: str | None = None


class Delivered(msgspec.Struct, frozen=True):
    """The receiver has the send, from this attempt or an earlier one (`duplicate`)."""

    broker_message_id: str | None = None
    history_id: str | None = None
    duplicate: bool = False
    history_available: bool | None = None


class Undeliverable(msgspec.Struct, frozen=True):
    """Final refusal: the send becomes a dead letter."""

    reason: str
    code: str = "REFUSED"


class RetryLater(msgspec.Struct, frozen=True):
    """Try again later. `reason` is stored with the send, and must not contain secrets.
    `revoked_key`: the member's key, if the broker revoked it."""

    reason: str
    retry_after_seconds: float | None = None
    revoked_key: str | None = None


Result = Delivered | Undeliverable | RetryLater
Deliver = Callable[[Sequence[Outgoing]], list[Result]]


class DeliveryTarget:
    """A target that delivers the sends naming it. An exception counts as RetryLater; receivers'
    failures are returned, not raised. A target implements `deliver`, or `deliver_many` for
    batches."""

    name: str
    takes_batches = False  # `deliver_many` gets one route's sends, and keeps their order
    shares_connection = False  # `run` delivers several sends sooner than as many calls
    waiting_max: int | None = None  # sends that may wait for one destination
    internal_only = False  # only for this process, which signs its deliveries

    def deliver(self, send: Outgoing) -> Result:
        return self.deliver_many([send])[0]

    @contextmanager
    def run(self) -> Iterator[Deliver]:
        """Yield a function that delivers one route's sends one after another: `deliver_many`, or a
        variant with something shared, such as a connection."""
        yield self.deliver_many

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        """Deliver in order. No send is delivered behind one to the same destination that must be
        repeated."""
        return [self.deliver(send) for send in sends]

    def resolve(self, to: str) -> tuple[DestinationKind, str, str] | None:
        """Return a destination's kind, reference and route, or None if `to` names one in a mesh.
        Raises Invalid."""
        return None

    def check(self, body: bytes, meta: Meta | None) -> None:
        """Check a send before it is stored; raise Invalid if the target can't deliver it."""

    def serves(self, mesh: str) -> bool:
        return True

    def unknown(self, mesh: str, ids: Sequence[str]) -> list[str] | None:
        """Return which client_message_ids the mesh's broker has not accepted; None: it is
        unreachable now."""
        return None

    def close(self) -> None:
        """Close; called when the process ends."""


Targets = Mapping[str, DeliveryTarget]


def item_of(send: Outgoing) -> dict[str, Any]:
    """Return the body of `POST /broker/v1/accept` for one send."""
    item: dict[str, Any] = {
        "mesh": send.mesh,
        "client_message_id": send.client_message_id,
        "request_fingerprint": send.fingerprint.hex(),
        "envelope_version": 1,
        "destination_kind": send.destination_kind,
        "destination_ref": send.destination_ref,
        "priority": send.priority,
        "body": send.body,
    }
    if send.reply_to_id is not None:
        item["reply_to_id"] = send.reply_to_id
    if send.meta:
        item["meta"] = send.meta
    return item


def result_of(send: Outgoing, status: int, body: Any, retry_after: float | None = None) -> Result:
    """Return the result for a broker's reply to one send.

    Only a reply that a broker wrote is final: a success names the send, and a refusal is a JSON
    object with an error. A proxy's error page is neither.
    """
    fields = body if isinstance(body, dict) else {}
    if status in (200, 201):
        broker_message_id = fields.get("broker_message_id")
        if fields.get("client_message_id") != send.client_message_id or not broker_message_id:
            return RetryLater(f"response {status} does not name this send")
        history_id = fields.get("history_id")
        available = fields.get("history_available")
        return Delivered(
            broker_message_id=str(broker_message_id),
            history_id=None if history_id is None else str(history_id),
            duplicate=bool(fields.get("duplicate", status == 200)),
            history_available=available if isinstance(available, bool) else None,
        )
    reason = _reason(status, fields)
    if fields.get("code") in KEY_REFUSALS:
        return RetryLater(reason, retry_after, _revoked_key(fields))
    if 400 <= status < 500 and status not in TRANSIENT_STATUSES:
        if not reason:
            return RetryLater(f"response {status} did not come from a broker")
        return Undeliverable(reason, str(fields.get("code") or fields.get("conflict") or status))
    return RetryLater(reason or f"the broker responded with {status}", retry_after)


def _revoked_key(fields: Mapping[str, Any]) -> str | None:
    """Return the revoked key; None if it was rotated, because the member then has another key."""
    details = fields.get("details")
    if fields.get("code") != "MEMBER_REVOKED" or not isinstance(details, Mapping):
        return None
    return None if details.get("successor") else str(details.get("member"))


def is_broker_refusal(body: Any) -> bool:
    """Return whether a broker wrote an error body: it names the error."""
    return isinstance(body, dict) and bool(_reason(400, body))


def _reason(status: int, fields: Mapping[str, Any]) -> str:
    """Return the error in a broker's reply, short enough to store; empty if there is none."""
    texts = [str(fields[name]) for name in ("error", "code", "conflict") if fields.get(name)]
    return f"{status}: {', '.join(dict.fromkeys(texts))}"[:500] if texts else ""


class BrokersByMesh(DeliveryTarget):
    """Chooses the broker by mesh: a remote one from the settings, or else the local one."""

    name = "broker"
    takes_batches = True

    def __init__(self, remote: Targets, local: DeliveryTarget | None = None) -> None:
        self._remote = dict(remote)
        self._local = local

    def serves(self, mesh: str) -> bool:
        return mesh in self._remote or (self._local is not None and self._local.serves(mesh))

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        broker = self._broker(sends[0].mesh)
        if broker is None:
            return [RetryLater("no broker is configured for this mesh") for _ in sends]
        return broker.deliver_many(sends)

    def unknown(self, mesh: str, ids: Sequence[str]) -> list[str] | None:
        broker = self._broker(mesh)
        return None if broker is None else broker.unknown(mesh, ids)

    def _broker(self, mesh: str) -> DeliveryTarget | None:
        return self._remote.get(mesh, self._local)

    def close(self) -> None:
        for broker in self._remote.values():
            broker.close()
