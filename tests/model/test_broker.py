"""The broker at random: sends, deliveries, lost acks, faults, restarts, sweeps.

What must hold whatever happens: an id is used exactly when its message was accepted; every
recipient has its message or will get it; the orphan check finds nothing.
"""

import shutil
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from appliance.broker import wire
from appliance.kernel.batch import BatchRunner
from appliance.kernel.errors import Unavailable
from tests.support.broker import BrokerFixture, Mailbox, item, key
from tests.support.clock import FakeClock

pytestmark = pytest.mark.slow

DAY_SECONDS = 86_400
KEEP_DAYS, DEDUPE_DAYS = 3, 7
NAMES = ("anna", "bert", "cleo")
DESTINATIONS = ({"topic": "alerts"}, {"queue": "jobs"}, {"to": "bert"}, {"topic": "nowhere"})
ids = st.sampled_from([f"m{number}" for number in range(6)])
bodies = st.sampled_from(["one", "two"])
destinations = st.sampled_from(DESTINATIONS)
names = st.sampled_from(NAMES)


class Faulty(BatchRunner):
    """Fails before or after its commit, as planned."""

    plan: list[str] = []

    def commit(self) -> None:
        fault = self.plan.pop() if self.plan else None
        if fault == "before":
            raise sqlite3.OperationalError("fault before the commit")
        super().commit()
        if fault == "after":
            raise sqlite3.OperationalError("fault after the commit")


