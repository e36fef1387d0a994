"""The receiving side driven at random: links cut at every step, acks lost, a store that refuses
before or after its commit, restarts. Each delivered message is stored once, whatever happens."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appliance.inbox.broker_connection import BrokerConnection
from appliance.inbox.settings import BrokerEndpoint
from appliance.kernel.errors import Unavailable
from appliance.sdk.websocket import SocketBroken
from tests.support.clock import FakeClock
from tests.support.inbox import OWN, SUPPORTED, InboxFixture, push

pytestmark = pytest.mark.slow

ENDPOINT = BrokerEndpoint(mesh="default", url="http://127.0.0.1:1")
STEPS = ("dial", "hello", "negotiate", "receive", "client_ack", "after client_ack")


class ModelBroker:
    """Holds each message until it gets the ack. `faults` are steps at which the link breaks."""

    def __init__(self):
        self.unacked = {}
        self.acked = set()
        self.faults = []

    def trip(self, step):
        if self.faults and self.faults[0] == step:
            self.faults.pop(0)
            raise SocketBroken


class ModelLink:
    received_at = float("inf")

    def __init__(self, broker):
        self.broker, self.frames = broker, []

    def send(self, text):
        frame = msgspec.json.decode(text)
        kind = frame["type"]
        self.broker.trip(kind)
        if kind == "hello":
            self.frames.append({"type": "hello_ack"})
        elif kind == "negotiate":
            answer = {"type": "negotiated", "supported": SUPPORTED, "missing_required": []}
            self.frames += [answer, *self.pushes()]
        elif kind == "client_ack":
            self.broker.acked |= set(frame["message_ids"])
            for id_ in frame["message_ids"]:
                self.broker.unacked.pop(id_, None)
            self.broker.trip("after client_ack")

    def pushes(self):
        unacked = self.broker.unacked.values()
        return [{"type": "push", **msgspec.to_builtins(sent_push)} for sent_push in unacked]

    def receive(self, _timeout):
        self.broker.trip("receive")
        frames, self.frames = self.frames or self.pushes(), []
        return [msgspec.json.encode(frame) for frame in frames]

    def close(self):
        pass


class InboxMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.broker, self.clock = ModelBroker(), FakeClock()
        self.sent, self.received_counts = {}, Counter()
        self.refusals = []
        self.open()

    def open(self):
        self.inbox = InboxFixture(self.folder, self.clock)
        store = self.inbox.store
        write = store.write_many

        def unsteady(calls):
            when = self.refusals.pop(0) if self.refusals else None
            if when == "before":
                raise Unavailable
            outcomes = write(calls)
            if when == "after":  # committed, but not published
                raise Unavailable
            return outcomes

        store.write_many = unsteady
        self.inbox.service.events.call(self.count)
        self.receiver = BrokerConnection(
            ENDPOINT, self.inbox.service, OWN, self.clock, self.inbox.log, dial=self.dial
        )

    def dial(self, *_):
        self.broker.trip("dial")
        return ModelLink(self.broker)

    def count(self, event):
        if event.message is not None:
            self.received_counts[event.message.client_message_id] += 1

    def teardown(self):
        self.broker.faults, self.refusals = [], []
        for _ in range(6):
            self.round()
        try:
            assert self.broker.unacked == {}
            assert sorted(self.inbox.rows()) == sorted(self.sent)
            assert self.received_counts == Counter(self.sent.keys())
        finally:
            self.receiver.stop()
            self.inbox.close()
            shutil.rmtree(self.folder)

    @rule(number=st.integers(0, 8), repeated=st.booleans())
    def deliver(self, number, repeated):
        """`again`: the sender's repetition got another id of the broker's."""
        sent_push = push(number, message_id=f"bm_{number}{'_again' if repeated else ''}")
        if sent_push.message_id not in self.broker.acked:
            self.broker.unacked[sent_push.message_id] = sent_push
            self.sent[sent_push.client_message_id] = sent_push

    @rule()
    def round(self):
        self.clock.pass_seconds(60)
        self.receiver.run_once(self.clock.now_ms())

    @rule(step=st.sampled_from(STEPS))
    def break_at(self, step):
        self.broker.faults.append(step)
        self.round()
        self.broker.faults.clear()

    @rule(when=st.sampled_from(["before", "after"]))
    def refuse(self, when):
        self.refusals = [when]
        self.round()
        self.refusals = []

    @rule()
    def restart(self):
        self.receiver.stop()
        self.inbox.close()
        self.open()

    @invariant()
    def nothing_is_acked_that_is_no_row(self):
        rows = self.inbox.rows("SELECT client_message_id FROM inbox")
        assert {f"c{id_.split('_')[1]}" for id_ in self.broker.acked} <= set(rows)
        assert len(rows) == len(set(rows))
        assert all(count == 1 for count in self.received_counts.values())


InboxMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestInbox = InboxMachine.TestCase
