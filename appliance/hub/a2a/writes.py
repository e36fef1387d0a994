"""Cancels tasks, inside their transactions."""

from appliance.hub.a2a.queries import TaskKey, find_progress
from appliance.hub.a2a.states import CANCELED
from appliance.hub.a2a.wire import TaskNotCancelable
from appliance.hub.entries import wire as entries_wire
from appliance.hub.entries.queries import Inbox
from appliance.hub.entries.writes import decline
from appliance.kernel.batch import Tx


def cancel(tx: Tx, key: TaskKey, principal: str | None) -> None:
    """Decline the task's open entries for the agent, whose event names who did so. Raises
    TaskMissing, or TaskNotCancelable for a task that has ended."""
    _, entries, progress = find_progress(tx, key)
    if progress.ended:
        raise TaskNotCancelable(details={"task": key.topic, "state": progress.state})
    for entry in entries:
        if entry.settled_at is None:
            command = entries_wire.Decline(id=entry.id, reason=CANCELED)
            decline(tx, Inbox(key.agent, None), command, principal)
