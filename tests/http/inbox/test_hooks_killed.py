"""Hooks of an appliance that is killed at any moment: no message's hook runs twice, and one that
did not run is explained by a kill."""

import random
import time

import pytest

from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow

KILLS, MESSAGES = 5, 12
SETTINGS = """[hooks]
enabled = "on"
include_own_messages = true
[[hooks.commands]]
on = "on-message"
run = ["sh", "-c", "read -r line; id=${line##*message-}; id=${id%%-end*}; {work}"]
"""
WORK = "echo start $id >> runs; sleep 0.05; echo end $id >> runs"


@pytest.fixture
def hub(tmp_path):
    hub = ServedHub(tmp_path, "--no-limits", settings=SETTINGS.replace("{work}", WORK))
    with hub.running():
        hub.made(hub.http.post("/broker/v1/meshes", {"slug": "lab"}))
        key = hub.http.get("/v1/identity").body["pubkey"]
        member = {"pubkey": key, "name": "here"}
        hub.made(hub.http.post("/broker/v1/meshes/lab/members", member))
        yield hub


def send(hub, number):
    key = hub.http.get("/v1/identity").body["pubkey"]
    body = {"to": f"dm:{key}", "message": f"message-{number}-end", "mesh": "lab"}
    assert hub.http.post("/v1/send", body).status == 202


def runs(hub):
    file = hub.workspace / "runs"
    lines = file.read_text().splitlines() if file.exists() else []
    return [tuple(line.split()) for line in lines]


def bodies(hub):
    listed = hub.http.get("/v1/inbox?mesh=lab&since=0&limit=100").body["messages"]
    return [message["body"].split("-")[1] for message in listed]


def test_killed_appliance_runs_no_hook_twice(hub):
    chance, number = random.Random(7), 0
    send(hub, "first")
    until(lambda: ("end", "first") in runs(hub), 30, "hooks run")
    for _ in range(KILLS):
        for _ in range(MESSAGES):
            number += 1
            send(hub, number)
        moment = time.monotonic() + chance.random()
        until(lambda moment=moment: time.monotonic() > moment, 10, "a moment")
        hub.kill()
        hub.start()
    send(hub, "last")
    until(lambda: ("end", "last") in runs(hub), 30, "the last one has run")
    until(lambda: len(bodies(hub)) == number + 2, 30, "all messages are stored")
    started = [id_ for event, id_ in runs(hub) if event == "start"]
    assert len(started) == len(set(started)), "at most once"
    assert set(started) <= set(bodies(hub))
    lost = [
        run
        for run in hub.http.get("/v1/hooks/runs?mesh=lab&limit=100").body["runs"]
        if run["outcome"] == "lost"
    ]
    ended = {id_ for event, id_ in runs(hub) if event == "end"}
    assert len(set(started) - ended) <= len(lost)
    assert len(ended) > KILLS, "a kill loses only the runs that wait"
