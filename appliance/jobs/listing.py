"""Lists the jobs that run here, the jobs that only report their runs, and the appliance's own
scheduled loops."""

from collections.abc import Iterable, Mapping

import msgspec

from appliance.jobs import wire
from appliance.jobs.reported import ReportedRuns
from appliance.jobs.service import Jobs
from appliance.kernel.clock import iso
from appliance.kernel.loop import Loop, failed_rounds, last_successes

LOOPS = {
    "backup_scheduler": "makes backups on the [backup] schedule",
    "broker_pruner": "prunes broker messages, and checks for orphaned rows",
    "bus_pruner": "prunes worker bus messages",
    "doctor_checkup": "runs the readiness checks",
    "doctor_runs": "runs all cheap doctor checks",
    "export_segments": "exports the logs as segments",
    "growth_sampler": "keeps disk and store sizes for the forecast",
    "inbox_pruner": "prunes inbox messages",
    "jobs_pruner": "prunes job runs",
    "outbox_pruner": "prunes delivered sends' payloads",
}


def list_all(jobs: Jobs, reported: ReportedRuns, loops: Iterable[Loop]) -> wire.JobList:
    """Return the jobs that run here, those that report their runs, and the loops in LOOPS."""
    listed = jobs.list_jobs()
    by_name = {job.name: job for job in listed.jobs}
    for run in reported.list_all().runs:
        job = by_name.get(run.job)
        if job is None:
            state, at = run.outcome, run.finished_at
            job = wire.ListedJob(
                name=run.job,
                source="reported",
                last_state=state,
                last_at=at,
                failures=run.failures,
                problem=run.error,
            )
        problem = job.problem or run.error
        by_name[run.job] = msgspec.structs.replace(job, reported=run, problem=problem)
    built_in = _list_loops({loop.name: loop for loop in loops})
    return msgspec.structs.replace(listed, jobs=[*by_name.values(), *built_in])


def _list_loops(loops: Mapping[str, Loop]) -> list[wire.ListedJob]:
    """Return the loops in LOOPS that have run, or have a next round."""
    listed, successes, failures = [], last_successes(), failed_rounds()
    for name, description in LOOPS.items():
        ended, loop = successes.get(name), loops.get(name)
        if loop is None and ended is None:
            continue
        next_ms = None if loop is None else loop.next_at_ms
        listed.append(
            wire.ListedJob(
                name=name,
                source="built-in",
                description=description,
                next_at=None if next_ms is None else iso(next_ms),
                last_state=None if ended is None else "succeeded",
                last_at=None if ended is None else iso(int(ended * 1000)),
                failures=int(failures.get(name, 0)),
            )
        )
    return listed
