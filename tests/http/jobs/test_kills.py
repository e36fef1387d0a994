"""The runner and the appliance are killed at random moments: no process is left behind, runs with
one key never overlap, and every run ends or is repeated."""

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.http.jobs.test_runner import processes_with
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow

KILLS, JOBS = 50, 20
RUNNER = [sys.executable, "-m", "tests.support.job_runner"]
SCRIPT = "flock -n 9 || echo overlap >> overlaps; (setsid sleep 0.2; true) & sleep 0.1; exit {}"


def test_kills_leave_no_process_and_no_overlap(tmp_path):
    chance, hub = random.Random(20), ServedHub(tmp_path)
    (tmp_path / "jobs").mkdir()
    for number in range(JOBS):
        key = f"k{number // 2}"  # two jobs share each key
        script = f"exec 9> {key}.lock; {SCRIPT.format(number % 3 // 2)}"
        overlap = ("skip", "queue", "replace")[number % 3]
        (tmp_path / "jobs" / f"j{number}.toml").write_text(
            f'command = ["bash", "-c", "{script}"]\ninterval_seconds = 1\nretries = 1\n'
            f'overlap = "{overlap}"\nconcurrency_key = "{key}"\n[backoff]\ninitial_seconds = 0.1\n'
        )
    for kill in range(KILLS):
        # The whole appliance takes much longer to start.
        (kill_appliance if kill % 10 == 0 else kill_runner)(hub, chance.random())
        until(
            lambda: processes_with(f"AGENTLIP_ARTEFACTS={tmp_path}/") == [], 20, "nothing is left"
        )
    for number in range(JOBS):
        (tmp_path / "jobs" / f"j{number}.toml").unlink()
    hub.start()
    until(lambda: states(hub).keys() <= {"succeeded", "failed", "cancelled", "lost"}, 60, "all end")
    assert hub.stop() == 0
    counts = states(hub)
    assert counts["succeeded"] > KILLS / 2
    assert states(hub, "attempts")["lost"] > 5, "attempts were interrupted"
    assert not (tmp_path / "overlaps").exists()


def kill_appliance(hub, seconds):
    hub.start()
    until_after(seconds)
    hub.kill()


def kill_runner(hub, seconds):
    with subprocess.Popen([*RUNNER, hub.workspace], stdout=subprocess.PIPE) as runner:
        assert runner.stdout.readline() == b"ready\n"
        until_after(seconds / 2)
        runner.kill()


def until_after(seconds):
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end, 10, "a random time")


def states(hub, table="runs"):
    uri = hub.datadir.database("jobs").as_uri() + "?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        return dict(connection.execute(f"SELECT state, count(*) FROM {table} GROUP BY state"))
