"""What is kept of reported runs: the latest of each job, in a file, up to a limit."""

import io

import msgspec
import pytest

from appliance.jobs import service, wire
from appliance.jobs.service import FILE, JobRuns
from appliance.kernel.errors import Invalid
from appliance.kernel.log import Log
from appliance.workspace.datadir import DataDir


@pytest.fixture
def datadir(tmp_path):
    made = DataDir(tmp_path)
    made.dir.mkdir()
    return made


def runs(datadir):
    return JobRuns(datadir, Log(io.BytesIO()))


def run(job="ingest", minute=0, **more):
    fields = {
        "job": job, "started_at": f"2026-02-01T08:{minute:02d}:00Z", "seconds": 1.5,
        "finished_at": f"2026-02-01T08:{minute:02d}:09+01:00", "outcome": "ok", "exit_code": 0,
        "counts": {"rows": 7}, **more,
    }  # fmt: skip
    return msgspec.convert(fields, wire.JobRun)


def test_latest_run_of_each_job_survives_a_restart(datadir):
    before = runs(datadir)
    before.record(run("ingest", 1))
    before.record(run("audit", 2))
    before.record(run("ingest", 3))
    assert [each.job for each in before.list_all().runs] == ["audit", "ingest"]
    after = runs(datadir).list_all()
    assert after == before.list_all()
    assert after.runs[1].finished_at == "2026-02-01T07:03:09.000Z"
    assert (datadir.dir / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("outcome", "succeeded_at"),
    [
        ("failed", "2026-02-01T07:01:09.000Z"),
        ("ok", "2026-02-01T07:05:09.000Z"),
        ("nothing_new", "2026-02-01T07:05:09.000Z"),
    ],
)
def test_failed_run_keeps_the_time_of_the_last_success(datadir, outcome, succeeded_at):
    kept = runs(datadir)
    kept.record(run(minute=1))
    assert kept.record(run(minute=5, outcome=outcome, exit_code=9)).succeeded_at == succeeded_at


def test_report_of_one_job_too_many_is_refused_and_changes_nothing(datadir, monkeypatch):
    monkeypatch.setattr(service, "JOBS_MAX", 2)
    kept = runs(datadir)
    kept.record(run("a"))
    kept.record(run("b"))
    with pytest.raises(wire.TooManyJobs):
        kept.record(run("c"))
    kept.record(run("b", 9))
    assert [each.job for each in runs(datadir).list_all().runs] == ["a", "b"]


def test_malformed_time_is_refused(datadir):
    with pytest.raises(Invalid, match="finished_at is not a time"):
        runs(datadir).record(run(finished_at="yesterday"))
    assert not (datadir.dir / FILE).exists()


@pytest.mark.parametrize("content", [b"", b"{", b'{"runs":[{}]}', b"\xff" * 100])
def test_malformed_file_is_replaced_by_the_next_report(datadir, content):
    (datadir.dir / FILE).write_bytes(content)
    kept = runs(datadir)
    assert kept.list_all().runs == []
    kept.record(run())
    assert len(runs(datadir).list_all().runs) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"job": "Ingest"},
        {"job": "a" * 41},
        {"seconds": -1.0},
        {"outcome": "done"},
        {"exit_code": 256},
        {"counts": {"Rows!": 1}},
        {"counts": {f"n{number}": 1 for number in range(51)}},
        {"counts": {"rows": -1}},
        {"error": "x" * 501},
        {"unknown": 1},
    ],
)
def test_run_beyond_the_limits_is_refused(more):
    with pytest.raises(msgspec.ValidationError):
        run(**more)
