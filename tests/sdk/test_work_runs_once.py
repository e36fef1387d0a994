"""Workers of all kinds under kills, pauses and broken networks: nothing is lost, and a job runs
again only where a kill, an expired lease or a broken connection explains it."""

import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from time import monotonic

import pytest

from tests.contract.test_walls import ROOT
from tests.support.commands import environment
from tests.support.courier import envelope, stats
from tests.support.network_link import NetworkLink
from tests.support.recorded_runs import Fault, ended, is_explained, unexplained
from tests.support.until import until

pytestmark = pytest.mark.slow

KINDS = ("handler", "loop", "asyncio", "plain", "command")
AGENTLIP = "from appliance.cli import agentlip; agentlip()"
JOBS, FAULTS = 150, 6
SEEN_SECONDS = 2.0  # until a worker sees that its connection broke


class Workers:
    """Worker processes, what they ran, and the faults that they suffered."""

    def __init__(self, hub, link, stream, folder, rng):
        self.hub, self.link, self.stream, self.rng = hub, link, stream, rng
        self.file = folder / "runs"
        self.log = (folder / "log").open("wb")
        self.running = {}
        self.faults = []
        self.kinds = {}

    def start(self, kind):
        port = self.link.locate().port if self.rng.random() < 0.5 else None
        url = self.hub.url if port is None else f"http://127.0.0.1:{port}"
        script = [sys.executable, "-m", "tests.support.recorded_worker"]
        words = [*script, kind, url, self.hub.token, self.stream, str(self.file)]
        if kind == "command":
            record = [sys.executable, "-m", "tests.support.recorded_runs", "envelope"]
            options = ["--lease-ms", "2000", "--", *record, str(self.file)]
            agentlip = [sys.executable, "-c", AGENTLIP, "courier", "subscribe"]
            words = [*agentlip, self.stream, *options]
        variables = environment(
            PYTHONPATH=str(ROOT), AGENTLIP_URL=url, AGENTLIP_TOKEN=self.hub.token
        )
        process = subprocess.Popen(words, env=variables, stderr=self.log, cwd="/")
        self.running[process.pid] = (kind, process)
        self.kinds[process.pid] = f"{kind} {'over the link' if port else 'directly'}"

    def suffer(self):
        """One fault: kill and replace a worker, pause one beyond its lease, or cut the network."""
        pid, (kind, process) = self.rng.choice(sorted(self.running.items()))
        fault, began = self.rng.choice(["kill", "pause", "cut"]), monotonic()
        if fault == "cut":
            self.link.cut()
            self.faults += [Fault(pid, began, monotonic() + SEEN_SECONDS) for pid in self.running]
            return
        if fault == "kill":
            process.kill()
            process.wait(10)
            del self.running[pid]
            self.start(kind)
        else:
            expired = stats(self.hub, self.stream)["redelivered"]
            os.kill(pid, signal.SIGSTOP)
            until(
                lambda: (
                    stats(self.hub, self.stream)["redelivered"] > expired or monotonic() - began > 3
                ),
                10,
            )
            os.kill(pid, signal.SIGCONT)
        self.faults.append(Fault(pid, began, monotonic()))

    def revive(self):
        """Start plain workers again, which end with their connection."""
        for pid, (kind, process) in list(self.running.items()):
            if process.poll() is not None:
                del self.running[pid]
                self.start(kind)

    def end(self):
        for _, process in self.running.values():
            process.kill()
            process.wait(10)
        self.log.close()

    def is_explained(self, run):
        # A command whose worker was killed before it began has another parent.
        return run.pid not in self.kinds or is_explained(run, self.faults)


@pytest.mark.parametrize("seed", range(2))
def test_job_runs_again_only_where_a_fault_explains_it(hub, stream, tmp_path, seed):
    rng = random.Random(seed)
    ids = [f"e{number}" for number in range(JOBS)]
    jobs = [envelope(id_, payload={"seconds": rng.choice([0, 0, 0.01, 0.1, 0.4])}) for id_ in ids]
    with ExitStack() as stack:
        link = stack.enter_context(NetworkLink(hub, delay_seconds=rng.choice([0.0, 0.05])))
        hub.request("POST", "/v1/receive", {"stream": stream})  # creates it
        workers = Workers(hub, link, stream, tmp_path, rng)
        stack.callback(workers.end)
        for kind in KINDS:
            workers.start(kind)
        until(lambda: stats(hub, stream)["subscribers"] == len(KINDS), 20, "all are connected")
        hub.request("POST", "/v1/enqueue/batch", {"to": stream, "envelopes": jobs})

        def has_acked(count):
            workers.revive()
            return stats(hub, stream)["acked"] >= count

        for number in range(1, FAULTS + 1):
            until(partial(has_acked, JOBS * number // (FAULTS + 2)), 60, "the workers go on")
            workers.suffer()
        until(partial(has_acked, JOBS), 60, "all jobs are done")
    assert ended(workers.file) == set(ids)
    assert unexplained(workers.file, workers.is_explained) == {}, (workers.faults, workers.kinds)
    assert stats(hub, stream)["dead"] == 0
