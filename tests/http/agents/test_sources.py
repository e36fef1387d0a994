"""`agentlip agent run` wakes for courier envelopes and for messages on the worker bus."""

import random
import signal

import pytest

from appliance.sdk.courier import envelope
from tests.support.servedhub import serve
from tests.support.until import until
from tests.support.woken_agents import Agent, agent_row, is_asleep, send, states

pytestmark = pytest.mark.slow
DURABLE = '[[courier.streams]]\npattern = "work/*"\ndurable = true\n'


def enqueue(hub, stream, *ids):
    for id_ in ids:
        body = {"to": stream, "envelope": envelope("job", {"id": id_}, id=id_)}
        assert hub.http.post("/v1/enqueue", body).status == 200


def depth(hub, stream):
    """Return the counts `ready`, `inflight` and `dead`."""
    stats = hub.http.get(f"/v1/stats?stream={stream}").body
    return [stats.get(name, 0) for name in ("ready", "inflight", "dead")]


def publish(hub, type_, to="ada"):
    body = {"from_agent": "boss", "type": type_, "to_agent": to, "payload": {}}
    assert hub.http.post("/bus/v1/messages", body).status == 201


def cursor_messages(hub, name):
    page = hub.http.get(f"/bus/v1/messages?agent={name}").body
    return [row["type"] for row in page["messages"]]


def test_envelope_starts_a_turn_whose_success_acks_it(hub, tmp_path):
    agent = Agent(hub, tmp_path, "leave", "--stream", "work/c1", name="c1")
    enqueue(hub, "work/c1", "e1", "e2")
    assert agent.wait_for(2) == [[1, False, ["e1"]], [2, False, ["e2"]]]
    until(lambda: depth(hub, "work/c1") == [0, 0, 0], 20, "both are acked")
    assert "c1 stopped" in agent.end()
    turns = hub.http.get("/api/v1/agents/c1/turns").body["turns"]
    assert [(turn["outcome"], turn["entries"]) for turn in turns] == [("done", [])] * 2


def test_envelope_comes_again_after_a_turn_that_fails(hub, tmp_path):
    agent = Agent(hub, tmp_path, "fail", "--stream", "work/c2", name="c2")
    enqueue(hub, "work/c2", "e1")
    assert [texts for _, _, texts in agent.wait_for(2)] == [["e1"], ["e1"]]
    agent.end()
    until(lambda: depth(hub, "work/c2")[1] == 0, 20, "the lease is released")


def test_paused_agent_leaves_envelopes_to_others(hub, tmp_path):
    agent = Agent(hub, tmp_path, "leave", "--stream", "work/c3", name="c3")
    until(lambda: is_asleep(hub, "c3"), 20, "it sleeps")
    assert hub.http.post("/api/v1/agents/c3/pause", {"reason": "freeze"}).status == 200
    enqueue(hub, "work/c3", "e1")
    paused = agent_row(hub, "c3")["reported_at"]
    until(lambda: agent_row(hub, "c3")["reported_at"] > paused, 20, "a report")
    assert agent.turns() == []
    until(lambda: depth(hub, "work/c3") == [1, 0, 0], 20, "it is not leased")
    assert hub.http.post("/api/v1/agents/c3/resume", {}).status == 200
    assert agent.wait_for(1) == [[1, False, ["e1"]]]
    agent.end()


def test_bus_message_starts_a_turn_with_broadcasts_before_it(hub, tmp_path):
    publish(hub, "note_to_all", None)
    agent = Agent(hub, tmp_path, "leave", "--bus", name="c4")
    until(lambda: is_asleep(hub, "c4"), 20, "it sleeps")
    publish(hub, "task_assign_c4", "c4")
    assert agent.wait_for(1) == [[1, False, ["note_to_all", "task_assign_c4"]]]
    until(lambda: cursor_messages(hub, "c4") == [], 20, "they are acked")
    agent.end()


def test_bus_messages_come_again_after_a_turn_that_fails(hub, tmp_path):
    publish(hub, "task_assign_c5", "c5")
    agent = Agent(hub, tmp_path, "fail", "--bus", name="c5")
    turns = agent.wait_for(2)
    assert turns[0][2] == turns[1][2]
    assert "task_assign_c5" in cursor_messages(hub, "c5")
    agent.end()


def test_work_from_all_sources_runs_one_turn_at_a_time(hub, ids, tmp_path):
    agent = Agent(hub, tmp_path, "ack", "--stream", "work/c6", "--bus", name="c6", seconds=0.4)
    enqueue(hub, "work/c6", "e1")
    publish(hub, "task_assign_c6", "c6")
    send(hub, ids[1], "one", "c6")
    given = {text for _, _, texts in agent.wait_for(3) for text in texts}
    assert {"e1", "task_assign_c6", "one"} <= given
    until(lambda: is_asleep(hub, "c6"), 20, "it sleeps")
    agent.end()
    turns = hub.http.get("/api/v1/agents/c6/turns").body["turns"]
    assert all(turn["seconds"] >= 0.4 for turn in turns)
    starts = sorted(turn["began_at"] for turn in turns)
    assert len(set(starts)) == len(starts) == 3


def test_forbidden_stream_ends_the_program_with_its_error(tmp_path):
    (tmp_path / "other").write_text("k" * 64)
    settings = (
        f'[[courier.tokens]]\nname = "o"\ntoken_file = "{tmp_path}/other"\nscopes = ["peek"]\n'
    )
    with serve(tmp_path / "ws", settings=settings) as hub:
        body = {"name": "c7", "scopes": ["hub:read", "hub:post"], "senders": ["c7"]}
        token = hub.http.post("/api/v1/tokens", body).body["secret"]
        agent = Agent(hub, tmp_path, "ack", "--stream", "work/c7", name="c7", token=token)
        error = agent.process.communicate(timeout=30)[1].decode()
        assert agent.process.returncode not in (0, -15)
        assert "lacks the scope" in error
        assert agent_row(hub, "c7")["state"] == "stopped"


def test_no_envelope_is_dropped_through_kills(tmp_path):
    """Each envelope is in at least one turn, and the stream is empty at the end."""
    chance, count = random.Random(5), 25
    with serve(tmp_path / "ws", settings=DURABLE) as hub:
        agent = Agent(hub, tmp_path, "leave", "--stream", "work/c8", seconds=0.05)
        for number in range(count):
            enqueue(hub, "work/c8", f"e{number}")
            if chance.random() < 0.2:
                agent.end(signal.SIGKILL)
                agent.start()
            if chance.random() < 0.1:
                hub.kill()
                hub.start()
        try:
            given = {f"e{number}" for number in range(count)}
            until(lambda: {t for turn in agent.turns() for t in turn[2]} == given, 90, "all ran")
            until(lambda: depth(hub, "work/c8") == [0, 0, 0], 30, "all are acked")
        finally:
            agent.end()
        assert states(hub) == []
