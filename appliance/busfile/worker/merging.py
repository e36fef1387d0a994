"""Ends a task: `merge` into the integration branch, or `cancel`. Both remove the worktree."""

from appliance.busfile import reviews, workers
from appliance.busfile.worker.git import Git, GitFailed, MergeConflict
from appliance.busfile.worker.operations import (
    Team,
    WorkerOperation,
    WorkerOutcome,
    write_operation,
)
from appliance.busfile.worker.reviews import remove_gate
from appliance.busfile.worker.spawning import target_of
from appliance.busfile.workers import WorkerRow
from appliance.kernel.errors import Conflict


class UncommittedChanges(Conflict):
    code = "UNCOMMITTED_CHANGES"
    default_message = "the worktree has changes that are not committed"
    default_hint = "commit them in the worktree, or remove them; git status lists them"


class ChangedSinceApproval(Conflict):
    code = "CHANGED_SINCE_APPROVAL"
    default_message = "the branch changed after the review"
    default_hint = "agentlip worker request-changes TASK; then done and approve again"


class NotReviewed(Conflict):
    code = "NOT_REVIEWED"
    default_message = "the task is APPROVED without a review"
    default_hint = "agentlip worker request-changes TASK; then done and approve again"


def merge(team: Team, git: Git, task: str) -> WorkerOutcome:
    """Merge the approved commit. A conflict makes the task WORKING again. Raises MergeConflict."""
    row = team.worker(task)
    if row.state == "COMPLETED":
        return _finish_again(team, git, row, discard=False)
    workers.check_transition(row, "COMPLETED")
    branch, head = _check_mergeable(team, git, row)
    target = target_of(git, row.branch)
    try:
        commit = git.merge_commit(target, branch, head, f"Merge {branch}: {_subject(row)}")
    except MergeConflict as error:
        _return_to_agent(team, row, error)
        raise MergeConflict(f"{error.message}; {task} is WORKING again", error.files) from None
    facts = {"target": target._asdict(), "commit": commit, "branch": branch}
    operation = WorkerOperation(task, "merge", "begin", facts)
    team.begin(operation)
    operation = team.proceed(operation, "advance")
    try:
        git.advance(target, commit)
    except GitFailed:
        team.end(task)
        raise
    return _complete(team, git, operation)


def recover_merge(team: Team, git: Git, operation: WorkerOperation) -> None:
    """Finish a merge that has reached the integration branch; otherwise nothing has happened."""
    facts = operation.facts
    tip = git.commit_of(f"refs/heads/{facts['target']['name']}")
    if tip is None or not git.contains(tip, facts["commit"]):
        team.end(operation.task)
        return
    _complete(team, git, operation)


def cancel(team: Team, git: Git, task: str, discard: bool) -> WorkerOutcome:
    """Make the task FAILED, then remove the worktree, unless changes are uncommitted. The branch
    stays, and `spawn` continues there."""
    row = team.worker(task)
    if row.state == "FAILED":
        return _finish_again(team, git, row, discard)
    operation = WorkerOperation(task, "cancel", "worktree", {"discard": discard})
    team.reach("before FAILED")
    with team.change() as (connection, now_ms):
        workers.transition(connection, now_ms, task, row.state, "FAILED", actor=team.actor)
        payload = {"reason": f"cancelled by {team.actor}"}
        workers.announce(connection, now_ms, "task_failed", task, payload, actor=team.actor)
        write_operation(connection, now_ms, operation)
    team.reach("worktree")
    kept = clean_up(team, git, operation)
    return WorkerOutcome(task, "FAILED", True, f"{task} is FAILED{kept}")


