"""Produces and consumes envelopes. Delivery is at least once: consumers de-duplicate by id.

    with Producer(find_hub) as producer:
        producer.send("agents/Jen/inbox", envelope("sprint.assign", {"wave": "B"}))

    consumer = Consumer(find_hub, "agents/Jen/inbox")
    for delivery in consumer:
        work(delivery.envelope)
        delivery.ack()

    @consumer.handler            # ack when it returns, nack when it raises
    def work(envelope): ...
    consumer.run()

`find_hub` returns the appliance's address and is called for every connection. A thread renews the
leases on all envelopes until their acks were sent.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from appliance.courier.wire import BATCH_MAX
from appliance.kernel.errors import ApplianceError
from appliance.sdk.closing import Closing
from appliance.sdk.courier_frames import Env as Env
from appliance.sdk.courier_frames import EnvelopeRefused as EnvelopeRefused
from appliance.sdk.courier_frames import ErrorFrame as ErrorFrame
from appliance.sdk.courier_frames import Locate as Locate
from appliance.sdk.courier_frames import (
    backoff_seconds,
    error_text,
    is_final_error,
    key_of,
    read_frame,
)
from appliance.sdk.courier_frames import envelope as envelope
from appliance.sdk.courier_producer import Producer as Producer
from appliance.sdk.discovery import HubNotRunning, StaleServerFile
from appliance.sdk.plain_handler import require_done, require_plain
from appliance.sdk.websocket import SocketBroken, WebSocket

ACK_SECONDS_MAX = 0.05  # the longest wait to send several acks together
PREFETCH_SECONDS = 0.5  # work leased ahead; hides round trips up to this long
KEEP_SECONDS = 0.5  # between two renewals, so that leases of 1.5 s and more never expire
BUSY_SECONDS_MAX = 1.0  # envelopes leased ahead are released after this time
WAIT_SECONDS_MAX = 1.0  # until a waiting consumer notices a stop
FINISHED_MAX, FINISHED_SECONDS = 10_000, 600.0
"""The envelopes that a consumer remembers, about 2 MB, and how long: as long as the courier treats
their ids as duplicates (`recent_ids.py`), so nothing new is missed."""

CLOSE_SECONDS_MAX = 2.0  # for the appliance to read the last acks

_encode = msgspec.json.Encoder().encode


class Delivery:
    """An envelope leased to this consumer until an ack, a nack, or the consumer's end."""

    def __init__(self, consumer: "Consumer", key: str, env: Env, attempt: int) -> None:
        self._consumer = consumer
        self.key = key
        self.envelope = env
        self.attempt = attempt
        self.id = str(env["id"])

    def ack(self) -> None:
        self._consumer.settle(self)

    def nack(self, mode: str = "fail", delay_ms: int | None = None, error: str = "") -> None:
        self._consumer.refuse(self, mode, delay_ms, error)

    def extend(self, lease_ms: int | None = None) -> None:
        self._consumer.extend([self.id], lease_ms)


