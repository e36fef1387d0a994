"""What delivers a send: a protocol, what it may say, and how a broker's answer is read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from appliance.mesh.fingerprint import DestinationKind, Priority

Meta = dict[str, Any]
MAIL = "mail"
TRANSIENT = frozenset({401, 408, 425, 429})
"""Refusals that say nothing of the send: of when it came, or of the request's signature (a clock
that is wrong must not kill a whole outbox). Every other 4xx is for good, except those of a key."""
OF_THE_KEY = frozenset({"NOT_A_MEMBER", "MEMBER_REVOKED"})
"""Refusals of the member's key, which say nothing of the send: another key may be added."""


class Outgoing(msgspec.Struct, frozen=True):
    """A send on its way. `attempt` counts from 1."""

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


class Delivered(msgspec.Struct, frozen=True):
    """The receiver has it, now or since an earlier attempt (`duplicate`)."""

    broker_message_id: str | None = None
    history_id: str | None = None
    duplicate: bool = False
    history_available: bool | None = None


class Refused(msgspec.Struct, frozen=True):
    """For good: the send dies."""

    reason: str
    code: str = "REFUSED"


class Later(msgspec.Struct, frozen=True):
    """Not now. `reason` is kept with the send, so it holds no secret. `revoked_key`: the member's
    key, if the broker has revoked it."""

    reason: str
    retry_after_seconds: float | None = None
    revoked_key: str | None = None


Result = Delivered | Refused | Later


class Target(Protocol):
    """Delivers what names it. Never raises for what a receiver does; what it raises all the same
    counts as Later."""

    name: str

    def deliver(self, send: Outgoing) -> Result: ...


@runtime_checkable
class Batching(Protocol):
    """A target that takes many at a time, all of one route; answers in their order."""

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]: ...


@runtime_checkable
class Placing(Protocol):
    """A target with destinations of its own kind: what `to` means, and the route to there."""

    def place(self, to: str) -> tuple[DestinationKind, str, str]:
        """Kind, reference and route; raises Invalid."""
        ...


@runtime_checkable
class Checking(Protocol):
    """A target that can't carry everything."""

    def check(self, body: bytes, meta: Meta | None) -> None:
        """Raises Invalid, before anything is stored."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A target that serves some meshes only."""

    def serves(self, mesh: str) -> bool: ...


@runtime_checkable
class Closing(Protocol):
    def close(self) -> None: ...


Targets = Mapping[str, Target]


def item_of(send: Outgoing) -> dict[str, Any]:
    """One send as a broker takes it."""
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
    """What a broker's answer to one send means.

    Only what looks like a broker's is believed to be final: a success names the send, a refusal
    is a JSON object that says what is wrong. The page of some proxy is neither.
    """
    told = body if isinstance(body, dict) else {}
    if status in (200, 201):
        broker_message_id = told.get("broker_message_id")
        if told.get("client_message_id") != send.client_message_id or not broker_message_id:
            return Later(f"an answer {status} that names another send or none")
        history_id = told.get("history_id")
        available = told.get("history_available")
        return Delivered(
            broker_message_id=str(broker_message_id),
            history_id=None if history_id is None else str(history_id),
            duplicate=bool(told.get("duplicate", status == 200)),
            history_available=available if isinstance(available, bool) else None,
        )
    reason = _reason(status, told)
    if told.get("code") in OF_THE_KEY:
        return Later(reason, retry_after, _revoked_key(told))
    if 400 <= status < 500 and status not in TRANSIENT:
        if not reason:
            return Later(f"an answer {status} that does not come from a broker")
        return Refused(reason, str(told.get("code") or told.get("conflict") or status))
    return Later(reason or f"the broker answered {status}", retry_after)


def _revoked_key(told: Mapping[str, Any]) -> str | None:
    """None if the key was rotated: the member goes on under another one."""
    details = told.get("details")
    if told.get("code") != "MEMBER_REVOKED" or not isinstance(details, Mapping):
        return None
    return None if details.get("successor") else str(details.get("member"))


def is_a_brokers(body: Any) -> bool:
    """Whether a refusal says what is wrong, as a broker's does."""
    return isinstance(body, dict) and bool(_reason(400, body))


def _reason(status: int, told: Mapping[str, Any]) -> str:
    """What the broker said, short enough to keep; empty when it said nothing."""
    words = [str(told[name]) for name in ("error", "code", "conflict") if told.get(name)]
    return f"{status}: {', '.join(dict.fromkeys(words))}"[:500] if words else ""


Ask = Callable[[Sequence[Outgoing]], Sequence[tuple[int, Any, float | None]]]
"""Hands sends to a broker in this process: status, body and Retry-After for each, in order."""


class LocalTarget:
    """The broker of this same appliance, by way of a function that app.py hands in."""

    name = "broker"

    def __init__(self, ask: Ask, serves: Callable[[str], bool] = lambda _mesh: True) -> None:
        self._ask = ask
        self._serves = serves

    def serves(self, mesh: str) -> bool:
        return self._serves(mesh)

    def deliver(self, send: Outgoing) -> Result:
        return self.deliver_many([send])[0]

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        answers = self._ask(sends)
        return [result_of(send, *answer) for send, answer in zip(sends, answers, strict=True)]


class ByMesh:
    """The brokers by their meshes: those of the settings, and for the rest the one at home."""

    name = "broker"

    def __init__(self, remote: Mapping[str, Any], local: Any = None) -> None:
        self._remote = dict(remote)
        self._local = local

    def serves(self, mesh: str) -> bool:
        return mesh in self._remote or (self._local is not None and self._local.serves(mesh))

    @property
    def meshes(self) -> list[str]:
        return sorted(self._remote)

    def deliver(self, send: Outgoing) -> Result:
        return self.deliver_many([send])[0]

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        broker = self._remote.get(sends[0].mesh, self._local)
        if broker is None:
            return [Later("no broker is known for this mesh") for _ in sends]
        results: list[Result] = broker.deliver_many(sends)
        return results

    def close(self) -> None:
        for broker in self._remote.values():
            broker.close()
