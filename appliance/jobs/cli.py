"""`agentlip jobs`: the jobs of this workspace, and what ran."""

from typing import Annotated, Any

import typer

from appliance.cli_support import Session, common, note, plain_app

app = plain_app(
    "Jobs: scheduled and requested work, and the latest runs that jobs reported.",
    "Administration/jobs",
)
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]
EXIT_WRONG = 1


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


@app.command("validate")
@common
def validate_files(session: Session) -> None:
    """Check the files jobs/*.toml. Exit code 1 if one is wrong. Needs no running appliance."""
    files = _read_files(session)
    rows = [
        {
            "job": file.name,
            "file": file.path,
            "line": None if file.error is None else file.error.details["line"],
            "problem": None if file.error is None else file.error.message,
        }
        for file in files
    ]
    columns = [("JOB", "job"), ("FILE", "file"), ("PROBLEM", "problem")]
    shown = [{**row, "problem": row["problem"] or "none"} for row in rows]
    session.table(rows if session.machine else shown, columns, empty="no files jobs/*.toml")
    if any(file.error is not None for file in files):
        raise typer.Exit(EXIT_WRONG)


@app.command("next")
@common
def show_next(
    session: Session,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=100, help="Times of each job.")] = 5,
) -> None:
    """Show when the jobs in jobs/*.toml with a cron expression are due, and run nothing."""
    from appliance.jobs.schedule import next_ms
    from appliance.kernel.clock import SystemClock, iso

    now_ms, rows = SystemClock().now_ms(), []
    for file in _read_files(session):
        if job not in (None, file.name) or file.spec is None:
            continue
        spec = file.spec
        if spec.cron is not None:
            due = next_ms(spec.cron, spec.time_zone, now_ms, count)
            rows += [{"job": file.name, "due": iso(ms), "schedule": spec.cron} for ms in due]
        elif spec.interval_seconds is not None:
            schedule = f"every {spec.interval_seconds:g} s"
            rows.append({"job": file.name, "due": None, "schedule": schedule})
    columns = [("JOB", "job"), ("DUE", "due"), ("SCHEDULE", "schedule")]
    session.table(rows, columns, empty="no such job has a schedule")


def _read_files(session: Session) -> list[Any]:
    from appliance.jobs.spec_files import FILES_MAX, read_folder
    from appliance.sdk.discovery import find_workspace

    files = read_folder(find_workspace(session.workspace).workspace)
    if len(files) == FILES_MAX:
        note(f"only the first {FILES_MAX} files are read")
    return files


def _row(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "rows": run["counts"].get("rows"), "seconds": f"{run['seconds']:.1f}"}
