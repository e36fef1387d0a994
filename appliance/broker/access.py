"""Authenticates requests: by a member's signature, or by a token of the appliance.

A signed request needs no token. Its principal is `member:` and the key, and it may do what a
member may do for itself. A token with `broker:accept` may send for any member, which it names in
X-Agentlip-Member.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from appliance.broker import metrics, wire
from appliance.broker.directory import Directory
from appliance.broker.nonces import NoncesFull, NonceUsed, UsedNonces
from appliance.broker.rows import UsedNonceRow
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import Invalid
from appliance.mesh import frames
from appliance.mesh.signing import (
    hello_text,
    is_good,
    is_hex_key,
    is_nonce,
    request_text,
)

MEMBER, BROKER, TIMESTAMP, NONCE, SIGNATURE, VERSION = (
    "HTTP_X_AGENTLIP_MEMBER",
    "HTTP_X_AGENTLIP_BROKER",
    "HTTP_X_AGENTLIP_TIMESTAMP",
    "HTTP_X_AGENTLIP_NONCE",
    "HTTP_X_AGENTLIP_SIGNATURE",
    "HTTP_X_AGENTLIP_SIGNATURE_VERSION",
)
PREFIX = "member:"
MEMBER_SCOPES = frozenset({wire.ACCEPT, wire.READ, wire.SUBSCRIBE})
Environ = Mapping[str, Any]
SKEW_SECONDS = 300.0  # how far a signature's timestamp may be off
NONCES_MAX = 200_000  # signed requests remembered against replays, about 150 B each
NONCES_MEMBER_MAX = 100_000  # signed requests remembered per member: 333/s for 300 s


def member_of(principal: Principal) -> str | None:
    """The key that signed the request; None: it was authenticated by a token."""
    key = principal.id.removeprefix(PREFIX)
    return key if key != principal.id else None


def sender_of(principal: Principal, environ: Environ) -> str:
    """The member that the request sends for."""
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
    """Verifies signatures of requests and hellos, and refuses replays.

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

    def restore(
        self, broker_id: str, used: Sequence[UsedNonceRow], signed_after_ms: int = 0
    ) -> None:
        """Set the broker's id and the stored nonces, in the order of their expiry. Signatures that
        are not newer than `signed_after_ms` are refused: their nonces may be lost."""
        self.broker_id = broker_id
        self._signed_after_ms = signed_after_ms
        now_ms, longest_ms = self._clock.now_ms(), 2 * self._skew_ms
        self._nonces.restore(
            ((nonce.member, nonce.digest, min(nonce.expires_ms - now_ms, longest_ms) / 1000)
             for nonce in used),
            self._clock.monotonic(),
        )  # fmt: skip

    def forget(self) -> int:
        """Drop expired nonces; how many are left."""
        self._nonces.forget(self._clock.monotonic())
        return len(self._nonces)

    def request(self, environ: Environ) -> Callable[[bytes], Principal] | None:
        """For `Operation.signer`: a function that verifies the body, or None without a signature.

        Everything but the signature itself is checked before the body is read.
        """
        given = environ.get(SIGNATURE)
        if given is None:
            return None
        member, stamp = str(environ.get(MEMBER, "")), str(environ.get(TIMESTAMP, ""))
        self._check_member(member)
        self._check_version(str(environ.get(VERSION, "1")) != "1")
        self._check_time(stamp)
        method, path = str(environ["REQUEST_METHOD"]), str(environ.get("PATH_INFO", ""))
        nonce, broker = str(environ.get(NONCE, "")), self.broker_id
        self._check_broker(str(environ.get(BROKER, "")))
        query = str(environ.get("QUERY_STRING", ""))
        verify = self._verifier(
            member,
            str(given),
            lambda body: request_text(
                method, broker, path.encode("latin-1"), query, stamp, nonce, body
            ),
        )

        def verify_once(body: bytes) -> Principal:
            principal = verify(body)
            self._use(member, nonce, int(stamp) + self._skew_ms)
            return principal

        return verify_once if is_nonce(nonce) else self._wrong

    def hello(self, hello: frames.Hello, challenge: str) -> bool:
        """Whether this frame authenticates its member; False: it needs a challenge first.

        Raises if the signature is wrong. A challenge belongs to one connection, so a hello cannot
        be replayed on another.
        """
        self._check_member(hello.member)
        if not hello.signature:
            return False
        self._check_version(hello.nonce != "")
        if not challenge or hello.nonce != challenge:
            self._count("used")
            raise wire.SignatureUsed
        text = hello_text(self.broker_id, hello.mesh, hello.member, challenge)
        self._verifier(hello.member, hello.signature, lambda _body: text)(b"")
        return True

    def _verifier(
        self, member: str, given: str, text_of: Callable[[bytes], bytes]
    ) -> Callable[[bytes], Principal]:
        def verify(body: bytes) -> Principal:
            if not is_good(member, text_of(body), given):
                self._wrong(body)
            self._count("good")
            return Principal(PREFIX + member, member[:16], MEMBER_SCOPES)

        return verify

    def _use(self, member: str, nonce: str, expires_ms: int) -> None:
        seconds = max(0, expires_ms - self._clock.now_ms()) / 1000
        try:
            digest = self._nonces.use(member, nonce, self._clock.monotonic(), seconds)
        except NonceUsed:
            self._count("used")
            raise wire.SignatureUsed from None
        except NoncesFull as full:
            self._count("full")
            raise wire.TooManySignatures(retry_after=full.seconds) from None
        self.unsaved.append(UsedNonceRow(expires_ms, digest, member))

    def _check_member(self, member: str) -> None:
        if not self._directory().has_key(member):
            self._count("unknown")
            if not is_hex_key(member):
                raise wire.BadSignature
            raise wire.NotAMember(details={"member": member})

    def _check_version(self, current: bool) -> None:
        if not current:
            self._count("old")
            raise wire.OldSignature(details={"version": 2})

    def _check_time(self, stamp: str) -> None:
        digits = stamp.isascii() and stamp.isdigit() and len(stamp) <= 15
        now_ms = self._clock.now_ms()
        wrong = not digits or abs(int(stamp) - now_ms) > self._skew_ms
        if wrong or int(stamp) <= self._signed_after_ms:
            self._count("stale")
            raise wire.StaleSignature(
                details={"now_ms": now_ms, "now": iso(now_ms), "skew_ms_max": self._skew_ms}
            )

    def _check_broker(self, named: str) -> None:
        if named != self.broker_id:
            self._count("elsewhere")
            raise wire.WrongBroker(details={"broker_id": self.broker_id})

    def _wrong(self, _body: bytes) -> NoReturn:
        self._count("wrong")
        raise wire.BadSignature

    def _count(self, outcome: str) -> None:
        metrics.signatures.labels(outcome).inc()
