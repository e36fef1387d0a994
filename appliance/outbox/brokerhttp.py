"""A broker on another machine: signed requests over connections that are kept.

Everything has a limit: connecting, every wait for bytes, the whole answer, its size. A request
may be repeated at will, for its sends carry their ids.
"""

import http.client
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.pool import within
from appliance.mesh.request_signing import PROBE, RequestSigner
from appliance.mesh.signing import Signer
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.target import (
    OF_THE_KEY,
    TRANSIENT,
    Later,
    Outgoing,
    Result,
    is_a_brokers,
    item_of,
    result_of,
)

ACCEPT = "/broker/v1/accept"
BATCH = "/broker/v1/accept/batch"
RETRY_AFTER_SECONDS_MAX = 86_400.0
_PIECE_BYTES = 65_536


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: Any
    retry_after: float | None


class Unreachable(Exception):
    """Nothing, or nothing whole, came back. The message is a kind of trouble, no address."""


class HttpTarget:
    """One broker. Safe for many greenlets: each delivery has a connection of its own."""

    name = "broker"

    def __init__(
        self,
        url: str,
        signer: Signer | None,
        clock: Clock,
        settings: OutboxSettings,
        ca_file: str | None = None,
        broker_id: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._signer = signer
        self._signing = RequestSigner(clock, broker_id)
        self._clock = clock
        self._settings = settings
        self._idle: list[http.client.HTTPConnection] = []
        self._takes_batches = True

    def deliver(self, send: Outgoing) -> Result:
        try:
            return self._single(send)
        except Unreachable as trouble:
            return Later(str(trouble))

    def deliver_many(self, sends: Sequence[Outgoing]) -> list[Result]:
        """One request. When it is refused as such, that is no judgement about its sends: each
        is asked for by itself then."""
        if len(sends) == 1 or not self._takes_batches:
            return self._one_by_one(sends)
        try:
            answer = self._ask(BATCH, {"items": [item_of(send) for send in sends]})
        except Unreachable as trouble:
            return [Later(str(trouble)) for _ in sends]
        if answer.status == 200:
            return _results_of(sends, answer)
        if isinstance(answer.body, dict) and answer.body.get("code") in OF_THE_KEY:
            return [result_of(send, answer.status, answer.body) for send in sends]
        for_good = 400 <= answer.status < 500 and answer.status not in TRANSIENT
        if for_good and is_a_brokers(answer.body):
            if answer.status in (404, 405):
                self._takes_batches = False
            return self._one_by_one(sends)
        reason = f"the broker answered {answer.status}"
        return [Later(reason, answer.retry_after) for _ in sends]

    def _one_by_one(self, sends: Sequence[Outgoing]) -> list[Result]:
        """Stops where the broker is out of reach: the next would not get through either."""
        results: list[Result] = []
        try:
            for send in sends:
                results.append(self._single(send))
        except Unreachable as trouble:
            results += [Later(str(trouble))] * (len(sends) - len(results))
        return results

    def _single(self, send: Outgoing) -> Result:
        answer = self._ask(ACCEPT, item_of(send))
        return result_of(send, answer.status, answer.body, answer.retry_after)

    def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # -- one exchange --------------------------------------------------------------------

    def _ask(self, path: str, content: Any) -> Answer:
        """One answer; more requests are made only to learn for which broker to sign."""
        body = msgspec.json.encode(content)
        signing = self._signing
        if self._signer is not None and not signing.broker_id:
            answer = self._request("GET", PROBE, b"")
            signing.learn(answer.status, answer.body)
            if not signing.broker_id:
                return answer
        answer = self._request("POST", path, body)
        if signing.learn(answer.status, answer.body):
            answer = self._request("POST", path, body)
        return answer

    def _request(self, method: str, path: str, body: bytes) -> Answer:
        settings = self._settings
        limit = settings.connect_seconds + settings.reply_seconds
        try:
            with within(limit):
                if self._idle:
                    try:
                        return self._exchange(self._idle.pop(), method, path, body)
                    except (http.client.RemoteDisconnected, ConnectionError):
                        pass  # it was closed while it idled: once more on a new one
                return self._exchange(self._connect(), method, path, body)
        except TimeoutError:
            raise Unreachable("the broker did not answer in time") from None
        except ssl.SSLError as error:
            raise Unreachable(f"no TLS with the broker: {error.reason or 'failed'}") from None
        except ConnectionRefusedError:
            raise Unreachable("nothing listens where the broker should be") from None
        except (OSError, http.client.HTTPException) as error:
            self._signing.forget()
            raise Unreachable(f"the connection failed: {type(error).__name__}") from None

    def _connect(self) -> http.client.HTTPConnection:
        seconds = self._settings.connect_seconds
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=seconds, context=self._tls
        )

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes
    ) -> Answer:
        headers = self._headers(method, path, body)
        kept = False
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(self._settings.reply_seconds)
            connection.request(method, self._prefix + path, body or None, headers)
            reply = connection.getresponse()
            content = self._read(reply)
            kept = not reply.will_close
            return Answer(
                reply.status, _decoded(content), seconds_of(reply.getheader("Retry-After"))
            )
        finally:
            if kept and len(self._idle) < self._settings.concurrency_max:
                self._idle.append(connection)
            else:
                connection.close()

    def _read(self, reply: http.client.HTTPResponse) -> bytes:
        deadline = self._clock.monotonic() + self._settings.reply_seconds
        pieces, total = [], 0
        while piece := reply.read1(_PIECE_BYTES):
            total += len(piece)
            if total > self._settings.reply_bytes_max:
                raise Unreachable("the answer is too large")
            if self._clock.monotonic() > deadline:
                raise TimeoutError
            pieces.append(piece)
        if reply.length:
            raise http.client.IncompleteRead(b"")
        reply.close()  # else the connection believes that it is still being read
        return b"".join(pieces)

    def _headers(self, method: str, path: str, body: bytes) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        if self._signer is not None:
            headers |= self._signing.headers(self._signer, method, path, "", body)
        return headers


def _results_of(sends: Sequence[Outgoing], answer: Answer) -> list[Result]:
    results = answer.body.get("results") if isinstance(answer.body, dict) else None
    if not isinstance(results, list) or len(results) != len(sends):
        return [Later("an answer that does not fit the batch") for _ in sends]
    return [_result_of(send, one) for send, one in zip(sends, results, strict=True)]


def _result_of(send: Outgoing, one: Any) -> Result:
    if not isinstance(one, dict) or not isinstance(one.get("status"), int):
        return Later("an answer that does not fit the batch")
    body = one.get("body")
    told = body if isinstance(body, dict) else {}
    details = told.get("details")
    wait = told.get("retry_after")
    if wait is None and isinstance(details, dict):
        wait = details.get("retry_after")
    return result_of(send, one["status"], told, seconds_of(wait))


def _decoded(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content) if content else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def seconds_of(value: Any) -> float | None:
    """Seconds to wait; a date or rubbish is none, and our own pause will do."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return min(seconds, RETRY_AFTER_SECONDS_MAX) if seconds > 0 else None
