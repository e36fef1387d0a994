"""Writes the worker bus: `appliance/busfile` on the writer's connection.

File clients run the same functions on their own connections.
"""

from collections.abc import Callable
from typing import Any

from appliance.bus.wire import BusItem, StateNotAllowed
from appliance.busfile import claims, messages, reviews, workers
from appliance.busfile.messages import NewMessage, Published
from appliance.busfile.workers import State

DECIDED = ("APPROVED", "COMPLETED")


def now(tx: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function(tx, now_ms, …)`."""
    return function(tx, tx.now_ms, *arguments)


def publish(tx: Any, message: NewMessage) -> Published:
    published = messages.publish(tx, tx.now_ms, message)
    if not published.duplicate:
        tx.publish(BusItem(published.seq, message.to_agent))
    return published


def complete(tx: Any, message: NewMessage, fence: int) -> Published:
    """Publish task_done for a claimed task, and end its claim."""
    task = message.correlation_id or ""
    claims.require(tx, task, message.from_agent, fence, tx.now_ms)
    published = publish(tx, message)
    claims.release(tx, task, message.from_agent, fence)
    return published


def change_state(
    tx: Any, task: str, before: State, after: State, actor: str, may_decide: bool
) -> None:
    """Change a worker's state. `may_decide`: the caller may decide about others' work."""
    may_change = may_decide or (after not in DECIDED and reviews.is_agent(tx, task, actor))
    if not may_change and workers.require_worker(tx, task).state == before:
        raise StateNotAllowed
    workers.transition(tx, tx.now_ms, task, before, after, actor=actor)
    tx.publish(BusItem(messages.head(tx), None))
