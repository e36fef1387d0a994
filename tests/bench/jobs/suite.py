"""Figures of the job runner: `python -m tests.bench.jobs.suite`. Prints JSON.

`cpu` has shares of a core, for the appliance, the processes around the jobs, and the same commands
started by a plain loop in the same minute.
`trigger_ms`: from a message to its process.
"""

import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.servedhub import ServedHub
from tests.support.until import until

SECONDS, PAUSE, TRIGGERS = 30, 0.3, 40  # 200 jobs a minute
COUNT = int(SECONDS / PAUSE)
JOBS = {
    "short": 'command = ["true"]\noverlap = "queue"',
    "late": 'command = ["date", "+%s.%N"]\noverlap = "queue"\n'
    '[[on]]\nsource = "hub"\nevent = "message.created"\ndebounce_seconds = 0',
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        hub = ServedHub(Path(folder), "--no-limits")
        (hub.workspace / "jobs").mkdir()
        for name, text in JOBS.items():
            (hub.workspace / "jobs" / f"{name}.toml").write_text(text)
        with hub.running():
            figures = {"trigger_ms": measure_triggers(hub), "cpu": measure_jobs(hub)}
        print(json.dumps(figures))


def measure_triggers(hub: ServedHub) -> dict[str, float]:
    _, topic = hub.channel_with_topic("bench")
    path, late = "/api/v1/jobs/late/history", []
    until(lambda: hub.send(topic) and hub.http.get(path).body["runs"], 30, "it has begun")
    until(lambda: all(run["ended_at"] for run in hub.http.get(path).body["runs"]), 30, "all end")
    for _ in range(TRIGGERS):
        last = hub.http.get(path).body["runs"][0]["id"]
        sent = time.time()
        hub.send(topic)
        until(lambda last=last: hub.http.get(path).body["runs"][0]["id"] > last, 30, "a run")
        run_id = hub.http.get(path).body["runs"][0]["id"]
        run = hub.http.get(f"/api/v1/jobs/runs/{run_id}?wait=30").body["run"]
        late.append(1000 * (float(run["attempts"][0]["tail"]) - sent))
    late.sort()
    return {"p50": late[TRIGGERS // 2], "p95": late[TRIGGERS * 95 // 100]}


def measure_jobs(hub: ServedHub) -> dict[str, float]:
    def request() -> None:
        assert hub.http.post("/api/v1/jobs/short/runs", {}).status == 201

    own, around = measure_cpu(hub.pid, request)
    plain = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(COUNT):
        subprocess.run(["true"], check=True)
    more = resource.getrusage(resource.RUSAGE_CHILDREN)
    floor = more.ru_utime + more.ru_stime - plain.ru_utime - plain.ru_stime
    return {"appliance": own, "around": around, "plain": floor / SECONDS}


def measure_cpu(pid: int, request: Callable[[], object]) -> tuple[float, float]:
    """Shares of a core, of a process and of those that it has started, while jobs are requested."""
    before, began = cpu_seconds(pid), time.monotonic()
    for number in range(COUNT):
        request()
        time.sleep(max(0.0, began + number * PAUSE - time.monotonic()))
    after, passed = cpu_seconds(pid), time.monotonic() - began
    own, around = [(b - a) / passed for a, b in zip(before, after, strict=True)]
    return own, around


def cpu_seconds(pid: int) -> tuple[float, float]:
    """CPU time of the process, and of those that it has started, ended or not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11:15]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        return 0.0, 0.0
    user, system, users, systems = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields)
    return user + system, users + systems + sum(sum(cpu_seconds(int(each))) for each in children)


if __name__ == "__main__":
    main()
