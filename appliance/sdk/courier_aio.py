"""Asyncio: producing, and consuming with `async for` while leases are renewed.

async with AsyncProducer(locate) as producer:
    await producer.send("agents/Jen/inbox", envelope("sprint.assign", {"wave": "B"}))

async with AsyncConsumer(locate, "agents/Jen/inbox") as consumer:
    async for delivery in consumer:
        await work(delivery.envelope)
        await delivery.ack()
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from appliance.kernel.errors import Unauthenticated
from appliance.sdk.courier import (
    DEFAULT_LEASE_MS,
    RENEW_SECONDS_MAX,
    CourierFrame,
    Env,
    EnvelopeRefused,
    Locate,
    backoff_seconds,
    is_final_error,
    read_frame,
)
from appliance.sdk.discovery import Endpoint, HubNotRunning, StaleServerFile
from appliance.sdk.websocket import (
    FRAME_BYTES_MAX,
    TEMPORARY_STATUSES,
    UNAUTHORIZED,
    SocketBroken,
    SocketBusy,
    SocketRefused,
)

_encode = msgspec.json.Encoder().encode


class AsyncDelivery:
    """An envelope leased to this consumer until it is acked or nacked, or the lease expires."""

    __slots__ = ("_consumer", "attempt", "envelope", "id")

    def __init__(self, consumer: "AsyncConsumer", env: Env, attempt: int) -> None:
        self._consumer = consumer
        self.envelope = env
        self.attempt = attempt
        self.id = str(env["id"])

    async def ack(self) -> None:
        await self._consumer.settle(self.id, {"ack": self.id, "credit": 1})

    async def nack(self, mode: str = "fail", delay_ms: int | None = None, error: str = "") -> None:
        frame: dict[str, Any] = {"nack": self.id, "mode": mode, "error": error[:1000], "credit": 1}
        if delay_ms is not None:
            frame["delayMs"] = delay_ms
        await self._consumer.settle(self.id, frame)


class AsyncConsumer:
    """Receives from one stream or a pattern without end. Only one task may iterate over it."""

    def __init__(
        self,
        locate: Locate,
        stream: str,
        *,
        credit: int = 100,
        lease_ms: int | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._locate = locate
        self._lease_ms = lease_ms
        self._say = say
        query: dict[str, Any] = {"stream": stream, "credit": credit}
        if lease_ms is not None:
            query["leaseMs"] = lease_ms
        self._path = "/v1/subscribe?" + urlencode(query)
        self._leased: set[str] = set()
        self._socket: ClientConnection | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> "AsyncConsumer":
        self._renewal = asyncio.create_task(self._renew_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        attempt = 0
        while not self._closed:
            try:
                self._socket = await open_socket(self._locate(), self._path)
                attempt = 0
                async for text in self._socket:
                    for delivery in self._take(text):
                        yield delivery
                reason = "the appliance closed the stream"
            except (ConnectionClosed, SocketBroken, HubNotRunning, StaleServerFile) as error:
                if isinstance(error, ConnectionClosed):
                    _check_token(error)
                reason = type(error).__name__
            self._leased.clear()
            attempt += 1
            seconds = backoff_seconds(attempt)
            self._say(f"{reason}; reconnecting in {seconds:.1f} s")
            await asyncio.sleep(seconds)

    async def run(self, handler: Callable[[Env], Awaitable[Any]]) -> None:
        """Call the handler for every envelope: ack when it returns, nack when it raises."""
        async for delivery in self:
            try:
                await handler(delivery.envelope)
            except Exception as error:
                self._say(f"{delivery.id} failed: {type(error).__name__}")
                await delivery.nack(error=type(error).__name__)
            else:
                await delivery.ack()

    async def settle(self, id_: str, frame: dict[str, Any]) -> None:
        self._leased.discard(id_)
        await self._write(frame)

    async def close(self) -> None:
        """Disconnect. Envelopes that are neither acked nor nacked return to the stream at once."""
        self._closed = True
        if self._renewal is not None:
            self._renewal.cancel()
        if self._socket is not None:
            await self._socket.close()

    def _take(self, text: str | bytes) -> list[AsyncDelivery]:
        frame = read_frame(text)
        if frame.error is not None:
            if is_final_error(frame.error):
                raise EnvelopeRefused(frame.error)
            self._say(f"{frame.error.id or ''} {frame.error.message}".strip())
            return []
        if frame.deliver is None:
            return []
        self._leased.add(str(frame.deliver["id"]))
        return [AsyncDelivery(self, frame.deliver, frame.attempt)]

    async def _write(self, frame: dict[str, Any]) -> None:
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):  # the lease ended with the connection
                await self._socket.send(_encode(frame).decode())

    async def _renew_for_ever(self) -> None:
        seconds = min((self._lease_ms or DEFAULT_LEASE_MS) / 3000, RENEW_SECONDS_MAX)
        while True:
            await asyncio.sleep(seconds)
            if self._leased:
                frame: dict[str, Any] = {"extend": sorted(self._leased)[:1000]}
                if self._lease_ms is not None:
                    frame["leaseMs"] = self._lease_ms
                await self._write(frame)


def _check_token(error: ConnectionClosed) -> None:
    if error.rcvd is not None and error.rcvd.code == UNAUTHORIZED:
        raise Unauthenticated(error.rcvd.reason or None)


class AsyncProducer:
    """Sends over one socket; any number of tasks may send at the same time.

    After a broken connection, envelopes without a response are sent again; their ids prevent
    duplicates.
    """

    def __init__(self, locate: Locate, *, window: int = 1_000, attempts_max: int = 6) -> None:
        """At most `window` envelopes are sent without a response."""
        self._locate = locate
        self._attempts_max = attempts_max
        self._slots = asyncio.Semaphore(window)
        self._order = (
            asyncio.Lock()
        )  # sequence numbers are sent in order, because responses are cumulative
        self._seq = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "AsyncProducer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(self, to: str, env: Env) -> str:
        """Send one envelope and return its id. Raises EnvelopeRefused."""
        async with self._slots:
            for attempt in range(1, self._attempts_max + 1):
                try:
                    await self._send(to, env)
                    break
                except (ConnectionClosed, SocketBroken, HubNotRunning, StaleServerFile) as error:
                    if isinstance(error, ConnectionClosed):
                        _check_token(error)
                    if attempt == self._attempts_max:
                        raise
                    await asyncio.sleep(backoff_seconds(attempt))
        return str(env["id"])

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        if self._socket is not None:
            await self._socket.close()

    async def _send(self, to: str, env: Env) -> None:
        async with self._order:
            if self._reader is None or self._reader.done():
                self._socket = await open_socket(self._locate(), "/v1/publish")
                self._reader = asyncio.create_task(self._read(self._socket))
            assert self._socket is not None
            self._seq += 1
            answer = self._waiting[self._seq] = asyncio.get_running_loop().create_future()
            frame = {"seq": self._seq, "to": to, "envelope": env}
            try:
                await self._socket.send(_encode(frame).decode())
            except ConnectionClosed:
                self._waiting.pop(self._seq, None)
                raise
        await answer

    async def _read(self, socket: ClientConnection) -> None:
        broken: Exception = SocketBroken("the appliance closed the connection")
        try:
            async for text in socket:
                self._take(read_frame(text))
        except ConnectionClosed as error:
            broken = error
        finally:
            waiting, self._waiting = self._waiting, {}
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(broken)

    def _take(self, frame: CourierFrame) -> None:
        if frame.error is not None:
            answer = self._waiting.pop(frame.error.seq or 0, None)
            if answer is not None and not answer.done():
                answer.set_exception(EnvelopeRefused(frame.error))
        elif frame.accepted is not None:
            for seq in [seq for seq in self._waiting if seq <= frame.accepted]:
                answer = self._waiting.pop(seq)
                if not answer.done():
                    answer.set_result(None)


async def open_socket(endpoint: Endpoint, path: str) -> ClientConnection:
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    scheme = "wss" if endpoint.secure else "ws"
    try:
        return await connect(
            f"{scheme}://{endpoint.authority}{endpoint.prefix}{path}",
            additional_headers=headers,
            max_size=FRAME_BYTES_MAX,
            compression=None,
            proxy=None,
            user_agent_header=None,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        if status == 401:
            raise Unauthenticated from None
        kind = SocketBusy if status in TEMPORARY_STATUSES else SocketRefused
        raise kind(
            f"the appliance answered the upgrade with status {status}", details={"status": status}
        ) from None
    except (OSError, WebSocketException) as error:
        raise HubNotRunning(f"cannot connect to the appliance: {type(error).__name__}") from None
