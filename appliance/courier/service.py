"""The courier's operations: enqueue, receive, ack, nack, extend; with permissions and rate limits.

Streams in memory are changed immediately, on the event loop. Envelopes for durable streams are
journaled before they enter the stream and before the producer gets an answer.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from appliance.courier import metrics, wire
from appliance.courier.access import ENQUEUE, SUBSCRIBE, require
from appliance.courier.consumer import Consumer
from appliance.courier.enqueue import EnqueuePipeline, WebhookSink, check_name
from appliance.courier.envelope import ParsedEnvelope, parse
from appliance.courier.fair_dispatch import dispatch
from appliance.courier.item import GONE, StreamItem
from appliance.courier.journal import Journal
from appliance.courier.lease import DEAD
from appliance.courier.outcome_log import OutcomeLog
from appliance.courier.policy import is_pattern
from appliance.courier.queue import Queue
from appliance.courier.settings import CourierSettings
from appliance.courier.stream import Stream
from appliance.courier.trigger import TriggerEngine
from appliance.courier.view import LATEST, View
from appliance.kernel.auth import Principal
from appliance.kernel.blank import is_printable
from appliance.kernel.caller import WaitLimit
from appliance.kernel.clock import HOUR_MS, Clock
from appliance.kernel.ids import random_id
from appliance.kernel.log import Log
from appliance.kernel.token_bucket import TokenBucket
from appliance.kernel.turns import parse_in_pieces
from appliance.kernel.wakeup import Wakeup

VIEW_ROWS_MAX = 10_000  # rows in one view; the rows unchanged for longest are removed first
DELIVERY_BYTES_MAX = 1024 * 1024  # one frame, page or response with several envelopes
LEASE_MS_MAX = HOUR_MS  # longest lease that a consumer can ask for
IDLE_MS = float(HOUR_MS)  # an empty stream that is unused for this long is forgotten
WAITING_MAX = 500  # receivers with a token that can wait at once
BUCKETS_MAX = 1_000
RECEIVER = "receiver-"
RECEIVE_STEP = 16  # envelopes leased for one receive before their bytes are counted
CREDIT_MAX = 10_000  # one consumer's credit; granting more is an error
RECEIVE_MAX = 1_000  # envelopes in one POST /v1/receive response
HOPS_MAX = 8  # triggers that an envelope and its copies can go through in a row
VIEW_BYTES_MAX = 64 * 1024 * 1024  # a view's envelopes; the rows unchanged for longest go first
WAIT_SECONDS_MAX = 30.0  # longest long poll, in seconds; longer ones end after this time


class Courier:
    """One per process, used on the event loop only."""

    def __init__(
        self,
        settings: CourierSettings,
        clock: Clock,
        log: Log,
        boot_id: str,
        journal: Journal | None = None,
        webhooks: WebhookSink | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.log = log
        self.boot_id = boot_id
        self.journal = journal
        outcomes = OutcomeLog(enabled=journal is not None)
        self.queue = Queue(settings.policy_of, IDLE_MS, settings.pattern_of, outcomes)
        self.engine = TriggerEngine(settings.triggers, HOPS_MAX)
        self.views = {LATEST: View(LATEST, VIEW_ROWS_MAX, VIEW_BYTES_MAX)}
        self.pipeline = EnqueuePipeline(
            self.queue, self.engine, self.views[LATEST], settings, clock, log, journal, webhooks
        )
        self.closed = False
        self.waits = WaitLimit(WAITING_MAX, wire.WaitLimitReached)
        self._waiters: set[Wakeup] = set()
        self._buckets: dict[str, TokenBucket] = {}
        if journal is not None:
            self.pipeline.recover(journal)
        metrics.watch(self.queue, self.now)

    def now(self) -> float:
        """Return milliseconds on the monotonic clock. The queue uses them for all times."""
        return self.clock.monotonic() * 1000

    # -- enqueue-----------------------------------------------------------------------

    def enqueue(self, who: Principal, to: str, raw: Any) -> wire.Enqueued:
        stream = self.open_stream(who, ENQUEUE, to)
        parsed = parse(raw, to)
        duplicates = self.enqueue_parsed(who, stream, [parsed])
        return wire.Enqueued(parsed.id, self.boot_id, bool(duplicates))

    def enqueue_batch(self, who: Principal, to: str, raws: Sequence[Any]) -> wire.EnqueuedBatch:
        """Enqueue all or none. The error names the invalid envelope by its index."""
        self.open_stream(who, ENQUEUE, to)

        def parse_item(index: int) -> ParsedEnvelope:
            return parse(raws[index], to, f"envelopes[{index}]")

        parsed = parse_in_pieces(parse_item, range(len(raws)), self.clock)
        stream = self.open_stream(who, ENQUEUE, to)  # may have been forgotten meanwhile
        duplicates = self.enqueue_parsed(who, stream, parsed)
        return wire.EnqueuedBatch([envelope.id for envelope in parsed], self.boot_id, duplicates)

    def enqueue_parsed(
        self, who: Principal, stream: Stream, parsed: Sequence[ParsedEnvelope]
    ) -> int:
        """Enqueue in order. Return how many were duplicates."""
        self.charge(who, len(parsed))
        return self.pipeline.enqueue(stream, parsed)

    def open_stream(self, who: Principal, verb: str, name: str) -> Stream:
        """Return the stream, created if it doesn't exist. Raises without permission."""
        require(who, verb, name)
        stream = self.queue.streams.get(name)
        if stream is None:
            stream = self.pipeline.open(name)
        return stream

    def find_stream(self, who: Principal, verb: str, name: str) -> Stream:
        """Return the stream. Raises if it doesn't exist, or without permission."""
        require(who, verb, name)
        return self.require_stream(name)

    def require_stream(self, name: str) -> Stream:
        """Return the stream. Raises NoSuchStream."""
        stream = self.queue.streams.get(name)
        if stream is None:
            raise wire.NoSuchStream(details={"stream": name})
        return stream

    def charge(self, who: Principal, cost: int) -> None:
        rate = self.settings.rate_per_token
        if not rate:
            return
        now = self.clock.monotonic()
        bucket = self._buckets.get(who.id)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                in_use = (pair for pair in self._buckets.items() if not pair[1].is_full(now))
                self._buckets = dict(in_use)
            bucket = self._buckets[who.id] = TokenBucket(rate, rate, now)
        wait = bucket.charge(cost, now)
        if wait:
            raise wire.RateExceeded(details={"scope": "token"}, retry_after=wait)

    # -- receive ----------------------------------------------------------------------

    def make_consumer(self, name: str, wake: Any, lease_ms: int | None, id_: str = "") -> Consumer:
        if lease_ms is not None:
            lease_ms = min(lease_ms, LEASE_MS_MAX)
        return Consumer(id_ or random_id()[:20], name, wake, lease_ms)

    def subscribe(self, who: Principal, consumer: Consumer, stream: str) -> None:
        require(who, SUBSCRIBE, stream)
        if not is_pattern(stream):
            self.open_stream(who, SUBSCRIBE, stream)
        elif not is_printable(stream):
            check_name(stream)
        self.queue.subscribe(consumer, stream, self.now())

    def grant(self, consumer: Consumer, credit: int) -> None:
        if consumer.credit + credit > CREDIT_MAX:
            raise wire.CreditTooHigh(
                details={"field": "credit", "limit": CREDIT_MAX,
                         "credit": consumer.credit},
            )  # fmt: skip
        self.queue.grant(consumer, credit, self.now())

    def receive(
        self,
        who: Principal,
        command: wire.ReceiveRequest,
        is_there: Callable[[], bool] = lambda: True,
    ) -> tuple[Consumer, list[StreamItem]]:
        """Lease ready envelopes, or wait up to `wait` seconds for the first envelope.

        If `is_there` returns False after the wait, or raises because of a pause, the client's
        leases are released.
        """
        wakeup = Wakeup()
        consumer = self.make_consumer(
            who.id, wakeup.set, command.lease_ms, RECEIVER + random_id()[:20]
        )
        self.subscribe(who, consumer, command.stream)
        try:
            limit = min(command.max, RECEIVE_MAX)
            self._fill(consumer, limit)
            seconds = min(command.wait, WAIT_SECONDS_MAX)
            if not consumer.outgoing and seconds > 0 and not self.closed:
                self.wait(wakeup, seconds)
                stays = False
                try:
                    stays = is_there()
                finally:
                    if not stays:
                        consumer.outgoing = []
                        self.disconnect(consumer)
                if stays:
                    self._fill(consumer, limit)
        finally:
            self.queue.unsubscribe(consumer)
        items, consumer.outgoing = consumer.outgoing, []
        return consumer, items

    def receive_envelopes(
        self, who: Principal, command: wire.ReceiveRequest, is_there: Callable[[], bool]
    ) -> wire.Received:
        """Run `receive` for a response."""
        consumer, items = self.receive(who, command, is_there)
        return wire.Received(consumer.id, [delivery(item) for item in items], self.boot_id)

    def _fill(self, consumer: Consumer, limit: int) -> None:
        """Grant credit in small steps until nothing is ready or the response is full."""
        bytes_max = DELIVERY_BYTES_MAX
        while consumer.credit == 0 and len(consumer.outgoing) < limit:
            if sum(len(item.body) for item in consumer.outgoing) >= bytes_max:
                break
            self.queue.grant(
                consumer, min(RECEIVE_STEP, limit - len(consumer.outgoing)), self.now()
            )

    def wait(self, wakeup: Wakeup, seconds: float) -> None:
        leave = self.waits.enter(wakeup.set)
        self._waiters.add(wakeup)
        try:
            wakeup.wait(seconds)
        finally:
            leave()
            self._waiters.discard(wakeup)

    def receiver(self, who: Principal, id_: str) -> Consumer:
        """Return the consumer from an earlier receive by the same caller."""
        consumer = self.queue.consumers.get(id_)
        if consumer is None or consumer.name != who.id or not id_.startswith(RECEIVER):
            raise wire.LeaseLost(details={"receiver": id_})
        return consumer

    # -- ack, nack, extend ----------------------------------------------------------------

    def ack(self, consumer: Consumer, ids: Sequence[str]) -> list[str]:
        """Ack envelopes. Return the ids that the consumer has not leased."""
        now = self.now()
        touched: dict[str, Stream] = {}
        lost = self.queue.ack(consumer, ids, now, touched)
        for stream in touched.values():
            if stream.ready_queue.available:
                dispatch(stream, now)
            self.pipeline.notify_capacity(stream)
        return lost

    def nack(
        self,
        consumer: Consumer,
        ids: Sequence[str],
        mode: str | None = "fail",
        delay_ms: int | None = None,
        error: str = "",
    ) -> list[str]:
        """Nack envelopes. Return the ids that the consumer has not leased. Without `mode`, delay
        and error it is the specification's nack, see `StreamPolicy.bare_delay_ms`."""
        now = self.now()
        lost = []
        for id_ in ids:
            item = consumer.find(id_)
            if item is None:
                lost.append(id_)
                continue
            stream = item.stream
            if mode == "release":
                stream.release(item, now, delay_ms or 0)
            elif mode == "reject":
                stream.reject(item, now, error)
            elif mode is None and delay_ms is None and not error:
                stream.fail(item, now, delay_ms=stream.policy.bare_delay_ms)
            else:
                stream.fail(item, now, error, delay_ms)
            dispatch(stream, now)
            if item.state in (DEAD, GONE):
                self.pipeline.notify_capacity(stream)
        return lost

    def extend(self, consumer: Consumer, ids: Sequence[str], lease_ms: int | None) -> list[str]:
        now = self.now()
        lost = []
        for id_ in ids:
            item = consumer.find(id_)
            if item is None:
                lost.append(id_)
            else:
                wanted = lease_ms or consumer.lease_ms or item.stream.policy.lease_ms
                item.stream.extend(item, now, min(wanted, LEASE_MS_MAX))
        return lost

    def report_leases(
        self, consumer: Consumer, ids: Sequence[str], lost: Sequence[str]
    ) -> wire.LeaseResult:
        """Return the response to an ack, nack or extend. Raises LeaseLost if it had no effect."""
        self.forget_idle(consumer)
        if len(lost) == len(ids):
            raise wire.LeaseLost(details={"ids": lost[:100]})
        gone = set(lost)
        return wire.LeaseResult([id_ for id_ in ids if id_ not in gone], list(lost), self.boot_id)

    def forget_idle(self, consumer: Consumer) -> None:
        if not consumer.inflight and not consumer.subscriptions:
            self.queue.consumers.pop(consumer.id, None)

    def disconnect(self, consumer: Consumer, is_lost: bool = False) -> None:
        """Remove a consumer whose connection ended, and release its leases. With `is_lost` the
        leases count as attempts, because an envelope may have ended the consumer."""
        self.queue.disconnect(consumer, self.now(), is_lost)

    # -- shutdown -----------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        """Answer all waiting clients now."""
        self.closed = True
        for wakeup in tuple(self._waiters):
            wakeup.set()
        self.pipeline.stop_waiting()


def delivery(item: StreamItem) -> msgspec.Raw:
    """Return an envelope for a receive's response."""
    attempt = b',"attempt":%d' % item.attempts if item.attempts > 1 else b""
    return msgspec.Raw(b'{"deliver":%b%b}' % (item.body, attempt))
