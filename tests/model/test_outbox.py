"""Sends driven at random: faults at commits, crashes, lost answers, refusals, redrives, drops, age.
None is lost, none arrives twice, no id is freed."""

import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from appliance.kernel.errors import ApplianceError, Unavailable
from appliance.kernel.log import Log
from appliance.outbox import wire
from appliance.workspace import schema
from appliance.workspace.datadir import DataDir
from tests.support.clock import FakeClock
from tests.support.outbox import Faults, OutboxFixture

pytestmark = pytest.mark.slow

TEXTS = st.sampled_from(["red", "green", "blue"])
KEYS = st.sampled_from([f"k{number}" for number in range(8)])
DESTINATIONS = st.sampled_from(["#a", "#b", "queue:q"])
FAULTS = st.sampled_from(["before", "after"])


class ProcessKilled(BaseException):
    """The process ends here."""


class OutboxMachine(RuleBasedStateMachine):
    """`accepted`: what was answered 202 at least once, and what it said."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        datadir = DataDir(Path(self.directory.name))
        schema.create_workspace(datadir, clock=FakeClock(), log=Log(io.BytesIO()))
        Faults.before = Faults.after = None
        self.outbox = OutboxFixture(datadir.database("outbox"))
        self.accepted: dict[str, tuple[str, str]] = {}
        self.doubtful: dict[str, set[tuple[str, str]]] = {}
        self.delivered_ids: dict[str, str] = {}

    redriven = Bundle("requeued")

    # -- what clients do -----------------------------------------------------------------

    @rule(key=KEYS, text=TEXTS, to=DESTINATIONS)
    def send(self, key, text, to):
        wanted = (to, text)
        try:
            status, body = self.outbox.send(text, key=key, to=to)
        except wire.IdReused as refused:
            possible = self.possible(key)
            if refused.extra["conflict"].endswith("_mismatch"):
                assert possible - {wanted}, "the same send was taken for another"
            else:
                assert wanted in possible, "another send was taken for the same"
            return
        except Unavailable:
            if key not in self.accepted:  # stored or not: unknown until a duplicate request
                self.doubtful.setdefault(key, set()).add(wanted)
            return
        if key in self.accepted:
            assert self.accepted[key] == wanted, "another send under a used id"
        self.accepted[key] = wanted
        if status == 200:
            self.delivered_ids[key] = body["broker_message_id"]

    def possible(self, key):
        """The possible contents of the send with that id; exactly one after a reply."""
        accepted = self.accepted.get(key)
        return self.doubtful.get(key, set()) if accepted is None else {accepted}

    @rule(texts=st.lists(TEXTS, min_size=1, max_size=4))
    def send_batch(self, texts):
        items = [wire.Send("#a", text) for text in texts]
        try:
            results = self.outbox.service.send_many(items)
        except Unavailable:
            return
        for text, result in zip(texts, results, strict=True):
            assert result[0] == 202
            self.accepted[result[1].client_message_id] = ("#a", text)

    # -- what happens --------------------------------------------------------------------

    @rule()
    def drain(self):
        self.live(self.outbox.round)

    @rule(after=st.booleans(), deliveries=st.integers(0, 3))
    def killed_while_delivering(self, after, deliveries):
        """Before the broker has the send, or after it committed and before its reply."""
        left = [deliveries]

        def die(_item):
            left[0] -= 1
            if left[0] < 0:
                raise ProcessKilled

        where = "reply_lost" if after else "fault"
        kept = getattr(self.outbox.broker, where)
        setattr(self.outbox.broker, where, die)
        try:
            self.live(self.outbox.round)
        except ProcessKilled:
            self.outbox.reopen()
        finally:
            setattr(self.outbox.broker, where, kept)

    @rule(moment=FAULTS)
    def commits_fail(self, moment):
        setattr(Faults, moment, OSError("disk"))

    @rule()
    def commits_work(self):
        Faults.before = Faults.after = None

    @rule()
    def restarted(self):
        Faults.before = Faults.after = None
        self.outbox.reopen()

    @rule(status=st.sampled_from([500, 503, 429, 408, 401, 404, 413]))
    def broker_fails(self, status):
        self.outbox.broker.fault = lambda _item: (status, {"error": "trouble"}, None)

    @rule()
    def answers_are_lost(self):
        self.outbox.broker.reply_lost = lambda _item: True

    @rule()
    def broker_well(self):
        self.outbox.broker.fault = lambda _item: None
        self.outbox.broker.reply_lost = lambda _item: False

    @rule(seconds=st.sampled_from([0.1, 1, 31, 3600, 80 * 3600]))
    def time_passes(self, seconds):
        self.outbox.clock.pass_seconds(seconds)
        self.live(lambda: self.outbox.sweep.run_once(self.outbox.clock.now_ms()))

    # -- what operators do ---------------------------------------------------------------

    @rule(target=redriven, key=KEYS, patch=st.none() | TEXTS)
    def redrive(self, key, patch):
        command = wire.Redrive(
            id=key, auto=True, patch=None if patch is None else wire.Patch(message=patch)
        )
        try:
            (successor,) = self.outbox.admin.redrive(command, "ann").redriven
        except ApplianceError:
            return ""
        successors = {(to, patch or text) for to, text in self.possible(key)}
        if len(successors) == 1:
            (self.accepted[successor.new_client_message_id],) = successors
        else:
            self.doubtful[successor.new_client_message_id] = successors
        return successor.new_client_message_id

    @rule(key=consumes(redriven))
    def redrive_successor(self, key):
        if key:
            self.redrive(key, None)

    @rule(key=KEYS)
    def drop(self, key):
        try:
            self.outbox.admin.drop(key, "ann")
        except ApplianceError:
            return

    def live(self, step):
        try:
            step()
        except Unavailable:
            return

    # -- what always holds ---------------------------------------------------------------

    @invariant()
    def nothing_is_lost_doubled_or_freed(self):
        rows = {
            row[0]: row[1:]
            for row in self.outbox.rows(
                "SELECT client_message_id, status, broker_message_id, payload,"
                " payload_dropped_at, superseded_by, id FROM outbox"
            )
        }
        received = self.outbox.broker.rows
        for key, (to, text) in self.accepted.items():
            assert key in rows, "an accepted send is gone"
            status, broker_id, payload, dropped, _, _ = rows[key]
            there = received.get(("default", key))
            if dropped is None:
                assert payload == text.encode()
            if there is not None:
                assert there["body"] == text
                assert there["destination_ref"] == to[1:] if to[0] == "#" else "q"
            if status == "done":
                assert there is not None, "done, and nobody has it"
                assert broker_id == there["broker_message_id"]
        for key, broker_id in self.delivered_ids.items():
            assert rows[key][:2] == ("done", broker_id)
        ids = {row[-1] for row in rows.values()}
        assert all(row[4] is None or row[4] in ids for row in rows.values())

    def teardown(self):
        """With a working broker every send ends: delivered, dead-lettered or retired."""
        try:
            Faults.before = Faults.after = None
            self.broker_well()
            for _ in range(8):
                self.outbox.clock.pass_seconds(40)
                self.outbox.sweep.run_once(self.outbox.clock.now_ms())
                self.outbox.round()
            assert set(self.outbox.statuses().values()) <= {"done", "dead", "aborted"}
            assert self.outbox.sender.in_flight == 0
            self.nothing_is_lost_doubled_or_freed()
        finally:
            Faults.before = Faults.after = None
            self.outbox.store.close()
            self.directory.cleanup()


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
