"""Authenticates requests by an agent's or admin's signature.

Checks in order: header 401, agent unknown 401, revoked 403, pending 403, timestamp 401, signature
401, repetition 401. Everything before the signature is checked without the body. A change's
signature is stored in the change's transaction, or before the change is refused.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.network.encoding import SKEW_MS, of_timestamp
from appliance.network.keys import AgentKey, AgentPublicKey
from appliance.network.request import RequestSignature, is_request_signed, of_header
from appliance.relay import metrics, wire
from appliance.relay.directory import AgentDirectory
from appliance.relay.limits import RelayLimits
from appliance.relay.rows import UsedSignatureRow
from appliance.relay.states import PENDING, REVOKED

Environ = Mapping[str, Any]
Verify = Callable[[bytes], Principal]
PREFIX = "agent:"
AGENT_SCOPES = frozenset({wire.AGENT})
ADMIN_SCOPES = frozenset({wire.ADMIN})
READING = frozenset({"GET", "HEAD"})
PRUNE_MS = 60_000  # between two prunings for signatures in memory


class UsedSignatures:
    """Digests of used signatures, until they expire. Digests that are not in the store yet are
    also kept by agent name.

    The relay admits 10,000 requests a minute, so there are at most 110,000."""

    def __init__(self) -> None:
        self._until_ms: dict[bytes, int] = {}
        self._unsaved: dict[str, set[bytes]] = {}
        self._prune_ms = 0

    def restore(self, rows: Iterable[UsedSignatureRow]) -> None:
        self._until_ms = dict(rows)

    def use(self, name: str, digest: bytes, until_ms: int, now_ms: int) -> bool:
        """Record a use; return False if the signature was used before."""
        if digest in self._until_ms:
            return False
        if now_ms >= self._prune_ms:
            self._prune(now_ms)
        self._until_ms[digest] = until_ms
        self._unsaved.setdefault(name, set()).add(digest)
        return True

    def list_unsaved(self, name: str) -> list[UsedSignatureRow]:
        digests = self._unsaved.get(name, ())
        return [UsedSignatureRow(digest, self._until_ms[digest]) for digest in digests]

    def note_saved(self, name: str, rows: Iterable[UsedSignatureRow]) -> None:
        left = self._unsaved.pop(name, set()).difference(row.digest for row in rows)
        if left:
            self._unsaved[name] = left

    def _prune(self, now_ms: int) -> None:
        self._prune_ms = now_ms + PRUNE_MS
        current = {digest: ms for digest, ms in self._until_ms.items() if ms >= now_ms}
        unsaved = {name: digests & current.keys() for name, digests in self._unsaved.items()}
        self._until_ms, self._unsaved = current, unsaved


class RelaySignatures:
    def __init__(
        self,
        directory: AgentDirectory,
        limits: RelayLimits,
        clock: Clock,
        *,
        agent_keys: bool = False,
        is_private: bool = False,
    ) -> None:
        """Take the public operations. `agent_keys`: admins may also sign with their agent's key.
        `is_private`: only a key's owner learns whether a name exists, and its status."""
        self._directory = directory
        self._limits = limits
        self._clock = clock
        self.used = UsedSignatures()
        self._agent_keys = agent_keys
        self._unknown_key = AgentKey.generate().public if is_private else None
        self._signed_after_ms = 0

    def restore(self, used: Iterable[UsedSignatureRow], signed_after_ms: int) -> None:
        """Refuse these signatures, and all up to `signed_after_ms`, as possibly used."""
        self.used.restore(used)
        self._signed_after_ms = signed_after_ms

    def agent(self, environ: Environ) -> Verify:
        """Require an active agent's signature; for `Operation.signer`."""
        return self._signer(environ, AGENT_SCOPES, self._agent_keys_of)

    def anybody(self, environ: Environ) -> Verify | None:
        """Verify a signature if there is one; for open operations."""
        if "HTTP_AUTHORIZATION" in environ:
            return self.agent(environ)
        self._limits.charge("relay")
        return None

    def admin(self, environ: Environ) -> Verify:
        """Require an admin's signature, with the admin key."""
        return self._signer(environ, ADMIN_SCOPES, self._admin_keys_of)

    def _signer(
        self,
        environ: Environ,
        scopes: frozenset[str],
        keys_of: Callable[[str], list[AgentPublicKey]],
    ) -> Verify:
        self._limits.charge("relay")
        try:
            signed = of_header(str(environ.get("HTTP_AUTHORIZATION", "")))
            if signed is None:
                raise wire.NotSigned
            keys, refusal = self._find_keys(signed.name, keys_of)
            timestamp = str(environ.get("HTTP_X_TIMESTAMP", ""))
            signed_ms = self._check_time(timestamp)
        except ApplianceError as error:
            raise self._count(error) from None

        def verify(body: bytes) -> Principal:
            try:
                self._check_signature(environ, signed, keys, timestamp, body)
                if refusal is not None:
                    raise refusal
                # Reads may be repeated: signatures within a millisecond are equal.
                if environ["REQUEST_METHOD"] not in READING:
                    self._use_once(signed, signed_ms)
            except ApplianceError as error:
                raise self._count(error) from None
            metrics.signatures.labels("GOOD").inc()
            return Principal(PREFIX + signed.name, signed.name, scopes)

        return verify

    def _find_keys(
        self, name: str, keys_of: Callable[[str], list[AgentPublicKey]]
    ) -> tuple[list[AgentPublicKey], ApplianceError | None]:
        """Return the keys that may sign; in a private directory also the later refusals."""
        try:
            return keys_of(name), None
        except ApplianceError as error:
            if self._unknown_key is None:
                raise
            row = self._directory.agents.get(name)
            key = self._unknown_key if row is None else self._directory.key(row.public_key)
            return [key], error

    def _agent_keys_of(self, name: str) -> list[AgentPublicKey]:
        row = self._directory.agents.get(name)
        if row is None:
            raise wire.UnknownAgent
        if row.status == REVOKED:
            raise wire.AgentRevoked
        if row.status == PENDING:
            raise wire.AgentPending
        return [self._directory.key(row.public_key)]

    def _admin_keys_of(self, name: str) -> list[AgentPublicKey]:
        """Return an admin's keys. An admin need not be an agent yet: the first one approves
        itself."""
        admin, row = self._directory.admins.get(name), self._directory.agents.get(name)
        if admin is None:
            self._agent_keys_of(name)
            raise wire.NotAnAdmin(details={"name": name})
        if row is not None and row.status == REVOKED:
            raise wire.AgentRevoked
        keys = [self._directory.key(admin.public_key)]
        if self._agent_keys and row is not None and row.status != PENDING:
            keys.append(self._directory.key(row.public_key))
        return keys

    def _check_time(self, timestamp: str) -> int:
        """Return milliseconds since 1970."""
        now_ms = self._clock.now_ms()
        try:
            signed_ms = of_timestamp(timestamp)
        except (ValueError, OverflowError):
            signed_ms = 0
        if abs(signed_ms - now_ms) > SKEW_MS or signed_ms <= self._signed_after_ms:
            raise wire.NotCurrent(details={"now": iso(now_ms), "skew_ms_max": SKEW_MS})
        return signed_ms

    def _check_signature(
        self,
        environ: Environ,
        signed: RequestSignature,
        keys: list[AgentPublicKey],
        timestamp: str,
        body: bytes,
    ) -> None:
        method, path = str(environ["REQUEST_METHOD"]), str(environ.get("PATH_INFO", ""))
        query = str(environ.get("QUERY_STRING", ""))
        request = (method, path, query, timestamp, body)
        if not any(is_request_signed(key, signed.signature, *request) for key in keys):
            raise wire.WrongSignature

    def _use_once(self, signed: RequestSignature, signed_ms: int) -> None:
        digest = hashlib.sha256(f"{signed.name}\n{signed.signature}".encode()).digest()
        until_ms, now_ms = signed_ms + SKEW_MS, self._clock.now_ms()
        if not self.used.use(signed.name, digest, until_ms, now_ms):
            raise wire.RequestRepeated

    def _count(self, error: ApplianceError) -> ApplianceError:
        metrics.signatures.labels(error.code).inc()
        return error


def agent_of(principal: Principal) -> str | None:
    """Return the agent or admin that signed the request; None without a signature."""
    name = principal.id.removeprefix(PREFIX)
    return name if name != principal.id else None
