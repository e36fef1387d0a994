"""Catch-ups of random workspaces with random budgets: within the budget, urgent first, complete."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from appliance.hub.catchup import budget, wire
from appliance.hub.catchup.service import OwnClaim
from tests.unit.hub.ask.conftest import new_file_in
from tests.unit.hub.catchup.conftest import CatchUpEnvironment

pytestmark = pytest.mark.slow
NAMES = st.sampled_from(["ada", "bob", "cy o'neill"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)
TOKENS = st.integers(wire.TOKENS_MIN, wire.TOKENS_MAX) | st.integers(wire.TOKENS_MIN, 600)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "send", "pin", "topic", "handoff", "resolve", "claim", "catch up"]),
        NAMES, TEXTS, st.integers(0, 9), TOKENS,
    ),
    max_size=60,
)  # fmt: skip
_new = None


def new_env(folder):
    global _new
    if _new is None:
        _new = new_file_in(Path(tempfile.mkdtemp()))
    return CatchUpEnvironment(Path(shutil.copy(_new, folder))).begin()


class Model:
    """What waits for each name, and which topics changed since its last catch-up."""

    def __init__(self, env):
        self.env, self.claims = env, {}
        self.questions, self.entries, self.pins = {}, {}, []
        self.topics, self.versions = [env.topic_id], {}
        self.changed, self.since = {}, {}

    def step(self, kind, name, text, number, tokens):
        env, topic_id = self.env, self.topics[number % len(self.topics)]
        if kind == "ask":
            names = [name] if number % 2 else []
            ask_id = env.ask(f"?{text}", may_answer=names, topic_id=topic_id)
            self.questions[ask_id] = names
            self._change(topic_id)
        elif kind in ("send", "pin"):
            message_id = env.send(f"-{text}".replace("@", ""), topic_id, to=[name])
            self.entries.setdefault(name, []).append(message_id)
            self._change(topic_id)
            if kind == "pin" and len(self.pins) < wire.PINS_MAX:
                env.pin(message_id)
                self.pins.insert(0, message_id)
        elif kind == "topic":
            topic_id = env.topic(env.channel_id, f"t{len(self.topics)}")
            self.topics.append(topic_id)
            self._change(topic_id)
        elif kind == "handoff":
            version = self.versions.get(topic_id, 0)
            env.change("write_handoff", f"!{text}", topic_id, expected_version=version)
            self.versions[topic_id] = version + 1
            self._change(topic_id)
        elif kind == "resolve":
            verb = "resolve" if number % 2 else "reopen"
            if env.change(verb, f"!{text}", topic_id)["changed"]:
                self._change(topic_id)
        elif kind == "claim":
            self.claims.setdefault(name, []).append(OwnClaim(f"task-{number}", number, number - 5))
        else:
            self.catch_up(name, tokens)

    def _change(self, topic_id):
        for name in self.changed:
            self.changed[name].add(topic_id)

    def catch_up(self, name, tokens):
        env = self.env
        env.claims.claims = self.claims.get(name, [])
        made = env.catch_up(name, since=self.since.get(name, 0), tokens=tokens)
        assert made.tokens == budget.tokens_of(made.text, made.next) <= tokens
        assert len(made.text.encode()) <= tokens * wire.BYTES_PER_TOKEN
        totals = {part.part: len(part.items) + part.more for part in made.parts}
        expected = {
            "questions": sum(not names or name in names for names in self.questions.values()),
            "claims": len(self.claims.get(name, [])),
            "entries": len(self.entries.get(name, [])),
            "pins": len(self.pins),
            "topics": len(self.changed.get(name, self.topics)),
        }
        assert totals == expected, "what is left out is counted"
        assert list(totals) == list(budget.SHARES)
        assert not any(part.is_bound for part in made.parts)
        assert all(part.command in made.text for part in made.parts if part.more)
        assert [item.id for item in made.parts[3].items] == self.pins[: len(made.parts[3].items)]
        self.since[name], self.changed[name] = made.next, set()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, TOKENS)
def test_catch_ups_are_complete_and_within_any_budget(steps, tokens):
    folder = Path(tempfile.mkdtemp())
    env = new_env(folder)
    try:
        model = Model(env)
        for step in steps:
            model.step(*step)
        for name in ("ada", "bob", "eve"):
            model.catch_up(name, tokens)
            model.catch_up(name, wire.TOKENS_MAX)
    finally:
        env.store.close()
        shutil.rmtree(folder)