def _complete(team: Team, git: Git, operation: WorkerOperation) -> WorkerOutcome:
    task, facts = operation.task, operation.facts
    target, commit, branch = facts["target"]["name"], facts["commit"], facts["branch"]
    operation = team.proceed(operation, "complete")
    with team.change() as (connection, now_ms):
        if workers.require_worker(connection, task).state == "APPROVED":
            workers.transition(connection, now_ms, task, "APPROVED", "COMPLETED", actor=team.actor)
            payload = {"branch": branch, "commit": commit, "into": target}
            workers.announce(connection, now_ms, "task_done", task, payload, actor=team.actor)
    operation = team.proceed(operation, "worktree")
    kept = clean_up(team, git, operation)
    message = f"{task} is COMPLETED: {branch} is merged into {target} as {commit[:12]}{kept}"
    return WorkerOutcome(task, "COMPLETED", True, message, {"commit": commit, "into": target})


def clean_up(team: Team, git: Git, operation: WorkerOperation) -> str:
    """Remove the worktree, the merged branch and the review's files. Return the remaining parts."""
    task = operation.task
    kept = _remove_worktree(team, git, task, operation.facts.get("discard", False))
    if operation.kind == "merge" and not kept:
        operation = team.proceed(operation, "branch")
        branch, commit = operation.facts["branch"], operation.facts["commit"]
        if git.commit_of(branch) and (
            not git.contains(commit, branch) or git.attempt("branch", "-D", branch).code
        ):
            kept = f"; the branch {branch} has new commits or is checked out and stays"
    team.proceed(operation, "gate")
    remove_gate(team, task)
    team.reach("before end")
    team.end(task)
    return kept


def _finish_again(team: Team, git: Git, row: WorkerRow, discard: bool) -> WorkerOutcome:
    """Finish a task that already is in its last state, with or without a worktree."""
    exists = row.worktree and team.folder(row.task).exists()
    kept = _remove_worktree(team, git, row.task, discard) if exists else ""
    return WorkerOutcome(row.task, row.state, False, f"{row.task} already is {row.state}{kept}")


def _remove_worktree(team: Team, git: Git, task: str, discard: bool) -> str:
    """Remove the worktree; return what stays, in words."""
    folder = team.folder(task)
    try:
        git.remove_worktree(folder, force=discard)
    except GitFailed:
        return f"; {folder} has uncommitted changes and stays: cancel --discard removes it"
    return ""


def check_reviewed(
    row: WorkerRow, reviewed: str | None, commit: str | None, hint: str | None = None
) -> None:
    """Raise ChangedSinceApproval if `commit`, a commit or its first digits, was not reviewed."""
    if reviewed and commit and not reviewed.startswith(commit):
        raise ChangedSinceApproval(
            f"the review for {row.task} approves commit {reviewed[:12]}, not {commit[:12]}",
            details={"task": row.task, "head": commit, "reviewed": reviewed},
            hint=hint,
        )


def _check_mergeable(team: Team, git: Git, row: WorkerRow) -> tuple[str, str]:
    """Return the branch and the commit to merge."""
    folder = team.folder(row.task)
    if folder in git.worktrees() and not git.at(folder).is_clean():
        raise UncommittedChanges(f"{folder} has changes that are not committed")
    review = reviews.latest_review(team.connection, row.task)
    head = git.commit_of(f"refs/heads/{row.branch}")
    if row.branch is None or head is None:
        raise GitFailed(f"the branch {row.branch} does not exist")
    if review is None or review.decision != "approved" or review.reviewer == row.task:
        message = f"no other agent's review approves a commit on {row.task}"
        raise NotReviewed(message, details={"task": row.task})
    check_reviewed(row, review.head or "none", head)
    return row.branch, head


def _return_to_agent(team: Team, row: WorkerRow, error: MergeConflict) -> None:
    with team.change() as (connection, now_ms):
        workers.transition(connection, now_ms, row.task, "APPROVED", "WORKING", actor=team.actor)
        reviews.decide_review(connection, now_ms, row.task, "rejected", team.actor, error.message)
        payload = {"approved": False, "comment": error.message, "files": error.files}
        workers.announce(
            connection, now_ms, "review_result", row.task, payload, actor=team.actor, to=row.task
        )


def _subject(row: WorkerRow) -> str:
    return (row.description or row.task).splitlines()[0][:72]
