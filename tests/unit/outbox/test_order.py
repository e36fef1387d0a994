"""An ordered destination is one promise, which courier (`partitionKey`) and outbox
(`[[outbox.in_order]]`) keep: what failed comes before what follows it, and only one lease or run
of a key is in flight."""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.courier.consumer import Consumer
from appliance.courier.fair_dispatch import dispatch
from appliance.courier.item import DeliveryOptions
from appliance.courier.policy import StreamPolicy
from appliance.courier.queue import Queue
from appliance.kernel.retry import RetrySettings
from appliance.outbox.settings import OrderedDestination
from tests.support.outbox import with_paused_pool

KEYS = ("a", "b")
LATER, REFUSED = (503, None, None), (403, {"error": "no"}, None)
STEPS = st.lists(st.sampled_from([*KEYS, *KEYS, "ends", "fails", "is refused", "time passes"]))


class OrderedStream:
    """`ended` has the numbers of each key that were acknowledged or refused."""

    def __init__(self, _new_outbox):
        self.ended, self.now = defaultdict(list), 0.0
        self.queue = Queue(
            lambda _name: StreamPolicy(lease_seconds=1e6, retry=RetrySettings(0.2)), idle_ms=1e12
        )
        self.stream = self.queue.open("s", 0.0)
        self.consumer = Consumer("c", "somebody", lambda: None)
        self.queue.subscribe(self.consumer, "s", 0.0)
        self.queue.grant(self.consumer, 1_000_000, 0.0)

    def put(self, key, number):
        self.stream.put(f"{key}{number}", b"x", self.now, DeliveryOptions(key=key))
        dispatch(self.stream, self.now)

    def in_flight(self):
        return [item.key for item in self.consumer.inflight.values()]

    def finish(self, outcome):
        item = next(iter(self.consumer.inflight.values()))
        if outcome == "fails":
            self.stream.fail(item, self.now, "could not", None)
        elif outcome == "ends":
            self.queue.ack(self.consumer, [item.id], self.now)
        else:
            self.stream.reject(item, self.now, "never")
        if outcome != "fails":
            self.ended[item.key].append(int(item.id[1:]))
        dispatch(self.stream, self.now)

    def wait(self):
        self.now += 60_000
        self.queue.tick(self.now, 1000)


class OrderedOutbox:
    """`answer`: the broker's for the next send that it gets. If it has to be repeated, the broker
    accepts nothing behind it."""

    def __init__(self, new_outbox):
        self.ended, self.answer, self.failed = defaultdict(list), None, set()
        self.outbox, self.pool = with_paused_pool(new_outbox, in_order=(OrderedDestination(),))
        self.outbox.broker.fault = self._answer

    def _answer(self, item):
        key, (answer, self.answer) = item["destination_ref"], (self.answer, None)
        if answer == LATER or key in self.failed:
            self.failed.add(key)
            return LATER
        self.ended[key].append(int(item["body"]))
        return answer

    def put(self, key, number):
        self.outbox.send(str(number), to=f"#{key}")
        self.outbox.round()

    def in_flight(self):
        runs = [{row.destination_ref for row in rows} for _, (*_, rows) in self.pool.work]
        return [key for keys in runs for key in keys]

    def finish(self, outcome):
        self.answer = {"fails": LATER, "is refused": REFUSED}.get(outcome)
        self.failed.clear()
        self.pool.finish()
        self.outbox.round()

    def wait(self):
        self.outbox.clock.pass_seconds(3600)
        self.outbox.round()


@pytest.mark.parametrize("make", [OrderedStream, OrderedOutbox])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_order_is_kept_whatever_fails(make, new_outbox, steps):
    ordered, count = make(new_outbox), dict.fromkeys(KEYS, 0)
    for step in (*steps, *["time passes", "ends", "ends"] * len(steps)):
        if step in KEYS:
            ordered.put(step, count[step])
            count[step] += 1
        elif step == "time passes":
            ordered.wait()
        elif ordered.in_flight():
            ordered.finish(step)
        in_flight = ordered.in_flight()
        assert len(in_flight) == len(set(in_flight))
    assert ordered.ended == {key: list(range(count[key])) for key in KEYS if count[key]}
