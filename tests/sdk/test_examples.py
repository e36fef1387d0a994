"""The programs in examples/, each as a process that finds the hub by AGENTLIP_URL."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from tests.contract.test_walls import ROOT, tracked
from tests.support.commands import environment
from tests.support.courier import envelope, stats
from tests.support.until import until

pytestmark = pytest.mark.slow
PAGE = ROOT / "docs/how-to/write-a-worker.md"


@pytest.fixture
def variables(hub, tmp_path):
    """Those of a program outside the workspace, with a token file."""
    (tmp_path / "token").write_text(hub.token)
    return environment(
        AGENTLIP_URL=hub.url, AGENTLIP_TOKEN_FILE=str(tmp_path / "token"), PYTHONPATH=str(ROOT)
    )


@pytest.fixture
def run(variables, tmp_path):
    def run(name, *arguments, code=0):
        command = [sys.executable, ROOT / "examples" / f"{name}.py", *map(str, arguments)]
        done = subprocess.run(
            command, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    return run


@pytest.fixture
def running(variables, tmp_path):
    """Runs an example until the end of the block, then ends it as systemd does."""

    @contextmanager
    def running(name, *arguments):
        command = [sys.executable, ROOT / "examples" / f"{name}.py", *map(str, arguments)]
        with (tmp_path / "out").open("w") as out:
            process = subprocess.Popen(command, env=variables, cwd=tmp_path, stdout=out)
            try:
                yield tmp_path / "out"
            finally:
                os.kill(process.pid, signal.SIGTERM)
                assert process.wait(30) == 0

    return running


@pytest.mark.parametrize("worker", ["worker", "async_worker"])
def test_worker_does_delayed_jobs(hub, run, running, worker):
    acked = stats(hub, "work/reminders")["acked"] if worker == "async_worker" else 0
    run("delayed_job", 0.2, "tea")
    with running(worker) as out:
        until(lambda: stats(hub, "work/reminders")["acked"] == acked + 1, 30, "it is done")
        until(lambda: out.read_text() == "remind: tea\n", 10, "it is printed")


def test_cron_producer_enqueues_once_a_minute(hub, run):
    began = time.time() // 60
    ids = {run("cron_producer") for _ in range(3)}
    assert stats(hub, "work/reports")["enqueued"] == len(ids) <= time.time() // 60 - began + 1


def test_payment_that_is_delivered_again_is_applied_once(hub, running, tmp_path):
    payment = {"payload": {"account": "jo", "cents": 5}}

    def pay(stream_id):
        body = {"to": "work/payments", "envelope": envelope(stream_id, **payment)}
        hub.request("POST", "/v1/enqueue", body)

    def balance():
        with sqlite3.connect(tmp_path / "bank") as database:
            return database.execute("SELECT cents FROM balance").fetchall()

    with sqlite3.connect(tmp_path / "bank") as database:  # the worker was killed before its ack
        database.execute("CREATE TABLE done (id TEXT PRIMARY KEY)")
        database.execute("INSERT INTO done VALUES ('p1')")
    pay("p1")
    pay("p2")
    with running("exactly_once", tmp_path / "bank"):
        until(lambda: stats(hub, "work/payments")["acked"] == 2, 30, "both are acked")
    assert balance() == [(5,)]


def test_request_gets_its_reply(run, running):
    with running("request_reply", "serve"):
        assert run("request_reply", "ask", 21) == "42\n"


def test_dead_letters_are_listed(hub, run):
    assert run("dead_letter_alert") == ""
    hub.request("POST", "/v1/enqueue", {"to": "dead/a", "envelope": envelope("d1")})
    taken = hub.request("POST", "/v1/receive", {"stream": "dead/a"})
    nack = {"receiver": taken["receiver"], "ids": ["d1"], "mode": "reject", "error": "no address"}
    hub.request("POST", "/v1/nack", nack)
    assert run("dead_letter_alert", code=1) == "dead/a d1 rejected no address\n"


def test_page_shows_every_example_as_it_is():
    page = PAGE.read_text(encoding="utf-8")
    shown = dict(re.findall(r"`(examples/\w+\.py)`:\n\n```python\n(.*?)```", page, re.DOTALL))
    written = {
        file.relative_to(ROOT).as_posix(): file.read_text() for file in tracked("examples/*.py")
    }
    assert shown == written
    assert all(len(text.splitlines()) < 40 for text in written.values())
