"""Calls webhooks: one POST to a checked address, and its result.

The name is resolved here, all addresses are checked, and the connection goes to one. Redirects,
which would bypass the check, are not followed.
"""

import ssl
from collections.abc import Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from appliance.kernel.delivery import CallResult
from appliance.kernel.http_limits import HttpLimits, HttpResponse
from appliance.kernel.log import plain, without_path
from appliance.kernel.pool import time_limit
from appliance.kernel.unreachable import Unreachable
from appliance.web import safe_connect
from appliance.web.address import BadWebhookUrl, Rules, check_url
from appliance.web.safe_connect import Resolve

CONNECT_SECONDS = 5.0
REPLY_SECONDS = 15.0  # for the whole response
ANSWER_BYTES_MAX = 65_536  # response bytes that are read
ANSWER_SHOWN_BYTES = 400  # response bytes that the reason contains
RETRY_AFTER_SECONDS_MAX = 86_400.0
_USER_AGENT = "agentlip-webhook/1"


class WebhookCaller:
    """`rules` say which addresses are allowed. Safe for many greenlets."""

    def __init__(
        self,
        rules: Rules,
        resolver: Resolve = safe_connect.resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._rules = rules
        self._resolve = resolver
        self._tls = tls

    def check(self, url: str) -> None:
        """Raise BadWebhookUrl if the URL is not allowed."""
        check_url(url, self._rules)

    def call(
        self, url: str, headers: dict[str, str], body: str | None, *, keeps_answer: bool = False
    ) -> CallResult:
        """Send one POST, or a GET without a body, and return its result; receiver failures are
        returned, not raised. With `keeps_answer` the reason has the receiver's response: only for
        the operator's URLs, because clients could read internal services that way."""
        try:
            reply = self.request(url, headers, None if body is None else body.encode())
        except (BadWebhookUrl, Unreachable) as error:
            return _failure(str(error))
        except TimeoutError:
            return _failure("the receiver did not respond in time")
        start = reply.body[:ANSWER_SHOWN_BYTES].decode(errors="replace") if keeps_answer else ""
        answer = plain(without_path(start))
        return result_of(reply.status, seconds_of(reply.headers.get("Retry-After")), answer)

    def request(self, url: str, headers: dict[str, str], body: bytes | None) -> HttpResponse:
        """Call as `call` does. Raises Unreachable, BadWebhookUrl and TimeoutError."""
        from appliance.kernel.http_client import HttpClient

        url_parts = urlsplit(url)
        path = (url_parts.path or "/") + (f"?{url_parts.query}" if url_parts.query else "")
        sent = {**headers, "user-agent": _USER_AGENT, "connection": "close"}
        limits = HttpLimits(CONNECT_SECONDS, REPLY_SECONDS, ANSWER_BYTES_MAX)

        def send_to(address: str) -> HttpResponse:
            client = HttpClient(url, limits, "the receiver", self._tls, address)
            with closing(client):
                method = "GET" if body is None else "POST"
                return client.request(method, path, lambda: sent, body or b"", status_only=True)

        with time_limit(CONNECT_SECONDS + REPLY_SECONDS):
            return safe_connect.connect_first(self._addresses(url), send_to)

    def _addresses(self, url: str) -> Sequence[str]:
        """Return the addresses of the URL's host; all are allowed."""
        check_url(url, self._rules)
        url_parts = urlsplit(url)
        host, secure = url_parts.hostname or "", url_parts.scheme == "https"
        port = url_parts.port or (443 if secure else 80)
        addresses = safe_connect.resolve_allowed(self._resolve, host, port, self._rules)
        if not secure and not self._rules.allow_http:  # the name may be local, the address not
            for address in addresses:
                check_url(f"http://[{address}]/" if ":" in address else f"http://{address}/",
                          self._rules)  # fmt: skip
        return addresses


def result_of(status: int, retry_after: float | None, answer: str = "") -> CallResult:
    """Map a status: 2xx is delivered, 410 is final, everything else is retried."""
    if 200 <= status < 300:
        return CallResult("delivered")
    if status == 410:
        return CallResult("gone", "the receiver responded with 410 Gone")
    if 300 <= status < 400:
        return _failure(f"the receiver responded with {status}; redirects are not followed")
    return _failure(f"the receiver responded with {status}{answer and ': ' + answer}", retry_after)


def seconds_of(value: Any) -> float | None:
    """Return the seconds in Retry-After; None for a date or an invalid value."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return min(seconds, RETRY_AFTER_SECONDS_MAX) if seconds > 0 else None


def _failure(reason: str, retry_after: float | None = None) -> CallResult:
    return CallResult("failed", reason, retry_after)
