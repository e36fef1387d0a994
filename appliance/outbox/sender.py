"""Delivers due sends: claims them in one transaction, delivers, and records outcomes in another.

A crash in between leaves sends in flight. The next start makes them pending again, and the receiver
recognises a duplicate by its id. Claims and outcomes whose write failed are repaired here.
"""

import random
from collections.abc import Callable
from itertools import zip_longest

import msgspec

from appliance.kernel.clock import DAY_MS, HOUR_MS, Clock
from appliance.kernel.delivery import in_turn
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.kernel.pool import GreenletPool
from appliance.kernel.retry import delay_seconds
from appliance.outbox import metrics, ordering, queries, states, writes
from appliance.outbox.routes import ROUTES_MAX, RouteState
from appliance.outbox.rows import SendRow
from appliance.outbox.service import RETRY_AFTER_MAX_MS, Outbox
from appliance.outbox.target import (
    Deliver,
    Delivered,
    DeliveryTarget,
    Outgoing,
    Result,
    RetryLater,
    Undeliverable,
)
from appliance.outbox.writes import DeliveryOutcome

SLOW_SECONDS = 2.0
DELIVER_MAX = 200  # sends in one request, a broker's limit
RUN_MAX = 20  # sends that a target delivers one after another; a kill repeats as many
RUN_SECONDS = 1.0  # the time limit for such a run, so that a kill repeats no older delivery
INTERRUPTED = "the delivery was interrupted"

_decode = msgspec.json.Decoder().decode
PROBE_SENDS_MAX = 10  # sends in an open route's probe
DELIVER_BYTES_MAX = 4 * 1024 * 1024  # payload bytes in one request to a broker


