"""Reports on a task for a person: history, messages, and blockers."""

import sqlite3
from typing import Any

import msgspec

from appliance.busfile import workers
from appliance.busfile.messages import BusMessage, newest
from appliance.busfile.reviews import ReviewRow, latest_review
from appliance.busfile.worker.operations import Team, read_operation
from appliance.busfile.workers import LATE, WorkerStatus

MESSAGES_MAX = 200
WAITED_FOR = """
SELECT d.needs, w.state FROM x_dependencies d LEFT JOIN workers w ON w.task_id = d.needs
WHERE d.task_id = ? AND w.state IS NOT 'COMPLETED' ORDER BY d.needs LIMIT 20
"""


class TaskReport(msgspec.Struct, frozen=True):
    """`reason`: why the task does not go on, and the command that helps."""

    task: WorkerStatus
    reason: str
    review: dict[str, Any] | None
    transitions: list[BusMessage]
    errors: list[BusMessage]


def describe_task(team: Team, task: str) -> TaskReport:
    team.worker(task)
    (row,) = workers.status_rows(team.connection, team.clock.now_ms(), task=task)
    messages = newest(team.connection, MESSAGES_MAX, task)
    review = latest_review(team.connection, task)
    errors = [line for line in messages if line.type in ("task_failed", "task_blocked")]
    return TaskReport(
        row,
        _why_stuck(team, row, review, errors),
        review._asdict() if review else None,
        [line for line in messages if line.type == "state_change"],
        errors,
    )


def count_all(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Count tasks by state, and messages by type."""
    queries = {
        "tasks": "SELECT state, count(*) FROM workers GROUP BY state ORDER BY state",
        "messages": "SELECT type, count(*) FROM messages GROUP BY type ORDER BY type LIMIT 100",
    }
    return {name: dict(connection.execute(query).fetchall()) for name, query in queries.items()}


def _why_stuck(
    team: Team, row: WorkerStatus, review: ReviewRow | None, errors: list[BusMessage]
) -> str:
    task = row.task
    if operation := read_operation(team.connection, task):
        return f"{operation.kind} is at the step {operation.step}, or was interrupted there"
    if needs := team.connection.execute(WAITED_FOR, (task,)).fetchall():
        listed = ", ".join(f"{name} ({state or 'not spawned'})" for name, state in needs)
        return f"it needs tasks that are not COMPLETED: {listed}"
    if row.status in LATE:
        seconds = (row.age_ms if row.heartbeat_age_ms is None else row.heartbeat_age_ms) // 1000
        return (
            f"the agent sent the last heartbeat {seconds} s ago and has probably ended: start it"
            f" again, or agentlip worker cancel {task}"
        )
    last = errors[-1].payload if errors and isinstance(errors[-1].payload, dict) else {}
    match row.state:
        case "ASSIGNED":
            return "no agent has started the task: agentlip worker start, in its worktree"
        case "CONFLICTED":
            files = ", ".join(map(str, last.get("files", []))) or "its branch"
            return f"conflicts in {files}: resolve, git rebase --continue, agentlip worker done"
        case "IN_REVIEW":
            if review and review.head != team.git.commit_of(f"refs/heads/{row.branch}"):
                return f"its branch has moved since `done`: agentlip worker request-changes {task}"
            return f"it waits for a review: agentlip worker approve {task}, or request-changes"
        case "APPROVED":
            return f"it waits for the merge: agentlip worker merge {task}"
        case "FAILED":
            return f"{last.get('reason', 'it failed')}; agentlip worker spawn {task} continues it"
        case "WORKING" if row.activity == "blocked":
            return f"the agent reports that the task is blocked: agentlip worker logs {task}"
        case "WORKING" if review and review.decision == "rejected":
            return f"its agent works on requested changes: {review.comment or 'no comment'}"
    return "it is not stuck"
