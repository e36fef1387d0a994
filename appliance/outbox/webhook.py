"""Webhooks: a send becomes one POST to an address that was looked at before it is called.

Whom it goes to is asked for at each attempt, so a new URL or a new secret holds for what waits
too. Names are resolved here, every address is judged, and the connection goes to the very
address that was judged. Redirects are not followed: they would lead around that.
"""

import http.client
import socket
import ssl
from typing import Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.pool import within
from appliance.mesh.fingerprint import DestinationKind
from appliance.outbox import safe_connect
from appliance.outbox.brokerhttp import Unreachable, seconds_of
from appliance.outbox.safe_connect import Resolve
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.target import Delivered, Later, Outgoing, Refused, Result
from appliance.web.address import BadWebhookUrl, Rules, check_url

WEBHOOK = "webhook"
URLS = ("http://", "https://")
ANSWER_BYTES_MAX = 65_536  # of an answer that are read; nothing in it matters
_USER_AGENT = "agentlip-webhook/1"

Outcome = Literal["delivered", "failed", "gone"]


class Call(msgspec.Struct, frozen=True):
    """Where one attempt goes, and with which headers."""

    url: str
    headers: dict[str, str]


class Book(Protocol):
    """Those who are called by their id: their URL and signed headers, or why not (now)."""

    def find(self, send: Outgoing) -> Call | Refused | Later: ...

    def tell(self, ref: str, outcome: Outcome) -> None:
        """How an attempt went."""
        ...


class WebhookTarget:
    """`to` is a URL (unsigned), or an id that the book knows. Only this process may say so."""

    name = WEBHOOK
    inside_only = True

    def __init__(
        self,
        book: Book,
        rules: Rules,
        settings: OutboxSettings,
        clock: Clock,
        resolver: Resolve = safe_connect.resolve,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._book = book
        self._rules = rules
        self._settings = settings
        self._clock = clock
        self._resolve = resolver
        self._tls = tls or ssl.create_default_context()

    def place(self, to: str) -> tuple[DestinationKind, str, str]:
        """One route a webhook, or a host: a slow receiver keeps nobody else waiting."""
        if not to.startswith(URLS):
            return "queue", to, f"{WEBHOOK}:{to}"
        check_url(to, self._rules)
        return "queue", to, f"{WEBHOOK}://{urlsplit(to).netloc}"

    def deliver(self, send: Outgoing) -> Result:
        ref = send.destination_ref
        if ref.startswith(URLS):
            return self.attempt(Call(ref, self._plain_headers(send)), send.body)
        found = self._book.find(send)
        if not isinstance(found, Call):
            return found
        result = self.attempt(found, send.body)
        self._book.tell(ref, _outcome(result))
        return result

    @property
    def attempt_seconds_max(self) -> float:
        return self._settings.connect_seconds + self._settings.reply_seconds

    def check_url(self, url: str) -> None:
        """Raises BadWebhookUrl when that may not be called."""
        check_url(url, self._rules)

    def _plain_headers(self, send: Outgoing) -> dict[str, str]:
        return {
            "content-type": "application/json",
            "webhook-id": send.client_message_id,
            "webhook-timestamp": str(self._clock.now_ms() // 1000),
        }

    def attempt(self, call: Call, body: str) -> Result:
        """One POST, judged by its answer; never raises for what a receiver does."""
        try:
            with within(self.attempt_seconds_max):
                status, wait = self._post(call, body.encode())
        except BadWebhookUrl as error:
            return Later(error.message)
        except Unreachable as trouble:
            return Later(str(trouble))
        except TimeoutError:
            return Later("the receiver did not answer in time")
        except ssl.SSLError as error:
            return Later(f"no TLS with the receiver: {error.reason or 'failed'}")
        except ConnectionRefusedError:
            return Later("nothing listens where the receiver should be")
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            return Later(f"the connection failed: {type(error).__name__}")
        return result_of(status, wait)

    def _post(self, call: Call, body: bytes) -> tuple[int, float | None]:
        connection = self._connect(call.url)
        try:
            parts = urlsplit(call.url)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            headers = {**call.headers, "user-agent": _USER_AGENT, "connection": "close"}
            connection.request("POST", path, body, headers)
            reply = connection.getresponse()
            status, wait = reply.status, seconds_of(reply.getheader("Retry-After"))
            _read_a_little(reply)
            return status, wait
        finally:
            connection.close()

    def _connect(self, url: str) -> "Pinned":
        """To the first address that takes the connection; all of them have to be allowed."""
        check_url(url, self._rules)
        parts = urlsplit(url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        addresses = safe_connect.judged(self._resolve, host, port, self._rules)
        if not secure and not self._rules.allow_http:  # a name may have passed for near
            for address in addresses:
                check_url(f"http://[{address}]/" if ":" in address else f"http://{address}/",
                          self._rules)  # fmt: skip

        def connect(address: str) -> Pinned:
            connection = Pinned(host, port, address, self._tls if secure else None)
            try:
                connection.timeout = self._settings.connect_seconds
                connection.connect()
            except OSError:
                connection.close()
                raise
            connection.sock.settimeout(self._settings.reply_seconds)
            return connection

        return safe_connect.first_to_answer(addresses, connect)


class Pinned(http.client.HTTPConnection):
    """Goes to one address; the name stays in Host and in the TLS handshake."""

    def __init__(self, host: str, port: int, address: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self.default_port = 443 if tls else 80
        self._address = address
        self._tls = tls

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)


def result_of(status: int, retry_after: float | None) -> Result:
    """2xx is delivered; 410 is a receiver that wants no more; the rest may be mended."""
    if 200 <= status < 300:
        return Delivered()
    if status == 410:
        return Refused("the receiver answered 410: it is gone", "GONE")
    if 300 <= status < 400:
        return Later(f"the receiver answered {status}; redirects are not followed")
    return Later(f"the receiver answered {status}", retry_after)


def _outcome(result: Result) -> Outcome:
    if isinstance(result, Delivered):
        return "delivered"
    return "gone" if isinstance(result, Refused) else "failed"


def _read_a_little(reply: http.client.HTTPResponse) -> None:
    """So that a receiver which still writes is not cut off; the answer is known already."""
    try:
        reply.read1(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return
