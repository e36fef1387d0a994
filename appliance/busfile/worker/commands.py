"""Implements the worker commands. Each is idempotent: a repetition succeeds and reports so. All but
`heartbeat` lock the task and first recover a killed command's work.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from appliance.busfile import heartbeats, reviews, workers
from appliance.busfile.file import BusPaths
from appliance.busfile.worker import guard, merging, spawning
from appliance.busfile.worker.git import FileStatus, Git, GitFailed
from appliance.busfile.worker.merging import UncommittedChanges
from appliance.busfile.worker.operations import (
    Kind,
    Recovery,
    Team,
    WorkerOperation,
    WorkerOutcome,
    remove_operation,
)
from appliance.busfile.worker.reviews import call_gate
from appliance.busfile.worker.spawning import SpawnOptions, target_of
from appliance.busfile.workers import State, WorkerRow
from appliance.kernel.clock import Clock
from appliance.kernel.errors import Conflict

ORCHESTRATOR = "orchestrator"
Decided = Literal["approved", "rejected"]


class RebaseConflict(Conflict):
    code = "REBASE_CONFLICT"
    default_message = "the rebase has conflicts, which the agent resolves"
    default_hint = (
        "resolve the files, git add them, git rebase --continue, then agentlip worker done"
    )


class RebaseRequired(Conflict):
    code = "REBASE_REQUIRED"
    default_message = "the branch does not contain the integration branch"
    default_hint = "agentlip worker done, without --skip-rebase"


class WrongBranch(Conflict):
    code = "WRONG_BRANCH"
    default_message = "the folder has another branch than the task"
    default_hint = "git switch to the task's branch: agentlip worker show TASK"


def ignore(text: str) -> None:
    """Do nothing, for callers that print no warnings."""
    del text


def open_team(
    paths: BusPaths,
    connection: sqlite3.Connection,
    clock: Clock,
    actor: str = ORCHESTRATOR,
    warn: Callable[[str], None] = ignore,
    reach: Callable[[str], None] = ignore,
) -> Team:
    recoveries: dict[Kind, Recovery] = {
        "spawn": spawning.undo_spawn,
        "done": recover_done,
        "merge": merging.recover_merge,
        "cancel": merging.clean_up,
    }
    return Team(paths, connection, clock, actor, recoveries, warn, reach)


def spawn(team: Team, task: str, options: SpawnOptions) -> WorkerOutcome:
    with team.lock(task) as git:
        return spawning.spawn(team, git, task, options)


def merge(team: Team, task: str) -> WorkerOutcome:
    with team.lock(task) as git:
        return merging.merge(team, git, task)


def cancel(team: Team, task: str, discard: bool = False) -> WorkerOutcome:
    with team.lock(task) as git:
        return merging.cancel(team, git, task, discard)


def heartbeat(
    team: Team, task: str, status: str = "working", progress: float | None = None
) -> WorkerOutcome:
    row = team.worker(task)
    with team.change() as (connection, now_ms):
        heartbeats.beat(connection, now_ms, task, status, task, progress)
    return WorkerOutcome(task, row.state, True, f"{task}: {status}")


def start(team: Team, task: str) -> WorkerOutcome:
    """Start work. The heartbeat comes first, so that a task that has become WORKING is not late."""
    heartbeat(team, task)
    with team.lock(task) as git:
        row = team.worker(task)
        if row.state == "WORKING":
            return WorkerOutcome(task, row.state, False, f"{task} already is WORKING")
        if row.state == "CONFLICTED" and (here := _checkout(team, git, row)).is_rebasing():
            raise _conflict(here.status(), row, "a rebase is in progress")
        with team.change() as (connection, now_ms):
            workers.check_transition(row, "WORKING", "ASSIGNED", "CONFLICTED")
            workers.transition(connection, now_ms, task, row.state, "WORKING", actor=task)
            workers.announce(
                connection, now_ms, "agent_started", task, {"branch": row.branch}, actor=task
            )
        return WorkerOutcome(task, "WORKING", True, f"{task} is WORKING on {row.branch}")


def done(
    team: Team, task: str, *, skip_rebase: bool = False, folder: Path | None = None
) -> WorkerOutcome:
    """Rebase, then request the review. A conflict leaves the rebase in progress.

    `folder`: a checkout for a task without a worktree. Raises RebaseConflict.
    """
    with team.lock(task) as git:
        row = team.worker(task)
        if row.state == "IN_REVIEW":
            return WorkerOutcome(task, row.state, False, f"{task} already is IN_REVIEW")
        workers.check_transition(row, "IN_REVIEW")
        here = _checkout(team, git, row, folder)
        _check_checkout(team, here, row)
        target = target_of(git, row.branch)
        if not here.contains("HEAD", target.tip):
            if not skip_rebase:
                _rebase(team, here, row, target.tip)
            elif row.state != "CONFLICTED":
                raise RebaseRequired(f"{row.branch} does not contain {target.name}")
        work = here.names("diff", f"{target.tip}...HEAD")  # also by commands that run no hooks
        guard.report_paths(team, task, work, "done")
        return _request_review(team, here, row, target.name)


def recover_done(team: Team, git: Git, operation: WorkerOperation) -> None:
    """Recover: a rebase with conflicts is kept for the agent; an interrupted one is aborted."""
    row = team.worker(operation.task)
    here = git.at(Path(operation.facts["folder"]))
    if not (here.folder.is_dir() and here.is_rebasing()):
        team.end(operation.task)
    elif (status := here.status()).unmerged:
        _report_conflict(team, row, status)
    else:
        here.run("rebase", "--abort")
        team.end(operation.task)


def fail(team: Team, task: str, reason: str) -> WorkerOutcome:
    """Fail the task. The branch and the worktree stay, and a later spawn continues them."""
    with team.lock(task):
        row = team.worker(task)
        if row.state == "FAILED":
            return WorkerOutcome(task, row.state, False, f"{task} already is FAILED")
        with team.change() as (connection, now_ms):
            workers.transition(connection, now_ms, task, row.state, "FAILED", actor=task)
            payload = {"reason": reason}
            workers.announce(connection, now_ms, "task_failed", task, payload, actor=task)
        return WorkerOutcome(task, "FAILED", True, f"{task} is FAILED: {reason}")


def approve(
    team: Team, task: str, comment: str | None = None, head: str | None = None
) -> WorkerOutcome:
    """Approve a task. `head`: the commit that was looked at, or its first digits. Raises
    ChangedSinceApproval if another one is under review, or the branch has moved since."""
    return _decide(team, task, "approved", comment, head)


def request_changes(
    team: Team, task: str, comment: str | None = None, head: str | None = None
) -> WorkerOutcome:
    return _decide(team, task, "rejected", comment, head)


def _decide(
    team: Team, task: str, decision: Decided, comment: str | None, head: str | None
) -> WorkerOutcome:
    """Decide a review. The gate's program comes first: if it refuses, nothing has changed."""
    after: State = "APPROVED" if decision == "approved" else "WORKING"
    with team.lock(task) as git:
        row = team.worker(task)
        review = reviews.latest_review(team.connection, task)
        tip = git.commit_of(f"refs/heads/{row.branch}")
        reviewed = (review and review.head) or tip
        merging.check_reviewed(row, reviewed, head, f"git show {reviewed}")
        if row.state == after and review and review.decision == decision:
            return WorkerOutcome(task, after, False, f"{task} already is {after}")
        workers.check_transition(row, after, "IN_REVIEW", "APPROVED")
        if after == "APPROVED":
            merging.check_reviewed(row, reviewed, tip)
        call_gate(team, "approve" if after == "APPROVED" else "reject", task, comment)
        with team.change() as (connection, now_ms):
            reviews.decide_review(connection, now_ms, task, decision, team.actor, comment, reviewed)
            workers.transition(connection, now_ms, task, row.state, after, actor=team.actor)
            payload = {"approved": decision == "approved", "comment": comment}
            workers.announce(
                connection, now_ms, "review_result", task, payload, actor=team.actor, to=task
            )
        return WorkerOutcome(task, after, True, f"{task} is {after}: {decision} by {team.actor}")


