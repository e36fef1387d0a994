"""Authenticates requests by the signature of an agent or of an admin.

The order of the checks: header 401, agent unknown 401, revoked 403, pending 403, timestamp 401,
signature 401, repetition 401. Everything before the signature is checked without the body.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock, iso
from appliance.kernel.errors import ApplianceError
from appliance.network.encoding import SKEW_MS, is_current, of_timestamp
from appliance.network.keys import AgentPublicKey
from appliance.network.request import RequestSignature, is_request_signed, of_header
from appliance.relay import metrics, wire
from appliance.relay.directory import AgentDirectory
from appliance.relay.limits import RelayLimits
from appliance.relay.states import PENDING, REVOKED

Environ = Mapping[str, Any]
Verify = Callable[[bytes], Principal]
UseOnce = Callable[[bytes, int], bool]
PREFIX = "agent:"
AGENT_SCOPES = frozenset({wire.AGENT})
ADMIN_SCOPES = frozenset({wire.ADMIN})
READING = frozenset({"GET", "HEAD"})


class RelaySignatures:
    """`use_once` stores the digest of a signature until a time; False: it was stored before."""

    def __init__(
        self,
        directory: AgentDirectory,
        limits: RelayLimits,
        clock: Clock,
        use_once: UseOnce,
        *,
        agent_keys: bool = False,
    ) -> None:
        """`agent_keys`: admins may also sign with the key of their agent."""
        self._directory = directory
        self._limits = limits
        self._clock = clock
        self._use_once = use_once
        self._agent_keys = agent_keys
        self.signed_after_ms = 0

    def agent(self, environ: Environ) -> Verify:
        """For `Operation.signer`: an active agent has to sign the request."""
        return self._signer(environ, AGENT_SCOPES, self._agent_keys_of)

    def anybody(self, environ: Environ) -> Verify | None:
        """For operations that are open: a signature is verified if there is one."""
        if "HTTP_AUTHORIZATION" in environ:
            return self.agent(environ)
        self._limits.take("relay")
        return None

    def admin(self, environ: Environ) -> Verify:
        """An admin has to sign the request, with its admin key."""
        return self._signer(environ, ADMIN_SCOPES, self._admin_keys_of)

    def _signer(
        self,
        environ: Environ,
        scopes: frozenset[str],
        keys_of: Callable[[str], list[AgentPublicKey]],
    ) -> Verify:
        self._limits.take("relay")
        try:
            signed = of_header(str(environ.get("HTTP_AUTHORIZATION", "")))
            if signed is None:
                raise wire.NotSigned
            keys = keys_of(signed.name)
            timestamp = self._check_time(str(environ.get("HTTP_X_TIMESTAMP", "")))
        except ApplianceError as error:
            raise self._count(error) from None

        def verify(body: bytes) -> Principal:
            try:
                self._check_signature(environ, signed, keys, timestamp, body)
            except ApplianceError as error:
                raise self._count(error) from None
            metrics.signatures.labels("GOOD").inc()
            return Principal(PREFIX + signed.name, signed.name, scopes)

        return verify

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
        """An admin need not be an agent yet: the first one approves itself."""
        admin, row = self._directory.admins.get(name), self._directory.agents.get(name)
        if admin is None:
            self._agent_keys_of(name)
            raise wire.NotAnAdmin
        if row is not None and row.status == REVOKED:
            raise wire.AgentRevoked
        keys = [self._directory.key(admin.public_key)]
        if self._agent_keys and row is not None and row.status != PENDING:
            keys.append(self._directory.key(row.public_key))
        return keys

    def _check_time(self, timestamp: str) -> str:
        now_ms = self._clock.now_ms()
        try:
            current = (
                is_current(timestamp, now_ms) and of_timestamp(timestamp) > self.signed_after_ms
            )
        except (ValueError, OverflowError):
            current = False
        if not current:
            raise wire.NotCurrent(details={"now": iso(now_ms), "skew_ms_max": SKEW_MS})
        return timestamp

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
        # Reads may be repeated: the signature is the same within a millisecond.
        if method not in READING:
            digest = hashlib.sha256(f"{signed.name}\n{signed.signature}".encode()).digest()
            if not self._use_once(digest, of_timestamp(timestamp) + SKEW_MS):
                raise wire.RequestRepeated

    def _count(self, error: ApplianceError) -> ApplianceError:
        metrics.signatures.labels(error.code).inc()
        return error


def agent_of(principal: Principal) -> str | None:
    """The agent or admin that signed the request; None: nobody did."""
    name = principal.id.removeprefix(PREFIX)
    return name if name != principal.id else None