class Consumer(Closing):
    """Receives from one stream or a pattern without end. Only one thread may iterate.

    `credit` limits the envelopes leased at once, 1,000 at most. A consumer begins with one envelope
    and leases PREFETCH_SECONDS of work ahead, so that others get their share.
    """

    def __init__(
        self,
        locate: Locate,
        stream: str,
        *,
        credit: int = 100,
        lease_ms: int | None = None,
        name: str = "",
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._locate = locate
        self._credit = min(credit, BATCH_MAX)
        self.say = say
        query = {"stream": stream, "batch": 100, "leaseMs": lease_ms, "name": name}
        self._query = {field: value for field, value in query.items() if value}
        self._link: WebSocket | None = None
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # held while a thread reads from the socket
        self._ready: deque[tuple[str, Env, int]] = deque()  # received, not yet handed out
        self._leased: dict[str, str] = {}  # ids that are neither acked nor nacked, by key
        self._acks: list[str] = []
        # When an envelope was finished, by key. One that comes back is acked without working twice.
        self._finished: OrderedDict[str, float] = OrderedDict()
        self._granted = 0  # credit that the appliance has, and envelopes leased with that credit
        self._prefetch = 1
        self._work_seconds = 0.0  # for one envelope
        self._busy_since: float | None = None
        self._keep_seconds = min((lease_ms or 30_000) / 3000, KEEP_SECONDS)
        self._keeping = False  # a thread keeps the leases
        self._wake = threading.Event()  # wakes that thread
        self._handler: Callable[[Env], Any] | None = None
        self._stop = threading.Event()

    def __iter__(self) -> Generator[Delivery]:
        for delivery in self.deliveries():
            if delivery is not None:
                yield delivery

    def deliveries(self, idle_seconds: float | None = None) -> Iterator[Delivery | None]:
        """Yield deliveries, and None when none came for `idle_seconds`. Ends after `stop`.

        The first connection must succeed. Later ones are retried without a limit.
        """
        attempt, connected = 0, False
        keeper = threading.Thread(target=self._keep_leases, name="lease keeper", daemon=True)
        self._keeping = True
        keeper.start()
        try:
            while not self._stop.is_set():
                try:
                    self._open()
                    connected, attempt = True, 0
                    yield from self._session(idle_seconds)
                except (SocketBroken, HubNotRunning, StaleServerFile) as error:
                    self._disconnect()
                    if not connected:
                        raise
                    attempt += 1
                    seconds = backoff_seconds(attempt)
                    self.say(f"{error.message}; reconnecting in {seconds:.1f} s")
                    self._stop.wait(seconds)
        finally:
            self._keeping = False
            self._wake.set()
            keeper.join(CLOSE_SECONDS_MAX)
            self.flush(grant=False)

    def handler(self, function: Callable[[Env], Any]) -> Callable[[Env], Any]:
        """Register a handler: `run` calls the function for every envelope."""
        self._handler = require_plain(function)
        return function

    def run(self, handler: Callable[[Env], Any] | None = None) -> None:
        """Call the handler for every envelope until `stop`: ack on return, nack on an exception,
        with the error's type and message. Raises HandlerNotPlain for an async handler."""
        work = handler or self._handler
        if work is None:
            raise ValueError("run() needs a handler")
        require_plain(work)
        for delivery in self:
            try:
                result = work(delivery.envelope)
            except Exception as error:
                text = error_text(error)
                self.say(f"{delivery.id} failed: {text}")
                delivery.nack(error=text)
            else:
                require_done(result)
                delivery.ack()

    def stop(self) -> None:
        """End after the current delivery. A handler or a signal handler may call it."""
        self._stop.set()

    def close(self) -> None:
        """Send the last acks and disconnect. Envelopes that are neither acked nor nacked return to
        the stream at once."""
        self.flush(grant=False)
        link = self._link
        if link is not None and self._reading.acquire(blocking=False):
            try:
                link.finish(CLOSE_SECONDS_MAX)
            finally:
                self._reading.release()
        self._disconnect()

    # -- called by deliveries ----------------------------------------------------------

    def settle(self, delivery: Delivery) -> None:
        """Ack. The ack leaves at once, or within ACK_SECONDS_MAX if more work waits."""
        with self._lock:
            self._finished[delivery.key] = time.monotonic()
            if len(self._finished) > FINISHED_MAX:
                self._finished.popitem(last=False)
            if self._leased.pop(delivery.key, None) is None:
                return  # acked before, or the lease is lost
            self._acks.append(delivery.id)
            count = len(self._acks)
        if not (self._keeping and self._ready) or count * 2 >= self._prefetch:
            self.flush()
        elif count == 1:
            self._wake.set()

    def refuse(self, delivery: Delivery, mode: str, delay_ms: int | None, error: str) -> None:
        with self._lock:
            if self._leased.pop(delivery.key, None) is None:
                return
            self._granted -= 1
            frame = {"nack": delivery.id, "mode": mode, "error": error[:1000], "delayMs": delay_ms}
            frame |= self._grant()
        self._send(frame)

    def extend(self, ids: Sequence[str], lease_ms: int | None = None) -> None:
        self._send({"extend": ids} | ({"leaseMs": lease_ms} if lease_ms else {}))

    def flush(self, grant: bool = True, unsettled: int = 0) -> None:
        """Send the acks that wait, and grant credit for `unsettled` more than the prefetch."""
        with self._lock:
            acks, self._acks = self._acks, []
            self._granted -= len(acks)
            frame: dict[str, Any] = self._grant(unsettled) if grant else {}
        if acks:
            frame["ack"] = acks
        if frame:
            self._send(frame)

    # -- inside -------------------------------------------------------------------------

    def _grant(self, unsettled: int = 0) -> dict[str, int]:
        """Count the missing credit, and return its frame part."""
        credit = min(self._credit, self._prefetch + unsettled) - self._granted
        if credit <= 0:
            return {}
        self._granted += credit
        return {"credit": credit}

    def _open(self) -> WebSocket:
        if self._link is None:
            query = urlencode({**self._query, "credit": self._prefetch})
            link = WebSocket(self._locate(), "/v1/subscribe?" + query)
            with self._lock:
                self._link, self._granted = link, self._prefetch
        return self._link

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        self._forget_leases()
        if link is not None:
            link.close()

    def _forget_leases(self) -> None:
        """Begin with nothing more that was leased on a connection, because it has ended."""
        with self._lock:
            self._leased, self._acks, self._granted = {}, [], 0
            self._ready.clear()

    def _session(self, idle_seconds: float | None) -> Iterator[Delivery | None]:
        while not self._stop.is_set():
            with self._lock:
                ready = self._ready.popleft() if self._ready else None
                if ready is not None and ready[0] not in self._leased:
                    continue  # settled while waiting
            if ready is not None:
                self._busy_since = began = time.monotonic()
                try:
                    yield Delivery(self, *ready)
                finally:
                    self._busy_since = None
                self._measure(time.monotonic() - began)
                continue
            link = self._open()
            self.flush(unsettled=len(self._leased))
            seconds = WAIT_SECONDS_MAX if idle_seconds is None else idle_seconds
            with self._reading:  # the keeper may have received something meanwhile
                any_came = bool(self._ready) or self._receive(link, seconds)
            if not any_came and idle_seconds is not None:
                yield None

    def _measure(self, seconds: float) -> None:
        """Fit the prefetch to the time for one envelope: at most twice as much as before, and less
        at once after a slow one."""
        self._work_seconds = max(seconds, 0.9 * self._work_seconds + 0.1 * seconds, 1e-6)
        fitting = 1 + int(PREFETCH_SECONDS / self._work_seconds)
        self._prefetch = min(self._credit, 2 * self._prefetch, fitting)

    def _receive(self, link: WebSocket, seconds: float) -> bool:
        messages = link.receive(seconds)
        for message in messages:
            self._take(message)
        return bool(messages)

    def _take(self, message: bytes) -> None:
        frame = read_frame(message)
        if frame.error is not None:
            if is_final_error(frame.error):
                raise EnvelopeRefused(frame.error)
            if frame.error.name != "LEASE_LOST" or self._lose(frame.error.id):
                self.say(f"{frame.error.id or ''} {frame.error.message}".strip())
        if frame.deliver is None:
            return
        envelopes = frame.deliver if isinstance(frame.deliver, list) else [frame.deliver]
        attempts = frame.attempts or [frame.attempt] * len(envelopes)
        now = time.monotonic()
        with self._lock:
            for env, attempt in zip(envelopes, attempts, strict=True):
                key = key_of(env)
                if now - self._finished.get(key, -FINISHED_SECONDS) < FINISHED_SECONDS:
                    self._acks.append(str(env["id"]))  # the earlier one was lost
                elif key in self._leased:
                    self._granted -= 1  # the lease expired meanwhile, and this is the new one
                else:
                    self._leased[key] = str(env["id"])
                    self._ready.append((key, env, attempt))

    def _lose(self, id_: str | None) -> bool:
        """Drop an envelope that another consumer may have now. Return False if its ack or nack was
        sent already."""
        with self._lock:
            kept = {key: leased for key, leased in self._leased.items() if leased != id_}
            lost, self._leased = len(self._leased) - len(kept), kept
            self._granted -= lost
        return lost > 0

    def _keep_leases(self) -> None:
        """Renew regularly, and send acks ACK_SECONDS_MAX after the first one waits.

        An ack and the renewals before it are on one connection, in order, so no renewal is needed
        once the ack was sent.
        """
        while self._keeping:
            if self._wake.wait(self._keep_seconds):
                self._wake.clear()
                self._stop.wait(ACK_SECONDS_MAX)
            try:
                self._keep()
            except ApplianceError:  # seen by the iterating thread too, which reconnects
                self._forget_leases()

    def _keep(self) -> None:
        """Renew leases, send acks that wait, and release envelopes leased too far ahead."""
        link, busy_since = self._link, self._busy_since
        if link is None:
            return
        if busy_since is not None and self._reading.acquire(blocking=False):
            try:
                self._receive(link, 0)
            finally:
                self._reading.release()
        self.flush(grant=busy_since is None)
        if busy_since is not None and time.monotonic() - busy_since > BUSY_SECONDS_MAX:
            self._release_ahead()
        with self._lock:
            leased = list(self._leased.values())
        if leased:
            self.extend(leased)

    def _release_ahead(self) -> None:
        with self._lock:
            keys = [key for key, _, _ in self._ready if key in self._leased]
            ahead = [self._leased.pop(key) for key in keys]
            self._ready.clear()
            self._granted -= len(ahead)
        if ahead:
            self._send({"nack": ahead, "mode": "release"})

    def _send(self, frame: dict[str, Any]) -> None:
        link = self._link
        if link is None:
            return  # the lease ended with the connection
        try:
            link.send(_encode(frame))
        except SocketBroken:
            self._forget_leases()
