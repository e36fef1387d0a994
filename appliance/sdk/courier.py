"""Producing and consuming envelopes. Delivery is at least once: consumers de-duplicate by id.

    with Producer(locate) as producer:
        producer.send("agents/Jen/inbox", envelope("sprint.assign", {"wave": "B"}))

    consumer = Consumer(locate, "agents/Jen/inbox")
    for delivery in consumer:
        work(delivery.envelope)
        delivery.ack()

    @consumer.handler            # ack when it returns, nack when it raises,
    def work(envelope): ...      # and the lease is renewed while it runs
    consumer.run()

`locate` returns the address of the appliance and is called for every connection, for example
`find_hub`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from appliance.courier.wire import BATCH_MAX
from appliance.kernel.errors import Unavailable
from appliance.sdk.closing import Closing
from appliance.sdk.courier_frames import Env as Env
from appliance.sdk.courier_frames import EnvelopeRefused as EnvelopeRefused
from appliance.sdk.courier_frames import ErrorFrame as ErrorFrame
from appliance.sdk.courier_frames import Locate as Locate
from appliance.sdk.courier_frames import backoff_seconds, is_final_error, read_frame
from appliance.sdk.courier_frames import envelope as envelope
from appliance.sdk.courier_producer import Producer as Producer
from appliance.sdk.discovery import HubNotRunning, StaleServerFile
from appliance.sdk.websocket import SocketBroken, WebSocket

RENEW_SECONDS_MAX = 15.0
DEFAULT_LEASE_MS = 30_000

_encode = msgspec.json.Encoder().encode


class Delivery:
    """An envelope leased to this consumer until it is acked or nacked, or the lease expires."""

    __slots__ = ("_consumer", "attempt", "envelope", "id")

    def __init__(self, consumer: "Consumer", env: Env, attempt: int) -> None:
        self._consumer = consumer
        self.envelope = env
        self.attempt = attempt
        self.id = str(env["id"])

    def ack(self) -> None:
        self._consumer.settle(self.id)

    def nack(self, mode: str = "fail", delay_ms: int | None = None, error: str = "") -> None:
        self._consumer.refuse(self.id, mode, delay_ms, error)

    def extend(self, lease_ms: int | None = None) -> None:
        self._consumer.extend([self.id], lease_ms)


class Consumer(Closing):
    """Receives from one stream or a pattern without end. Only one thread may iterate over it.

    `credit` limits the envelopes leased at once, `batch` the envelopes of one frame.
    """

    def __init__(
        self,
        locate: Locate,
        stream: str,
        *,
        credit: int = 100,
        batch: int = 100,
        lease_ms: int | None = None,
        name: str = "",
        say: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], object] | None = None,
        insist: bool = False,
    ) -> None:
        self._locate = locate
        self._credit = credit
        self._lease_ms = lease_ms
        self._say = say
        self._insist = insist
        query: dict[str, Any] = {"stream": stream, "credit": credit, "batch": min(batch, BATCH_MAX)}
        if lease_ms is not None:
            query["leaseMs"] = lease_ms
        if name:
            query["name"] = name
        self._path = "/v1/subscribe?" + urlencode(query)
        self._link: WebSocket | None = None
        self._acks: list[str] = []
        self._spent = 0
        self._leased: set[str] = set()
        self._ready: deque[tuple[Env, int]] = deque()  # received, not yet handed out
        self._lock = threading.Lock()
        self._handler: Callable[[Env], Any] | None = None
        self._stop = threading.Event()
        self._sleep = sleep or self._stop.wait

    def __iter__(self) -> Iterator[Delivery]:
        for delivery in self.deliveries():
            if delivery is not None:
                yield delivery

    def deliveries(self, idle_seconds: float | None = None) -> Iterator[Delivery | None]:
        """Deliveries, and None when none came for `idle_seconds`. Ends after `stop`.

        Without `insist` the first connection must succeed. Later ones are retried without a limit.
        """
        attempt, connected = 0, self._insist
        while not self._stop.is_set():
            try:
                self._open()
                connected, attempt = True, 0
                yield from self._session(idle_seconds)
            except (SocketBroken, HubNotRunning, StaleServerFile) as error:
                self.close()
                if not connected:
                    raise
                attempt += 1
                seconds = backoff_seconds(attempt)
                self._say(f"{error.message}; reconnecting in {seconds:.1f} s")
                self._sleep(seconds)

    def handler(self, function: Callable[[Env], Any]) -> Callable[[Env], Any]:
        """Decorator: `run` calls the function for every envelope."""
        self._handler = function
        return function

    def run(self, handler: Callable[[Env], Any] | None = None) -> None:
        """Call the handler for every envelope until `stop`: ack when it returns, nack when it
        raises. Another thread renews the lease while the handler runs."""
        work = handler or self._handler
        if work is None:
            raise ValueError("run() needs a handler")
        with Renewal(self.renew, self._lease_ms or DEFAULT_LEASE_MS):
            for delivery in self:
                try:
                    work(delivery.envelope)
                except Exception as error:
                    self._say(f"{delivery.id} failed: {type(error).__name__}")
                    delivery.nack(error=type(error).__name__)
                else:
                    delivery.ack()

    def stop(self) -> None:
        """End after the current delivery. A handler or a signal handler may call it."""
        self._stop.set()

    def close(self) -> None:
        """Disconnect. Envelopes that are neither acked nor nacked return to the stream at once."""
        with self._lock:
            link, self._link = self._link, None
            acks, self._acks = self._acks, []
            self._leased.clear()
            self._ready.clear()
            self._spent = 0
        if link is not None:
            try:
                for at in range(0, len(acks), BATCH_MAX):
                    link.send(_encode({"ack": acks[at : at + BATCH_MAX]}))
            except SocketBroken:
                pass  # they will be delivered again
            link.close()

    # -- called by deliveries ----------------------------------------------------------

    def settle(self, id_: str) -> None:
        """Ack. Acks are sent together, when half the credit is used or before the next wait."""
        with self._lock:
            self._leased.discard(id_)
            self._acks.append(id_)
            self._spent += 1
        if self._spent * 2 >= self._credit:
            self.flush()

    def refuse(self, id_: str, mode: str, delay_ms: int | None, error: str) -> None:
        frame: dict[str, Any] = {"nack": id_, "mode": mode, "error": error[:1000]}
        if delay_ms is not None:
            frame["delayMs"] = delay_ms
        with self._lock:
            self._leased.discard(id_)
            self._spent += 1
        self._send(frame)

    def extend(self, ids: Sequence[str], lease_ms: int | None = None) -> None:
        frame: dict[str, Any] = {"extend": list(ids)}
        if lease_ms is not None or self._lease_ms is not None:
            frame["leaseMs"] = lease_ms or self._lease_ms
        self._send(frame)

    def renew(self) -> None:
        """Extend the leases of all envelopes."""
        with self._lock:
            leased = list(self._leased)
        for at in range(0, len(leased), BATCH_MAX):
            self.extend(leased[at : at + BATCH_MAX])

    def flush(self) -> None:
        with self._lock:
            acks, self._acks = self._acks, []
            spent, self._spent = self._spent, 0
        for at in range(0, len(acks), BATCH_MAX):
            self._send({"ack": acks[at : at + BATCH_MAX]})
        if spent:
            self._send({"credit": spent})

    # -- inside -------------------------------------------------------------------------

    def _open(self) -> WebSocket:
        if self._link is None:
            self._link = WebSocket(self._locate(), self._path)
        return self._link

    def _session(self, idle_seconds: float | None) -> Iterator[Delivery | None]:
        while not self._stop.is_set():
            while self._ready:  # also left over from an iteration that ended early
                yield Delivery(self, *self._ready.popleft())
                if self._stop.is_set():
                    return
            link = self._open()
            self.flush()
            messages = link.receive(idle_seconds if idle_seconds is not None else 1.0)
            if not messages and idle_seconds is not None:
                yield None
            for message in messages:
                self._ready += self._take(message)

    def _take(self, message: bytes) -> list[tuple[Env, int]]:
        frame = read_frame(message)
        if frame.error is not None:
            if is_final_error(frame.error):
                raise EnvelopeRefused(frame.error)
            self._say(f"{frame.error.id or ''} {frame.error.message}".strip())
            return []
        if frame.deliver is None:
            return []
        envelopes = frame.deliver if isinstance(frame.deliver, list) else [frame.deliver]
        attempts = frame.attempts or [frame.attempt] * len(envelopes)
        with self._lock:
            self._leased.update(str(env["id"]) for env in envelopes)
        return list(zip(envelopes, attempts, strict=True))

    def _send(self, frame: dict[str, Any]) -> None:
        link = self._link
        if link is None:
            return  # the lease ended with the connection
        try:
            link.send(_encode(frame))
        except SocketBroken:
            self._say("the connection broke; unacked envelopes will be delivered again")


class Renewal:
    """Calls `renew` in a thread, every third of a lease, while its block runs."""

    def __init__(self, renew: Callable[[], None], lease_ms: int) -> None:
        self._renew = renew
        self._seconds = min(lease_ms / 3000, RENEW_SECONDS_MAX)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease renewal", daemon=True)

    def __enter__(self) -> "Renewal":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def _run(self) -> None:
        while not self._end.wait(self._seconds):
            try:
                self._renew()
            except Unavailable:
                continue  # the reading thread reconnects
