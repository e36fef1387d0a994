"""Sends an agent's or admin's signed requests to a relay, repeated if the connection breaks.

Only over TLS 1.3, except on this machine or with the switch `plain_http`; redirects are not
followed.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Invalid, Unavailable
from appliance.network.keys import AgentKey
from appliance.network.request import request_headers
from appliance.sdk.network.post import tls_context

TIMEOUT_SECONDS = 10.0
REPLY_BYTES_MAX = 8 * 1024 * 1024
PAUSES_SECONDS = (0.2, 0.4)  # before the second and the third attempt
REVOKED = "AGENT_REVOKED"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class RelayUnreachable(Unavailable):
    code = "RELAY_UNREACHABLE"
    default_message = "the relay does not respond"
    default_hint = "check the URL: curl URL/health"


class BadRelayUrl(Invalid):
    code = "BAD_RELAY_URL"
    default_message = "the relay's URL is not https, and the relay is not on this machine"
    default_hint = (
        "use the relay's https URL; on a trusted network: agentlip network init --plain-http, or "
        '"plain_http": true in agent.json'
    )


class RelayRefused(Invalid):
    """A refusal. `details.status` and `details.code` are the relay's."""

    code = "RELAY_REFUSED"
    default_message = "the relay refused the request"
    default_hint = "details.code is the reason: docs/reference/errors.md explains the codes"


def check_relay(url: str) -> None:
    """Check that nobody between can read or change requests. Raises BadRelayUrl."""
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    except ValueError:
        is_safe = False
    if not is_safe:
        raise BadRelayUrl


def is_final(error: ApplianceError, *codes: str | None) -> bool:
    """Return whether the relay refused for good, by its code: this agent is revoked, or may not
    see the other one. `codes`: further final codes."""
    final = {REVOKED, "DIRECTORY_PRIVATE", *codes}
    return isinstance(error, RelayRefused) and error.details["code"] in final


class RelayClient:
    """Without a key, only for requests that need no signature. Safe for many threads.

    `skew_ms`: the relay's clock minus this one, to about a second; None before the first reply.
    `revoked`: the relay's text if the last reply refused the agent as revoked."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        name: str = "",
        key: AgentKey | None = None,
        pause: Callable[[float], object] = time.sleep,
        *,
        plain_http: bool = False,
    ) -> None:
        """Take the relay's URL. Raises BadRelayUrl."""
        if not plain_http:
            check_relay(url)
        self._url = url.rstrip("/")
        self._clock = clock
        self.name = name
        self.key = key
        self._pause = pause
        self.skew_ms: int | None = None
        self.revoked = ""

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded reply. Each attempt has its own signature. Raises RelayRefused, and
        RelayUnreachable if no attempt got a reply in JSON."""
        for seconds in PAUSES_SECONDS:
            try:
                return self.attempt(method, path, body)
            except RelayUnreachable:
                self._pause(seconds)
        return self.attempt(method, path, body)

    def attempt(
        self, method: str, path: str, body: Any = None, seconds: float = TIMEOUT_SECONDS
    ) -> Any:
        """Attempt once, and wait at most this long for bytes. Raises like `request`."""
        raw = b"" if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self.key is not None:
            now_ms = self._clock.now_ms()
            headers |= request_headers(self.key, self.name, method, path, raw, now_ms)
        try:
            request = Request(self._url + path, raw or None, headers, method=method)
            with urlopen(request, timeout=seconds) as reply:
                self._note_time(reply.headers)
                self.revoked = ""
                return msgspec.json.decode(reply.read(REPLY_BYTES_MAX))
        except HTTPError as error:
            self._note_time(error.headers)
            raise self._refusal(error.code, error.read(REPLY_BYTES_MAX)) from None
        except (OSError, ValueError):  # also a reply that is not JSON
            raise RelayUnreachable(details={"url": self._url}) from None

    def _note_time(self, headers: Any) -> None:
        with suppress(TypeError, ValueError, OverflowError):  # without Date, or not a time
            at = parsedate_to_datetime(headers["Date"])
            self.skew_ms = int(at.timestamp() * 1000) - self._clock.now_ms()

    def _refusal(self, status: int, body: bytes) -> RelayRefused | RelayUnreachable:
        try:
            fields = msgspec.json.decode(body, type=dict[str, Any])
        except ValueError:
            return RelayUnreachable(details={"url": self._url, "status": status})
        text = str(fields.get("error") or f"the relay responded with {status}")
        self.revoked = text if fields.get("code") == REVOKED else ""
        return RelayRefused(
            text, details={"status": status, "code": fields.get("code")}, hint=fields.get("hint")
        )


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse: a redirect could lead to plain HTTP, with the request's signature."""


@cache
def _opener() -> OpenerDirector:
    return build_opener(HTTPSHandler(context=tls_context()), _NoRedirects())


def urlopen(request: Request, timeout: float) -> Any:
    return _opener().open(request, timeout=timeout)