# -- steps for done ------------------------------------------------------------------------------


def _checkout(team: Team, git: Git, row: WorkerRow, folder: Path | None = None) -> Git:
    """Return where the task's branch is checked out. Raises WrongBranch."""
    path = team.folder(row.task) if row.worktree else git.at(folder or git.folder).top()
    if not path.is_dir():
        raise WrongBranch(f"the worktree {path} does not exist", hint="git worktree list")
    here = git.at(path)
    if (branch := here.branch()) != row.branch:
        message = f"{path} has the branch {branch}, and the task has {row.branch}"
        raise WrongBranch(message, details={"task": row.task})
    return here


def _check_checkout(team: Team, here: Git, row: WorkerRow) -> None:
    """Refuse a rebase in progress and changes that are not committed."""
    status = here.status()
    if here.is_rebasing():
        if row.state == "WORKING":
            _report_conflict(team, row, status)
        raise _conflict(status, row, "a rebase is in progress")
    if status.changed or status.unmerged:
        files = status.unmerged + status.changed
        raise UncommittedChanges(
            f"not committed: {', '.join(files[:10])}", details={"files": files}
        )


def _rebase(team: Team, here: Git, row: WorkerRow, onto: str) -> None:
    operation = WorkerOperation(row.task, "done", "begin", {"folder": str(here.folder)})
    team.begin(operation)
    team.proceed(operation, "rebase")
    try:
        status = here.rebase(onto)
    except GitFailed:
        team.end(row.task)
        raise
    team.reach("after rebase")
    if here.is_rebasing():
        _report_conflict(team, row, status)
        raise _conflict(status, row, "the rebase has conflicts")


def _report_conflict(team: Team, row: WorkerRow, status: FileStatus) -> None:
    with team.change() as (connection, now_ms):
        if row.state == "WORKING":
            workers.transition(
                connection, now_ms, row.task, "WORKING", "CONFLICTED", actor=row.task
            )
        payload = {"reason": "rebase conflicts", "files": status.unmerged}
        workers.announce(connection, now_ms, "task_blocked", row.task, payload, actor=row.task)
        remove_operation(connection, row.task)


def _request_review(team: Team, here: Git, row: WorkerRow, base: str) -> WorkerOutcome:
    head = here.run("rev-parse", "HEAD")
    team.reach("before IN_REVIEW")
    with team.change() as (connection, now_ms):
        workers.transition(connection, now_ms, row.task, row.state, "IN_REVIEW", actor=row.task)
        reviews.request_review(connection, now_ms, row.task, head)
        payload = {"branch": row.branch, "commit": head, "base": base}
        workers.announce(connection, now_ms, "review_request", row.task, payload, actor=row.task)
        remove_operation(connection, row.task)
    message = f"{row.task} is IN_REVIEW: {row.branch} at {head[:12]}, on {base}"
    return WorkerOutcome(row.task, "IN_REVIEW", True, message, payload)


def _conflict(status: FileStatus, row: WorkerRow, reason: str) -> RebaseConflict:
    files = status.unmerged
    where = f" in {', '.join(files)}" if files else "; no file is left to resolve"
    return RebaseConflict(
        f"{row.task} is CONFLICTED: {reason}{where}",
        details={"files": files, "state": "CONFLICTED"},
        hint=None if files else "git rebase --continue, then agentlip worker done",
    )
