"""Authenticates requests: by a member's signature, or by a token of the appliance.

A signed request needs no token. The principal is `member:` and the key, and may do what members may
do for themselves. A token with `broker:accept` may send for any member, named in X-Agentlip-Member.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from appliance.broker import metrics, wire
from appliance.broker.directory import Directory
from appliance.broker.nonces import UsedNonces, digest_of
from appliance.broker.rows import UsedNonceRow
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.mesh import frames
from appliance.mesh.signing import (
    hello_text,
    is_good,
    is_hex_key,
    is_nonce,
    request_text,
)

MEMBER, BROKER, TIMESTAMP, NONCE, SIGNATURE = (
    "HTTP_X_AGENTLIP_MEMBER",
    "HTTP_X_AGENTLIP_BROKER",
    "HTTP_X_AGENTLIP_TIMESTAMP",
    "HTTP_X_AGENTLIP_NONCE",
    "HTTP_X_AGENTLIP_SIGNATURE",
)
PREFIX = "member:"
MEMBER_SCOPES = frozenset({wire.ACCEPT, wire.READ, wire.SUBSCRIBE})
Environ = Mapping[str, Any]
SKEW_SECONDS = 300.0  # how far a signature's timestamp may be off
NONCES_MAX = 200_000  # signed requests remembered against replays, about 150 B each
NONCES_MEMBER_MAX = 100_000  # signed requests remembered per member: 333/s for 300 s


def member_of(principal: Principal) -> str | None:
    """Return the key that signed the request; None: a token authenticated it."""
    key = principal.id.removeprefix(PREFIX)
    return key if key != principal.id else None


def sender_of(principal: Principal, environ: Environ) -> str:
    """Return the member that the request sends for."""
    signed = member_of(principal)
    if signed is not None:
        return signed
    named = str(environ.get(MEMBER, ""))
    if not named:
        raise Invalid(
            "X-Agentlip-Member must name the sending member",
            details={"field": "X-Agentlip-Member"},
            hint="set it to the whole public key, as listed by agentlip mesh members MESH",
        )
    return named


class Signatures:
    """A verifier for signed requests and hellos, which refuses replays.

    broker_id  the id that members sign for, set when the store is open
    unsaved    nonces that are not in the store yet
    """

    def __init__(self, directory: Callable[[], Directory], clock: Clock) -> None:
        self._directory = directory
        self._skew_ms = int(SKEW_SECONDS * 1000)
        self._clock = clock
        self._nonces = UsedNonces(NONCES_MAX, NONCES_MEMBER_MAX)
        self.broker_id = ""
        self._signed_after_ms = 0
        self.unsaved: list[UsedNonceRow] = []

    def restore(self, broker_id: str, used: Sequence[UsedNonceRow], signed_after_ms: int) -> None:
        """Set the broker's id and the stored nonces. Signatures that are not newer than
        `signed_after_ms` are refused: their nonces may be lost."""
        self.broker_id = broker_id
        self._signed_after_ms = signed_after_ms
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        for nonce in used:
            left_ms = min(nonce.expires_ms - now_ms, 2 * self._skew_ms)
            self._nonces.add(nonce.member, nonce.digest, now + left_ms / 1000)

    def prune(self) -> None:
        """Prune expired nonces."""
        self._nonces.prune(self._clock.monotonic())

    def request(
        self, environ: Environ, save: Callable[[], object] | None = None
    ) -> Callable[[bytes], Principal] | None:
        """Return `Operation.signer`: a function that verifies the body, or None without a
        signature.

        Everything but the signature itself is checked before the body is read. `save` is called
        with a new nonce in `unsaved`, before the request runs.
        """
        given = environ.get(SIGNATURE)
        if given is None:
            return None
        member, stamp = str(environ.get(MEMBER, "")), str(environ.get(TIMESTAMP, ""))
        self._check_member(member)
        self._check_time(stamp)
        method, path = str(environ["REQUEST_METHOD"]), str(environ.get("PATH_INFO", ""))
        nonce, broker = str(environ.get(NONCE, "")), self.broker_id
        if str(environ.get(BROKER, "")) != broker:
            self._refuse("elsewhere", wire.WrongBroker(details={"broker_id": broker}))
        if not is_nonce(nonce):
            self._refuse("wrong", wire.BadSignature())
        query = str(environ.get("QUERY_STRING", ""))

        def verify_once(body: bytes) -> Principal:
            text = request_text(method, broker, path.encode("latin-1"), query, stamp, nonce, body)
            self._verify(member, text, str(given))
            self._use(member, nonce, int(stamp) + self._skew_ms)
            if save is not None:
                save()
            return Principal(PREFIX + member, member[:16], MEMBER_SCOPES)

        return verify_once

    def hello(self, hello: frames.Hello, challenge: str) -> bool:
        """Return whether this frame authenticates its member; False: a challenge is needed first.

        Raises if the signature is wrong. A challenge belongs to one connection, so a hello cannot
        be replayed elsewhere.
        """
        self._check_member(hello.member)
        if not hello.signature:
            return False
        if not challenge or hello.nonce != challenge:
            self._refuse("used", wire.SignatureUsed())
        text = hello_text(self.broker_id, hello.mesh, hello.member, challenge)
        self._verify(hello.member, text, hello.signature)
        return True

    def _verify(self, member: str, text: bytes, signature: str) -> None:
        if not is_good(member, text, signature):
            self._refuse("wrong", wire.BadSignature())
        metrics.signatures.labels("good").inc()

    def _use(self, member: str, nonce: str, expires_ms: int) -> None:
        now, digest = self._clock.monotonic(), digest_of(member, nonce)
        if digest in self._nonces:
            self._refuse("used", wire.SignatureUsed())
        if wait := self._nonces.wait_seconds(member, now):
            self._refuse("full", wire.TooManySignatures(retry_after=wait))
        self._nonces.add(member, digest, now + (expires_ms - self._clock.now_ms()) / 1000)
        self.unsaved.append(UsedNonceRow(expires_ms, digest, member))

    def _check_member(self, member: str) -> None:
        if not self._directory().has_key(member):
            if not is_hex_key(member):
                self._refuse("unknown", wire.BadSignature())
            self._refuse("unknown", wire.NotAMember(details={"member": member}))

    def _check_time(self, stamp: str) -> None:
        digits = stamp.isascii() and stamp.isdigit() and len(stamp) <= 15
        now_ms = self._clock.now_ms()
        wrong = not digits or abs(int(stamp) - now_ms) > self._skew_ms
        if wrong or int(stamp) <= self._signed_after_ms:
            details = {"now_ms": now_ms, "now": iso(now_ms), "skew_ms_max": self._skew_ms}
            self._refuse("stale", wire.StaleSignature(details=details))

    def _refuse(self, outcome: str, error: ApplianceError) -> NoReturn:
        metrics.signatures.labels(outcome).inc()
        raise error
