"""`agentlip agent run` against a served appliance: turns, limits, pauses, signals and kills."""

import os
import random
import shlex
import signal
import subprocess
from functools import partial
from time import monotonic

import pytest

from appliance.hub.agents import turn_runner
from appliance.hub.agents.turn_runner import Limits, Replaced, TurnRunner
from appliance.kernel.clock import SystemClock
from appliance.sdk.discovery import find_hub
from appliance.sdk.http import HubClient
from tests.support.commands import command, environment
from tests.support.servedhub import serve
from tests.support.until import until
from tests.support.woken_agents import Agent, agent_row, is_asleep, send, states

pytestmark = pytest.mark.slow


def test_entries_start_one_turn_at_a_time(hub, ids, tmp_path):
    send(hub, ids[1], "one", "a1")
    send(hub, ids[1], "two", "a1")
    agent = Agent(hub, tmp_path, "ack", name="a1", seconds=0.5)
    agent.wait_for(1)
    send(hub, ids[1], "three", "a1")
    assert agent.wait_for(2) == [[1, False, ["one", "two"]], [2, False, ["three"]]]
    until(lambda: states(hub, "a1") == ["acknowledged"] * 3, 20, "they are settled")
    until(lambda: is_asleep(hub, "a1"), 20, "it sleeps")
    assert "a1 stopped" in agent.end()
    assert agent_row(hub, "a1")["state"] == "stopped"
    turns = hub.http.get("/api/v1/agents/a1/turns").body["turns"]
    assert [(turn["outcome"], turn["output"]) for turn in turns] == [
        ("done", "handled by a1\n"),
        ("done", "handled by a1\n"),
    ]


def test_entries_left_by_two_turns_are_escalated(hub, ids, tmp_path):
    send(hub, ids[1], "one", "a2")
    agent = Agent(hub, tmp_path, "leave", name="a2")
    overdue = "SELECT 1 FROM x_entries WHERE name = 'a2' AND overdue_at IS NOT NULL"
    until(lambda: hub.rows(overdue), 30, "it is escalated")
    assert agent.turns() == [[1, False, ["one"]], [2, True, ["one"]]]
    send(hub, ids[1], "two", "a2")
    assert agent.wait_for(3)[2] == [3, False, ["two"]]
    agent.end()


def test_failing_turn_is_repeated_later(hub, ids, tmp_path):
    send(hub, ids[1], "one", "a3")
    agent = Agent(hub, tmp_path, "fail", name="a3")
    began = monotonic()
    assert [reminder for _, reminder, _ in agent.wait_for(2)] == [False, False]
    assert monotonic() - began >= 2
    assert agent_row(hub, "a3")["open"] == 1
    agent.end()


def test_flag_ack_settles_entries_of_a_turn_that_succeeds(hub, ids, tmp_path):
    send(hub, ids[1], "one", "a4")
    agent = Agent(hub, tmp_path, "leave", "--ack", name="a4")
    until(lambda: states(hub, "a4") == ["acknowledged"], 30, "it is settled")
    assert len(agent.turns()) == 1
    agent.end()


def test_flag_ack_leaves_alone_entries_that_the_turn_settled(hub, ids, tmp_path):
    send(hub, ids[1], "one", "a9")
    send(hub, ids[1], "two", "a9")
    agent = Agent(hub, tmp_path, "decline", "--ack", name="a9")
    until(lambda: states(hub, "a9") == ["declined", "acknowledged"], 30, "both are settled")
    assert "a9 stopped" in agent.end()


def test_paused_agent_starts_nothing_until_it_is_resumed(hub, ids, tmp_path):
    agent = Agent(hub, tmp_path, "ack", name="a5")
    until(lambda: is_asleep(hub, "a5"), 20, "it sleeps")
    assert hub.http.post("/api/v1/agents/a5/pause", {"reason": "freeze"}).status == 200
    sent = send(hub, ids[1], "one", "a5")
    assert sent["receipts"][0]["waking"] == "paused"
    until(
        lambda: agent_row(hub, "a5")["reported_at"] > sent["message"]["created_at"], 20, "a report"
    )
    assert (agent.turns(), states(hub, "a5")) == ([], ["stored"])
    assert hub.http.post("/api/v1/agents/a5/resume", {}).status == 200
    agent.wait_for(1)
    agent.end()


