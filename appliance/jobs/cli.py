"""`agentlip jobs`: this workspace's jobs and their runs."""

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from appliance.cli_support import SILENT_SECONDS, Session, note, plain, plain_app
from appliance.kernel.errors import Invalid, Missing

app = plain_app(
    "Jobs: scheduled and requested work, and the latest runs that jobs reported.",
    "Administration/jobs",
)
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Job name.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run id.")]
PATH = "/api/v1/jobs"
WAIT_SECONDS = 20.0  # that one request waits
TAIL_LINES = 10
EXIT_WRONG = 1


class _OutboxMeshes(msgspec.Struct):
    mesh: str = "default"
    brokers: tuple[dict[str, Any], ...] = ()


OptionalJob = Annotated[str | None, typer.Argument(metavar="[JOB]", help="Job name.")]
WaitFlag = Annotated[
    bool, typer.Option("--wait", help="Wait for the run to finish and exit with its exit code.")
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Only list its next times.")]
AllFlag = Annotated[bool, typer.Option("--all", help="All jobs.")]


@app.command("list")
def list_jobs(session: Session) -> None:
    """List all jobs, those that only report their runs, and the appliance's own loops."""
    listed = session.hub().get(PATH)
    if listed["paused"] and not session.machine:
        note(f"all jobs are paused since {listed['paused']}; agentlip jobs resume --all")
    columns = [("JOB", "name"), ("SOURCE", "source"), ("SCHEDULE", "schedule")]
    columns += [("NEXT", "next_at"), ("LAST", "last_state"), ("AT", "last_at")]
    columns += [("PAUSED", "paused_at"), ("FAILURES", "failures"), ("PROBLEM", "problem")]
    session.table(listed["jobs"], columns, empty="no jobs; a job is a file jobs/NAME.toml")


@app.command("pause")
def pause_job(session: Session, job: OptionalJob = None, every: AllFlag = False) -> None:
    """Start no more runs, for one job or for all jobs. Started runs continue."""
    _switch(session, job, every, "pause")


@app.command("resume")
def resume_job(session: Session, job: OptionalJob = None, every: AllFlag = False) -> None:
    """Start runs again, for one job or for all jobs."""
    _switch(session, job, every, "resume")


def _switch(session: Session, job: str | None, every: bool, verb: str) -> None:
    if (job is None) != every:
        raise Invalid("name a job, or give --all", hint=f"agentlip jobs {verb} --all")
    jobs = session.hub().post(f"{PATH}/{segment(job or 'all')}/{verb}", {})
    session.answer(jobs, f"{verb}d {job or 'all jobs'}")


@app.command("remove")
def remove_job(session: Session, job: JobArgument) -> None:
    """Remove a job that was made over the API, or that only reported its runs. Runs are kept."""
    jobs = session.hub().delete(f"{PATH}/{segment(job)}")
    session.answer(jobs, f"removed {job}")


@app.command("validate")
def validate_files(session: Session) -> None:
    """Check the files jobs/*.toml. Exit code 1 if one is wrong. Needs no running appliance."""
    files, rows = _read_files(session), []
    for file in files:
        line = None if file.error is None else file.error.details["line"]
        rows.append({"job": file.name, "file": file.path, "line": line, "problem": file.problem})
    columns = [("JOB", "job"), ("FILE", "file"), ("PROBLEM", "problem")]
    shown = [{**row, "problem": row["problem"] or "none"} for row in rows]
    session.table(rows if session.machine else shown, columns, empty="no files jobs/*.toml")
    if any(file.error is not None for file in files):
        raise typer.Exit(EXIT_WRONG)


@app.command("next")
def show_next(
    session: Session,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=100, help="Times to list.")] = 5,
) -> None:
    """Show when the jobs with a cron expression in jobs/*.toml are due."""
    from appliance.jobs.schedule import next_ms
    from appliance.jobs.spec import describe
    from appliance.kernel.clock import SystemClock, iso

    now_ms, rows, files = SystemClock().now_ms(), [], _read_files(session)
    if job is not None and all(file.name != job for file in files):
        raise Missing(f"there is no file jobs/{job}.toml", hint="agentlip jobs list")
    for file in files:
        spec = file.spec
        schedule = None if spec is None or job not in (None, file.name) else describe(spec)
        if schedule is not None:
            cron = spec.cron and next_ms(spec.cron, spec.time_zone, now_ms, count)
            due = [iso(ms) for ms in cron] if cron else [None]
            rows += [{"job": file.name, "due": at, "schedule": schedule} for at in due]
    columns = [("JOB", "job"), ("DUE", "due"), ("SCHEDULE", "schedule")]
    session.table(rows, columns, empty="no job in jobs/*.toml has a schedule")


