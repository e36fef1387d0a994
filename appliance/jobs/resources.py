"""HTTP routes of job runs."""

from typing import Any

import falcon

from appliance.jobs import wire
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


EXAMPLE = {
    "job": "ingest", "started_at": "2026-11-21T02:00:00Z", "finished_at": "2026-11-21T02:01:10Z",
    "seconds": 70.2, "outcome": "ok", "exit_code": 0, "counts": {"rows": 12000},
}  # fmt: skip


def routes(runs: JobRuns) -> list[Route]:
    return [
        Route("/api/v1/jobs/runs", JobRunsResource(runs), {
            "GET": Operation(wire.READ, reply=wire.LatestRuns,
                             summary="List the latest reported run of each batch job"),
            "POST": Operation(wire.REPORT, body=wire.JobRun, reply=wire.LatestRun, status=201,
                              errors=(wire.TooManyJobs,), example=EXAMPLE,
                              summary="Report the run of a batch job, which replaces its last one"),
        }),
    ]  # fmt: skip
