"""Reports, pauses and turns."""

import pytest

from appliance.hub.agents import wire
from appliance.kernel.auth import Principal, SenderNotAllowed
from appliance.kernel.errors import Invalid
from tests.unit.hub.entries.conftest import SCOPES


def turn(number, **more):
    values = {
        "number": number, "began_at": "2026-02-04T20:00:00.000Z", "seconds": 1.5,
        "outcome": "done", "code": 0, "entries": [1], "open": [], "output": "x",
    }  # fmt: skip
    return wire.TurnReport(**values | more)


def test_newest_program_replaces_an_older_one(env):
    assert env.report("r1", begins=True).newest
    assert env.report("r2", begins=True).newest
    assert not env.report("r1", "working").newest
    assert env.report("r2", "working").newest
    assert [agent.state for agent in env.shown()] == ["working"]


def test_program_that_begins_learns_of_a_turn_that_runs(env):
    env.report("r1", "working", begins=True)
    for _ in range(2):  # also if the first answer was lost
        taken = env.report("r2", begins=True)
        assert (taken.newest, taken.runner.state, taken.last_turn) == (True, "working", 0)
    assert env.report("r3", begins=True).runner.run_id == "r2"
    assert env.report("r1", "asleep", turn=turn(1)).runner.run_id == "r3"
    assert (env.report("r3").last_turn, env.report("r3").runner) == (1, None)
    assert [agent.state for agent in env.shown()] == ["asleep"]


def test_state_is_in_the_receipts(env):
    env.report(begins=True)
    sent = env.send(to=["ada"])
    assert sent["receipts"][0]["waking"] == "asleep"
    env.pause()
    assert env.receipts(sent)[0].waking == "paused"
    env.resume()
    assert env.receipts(sent)[0].waking == "asleep"


def test_each_report_returns_the_pause_until_its_end(env):
    env.report(begins=True)
    env.pause(reason="freeze", seconds=60)
    pause = env.report().pause
    assert (pause.by, pause.reason, pause.until is not None) == ("alice", "freeze", True)
    env.clock.ms += 3_600_000
    assert env.report().pause is not None, "the wall clock was set"
    env.clock.pass_seconds(60)
    assert env.report().pause is None
    env.pause()
    env.clock.pass_seconds(10**6)
    assert env.report().pause is not None
    env.resume()
    assert env.report().pause is None


def test_agent_can_be_paused_before_it_ever_ran(env):
    env.pause()
    assert [(agent.name, agent.reported_at) for agent in env.shown()] == [("ada", None)]
    assert env.report(begins=True).pause is not None


def test_name_that_is_too_long_is_refused(env):
    with pytest.raises(Invalid):
        env.agents.report("a" * 201, wire.Report("r1", "asleep"), env.agent)


def test_unknown_agent_is_not_resumed(env):
    with pytest.raises(wire.NoSuchAgent):
        env.resume()
    with pytest.raises(wire.NoSuchAgent):
        env.agents.turns("ada", wire.TurnsQuery())


def test_repeated_turn_is_stored_once_and_old_ones_go(env):
    for number in range(1, wire.TURNS_KEPT + 20):
        env.report(turn=turn(number))
        env.report(turn=turn(number))
    turns = env.agents.turns("ada", wire.TurnsQuery(limit=1000)).turns
    assert len(turns) == wire.TURNS_KEPT
    assert (turns[0].entries, turns[0].open, turns[0].output) == ([1], [], "x")


def test_escalated_entries_are_overdue_and_settled_ones_are_not(env):
    env.send(to=["ada"])
    env.send(to=["ada", "bob"])
    env.ack("ada", 1)
    env.report(escalate=[1, 2, 3, 99])
    assert [(entry.id, entry.name) for entry in env.entries.overdue(10)] == [(2, "ada")]


def test_token_reports_its_own_agents_only(env):
    other = Principal("t", "bob", SCOPES, senders=frozenset({"bob"}))
    with pytest.raises(SenderNotAllowed):
        env.agents.report("ada", wire.Report("r", "asleep"), other)


def test_agents_are_paged_with_their_open_entries(env):
    for name in ("a", "b", "c"):
        env.report(name=name)
    env.send(to=["b"])
    first = env.agents.list_agents(wire.AgentsQuery(limit=2))
    assert ([(each.name, each.open) for each in first.agents], first.next) == (
        [("a", 0), ("b", 1)], "b",
    )  # fmt: skip
    rest = env.agents.list_agents(wire.AgentsQuery(after="b", limit=2))
    assert ([each.name for each in rest.agents], rest.has_more) == (["c"], False)
