"""Requests to the hub over one connection, retried where that is safe.

Every mutation has an Idempotency-Key, so a retry after a lost response never repeats the work.
Retries are limited in number and in seconds.
"""

import hashlib
import http.client
import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, BinaryIO, TypeVar
from urllib.parse import urlencode

import msgspec

from appliance.kernel.errors import ApplianceError, Invalid, Unavailable
from appliance.kernel.ids import random_id
from appliance.kernel.retry import RetrySettings, delay_seconds
from appliance.sdk.discovery import Endpoint, HubNotRunning, StaleServerFile, authorization, connect
from appliance.sdk.errors import Json as Json
from appliance.sdk.errors import Refused as Refused
from appliance.sdk.errors import refusal

REQUEST_TIMEOUT_SECONDS = 30.0
REQUEST_WAIT_SECONDS_MAX = 20.0  # a longer wait is several requests
CONNECTIONS_KEPT_MAX = 8
REPLY_BYTES_MAX = 64 * 1024 * 1024
RETRY_AFTER_SECONDS_MIN = 0.01
BACKOFF = RetrySettings(initial_seconds=0.2, max_seconds=10.0)
RETRY_AFTER_SECONDS_MAX = 3600.0
NO_HEADERS: Mapping[str, str] = {}
T = TypeVar("T")
BUSY = frozenset({429, 502, 503, 504})
PIECE_BYTES = 64 * 1024  # that one read of a file returns
Progress = Callable[[int, int | None], None]
"""Called with the bytes so far, and all bytes, if known."""


def ignore_progress(_done: int, _total: int | None) -> None:
    """Report nothing."""


class ClientClosed(Invalid):
    default_message = "this client is closed"
    default_hint = "create another client"


class Retry(msgspec.Struct, frozen=True):
    """Retry limits: attempts per request, and seconds to wait between them."""

    attempts_max: int = 6
    wait_seconds_max: float = 30.0
    through_restarts: bool = False  # also wait while no hub is running


PATIENT = Retry(attempts_max=1000, wait_seconds_max=300.0, through_restarts=True)


