"""HTTP routes of jobs and runs."""

from collections.abc import Callable
from functools import partial

from appliance.jobs import wire
from appliance.jobs.reported import ReportedRuns
from appliance.jobs.service import Jobs
from appliance.jobs.sse import event_stream
from appliance.kernel.auth import TokenBook
from appliance.kernel.route import Operation, Route
from appliance.web.responders import (
    Responder,
    Responders,
    reply_to_change,
    reply_with,
    reply_with_events,
)

Listing = Callable[[], wire.JobList]


EXAMPLE = {
    "job": "ingest", "started_at": "2026-11-21T02:00:00Z", "finished_at": "2026-11-21T02:01:10Z",
    "seconds": 70.2, "outcome": "ok", "exit_code": 0, "counts": {"rows": 12000},
}  # fmt: skip


JOB_EXAMPLE = {"command": ["weekly-report", "--format", "html"], "cron": "0 6 * * 1", "retries": 2}


def routes(reported: ReportedRuns, jobs: Jobs, listing: Listing, book: TokenBook) -> list[Route]:
    return [
        Route("/api/v1/jobs", Responders(get=reply_with(listing)), {
            "GET": Operation(wire.READ, reply=wire.JobList,
                             summary="List all jobs, with the appliance's loops"),
        }),
        Route("/api/v1/jobs/{job}", Responders(
            get=reply_with(jobs.show_job), put=reply_with(jobs.put_job),
            delete=_list_after(partial(_remove, reported, jobs), listing),
        ), {
            "GET": Operation(wire.READ, reply=wire.JobShown, summary="Show a job"),
            "PUT": Operation(wire.WRITE, body=wire.JobSpec, reply=wire.JobShown,
                             errors=(wire.BadJobSpec, wire.JobIsFile, wire.TooManyJobSpecs),
                             example=JOB_EXAMPLE, summary="Make or change a job", audited=True),
            "DELETE": Operation(wire.WRITE, reply=wire.JobList, errors=(wire.JobIsFile,),
                                summary="Remove a job; its runs stay", audited=True),
        }),
        _switch("pause", jobs, listing, "Stop starting runs for a job, or for `all`"),
        _switch("resume", jobs, listing, "Start runs again"),
        Route("/api/v1/jobs/runs", Responders(
            get=reply_with(reported.list_all), post=reply_with(reported.record, 201),
        ), {
            "GET": Operation(wire.READ, reply=wire.LatestRuns,
                             summary="List each batch job's latest reported run"),
            "POST": Operation(wire.REPORT, body=wire.JobRun, reply=wire.LatestRun, status=201,
                              errors=(wire.TooManyJobs,), example=EXAMPLE,
                              summary="Report a batch job's run, replacing its previous report"),
        }),
        Route("/api/v1/jobs/runs/{run_id}", Responders(get=reply_with(jobs.show)), {
            "GET": Operation(wire.READ, reply=wire.RunShown, query=wire.RunQuery,
                             errors=(wire.TooManyRunWaits,),
                             summary="Show a run, optionally waiting until it is over"),
        }),
        Route("/api/v1/jobs/runs/{run_id}/output", Responders(get=reply_with(jobs.read_output)), {
            "GET": Operation(wire.READ, reply=wire.RunOutput, query=wire.RunOutputQuery,
                             errors=(wire.TooManyRunWaits,),
                             summary="Read a run's output from a position, optionally waiting"),
        }),
        Route("/api/v1/jobs/runs/{run_id}/events", Responders(
            get=reply_with_events(partial(event_stream, jobs, book)),
        ), {
            "GET": Operation(wire.READ, media="text/event-stream",
                             errors=(wire.TooManyRunWaits,),
                             summary="Follow a run until it ends: state and output"),
        }),
        Route("/api/v1/jobs/runs/{run_id}/cancel", Responders(post=reply_with(jobs.cancel)), {
            "POST": Operation(wire.RUN, reply=wire.RunShown, errors=(wire.RunOver,),
                              summary="Cancel a run", audited=True),
        }),
        Route("/api/v1/jobs/{job}/runs", Responders(post=reply_to_change(jobs.request_once)), {
            "POST": Operation(wire.RUN, reply=wire.RunShown, status=201, keyed=True,
                              errors=(wire.JobBusy, wire.TooManyRuns), summary="Run a job",
                              audited=True),
        }),
        Route("/api/v1/jobs/{job}/history", Responders(get=reply_with(jobs.history)), {
            "GET": Operation(wire.READ, reply=wire.RunList, query=wire.JobHistoryQuery,
                             summary="List a job's runs, newest first"),
        }),
    ]  # fmt: skip


def _remove(reported: ReportedRuns, jobs: Jobs, job: str) -> None:
    """Remove a job, and the latest run that it reported. Raises JobIsFile and NoSuchJob."""
    if job in jobs.catalogue.specs or not reported.forget(job):
        jobs.put_job(job, None)
        reported.forget(job)


def _switch(verb: str, jobs: Jobs, listing: Listing, summary: str) -> Route:
    change = partial(jobs.pause, is_paused=verb == "pause")
    return Route(f"/api/v1/jobs/{{job}}/{verb}", Responders(post=_list_after(change, listing)), {
        "POST": Operation(wire.RUN, reply=wire.JobList, summary=summary, audited=True,
                          in_maintenance=True),
    })  # fmt: skip


def _list_after(change: Callable[[str], object], listing: Listing) -> Responder:
    def respond(job: str) -> wire.JobList:
        change(job)
        return listing()

    return reply_with(respond)
