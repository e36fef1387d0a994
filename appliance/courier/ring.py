"""One bounded stream, pure: its envelopes, their states, and what moves them. No clock, no I/O.

Every verb takes the instant `now` in milliseconds of a clock that never goes back. The
drawing is in `__init__.py`. `changes` is what a durable stream's journal has yet to hear.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from appliance.courier.alarm import Alarm
from appliance.courier.item import (
    DEAD,
    DELAYED,
    FOREVER,
    GONE,
    LEASED,
    READY,
    STATES,
    Expiry,
    Item,
    Options,
)
from appliance.courier.lanes import Lanes
from appliance.courier.policy import Policy
from appliance.courier.recent import RecentIds
from appliance.courier.tally import Tally

PLAIN = Options()


class Holder(Protocol):
    """Who holds leases: envelopes by the key under which they were noted. `twins` are those
    whose id it held already, of another stream."""

    inflight: dict[str, Item]
    twins: dict[str, list[Item]]


class Ring:
    """A stream. `items` are the live ones (ready, delayed, leased), `dead` the dead letters."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        alarm: Alarm,
        held: set["Ring"] | None = None,
        changes: list[tuple[Any, ...]] | None = None,
    ) -> None:
        """`held` gets this stream when it holds something back for a moment (credit.py), and
        `changes` what the journal has yet to hear of a durable one (writes.py)."""
        self.name = name
        self.policy = policy
        self.items: dict[str, Item] = {}
        self.dead: dict[str, Item] = {}
        self.lanes = Lanes(policy.aging_ms)
        self.leased = 0
        self.delayed = 0
        self.bytes = 0
        self.dead_bytes = 0  # of these, in dead letters
        self.reserved = 0  # places promised to envelopes on their way through the journal
        self.paused = False
        self.paused_until: float | None = None
        self.tally = Tally()
        self.recent = RecentIds(policy.recent_max, policy.recent_seconds)
        self.changes: list[tuple[Any, ...]] = [] if changes is None else changes
        self.seats: list[Any] = []
        self.floor = 0
        self.held: set[Ring] = set() if held is None else held
        self._alarm = alarm
        self._order = 0

    # -- in -------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self.items)

    def has_room(self, count: int, size: int) -> bool:
        policy = self.policy
        return (
            len(self.items) + self.reserved + count <= policy.depth_max
            and self.bytes + size <= policy.bytes_max
        )

    def could_make_room(self, count: int, size: int) -> bool:
        """Would dropping all that is ready be enough? Else nothing need be dropped at all."""
        stuck = len(self.items) - self.lanes.ready + self.reserved
        policy = self.policy
        return stuck + count <= policy.depth_max and self.dead_bytes + size <= policy.bytes_max

    def knows(self, id_: str) -> bool:
        """Is this id here, or was it acked a moment ago?"""
        return id_ in self.items or id_ in self.recent or id_ in self.dead

    def put(self, id_: str, body: bytes, now: float, options: Options = PLAIN) -> Item | None:
        """Accept an envelope; None when its id is a duplicate. Room is the caller's question."""
        if id_ in self.items or id_ in self.recent or id_ in self.dead:
            self.tally.duplicates += 1
            return None
        self._order += 1
        item = Item(self, id_, body, self._order, now)
        self.items[id_] = item
        self.bytes += len(body)
        self.tally.enqueued += 1
        if options is not PLAIN:
            self._apply(item, options, now)
        elif self.policy.ttl_ms:
            self._set_expiry(item, now + self.policy.ttl_ms)
        if item.state == READY:
            self.lanes.add(item)
        return item

    def _apply(self, item: Item, options: Options, now: float) -> None:
        item.priority = options.priority
        item.key = options.key
        ttl_ms = options.ttl_ms or self.policy.ttl_ms
        if ttl_ms:
            self._set_expiry(item, now + ttl_ms)
        if options.delay_ms:
            self._delay(item, now + options.delay_ms)

    def _set_expiry(self, item: Item, at: float) -> None:
        item.expires = at
        item.expiry = Expiry(item)
        self._alarm.set(item.expiry, at)

    def drop_oldest(self, now: float) -> bool:
        """Make room by dropping the one that waits longest; False when none is on offer."""
        oldest = self.lanes.oldest()
        if oldest is None:
            return False
        self._retire(oldest, "full")
        return True

    # -- out ------------------------------------------------------------------------

    def hold_back(self) -> None:
        """Nobody gets anything before the next tick, which then comes soon."""
        self.held.add(self)
        self._alarm.interrupt()

    def claim(self, most: int, holder: Holder, now: float, lease_ms: int) -> list[Item]:
        """The next `most` ready ones, leased to `holder` until `now + lease_ms`."""
        if self.paused:
            return []
        taken = self.lanes.take(most, now)
        deadline = now + lease_ms
        clock = self._alarm.line(lease_ms)
        inflight, name = holder.inflight, self.name
        again = False
        for item in taken:
            if item.expires <= now:
                again = True
                continue
            item.state = LEASED
            item.holder = holder
            item.leased_at = now
            item.attempts += 1
            item.delivered += 1
            item.clock = clock
            if clock is None:
                self._alarm.set(item, deadline)
            else:
                item.deadline = deadline
                clock[item] = None
            key = item.id
            if key in inflight:
                holder.twins.setdefault(key, []).append(item)
                key = f"{key}\0{name}"
            inflight[key] = item
        if again:
            taken = self._without_expired(taken, now)
        self.leased += len(taken)
        self.tally.deliver(taken, now)
        return taken

    def _without_expired(self, taken: list[Item], now: float) -> list[Item]:
        for item in taken:
            if item.state == READY:
                self._leave_key(item)
                self._expire(item, now)
        return [item for item in taken if item.state == LEASED]

    # -- what becomes of a lease ---------------------------------------------------------

    def finish(self, item: Item) -> None:
        """Acked: gone for good."""
        self._end_lease(item)
        item.state = GONE
        self.tally.acked += 1
        if self.policy.durable:
            place = self.recent.total
            said = ("acked", item.row, self.name, place, self.policy.recent_max, item.id)
            self.changes.append(said)
        self.recent.add(item.id)
        self._forget(item)
        if item.key is not None:
            self._leave_key(item)

    def release(self, item: Item, now: float, delay_ms: float = 0) -> None:
        """Given back untouched: not counted against the envelope."""
        self._end_lease(item)
        item.attempts -= 1
        self.tally.released += 1
        self._return(item, now, delay_ms)

    def fail(self, item: Item, now: float, error: str = "", delay_ms: float | None = None) -> bool:
        """The taker could not do it. True when that was one time too many: it is dead."""
        self._note(item, now, "failed", error)
        self._end_lease(item)
        item.failures += 1
        item.error = error
        self.tally.failed += 1
        return self._try_again(item, now, "max_deliveries", delay_ms)

    def reject(self, item: Item, now: float, error: str = "") -> None:
        """The taker says that nobody ever can: dead at once."""
        self._note(item, now, "rejected", error)
        self._end_lease(item)
        item.error = error
        self.tally.rejected += 1
        self._bury(item, now, "rejected")

    def extend(self, item: Item, now: float, lease_ms: int) -> float:
        """The lease ends `lease_ms` from now, within its total; the new end."""
        if item.clock is not None:
            item.clock.pop(item, None)
            item.clock = None
        until = min(now + lease_ms, item.leased_at + self.policy.lease_total_ms_max)
        self._alarm.set(item, until)
        return until

    def _note(self, item: Item, now: float, outcome: str, error: str) -> None:
        """An attempt that failed is kept, whatever comes later."""
        most = self.policy.history_max
        if not most:
            return
        history = item.history = item.history or []
        holder = item.holder.name
        history.append((now, holder, outcome, error))
        if len(history) > most:
            del history[0]
        if self.policy.durable:
            self.changes.append(("tried", item.row, most, holder, outcome, error))

    def _end_lease(self, item: Item) -> None:
        if item.clock is not None:
            item.clock.pop(item, None)
            item.clock = None
        else:
            self._alarm.cancel(item)
        self.leased -= 1
        holder = item.holder
        inflight = holder.inflight
        item.holder = None
        if inflight.get(item.id) is item:
            del inflight[item.id]
            return
        del inflight[f"{item.id}\0{self.name}"]
        twins = holder.twins[item.id]
        twins.remove(item)
        if not twins:
            del holder.twins[item.id]

    def _try_again(
        self, item: Item, now: float, reason: str, delay_ms: float | None = None
    ) -> bool:
        policy = self.policy
        if policy.deliveries_max and item.attempts >= policy.deliveries_max:
            self._bury(item, now, reason)
            return True
        self._return(item, now, policy.delay_after(item.attempts) if delay_ms is None else delay_ms)
        return False

    def _return(self, item: Item, now: float, delay_ms: float) -> None:
        """To the tail (ahead of its key), now or later."""
        if item.expires <= now:
            item.state = READY
            self._leave_key(item)
            self._expire(item, now)
            return
        self._order += 1
        item.order = self._order
        if self.policy.durable:
            self.changes.append(("attempt", item.row, item.attempts, item.failures, delay_ms))
        if delay_ms > 0:
            self._delay(item, now + delay_ms)
        else:
            item.state, item.since = READY, now
            self.lanes.give_back(item)

    # -- time ------------------------------------------------------------------------------

    def _delay(self, item: Item, until: float) -> None:
        item.state = DELAYED
        self.delayed += 1
        self._alarm.set(item, until)

    def come_due(self, item: Item, now: float) -> str:
        """The alarm rang for `item`; what happened, for the log."""
        if item.state == LEASED:
            item.clock = None
            self._note(item, now, "lease_expired", "")
            self._end_lease(item)
            self.tally.expired_leases += 1
            self._try_again(item, now, "lease_expired")
            return "lease_expired"
        if item.state == DELAYED:
            self.delayed -= 1
            item.state, item.since = READY, now
            if item.expires <= now:
                self._leave_key(item)
                self._expire(item, now)
                return "expired"
            self._order += 1
            item.order = self._order
            self.lanes.give_back(item)
            return "due"
        return ""

    def overdue(self, item: Item, now: float) -> bool:
        """Its time to live is over. A leased one is left to its taker until it comes back."""
        if item.state not in (READY, DELAYED):
            return False
        self._take_out(item)
        self._expire(item, now)
        return True

    def _expire(self, item: Item, now: float) -> None:
        """`item` is in no lane and no alarm any more."""
        self.tally.expired += 1
        if self.policy.ttl_action == "dead":
            self._bury(item, now, "expired")
        else:
            item.state = GONE
            self._drop(item, "expired")

    # -- dead letters ----------------------------------------------------------------------

    def _bury(self, item: Item, now: float, reason: str) -> None:
        self._leave_key(item)
        del self.items[item.id]
        self._end_expiry(item)
        item.state = DEAD
        item.reason = reason
        item.since = now
        self.dead[item.id] = item
        self.dead_bytes += len(item.body)
        self.tally.buried += 1
        if self.policy.durable:
            self.changes.append(("dead", item.row, item.attempts, reason, item.error))
        while len(self.dead) > self.policy.dead_max:
            self._drop_dead(next(iter(self.dead.values())), "dead_full")

    def redrive(self, item: Item, now: float) -> Item:
        """A dead letter gets a new life at the tail, with nothing counted against it."""
        del self.dead[item.id]
        self.dead_bytes -= len(item.body)
        item.state = GONE
        self._order += 1
        fresh = Item(self, item.id, item.body, self._order, now)
        fresh.priority, fresh.key, fresh.row = item.priority, item.key, item.row
        fresh.history = item.history
        self.items[fresh.id] = fresh
        self.lanes.add(fresh)
        self.tally.redriven += 1
        if self.policy.durable:
            self.changes.append(("redrive", item.row))
        return fresh

    # -- operators ---------------------------------------------------------------------------

    def listed(self, state: int | None) -> Iterator[Item]:
        """Envelopes in one state, or all, in the order they came."""
        if state != DEAD:
            yield from (i for i in self.items.values() if state is None or i.state == state)
        if state in (None, DEAD):
            yield from self.dead.values()

    def purge(self, item: Item) -> bool:
        """Remove one for good; leased ones are left to their takers."""
        if item.state == DEAD:
            self._drop_dead(item, "purged")
            return True
        if item.state in (READY, DELAYED):
            self._retire(item, "purged")
            return True
        return False

    def pause(self, until: float | None) -> None:
        self.paused, self.paused_until = True, until

    def resume(self) -> None:
        self.paused, self.paused_until = False, None

    def counts(self) -> dict[str, int]:
        numbers = (self.lanes.ready, self.delayed, self.leased, len(self.dead))
        return dict(zip(STATES, numbers, strict=False))

    def restore(self, item: Item, delay_ms: float, now: float) -> None:
        """Take up an envelope that the journal remembers, in the order it was written."""
        self._order += 1
        item.order = self._order
        self.bytes += len(item.body)
        self.tally.enqueued += 1
        if item.state == DEAD:
            self.dead[item.id] = item
            self.dead_bytes += len(item.body)
            return
        self.items[item.id] = item
        if item.expires != FOREVER:
            self._set_expiry(item, item.expires)
        if delay_ms <= 0:
            self.lanes.add(item)
            return
        if item.attempts:  # it failed, and holds back the others of its key
            self.lanes.hold(item)
        self._delay(item, now + delay_ms)

    # -- the end of an envelope -----------------------------------------------------------------

    def _retire(self, item: Item, reason: str) -> None:
        self._take_out(item)
        item.state = GONE
        self._leave_key(item)
        self._drop(item, reason)

    def _drop(self, item: Item, reason: str) -> None:
        self.tally.drop(reason)
        self._forget(item)
        if self.policy.durable:
            self.changes.append(("gone", item.row))

    def _take_out(self, item: Item) -> None:
        """Out of its lane or its delay; it is nowhere then, until the caller says where."""
        if item.state == READY:
            item.state = GONE
            self.lanes.retire(item)
        elif item.state == DELAYED:
            self.delayed -= 1
            self._alarm.cancel(item)
            item.state = GONE
            self._leave_key(item)

    def _leave_key(self, item: Item) -> None:
        self.lanes.let_go(item)

    def _drop_dead(self, item: Item, reason: str) -> None:
        del self.dead[item.id]
        item.state = GONE
        self.bytes -= len(item.body)
        self.dead_bytes -= len(item.body)
        self.tally.drop(reason)
        if self.policy.durable:
            self.changes.append(("gone", item.row))

    def _end_expiry(self, item: Item) -> None:
        if item.expiry is not None:
            self._alarm.cancel(item.expiry)
            item.expiry = None

    def _forget(self, item: Item) -> None:
        del self.items[item.id]
        if item.expiry is not None:
            self._end_expiry(item)
        self.bytes -= len(item.body)
