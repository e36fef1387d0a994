"""Asks driven at random: answers, cancellations, deadlines, clocks that are set, lost commits and
restarts. Each is settled at most once, as the first caller that succeeded, and shown once."""

import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from appliance.ask import wire
from appliance.ask.writes import WAITING_MAX
from appliance.kernel.errors import ApplianceError, Unavailable
from tests.unit.ask.conftest import AskEnvironment, new_file_in
from tests.unit.hub.conftest import FaultyRunner

pytestmark = pytest.mark.slow

WHICH = st.integers(0, 100)


class AskMachine(RuleBasedStateMachine):
    """`expected`: state and answer of each ask; `due`: its deadline in seconds of uptime."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        FaultyRunner.failure = FaultyRunner.gate = None
        self.env = AskEnvironment(new_file_in(Path(self.directory.name)))
        self.expected = {}
        self.due = {}
        self.defaults = {}

    def chosen(self, which):
        return sorted(self.expected)[which % len(self.expected)]

    @rule(seconds=st.sampled_from([None, 10, 100]), default=st.sampled_from([None, "no"]))
    def ask(self, seconds, default):
        more = {} if seconds is None else {"deadline_seconds": seconds, "default": default}
        try:
            ask = self.env.ask(choices=["yes", "no"], **more)
        except wire.TooManyAsks:
            waiting = [state for state, _ in self.expected.values() if state == "waiting"]
            assert len(waiting) == WAITING_MAX
            return
        self.expected[ask["id"]] = ("waiting", None)
        if seconds is not None:
            self.due[ask["id"]] = self.env.clock.seconds + seconds
            self.defaults[ask["id"]] = default

    @precondition(lambda self: self.expected)
    @rule(which=WHICH, text=st.sampled_from(["yes", "no"]))
    def answer(self, which, text):
        ask_id = self.chosen(which)
        is_open = self.expected[ask_id][0] == "waiting" and not self.is_due(ask_id)
        try:
            self.env.answer(ask_id, text)
        except wire.AskSettled:
            assert not is_open
        else:
            assert is_open
            self.expected[ask_id] = ("answered", text)

    @precondition(lambda self: self.expected)
    @rule(which=WHICH)
    def cancel(self, which):
        ask_id = self.chosen(which)
        try:
            self.env.cancel(ask_id)
        except wire.AskSettled:
            assert self.expected[ask_id][0] != "waiting"
        else:
            assert self.expected[ask_id][0] == "waiting"
            self.expected[ask_id] = ("cancelled", None)

    @precondition(lambda self: self.expected)
    @rule(which=WHICH)
    def lose_commit_of_answer(self, which):
        FaultyRunner.failure = sqlite3.OperationalError("lost")
        try:
            self.env.answer(self.chosen(which), "yes")
        except (sqlite3.Error, ApplianceError):
            pass
        else:
            raise AssertionError("it was not committed")
        finally:
            FaultyRunner.failure = None

    @rule(seconds=st.sampled_from([1, 9, 50]))
    def pass_time(self, seconds):
        self.env.clock.pass_seconds(seconds)

    @rule(hours=st.sampled_from([-48, -1, 1, 48]))
    def set_clock(self, hours):
        self.env.clock.ms += hours * 3_600_000

    @rule()
    def settle_due(self):
        try:
            self.env.run_loop()
        except Unavailable:
            return
        for ask_id, (state, _) in self.expected.items():
            if state == "waiting" and self.is_due(ask_id):
                default = self.defaults[ask_id]
                settled = ("expired", None) if default is None else ("defaulted", default)
                self.expected[ask_id] = settled

    @rule()
    def restart(self):
        self.env.reopen()

    def is_due(self, ask_id):
        return ask_id in self.due and self.due[ask_id] <= self.env.clock.seconds

    @invariant()
    def rows_and_messages_agree(self):
        rows = self.env.rows("SELECT id, state, answer, reply_id FROM x_asks")
        assert {row[0]: row[1:3] for row in rows} == self.expected
        settled = [row for row in rows if row[1] != "waiting"]
        assert len({row[3] for row in settled}) == len(settled)
        (count,) = self.env.rows("SELECT count(*) FROM messages")[0]
        assert count == len(rows) + len(settled)

    def teardown(self):
        FaultyRunner.failure = None
        self.env.store.close()
        self.directory.cleanup()


AskMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestAsks = AskMachine.TestCase
