"""What is kept of reported runs: the latest of each job, up to a limit."""

import io

import msgspec
import pytest

from appliance.jobs import reported, wire
from appliance.jobs.reported import ReportedRuns
from appliance.kernel.log import Log
from appliance.kernel.store import Store
from appliance.kernel.writer import StoreSettings
from appliance.workspace.schema import migrate
from tests.support.clock import FakeClock


@pytest.fixture
def runs(tmp_path):
    clock, log = FakeClock(), Log(io.BytesIO())
    migrate(tmp_path / "jobs", "jobs", clock=clock, log=log)
    store = Store("jobs", tmp_path / "jobs", StoreSettings(), clock, log)
    yield lambda: ReportedRuns(store)
    store.close(5)


def run(job="ingest", minute=0, **more):
    fields = {
        "job": job, "started_at": f"2026-02-01T08:{minute:02d}:00Z", "seconds": 1.5,
        "finished_at": f"2026-02-01T08:{minute:02d}:09+01:00", "outcome": "ok", "exit_code": 0,
        "counts": {"rows": 7}, **more,
    }  # fmt: skip
    return msgspec.convert(fields, wire.JobRun)


@pytest.mark.parametrize(
    ("outcome", "succeeded_at"),
    [("failed", "2026-02-01T07:01:09.000Z"), ("nothing_new", "2026-02-01T07:05:09.000Z")],
)
def test_failed_run_keeps_the_time_of_the_last_success(runs, outcome, succeeded_at):
    kept = runs()
    kept.record(run(minute=1))
    assert kept.record(run(minute=5, outcome=outcome, exit_code=9)).succeeded_at == succeeded_at


def test_report_of_one_job_too_many_is_refused_and_changes_nothing(runs, monkeypatch):
    monkeypatch.setattr(reported, "JOBS_MAX", 2)
    kept = runs()
    kept.record(run("a"))
    kept.record(run("b"))
    with pytest.raises(wire.TooManyJobs):
        kept.record(run("c"))
    kept.record(run("b", 9))
    assert [each.job for each in runs().list_all().runs] == ["a", "b"]
