"""Changes worker states by one transition table. Each change publishes its `state_change`.

    (new) → ASSIGNED → WORKING → IN_REVIEW → APPROVED → COMPLETED
                         ↓  ↑        ↑
                       CONFLICTED ───┘

Every state before COMPLETED can become FAILED, and FAILED becomes ASSIGNED again by `spawn`. Both
end the task's claims. STALE is not a state: `status_rows` computes it from the heartbeat's age. A
worker's id is the task's id.
"""

import itertools
import sqlite3
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from appliance.busfile import claims, heartbeats, reviews
from appliance.busfile.messages import NewMessage, publish
from appliance.kernel.errors import Conflict, Missing

State = Literal["ASSIGNED", "WORKING", "CONFLICTED", "IN_REVIEW", "APPROVED", "COMPLETED", "FAILED"]
TRANSITIONS: Mapping[State | None, tuple[State, ...]] = {
    None: ("ASSIGNED",),
    "ASSIGNED": ("WORKING", "FAILED"),
    "WORKING": ("IN_REVIEW", "CONFLICTED", "FAILED"),
    "CONFLICTED": ("IN_REVIEW", "WORKING", "FAILED"),
    "IN_REVIEW": ("APPROVED", "WORKING", "FAILED"),
    "APPROVED": ("COMPLETED", "WORKING", "FAILED"),
    "COMPLETED": (),
    "FAILED": ("ASSIGNED",),
}
JUDGED = ("WORKING", "CONFLICTED")  # only in these states an agent must have a heartbeat
REVIEWED = ("IN_REVIEW", "APPROVED", "COMPLETED")
ENDED = ("COMPLETED", "FAILED")
LATE = ("STALE", "DEAD")
ROWS_MAX = 10_000
TEXT_MAX = 700  # characters of a text in a message; the rows have the whole text
LIST_BYTES_MAX = 1_000
LAG_MAX = 1_000_000  # a reader that has ended must not stop the others' work

STATUS = f"""
SELECT w.task_id AS task, w.state, w.branch, w.worktree, w.description, w.created_at_ms,
  w.state_changed_at_ms, h.ts_ms AS beat_at_ms, h.status AS activity, h.progress, r.decision
FROM workers w
LEFT JOIN heartbeats h ON h.agent_id = w.task_id
LEFT JOIN (SELECT task_id, decision, max(id) FROM x_reviews GROUP BY task_id) r
  ON r.task_id = w.task_id
WHERE (:task IS NULL OR w.task_id = :task) AND (:state IS NULL OR w.state = :state)
ORDER BY w.created_at_ms, w.task_id LIMIT {ROWS_MAX}
"""


class InvalidTransition(Conflict):
    code = "INVALID_TRANSITION"
    default_message = "the task can't change from its state to that one"
    default_hint = "agentlip worker show TASK"


class StaleState(Conflict):
    code = "STALE_STATE"
    default_message = "another command changed the task's state meanwhile"
    default_hint = "agentlip worker show TASK; then run the same command again"


class UnknownTask(Missing):
    code = "UNKNOWN_TASK"
    default_message = "there is no worker for this task"
    default_hint = "agentlip worker list; agentlip worker spawn TASK makes one"


class WorkerRow(msgspec.Struct, frozen=True):
    task: str
    state: State
    branch: str | None
    worktree: str | None
    description: str | None


class WorkerStatus(msgspec.Struct, frozen=True):
    """A row in `agentlip worker status`. `age_ms`: since the last state change. `activity`: what
    the last heartbeat reported. `status`: what a person should notice."""

    task: str
    state: State
    status: str
    age_ms: int
    heartbeat_age_ms: int | None
    activity: str | None
    progress: float | None
    review: str | None
    branch: str | None
    worktree: str | None
    description: str | None
    created_at_ms: int
    state_changed_at_ms: int


def read_worker(connection: sqlite3.Connection, task: str) -> WorkerRow | None:
    row = connection.execute(
        "SELECT task_id, state, branch, worktree, description FROM workers WHERE task_id = ?",
        (task,),
    ).fetchone()
    return WorkerRow(*row) if row else None


def require_worker(connection: sqlite3.Connection, task: str) -> WorkerRow:
    """Return the worker. Raises UnknownTask."""
    row = read_worker(connection, task)
    if row is None:
        raise UnknownTask(f"there is no worker for the task {task}", details={"task": task})
    return row


