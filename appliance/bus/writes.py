"""Write functions of the worker bus: `appliance/busfile` on the connection of the writer.

Clients of the file run the same functions on connections of their own.
"""

from typing import Any

import msgspec

from appliance.bus.wire import BusItem
from appliance.busfile import claims, heartbeats, messages, retention, workers
from appliance.busfile.claims import BusClaim
from appliance.busfile.messages import BusMessage, NewMessage, Published
from appliance.busfile.workers import State


def publish(tx: Any, message: NewMessage) -> Published:
    published = messages.publish(tx, tx.now_ms, message)
    if not published.duplicate:
        _announce_after(tx, published.seq - 1)
    return published


def ack(tx: Any, agent: str, seq: int) -> int:
    return messages.ack(tx, tx.now_ms, agent, seq)


def claim(tx: Any, task: str, agent: str, lease_ms: int) -> BusClaim:
    return claims.claim(tx, tx.now_ms, task, agent, lease_ms)


def renew(tx: Any, task: str, agent: str, fence: int | None, lease_ms: int) -> BusClaim:
    return claims.renew(tx, tx.now_ms, task, agent, fence, lease_ms)


def release(tx: Any, task: str, agent: str, fence: int | None) -> bool:
    return claims.release(tx, task, agent, fence)


def complete(tx: Any, message: NewMessage, fence: int) -> Published:
    """task_done of a claimed task, and the end of its claim."""
    task = message.correlation_id or ""
    claims.require(tx, task, message.from_agent, fence, tx.now_ms)
    published = publish(tx, message)
    claims.release(tx, task, message.from_agent, fence)
    return published


def beat(tx: Any, agent: str, status: str, task: str | None, progress: float | None) -> int:
    heartbeats.beat(tx, tx.now_ms, agent, status, task, progress)
    return int(tx.now_ms)


def change_state(tx: Any, task: str, before: State, after: State, actor: str) -> None:
    head = messages.head(tx)
    workers.transition(tx, tx.now_ms, task, before, after, actor=actor)
    _announce_after(tx, head)


def prune(tx: Any, older_than_ms: int) -> int:
    return retention.prune(tx, tx.now_ms, older_than_ms)


def _announce_after(tx: Any, seq: int) -> None:
    for message in messages.after(tx, seq):
        tx.publish(to_item(message))


def to_item(message: BusMessage) -> BusItem:
    return BusItem(message.seq, msgspec.json.encode(message), message.to_agent)
