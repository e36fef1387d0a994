"""HTTP routes of jobs and runs."""

from typing import Any

import falcon

from appliance.jobs import wire
from appliance.jobs.runner import JobRunner
from appliance.jobs.service import JobRuns
from appliance.kernel.route import Operation, Route
from appliance.web.media import reply


class JobRunsResource:
    def __init__(self, runs: JobRuns) -> None:
        self._runs = runs

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        reply(resp, self._runs.list_all())

    def on_post(self, _req: Any, resp: falcon.Response, command: wire.JobRun) -> None:
        reply(resp, self._runs.record(command), 201)


class RunResource:
    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner

    def on_post(self, req: Any, resp: falcon.Response, job: str) -> None:
        reply(resp, self._runner.request(job, req.context.principal), 201)

    def on_get_history(self, req: Any, resp: falcon.Response, job: str) -> None:
        reply(resp, self._runner.history(job, req.context.query))

    def on_get_item(self, req: Any, resp: falcon.Response, run_id: str) -> None:
        reply(resp, self._runner.show(run_id, req.context.query.wait))

    def on_get_output(self, req: Any, resp: falcon.Response, run_id: str) -> None:
        reply(resp, self._runner.read_output(run_id, req.context.query))

    def on_post_cancel(self, _req: Any, resp: falcon.Response, run_id: str) -> None:
        reply(resp, self._runner.cancel(run_id))


EXAMPLE = {
    "job": "ingest", "started_at": "2026-11-21T02:00:00Z", "finished_at": "2026-11-21T02:01:10Z",
    "seconds": 70.2, "outcome": "ok", "exit_code": 0, "counts": {"rows": 12000},
}  # fmt: skip


def routes(runs: JobRuns, runner: JobRunner) -> list[Route]:
    resource = RunResource(runner)
    return [
        Route("/api/v1/jobs/runs", JobRunsResource(runs), {
            "GET": Operation(wire.READ, reply=wire.LatestRuns,
                             summary="List the latest reported run of each batch job"),
            "POST": Operation(wire.REPORT, body=wire.JobRun, reply=wire.LatestRun, status=201,
                              errors=(wire.TooManyJobs,), example=EXAMPLE,
                              summary="Report the run of a batch job, which replaces its last one"),
        }),
        Route("/api/v1/jobs/runs/{run_id}", resource, {
            "GET": Operation(wire.READ, reply=wire.RunShown, query=wire.RunQuery,
                             errors=(wire.TooManyRunWaits,),
                             summary="Show a run, optionally waiting until it is over"),
        }, suffix="item"),
        Route("/api/v1/jobs/runs/{run_id}/output", resource, {
            "GET": Operation(wire.READ, reply=wire.RunOutput, query=wire.RunOutputQuery,
                             errors=(wire.TooManyRunWaits,),
                             summary="The output of a run from a position, optionally waiting"),
        }, suffix="output"),
        Route("/api/v1/jobs/runs/{run_id}/cancel", resource, {
            "POST": Operation(wire.RUN, reply=wire.RunShown, errors=(wire.RunOver,),
                              summary="Cancel a run"),
        }, suffix="cancel"),
        Route("/api/v1/jobs/{job}/runs", resource, {
            "POST": Operation(wire.RUN, reply=wire.RunShown, status=201,
                              errors=(wire.JobBusy, wire.TooManyRuns), summary="Run a job"),
        }),
        Route("/api/v1/jobs/{job}/history", resource, {
            "GET": Operation(wire.READ, reply=wire.RunList, query=wire.JobHistoryQuery,
                             summary="List the runs of a job, newest first"),
        }, suffix="history"),
    ]  # fmt: skip
