"""Stores replies with their changes, so that a repeated request gets the first reply again.

Each store has a table `x_idempotency`. A row is written in the change's transaction.
"""

from typing import Any

import msgspec

from appliance.kernel.batch import Tx
from appliance.kernel.errors import KeyReused
from appliance.kernel.meta import Executor

KeyedRequest = tuple[str, str, str, str, str]  # principal, method, route, key, fingerprint


class Reply(msgspec.Struct, frozen=True):
    """A successful reply: HTTP status and body. `replayed`: it was stored by an earlier request."""

    status: int
    body: bytes
    replayed: bool = False


def call_once(identity: KeyedRequest | None, function: Any, *args: Any) -> tuple[Any, ...]:
    """Return a function for the writer and its arguments: `function`, with a key through
    `reply_once`."""
    return (function, *args) if identity is None else (reply_once, identity, function, *args)


def reply_once(tx: Tx, identity: KeyedRequest, function: Any, *args: Any) -> Reply:
    """Return the stored reply for this key, or else store the reply from `function(tx, *args)`.

    Reply and change are in one transaction. An error leaves no row, so the key can be used again.
    """
    if (reply_before := stored_reply(tx, identity)) is not None:
        return reply_before
    reply: Reply = function(tx, *args)
    tx.execute(
        "INSERT INTO x_idempotency VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*identity, reply.status, reply.body, tx.now_ms),
    )
    return reply


def stored_reply(reader: Executor, identity: KeyedRequest) -> Reply | None:
    """Return the reply stored for this key, if any. Raise KeyReused if the request was
    different."""
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


def prune_keys(tx: Tx, before_ms: int, limit: int) -> int:
    """Delete at most `limit` keys older than `before_ms`; returns how many."""
    return tx.execute(
        "DELETE FROM x_idempotency WHERE (principal, method, route, key) IN"
        " (SELECT principal, method, route, key FROM x_idempotency"
        "  WHERE created_ms < ? ORDER BY created_ms LIMIT ?)",
        (before_ms, limit),
    ).rowcount
