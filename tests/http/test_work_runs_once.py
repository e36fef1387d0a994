"""Claims of the bus, jobs and hooks of the inbox under kills and pauses: nothing is lost, and work
runs again only where a kill or an expired lease explains it."""

import os
import random
import signal
import subprocess
import sys
from time import monotonic

import pytest

from appliance.busfile.file import BusPaths, connect
from tests.contract.test_walls import ROOT
from tests.support.bus_agents import LEASE_MS
from tests.support.bus_spec_client import now
from tests.support.recorded_runs import Fault, ended, is_explained, runs, unexplained
from tests.support.servedhub import ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow

KINDS = ("ours", "http", "spec")
TASKS, AGENTS, RUNS, MESSAGES, FAULTS = 90, 6, 40, 60, 6


def wait(chance, seconds):
    moment = monotonic() + chance.random() * seconds
    until(lambda: monotonic() > moment, 10, "a moment")


def kill(hub):
    """Kill and start the appliance; the fault of all that it ran."""
    began = monotonic()
    hub.kill()
    killed = monotonic()
    hub.start()
    return Fault(None, began, killed)


def assert_runs_are_explained(file, ids, faults):
    assert ended(file) == set(ids)
    assert unexplained(file, lambda run: is_explained(run, faults)) == {}, faults


# -- claims ---------------------------------------------------------------------------------


class Agents:
    def __init__(self, folder, file, tasks):
        self.words = [sys.executable, "-m", "tests.support.bus_agents"]
        self.folder, self.file, self.tasks = str(folder), str(file), tasks
        self.processes = [self.start(number) for number in range(AGENTS)]

    def start(self, number):
        kind = KINDS[number % len(KINDS)]
        words = [*self.words, kind, self.folder, f"{kind}{number}", self.file, *self.tasks]
        return subprocess.Popen(words, cwd=ROOT)

    def suffer(self, chance):
        """Kill and replace one agent, or pause it beyond its lease."""
        number, began = chance.randrange(AGENTS), monotonic()
        process = self.processes[number]
        if chance.random() < 0.5:
            process.kill()
            process.wait(10)
            self.processes[number] = self.start(number)
        else:
            os.kill(process.pid, signal.SIGSTOP)
            until(lambda: monotonic() > began + 2 * LEASE_MS / 1000, 10, "its lease has expired")
            os.kill(process.pid, signal.SIGCONT)
        return Fault(process.pid, began, monotonic())

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait(10)


def test_claimed_task_runs_again_only_where_a_fault_explains_it(tmp_path):
    chance, faults, file = random.Random(3), [], tmp_path / "runs"
    tasks = [f"t{number}" for number in range(TASKS)]
    bus = connect(BusPaths(tmp_path))
    with serve(tmp_path) as hub:
        agents = Agents(tmp_path, file, tasks)
        try:
            for number in range(1, FAULTS + 1):
                until(
                    lambda number=number: len(ended(file)) >= TASKS * number // (FAULTS + 2),
                    60,
                    "the agents go on",
                )
                faults.append(agents.suffer(chance))
            faults.append(kill(hub))
            for process in agents.processes:
                assert process.wait(60) == 0
        finally:
            agents.end()
    # An agent that does not run for longer than its lease is slow, as one that is paused.
    slow = [
        Fault(run.pid, run.ended, run.ended)
        for each in runs(file).values()
        for run in each
        if run.ended and run.ended - run.began > LEASE_MS / 1000
    ]
    assert_runs_are_explained(file, tasks, faults + slow)
    # One that was killed before its release leaves a row, whose lease ends.
    valid = "SELECT count(*) FROM task_claims WHERE lease_until_ms > ?"
    until(lambda: bus.execute(valid, (now(),)).fetchone() == (0,), 10, "no claim is valid")


# -- jobs -----------------------------------------------------------------------------------

JOB = """
command = ["{python}", "-m", "tests.support.recorded_runs", "job", "{file}"]
environment = {{ PYTHONPATH = "{root}" }}
overlap = "queue"
retries = 10
[backoff]
initial_seconds = 0.1
"""


def test_job_runs_again_only_where_a_fault_explains_it(tmp_path):
    chance, faults, file = random.Random(4), [], tmp_path / "runs"
    hub = ServedHub(tmp_path)
    (tmp_path / "jobs").mkdir()
    for name in ("a", "b", "c"):
        text = JOB.format(python=sys.executable, file=file, root=ROOT)
        (tmp_path / f"jobs/{name}.toml").write_text(text)
    with hub.running():
        ids = set()
        for number in range(RUNS):
            if number % (RUNS // FAULTS) == RUNS // FAULTS - 1:
                wait(chance, 1)
                faults.append(kill(hub))
            path, key = f"/api/v1/jobs/{'abc'[number % 3]}/runs", {"Idempotency-Key": f"k{number}"}
            ids.add(hub.made(hub.http.post(path, {}, headers=key))["run"]["id"])
        until(lambda: ended(file) >= ids, 60, "all runs have ended")
    assert_runs_are_explained(file, ids, faults)


# -- hooks ----------------------------------------------------------------------------------

SETTINGS = """[hooks]
enabled = "on"
include_own_messages = true
[[hooks.commands]]
on = "on-message"
run = ["sh", "-c", "PYTHONPATH={root} {python} -m tests.support.recorded_runs hook {file}"]
"""


def test_hook_runs_once_and_is_lost_only_where_a_fault_explains_it(tmp_path):
    chance, faults, file = random.Random(5), [], tmp_path / "runs"
    settings = SETTINGS.format(python=sys.executable, file=file, root=ROOT)
    hub = ServedHub(tmp_path, "--no-limits", settings=settings)
    with hub.running():
        hub.made(hub.http.post("/broker/v1/meshes", {"slug": "lab"}))
        key = hub.http.get("/v1/identity").body["pubkey"]
        member = {"pubkey": key, "name": "here"}
        hub.made(hub.http.post("/broker/v1/meshes/lab/members", member))
        ids = [f"m{number}" for number in range(MESSAGES)]
        for number, id_ in enumerate(ids):
            text = f"{id_} {chance.choice([0, 0.05, 0.3])}"
            body = {"to": f"dm:{key}", "message": text, "mesh": "lab"}
            assert hub.http.post("/v1/send", body).status == 202
            if number % (MESSAGES // FAULTS) == MESSAGES // FAULTS - 1:
                wait(chance, 1)
                faults.append(kill(hub))
        until(lambda: len(outcomes(hub)) == MESSAGES, 60, "all messages have arrived")
        until(lambda: not {"waiting", "running"} & set(outcomes(hub)), 60, "all runs are over")
        lost = outcomes(hub).count("lost")
    assert unexplained(file, lambda _run: False) == {}, "a hook never runs twice"
    interrupted = set(ids) - ended(file)
    assert len(interrupted) <= lost, "what did not end is listed as lost"
    for id_ in interrupted & runs(file).keys():
        assert is_explained(runs(file)[id_][0], faults)


def outcomes(hub):
    """Empty until the appliance has found its mesh again."""
    body = hub.http.get("/v1/hooks/runs?mesh=lab&limit=100").body
    return [run["outcome"] for run in body.get("runs", ())]
