"""`agentlip bus` without a server: output for people and machines, errors, exit codes."""

import json
import signal
import subprocess

import pytest

from appliance.busfile.worker.context import TaskContext, write_context
from appliance.cli import main
from tests.support.bus import BusFixture
from tests.support.commands import agentlip, command, environment


@pytest.fixture
def bus(tmp_path, monkeypatch, capsys):
    """Runs `agentlip bus …` in this process: code, output, errors."""
    BusFixture(tmp_path).connection.close()
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        ended = main(["bus", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert ended == code, (out, err)
        return json.loads(out) if "--json" in arguments and not code else out + err

    return run


def test_conversation_of_two_agents(bus):
    payload = '{"commit":"a1b2"}'
    sent = bus("send", "task_done", payload, "--agent", "ada", "--task", "t-7", "--id", "m1")
    assert sent == "sent m1 as 1\n"
    again = ("send", "task_done", payload, "--agent", "ada", "--task", "t-7", "--id", "m1")
    assert bus(*again) == "sent m1 as 1 (sent before)\n"
    bus("send", "note", '"hello"', "--to", "bob", "--agent", "ada", "--reply-to", "m1")
    (first, second) = bus("poll", "--agent", "bob", "--json")
    assert first == {
        "seq": 1, "id": "m1", "ts_ms": first["ts_ms"], "from_agent": "ada", "to_agent": None,
        "type": "task_done", "correlation_id": "t-7", "in_reply_to": None,
        "payload": {"commit": "a1b2"}, "payload_ref": None, "payload_error": None,
        "traceparent": None,
    }  # fmt: skip
    assert (second["payload"], second["in_reply_to"]) == ("hello", "m1")
    assert bus("ack", 1, "--agent", "bob") == "bob has acked 1\n"
    table = bus("poll", "--agent", "bob", "--ack").splitlines()
    assert table[0].split() == ["SEQ", "TIME", "FROM", "TO", "TYPE", "TASK", "PAYLOAD"]
    assert table[1].split()[2:] == ["ada", "bob", "note", "-", '"hello"']
    assert "no new messages" in bus("poll", "--agent", "bob", "--wait", "0.01")
    assert [row["seq"] for row in bus("tail", "--json")] == [1, 2]
    assert [row["seq"] for row in bus("tail", "--task", "t-7", "--json")] == [1]
    assert [row["seq"] for row in bus("tail", "--replies", second["id"], "--json")] == [1, 2]
    assert [row["seq"] for row in bus("search", "commit", "--json")] == [1]


def test_claims_say_who_has_them_and_how_to_go_on(bus):
    first = bus("claim", "t-7", "--agent", "ada", "--json")
    assert (first["claimed_by"], first["fence"]) == ("ada", 1)
    refused = bus("claim", "t-7", "--agent", "bob", code=2)
    assert "Error: ada has t-7 for 0 s; its lease ends in 60 s" in refused
    assert "agentlip bus send release_request --to ada --task t-7" in refused
    assert "agentlip bus renew t-7" in bus("claim", "t-7", "--agent", "ada", code=2)
    assert bus("renew", "t-7", "--agent", "ada", "--fence", 1).endswith("fence 1\n")
    assert "ada has t-7, with fence 1" in bus("renew", "t-7", "--agent", "bob", code=2)
    assert bus("release", "t-7", "--agent", "ada") == "released t-7\n"
    assert bus("release", "t-7", "--agent", "ada") == "t-7 was not claimed\n"
    short = bus("claim", "t-7", "--agent", "bob", "--lease", "0.05", "--json")
    waited = bus("claim", "t-7", "--agent", "ada", "--wait", "30", "--json")
    assert (short["fence"], waited["fence"]) == (2, 3)
    assert bus("claim", "gpu", "--slots", 2, "--agent", "ada").startswith("claimed slot:gpu:1")
    assert bus("claim", "path:src/**", "--agent", "ada").startswith("claimed path:src/**")
    rows = bus("claims", "--json")
    assert [row["task_id"] for row in rows] == ["path:src/**", "slot:gpu:1", "t-7"]


def test_folder_without_bus_is_an_error_with_the_command_that_helps(tmp_path, monkeypatch):
    done = agentlip("bus", "poll", "--agent", "ada", cwd=tmp_path)
    assert done.code == 1
    assert "no worker bus found" in done.err
    assert "agentlip init" in done.err
    assert agentlip("init", cwd=tmp_path).code == 0
    assert "there is no worker bus" in agentlip("bus", "tail", cwd=tmp_path).err  # only reads
    assert agentlip("bus", "claim", "t", cwd=tmp_path, AGENTLIP_AGENT="ada").code == 0
    done = agentlip("bus", "poll", cwd=tmp_path)
    assert (done.code, "add --agent NAME, or set AGENTLIP_AGENT" in done.err) == (1, True)


def test_agent_is_the_task_of_the_worktree_unless_it_is_named(tmp_path):
    BusFixture(tmp_path)
    worktree = tmp_path / "worktrees/t-7"
    worktree.mkdir(parents=True)
    write_context(worktree, TaskContext("t-7", str(tmp_path), "feat/t-7"))

    def holder(*words, **variables):
        options = {"cwd": worktree, "AGENTLIP_AGENT": "orchestrator", **variables}
        assert agentlip("bus", "claim", "x", *words, **options).code == 0
        (row,) = agentlip("bus", "claims", "--json", cwd=tmp_path).json
        assert agentlip("bus", "release", "x", "--agent", row["claimed_by"], **options).code == 0
        return row["claimed_by"]

    assert holder() == "t-7"
    assert holder("--agent", "ada") == "ada"
    assert holder(cwd=tmp_path) == "orchestrator"


def test_tail_follows_until_a_signal(tmp_path):
    bus = BusFixture(tmp_path)
    process = subprocess.Popen(
        command("agentlip", "bus", "tail", "--follow", "--json"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
    )
    for number in range(3):
        bus.send(payload=number)
        assert json.loads(process.stdout.readline())["payload"] == number
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == b""
    assert process.wait() == 0
