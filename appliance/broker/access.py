"""Who is asking: a member that signed its request, or a token of the appliance.

A signed request needs no token. Its principal is `member:` and the key; what it may do is only
what a member may do for itself. A token with `broker:accept` may send for any member, which it
names in the same header.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from appliance.broker import metrics, signature, wire
from appliance.broker.model import Directory
from appliance.broker.settings import BrokerSettings
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Invalid

MEMBER, TIMESTAMP, SIGNATURE = (
    "HTTP_X_AGENTLIP_MEMBER",
    "HTTP_X_AGENTLIP_TIMESTAMP",
    "HTTP_X_AGENTLIP_SIGNATURE",
)
PREFIX = "member:"
OF_MEMBERS = frozenset({wire.ACCEPT, wire.READ, wire.SUBSCRIBE})
USED_MAX = 100_000
Environ = Mapping[str, Any]


def member_of(principal: Principal) -> str | None:
    """The key with which the request was signed; None: it came with a token."""
    found = principal.id.removeprefix(PREFIX)
    return found if found != principal.id else None


def sender_of(principal: Principal, environ: Environ) -> str:
    """The member in whose name is sent."""
    signed = member_of(principal)
    if signed is not None:
        return signed
    named = str(environ.get(MEMBER, ""))
    if not named:
        raise Invalid(
            "X-Agentlip-Member must name the member that sends",
            details={"field": "X-Agentlip-Member"},
            hint="its whole public key; agentlip mesh members MESH",
        )
    return named


def only_itself(principal: Principal, mesh_id: str, pubkey: str, directory: Directory) -> None:
    """A member does that for itself; a token does it for anybody."""
    signed = member_of(principal)
    if signed is not None:
        directory.member(mesh_id, signed)
        if signed != pubkey:
            raise wire.NotYours


def within(principal: Principal, mesh_id: str, directory: Directory) -> str | None:
    """The member that asks, who must be one of this mesh; None for a token."""
    signed = member_of(principal)
    if signed is not None:
        directory.member(mesh_id, signed)
    return signed


class Signatures:
    """Judges signatures of requests and of hellos."""

    def __init__(
        self, directory: Callable[[], Directory], settings: BrokerSettings, clock: Clock
    ) -> None:
        self._directory = directory
        self._skew_ms = int(settings.signature_skew_seconds * 1000)
        self._clock = clock
        self._used: OrderedDict[str, int] = OrderedDict()

    def request(self, environ: Environ) -> Callable[[bytes], Principal] | None:
        """For `Operation.signer`: None if nobody signed; else what judges the body.

        Everything cheap is looked at before a byte of the body is read.
        """
        given = environ.get(SIGNATURE)
        if given is None:
            return None
        member, stamp = str(environ.get(MEMBER, "")), str(environ.get(TIMESTAMP, ""))
        self._look(member, stamp)
        method, path = str(environ["REQUEST_METHOD"]), str(environ.get("PATH_INFO", ""))

        def judge(body: bytes) -> Principal:
            text = signature.request_text(method, path, stamp, body)
            if not signature.is_good(member, text, str(given)):
                self._refuse("wrong")
                raise wire.BadSignature
            metrics.signatures.labels("good").inc()
            return Principal(PREFIX + member, member[:16], OF_MEMBERS)

        return judge

    def hello(self, said: wire.Hello) -> None:
        """The first frame of a link. Its signature is good once."""
        self._look(said.member, str(said.timestamp))
        text = signature.hello_text(said.mesh, said.member, said.timestamp)
        if not signature.is_good(said.member, text, said.signature):
            self._refuse("wrong")
            raise wire.BadSignature
        now_ms = self._clock.now_ms()
        while self._used and (
            len(self._used) >= USED_MAX or next(iter(self._used.values())) < now_ms
        ):
            self._used.popitem(last=False)
        if said.signature in self._used:
            self._refuse("used")
            raise wire.StaleSignature(details=self._time())
        self._used[said.signature] = now_ms + 2 * self._skew_ms
        metrics.signatures.labels("good").inc()

    def _look(self, member: str, stamp: str) -> None:
        if not self._directory().knows(member):
            self._refuse("unknown")
            raise wire.BadSignature
        digits = stamp.isascii() and stamp.isdigit() and len(stamp) <= 15
        if not digits or abs(int(stamp) - self._clock.now_ms()) > self._skew_ms:
            self._refuse("stale")
            raise wire.StaleSignature(details=self._time())

    def _time(self) -> dict[str, Any]:
        now_ms = self._clock.now_ms()
        return {"now_ms": now_ms, "now": iso(now_ms), "skew_ms_max": self._skew_ms}

    def _refuse(self, outcome: str) -> None:
        metrics.signatures.labels(outcome).inc()
