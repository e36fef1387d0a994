"""The runner and the appliance are killed at random moments: no process is left behind, runs with
one key never overlap, and every run ends or is repeated."""

import random
import subprocess
import sys
import time

import pytest

from tests.http.jobs.test_runner import processes_with
from tests.support.database_files import read
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow

KILLS, JOBS = 16, 20
RUNNER = [sys.executable, "-m", "tests.support.job_runner"]
SCRIPT = "flock -n 9 || echo overlap >> overlaps; (setsid sleep 0.2; true) & sleep 0.1; exit {}"


def test_kills_leave_no_process_and_no_overlap(tmp_path):
    hub = ServedHub(tmp_path)
    counts = kill_at_random(hub)
    assert counts["succeeded"] > KILLS / 2


def kill_at_random(hub, image=None, socket=None):
    """Kill the runner and the appliance KILLS times under JOBS jobs; the states of all runs at the
    end. With the socket of an engine, every fifth job runs in a container of the image."""
    chance, folder = random.Random(20), hub.workspace / "jobs"
    for path in (folder, hub.workspace / "locks"):
        path.mkdir()
    for number in range(JOBS):
        is_contained = image is not None and number % 5 == 0
        head = f'image = "{image}"\nmounts = ["locks:/locks"]\n' if is_contained else ""
        key = f"k{number // 2}"  # two jobs share each key
        locks = "/locks" if is_contained else "locks"
        script = f"cd {locks}; exec 9> {key}; {SCRIPT.format(number % 3 // 2)}"
        overlap = ("skip", "queue", "replace")[number % 3]
        (folder / f"j{number}.toml").write_text(
            f'{head}command = ["bash", "-c", "{script}"]\n'
            f'interval_seconds = 1\nretries = 1\noverlap = "{overlap}"\n'
            f'concurrency_key = "{key}"\n[backoff]\ninitial_seconds = 0.1\n'
        )
    for kill in range(KILLS):
        # The whole appliance takes much longer to start.
        if kill % 8 == 0:
            kill_appliance(hub, chance.random())
        else:
            kill_runner(hub, chance.random() / 2, socket, once_contained=kill % 5 == 1)
        mark = f"AGENTLIP_ARTEFACTS={hub.workspace}/"  # containers have another one
        until(lambda mark=mark: processes_with(mark) == [], 60, "nothing is left")
    for path in folder.iterdir():
        path.unlink()
    hub.start()
    until(lambda: states(hub).keys() <= {"succeeded", "failed", "cancelled", "lost"}, 60, "all end")
    assert hub.stop() == 0
    assert states(hub, "attempts")["lost"] > 2, "attempts were interrupted"
    assert not (hub.workspace / "locks/overlaps").exists()
    return states(hub)


def kill_appliance(hub, seconds):
    hub.start()
    until_after(seconds)
    hub.kill()


def kill_runner(hub, seconds, socket, once_contained):
    """`once_contained`: not before another attempt is in a container, which takes longer."""
    command, before = [*RUNNER, hub.workspace, *([socket] if socket else [])], contained(hub)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as runner:
        assert runner.stdout.readline() == b"ready\n"
        if socket and once_contained:
            until(lambda: contained(hub) > before, 60, "an attempt in a container")
        until_after(seconds)
        runner.kill()


def until_after(seconds):
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end, 10, "a random time")


def states(hub, table="runs"):
    sql = f"SELECT state, count(*) FROM {table} GROUP BY state"
    return dict(read(hub.datadir.database("jobs"), sql))


def contained(hub, condition="1"):
    """The number of attempts in containers."""
    sql = f"SELECT count(*) FROM attempts WHERE limits = 'container' AND {condition}"
    return read(hub.datadir.database("jobs"), sql)[0][0]
