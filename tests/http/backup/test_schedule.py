"""Backups of a served appliance: the first one, those of administrators, and what is shown."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands import FIRST_BACKUP, agentlip
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow

SECONDS_MAX = 150  # a verification yields the CPU to other work of the machine
ON = {FIRST_BACKUP: "0.5"}
OFF = {"AGENTLIP_BACKUP__ENABLED": "false"}


def backups(hub: ServedHub):
    return hub.http.get("/api/v1/backups").body["backups"]


def verified(hub: ServedHub, count: int = 1):
    """The backups, when the newest of `count` is verified."""

    def done():
        rows = backups(hub)
        return len(rows) >= count and rows[0]["verification"] and rows

    return until(done, SECONDS_MAX, "the newest backup is verified")


def metric(hub: ServedHub, name: str) -> float:
    lines = hub.http.get("/metrics").raw.decode().splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith(f"agentlip_backup_{name} ")]
    return float(value)


def test_first_message_gets_a_verified_backup(tmp_path):
    with serve(tmp_path, **ON) as hub:
        _, topic = hub.channel_with_topic("general")
        hub.send(topic)
        (backup,) = verified(hub)
        assert backup["reason"] == "schedule"
        assert backup["verification"]["result"] == "good"
        assert backup["last_event_id"] == hub.head
        assert 0 < backup["pause_ms"] < 2000
        until(lambda: metric(hub, 'verification_result{result="good"}') == 1, 20)
        assert metric(hub, "readable") == 1
        details = hub.http.get(f"/api/v1/backups/{backup['name']}").body
        assert details["stores"]["hub"]["rows"]["messages"] == 1
        assert details["backup"]["name"] == backup["name"]
        doctor = agentlip("doctor", "--group", "backup", "--json", cwd=tmp_path).json
        serious = [
            finding["sentence"]
            for check in doctor["checks"]
            for finding in check["findings"]
            if finding["severity"] != "info" and "no such command" not in finding["sentence"]
        ]
        assert serious == []
        hub.kill()
        hub.start()
        until(lambda: metric(hub, "age_seconds") > 0, 20, "the loop has read the backups")
        assert [row["name"] for row in backups(hub)] == [backup["name"]]


def test_administrators_start_backups_which_are_verified(tmp_path):
    with serve(tmp_path, **OFF) as hub:
        assert "no backups are made on a schedule" in hub.log_text
        hub.channel("general")
        started = hub.http.post("/api/v1/backups")
        assert started.status == 202
        refused = hub.http.post("/api/v1/backups")
        assert (refused.status, refused.body["code"]) == (409, "BACKUP_RUNNING")
        (backup,) = verified(hub)
        assert (backup["reason"], backup["verification"]["result"]) == ("schedule", "good")
        for absent in ("20200101T000000Z-000000", "x"):
            assert hub.http.get(f"/api/v1/backups/{absent}").status == 404
        assert "Traceback" not in hub.log_text


def test_stop_ends_the_command_that_runs(tmp_path):
    with serve(tmp_path, **ON) as hub:
        hub.channel("general")
        until(lambda: backups(hub), SECONDS_MAX, "the backup is verified next")
        until(lambda: len(processes_of(tmp_path)) > 1, SECONDS_MAX, "the copy is served")
        hub.stop()
        until(lambda: processes_of(tmp_path) == [], 20, "no process is left")
        hub.start()
        verified(hub)
        assert len(backups(hub)) == 1


def processes_of(workspace: Path) -> list[str]:
    """The command lines of processes that name the workspace or run in it. The server does not: it
    was forked from a process of all tests."""
    lines = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with suppress(OSError):
                folder = (process / "cwd").readlink()
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if line and (folder.is_relative_to(workspace) or str(workspace) in line):
                    lines.append(line)
    return lines
