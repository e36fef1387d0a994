"""Durable streams, driven at random and crashed at any moment: nothing accepted is lost.

After a crash an envelope that was not acked is there, exactly once. One whose ack the
journal had heard is not, and its id is a duplicate. One acked in the last moment may come again.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from appliance.courier.item import DEAD, LEASED
from appliance.courier.wire import Selection
from tests.support.courier import ANYBODY, INBOX
from tests.support.courierlife import Life

pytestmark = pytest.mark.slow


class JournalMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(prefix="agentlip-"))
        self.life = Life(self.folder, deliveries_max=3, backoff_ms=100, lease_ms=1000, dead_max=50)
        self.number = 0
        self.open = set()  # accepted, and nobody acked or purged it
        self.done = set()  # acked, and the journal heard of it
        self.between = set()  # acked or purged, and it did not yet
        self.purged = set()
        self.takers = []

    @rule(count=st.integers(1, 4), key=st.sampled_from([None, "k"]), delay=st.sampled_from([0, 50]))
    def put(self, count, key, delay):
        ids = [f"e{self.number + place}" for place in range(count)]
        self.number += count
        more = {"partitionKey": key} if key else {}
        assert self.life.put(*ids, delayMs=delay, **more).duplicates == 0
        self.open.update(ids)

    @rule(data=st.data())
    def put_again(self, data):
        known = sorted(self.open | self.done | self.between - self.purged)
        if known:
            assert self.life.put(data.draw(st.sampled_from(known))).duplicates == 1

    @rule(most=st.integers(1, 5))
    def take(self, most):
        self.takers.append(self.life.take(most))

    @rule(part=st.booleans())
    def ack(self, part):
        if not self.takers:
            return
        taker, items = self.takers.pop()
        ids = [item.id for item in items if item.state == LEASED and item.holder is taker]
        ids = ids[: len(ids) // 2 + 1] if part else ids
        assert self.life.courier.ack(taker, ids) == []
        self.open.difference_update(ids)
        self.between.update(ids)

    @rule(mode=st.sampled_from(["release", "fail", "reject"]))
    def nack(self, mode):
        if self.takers:
            taker, items = self.takers.pop()
            ids = [item.id for item in items if item.holder is taker]
            assert self.life.courier.nack(taker, ids, mode, error="no") == []

    @rule()
    def redrive(self):
        if not self.dead() and self.open:
            self.life.nack("reject", most=2)
        if INBOX in self.life.courier.queue.rings:
            self.life.operator.redrive(ANYBODY, Selection(INBOX))

    @rule()
    def purge(self):
        if INBOX in self.life.courier.queue.rings:
            ids = self.life.operator.purge(ANYBODY, Selection(INBOX, limit=1)).ids
            self.open.difference_update(ids)
            self.between.update(ids)
            self.purged.update(ids)

    @rule(seconds=st.sampled_from([0.06, 0.2, 1.1]))
    def time_passes(self, seconds):
        self.life.clock.pass_seconds(seconds)
        self.life.courier.queue.tick(self.life.courier.now(), 1000)

    @rule()
    def flush(self):
        self.life.courier.inserts.flush()
        self.done |= self.between - self.purged
        self.between.clear()
        rows = [row[2] for row in self.life.rows("journal")]
        assert sorted(rows) == sorted(self.open)

    @rule(flushed=st.booleans())
    def crash(self, flushed):
        if flushed:
            self.flush()
        dead = self.dead()
        self.life.again(flushed=False)
        assert self.dead() == dead or not flushed
        here = self.here()
        assert here >= self.open
        assert here <= self.open | self.between
        self.open, self.between = here, set()
        self.takers.clear()

    def here(self):
        ring = self.life.courier.queue.rings.get(INBOX)
        return set() if ring is None else {*ring.items, *ring.dead}

    def dead(self):
        ring = self.life.courier.queue.rings.get(INBOX)
        return {} if ring is None else {id_: item.reason for id_, item in ring.dead.items()}

    @invariant()
    def every_envelope_is_here_once(self):
        if hasattr(self, "life"):
            assert self.here() == self.open
            ring = self.life.courier.queue.rings.get(INBOX)
            if ring is not None:
                assert not {*ring.items} & {*ring.dead}
                assert all(item.state == DEAD for item in ring.dead.values())

    def teardown(self):
        if hasattr(self, "life"):
            self.crash(flushed=True)
            self.life.store.close(10)
            shutil.rmtree(self.folder)


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
