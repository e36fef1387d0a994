"""Delivers what is due: claims in one transaction, delivers outside of any, settles in another.

A crash between the two leaves sends in flight; the next start puts them back, and the receiver
knows a repetition by its id. Whatever a write did not confirm is looked at again here.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError
from appliance.kernel.log import Log
from appliance.outbox import backoff, metrics, ordering, queries, states, writes
from appliance.outbox.breaker import Breaker
from appliance.outbox.columns import Row
from appliance.outbox.service import Outbox
from appliance.outbox.target import (
    Batching,
    Delivered,
    Later,
    Outgoing,
    Refused,
    Result,
    Target,
)
from appliance.outbox.writes import Settled

ROUTES_MAX = 1000
WINDOWS_MAX = 20  # looks along the destinations of a route in one claim
SLOW_SECONDS = 2.0
HOUR_MS = 3_600_000

_decode = msgspec.json.Decoder().decode


class Route:
    """What is known of one route: whether it works, and what is on its way there."""

    __slots__ = ("breaker", "cursor", "running", "slow")

    def __init__(self, failures_max: int) -> None:
        self.breaker = Breaker(failures_max)
        self.running = 0
        self.slow = False
        self.cursor: Any = None


class Hands:
    """Who does the work: a GreenletPool, or in tests the caller."""

    @property
    def free(self) -> int:
        return 1

    def spawn(self, work: Callable[..., None], *args: Any) -> None:
        work(*args)

    def join(self, timeout_seconds: float | None = None) -> bool:
        del timeout_seconds
        return True

    def kill(self) -> None: ...


class Sender:
    def __init__(
        self, outbox: Outbox, hands: Any, clock: Clock, log: Log, chance: Callable[[], float]
    ) -> None:
        """`chance` gives random numbers in [0, 1)."""
        self.nudge: Callable[[], None] = lambda: None
        self._outbox = outbox
        self._hands = hands
        self._clock = clock
        self._log = log
        self._chance = chance
        self._routes: dict[str, Route] = {}
        self._held: set[str] = set()
        self._unsettled: list[Settled] = []
        self._strays = False
        self.has_pending = True
        self._turn = 0
        outbox.open_routes = self.open_routes

    @property
    def held(self) -> int:
        """Sends on their way, or back and not yet written down."""
        return len(self._held)

    def wants(self, route: str) -> bool:
        """Whether a new send on that route could go out now."""
        known = self._routes.get(route)
        return known is None or (not known.breaker.is_open and self._may_begin(known))

    def open_routes(self) -> list[str]:
        return sorted(name for name, route in self._routes.items() if route.breaker.is_open)

    def check_clock(self) -> None:
        self._outbox.jumps.check()

    # -- one round -----------------------------------------------------------------------

    def round(self, now_ms: int) -> dict[str, int]:
        """Begin all deliveries that there are sends and hands for."""
        self._settle([])
        self._return_strays()
        counts = {"claimed": 0}
        due, self.has_pending = self._outbox.store.read(queries.routes_due, now_ms, ROUTES_MAX)
        self._turn += 1
        for place in range(len(due)):
            name, _ = due[(place + self._turn) % len(due)]
            counts["claimed"] += self._serve(name, now_ms)
            if self._hands.free < 1:
                break
        self._forget_routes({name for name, _ in due})
        return counts

    def _serve(self, name: str, now_ms: int) -> int:
        """All that may go out to one route now."""
        route = self._routes.setdefault(name, Route(self._outbox.settings.breaker_failures))
        target = self._outbox.targets.get(name.partition(":")[0])
        claimed = 0
        while target is not None and self._may_begin(route) and self._hands.free > 0:
            admitted = route.breaker.admits(self._steady_ms())
            if admitted == "none":
                break
            rows = self._claim(name, route, target, now_ms, admitted == "few")
            if not rows:
                break
            claimed += len(rows)
            route.breaker.begin()
            route.running += 1
            self._held.update(row.id for row in rows)
            self._hands.spawn(self._deliver, route, target, rows)
        return claimed

    def _may_begin(self, route: Route) -> bool:
        """Room on the route; and slow routes together never take more than half of all hands."""
        settings = self._outbox.settings
        if route.running >= settings.route_concurrency_max:
            return False
        if not (route.slow or route.breaker.failures):
            return True
        busy = sum(one.running for one in self._routes.values() if one.slow or one.breaker.failures)
        return busy < max(1, settings.concurrency_max // 2)

    def _claim(self, name: str, route: Route, target: Target, now_ms: int, few: bool) -> list[Row]:
        settings = self._outbox.settings
        most = settings.deliver_max if isinstance(target, Batching) else 1
        if few:
            most = min(most, settings.breaker_probe)
        oldest_ms = now_ms - self._max_age_ms(name)
        args = (name, now_ms, oldest_ms, most, settings.deliver_bytes_max)
        try:
            if not (settings.ordered or ordering.is_in_order(name)):
                rows: list[Row] = self._outbox.store.write(writes.claim, *args)
                return rows
            for _ in range(WINDOWS_MAX):
                rows, route.cursor = self._outbox.store.write(
                    writes.claim_in_order, *args, route.cursor
                )
                if rows or route.cursor is None:
                    break
            return rows
        except Exception:
            self._strays = True  # it may have been written all the same
            raise

    def _max_age_ms(self, route: str) -> int:
        """By the mesh in the route's name; routes of other targets have the default."""
        return self._outbox.max_age_hours(ordering.mesh_of(route)) * HOUR_MS

    # -- one delivery --------------------------------------------------------------------

    def _deliver(self, route: Route, target: Target, rows: list[Row]) -> None:
        settled: list[Settled] = []
        started = self._clock.monotonic()
        try:
            sends = [outgoing(row) for row in rows]
            results = self._ask(target, sends)
            seconds = self._clock.monotonic() - started
            route.slow = seconds > SLOW_SECONDS
            metrics.delivery_seconds.labels(target.name).observe(seconds)
            self._judge(route, results)
            settled = [
                self._settled(target, row, result)
                for row, result in zip(rows, results, strict=True)
            ]
        finally:
            route.running -= 1
            if len(settled) != len(rows):  # killed half-way: nobody knows
                self._held.difference_update(row.id for row in rows)
                self._strays = True
        self._settle(settled)
        self.nudge()

    def _ask(self, target: Target, sends: list[Outgoing]) -> list[Result]:
        try:
            if isinstance(target, Batching):
                results = target.deliver_many(sends)
                if len(results) == len(sends):
                    return results
                return [Later("the target answered for another number of sends") for _ in sends]
            return [target.deliver(send) for send in sends]
        except ApplianceError as error:
            return [Later(error.code, error.retry_after) for _ in sends]
        except Exception as error:
            self._log.error("a target failed", error, target=target.name)
            return [Later(f"the target failed: {type(error).__name__}") for _ in sends]

    def _judge(self, route: Route, results: list[Result]) -> None:
        """A route works when anything was judged there."""
        late = [result for result in results if isinstance(result, Later)]
        if len(late) < len(results):
            route.breaker.succeeded()
            return
        asked = max((one.retry_after_seconds or 0 for one in late), default=0)
        pause = backoff.pause_ms(
            route.breaker.failures + 1, self._chance(), self._outbox.settings, asked or None
        )
        route.breaker.failed(self._steady_ms(), pause, at_once=asked > 0)

    def _steady_ms(self) -> int:
        """For pauses that end with the process: nobody can set this clock."""
        return int(self._clock.monotonic() * 1000)

    def _settled(self, target: Target, row: Row, result: Result) -> Settled:
        count = metrics.deliveries.labels
        if isinstance(result, Delivered):
            count(target.name, "duplicate" if result.duplicate else "delivered").inc()
            if result.duplicate:
                self._tell_duplicate(row, result)
            return Settled(row.id, states.DELIVERED, result.broker_message_id, result.history_id)
        if isinstance(result, Refused):
            count(target.name, "refused").inc()
            metrics.deaths.labels("refused").inc()
            self._log.warning("a send was refused", id=row.id, code=result.code[:100])
            return Settled(row.id, states.REFUSED, reason=result.reason[:500])
        count(target.name, "later").inc()
        if result.revoked_key is not None:
            self._outbox.membership.on_revoked(row.mesh, result.revoked_key)
        pause = backoff.pause_ms(
            row.attempts + 1, self._chance(), self._outbox.settings, result.retry_after_seconds
        )
        return Settled(
            row.id,
            states.LATER,
            reason=result.reason[:500],
            next_attempt_at=self._clock.now_ms() + pause,
        )

    def _tell_duplicate(self, row: Row, result: Delivered) -> None:
        if result.history_available is False:
            metrics.history_pruned.inc()
            self._log.warning("delivered before; its message is pruned there", id=row.id)
        else:
            self._log.info("delivered before", id=row.id)
        days = self._outbox.settings.retention_days
        age_ms = self._clock.now_ms() - row.enqueued_at
        if days is not None and age_ms > days * 24 * HOUR_MS:
            metrics.late_retries.inc()

    # -- writing down --------------------------------------------------------------------

    def _settle(self, settled: list[Settled]) -> None:
        """Also what could not be written before; what can't now stays for the next round."""
        self._unsettled += settled
        if not self._unsettled:
            return
        writing, self._unsettled = self._unsettled, []
        try:
            self._outbox.store.write(writes.settle, writing)
        except Exception as error:
            self._unsettled = writing + self._unsettled
            self._log.error("deliveries could not be written down", error, count=len(writing))
            return
        self._held.difference_update(one.id for one in writing)
        self._outbox.gauge.ended(sum(one.event != states.LATER for one in writing))

    def _return_strays(self) -> None:
        """What is in flight in the file and not here: put back. Only after a doubt."""
        if not self._strays:
            return
        pause_ms = self._outbox.settings.backoff_first_ms
        returned = self._outbox.store.write(
            writes.reset_inflight, pause_ms, "its delivery was cut off", tuple(self._held)
        )
        self._strays = False
        if returned:
            self._log.warning("sends without a keeper were put back", count=returned)

    def _forget_routes(self, due: set[str]) -> None:
        """Routes that work and have nothing to do."""
        if len(self._routes) > ROUTES_MAX:
            for name in [
                name
                for name, route in self._routes.items()
                if name not in due and not route.running and not route.breaker.failures
            ]:
                del self._routes[name]


def outgoing(row: Row) -> Outgoing:
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
    )


def chance() -> float:
    return random.random()