def test_pause_between_attempts_keeps_turns_from_starting(hub, ids, tmp_path):
    send(hub, ids[1], "one", "b3")
    agent = Agent(hub, tmp_path, "fail", name="b3", seconds=3)
    agent.wait_for(1)
    assert hub.http.post("/api/v1/agents/b3/pause", {"reason": "freeze"}).status == 200
    until(lambda: is_asleep(hub, "b3"), 20, "it waits for the pause's end")
    assert len(agent.turns()) == 1
    assert hub.http.post("/api/v1/agents/b3/resume", {}).status == 200
    agent.wait_for(2)
    agent.end()


def test_pause_of_all_keeps_turns_from_starting(hub, ids, tmp_path):
    agent = Agent(hub, tmp_path, "ack", name="b1")
    until(lambda: is_asleep(hub, "b1"), 20, "it sleeps")
    assert hub.http.post("/api/v1/pauses", {"all": True, "reason": "night"}).status == 201
    sent = send(hub, ids[1], "one", "b1")
    until(
        lambda: agent_row(hub, "b1")["reported_at"] > sent["message"]["created_at"], 20, "a report"
    )
    assert agent_row(hub, "b1")["pause"]["reason"] == "night"
    assert (agent.turns(), states(hub, "b1")) == ([], ["stored"])
    assert hub.http.post("/api/v1/pauses/resume", {"all": True}).status == 200
    agent.wait_for(1)
    agent.end()


def test_resumed_topic_hands_escalated_entries_out_again(hub, ids, tmp_path):
    send(hub, ids[1], "one", "b4")
    assert hub.http.post("/api/v1/pauses", {"topic_id": ids[1]}).status == 201
    agent = Agent(hub, tmp_path, "leave", name="b4")
    overdue = "SELECT 1 FROM x_entries WHERE name = 'b4' AND overdue_at IS NOT NULL"
    until(lambda: hub.rows(overdue), 30, "it is escalated")
    assert hub.http.post("/api/v1/pauses/resume", {"topic_id": ids[1]}).status == 200
    assert agent.wait_for(3)[2] == [3, False, ["one"]]
    agent.end()


