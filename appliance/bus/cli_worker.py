"""`agentlip worker`: tasks with branches and worktrees, from spawn to merge. No server is
needed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.bus.cli import print_messages
from appliance.busfile import file, messages, workers
from appliance.busfile.worker import commands, guard, guard_hooks, report
from appliance.busfile.worker.context import NotInWorktree, agent_name, read_context
from appliance.busfile.worker.git import Git
from appliance.busfile.worker.operations import Team, WorkerOutcome
from appliance.busfile.worker.run import run_command
from appliance.busfile.worker.spawning import SpawnOptions
from appliance.busfile.workers import WorkerStatus
from appliance.cli_support import (
    Session,
    note,
    plain_app,
    until_signalled,
    write_line,
)
from appliance.kernel.clock import SystemClock

app = plain_app(
    "An agent team's tasks, each with a branch and a worktree.\n\n"
    "The orchestrator runs spawn, approve, request-changes, merge and cancel in the workspace."
    " The agent runs start, done, fail and heartbeat in the task's worktree.\n\n"
    "Example: agentlip worker spawn fix-login --description 'the login times out'",
    "Agent teams, without a server/worker",
)
guard_app = plain_app("The guard for claimed paths, in git and in the agent harness.")
app.add_typer(guard_app, name="guard")

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="Task id.")]
TaskFlag = Annotated[
    str | None, typer.Option("--task", help="Task id (default: this worktree's task).")
]
StateFlag = Annotated[
    workers.State | None, typer.Option("--state", help="Only tasks in this state.")
]
HeadFlag = Annotated[
    str | None, typer.Option("--head", help="Only if this commit is under review.")
]
SUMMARY_CHARACTERS = 30
WATCH_SECONDS = 2.0
COLUMNS = [
    ("TASK", "task"), ("STATE", "state"), ("AGE", "age"), ("HEARTBEAT", "heartbeat"),
    ("STATUS", "status"), ("REVIEW", "review"), ("SUMMARY", "summary"),
]  # fmt: skip
REVIEW = {"pending": "pending", "approved": "approved", "rejected": "REJECTED"}
CLEAR_SCREEN = "\x1b[H\x1b[2J"


@app.command("spawn")
def spawn(
    session: Session,
    task: TaskArgument,
    description: Annotated[
        str | None, typer.Option("--description", help="The agent's task.")
    ] = None,
    from_branch: Annotated[
        str | None, typer.Option("--from-branch", help="Branch to start from and to merge into.")
    ] = None,
    branch_type: Annotated[
        str, typer.Option("--type", help="The branch name's first part, such as fix.")
    ] = "feat",
    no_fetch: Annotated[
        bool, typer.Option("--no-fetch", help="Do not fetch from origin first.")
    ] = False,
    no_worktree: Annotated[
        bool, typer.Option("--no-worktree", help="Create only the branch.")
    ] = False,
) -> None:
    """Create a task with a branch and a worktree. This starts no agent.

    The branch starts from the integration branch, unless you give --from-branch.

    Example: agentlip worker spawn fix-login --type fix --description 'the login times out'
    """
    options = SpawnOptions(description, from_branch, branch_type, not no_fetch, not no_worktree)
    _perform(session, commands.spawn, task, options)


@app.command("start")
def start(session: Session, task: TaskFlag = None) -> None:
    """Begin the work on a task: send the first heartbeat; the state becomes WORKING.

    Example: agentlip worker start
    """
    _perform(session, commands.start, _task(task))


@app.command("done")
def done(
    session: Session,
    task: TaskFlag = None,
    skip_rebase: Annotated[
        bool, typer.Option("--skip-rebase", help="Do not rebase again, after a resolved conflict.")
    ] = False,
) -> None:
    """Rebase on the integration branch and request the review. The exit code is 2 on a conflict.

    Example: agentlip worker done
    """
    folder = Path.cwd()
    _perform(session, commands.done, _task(task), skip_rebase=skip_rebase, folder=folder)


@app.command("approve")
def approve(
    session: Session,
    task: TaskArgument,
    comment: Annotated[str | None, typer.Argument(help="Comment for the agent.")] = None,
    head: HeadFlag = None,
) -> None:
    """Approve the commit under review, unless the branch has newer commits.

    Example: agentlip worker approve fix-login
    """
    _perform(session, commands.approve, task, comment, head)


@app.command("request-changes")
def request_changes(
    session: Session,
    task: TaskArgument,
    comment: Annotated[
        str | None, typer.Argument(help="Changes that the agent has to make.")
    ] = None,
    head: HeadFlag = None,
) -> None:
    """Return the task to its agent.

    Example: agentlip worker request-changes fix-login 'add a test'
    """
    _perform(session, commands.request_changes, task, comment, head)


@app.command("merge")
def merge(session: Session, task: TaskArgument) -> None:
    """Merge an approved task into the integration branch; remove worktree and branch.

    Example: agentlip worker merge fix-login
    """
    _perform(session, commands.merge, task)


@app.command("cancel")
def cancel(
    session: Session,
    task: TaskArgument,
    discard: Annotated[
        bool, typer.Option("--discard", help="Remove the worktree's uncommitted changes too.")
    ] = False,
) -> None:
    """Make a task FAILED and remove its worktree. The branch stays.

    Example: agentlip worker cancel fix-login
    """
    _perform(session, commands.cancel, task, discard)


@app.command("fail")
def fail(
    session: Session,
    reason: Annotated[str, typer.Argument(help="Why the task can't be done.")],
    task: TaskFlag = None,
) -> None:
    """Give up the task. Branch and worktree stay.

    Example: agentlip worker fail 'the service has no test account'
    """
    _perform(session, commands.fail, _task(task), reason)


@app.command("heartbeat")
def heartbeat(
    session: Session,
    status: Annotated[str, typer.Option("--status", help="idle, working or blocked.")] = "working",
    progress: Annotated[
        float | None, typer.Option("--progress", min=0, max=1, help="From 0 to 1.")
    ] = None,
    task: TaskFlag = None,
) -> None:
    """Report that the agent is alive, at least every 30 seconds.

    Example: agentlip worker heartbeat --status blocked
    """
    _perform(session, commands.heartbeat, _task(task), status, progress, recover=False)


@app.command("run")
def run(
    session: Session,
    command: Annotated[list[str], typer.Argument(help="The agent's command, after --.")],
    task: TaskFlag = None,
) -> None:
    """Run a command, and keep the heartbeat and the claims of the task until it ends.

    Signals are passed to the command, and its exit code is the exit code. Processes that the
    command has started end with it.

    Example: agentlip worker run -- ./agent.sh
    """
    with _team(session) as team:
        raise typer.Exit(run_command(team, _task(task), command))


@app.command("status")
def status(
    session: Session,
    state: StateFlag = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only tasks whose agent is STALE or DEAD.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.2, help="Seconds between repetitions.")
    ] = WATCH_SECONDS,
) -> None:
    """Show all tasks: state, heartbeat, and what needs attention.

    Example: agentlip worker status --watch
    """
    with until_signalled():
        while True:
            with _team(session) as team:
                rows = workers.status_rows(team.connection, team.clock.now_ms(), state=state)
            rows = [row for row in rows if not stale or row.status in workers.LATE]
            if watch and not session.machine and sys.stdout.isatty():
                write_line(CLEAR_SCREEN)
            shown = [msgspec.to_builtins(row) if session.machine else _row(row) for row in rows]
            session.table(shown, COLUMNS, empty="no tasks; 'agentlip worker spawn TASK' makes one")
            if not watch:
                return
            sys.stdout.flush()
            file.sleep(every)


@app.command("list")
def list_tasks(session: Session, state: StateFlag = None) -> None:
    """List the tasks with their branches.

    Example: agentlip worker list --state FAILED
    """
    with _team(session) as team:
        rows = workers.status_rows(team.connection, team.clock.now_ms(), state=state)
    session.table(
        [msgspec.to_builtins(row) for row in rows],
        [("TASK", "task"), ("STATE", "state"), ("BRANCH", "branch"), ("WORKTREE", "worktree"),
         ("DESCRIPTION", "description")],
        empty="no tasks; 'agentlip worker spawn TASK' makes one",
    )  # fmt: skip


@app.command("show")
def show(session: Session, task: TaskArgument) -> None:
    """Show a task with its history and blockers.

    Example: agentlip worker show fix-login
    """
    with _team(session) as team:
        shown = report.describe_task(team, task)
    if session.machine:
        session.answer(msgspec.to_builtins(shown), "")
        return
    row = _row(shown.task)
    lines = [(heading.lower(), row[key]) for heading, key in COLUMNS[:-1]]
    lines += [("branch", shown.task.branch), ("worktree", shown.task.worktree)]
    lines += [("description", shown.task.description), ("reason", shown.reason)]
    for name, value in lines:
        write_line(f"{name + ':':<13}{'-' if value is None else value}")
    print_messages(session, _paths(session), [*shown.transitions, *shown.errors], "")


@app.command("logs")
def logs(
    session: Session,
    task: TaskArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Row limit.")] = 50,
) -> None:
    """List the newest messages about a task.

    Example: agentlip worker logs fix-login --jsonl
    """
    with _team(session) as team:
        team.worker(task)
        batch = messages.newest(team.connection, limit, task)
        print_messages(session, team.paths, batch, "no messages")


@app.command("stats")
def stats(session: Session) -> None:
    """Count tasks by state, and messages by type.

    Example: agentlip worker stats
    """
    with _team(session) as team:
        counts = report.count_all(team.connection)
    if session.machine:
        session.answer(counts, "")
        return
    rows = [{"of": of, "name": name, "count": number}
            for of, numbers in counts.items() for name, number in numbers.items()]  # fmt: skip
    session.table(rows, [("OF", "of"), ("NAME", "name"), ("COUNT", "count")], empty="no tasks")


# -- the guard -----------------------------------------------------------------------------------


@guard_app.command("install")
def install_guard(session: Session) -> None:
    """Install the guard in this checkout, which spawn does for worktrees.

    Example: agentlip worker guard install
    """
    context = read_context(Path.cwd())
    git = Git(Git(Path.cwd()).top())
    guard_hooks.install(git, context.task if context else None, note)
    session.answer({"checkout": str(git.folder)}, f"the guard is installed in {git.folder}")


@guard_app.command("check")
def check_guard(
    session: Session,
    hook: Annotated[guard.Hook, typer.Argument(help="The hook that runs.")] = "pre-commit",
) -> None:
    """Check claimed paths for a hook, with its input on stdin. Exit code 2 if one is claimed.

    Example: agentlip worker guard check pre-commit
    """
    context = read_context(Path.cwd())
    if not _paths(session).database.exists():  # nobody has claimed anything
        return
    with _team(session, recover=False) as team:
        agent, git = _actor(), Git(Path.cwd())
        match hook:
            case "pre-commit" | "pre-merge-commit":
                guard.check_commit(team, git, agent, hook)
            case "post-commit" | "post-merge":
                guard.report_commit(team, git, agent, hook)
            case "pre-push":
                guard.check_push(team, git, agent, sys.stdin.read())
            case "pre-tool-use":
                guard.check_tool(team, agent, sys.stdin.buffer.read())
            case _ if context:
                guard.check_stop(team, context.task)


# -- what the commands share ---------------------------------------------------------------------


@contextmanager
def _team(session: Session, *, recover: bool = True) -> Iterator[Team]:
    """Open this workspace's team, after recovering what killed commands had begun."""
    paths = _paths(session)
    with closing(file.connect(paths)) as connection:
        team = commands.open_team(paths, connection, SystemClock(), _actor(), note)
        if recover:
            team.recover()
        yield team


