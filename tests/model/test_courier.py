"""The courier's queue in a random state machine: every envelope is accounted for.

Each accepted envelope is in exactly one state, or counted as acked or dropped. Nothing is
delivered without credit, and nothing is leased twice.
"""

from collections import Counter

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

from appliance.courier.consumer import FAIRNESS_WAIT_MS, Consumer
from appliance.courier.fair_dispatch import LEAD_MAX, dispatch
from appliance.courier.item import DELAYED, GONE, DeliveryOptions
from appliance.courier.lease import DEAD, DONE, LEASED, READY
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue
from appliance.kernel.retry import RetrySettings

POLICIES = {
    "plain": StreamPolicy(depth_max=12, lease_seconds=1.0),
    "limited": StreamPolicy(
        depth_max=12, lease_seconds=0.5, deliveries_max=3, dead_max=4, retry=RetrySettings(0.2)
    ),
    "mortal": StreamPolicy(
        depth_max=12, lease_seconds=0.7, ttl_seconds=3, ttl_action="dead", dead_max=3
    ),
    "dropping": StreamPolicy(
        depth_max=5, overflow_policy="drop_oldest", ttl_seconds=5, aging_ms=500
    ),
}
stream_names = st.sampled_from(sorted(POLICIES))
options = st.builds(
    DeliveryOptions,
    priority=st.sampled_from([4, 4, 4, 0, 9]),
    key=st.sampled_from([None, None, "a", "b"]),
    delay_ms=st.sampled_from([0, 0, 0, 300]),
    ttl_ms=st.sampled_from([0, 0, 0, 400]),
)