def test_turn_reports_tokens_and_cost(hub, ids, tmp_path):
    assert hub.http.post("/api/v1/ceilings", {"name": "b2", "tokens": 300}).status == 201
    report = shlex.join([*command("agentlip"), "agent", "report", "--tokens", "120", "--cost", "1"])
    words = [*command("agentlip"), "agent", "run", "b2", "--ack", "--"]
    process = subprocess.Popen(
        [*words, "sh", "-c", f"{report}; {report}"], cwd=hub.workspace, env=environment(),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        for number in range(2):
            send(hub, ids[1], f"m{number}", "b2")
            until(lambda number=number: len(b2_turns(hub)) > number, 30, "the turn is reported")
        assert [(turn["tokens"], turn["cost"]) for turn in b2_turns(hub)] == [(240, 2.0)] * 2
        assert agent_row(hub, "b2")["pause"]["by"] == "appliance"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def b2_turns(hub):
    return hub.http.get("/api/v1/agents/b2/turns").body.get("turns", [])


def test_turn_that_takes_too_long_is_ended_with_its_descendants(hub, ids, tmp_path):
    send(hub, ids[1], "one", "a6")
    agent = Agent(hub, tmp_path, "leave", "--minutes", "0.01", name="a6", seconds=600)
    agent.wait_for(2)
    turns = hub.http.get("/api/v1/agents/a6/turns").body["turns"]
    assert turns[-1]["outcome"] == "late"
    agent.end()


def test_second_program_replaces_the_first(hub, ids, tmp_path):
    first = Agent(hub, tmp_path, "ack", name="a7")
    until(lambda: is_asleep(hub, "a7"), 20, "it sleeps")
    second = Agent(hub, tmp_path, "ack", name="a7")
    until(lambda: _replaced(hub, ids, first), 60, "the first ends")
    assert " runs this agent since " in first.process.communicate(timeout=30)[1].decode()
    assert f"replaces {first.process.pid}@" in second.end()


def test_second_program_begins_after_the_turn_of_the_first(hub, ids, tmp_path):
    send(hub, ids[1], "one", "b5")
    first = Agent(hub, tmp_path, "leave", name="b5", seconds=600)
    first.wait_for(1)
    second = Agent(hub, tmp_path, "ack", name="b5", seconds=0)
    until(lambda: len(second.turns()) == 2, 60, "the second begins")
    outcomes = [turn["outcome"] for turn in hub.http.get("/api/v1/agents/b5/turns").body["turns"]]
    assert outcomes[-1] == "stopped", "before the second began"
    assert f"{second.process.pid}@" in first.process.communicate(timeout=30)[1].decode()
    assert f"{first.process.pid}@" in second.end()


def test_program_after_a_killed_one_waits_and_names_it(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(turn_runner, "LEASE_SECONDS", 2)
    messages = []
    locate = partial(find_hub, hub.workspace)
    killed, second = (
        TurnRunner(HubClient(locate), "b6", ["true"], Limits(), SystemClock(), messages.append)
        for _ in range(2)
    )
    assert killed.begin()
    since = killed.report("working") and agent_row(hub, "b6")["state_since"]
    assert hub.http.post("/bus/v1/claims", {"task": "t-9", "agent": "b6"}).status == 201
    waiting = Agent(hub, tmp_path, "ack", name="b6")
    until(lambda: agent_row(hub, "b6")["state_since"] > since, 20, "a program waits")
    waiting.end()
    (claim,) = hub.http.get("/bus/v1/claims").body["claims"]
    release = {"task": "t-9", "agent": "b6", "fence": claim["fence"]}
    assert hub.http.post("/bus/v1/claims/release", release).status == 200
    since = agent_row(hub, "b6")["state_since"]
    assert second.begin()
    assert messages[0].startswith("replaces ")
    assert messages[0].endswith(f", working since {since}")
    assert agent_row(hub, "b6")["state"] == "asleep"
    with pytest.raises(Replaced, match=" runs this agent since "):
        killed.report("working")


def _replaced(hub, ids, first):
    send(hub, ids[1], "wake up", "a7")
    return first.process.poll() is not None


def test_sigterm_ends_the_turn_and_releases_claims(hub, ids, tmp_path):
    claimed = hub.http.post("/bus/v1/claims", {"task": "t-8", "agent": "a8"})
    assert claimed.status == 201, claimed
    send(hub, ids[1], "one", "a8")
    agent = Agent(hub, tmp_path, "leave", name="a8", seconds=600)
    agent.wait_for(1)
    assert "1 claims released" in agent.end()
    turns = hub.http.get("/api/v1/agents/a8/turns").body["turns"]
    assert [turn["outcome"] for turn in turns] == ["stopped"]
    assert hub.http.get("/bus/v1/claims").body["claims"] == []


def test_no_entry_is_dropped_through_kills_of_program_and_appliance(tmp_path):
    """Each entry is in at least one turn, and settled; a turn ends with a killed program."""
    chance, count = random.Random(7), 30
    with serve(tmp_path / "ws") as hub:
        (tmp_path / "ws").mkdir(exist_ok=True)
        _, topic_id = hub.channel_with_topic("general")
        agent = Agent(hub, tmp_path, "ack", seconds=0.05)
        for number in range(count):
            send(hub, topic_id, str(number))
            if chance.random() < 0.15:
                agent.process.kill()
                agent.process.communicate(timeout=10)
                agent.start()
            if chance.random() < 0.1:
                hub.kill()
                hub.start()
        try:
            until(lambda: states(hub) == ["acknowledged"] * count, 90, "all are settled")
        finally:
            agent.end()
        given = {text for _, _, texts in agent.turns() for text in texts}
        assert given == {str(number) for number in range(count)}
        assert os.path.exists(agent.file)
