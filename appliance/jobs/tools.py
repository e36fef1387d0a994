"""Offers tools for agents: run a job, and wait for its end."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from appliance.jobs import wire
from appliance.jobs.service import Jobs
from appliance.kernel.auth import Principal
from appliance.kernel.tool import Tool


class JobRunArguments(Struct, frozen=True, forbid_unknown_fields=True):
    job: Annotated[str, Meta(max_length=40)]


class JobStatusArguments(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: Annotated[str, Meta(max_length=64)]
    wait: Annotated[float, Meta(ge=0, le=wire.WAIT_SECONDS_MAX)] = 0.0


def tools(jobs: Jobs) -> Sequence[Tool]:
    def run(arguments: JobRunArguments, who: Principal) -> wire.RunShown:
        return jobs.request(arguments.job, who)[0]

    def show(arguments: JobStatusArguments, _who: Principal) -> wire.RunShown:
        return jobs.show(arguments.run_id, wire.RunQuery(arguments.wait))

    return [
        Tool(
            "job_run", "Run a job", "Run a job now. Then call job_status with the run's id.",
            JobRunArguments, None, wire.RUN, run, "adds", audited=True,
        ),
        Tool(
            "job_status", "Run status",
            "State, attempts and the end of the output; waits up to `wait` seconds for the run.",
            JobStatusArguments, None, wire.READ, show,
            unfinished=lambda outcome: isinstance(outcome, wire.RunShown)
            and outcome.run.ended_at is None,
        ),
    ]  # fmt: skip
