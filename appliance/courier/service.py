"""The courier's verbs: enqueue, receive, settle. Who may, how fast, and where there is room.

Streams in memory are changed at once, on the event loop. Of a durable stream the journal
hears first; only then is the envelope in the stream, and its producer told.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from appliance.courier import metrics, wire
from appliance.courier.access import ENQUEUE, SUBSCRIBE, require
from appliance.courier.bucket import Bucket
from appliance.courier.credit import Taker
from appliance.courier.envelope import Parsed, parse
from appliance.courier.inserts import Inserts, Sink, check_name
from appliance.courier.item import DEAD, GONE, Item
from appliance.courier.journal import Journal
from appliance.courier.policy import is_pattern
from appliance.courier.queue import Queue
from appliance.courier.ring import Ring
from appliance.courier.settings import CourierSettings
from appliance.courier.trigger import Engine
from appliance.courier.view import INFLIGHT, LATEST, View
from appliance.kernel.auth import Principal
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Invalid
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.wakeup import Signal

BUCKETS_MAX = 1_000
RECEIVER = "receiver-"
RECEIVE_STEP = 16  # envelopes of one receive that are dealt before their bytes are counted


class Courier:
    """One per process. Used on the event loop only."""

    def __init__(
        self,
        settings: CourierSettings,
        clock: Clock,
        log: Log,
        boot_id: str,
        journal: Journal | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.log = log
        self.boot_id = boot_id
        self.journal = journal
        self.queue = Queue(settings.policy_of, settings.idle_seconds * 1000, settings.pattern_of)
        self.engine = Engine(settings.triggers, settings.hops_max)
        self.views = {
            name: View(name, settings.view_rows_max, settings.view_bytes_max)
            for name in (LATEST, INFLIGHT)
        }
        self.inserts = Inserts(
            self.queue, self.engine, self.views[LATEST], settings, clock, log, journal, sink
        )
        self.closed = False
        self.waiting = 0
        self._waiters: set[Signal] = set()
        self._buckets: dict[str, Bucket] = {}
        if journal is not None:
            self.inserts.recover(journal)
        metrics.watch(self.queue, settings, self.now)

    def now(self) -> float:
        """Milliseconds that never go back; everything in the queue is told by them."""
        return self.clock.monotonic() * 1000

    # -- in ---------------------------------------------------------------------------

    def enqueue(self, who: Principal, to: str, raw: Any) -> wire.Enqueued:
        ring = self.ring_to(who, ENQUEUE, to)
        parsed = parse(raw, to, self.settings.envelope_bytes_max)
        duplicates = self.insert(who, ring, [parsed])
        return wire.Enqueued(parsed.id, self.boot_id, bool(duplicates))

    def enqueue_batch(self, who: Principal, to: str, raws: Sequence[Any]) -> wire.EnqueuedBatch:
        """All of them, or an error and none: an invalid one names its place."""
        if len(raws) > self.settings.batch_max:
            raise Invalid(
                f"envelopes: at most {self.settings.batch_max} in a batch",
                details={"field": "envelopes", "limit": self.settings.batch_max},
            )
        ring = self.ring_to(who, ENQUEUE, to)
        bytes_max = self.settings.envelope_bytes_max
        parsed = [
            parse(raw, to, bytes_max, f"envelopes[{place}]") for place, raw in enumerate(raws)
        ]
        duplicates = self.insert(who, ring, parsed)
        return wire.EnqueuedBatch([one.id for one in parsed], self.boot_id, duplicates)

    def insert(self, who: Principal, ring: Ring, parsed: Sequence[Parsed]) -> int:
        """Into the stream, in order; how many were duplicates."""
        self.charge(who, len(parsed))
        return self.inserts.insert(ring, parsed)

    def ring_to(self, who: Principal, verb: str, stream: str) -> Ring:
        """The stream, made at its first use, once it is clear that `who` may."""
        require(who, verb, stream)
        ring = self.queue.rings.get(stream)
        if ring is None:
            ring = self.inserts.open(stream)
        return ring

    def known(self, who: Principal, verb: str, stream: str) -> Ring:
        """The stream, if it was ever used; asking does not make one."""
        require(who, verb, stream)
        ring = self.queue.rings.get(stream)
        if ring is None:
            raise wire.NoSuchStream(details={"stream": stream})
        return ring

    def charge(self, who: Principal, cost: int) -> None:
        rate = self.settings.rate_per_token
        if not rate:
            return
        now = self.now()
        bucket = self._buckets.get(who.id)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets = {
                    id_: one for id_, one in self._buckets.items() if not one.is_full(now)
                }
            bucket = self._buckets[who.id] = Bucket(rate, rate, now)
        wait = bucket.take(cost, now)
        if wait:
            raise wire.TooFast(details={"scope": "token"}, retry_after=wait)

    # -- out --------------------------------------------------------------------------

    def taker(self, name: str, wake: Any, lease_ms: int | None, id_: str = "") -> Taker:
        if lease_ms is not None:
            lease_ms = min(lease_ms, self.settings.lease_ms_max)
        return Taker(id_ or random_id()[:20], name, wake, lease_ms)

    def subscribe(self, who: Principal, taker: Taker, stream: str) -> None:
        require(who, SUBSCRIBE, stream)
        if not is_pattern(stream):
            self.ring_to(who, SUBSCRIBE, stream)
        elif not stream.isprintable():
            check_name(stream)
        self.queue.subscribe(taker, stream, self.now())

    def grant(self, taker: Taker, credit: int) -> None:
        if taker.credit + credit > self.settings.credit_max:
            raise wire.TooMuchCredit(
                details={"field": "credit", "limit": self.settings.credit_max,
                         "credit": taker.credit},
            )  # fmt: skip
        self.queue.grant(taker, credit, self.now())

    def receive(
        self, who: Principal, command: wire.Receive, is_there: Callable[[], bool] = lambda: True
    ) -> tuple[Taker, list[Item]]:
        """A long poll: what is ready now, or the first that comes within `wait` seconds.

        `is_there` is asked after the wait: from who left, all goes back at once, uncounted.
        """
        signal = Signal()
        taker = self.taker(who.id, signal.set, command.lease_ms, RECEIVER + random_id()[:20])
        self.subscribe(who, taker, command.stream)
        try:
            most = min(command.max, self.settings.receive_max)
            self._fill(taker, most)
            seconds = min(command.wait, self.settings.wait_seconds_max)
            if not taker.out and seconds > 0 and not self.closed:
                self.wait(signal, seconds)
                if is_there():
                    self._fill(taker, most)
                else:
                    taker.out = []
                    self.leave(taker)
        finally:
            self.queue.stand_up(taker)
        items, taker.out = taker.out, []
        self.told(taker, items)
        return taker, items

    def _fill(self, taker: Taker, most: int) -> None:
        """Credit a little at a time, until nothing comes or one answer holds enough."""
        bytes_max = self.settings.delivery_bytes_max
        while taker.credit == 0 and len(taker.out) < most:
            if sum(len(item.body) for item in taker.out) >= bytes_max:
                break
            self.queue.grant(taker, min(RECEIVE_STEP, most - len(taker.out)), self.now())

    def told(self, taker: Taker, items: Sequence[Item]) -> None:
        """These go out to their taker now."""
        if items and self.settings.event_log:
            now = self.now()
            waits = [round(now - item.at, 3) for item in items[:100]]
            ids = [item.id for item in items[:100]]
            self.log.info("courier", event="deliver", taker=taker.id, ids=ids, ms=waits)

    def wait(self, signal: Signal, seconds: float) -> None:
        if self.waiting >= self.settings.waiting_max:
            raise wire.TooManyWaiting
        self.waiting += 1
        self._waiters.add(signal)
        try:
            signal.wait(seconds)
        finally:
            self.waiting -= 1
            self._waiters.discard(signal)

    def receiver(self, who: Principal, id_: str) -> Taker:
        """The holder of an earlier receive, if it was this caller's and holds something."""
        taker = self.queue.takers.get(id_)
        if taker is None or taker.name != who.id or not id_.startswith(RECEIVER):
            raise wire.NotHeld(details={"receiver": id_})
        return taker

    # -- what becomes of deliveries -------------------------------------------------------

    def ack(self, taker: Taker, ids: Sequence[str]) -> list[str]:
        """Done; the ids that this taker does not hold."""
        now = self.now()
        touched: dict[str, Ring] = {}
        lost = self.queue.finish(taker, ids, touched)
        for ring in touched.values():
            if ring.lanes.open:
                self.queue.deal(ring, now)
            self.inserts.room(ring)
        self._event("ack", taker, ids)
        return lost

    def nack(
        self,
        taker: Taker,
        ids: Sequence[str],
        mode: str = "fail",
        delay_ms: int | None = None,
        error: str = "",
    ) -> list[str]:
        """Not done; the ids that this taker does not hold."""
        now = self.now()
        lost = []
        for id_ in ids:
            item = taker.find(id_)
            if item is None:
                lost.append(id_)
                continue
            ring = item.ring
            if mode == "release":
                ring.release(item, now, delay_ms or 0)
            elif mode == "reject":
                ring.reject(item, now, error)
            else:
                ring.fail(item, now, error, delay_ms)
            self.queue.deal(ring, now)
            if item.state in (DEAD, GONE):
                self.inserts.room(ring)
        self._event("nack", taker, ids)
        return lost

    def extend(self, taker: Taker, ids: Sequence[str], lease_ms: int | None) -> list[str]:
        now = self.now()
        lost = []
        for id_ in ids:
            item = taker.find(id_)
            if item is None:
                lost.append(id_)
            else:
                wanted = lease_ms or taker.lease_ms or item.ring.policy.lease_ms
                item.ring.extend(item, now, min(wanted, self.settings.lease_ms_max))
        return lost

    def forget_receiver(self, taker: Taker) -> None:
        if not taker.inflight and not taker.seats:
            self.queue.takers.pop(taker.id, None)

    def leave(self, taker: Taker) -> None:
        """A subscriber's connection ended: what it held is ready again, at once."""
        returned = self.queue.close(taker, self.now())
        if returned and self.settings.event_log:
            self.log.info("courier", event="leave", taker=taker.id, returned=returned)

    # -- the end -----------------------------------------------------------------------------

    def end(self) -> None:
        """Whoever waits is answered now."""
        self.closed = True
        for signal in tuple(self._waiters):
            signal.set()
        self.inserts.end()

    def _event(self, name: str, taker: Taker, ids: Sequence[str]) -> None:
        if self.settings.event_log:
            self.log.info("courier", event=name, taker=taker.id, ids=list(ids)[:100])


def delivery(item: Item) -> msgspec.Raw:
    """An envelope as an HTTP receiver gets it."""
    attempt = b',"attempt":%d' % item.delivered if item.delivered > 1 else b""
    return msgspec.Raw(b'{"deliver":%b%b}' % (item.body, attempt))