class HubClient:
    """A kept-alive connection to one hub. Not thread-safe: one client per thread.

    `locate` is called for every connection, because a restarted hub may use another port. `say`
    gets a sentence for people when a request that outlasts restarts begins to wait.
    """

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        retry: Retry | None = None,
        sleep: Callable[[float], object] = time.sleep,
        say: Callable[[str], object] = lambda _: None,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        self._locate = locate
        self._retry = retry or Retry()
        self._sleep, self._say = sleep, say
        self._timeout_seconds = timeout_seconds
        self._connection: http.client.HTTPConnection | None = None
        self._endpoint: Endpoint | None = None
        self._ended = False
        self._pid = os.getpid()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, **query: Any) -> Json:
        given = _given(query)
        return self._insist("GET", f"{path}?{urlencode(given)}" if given else path, None, None)

    def rows(self, path: str, name: str, **query: Any) -> list[Json]:
        """Return all rows in the list `name`, page by page."""
        return self.page(path, name, **query)[0]

    def page(
        self,
        path: str,
        name: str,
        limit: int | None = None,
        *,
        cursor: str = "after",
        key: str | None = None,
        **query: Any,
    ) -> tuple[list[Json], bool]:
        """Return at most `limit` rows from as many pages as necessary, and whether there are more.

        `cursor`: the parameter that continues behind a page. The value is that page's `next`, or
        the last row's column `key`.
        """
        rows: list[Json] = []
        while True:
            wanted = None if limit is None else limit - len(rows)
            page = self.get(path, limit=wanted, **query)
            rows += page[name]
            more = bool(page[name]) and bool(page.get("has_more", page.get("next") is not None))
            if not more or (wanted is not None and len(page[name]) >= wanted):
                return rows, more
            query[cursor] = page["next"] if key is None else rows[-1][key]

    def post(
        self,
        path: str,
        body: Any,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """Send a POST, leaving out `body` fields without a value."""
        return self._insist("POST", path, _encode(body), _key(key), headers or {})

    def put(self, path: str) -> Json:
        return self._insist("PUT", path, None, None)

    def patch(self, path: str, body: Any, key: str | None = None) -> Json:
        return self._insist("PATCH", path, _encode(body), _key(key))

    def delete(self, path: str) -> Json:
        return self._insist("DELETE", path, None, None)

    def upload(
        self, path: str, source: BinaryIO, media_type: str, progress: Progress = ignore_progress
    ) -> tuple[Json, str]:
        """Send a file in pieces; return the reply and the hash of what was sent. A file that can't
        be read again from its beginning is sent once."""
        start = source.tell() if source.seekable() else None
        headers = {"Content-Type": media_type, "Transfer-Encoding": "chunked"}

        def send() -> tuple[Json, str]:
            if start is not None:
                source.seek(start)
            digest = hashlib.sha256()
            pieces = _pieces(source, digest.update, progress)
            return self._send("POST", path, pieces, headers), digest.hexdigest()

        return send() if start is None else self._repeat(send)

    def download(
        self, path: str, headers: Mapping[str, str], progress: Progress = ignore_progress
    ) -> Generator[bytes]:
        """Yield a file's bytes in pieces. Raises Refused, or ConnectionBroken if some are
        missing."""
        with closing(self), self._answer("GET", path, None, headers) as reply:
            if reply.status not in (http.client.OK, http.client.PARTIAL_CONTENT):
                _decode(reply, reply.read(REPLY_BYTES_MAX))
            if "Range" in headers and reply.status == http.client.OK:
                raise Invalid(
                    "this is not one range of bytes", hint="ranges look like 0-99, 100- and -50"
                )
            total, done = reply.length, 0
            while data := reply.read(PIECE_BYTES):
                done += len(data)
                progress(done, total)
                yield data
            if total is not None and done < total:
                raise http.client.IncompleteRead(b"", total - done)

    def _insist(
        self,
        method: str,
        path: str,
        body: bytes | None,
        key: str | None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Json:
        return self._repeat(lambda: self._send(method, path, body, {**_key_header(key), **headers}))

    def _repeat(self, send: Callable[[], T]) -> T:
        """Send a request, again where that is safe, as often as `retry` allows."""
        waited = 0.0
        for attempt in range(1, self._retry.attempts_max + 1):
            try:
                return send()
            except ApplianceError as error:
                last = attempt == self._retry.attempts_max
                if not last and self._has_new_token(error):
                    continue
                seconds = self._backoff_seconds(error, attempt)
                if last or seconds is None:
                    raise
                waited += seconds
                if waited > self._retry.wait_seconds_max:
                    raise
                if attempt == 1 and self._retry.through_restarts:
                    self._say(f"{error.message}; waiting. Hint: {error.hint}")
                self._sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _has_new_token(self, error: ApplianceError) -> bool:
        """Read the token again: a rejected one may have been rotated."""
        if not isinstance(error, Refused) or error.http_status != 401 or self._endpoint is None:
            return False
        refused = self._endpoint.token
        self.close()
        try:
            return self._connect()[1].token != refused
        except ApplianceError:
            return False  # the caller gets the original error

    def _backoff_seconds(self, error: ApplianceError, attempt: int) -> float | None:
        """Return the seconds until the next attempt; None if a retry is pointless."""
        seconds = delay_seconds(BACKOFF, attempt, random.random())
        if isinstance(error, HubNotRunning | StaleServerFile):
            return seconds if self._retry.through_restarts else None
        if isinstance(error, ConnectionBroken):
            return seconds
        if not isinstance(error, Refused):
            return None
        if error.retry_after is not None and error.http_status in BUSY | {409}:
            return max(error.retry_after, RETRY_AFTER_SECONDS_MIN)
        return seconds if error.http_status in BUSY else None

    def lines(self, path: str, after: str) -> Generator[bytes]:
        """Yield an event stream's lines behind the event `after`. Raises ConnectionBroken."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": after}
        with closing(self), self._answer("GET", path, None, headers) as reply:
            if reply.status != http.client.OK:
                _decode(reply, reply.read(REPLY_BYTES_MAX))
            while line := reply.readline(REPLY_BYTES_MAX):
                yield line

    def end(self) -> None:
        """End a request in progress, and refuse later ones. Any thread may call it."""
        self._ended = True
        sock = None if self._connection is None else self._connection.sock
        if sock is not None and self._pid == os.getpid():
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None,
        headers: Mapping[str, str],
    ) -> Json:
        with self._answer(method, path, body, headers) as reply:
            text = reply.read(REPLY_BYTES_MAX)
        if reply.will_close:
            self.close()
        return _decode(reply, text)

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None,
        headers: Mapping[str, str],
    ) -> Iterator[http.client.HTTPResponse]:
        """Yield the response, which is read in the block."""
        connection, endpoint = self._connect()
        try:
            sent = {**request_headers(endpoint, body), **headers}
            _check_headers(sent)
            chunked = not isinstance(body, bytes | None)
            with _early_replies(chunked):
                connection.request(
                    method, endpoint.prefix + path, body, sent, encode_chunked=chunked
                )
            if self._ended:  # `end` came before the socket was open
                raise ClientClosed
            yield connection.getresponse()
        except ConnectionRefusedError:
            self.close()
            raise HubNotRunning(f"no hub answers at {endpoint.url}") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionBroken(
                f"the connection to {endpoint.url} broke: {type(error).__name__}"
            ) from None

    def _connect(self) -> tuple[http.client.HTTPConnection, Endpoint]:
        if self._ended:
            raise ClientClosed
        if self._pid != os.getpid():  # after a fork, the parent goes on with this connection
            self._connection, self._pid = None, os.getpid()
        if self._connection is None or self._endpoint is None:
            self._endpoint = self._locate()
            self._connection = connect(self._endpoint, self._timeout_seconds)
        return self._connection, self._endpoint


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise Invalid(
                f"{name} must be printable ASCII", details={"field": name},
                hint="remove line breaks and non-ASCII characters",
            )  # fmt: skip


class HubConnections:
    """Kept-alive connections to one hub, for calls from any thread."""

    def __init__(self, locate: Callable[[], Endpoint], retry: Retry | None = None) -> None:
        self._locate = locate
        self._retry = retry
        self._closed = threading.Event()
        self._idle: deque[HubClient] = deque()
        self._lent: set[HubClient] = set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @contextmanager
    def lend(self) -> Iterator[HubClient]:
        """Yield a connection for the block's exclusive use."""
        try:
            hub = self._idle.pop()
        except IndexError:  # all are in use by other threads
            hub = HubClient(self._locate, self._retry, self.pause)
        self._lent.add(hub)
        try:
            if self.closed:
                raise ClientClosed
            yield hub
        finally:
            self._lent.discard(hub)
            if self.closed or len(self._idle) >= CONNECTIONS_KEPT_MAX:
                hub.close()
            else:
                self._idle.append(hub)

    def pause(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def close(self) -> None:
        """End every call. Any thread may call it."""
        self._closed.set()
        for hub in self._lent.copy():
            hub.end()
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


def _key(given: str | None) -> str:
    """Return the given key or a new one. An empty key sends none: batches have a key per item."""
    return random_id() if given is None else given


class ConnectionBroken(Unavailable):
    code = "CONNECTION_BROKEN"
    default_message = "the connection to the hub broke"
    default_hint = "agentlipd status"


def _given(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _encode(body: Any) -> bytes:
    try:
        return msgspec.json.encode(_given(body) if isinstance(body, dict) else body)
    except UnicodeEncodeError:
        hint = "use text without lone surrogates"
        raise Invalid("a text can't be sent as UTF-8", hint=hint) from None


def _key_header(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key} if key else {}


@contextmanager
def _early_replies(chunked: bool) -> Iterator[None]:
    """Go on to the reply if a refused upload ends before all pieces are sent."""
    try:
        yield
    except (BrokenPipeError, ConnectionResetError):
        if not chunked:
            raise


def _pieces(
    source: BinaryIO, digest: Callable[[bytes], object], progress: Progress
) -> Iterator[bytes]:
    done = 0
    while data := source.read(PIECE_BYTES):
        digest(data)
        yield data
        done += len(data)
        progress(done, None)


def request_headers(endpoint: Endpoint, body: bytes | Iterator[bytes] | None) -> dict[str, str]:
    headers = {"Accept": "application/json"}
    if isinstance(body, bytes):
        headers["Content-Type"] = "application/json"
    return headers | authorization(endpoint)


def json_object(text: bytes) -> Json:
    """Return the object; an empty one for anything else that a program sent."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_refusal(status: int, text: bytes | bytearray | None) -> tuple[str, str | None]:
    """Return a refused upgrade's message, and the hint if the server sent one."""
    body = json_object(bytes(text or b""))
    message = f"the appliance answered the upgrade with status {status}"
    if "error" not in body:
        return message, None
    return f"{message}: {body['error']}", str(body.get("hint") or "") or None


def _decode(reply: http.client.HTTPResponse, text: bytes) -> Json:
    body = json_object(text)
    if 200 <= reply.status < 300:
        return body
    raise refusal(reply.status, body, _retry_after(reply, body))


def _retry_after(reply: http.client.HTTPResponse, body: Json) -> float | None:
    """Return the seconds, from the body if possible: the header has whole seconds only."""
    details = body.get("details")
    fine = details.get("retry_after") if isinstance(details, dict) else None
    for value in (fine, reply.getheader("Retry-After")):
        try:
            if value is not None:
                return min(max(float(value), 0.0), RETRY_AFTER_SECONDS_MAX)
        except (TypeError, ValueError):
            continue  # a date or an invalid value: use the normal delay
    return None
