"""Makes a task's branch, worktree and worker; all or nothing."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from appliance.busfile import reviews, workers
from appliance.busfile.worker import guard_hooks
from appliance.busfile.worker.context import TaskContext, branch_of, write_context
from appliance.busfile.worker.git import Git, GitFailed, TargetBranch
from appliance.busfile.worker.operations import (
    Team,
    WorkerOperation,
    WorkerOutcome,
    remove_operation,
)
from appliance.busfile.worker.reviews import call_gate, remove_gate
from appliance.busfile.workers import InvalidTransition, WorkerRow
from appliance.kernel.errors import ApplianceError, Conflict, Missing

STEPS = ("branch", "worktree", "settings", "guard", "gate", "row")
TARGET = "agentlipTarget"  # in git's branch settings, so that the entry ends with the branch
# Paths that git must not list: below the workspace, then at each worktree's root.
OF_WORKSPACE = (
    "worktrees/",
    ".worker-state/bus.db*",
    ".worker-state/blobs/",
    ".worker-state/workers/",
)
OF_WORKTREE = ("/.worker-ctx.json", "/.claude/settings.local.json")


class SpawnFailed(Conflict):
    code = "SPAWN_FAILED"
    default_message = "a step of spawn failed, and the earlier steps were undone"
    default_hint = "correct the reported error, then run the same command again"


class AlreadyExists(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "the task's branch or folder already exists"
    default_hint = "use another task id, or remove what exists: git worktree list; git branch"


class SpawnOptions(NamedTuple):
    """`from_branch`: where the branch begins and where it is merged; otherwise, the integration
    branch."""

    description: str | None = None
    from_branch: str | None = None
    branch_type: str = "feat"
    fetch: bool = True
    worktree: bool = True


def spawn(team: Team, git: Git, task: str, options: SpawnOptions) -> WorkerOutcome:
    """Spawn, and undo the steps if one fails, and name that step. The task must be locked."""
    row = workers.read_worker(team.connection, task)
    if row is not None and row.state == "COMPLETED":
        raise InvalidTransition(f"{task} is COMPLETED", hint="use another task id")
    if row is not None and row.state != "FAILED":
        return WorkerOutcome(task, row.state, False, f"{task} already exists and is {row.state}")
    git.top()
    with _naming(task, "fetch"):
        if options.fetch:
            git.fetch()
    with _naming(task, "check"):
        operation, target = _plan(team, git, row, task, options)
    team.begin(operation)
    try:
        for step in STEPS:
            operation = team.proceed(operation, step)
            with _naming(task, step):
                _perform(team, git, operation, target)
    except ApplianceError:
        undo_spawn(team, git, operation)
        raise
    branch = operation.facts["branch"]
    folder = f"worktrees/{task}" if options.worktree else None
    with team.change() as (connection, now_ms):
        workers.create(
            connection, now_ms, task, branch=branch, worktree=folder,
            description=options.description, actor=team.actor,
        )  # fmt: skip
        reviews.request_review(connection, now_ms, task, None)
        payload = {"branch": branch, "worktree": folder, "description": options.description}
        workers.announce(
            connection, now_ms, "task_assign", task, payload, actor=team.actor, to=task
        )
        remove_operation(connection, task)
    where = f"in {folder}" if folder else "without a worktree"
    message = f"{task} is ASSIGNED: branch {branch} from {target.name}, {where}"
    return WorkerOutcome(task, "ASSIGNED", True, message, {"base": target.tip, **payload})


def undo_spawn(team: Team, git: Git, operation: WorkerOperation) -> None:
    """Undo spawn's steps; what was there before stays."""
    task, facts = operation.task, operation.facts
    if facts["new_worktree"]:
        folder = team.folder(task)
        git.attempt("worktree", "unlock", str(folder))
        git.attempt("worktree", "remove", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)  # git was killed before it registered the folder
        git.attempt("worktree", "prune")
    if facts["new_branch"] and git.commit_of(facts["branch"]) == facts["base"]:
        git.attempt("branch", "-D", facts["branch"])
    if operation.step in STEPS[-2:]:
        remove_gate(team, task)
    team.end(task)


def target_of(git: Git, branch: str | None) -> TargetBranch:
    """Return the branch on which a task's branch is rebased, and into which it is merged."""
    name = git.attempt("config", "--get", f"branch.{branch}.{TARGET}").output.strip()
    return (git.target(name) if name else None) or git.integration()


def _plan(
    team: Team, git: Git, row: WorkerRow | None, task: str, options: SpawnOptions
) -> tuple[WorkerOperation, TargetBranch]:
    """Check everything that can be checked first. A failed task keeps its branch and worktree."""
    branch = row.branch if row and row.branch else branch_of(task, options.branch_type)
    from_branch = (options.from_branch or "").removeprefix("origin/")
    target = git.target(from_branch) if from_branch else git.integration()
    if target is None:
        raise Missing(f"there is no branch {from_branch}", hint="git branch --all")
    new_branch = git.commit_of(f"refs/heads/{branch}") is None
    if not new_branch and row is None:
        raise AlreadyExists(f"the branch {branch} already exists")
    folder = team.folder(task)
    registered = git.worktrees().get(folder)
    new_worktree = options.worktree and registered is None
    if registered not in (None, branch):
        raise AlreadyExists(f"{folder} has the branch {registered}, not {branch}")
    if new_worktree and (folder.is_symlink() or folder.exists()):
        raise AlreadyExists(f"the folder {folder} already exists")
    facts = {
        "branch": branch, "base": target.tip, "new_branch": new_branch, "target": from_branch,
        "new_worktree": new_worktree, "worktree": options.worktree,
    }  # fmt: skip
    return WorkerOperation(task, "spawn", "branch", facts), target


def _perform(team: Team, git: Git, operation: WorkerOperation, target: TargetBranch) -> None:
    task, _, step, facts = operation
    branch, folder = facts["branch"], team.folder(task)
    match step:
        case "branch" if facts["new_branch"]:
            git.run("branch", "--no-track", branch, target.tip)
        case "worktree" if facts["new_worktree"]:
            folder.parent.mkdir(exist_ok=True)
            git.run("worktree", "add", "--quiet", str(folder), branch, seconds_max=600.0)
        case "settings":
            if facts["target"]:
                git.run("config", f"branch.{branch}.{TARGET}", facts["target"])
            prefix = git.run("rev-parse", "--show-prefix")
            guard_hooks.exclude(git, [*(f"/{prefix}{name}" for name in OF_WORKSPACE), *OF_WORKTREE])
            if facts["worktree"]:
                write_context(folder, TaskContext(task, str(team.paths.workspace), branch))
        case "guard" if facts["worktree"]:
            guard_hooks.install(git.at(folder), task, team.warn)
        case "gate":
            call_gate(team, "enable", task)


@contextmanager
def _naming(task: str, step: str) -> Iterator[None]:
    """Name the step in errors. Errors with their own code keep it."""
    try:
        yield
    except (GitFailed, OSError) as error:
        raise SpawnFailed(
            f"spawn of {task} failed at the step {step}: {error}", details={"step": step}
        ) from error
    except ApplianceError as error:
        error.message = f"spawn of {task} failed at the step {step}: {error.message}"
        error.args = (error.message,)
        error.details = {**error.details, "step": step}
        raise
