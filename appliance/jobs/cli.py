"""`agentlip jobs`: the latest reported run of each batch job."""

from typing import Any

from appliance.cli_support import Session, common, plain_app

app = plain_app("Batch jobs: their latest runs, as they reported them.", "Administration/jobs")


@app.callback()
def _jobs() -> None:
    """Makes Typer keep `list` as a subcommand while it is the only one."""


@app.command("list")
@common
def list_runs(session: Session) -> None:
    """List the latest run of each job: agentlip jobs list"""
    rows = session.hub().get("/api/v1/jobs/runs")["runs"]
    if session.machine:
        session.table(rows, [], empty="")
        return
    columns = [("JOB", "job"), ("OUTCOME", "outcome"), ("FINISHED", "finished_at")]
    columns += [("SECONDS", "seconds"), ("ROWS", "rows"), ("SUCCEEDED", "succeeded_at")]
    columns += [("ERROR", "error")]
    session.table(
        [_row(run) for run in rows],
        columns,
        empty="no job has reported a run; run them with --report-to: docs/how-to/spark.md",
    )


def _row(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "rows": run["counts"].get("rows"), "seconds": f"{run['seconds']:.1f}"}