def _paths(session: Session) -> file.BusPaths:
    """Return this worktree's workspace, or the nearest one above; in a repository without one,
    the repository."""
    if session.workspace is None and (context := read_context(Path.cwd())):
        return file.BusPaths(Path(context.workspace))
    try:
        return file.find_paths(session.workspace)
    except file.BusMissing:
        return file.BusPaths(Git(Path.cwd()).top())


def _actor() -> str:
    """Return the acting name: in a worktree the task's agent, so nobody decides under another
    name."""
    return agent_name() or commands.ORCHESTRATOR


def _task(named: str | None) -> str:
    """Return the named task, or the worktree's task. Raises NotInWorktree."""
    if named is not None:
        return named
    context = read_context(Path.cwd())
    if context is None:
        raise NotInWorktree
    return context.task


def _perform(
    session: Session,
    command: Callable[..., WorkerOutcome],
    *arguments: Any,
    recover: bool = True,
    **options: Any,
) -> None:
    """Call `command(team, …)` and print its outcome."""
    with _team(session, recover=recover) as team:
        outcome = command(team, *arguments, **options)
    session.answer(msgspec.to_builtins(outcome), outcome.message)


def _row(row: WorkerStatus) -> dict[str, Any]:
    beat = row.heartbeat_age_ms
    return {
        "task": row.task,
        "state": row.state,
        "age": _duration(row.age_ms),
        "heartbeat": "--" if beat is None else _duration(beat),
        "status": row.status,
        "review": REVIEW.get(row.review or "", "-"),
        "summary": (row.description or "")[:SUMMARY_CHARACTERS],
    }


def _duration(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
