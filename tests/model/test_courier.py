"""The courier's queue, driven at random: whatever happens, every envelope is accounted for.

Each envelope that was accepted is in exactly one place (acked, leased, ready, delayed, dead,
or counted as dropped); nothing is delivered without credit; nothing is leased twice.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from appliance.courier.credit import HOLD_MS, LEAD_MAX, Taker
from appliance.courier.item import DEAD, DELAYED, GONE, LEASED, READY, Options
from appliance.courier.policy import Policy
from appliance.courier.queue import Queue

POLICIES = {
    "plain": Policy(depth_max=12, lease_ms=1000),
    "limited": Policy(depth_max=12, lease_ms=500, deliveries_max=3, dead_max=4, backoff_ms=200),
    "mortal": Policy(depth_max=12, lease_ms=700, ttl_ms=3000, ttl_action="dead", dead_max=3),
    "dropping": Policy(depth_max=5, full="drop_oldest", ttl_ms=5000, aging_ms=500),
}
streams = st.sampled_from(sorted(POLICIES))
options = st.builds(
    Options,
    priority=st.sampled_from([4, 4, 4, 0, 9]),
    key=st.sampled_from([None, None, "a", "b"]),
    delay_ms=st.sampled_from([0, 0, 0, 300]),
    ttl_ms=st.sampled_from([0, 0, 0, 400]),
)


class QueueMachine(RuleBasedStateMachine):
    takers = Bundle("takers")

    def __init__(self):
        super().__init__()
        self.queue = Queue(POLICIES.__getitem__, idle_ms=1e12)
        self.now = 1000.0
        self.number = 0
        self.accepted = {name: {} for name in POLICIES}  # id → its Item, or its successor
        self.granted = {}
        self.dealt = {}
        self.firsts = {}  # (stream, key or priority) → numbers in order of first delivery
        for name in POLICIES:
            self.queue.open(name, self.now)

    # -- what clients do -------------------------------------------------------------------

    @rule(stream=streams, options=options, count=st.integers(1, 4))
    def put(self, stream, options, count):
        ring = self.queue.open(stream, self.now)
        for _ in range(count):
            if not ring.has_room(1, 5) and (
                ring.policy.full != "drop_oldest" or not ring.drop_oldest(self.now)
            ):
                break
            self.number += 1
            item = ring.put(f"e{self.number}", b"12345", self.now, options)
            assert item is not None
            self.accepted[stream][item.id] = item
        self.queue.deal(ring, self.now)
        self.collect()

    @rule(stream=streams, data=st.data())
    def put_again(self, stream, data):
        ring = self.queue.rings[stream]
        here = [*ring.items, *ring.dead]
        if here:
            enqueued = ring.tally.enqueued
            assert ring.put(data.draw(st.sampled_from(sorted(here))), b"x", self.now) is None
            assert ring.tally.enqueued == enqueued

    @rule(target=takers, stream=st.one_of(streams, st.just("*"), st.just("*l*")))
    def subscribe(self, stream):
        self.number += 1
        taker = Taker(f"t{self.number}", "somebody", lambda: None)
        self.granted[taker] = self.dealt[taker] = 0
        self.queue.subscribe(taker, stream, self.now)
        self.collect()
        return taker

    @rule(taker=takers, credit=st.integers(0, 6))
    def grant(self, taker, credit):
        self.granted[taker] += credit
        self.queue.grant(taker, credit, self.now)
        self.collect()

    @rule(taker=takers, most=st.integers(1, 5))
    def ack(self, taker, most):
        ids = [key.split("\0")[0] for key in list(taker.inflight)[:most]]
        held = [taker.find(id_) for id_ in ids]
        assert self.queue.finish(taker, ids) == []
        for item in held:
            self.queue.settled(item, self.now)
        self.collect()

    @rule(taker=takers, data=st.data())
    def ack_what_it_does_not_hold(self, taker, data):
        others = [
            item.id
            for named in self.accepted.values()
            for item in named.values()
            if item.holder is not taker and taker.find(item.id) is None
        ]
        if others:
            id_ = data.draw(st.sampled_from(others))
            assert self.queue.finish(taker, [id_]) == [id_]

    @rule(taker=takers, mode=st.sampled_from(["release", "fail", "reject"]), delay=st.booleans())
    def nack(self, taker, mode, delay):
        if not taker.inflight:
            return
        item = next(iter(taker.inflight.values()))
        delay_ms = 250.0 if delay else None
        if mode == "release":
            item.ring.release(item, self.now, delay_ms or 0)
        elif mode == "fail":
            item.ring.fail(item, self.now, "could not", delay_ms)
        else:
            item.ring.reject(item, self.now, "never")
        self.queue.settled(item, self.now)
        self.collect()

    @rule(taker=takers)
    def extend(self, taker):
        for item in taker.inflight.values():
            item.ring.extend(item, self.now, 900)

    @rule(taker=consumes(takers))
    def leave(self, taker):
        attempts = {item: item.attempts for item in taker.inflight.values()}
        self.queue.close(taker, self.now)
        assert taker.inflight == {}
        assert all(item.state != LEASED or item.holder is not taker for item in attempts)
        del self.granted[taker], self.dealt[taker]
        self.collect()

    # -- what time and operators do -----------------------------------------------------------

    @rule(ms=st.sampled_from([1, 10, 260, 600, 1500]))
    def time_passes(self, ms):
        self.now += ms
        self.queue.tick(self.now, 1000)
        self.queue.release_holds(self.now)
        self.collect()

    @rule(stream=streams, seconds=st.sampled_from([None, 1]))
    def pause(self, stream, seconds):
        until = None if seconds is None else self.now + seconds * 1000
        self.queue.pause(self.queue.rings[stream], until, self.now)

    @rule(stream=streams)
    def resume(self, stream):
        self.queue.resume(self.queue.rings[stream], self.now)
        self.collect()

    @rule(stream=streams)
    def redrive(self, stream):
        ring = self.queue.rings[stream]
        for item in list(ring.dead.values())[:2]:
            self.accepted[stream][item.id] = ring.redrive(item, self.now)
        self.queue.deal(ring, self.now)
        self.collect()

    @rule(stream=streams, data=st.data())
    def purge(self, stream, data):
        ring = self.queue.rings[stream]
        for item in list(ring.listed(None))[:1]:
            assert ring.purge(item) == (item.state == GONE)
        self.queue.deal(ring, self.now)
        self.collect()

    # -- what always holds ----------------------------------------------------------------------

    def collect(self):
        """Take what was dealt, as a session would, and check the order of first deliveries."""
        for taker in self.queue.takers.values():
            for item in taker.out:
                self.dealt[taker] += 1
                if item.delivered == 1 and item.holder is taker:
                    self._check_order(item)
            taker.out = []

    def _check_order(self, item):
        if item.key is None or item.expires < 1e12 or item.error:
            return
        # Within a key, first deliveries keep the order in which envelopes stood in line.
        line = self.firsts.setdefault((item.ring.name, item.key), [])
        assert not line or item.order > line[-1]
        line.append(item.order)

    @invariant()
    def every_envelope_is_in_exactly_one_place(self):
        for name, ring in self.queue.rings.items():
            states = [item.state for item in self.accepted[name].values()]
            counts = {state: states.count(state) for state in (READY, DELAYED, LEASED, DEAD, GONE)}
            assert counts[READY] == ring.lanes.ready
            assert counts[DELAYED] == ring.delayed
            assert counts[LEASED] == ring.leased
            assert counts[DEAD] == len(ring.dead)
            assert counts[GONE] == ring.tally.settled()
            assert ring.tally.enqueued == len(states)
            assert len(ring.items) == counts[READY] + counts[DELAYED] + counts[LEASED]
            assert 0 <= ring.lanes.open <= ring.lanes.ready
            assert ring.bytes == 5 * (len(ring.items) + len(ring.dead))
            assert len(ring.items) <= ring.policy.depth_max
            assert len(ring.dead) <= ring.policy.dead_max

    @invariant()
    def no_envelope_has_two_leases_and_no_key_either(self):
        held = [item for taker in self.queue.takers.values() for item in taker.inflight.values()]
        assert len(held) == len(set(held)) == sum(r.leased for r in self.queue.rings.values())
        assert all(item.state == LEASED and item in item.holder.inflight.values() for item in held)
        keys = [(item.ring.name, item.key) for item in held if item.key is not None]
        assert len(keys) == len(set(keys))

    @invariant()
    def nothing_is_delivered_without_credit(self):
        for taker, granted in self.granted.items():
            assert taker.credit >= 0
            assert taker.credit == granted - self.dealt[taker]

    @invariant()
    def nobody_leads_by_more_than_four(self):
        for ring in self.queue.rings.values():
            served = [s.served for s in ring.seats if s.taker.credit > 0 and not s.away]
            if len(served) > 1:
                assert max(served) - min(served) <= LEAD_MAX

    @precondition(lambda self: self.granted)
    @invariant()
    def who_has_credit_is_not_forgotten(self):
        """Nothing stays on offer beside credit, but for a moment of fairness."""
        for ring in self.queue.rings.values():
            able = [seat for seat in ring.seats if seat.taker.credit > 0]
            held = [seat for seat in ring.seats if seat.taker.hold_until > self.now]
            if able and ring.lanes.open and not ring.paused:
                assert held, f"{ring.lanes.open} ready, {len(able)} takers with credit"

    def teardown(self):
        """Once everybody leaves and time is over, nothing is leased and no alarm is left."""
        for taker in list(self.queue.takers.values()):
            self.queue.close(taker, self.now)
        self.now += HOLD_MS + 1e7
        self.queue.tick(self.now, 100_000)
        assert all(ring.leased == 0 and ring.delayed == 0 for ring in self.queue.rings.values())
        assert self.queue.alarm.due(self.now, 1000) == []


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