def create(
    connection: sqlite3.Connection,
    now_ms: int,
    task: str,
    *,
    branch: str | None,
    worktree: str | None = None,
    description: str | None = None,
    actor: str,
) -> None:
    """Make a worker, or assign a failed one again. Raises InvalidTransition."""
    before = read_worker(connection, task)
    if before is None:
        connection.execute(
            "INSERT INTO workers (task_id, state, created_at_ms, state_changed_at_ms)"
            " VALUES (?, 'ASSIGNED', ?, ?)",
            (task, now_ms, now_ms),
        )
        change = {"from": None, "to": "ASSIGNED"}
        announce(connection, now_ms, "state_change", task, change, actor=actor)
    else:
        transition(connection, now_ms, task, before.state, "ASSIGNED", actor=actor)
    connection.execute(
        "UPDATE workers SET branch = ?, worktree = ?, description = coalesce(?, description)"
        " WHERE task_id = ?",
        (branch, worktree, description, task),
    )


def transition(
    connection: sqlite3.Connection,
    now_ms: int,
    task: str,
    before: State,
    after: State,
    *,
    actor: str,
) -> None:
    """Change the state, if still `before`, and publish the change in this transaction. When the
    work has ended, the claims end too. An approval is recorded as a review.

    Raises UnknownTask, StaleState, InvalidTransition and OwnReview.
    """
    row = require_worker(connection, task)
    if row.state != before:
        raise StaleState(
            f"{task} is {row.state}, not {before}: another command changed it",
            details={"task": task, "state": row.state},
        )
    check_transition(row, after)
    if after == "APPROVED":
        reviews.approve(connection, now_ms, task, actor)
    connection.execute(
        "UPDATE workers SET state = ?, state_changed_at_ms = ? WHERE task_id = ?",
        (after, now_ms, task),
    )
    if after in ENDED:
        claims.release_all(connection, task)
    change = {"from": before, "to": after}
    announce(connection, now_ms, "state_change", task, change, actor=actor)


def check_transition(row: WorkerRow, after: State, *allowed: State) -> None:
    """Raise InvalidTransition if the state can't become `after`, or a command does that only
    from the `allowed` states."""
    possible = TRANSITIONS[row.state]
    if after not in possible or row.state not in (allowed or TRANSITIONS):
        raise InvalidTransition(
            f"{row.task} is {row.state}, which can't become {after}",
            details={"task": row.task, "state": row.state, "possible": possible},
        )


def announce(
    connection: sqlite3.Connection,
    now_ms: int,
    kind: str,
    task: str,
    payload: dict[str, Any],
    *,
    actor: str,
    to: str | None = None,
) -> None:
    """Publish a message about a task; to everybody without `to`. Long texts and lists are cut,
    because a transaction's message must fit into its row."""
    limited = {name: _limit(value) for name, value in payload.items()}
    message = NewMessage(
        from_agent=actor, to_agent=to, type=kind, correlation_id=task, payload=limited
    )
    publish(connection, now_ms, message, lag_max=LAG_MAX)


def _limit(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_MAX:
        return value[:TEXT_MAX] + "…"
    if isinstance(value, list):
        lengths = itertools.accumulate(len(str(item).encode()) for item in value)
        return [
            item for item, length in zip(value, lengths, strict=True) if length < LIST_BYTES_MAX
        ]
    return value


def status_rows(
    connection: sqlite3.Connection, now_ms: int, task: str | None = None, state: str | None = None
) -> list[WorkerStatus]:
    """Return workers, the oldest first."""
    cursor = connection.execute(STATUS, {"task": task, "state": state})
    names = [column[0] for column in cursor.description]
    return [_status(dict(zip(names, row, strict=True)), now_ms) for row in cursor]


def _status(row: dict[str, Any], now_ms: int) -> WorkerStatus:
    beat_at_ms = row.pop("beat_at_ms")
    beat_age_ms = None if beat_at_ms is None else heartbeats.age_ms(now_ms, beat_at_ms)
    decision = row.pop("decision")
    age_ms = heartbeats.age_ms(now_ms, row["state_changed_at_ms"])
    level = heartbeats.level(age_ms if beat_age_ms is None else beat_age_ms)
    return WorkerStatus(
        **row,
        status=_judge(row["state"], row["activity"], level),
        age_ms=age_ms,
        heartbeat_age_ms=beat_age_ms,
        review=decision if row["state"] in REVIEWED or decision == "rejected" else None,
    )


def _judge(state: State, activity: str | None, level: str) -> str:
    """Return reasons for a person's attention. A conflict is normal work, so lateness matters
    more."""
    if state == "FAILED":
        return "error"
    if state not in JUDGED:
        return "ok"
    if level in LATE:
        return level
    return "blocked" if state == "CONFLICTED" or activity == "blocked" else level
