"""Reported runs over HTTP, on the command line and in the metrics, across a restart."""

import itertools
import json
from datetime import UTC, datetime
from urllib.request import Request, urlopen

import pytest

from spark import last_run
from spark.last_run import RunRecord
from tests.support.commands import agentlip
from tests.support.servedhub import ServedHub
from tests.support.until import until

pytestmark = pytest.mark.slow

PATH = "/api/v1/jobs/runs"
REPORT = {
    "job": "ingest", "started_at": "2026-02-01T08:00:00Z", "finished_at": "2026-02-01T08:01:00Z",
    "seconds": 60.0, "outcome": "ok", "exit_code": 0, "counts": {"rows": 12},
}  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    served = ServedHub(tmp_path_factory.mktemp("jobs"))
    served.constants = {"appliance.jobs.reported.JOBS_MAX": 3}
    served.start()
    yield served
    served.kill()


_numbers = itertools.count()


def secret(hub, *scopes):
    body = {"name": f"token-{next(_numbers)}", "scopes": [*scopes]}
    return hub.made(hub.http.post("/api/v1/tokens", body))["secret"]


def url(hub):
    return f"http://127.0.0.1:{hub.port}"


def exposed(hub):
    headers = {"Authorization": f"Bearer {hub.token}"}
    with urlopen(Request(f"{url(hub)}/metrics", headers=headers)) as reply:
        return reply.read().decode()


def record(**more):
    at = datetime(2026, 2, 1, 8, tzinfo=UTC)
    fields = {"job": "audit", "started_at": at, "finished_at": at, "seconds": 1.0,
              "outcome": "failed", "exit_code": 23, "counts": {}, "error": "differs"}  # fmt: skip
    return RunRecord(**fields | more)


def test_removed_job_is_not_listed_or_exposed_any_more(hub):
    hub.made(hub.http.post(PATH, {**REPORT, "job": "former", "outcome": "failed"}))
    until(lambda: '"former"' in exposed(hub), 30, "its metrics")
    done = agentlip("jobs", "remove", "former", cwd=hub.workspace)
    assert (done.code, done.out) == (0, "removed former\n")
    until(lambda: '"former"' not in exposed(hub), 30, "its metrics are gone")
    assert "former" not in [run["job"] for run in hub.http.get(PATH).body["runs"]]
    done = agentlip("jobs", "remove", "former", cwd=hub.workspace)
    assert (done.code, "job not found" in done.err) == (1, True)


def test_run_is_listed_exposed_and_kept_across_a_restart(hub):
    answer = hub.http.post(PATH, REPORT)
    assert (answer.status, answer.body["succeeded_at"]) == (201, "2026-02-01T08:01:00.000Z")
    assert last_run.send(url(hub), secret(hub, "jobs:report"), record()) is None
    for _ in range(2):
        listed = hub.http.get(PATH).body["runs"]
        assert [row["job"] for row in listed] == ["audit", "ingest"]
        jobs = json.loads(agentlip("jobs", "list", "--json", cwd=hub.workspace).out)
        assert [job["reported"] for job in jobs if job["source"] == "reported"] == listed
        shown = agentlip("jobs", "list", cwd=hub.workspace).out
        assert "ingest" in shown
        assert "differs" in shown
        until(lambda: 'job_name="ingest"' in exposed(hub), 30, "the metrics")
        metrics = exposed(hub)
        assert 'agentlip_jobs_last_run_rows{job_name="ingest"} 12.0' in metrics
        assert 'agentlip_jobs_last_success_timestamp_seconds{job_name="audit"} 0.0' in metrics
        assert 'agentlip_jobs_last_run_failed{job_name="audit"} 1.0' in metrics
        assert hub.stop() == 0
        hub.start()
