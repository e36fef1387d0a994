"""Repairs beside a running appliance, which applies the steps itself."""

import os
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.doctor import live
from tests.doctor.repairs import read_elsewhere
from tests.support.commands import agentlip, command, environment, run
from tests.support.database_files import execute
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until


def fill(hub: ServedHub, count: int = 30) -> str:
    _, topic = hub.channel_with_topic("general")
    hub.send_many(topic, [f"message {number} größe 東京" for number in range(count)])
    until(lambda: live.is_indexed(hub), 60, "all messages are indexed")
    return topic


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serve(tmp_path_factory.mktemp("hub")) as hub:
        fill(hub)
        yield hub


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServedHub]:
    """A hub that the test may kill."""
    hub = ServedHub(tmp_path / "workspace", "--no-limits")
    with hub.running(ending=signal.SIGKILL):
        fill(hub)
        yield hub


@pytest.mark.slow
def test_breakage_is_repaired_while_the_appliance_runs(hub: ServedHub) -> None:
    check = "hub.search"
    assert live.findings(hub, "--all") == []
    before, pid = live.data(hub), hub.pid
    execute(hub.datadir.database("hub"), "DROP TABLE x_fts")
    assert live.findings(hub, "--all") == [check]
    result = live.repair(hub, "--run", check)
    assert result.code == 0, result
    assert "[done]" in result.out
    assert "refused" not in result.out
    assert live.findings(hub, "--all") == []
    assert live.data(hub) == before
    assert hub.pid == pid
    answer = hub.http.get("/api/v1/search?q=message&limit=100").body
    assert len(answer["messages"]) == 30
    assert hub.http.get("/-/ready").status == 200


@pytest.mark.slow
def test_step_that_needs_a_copy_needs_the_commands_of_its_plan(own: ServedHub) -> None:
    check = "store.integrity"
    live.skip_index(own)
    refused = live.repair(own, "--run", check)
    assert "[refused]" in refused.out
    assert live.findings(own, "--all") == [check]
    shown = agentlip("doctor", "repair", "--run", check, "--json", cwd=own.workspace)
    (stop,) = shown.json["plan"]["needs_stop"]
    assert f"     -> {stop['command']}" in refused.out
    try:
        for each in stop["command"].split("; "):
            done = run(*shlex.split(each), cwd=own.workspace)
            assert done.code == 0, done
        assert live.findings(own, "--all") == []
    finally:
        run("agentlipd", "down", cwd=own.workspace)


@pytest.mark.slow
def test_no_send_is_lost_while_steps_are_applied(own: ServedHub) -> None:
    """Sends wait for a step, or are refused with 503; each accepted one is stored once."""
    topic = own.rows("SELECT id FROM topics")[0][0]
    stop = Event()

    def send(sender: int) -> Counter[int]:
        client, statuses = own.connect(), Counter[int]()
        number = 0
        while not stop.is_set():
            body = {"topic_id": topic, "sender": "load", "content_raw": f"load {sender} {number}"}
            answer = client.post("/api/v1/messages", body)
            assert answer.status == 201 or answer.body["code"] in ("SERVICE_UNAVAILABLE",), answer
            statuses[answer.status] += 1
            number += 1
        return statuses

    with ThreadPoolExecutor(4) as threads:
        senders = [threads.submit(send, sender) for sender in range(4)]
        try:
            for what in ("fts", "indexes", "event-scopes", "fts"):
                result = live.repair(own, "rebuild", what)
                assert result.code == 0, result
        finally:
            stop.set()
        accepted = sum((sender.result() for sender in senders), Counter())
    assert accepted[201] > 20
    rows = own.rows("SELECT content_raw FROM messages WHERE sender = 'load'")
    assert len(rows) == len(set(rows)) == accepted[201]
    created = "SELECT count(*) FROM events WHERE name = 'message.created'"
    assert own.rows(created)[0][0] == 30 + accepted[201]
    own.send(topic, "the last")
    until(lambda: live.is_indexed(own), 60, "all messages are indexed")
    assert live.findings(own, "--all") == []


@pytest.mark.slow
def test_appliance_killed_during_a_step_leaves_the_store_as_before(own: ServedHub) -> None:
    execute(own.datadir.database("hub"), "DROP INDEX idx_messages_topic")
    before = live.data(own)
    (writer,) = (int(pid) for pid in children_of(own.pid) if is_writer(pid))
    os.kill(writer, signal.SIGSTOP)
    with subprocess.Popen(
        command("agentlip", "doctor", "repair", "--run", "store.objects", "--yes"),
        cwd=own.workspace,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as repairing:
        until(lambda: is_applying(own), what="the step waits for the writer")
        own.kill()
        output, _ = repairing.communicate(timeout=60)
    assert "isn't known whether the step was applied" in output
    assert live.data(own) == before
    own.start()
    result = live.repair(own)
    assert result.code == 0, result
    assert live.findings(own, "--all") == []
    assert live.data(own) == before


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_writer(pid: str) -> bool:
    return b"appliance.kernel.writerchild" in Path(f"/proc/{pid}/cmdline").read_bytes()


def is_applying(hub: ServedHub) -> bool:
    facts = hub.http.get("/-/ready").body["facts"]
    return bool(facts["doctor.steps_running"] and facts["hub.queue_jobs"])


@pytest.mark.slow
def test_appliance_of_another_workspace_with_the_same_database_gets_no_step(
    own: ServedHub, tmp_path: Path
) -> None:
    """A copy has the `server.json` and the database id of the original."""
    copy = tmp_path / "copy"
    agentlip("init", "--workspace", str(copy), cwd=tmp_path)
    for name in ("server.json", "token"):
        (copy / ".agentlip" / name).write_bytes((own.datadir.dir / name).read_bytes())
    database = copy / ".agentlip" / "db.sqlite3"
    execute(own.datadir.database("hub"), "VACUUM INTO ?", str(tmp_path / "taken"))
    (tmp_path / "taken").replace(database)
    with read_elsewhere(database):
        result = agentlip("doctor", "repair", "rebuild", "indexes", "--yes", cwd=copy)
    assert "[refused]" in result.out
    assert "does not hold this workspace" in result.out
    assert "derived data rebuilt" not in own.log_text
