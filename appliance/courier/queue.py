"""All streams and takers together, pure: who sits where, and what the tick does.

`Queue` moves envelopes; it neither checks who may ask nor waits for anything.
"""

from collections.abc import Callable, Iterable
from typing import Any

from appliance.courier.alarm import Alarm
from appliance.courier.credit import Taker, deal, leave, pump, sit
from appliance.courier.item import DEAD, Expiry, Item
from appliance.courier.policy import Policy, is_pattern, matches
from appliance.courier.ring import Ring
from appliance.courier.tally import Tally

MARK_EVERY_MS = 1000.0
MARKED_MAX = 500


class Queue:
    def __init__(
        self,
        policy_of: Callable[[str], Policy],
        idle_ms: float,
        label_of: Callable[[str], str] = lambda _: "other",
    ) -> None:
        """`label_of` tells under which of a few names a stream is counted."""
        self.rings: dict[str, Ring] = {}
        self.takers: dict[str, Taker] = {}
        self.alarm = Alarm()
        self.past: dict[str, Tally] = {}  # of streams that were forgotten, by label
        self.timed_out: list[str] = []  # whose lease the last tick ended
        self.changes: list[tuple[Any, ...]] = []  # what the journal has yet to hear
        self._policy_of = policy_of
        self._label_of = label_of
        self._idle_ms = idle_ms
        self._patterns: set[Taker] = set()
        self._paused_until: set[Ring] = set()
        self._marked_ms = 0.0
        self._to_mark: list[Ring] = []
        self._held: set[Ring] = set()
        self._used_ms: dict[str, float] = {}

    # -- streams ------------------------------------------------------------------------

    def open(self, name: str, now: float) -> Ring:
        """The stream of this name; made at its first use."""
        ring = self.rings.get(name)
        if ring is None:
            policy = self._policy_of(name)
            ring = Ring(name, policy, self.alarm, self._held, self.changes)
            self.rings[name] = ring
            self._used_ms[name] = now
            for taker in self._patterns:
                if taker.glob is not None and matches(taker.glob, name):
                    sit(ring, taker)
        return ring

    def deal(self, ring: Ring, now: float) -> int:
        return deal(ring, now)

    # -- takers -------------------------------------------------------------------------

    def subscribe(self, taker: Taker, stream: str, now: float) -> None:
        """To one stream, or to every one that a pattern matches, now and later."""
        self.takers[taker.id] = taker
        if not is_pattern(stream):
            sit(self.open(stream, now), taker)
            return
        taker.glob = stream
        self._patterns.add(taker)
        for ring in self.rings.values():
            if matches(stream, ring.name):
                sit(ring, taker)

    def grant(self, taker: Taker, credit: int, now: float) -> None:
        taker.grant(credit, now)
        if taker.credit:
            pump(taker, now)

    def stand_up(self, taker: Taker) -> None:
        """No more deliveries; it keeps what it holds."""
        leave(taker)
        self._patterns.discard(taker)
        if not taker.inflight:
            self.takers.pop(taker.id, None)

    def close(self, taker: Taker, now: float) -> int:
        """The taker is gone: what it held returns at once, uncounted, in order."""
        leave(taker)
        self._patterns.discard(taker)
        self.takers.pop(taker.id, None)
        held = sorted(taker.inflight.values(), key=lambda item: (item.ring.name, item.order))
        touched: dict[str, Ring] = {}
        for item in held:
            item.ring.release(item, now)
            touched[item.ring.name] = item.ring
        for ring in touched.values():
            deal(ring, now)
        return len(held)

    # -- the end of leases ------------------------------------------------------------------

    def finish(
        self, taker: Taker, ids: Iterable[str], touched: dict[str, Ring] | None = None
    ) -> list[str]:
        """Ack; the ids that this taker does not hold. `touched` gets the streams concerned."""
        lost: list[str] = []
        inflight = taker.inflight
        last: Ring | None = None
        for id_ in ids:
            item = inflight.get(id_) or taker.find(id_)
            if item is None:
                lost.append(id_)
                continue
            ring = item.ring
            ring.finish(item)
            if ring is not last:
                last = ring
                if touched is not None:
                    touched[ring.name] = ring
        return lost

    def settled(self, item: Item, now: float) -> None:
        """A key may have become free, or an envelope ready: see who wants it."""
        deal(item.ring, now)

    # -- time --------------------------------------------------------------------------------

    def tick(self, now: float, most: int) -> dict[str, int]:
        """Everything that happens because time passed, at most so many things."""
        rings: dict[str, Ring] = {}
        self.timed_out = []
        counts = {"lease_expired": 0, "due": 0, "expired": 0, "resumed": 0}
        for timed in self.alarm.due(now, most):
            item = timed.item if isinstance(timed, Expiry) else timed
            assert isinstance(item, Item)
            if isinstance(timed, Expiry):
                counts["expired"] += item.ring.overdue(item, now)
            else:
                holder = item.holder
                what = item.ring.come_due(item, now)
                if what:
                    counts[what] += 1
                    if what == "lease_expired":
                        self.timed_out.append(item.id)
                if holder is not None and self._is_done(holder):
                    self.takers.pop(holder.id, None)
            rings[item.ring.name] = item.ring
        for ring in [one for one in self._paused_until if (one.paused_until or now) <= now]:
            self.resume(ring, now)
            counts["resumed"] += 1
        for ring in rings.values():
            deal(ring, now)
        self._mark(now)
        return counts

    def next_tick_ms(self, now: float) -> float:
        """When something can happen next because time passes; at once while work is left."""
        if self._to_mark or self._held:
            return now
        ends = [one.paused_until for one in self._paused_until if one.paused_until is not None]
        ends.append(self._marked_ms + MARK_EVERY_MS)
        due = self.alarm.next_at()
        return min(ends) if due is None else min(due, *ends)

    def _is_done(self, taker: Taker) -> bool:
        return not taker.inflight and not taker.seats and taker not in self._patterns

    def release_holds(self, now: float) -> None:
        """Deal again where somebody was waited for; the waiting is over by now."""
        held = list(self._held)
        self._held.clear()
        for ring in held:
            deal(ring, now)

    def _mark(self, now: float) -> None:
        """Once a second for each stream: a sample for the rates, old ids, is it used at all?

        A piece of the streams at every tick, so that many of them are no hiccup.
        """
        if not self._to_mark and now - self._marked_ms >= MARK_EVERY_MS:
            self._marked_ms = now
            self._to_mark = list(self.rings.values())
        piece, self._to_mark = self._to_mark[:MARKED_MAX], self._to_mark[MARKED_MAX:]
        for ring in piece:
            tally = ring.tally
            moved = tally.enqueued + tally.delivered + tally.duplicates
            tally.mark(now)
            ring.recent.age(now)
            if ring.items or ring.dead or ring.paused or ring.reserved or is_awaited(ring):
                self._used_ms[ring.name] = now
            elif tally.moved != moved:
                tally.moved = moved
                self._used_ms[ring.name] = now
            elif now - self._used_ms[ring.name] > self._idle_ms and not len(ring.recent):
                for seat in ring.seats:
                    seat.taker.seats.remove(seat)
                self.past.setdefault(self._label_of(ring.name), Tally()).add(tally)
                if ring.policy.durable:
                    self.changes.append(("forgotten", ring.name))
                del self.rings[ring.name], self._used_ms[ring.name]

    # -- operators -----------------------------------------------------------------------------

    def pause(self, ring: Ring, until: float | None, now: float) -> None:
        self.hold(ring, until)
        if ring.policy.durable:
            left_ms = None if until is None else until - now
            self.changes.append(("paused", ring.name, left_ms))

    def hold(self, ring: Ring, until: float | None) -> None:
        """Pause it, and tell no journal."""
        ring.pause(until)
        if until is None:
            self._paused_until.discard(ring)
        else:
            self._paused_until.add(ring)
            self.alarm.interrupt()

    def resume(self, ring: Ring, now: float) -> None:
        ring.resume()
        self._paused_until.discard(ring)
        if ring.policy.durable:
            self.changes.append(("resumed", ring.name))
        deal(ring, now)

    def find(self, ring: Ring, id_: str) -> Item | None:
        return ring.items.get(id_) or ring.dead.get(id_)

    def leases(self) -> list[Item]:
        """Every envelope in somebody's hands; found by the hands, for streams may be long."""
        return [item for taker in self.takers.values() for item in taker.inflight.values()]

    def oldest_ready_ms(self, ring: Ring, now: float) -> float:
        oldest = ring.lanes.oldest()
        return 0.0 if oldest is None else now - oldest.since

    def depth(self) -> int:
        return sum(len(ring.items) for ring in self.rings.values())

    def dead(self) -> int:
        return sum(len(ring.dead) for ring in self.rings.values())


def is_awaited(ring: Ring) -> bool:
    """Does somebody wait at this stream by its name? Who subscribed to a pattern gets it again
    when it comes back, and must not keep every name that ever matched."""
    return any(seat.taker.glob is None for seat in ring.seats)


def is_dead(item: Item) -> bool:
    return item.state == DEAD
