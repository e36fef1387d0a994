"""Durable streams in a random state machine with crashes: no accepted envelope is lost.

After a crash an envelope that was not acked is there exactly once. If its ack was written to the
journal, it is not there, and its id is a duplicate. If not, it can come back.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from appliance.courier.lease import DEAD, LEASED
from appliance.courier.wire import Selection
from tests.support.courier import ANYBODY, INBOX
from tests.support.courier_durable import DurableCourierFixture

pytestmark = pytest.mark.slow


class JournalMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(prefix="agentlip-"))
        self.courier = DurableCourierFixture(
            self.folder, deliveries_max=3, retry={"initial_seconds": 0.1}, lease_seconds=1.0
        )
        self.number = 0
        self.open = set()  # accepted, not acked or purged
        self.done = set()  # acked, and the ack is in the journal
        self.unwritten = set()  # acked or purged, but not in the journal yet
        self.purged = set()
        self.consumers = []

    @rule(count=st.integers(1, 4), key=st.sampled_from([None, "k"]), delay=st.sampled_from([0, 50]))
    def put(self, count, key, delay):
        ids = [f"e{self.number + index}" for index in range(count)]
        self.number += count
        more = {"partitionKey": key} if key else {}
        assert self.courier.put(*ids, delayMs=delay, **more).duplicates == 0
        self.open.update(ids)

    @rule(data=st.data())
    def put_duplicate(self, data):
        seen_ids = sorted(self.open | self.done | self.unwritten - self.purged)
        if seen_ids:
            assert self.courier.put(data.draw(st.sampled_from(seen_ids))).duplicates == 1

    @rule(limit=st.integers(1, 5))
    def take(self, limit):
        self.consumers.append(self.courier.take(limit))

    @rule(part=st.booleans())
    def ack(self, part):
        if not self.consumers:
            return
        consumer, items = self.consumers.pop()
        ids = [item.id for item in items if item.state == LEASED and item.consumer is consumer]
        ids = ids[: len(ids) // 2 + 1] if part else ids
        assert self.courier.service.ack(consumer, ids) == []
        self.open.difference_update(ids)
        self.unwritten.update(ids)

    @rule(mode=st.sampled_from(["release", "fail", "reject"]))
    def nack(self, mode):
        if self.consumers:
            consumer, items = self.consumers.pop()
            ids = [item.id for item in items if item.consumer is consumer]
            assert self.courier.service.nack(consumer, ids, mode, error="no") == []

    @rule()
    def redrive(self):
        if not self.dead() and self.open:
            self.courier.nack("reject", limit=2)
        if INBOX in self.courier.service.queue.streams:
            self.courier.admin.redrive(ANYBODY, Selection(INBOX))

    @rule()
    def purge(self):
        if INBOX in self.courier.service.queue.streams:
            ids = self.courier.admin.purge(ANYBODY, Selection(INBOX, limit=1)).ids
            self.open.difference_update(ids)
            self.unwritten.update(ids)
            self.purged.update(ids)

    @rule(seconds=st.sampled_from([0.06, 0.2, 1.1]))
    def time_passes(self, seconds):
        self.courier.clock.pass_seconds(seconds)
        self.courier.service.queue.tick(self.courier.service.now(), 1000)

    @rule()
    def flush(self):
        self.courier.service.pipeline.flush()
        self.done |= self.unwritten - self.purged
        self.unwritten.clear()
        rows = [row[2] for row in self.courier.rows("journal")]
        assert sorted(rows) == sorted(self.open)

    @rule(flushed=st.booleans())
    def crash(self, flushed):
        if flushed:
            self.flush()
        dead = self.dead()
        self.courier.restart(flushed=False)
        assert self.dead() == dead or not flushed
        here = self.here()
        assert here >= self.open
        assert here <= self.open | self.unwritten
        self.open, self.unwritten = here, set()
        self.consumers.clear()

    def here(self):
        stream = self.courier.service.queue.streams.get(INBOX)
        return set() if stream is None else {*stream.items, *stream.dead}

    def dead(self):
        stream = self.courier.service.queue.streams.get(INBOX)
        return {} if stream is None else {id_: item.reason for id_, item in stream.dead.items()}

    @invariant()
    def every_envelope_is_there_once(self):
        if hasattr(self, "courier"):
            assert self.here() == self.open
            stream = self.courier.service.queue.streams.get(INBOX)
            if stream is not None:
                assert not {*stream.items} & {*stream.dead}
                assert all(item.state == DEAD for item in stream.dead.values())

    def teardown(self):
        if hasattr(self, "courier"):
            self.crash(flushed=True)
            self.courier.store.close(10)
            shutil.rmtree(self.folder)


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