class Sender:
    def __init__(
        self,
        outbox: Outbox,
        pool: GreenletPool,
        clock: Clock,
        log: Log,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        """`random_unit` returns random numbers in [0, 1)."""
        self._outbox = outbox
        self._pool = pool
        self._clock = clock
        self._log = log
        self._random_unit = random_unit
        self._routes = outbox.routes
        self._in_flight: set[str] = set()
        self._unrecorded: list[DeliveryOutcome] = []
        self._may_have_orphans = False
        self.has_pending = True
        self._round = 0

    @property
    def in_flight(self) -> int:
        """Return how many sends are being delivered, or have an outcome that is not recorded
        yet."""
        return len(self._in_flight)

    # -- one round -----------------------------------------------------------------------

    def round(self) -> dict[str, int]:
        """Start a delivery for all due sends, as far as routes and the pool have capacity."""
        now_ms = self._outbox.steady.now_ms()
        self._record([])
        self._release_orphans()
        counts = {"claimed": 0}
        due, self.has_pending = self._outbox.store.read(queries.routes_due, now_ms, ROUTES_MAX)
        self._round += 1
        for name, _ in in_turn(due, self._round):
            counts["claimed"] += self._start_deliveries(name, now_ms)
            if self._pool.free_count() < 1:
                break
        self._routes.drop_idle({name for name, _ in due})
        return counts

    def _start_deliveries(self, name: str, now_ms: int) -> int:
        """Start all deliveries that one route allows now; return how many sends."""
        if self._outbox.pauses.holds(name, now_ms):
            return 0
        route = self._routes.state(name)
        target = self._outbox.targets.get(name.partition(":")[0])
        claimed = 0
        while target and self._routes.has_capacity(route) and self._pool.free_count() > 0:
            rows = self._claim(name, route, target, now_ms, probe=not route.breaker.is_closed)
            if not rows:
                break
            claimed += len(rows)
            route.begin()
            self._in_flight.update(row.id for row in rows)
            self._pool.spawn(self._deliver, route, target, rows)
        return claimed

    def _claim(
        self, name: str, route: RouteState, target: DeliveryTarget, now_ms: int, probe: bool
    ) -> list[SendRow]:
        in_order = ordering.is_in_order(name)
        limit = PROBE_SENDS_MAX if probe else DELIVER_MAX
        if not target.takes_batches:
            limit = RUN_MAX if in_order or target.shares_connection else 1
        oldest_ms = now_ms - self._max_age_ms(name)
        args = (name, now_ms, oldest_ms, limit, DELIVER_BYTES_MAX)
        try:
            if not in_order:
                return self._outbox.store.write(writes.claim, *args)
            rows, route.cursor = self._outbox.store.write(
                writes.claim_in_order, *args, route.cursor
            )
            return rows
        except Exception:
            self._may_have_orphans = True  # the claim may be committed nevertheless
            raise

    def _max_age_ms(self, route: str) -> int:
        """Return the maximum age for the route's mesh; other targets' routes have the default."""
        return self._outbox.max_age_hours(ordering.mesh_of(route)) * HOUR_MS

    # -- one delivery --------------------------------------------------------------------

    def _deliver(self, route: RouteState, target: DeliveryTarget, rows: list[SendRow]) -> None:
        outcomes: list[DeliveryOutcome] = []
        started = self._clock.monotonic()
        try:
            sends = [outgoing(row) for row in rows]
            results = self._call_target(target, sends)
            seconds = self._clock.monotonic() - started
            route.slow = seconds > SLOW_SECONDS
            metrics.delivery_seconds.labels(target.name).observe(seconds)
            self._update_breaker(route, results)
            outcomes = self._outcomes(target, rows, results)
        finally:
            route.running -= 1
            if len(outcomes) != len(rows):  # the greenlet was killed: outcomes are unknown
                self._in_flight.difference_update(row.id for row in rows)
                self._may_have_orphans = True
        self._record(outcomes)
        self._outbox.delivery_work.set()

    def _call_target(self, target: DeliveryTarget, sends: list[Outgoing]) -> list[Result]:
        """Return a result for each send that was tried. A run ends at a failure, and when its
        outcomes have to be recorded."""
        if target.takes_batches:
            return self._attempt(target.name, target.deliver_many, sends)
        ends = self._clock.monotonic() + RUN_SECONDS
        results: list[Result] = []
        with target.run() as deliver:
            for send in sends:
                results += self._attempt(target.name, deliver, [send])
                if isinstance(results[-1], RetryLater) or self._clock.monotonic() > ends:
                    break
        return results

    def _attempt(self, name: str, deliver: Deliver, sends: list[Outgoing]) -> list[Result]:
        try:
            results = deliver(sends)
            if len(results) != len(sends):
                raise ValueError("a wrong number of results")
            return results
        except ApplianceError as error:
            failure = RetryLater(error.code, error.retry_after)
        except Exception as error:
            self._log.error("a target failed", error, target=name)
            failure = RetryLater(f"the target failed: {type(error).__name__}")
        return [failure] * len(sends)

    def _update_breaker(self, route: RouteState, results: list[Result]) -> None:
        """Note whether the route works: if at least one send was delivered or refused."""
        retries = [result for result in results if isinstance(result, RetryLater)]
        if len(retries) < len(results):
            route.breaker.note_success()
            return
        retry_after = max((result.retry_after_seconds or 0 for result in retries), default=0)
        seconds = self._delay_ms(route.breaker.failures + 1, retry_after) / 1000
        # Monotonic, so that a clock change doesn't matter.
        route.breaker.note_failure(self._clock.monotonic(), seconds, at_once=retry_after > 0)

    def _delay_ms(self, failures: int, retry_after_seconds: float | None) -> int:
        settings = self._outbox.settings
        retry_after = min(retry_after_seconds or 0.0, RETRY_AFTER_MAX_MS / 1000)
        delay = delay_seconds(settings.retry, failures, self._random_unit(), retry_after)
        return max(1, round(delay * 1000))

    def _outcomes(
        self, target: DeliveryTarget, rows: list[SendRow], results: list[Result]
    ) -> list[DeliveryOutcome]:
        """Return each send's outcome. Behind a failed send to an ordered destination, later
        sends wait as if they had not been tried."""
        outcomes, failed = [], set()
        for row, result in zip_longest(rows, results):
            destination = (row.destination_kind, row.destination_ref)
            if isinstance(result, RetryLater) and ordering.is_in_order(row.route):
                result = None if destination in failed else result
                failed.add(destination)
            outcomes.append(
                DeliveryOutcome(row.id, states.RELEASE)
                if result is None
                else self._outcome(target, row, result)
            )
        return outcomes

    def _outcome(self, target: DeliveryTarget, row: SendRow, result: Result) -> DeliveryOutcome:
        count = metrics.deliveries.labels
        if isinstance(result, Delivered):
            count(target.name, "duplicate" if result.duplicate else "delivered").inc()
            if result.duplicate:
                self._report_duplicate(row, result)
            return DeliveryOutcome(
                row.id, states.DELIVERED, result.broker_message_id, result.history_id
            )
        if isinstance(result, Undeliverable):
            count(target.name, "refused").inc()
            metrics.deaths.labels("refused").inc()
            self._log.warning("a send was refused", id=row.id, code=result.code[:100])
            return DeliveryOutcome(row.id, states.REJECTED, reason=result.reason[:500])
        count(target.name, "later").inc()
        if result.revoked_key is not None:
            self._outbox.membership.on_revoked(row.mesh, result.revoked_key)
        delay_ms = self._delay_ms(row.attempts + 1, result.retry_after_seconds)
        return DeliveryOutcome(
            row.id,
            states.RETRY,
            reason=result.reason[:500],
            next_attempt_at=self._outbox.steady.now_ms() + delay_ms,
        )

    def _report_duplicate(self, row: SendRow, result: Delivered) -> None:
        if result.history_available is False:
            metrics.history_pruned.inc()
            self._log.warning("duplicate: delivered before; the broker dropped it since", id=row.id)
        else:
            self._log.info("duplicate: delivered before", id=row.id)
        days = self._outbox.settings.retention_days
        age_ms = self._outbox.steady.now_ms() - row.accepted_steady_ms
        if days is not None and age_ms > days * DAY_MS:
            metrics.late_retries.inc()

    # -- recording --------------------------------------------------------------------

    def _record(self, outcomes: list[DeliveryOutcome]) -> None:
        """Record outcomes, also for failed writes. If this fails too, the next round tries
        again."""
        batch, self._unrecorded = [*self._unrecorded, *outcomes], []
        if not batch:
            return
        try:
            self._write_outcomes(batch)
        except BaseException as error:
            self._unrecorded = batch + self._unrecorded  # more were added during the write
            if not isinstance(error, Exception):
                raise
            count = len(self._unrecorded)
            self._log.error("delivery outcomes could not be recorded", error, count=count)

    def _write_outcomes(self, batch: list[DeliveryOutcome]) -> None:
        self._outbox.store.write(writes.record_outcomes, batch)
        self._in_flight.difference_update(outcome.id for outcome in batch)
        ended = (states.DELIVERED, states.REJECTED)
        self._outbox.gauge.remove(sum(outcome.event in ended for outcome in batch))

    def _release_orphans(self) -> None:
        """Make sends pending that are in flight in the file but not in this process. Needed only
        after a failed write or a killed greenlet."""
        if not self._may_have_orphans:
            return
        delay_ms = self._outbox.settings.retry.initial_ms
        args = (delay_ms, INTERRUPTED, tuple(self._in_flight))
        released = self._outbox.store.write(writes.reset_inflight, *args)
        self._may_have_orphans = False
        if released:
            self._log.warning("orphaned sends in flight are pending again", count=released)


def outgoing(row: SendRow) -> Outgoing:
    return Outgoing(
        mesh=row.mesh,
        client_message_id=row.client_message_id,
        fingerprint=bytes(row.request_fingerprint),
        destination_kind=row.destination_kind,
        destination_ref=row.destination_ref,
        reply_to_id=row.reply_to_id,
        priority=row.priority,
        meta=None if row.meta is None else _decode(row.meta),
        body=bytes(row.payload).decode(),
        attempt=row.attempts + 1,
        accepted_ms=row.enqueued_at,
        target=row.target,
        traceparent=row.traceparent,
    )