class QueueMachine(RuleBasedStateMachine):
    consumers = Bundle("takers")

    def __init__(self):
        super().__init__()
        self.queue = Queue(POLICIES.__getitem__, idle_ms=1e12)
        self.now = 1000.0
        self.number = 0
        self.accepted = {name: {} for name in POLICIES}  # id → its item, the latest one
        self.granted = {}
        self.dealt = {}
        self.firsts = {}  # (stream, key or priority) → orders of first deliveries
        for name in POLICIES:
            self.queue.open(name, self.now)

    # -- clients --------------------------------------------------------------------------

    @rule(name=stream_names, options=options, count=st.integers(1, 4))
    def put(self, name, options, count):
        stream = self.queue.open(name, self.now)
        for _ in range(count):
            if not stream.has_capacity(1, 5) and (
                stream.policy.overflow_policy != "drop_oldest" or not stream.drop_oldest()
            ):
                break
            self.number += 1
            item = stream.put(f"e{self.number}", b"12345", self.now, options)
            assert item is not None
            self.accepted[name][item.id] = item
        dispatch(stream, self.now)
        self.collect()

    @rule(name=stream_names, data=st.data())
    def put_duplicate(self, name, data):
        stream = self.queue.streams[name]
        here = [*stream.items, *stream.dead]
        if here:
            enqueued = stream.stats.enqueued
            assert stream.put(data.draw(st.sampled_from(sorted(here))), b"x", self.now) is None
            assert stream.stats.enqueued == enqueued

    @rule(target=consumers, name=st.one_of(stream_names, st.just("*"), st.just("*l*")))
    def subscribe(self, name):
        self.number += 1
        consumer = Consumer(f"t{self.number}", "somebody", lambda: None)
        self.granted[consumer] = self.dealt[consumer] = 0
        self.queue.subscribe(consumer, name, self.now)
        self.collect()
        return consumer

    @rule(consumer=consumers, credit=st.integers(0, 6))
    def grant(self, consumer, credit):
        self.granted[consumer] += credit
        self.queue.grant(consumer, credit, self.now)
        self.collect()

    @rule(consumer=consumers, limit=st.integers(1, 5))
    def ack(self, consumer, limit):
        ids = [key.split("\0")[0] for key in list(consumer.inflight)[:limit]]
        items = [consumer.find(id_) for id_ in ids]
        assert self.queue.ack(consumer, ids, 0.0) == []
        for item in items:
            dispatch(item.stream, self.now)
        self.collect()

    @rule(consumer=consumers, data=st.data())
    def ack_without_a_lease(self, consumer, data):
        others = [
            item.id
            for named in self.accepted.values()
            for item in named.values()
            if item.consumer is not consumer and consumer.find(item.id) is None
        ]
        if others:
            id_ = data.draw(st.sampled_from(others))
            assert self.queue.ack(consumer, [id_], 0.0) == [id_]

    @rule(
        consumer=consumers, mode=st.sampled_from(["release", "fail", "reject"]), delay=st.booleans()
    )
    def nack(self, consumer, mode, delay):
        if not consumer.inflight:
            return
        item = next(iter(consumer.inflight.values()))
        delay_ms = 250.0 if delay else None
        if mode == "release":
            item.stream.release(item, self.now, delay_ms or 0)
        elif mode == "fail":
            item.stream.fail(item, self.now, "could not", delay_ms)
        else:
            item.stream.reject(item, self.now, "never")
        dispatch(item.stream, self.now)
        self.collect()

    @rule(consumer=consumers)
    def extend(self, consumer):
        for item in consumer.inflight.values():
            item.stream.extend(item, self.now, 900)

    @rule(consumer=consumes(consumers), is_lost=st.booleans())
    def leave(self, consumer, is_lost):
        attempts = {item: item.attempts for item in consumer.inflight.values()}
        self.queue.disconnect(consumer, self.now, is_lost)
        assert consumer.inflight == {}
        assert all(item.state != LEASED or item.consumer is not consumer for item in attempts)
        del self.granted[consumer], self.dealt[consumer]
        self.collect()

    # -- time and administration -------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 10, 260, 600, 1500]))
    def time_passes(self, ms):
        self.now += ms
        self.queue.tick(self.now, 1000)
        self.queue.dispatch_deferred(self.now)
        self.collect()

    @rule(name=stream_names, seconds=st.sampled_from([None, 1]))
    def pause(self, name, seconds):
        until = None if seconds is None else self.now + seconds * 1000
        self.queue.pause(self.queue.streams[name], until, self.now)

    @rule(name=stream_names)
    def resume(self, name):
        self.queue.resume(self.queue.streams[name], self.now)
        self.collect()

    @rule(name=stream_names)
    def redrive(self, name):
        stream = self.queue.streams[name]
        for item in list(stream.dead.values())[:2]:
            if stream.has_capacity(1, 0):  # as an administrator's redrive checks first
                self.accepted[name][item.id] = stream.redrive(item, self.now)
        dispatch(stream, self.now)
        self.collect()

    @rule(name=stream_names, data=st.data())
    def purge(self, name, data):
        stream = self.queue.streams[name]
        for item in list(stream.iterate(None))[:1]:
            assert stream.purge(item) == (item.state == GONE)
        dispatch(stream, self.now)
        self.collect()

    # -- invariants -----------------------------------------------------------------------------

    def collect(self):
        """Take dispatched envelopes as a session does, and check the order of first deliveries."""
        for consumer in self.queue.consumers.values():
            for item in consumer.outgoing:
                self.dealt[consumer] += 1
                if item.delivered == 1 and item.consumer is consumer:
                    self._check_order(item)
            consumer.outgoing = []

    def _check_order(self, item):
        if item.key is None or item.expires < 1e12 or item.error:
            return
        # Within a key, first deliveries keep the order of the envelopes.
        line = self.firsts.setdefault((item.stream.name, item.key), [])
        assert not line or item.order > line[-1]
        line.append(item.order)

    @invariant()
    def every_envelope_is_in_exactly_one_state(self):
        for name, stream in self.queue.streams.items():
            states = [item.state for item in self.accepted[name].values()]
            counts = Counter(states)
            assert counts[READY] == stream.ready_queue.ready_count
            assert counts[DELAYED] == stream.delayed
            assert counts[LEASED] == stream.leased
            assert counts[DEAD] == len(stream.dead)
            assert counts[DONE] == stream.stats.acked
            assert counts[GONE] == sum(stream.stats.dropped.values())
            assert stream.stats.enqueued == len(states)
            assert len(stream.items) == counts[READY] + counts[DELAYED] + counts[LEASED]
            assert 0 <= stream.ready_queue.available <= stream.ready_queue.ready_count
            assert stream.bytes == 5 * (len(stream.items) + len(stream.dead))
            assert len(stream.items) <= stream.policy.depth_max
            assert len(stream.dead) <= stream.policy.dead_max

    @invariant()
    def envelopes_and_keys_have_at_most_one_lease(self):
        leased = [
            item
            for consumer in self.queue.consumers.values()
            for item in consumer.inflight.values()
        ]
        assert len(leased) == len(set(leased)) == sum(r.leased for r in self.queue.streams.values())
        assert all(
            item.state == LEASED and item in item.consumer.inflight.values() for item in leased
        )
        keys = [(item.stream.name, item.key) for item in leased if item.key is not None]
        assert len(keys) == len(set(keys))

    @invariant()
    def nothing_is_delivered_without_credit(self):
        for consumer, granted in self.granted.items():
            assert consumer.credit >= 0
            assert consumer.credit == granted - self.dealt[consumer]

    @invariant()
    def no_subscription_leads_by_more_than_lead_max(self):
        for stream in self.queue.streams.values():
            served = [
                s.served for s in stream.subscriptions if s.consumer.credit > 0 and not s.inactive
            ]
            if len(served) > 1:
                assert max(served) - min(served) <= LEAD_MAX

    @precondition(lambda self: self.granted)
    @invariant()
    def consumers_with_credit_are_served(self):
        """No envelope stays available while there is credit, except while dispatch waits."""
        for stream in self.queue.streams.values():
            with_credit = [
                subscription
                for subscription in stream.subscriptions
                if subscription.consumer.credit > 0
            ]
            leased = [
                subscription
                for subscription in stream.subscriptions
                if subscription.consumer.wait_until > self.now
            ]
            if with_credit and stream.ready_queue.available and not stream.paused:
                assert leased, (
                    f"{stream.ready_queue.available} ready, {len(with_credit)} with credit"
                )

    def teardown(self):
        """After all consumers left and all time passed, there are no leases and no timers."""
        for consumer in list(self.queue.consumers.values()):
            self.queue.disconnect(consumer, self.now)
        self.now += FAIRNESS_WAIT_MS + 1e7
        self.queue.tick(self.now, 100_000)
        assert all(
            stream.leased == 0 and stream.delayed == 0 for stream in self.queue.streams.values()
        )
        assert self.queue.timers.take_due(self.now, 1000) == []


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
