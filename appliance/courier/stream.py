"""Implements one bounded stream: envelopes, states, transitions. Pure: no clock, no I/O.

`now` is in milliseconds on a monotonic clock. The states are drawn in `__init__.py`.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from appliance.courier import change, outcome_log, recent_ids
from appliance.courier.item import (
    DELAYED,
    FOREVER,
    GONE,
    DeliveryOptions,
    Expiry,
    FailedAttempt,
    StreamItem,
)
from appliance.courier.lease import (
    ACK,
    DEAD,
    EXHAUST,
    EXPIRE,
    LEASE,
    LEASED,
    NACK,
    READY,
    REJECT,
    RELEASE,
    renewed_until,
)
from appliance.courier.policy import StreamPolicy
from appliance.courier.ready_queue import ReadyQueue
from appliance.courier.stream_stats import StreamStats
from appliance.courier.timers import Timers

NO_OPTIONS = DeliveryOptions()
ATTEMPTS_KEPT_MAX = 20  # failed attempts in an envelope's history


class ConsumerLeases(Protocol):
    """The part of `Consumer` that a stream needs."""

    inflight: dict[str, StreamItem]
    same_id_items: dict[str, list[StreamItem]]


class Stream:
    """`items` are the ready, delayed and leased envelopes, `dead` the dead letters."""

    def __init__(
        self, name: str, policy: StreamPolicy, timers: Timers,
        deferred_streams: set["Stream"] | None = None,
        changes: list[change.JournalChange] | None = None,
        outcomes: outcome_log.OutcomeLog | None = None, label: str = "other",
    ) -> None:  # fmt: skip
        """Take the parts that streams share. The stream adds itself to `deferred_streams` while
        dispatch waits for a quick consumer, and a durable stream adds its journal records
        (change.py) to `changes`."""
        self.name = name
        self.policy = policy
        self.label = label  # in metrics, where users' names would be too many
        self.items: dict[str, StreamItem] = {}
        self.dead: dict[str, StreamItem] = {}
        self.ready_queue = ReadyQueue(policy.aging_ms)
        self.leased = 0
        self.delayed = 0
        self.bytes = 0
        self.dead_bytes = 0  # the share of `bytes` in dead letters
        self.reserved = 0  # envelopes that are being written to the journal
        self.paused = False
        self.paused_until: float | None = None
        self.stats = StreamStats()
        self.recent_ids = recent_ids.RecentIds(recent_ids.COUNT_MAX, recent_ids.SECONDS_MAX)
        self.changes: list[change.JournalChange] = [] if changes is None else changes
        self.subscriptions: list[Any] = []
        self.min_served = 0
        self.deferred_streams: set[Stream] = set() if deferred_streams is None else deferred_streams
        self._timers = timers
        self._outcomes = outcome_log.OutcomeLog() if outcomes is None else outcomes
        self._order = 0

    # -- enqueue --------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self.items)

    @property
    def is_busy(self) -> bool:
        """Return whether there is anything that forgetting the stream would lose."""
        return bool(self.items or self.dead or self.paused or self.reserved)

    def has_capacity(self, count: int, size: int) -> bool:
        policy = self.policy
        return (
            len(self.items) + self.reserved + count <= policy.depth_max
            and self.bytes + size <= policy.bytes_max
        )

    def could_free_capacity(self, count: int, size: int) -> bool:
        """Return whether dropping ready envelopes would free enough; if not, none should be
        dropped."""
        stuck = len(self.items) - self.ready_queue.ready_count + self.reserved
        policy = self.policy
        return stuck + count <= policy.depth_max and self.dead_bytes + size <= policy.bytes_max

    def has_id(self, id_: str) -> bool:
        """Return whether the id is in the stream or was acked recently."""
        return id_ in self.items or id_ in self.recent_ids or id_ in self.dead

    def find(self, id_: str) -> StreamItem | None:
        return self.items.get(id_) or self.dead.get(id_)

    def oldest_ready_ms(self, now: float) -> float:
        oldest = self.ready_queue.oldest()
        return 0.0 if oldest is None else now - oldest.since

    def put(
        self, id_: str, body: bytes, now: float, options: DeliveryOptions = NO_OPTIONS
    ) -> StreamItem | None:
        """Add an envelope; None if its id is a duplicate. The caller has checked the capacity."""
        if id_ in self.items or id_ in self.recent_ids or id_ in self.dead:
            self.stats.duplicates += 1
            return None
        self._order += 1
        item = StreamItem(self, id_, body, self._order, now)
        self.items[id_] = item
        self.bytes += len(body)
        self.stats.enqueued += 1
        item.priority = options.priority
        item.key = options.key
        ttl_ms = options.ttl_ms or self.policy.ttl_seconds * 1000
        if ttl_ms:
            self._set_expiry(item, now + ttl_ms)
        if options.delay_ms:
            self._delay(item, now + options.delay_ms)
        else:
            self.ready_queue.add(item)
        return item

    def _set_expiry(self, item: StreamItem, at: float) -> None:
        item.expires = at
        item.expiry = Expiry(item)
        self._timers.set(item.expiry, at)

    def drop_oldest(self) -> bool:
        """Drop the oldest available envelope. False if there is none."""
        oldest = self.ready_queue.oldest()
        if oldest is None:
            return False
        self._drop_waiting(oldest, "full")
        return True

    # -- deliver ---------------------------------------------------------------------

    def defer_dispatch(self) -> None:
        """Dispatch again in the next tick, which comes soon."""
        self.deferred_streams.add(self)
        self._timers.wake()

    def claim(
        self, limit: int, consumer: ConsumerLeases, now: float, lease_ms: int
    ) -> list[StreamItem]:
        """Lease the next envelopes, at most `limit`, until `now + lease_ms`."""
        if self.paused:
            return []
        taken = self.ready_queue.pop(limit, now)
        deadline = now + lease_ms
        bucket = self._timers.lease_bucket(lease_ms)
        inflight, name = consumer.inflight, self.name
        any_expired = False
        for item in taken:
            if item.expires <= now:
                any_expired = True
                continue
            item.state = LEASED
            item.consumer = consumer
            item.leased_at = now
            item.attempts += 1
            item.delivered += 1
            item.lease_bucket = bucket
            if bucket is None:
                self._timers.set(item, deadline)
            else:
                item.deadline = deadline
                bucket[item] = None
            key = item.id
            if key in inflight:
                consumer.same_id_items.setdefault(key, []).append(item)
                key = f"{key}\0{name}"
            inflight[key] = item
        if any_expired:
            taken = self._without_expired(taken, now)
        self.leased += len(taken)
        self.stats.record_deliveries(taken, now)
        return taken

    def _without_expired(self, taken: list[StreamItem], now: float) -> list[StreamItem]:
        for item in taken:
            if item.state == READY:
                self.ready_queue.unblock_key(item)
                self._expire(item, now)
        return [item for item in taken if item.state == LEASED]

    # -- ended leases --------------------------------------------------------------------

    def ack(self, item: StreamItem, now: float) -> None:
        """Remove the envelope: it is done."""
        consumer = item.consumer
        self._end_lease(item, ACK)
        self.stats.acked += 1
        if self.policy.durable:
            ordinal, limit = self.recent_ids.total, recent_ids.COUNT_MAX
            logged = self._outcomes.record(outcome_log.ACKED, item, now, consumer)
            acked = change.EnvelopeAcked(item.row, logged, self.name, ordinal, limit, item.id)
            self.changes.append(acked)
        elif self._outcomes.threshold:
            self._outcomes.add(outcome_log.ACKED, item, now, consumer)
        self.recent_ids.add(item.id)
        self._remove(item)
        if item.key is not None:
            self.ready_queue.unblock_key(item)

    def release(self, item: StreamItem, now: float, delay_ms: float = 0) -> None:
        """Return the envelope without counting the attempt."""
        self._end_lease(item, RELEASE)
        item.attempts -= 1
        self.stats.released += 1
        self._requeue(item, now, delay_ms)

    def fail(
        self, item: StreamItem, now: float, error: str = "", delay_ms: float | None = None
    ) -> bool:
        """Count a failed attempt and redeliver. True if it became a dead letter instead."""
        self._record_attempt(item, now, "failed", error)
        item.failures += 1
        item.error = error
        self.stats.failed += 1
        return self._retry(item, now, NACK, "max_deliveries", delay_ms)

    def reject(self, item: StreamItem, now: float, error: str = "") -> None:
        """Make the envelope a dead letter at once."""
        self._record_attempt(item, now, "rejected", error)
        self._end_lease(item, REJECT)
        item.error = error
        self.stats.rejected += 1
        self._dead_letter(item, now, "rejected")

    def extend(self, item: StreamItem, now: float, lease_ms: int) -> float:
        """Let the lease end `lease_ms` from now, within its total limit. Returns the new end."""
        if item.lease_bucket is not None:
            item.lease_bucket.pop(item, None)
            item.lease_bucket = None
        until = renewed_until(item.leased_at, now, lease_ms, self.policy.lease_total_ms_max)
        self._timers.set(item, until)
        return until

    def expire_lease(self, item: StreamItem, now: float) -> None:
        """Redeliver an unfinished envelope. The attempt counts."""
        self._record_attempt(item, now, "lease_expired", "")
        self.stats.expired_leases += 1
        self._retry(item, now, EXPIRE, "lease_expired", self.policy.bare_delay_ms)

    def _record_attempt(self, item: StreamItem, now: float, outcome: str, error: str) -> None:
        """Add a failed attempt to the history and the log."""
        limit, consumer = ATTEMPTS_KEPT_MAX, item.consumer
        history = item.history = item.history or []
        history.append(FailedAttempt(now, consumer.name, outcome, error))
        del history[:-limit]
        name, reason = outcome_log.failure(outcome, error)
        if not self.policy.durable:
            self._outcomes.add(name, item, now, consumer, reason)
        else:
            logged = self._outcomes.record(name, item, now, consumer, reason)
            attempt = change.AttemptFailed(item.row, logged, limit, consumer.name, outcome, error)
            self.changes.append(attempt)

    def _end_lease(self, item: StreamItem, event: str) -> None:
        """End a lease. Raises IllegalTransition if it is not leased."""
        item.state = LEASE.after(item.state, event)
        if item.lease_bucket is not None:
            item.lease_bucket.pop(item, None)
            item.lease_bucket = None
        else:
            self._timers.cancel(item)
        self.leased -= 1
        consumer = item.consumer
        inflight = consumer.inflight
        item.consumer = None
        if inflight.get(item.id) is item:
            del inflight[item.id]
            return
        del inflight[f"{item.id}\0{self.name}"]
        same_id = consumer.same_id_items[item.id]
        same_id.remove(item)
        if not same_id:
            del consumer.same_id_items[item.id]

    def _retry(
        self, item: StreamItem, now: float, event: str, reason: str, delay_ms: float | None = None
    ) -> bool:
        """End the lease with `event`, or with a dead letter if no attempts are left."""
        retry_ms = self.policy.retry_delay_ms(item.attempts)
        if retry_ms is None:
            self._end_lease(item, EXHAUST)
            self._dead_letter(item, now, reason)
            return True
        self._end_lease(item, event)
        self._requeue(item, now, retry_ms if delay_ms is None else delay_ms)
        return False

    def _requeue(self, item: StreamItem, now: float, delay_ms: float) -> None:
        """Return the envelope to the tail, or to its key's head, now or after `delay_ms`."""
        if item.expires <= now:
            self.ready_queue.unblock_key(item)
            self._expire(item, now)
            return
        self._order += 1
        item.order = self._order
        if self.policy.durable:
            row, attempts, failures = item.row, item.attempts, item.failures
            self.changes.append(change.EnvelopeReturned(row, attempts, failures, delay_ms))
        if delay_ms > 0:
            self._delay(item, now + delay_ms)
        else:
            item.since = now
            self.ready_queue.put_back(item)

    # -- time ------------------------------------------------------------------------------

    def _delay(self, item: StreamItem, until: float) -> None:
        item.state = DELAYED
        self.delayed += 1
        self._timers.set(item, until)

    def on_timer(self, item: StreamItem, now: float) -> str:
        """Handle the end of the lease or delay. Return the outcome, or an empty string."""
        if item.state == LEASED:
            item.lease_bucket = None
            self.expire_lease(item, now)
            return "lease_expired"
        if item.state == DELAYED:
            self.delayed -= 1
            item.state, item.since = READY, now
            if item.expires <= now:
                self.ready_queue.unblock_key(item)
                self._expire(item, now)
                return "expired"
            self._order += 1
            item.order = self._order
            self.ready_queue.put_back(item)
            return "due"
        return ""

    def on_expiry(self, item: StreamItem, now: float) -> bool:
        """Handle the end of the time to live. A leased envelope expires when it comes back."""
        if item.state not in (READY, DELAYED):
            return False
        self._withdraw(item)
        self._expire(item, now)
        return True

    def _expire(self, item: StreamItem, now: float) -> None:
        """Drop or dead-letter an envelope without timer, outside the ready queue."""
        self.stats.expired += 1
        if not self.policy.durable:
            self._outcomes.add(outcome_log.EXPIRED, item, now)
        elif logged := self._outcomes.record(outcome_log.EXPIRED, item, now):
            self.changes.append(change.EnvelopeExpired(item.row, logged))
        if self.policy.ttl_action == "dead":
            self._dead_letter(item, now, "expired")
        else:
            item.state = GONE
            self._drop(item, "expired")

    # -- dead letters ----------------------------------------------------------------------

    def _dead_letter(self, item: StreamItem, now: float, reason: str) -> None:
        self.ready_queue.unblock_key(item)
        del self.items[item.id]
        self._cancel_expiry(item)
        item.state = DEAD
        item.reason = reason
        item.since = now
        self.dead[item.id] = item
        self.dead_bytes += len(item.body)
        self.stats.dead_lettered += 1
        error = outcome_log.death(reason, item.error)
        if self.policy.durable:
            logged = self._outcomes.record(outcome_log.DEAD, item, now, error=error)
            dead = change.EnvelopeDead(item.row, logged, item.attempts, reason, item.error)
            self.changes.append(dead)
        else:
            self._outcomes.add(outcome_log.DEAD, item, now, error=error)
        while len(self.dead) > self.policy.dead_max:
            self._drop_dead_letter(next(iter(self.dead.values())), "dead_full")

    def redrive(self, item: StreamItem, now: float) -> StreamItem:
        """Make a dead letter ready again, at the tail and with no attempts counted."""
        del self.dead[item.id]
        self.dead_bytes -= len(item.body)
        item.state = GONE
        self._order += 1
        fresh = StreamItem(self, item.id, item.body, self._order, now)
        fresh.priority, fresh.key, fresh.row = item.priority, item.key, item.row
        fresh.history = item.history
        self.items[fresh.id] = fresh
        self.ready_queue.add(fresh)
        self.stats.redriven += 1
        if self.policy.durable:
            self.changes.append(change.EnvelopeRedriven(item.row))
        return fresh

    # -- administration-----------------------------------------------------------------------

    def iterate(self, state: str | None) -> Iterator[StreamItem]:
        """Yield envelopes in one state, or all, ordered by arrival."""
        if state != DEAD:
            yield from (i for i in self.items.values() if state is None or i.state == state)
        if state in (None, DEAD):
            yield from self.dead.values()

    def purge(self, item: StreamItem) -> bool:
        """Remove an envelope permanently. False if it is leased."""
        if item.state == DEAD:
            self._drop_dead_letter(item, "purged")
        elif item.state in (READY, DELAYED):
            self._drop_waiting(item, "purged")
        else:
            return False
        return True

    def counts(self) -> dict[str, int]:
        return {
            READY: self.ready_queue.ready_count, DELAYED: self.delayed, LEASED: self.leased,
            DEAD: len(self.dead),
        }  # fmt: skip

    def restore(self, item: StreamItem, delay_ms: float, now: float) -> None:
        """Add an envelope from the journal. Called in the order in which they were written."""
        self._order += 1
        item.order = self._order
        self.bytes += len(item.body)
        self.stats.enqueued += 1
        if item.state == DEAD:
            self.dead[item.id] = item
            self.dead_bytes += len(item.body)
            return
        self.items[item.id] = item
        if item.expires != FOREVER:
            self._set_expiry(item, item.expires)
        if delay_ms <= 0:
            self.ready_queue.add(item)
            return
        if item.attempts:  # failed, so envelopes with its key must wait
            self.ready_queue.block_key(item)
        self._delay(item, now + delay_ms)

    # -- removal --------------------------------------------------------------------------------

    def _drop_waiting(self, item: StreamItem, reason: str) -> None:
        self._withdraw(item)
        self.ready_queue.unblock_key(item)
        self._drop(item, reason)

    def _drop(self, item: StreamItem, reason: str) -> None:
        self.stats.record_drop(reason)
        self._remove(item)
        if self.policy.durable:
            self.changes.append(change.EnvelopeGone(item.row))

    def _withdraw(self, item: StreamItem) -> None:
        """Remove an envelope from the ready queue or end its delay."""
        was_ready, item.state = item.state == READY, GONE
        if was_ready:
            self.ready_queue.remove(item)
        else:
            self.delayed -= 1
            self._timers.cancel(item)
            self.ready_queue.unblock_key(item)

    def _drop_dead_letter(self, item: StreamItem, reason: str) -> None:
        del self.dead[item.id]
        item.state = GONE
        self.bytes -= len(item.body)
        self.dead_bytes -= len(item.body)
        self.stats.record_drop(reason)
        if self.policy.durable:
            self.changes.append(change.EnvelopeGone(item.row))

    def _cancel_expiry(self, item: StreamItem) -> None:
        if item.expiry is not None:
            self._timers.cancel(item.expiry)
            item.expiry = None

    def _remove(self, item: StreamItem) -> None:
        del self.items[item.id]
        self._cancel_expiry(item)
        self.bytes -= len(item.body)
