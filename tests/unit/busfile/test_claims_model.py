"""Claims, cursors and time, driven at random against a model."""

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from appliance.busfile import claims, messages
from appliance.busfile.claims import ClaimHeld, ClaimLost
from tests.support import bus_spec_client
from tests.support.bus import NOW, BusFixture

AGENTS = st.sampled_from("abc")
TASKS = st.sampled_from(["t", "path:src/**", "path:src/a", "path:docs"])
OVERLAP = {"path:src/**": {"path:src/a"}, "path:src/a": {"path:src/**"}}
LEASE = claims.LEASE_MS


class BusModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.bus = BusFixture(Path(self.folder.name))
        self.now = NOW
        self.claims = {}  # task → (agent, until, fence)
        self.fences = {}
        self.keys = {}  # task → (agent, fence, key)
        self.cursors = dict.fromkeys("abc", 0)
        self.sent = []  # (seq, to)

    def teardown(self):
        self.bus.connection.close()
        self.folder.cleanup()

    def blocking(self, task, agent):
        """Valid claims of the same task, and of other agents for overlapping paths."""
        return [
            present
            for rival, present in self.claims.items()
            if (rival == task or (rival in OVERLAP.get(task, ()) and present[0] != agent))
            and present[1] > self.now
        ]

    @rule(ms=st.integers(-2 * LEASE, 2 * LEASE))
    def clock_moves_or_jumps(self, ms):
        self.now += ms

    @rule(task=TASKS, agent=AGENTS, key=st.sampled_from([None, "k", "l"]))
    def claim(self, task, agent, key):
        blocked = self.blocking(task, agent)
        own = self.claims.get(task, ("", 0, 0))
        repeated = own[1] > self.now and key and self.keys.get(task) == (agent, own[2], key)
        try:
            made = self.bus.run(claims.claim, self.now, task, agent, key=key)
        except ClaimHeld:
            assert blocked
            assert not repeated
            return
        if repeated:
            assert (made.claimed_by, made.lease_until_ms, made.fence) == own
            return
        assert not blocked
        if key:
            self.keys[task] = (agent, made.fence, key)
        self.fences[task] = self.fences.get(task, 0) + 1
        assert made.fence == self.fences[task]
        self.claims[task] = (agent, self.now + LEASE, made.fence)

    @rule(task=TASKS, agent=AGENTS)
    def foreign_claim(self, task, agent):
        """As the specification does it, which knows no paths."""
        if task in self.claims and self.claims[task][1] > self.now:
            return
        self.bus.run(lambda c: c.execute("DELETE FROM task_claims WHERE task_id = ?", (task,)))
        values = (task, agent, self.now, self.now + LEASE)
        self.bus.run(lambda c: c.execute("INSERT INTO task_claims VALUES (?, ?, ?, ?)", values))
        self.fences[task] = self.fences.get(task, 0) + 1
        self.claims[task] = (agent, self.now + LEASE, self.fences[task])

    @rule(task=TASKS, agent=AGENTS, older=st.integers(0, 1))
    def renew(self, task, agent, older):
        fence = self.fences.get(task, 1) - older
        present = self.claims.get(task)
        own = present is not None and (present[0], present[2]) == (agent, fence)
        expired = own and present[1] <= self.now
        rivals = [rival for rival in self.blocking(task, agent) if rival is not present]
        try:
            self.bus.run(claims.renew, self.now, task, agent, fence)
        except ClaimLost:
            assert not own or (expired and rivals)
            return
        assert own
        assert not (expired and rivals)
        self.claims[task] = (agent, self.now + LEASE, fence)

    @rule(task=TASKS, agent=AGENTS)
    def release(self, task, agent):
        present = self.claims.get(task)
        try:
            released = self.bus.run(claims.release, task, agent)
        except ClaimLost:
            assert present
            assert present[0] != agent
            return
        assert released == (present is not None)
        self.claims.pop(task, None)

    @rule(to=st.sampled_from(["a", "b", None]), foreign=st.booleans())
    def publish(self, to, foreign):
        if foreign:
            bus_spec_client.publish(self.bus.connection, "f", "note", None, to)
        else:
            self.bus.send(to_agent=to, now=self.now)
        self.sent.append((len(self.sent) + 1, to))

    @rule(agent=AGENTS, limit=st.integers(1, 5), ack=st.integers(0, 5))
    def poll_and_ack(self, agent, limit, ack):
        expected = [s for s, to in self.sent if s > self.cursors[agent] and to in (None, agent)]
        polled = [message.seq for message in self.bus.poll(agent, limit=limit)]
        assert polled == expected[:limit]
        if ack and ack <= len(polled):
            seq = polled[ack - 1]
            self.cursors[agent] = self.bus.run(messages.ack, self.now, agent, seq)
            assert self.cursors[agent] == seq

    @rule(agent=AGENTS)
    def late_ack(self, agent):
        """A repeated ack of an older message changes nothing."""
        assert self.bus.run(messages.ack, self.now, agent, 0) == self.cursors[agent]

    @invariant()
    def file_is_as_the_model(self):
        rows = self.bus.rows("SELECT task_id, claimed_by, lease_until_ms FROM task_claims")
        assert {task: row for task, *row in rows} == {
            task: [agent, until] for task, (agent, until, _) in self.claims.items()
        }
        assert dict(self.bus.rows("SELECT * FROM x_fences")) == self.fences


TestBusModel = BusModel.TestCase
TestBusModel.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
