"""Derives a task's state from the entries of its messages. Pure.

    entry         task
    stored        submitted: the agent has not read it
    listed        working: the agent has it
    acknowledged  completed, once all are; the agent's messages are the artifacts
    declined      rejected with the reason, or canceled by the caller
    overdue       failed, even if the agent acknowledges it later

An ask that waits for the caller makes it input-required. A task that ended stays as it ended: a
message that was posted later is not a part.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from appliance.hub.a2a.wire import TaskState

CANCELED = "canceled by the caller"
"""The reason with which a canceled task's entries are declined."""

SUBMITTED: TaskState = "TASK_STATE_SUBMITTED"
INPUT_REQUIRED: TaskState = "TASK_STATE_INPUT_REQUIRED"
FINAL: frozenset[TaskState] = frozenset({
    "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED",
})  # fmt: skip


class TaskEntry(NamedTuple):
    """An entry's part of its task's state."""

    id: int
    state: str
    stored_at: str
    listed_at: str | None
    settled_at: str | None
    declined_because: str | None
    overdue_at: str | None

    @property
    def failed_at(self) -> str | None:
        """Return when the deadline passed; None: the agent settled the entry before."""
        if self.overdue_at is None or (self.settled_at or "~") < self.overdue_at:
            return None
        return self.overdue_at

    @property
    def changed_at(self) -> str:
        return self.failed_at or self.settled_at or self.listed_at or self.stored_at


class Progress(NamedTuple):
    """A task's state, since when, and why. `question`: an ask's id if it waits for the caller."""

    state: TaskState
    since: str
    reason: str | None = None
    question: str | None = None

    @property
    def ended(self) -> bool:
        return self.state in FINAL

    @property
    def paused(self) -> bool:
        """Return whether a caller that waits has to do something."""
        return self.ended or self.state == INPUT_REQUIRED


def progress_of(entries: Sequence[TaskEntry], question: tuple[str, str, str] | None) -> Progress:
    """Return the state. `question`: (id, text, time) of an ask that waits for the caller."""
    part = _until_end(entries)
    state, reason = _state_of(part)
    if question is not None and state not in FINAL:
        ask_id, text, since = question
        return Progress(INPUT_REQUIRED, since, text, ask_id)
    return Progress(state, max(entry.changed_at for entry in part), reason)


def _until_end(entries: Iterable[TaskEntry]) -> list[TaskEntry]:
    part: list[TaskEntry] = []
    for entry in entries:
        if part and _state_of(part)[0] in FINAL and _end(part) < entry.stored_at:
            break
        part.append(entry)
    return part


def _end(entries: Sequence[TaskEntry]) -> str:
    return max(entry.changed_at for entry in entries)


def _state_of(entries: Sequence[TaskEntry]) -> tuple[TaskState, str | None]:
    for entry in entries:
        if entry.failed_at is not None:
            return "TASK_STATE_FAILED", "the agent did not acknowledge the message in time"
        if entry.declined_because == CANCELED:
            return "TASK_STATE_CANCELED", None
        if entry.declined_because is not None:
            return "TASK_STATE_REJECTED", entry.declined_because
    if all(entry.state == "acknowledged" for entry in entries):
        return "TASK_STATE_COMPLETED", None
    is_new = all(entry.state == "stored" for entry in entries)
    return (SUBMITTED if is_new else "TASK_STATE_WORKING"), None
