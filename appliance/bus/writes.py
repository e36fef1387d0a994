"""Write functions of the worker bus: `appliance/busfile` on the connection of the writer.

Clients of the file run the same functions on connections of their own.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from appliance.bus.wire import BusItem
from appliance.busfile import claims, messages, workers
from appliance.busfile.messages import BusMessage, NewMessage, Published
from appliance.busfile.workers import State


def now(tx: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls `function(tx, now_ms, …)`."""
    return function(tx, tx.now_ms, *arguments)


def publish(tx: Any, message: NewMessage) -> Published:
    published = messages.publish(tx, tx.now_ms, message)
    if not published.duplicate:
        _announce_after(tx, published.seq - 1)
    return published


def complete(tx: Any, message: NewMessage, fence: int) -> Published:
    """task_done of a claimed task, and the end of its claim."""
    task = message.correlation_id or ""
    claims.require(tx, task, message.from_agent, fence, tx.now_ms)
    published = publish(tx, message)
    claims.release(tx, task, message.from_agent, fence)
    return published


def change_state(tx: Any, task: str, before: State, after: State, actor: str) -> None:
    head = messages.head(tx)
    workers.transition(tx, tx.now_ms, task, before, after, actor=actor)
    _announce_after(tx, head)


def _announce_after(tx: Any, seq: int) -> None:
    for message in messages.after(tx, seq):
        tx.publish(to_item(message))


def to_item(message: BusMessage) -> BusItem:
    data, large = msgspec.json.encode(message), message.payload_ref is not None
    return BusItem(message.seq, data, message.to_agent, large)
