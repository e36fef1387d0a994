"""Stores task reviews: one row for each review request, with the commit and the decision.

An agent never approves its own work. `transition` in `workers.py` ensures that for all its callers;
a program that writes the state directly leaves no row, and `merge` demands the row.
"""

import sqlite3
from typing import Literal, NamedTuple

from appliance.kernel.errors import Conflict

Decision = Literal["pending", "approved", "rejected"]


class OwnReview(Conflict):
    code = "OWN_REVIEW"
    default_message = "an agent can't approve its own work"
    default_hint = (
        "another agent or a person does it, in the workspace: agentlip worker approve TASK"
    )


class ReviewRow(NamedTuple):
    """`head`: the commit under review, None before the first `done`."""

    id: int
    decision: Decision
    reviewer: str | None
    comment: str | None
    head: str | None
    stops: int


def latest_review(connection: sqlite3.Connection, task: str) -> ReviewRow | None:
    row = connection.execute(
        "SELECT id, decision, reviewer, comment, head, stops FROM x_reviews"
        " WHERE task_id = ? ORDER BY id DESC LIMIT 1",
        (task,),
    ).fetchone()
    return ReviewRow(*row) if row else None


def request_review(
    connection: sqlite3.Connection, now_ms: int, task: str, head: str | None
) -> None:
    """Open a review, or name the open review's commit."""
    latest = latest_review(connection, task)
    if latest and latest.decision == "pending":
        connection.execute(
            "UPDATE x_reviews SET head = ?, requested_at_ms = ? WHERE id = ?",
            (head, now_ms, latest.id),
        )
        return
    connection.execute(
        "INSERT INTO x_reviews (task_id, decision, head, requested_at_ms)"
        " VALUES (?, 'pending', ?, ?)",
        (task, head, now_ms),
    )


def decide_review(
    connection: sqlite3.Connection,
    now_ms: int,
    task: str,
    decision: Decision,
    reviewer: str,
    comment: str | None,
    head: str | None = None,
) -> None:
    """Decide the open review; a decision after an approval gets another row. `head`: the commit,
    if the review has none."""
    latest = latest_review(connection, task)
    if latest is None or latest.decision != "pending":
        request_review(connection, now_ms, task, latest.head if latest else None)
    connection.execute(
        "UPDATE x_reviews SET decision = ?, reviewer = ?, comment = ?, decided_at_ms = ?,"
        " head = coalesce(head, ?) WHERE task_id = ? AND decision = 'pending'",
        (decision, reviewer, comment, now_ms, head, task),
    )


def approve(connection: sqlite3.Connection, now_ms: int, task: str, reviewer: str) -> None:
    """Record the approval, if the latest review is not approved. Raises OwnReview."""
    if is_agent(connection, task, reviewer, or_requested=True):
        message = f"{reviewer} works on {task}, and can't approve it"
        raise OwnReview(message, details={"task": task})
    latest = latest_review(connection, task)
    if latest is None or latest.decision != "approved":
        decide_review(connection, now_ms, task, "approved", reviewer, None)


def is_agent(
    connection: sqlite3.Connection, task: str, actor: str, *, or_requested: bool = False
) -> bool:
    """Return whether the actor works on the task, as worker or by a claim. `or_requested`: or has
    requested the review, by a message that every agent could have sent."""
    requested = connection.execute(
        "SELECT 1 FROM task_claims WHERE task_id = ?1 AND claimed_by = ?2 UNION ALL"
        " SELECT 1 FROM messages WHERE ?3 AND correlation_id = ?1 AND from_agent = ?2"
        " AND type = 'state_change'"
        " AND CASE WHEN json_valid(payload) THEN json_extract(payload, '$.to') = 'IN_REVIEW' END",
        (task, actor, or_requested),
    )
    return actor == task or requested.fetchone() is not None