class AcceptedSend:
    """An id that the broker has said to be used up."""

    def __init__(self, given, body, seen_ms, sender):
        self.given = given
        self.sender = sender
        self.message_id = body["broker_message_id"]
        self.history_id = body["history_id"]
        self.seen_ms = seen_ms


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        Faulty.plan = []
        self.accepted: dict[str, AcceptedSend] = {}
        self.got: dict[str, set[str]] = {name: set() for name in NAMES}
        self.boxes: dict[str, Mailbox] = {}
        self.refusing: set[str] = set()

    @initialize()
    def open(self):
        self.broker = BrokerFixture(self.folder, runner=Faulty, clock=self.clock)
        if self.broker.service.directory.by_slug["lab"].message_retention_days != KEEP_DAYS:
            self.broker.registry.change_mesh(
                "lab",
                wire.ChangeMesh(
                    dedupe_retention_days=DEDUPE_DAYS, message_retention_days=KEEP_DAYS
                ),
            )

    def teardown(self):
        Faulty.plan = []
        if hasattr(self, "broker"):
            self.drain()
            self.broker.close()
        shutil.rmtree(self.folder)

    # -- sending -------------------------------------------------------------------------

    @rule(id_=ids, body=bodies, destination=destinations, sender=names)
    def send(self, id_, body, destination, sender):
        given = item(id_, body, **destination)
        self.judge(given, self.broker.service.accept(key(sender), given), sender)

    @rule(
        given=st.lists(st.tuples(ids, bodies, destinations), min_size=1, max_size=5), sender=names
    )
    def send_batch(self, given, sender):
        items = [item(id_, body, **destination) for id_, body, destination in given]
        answers = self.broker.service.accept_many(key(sender), items)
        for send, answer in zip(items, answers, strict=True):
            self.judge(send, answer, sender)

    @rule(
        id_=ids, body=bodies, destination=destinations, fault=st.sampled_from(["before", "after"])
    )
    def send_with_a_fault(self, id_, body, destination, fault):
        """The sender gets an error: then it may be stored or not, and asks again."""
        given = item(id_, body, **destination)
        Faulty.plan = [fault]
        status, body = self.broker.service.accept(key("anna"), given)
        assert status == 500, body
        Faulty.plan = []
        before = id_ in self.accepted
        answer = self.broker.service.accept(key("anna"), given)
        if not before and answer[0] in (200, 201):
            assert answer[0] == (201 if fault == "before" else 200)
        self.judge(given, answer, "anna", repeat=True)

    def judge(self, given, answer, sender, repeat=False):
        status, body = answer
        id_ = given["client_message_id"]
        accepted = self.accepted.get(id_)
        if accepted is not None:
            fits = accepted.given["request_fingerprint"] == given["request_fingerprint"]
            same = fits and accepted.sender == sender
            assert status == (200 if same else 409), body
            if not same:
                conflict = "sender_mismatch" if fits else "request_fingerprint_mismatch"
                assert body["conflict"] == conflict
            else:
                assert body["broker_message_id"] == accepted.message_id
                assert body["history_id"] == accepted.history_id
                assert body["history_available"] == self.is_stored(accepted.message_id)
        elif given["destination_ref"] == "nowhere":
            assert status == 404
        else:
            assert status == 201 or (repeat and status == 200), body
            self.accepted[id_] = AcceptedSend(given, body, self.clock.now_ms(), sender)

    # -- receiving -----------------------------------------------------------------------

    @rule(name=names)
    def connect(self, name):
        old = self.boxes.pop(name, None)
        if old is not None:
            old.connection.stop()
        self.refusing.discard(name)
        self.boxes[name] = Mailbox(self.broker, name, self.receiver(name))

    def receiver(self, name):
        def take(pushes):
            if name in self.refusing:
                raise Unavailable("the inbox is full")
            self.got[name].update(push.message_id for push in pushes)

        return take

    @precondition(lambda self: self.boxes)
    @rule(name=names)
    def disconnect(self, name):
        box = self.boxes.pop(name, None)
        if box is not None:
            box.connection.stop()

    @rule(name=names)
    def refuse_or_not(self, name):
        self.refusing ^= {name}

    @rule(faults=st.lists(st.sampled_from(["before", "after"]), max_size=1))
    def deliver(self, faults):
        Faulty.plan = list(faults)
        try:
            self.broker.deliverer.run_once(self.clock.now_ms())
        except sqlite3.OperationalError:
            assert faults
        Faulty.plan = []

    @precondition(lambda self: self.boxes)
    @rule()
    def receive(self):
        for box in self.boxes.values():
            with suppress(Unavailable):
                box.connection.run_once(self.clock.now_ms())

    @precondition(lambda self: self.boxes)
    @rule(lost=st.booleans())
    def leases_run_out(self, lost):
        """A push may have been lost on the way."""
        self.broker.deliverer.run_once(self.clock.now_ms())
        for box in self.boxes.values():
            if lost:
                box.connection._claims.clear()
        self.clock.pass_seconds(31)
        self.broker.sweeper.run_once(self.clock.now_ms())

    # -- time and restarts ---------------------------------------------------------------

    @rule(days=st.sampled_from([0, 1, 4]))
    def sweep(self, days):
        self.clock.pass_seconds(days * DAY_SECONDS)
        self.broker.retention.sweep()
        now_ms = self.clock.now_ms()
        self.accepted = {
            id_: send
            for id_, send in self.accepted.items()
            if send.seen_ms + DEDUPE_DAYS * DAY_SECONDS * 1000 > now_ms
        }

    @rule()
    def restart(self):
        """Without a shutdown: everything in memory is lost."""
        self.boxes.clear()
        self.broker.close()
        self.open()

    # -- what holds ----------------------------------------------------------------------

    @invariant()
    def nothing_is_orphaned(self):
        if hasattr(self, "broker"):
            assert self.broker.orphans() == []

    @invariant()
    def used_ids_are_the_accepted_ones(self):
        if hasattr(self, "broker"):
            rows = self.broker.rows(
                "SELECT client_message_id, broker_message_id FROM client_message_dedupe"
            )
            assert dict(rows) == {id_: send.message_id for id_, send in self.accepted.items()}

    @invariant()
    def every_recipient_has_its_message_or_will(self):
        if not hasattr(self, "broker"):
            return
        rows = self.broker.rows("SELECT broker_message_id, recipient FROM delivery_queue")
        outstanding = set(rows)
        senders = dict(
            self.broker.rows("SELECT broker_message_id, sender_pubkey FROM message_history")
        )
        for send in self.accepted.values():
            if send.message_id not in senders:
                continue
            for recipient, holders in recipients_of(send.given, senders[send.message_id]):
                if (send.message_id, recipient) not in outstanding:
                    assert any(send.message_id in self.got[name] for name in holders)

    def is_stored(self, message_id):
        return bool(
            self.broker.rows(
                "SELECT 1 FROM topic_message WHERE id = ?1"
                " UNION ALL SELECT 1 FROM message_queue WHERE id = ?1",
                message_id,
            )
        )

    def drain(self):
        """Everybody comes and takes: then nothing is left."""
        self.refusing.clear()
        for name in NAMES:
            self.connect(name)
        for _ in range(4):
            self.clock.pass_seconds(61)
            self.broker.sweeper.run_once(self.clock.now_ms())
            for box in self.boxes.values():
                box.receive()
        assert self.broker.count("delivery_queue") == 0
        self.every_recipient_has_its_message_or_will()


def recipients_of(given, sender):
    """(recipient, names of whom any may have it)."""
    ref = given["destination_ref"]
    if given["destination_kind"] == "topic":
        return [(key(name), [name]) for name in ("bert", "cleo") if key(name) != sender]
    if given["destination_kind"] == "queue":
        return [(f"queue:{ref}", ["bert"])]
    return [(ref, ["bert"])]


TestBroker = BrokerMachine.TestCase
TestBroker.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
