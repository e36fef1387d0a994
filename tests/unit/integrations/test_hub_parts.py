"""What the hub and its asks give to messages to the operator and to jobs."""

from pathlib import Path

import pytest

from appliance.integrations.jobs_logs import LogJobEvents
from appliance.integrations.notify_ask import observe
from appliance.operations.problems import OperatorProblem
from tests.unit.hub.ask.conftest import AskEnvironment, new_file_in

DISK = {"host.disk": [OperatorProblem("0", "error", "the disk is full")]}


@pytest.fixture
def env(tmp_path):
    env = AskEnvironment(Path(new_file_in(tmp_path)))
    yield env
    env.store.close()


def test_questions_that_wait_are_observed_beside_the_findings(env):
    answered, waiting = env.ask("Old?"), env.ask("Deploy?")
    env.answer(answered["id"], "yes")
    observed = observe(lambda: DISK, env.asks, None)
    assert observed["host.disk"] == DISK["host.disk"]
    (problem,) = observed["ask"]
    assert (problem.subject, problem.severity) == (waiting["id"], "question")
    assert problem.hint == f"agentlip ask answer {waiting['id']} ANSWER"
    env.store.close()
    assert observe(lambda: DISK, env.asks, None) == DISK, "the store of the hub fails"


def test_job_events_are_each_event_once_with_its_channel(env):
    events = LogJobEvents(env.store)
    assert events.newest() == 0
    topic = env.topic(env.channel("builds"), "t")
    position = events.newest()
    env.post(topic), env.post(topic)
    first = events.after(position, 1)
    assert first == [(position + 1, "message.created", "builds", "alice")]
    assert [event.number for event in events.after(first[0].number, 9)] == [position + 2]
    assert events.after(events.newest(), 9) == []
