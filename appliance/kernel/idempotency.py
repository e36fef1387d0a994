"""Answers that are kept with the change they speak of, so that a repetition gets them again.

The table is a store's own `x_idempotency`; its row is written in the transaction of the change.
"""

from typing import Any, Protocol

from appliance.kernel.batch import Tx
from appliance.kernel.errors import KeyReused

Once = tuple[str, str, str, str, str]  # principal, method, route, key, fingerprint


class Executor(Protocol):
    """A Reader, or the writer's Tx."""

    @property
    def execute(self) -> Any: ...


class Reply:
    """A success on its way out: HTTP status and body; `replayed` if it is a repetition."""

    __slots__ = ("body", "replayed", "status")

    def __init__(self, status: int, body: bytes, replayed: bool = False) -> None:
        self.status = status
        self.body = body
        self.replayed = replayed

    def __reduce__(self) -> tuple[type["Reply"], tuple[int, bytes, bool]]:
        """Replies cross from the writer's process; this is a third of pickle's own way."""
        return Reply, (self.status, self.body, self.replayed)


def once(tx: Tx, identity: Once, function: Any, *args: Any) -> Reply:
    """`function(tx, *args)` unless this key was answered before; then that answer again.

    The answer is stored in the same transaction as the change. A refusal leaves no row,
    so it does not use up the key.
    """
    answered = known(tx, identity)
    if answered is not None:
        return answered
    reply: Reply = function(tx, *args)
    tx.execute(
        "INSERT INTO x_idempotency VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*identity, reply.status, reply.body, tx.now_ms),
    )
    return reply


def known(reader: Executor, identity: Once) -> Reply | None:
    """What was answered under this key; raises KeyReused for another request under it."""
    principal, method, route, key, fingerprint = identity
    row = reader.execute(
        "SELECT fingerprint, status, reply FROM x_idempotency"
        " WHERE principal = ? AND method = ? AND route = ? AND key = ?",
        (principal, method, route, key),
    ).fetchone()
    if row is None:
        return None
    if row[0] != fingerprint:
        raise KeyReused
    return Reply(row[1], row[2], replayed=True)


def forget_keys(tx: Tx, before_ms: int, most: int) -> int:
    """Remove at most `most` idempotency rows older than `before_ms`; how many."""
    return tx.execute(
        "DELETE FROM x_idempotency WHERE (principal, method, route, key) IN"
        " (SELECT principal, method, route, key FROM x_idempotency"
        "  WHERE created_ms < ? ORDER BY created_ms LIMIT ?)",
        (before_ms, most),
    ).rowcount