@app.command("run")
def run_job(
    session: Session, job: JobArgument, wait: WaitFlag = False, dry_run: DryRunFlag = False
) -> None:
    """Run a job now."""
    hub = session.hub()
    if dry_run:
        shown = hub.get(f"{PATH}/{segment(job)}")
        session.answer(shown, "\n".join(shown["next"]) or "it has no schedule")
        return
    run = hub.post(f"{PATH}/{segment(job)}/runs", {})["run"]
    reported, seconds = set[str](), SILENT_SECONDS
    while wait and run["ended_at"] is None:
        run = hub.get(f"{PATH}/runs/{run['id']}", wait=seconds)["run"]
        _tell_wait(run, reported)
        seconds = WAIT_SECONDS
    session.answer(run, _sentence(run))
    if wait and run["state"] != "succeeded":
        raise typer.Exit(run["exit_code"] if (run["exit_code"] or 0) > 0 else EXIT_WRONG)


@app.command("show")
def show_run(session: Session, run_id: RunArgument) -> None:
    """Show a run with its attempts."""
    run = session.hub().get(f"{PATH}/runs/{segment(run_id)}")["run"]
    lines = [_sentence(run), f"cause: {run['cause']} {run['detail'] or ''}".rstrip()]
    lines += [f"waits for: {run['waits_for']}"] if run["waits_for"] else []
    for attempt in run["attempts"]:
        lines.append(
            f"attempt {attempt['number']}: {attempt['state']},"
            f" {attempt['started_at']} to {attempt['ended_at'] or 'now'},"
            f" limits: {attempt['limits'] or 'none'}"
        )
        for file in attempt["artefacts"]:
            dropped = ", not kept: above a limit" if file.get("dropped") else ""
            lines.append(f"  {file['name']}: {file['bytes']} bytes{dropped}")
        lines += [f"  | {line}" for line in (attempt["tail"] or "").splitlines()[-TAIL_LINES:]]
    session.answer(run, "\n".join(plain(line) for line in lines))


@app.command("logs")
def print_output(
    session: Session,
    run_id: RunArgument,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print until it is over.")] = False,
    attempt: Annotated[int, typer.Option("--attempt", min=0, help="Attempt; 0: the latest.")] = 0,
) -> None:
    """Print a run's output."""
    hub, query, over = session.hub(), {"attempt": attempt, "after": 0}, False
    reported, seconds = set[str](), SILENT_SECONDS
    while not over:
        path = f"{PATH}/runs/{segment(run_id)}/output"
        part = hub.get(path, **query, wait=seconds if follow else 0)
        seconds = WAIT_SECONDS
        query["after"] = part["next"]
        over = part["over"] or not (part["text"] or follow)
        if session.machine:
            session.answer(part, "")
        elif part["text"]:
            typer.echo(part["text"], nl=False)
        elif follow and not over:
            _tell_wait(hub.get(f"{PATH}/runs/{segment(run_id)}")["run"], reported)


@app.command("cancel")
def cancel_run(session: Session, run_id: RunArgument) -> None:
    """Cancel a run. Exit code 2 if it is over."""
    run = session.hub().post(f"{PATH}/runs/{segment(run_id)}/cancel", {})["run"]
    session.answer(run, _sentence(run))


@app.command("history")
def list_history(
    session: Session,
    job: JobArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum runs.")] = 20,
) -> None:
    """List a job's runs, newest first."""
    rows, _ = session.hub().page(f"{PATH}/{segment(job)}/history", "runs", limit)
    columns = [("RUN", "id"), ("STATE", "state"), ("CAUSE", "cause"), ("CREATED", "created_at")]
    columns += [("ENDED", "ended_at"), ("ATTEMPTS", "attempts_made"), ("ERROR", "error")]
    session.table(rows, columns, empty=f"this job has not run; agentlip jobs run {job}")


def _tell_wait(run: dict[str, Any], reported: set[str]) -> None:
    """Say why a run has not started, unless it was `reported`."""
    if run["waits_for"] and run["waits_for"] not in reported:
        note(f"{run['id']} waits for {run['waits_for']}")
        reported.add(run["waits_for"])


def segment(text: str) -> str:
    return quote(text, safe="") or "-"


def _sentence(run: dict[str, Any]) -> str:
    error = f": {run['error']}" if run["error"] else ""
    return plain(f"{run['id']} of {run['job']} {run['state']}{error}")


def _read_files(session: Session) -> list[Any]:
    from appliance.checks.sections import section
    from appliance.jobs.spec_files import read_folder
    from appliance.sdk.database import read_column
    from appliance.workspace.datadir import find_workspace

    datadir = find_workspace(session.workspace)
    names = {
        "after": ("jobs", "SELECT name FROM jobs WHERE spec IS NOT NULL"),
        "hub": ("hub", "SELECT name FROM channels"),
        "outbox": ("broker", "SELECT slug FROM mesh"),
    }
    known = {
        kind: read_column(datadir.database(store), sql) for kind, (store, sql) in names.items()
    }
    if outbox := section(datadir.settings_file, "outbox", _OutboxMeshes):
        known["outbox"] += [outbox.mesh, *(broker["mesh"] for broker in outbox.brokers)]
    return read_folder(datadir.workspace, known)
