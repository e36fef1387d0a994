"""The log of a served appliance: rotation without a lost line, and its level while it runs."""

import json
import subprocess
from threading import Thread

import pytest

from appliance.operations.log_files import FORMER_MAX, former_log_file, log_file
from tests.support.commands import agentlip, command, environment
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow
PATH = "/api/v1/log/level"
REQUESTS = 1_200
CONSTANTS = {
    "appliance.operations.logs.LogRotation.interval_seconds": 0.05,
    "appliance.operations.logs.MINUTE_MS": 200,
}


@pytest.fixture
def hub(tmp_path):
    settings = "[log]\naccess = 'all'\nrotate_bytes = 65536\n"
    hub = ServedHub(tmp_path, "--no-limits", settings=settings)
    hub.constants = CONSTANTS
    hub.log = log_file(hub.datadir)
    with hub.running():
        yield hub


def files_of(hub):
    former = [former_log_file(hub.log, number) for number in range(FORMER_MAX, 0, -1)]
    return [path for path in (*former, hub.log) if path.exists()]


def ids_in(lines):
    ids = [json.loads(line).get("request_id", "") for line in lines]
    return [request_id for request_id in ids if request_id.startswith("test-")]


def test_rotation_loses_no_line_in_the_files_and_for_followers(hub):
    arguments = command("agentlipd", "logs", "-f", "--json", "--lines", "0")
    follower = subprocess.Popen(
        arguments, cwd=hub.workspace, env=environment(), stdout=subprocess.PIPE
    )
    followed = []
    thread = Thread(target=lambda: followed.extend(follower.stdout), daemon=True)
    thread.start()
    try:
        until(lambda: hub.http.get("/health") and followed, 60, "it follows", 0.2)
        sent = [f"test-{number}" for number in range(REQUESTS)]
        for request_id in sent:
            assert hub.http.get("/health", headers={"X-Request-ID": request_id}).status == 200
        until(lambda: len(ids_in(followed)) == len(sent), 60, "all lines were followed", 0.2)
    finally:
        follower.terminate()
        follower.wait(30)
    files = files_of(hub)
    assert 3 <= len(files) <= FORMER_MAX  # none was deleted
    assert ids_in(b"".join(path.read_bytes() for path in files).splitlines()) == sent
    assert ids_in(followed) == sent
    assert max(path.stat().st_size for path in files) < 10 * 65_536
    assert hub.log.stat().st_mode & 0o077 == 0


def test_the_level_changes_without_a_restart_and_for_some_time(hub):
    assert hub.http.post(PATH, {"level": "loud"}).status == 400
    assert hub.http.get(PATH).body == {"level": "info", "configured": "info", "until": None}
    hub.http.post(PATH, {"level": "error", "minutes": 1440})
    hub.http.get("/health", headers={"X-Request-ID": "test-hidden"})
    shown = agentlip("log", "level", "--json", cwd=hub.workspace).json
    assert (shown["level"], shown["configured"]) == ("error", "info")
    assert agentlip("log", "reset", cwd=hub.workspace).out == "info\n"
    hub.http.get("/health", headers={"X-Request-ID": "test-shown"})
    until(lambda: "test-shown" in hub.log_text, 60, "it is logged")
    assert "test-hidden" not in hub.log_text
    assert agentlip("log", "level", "debug", "--minutes", 1, cwd=hub.workspace).code == 0
    until(lambda: hub.http.get(PATH).body["level"] == "info", 60, "the time is over")
