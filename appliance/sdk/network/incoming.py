"""Hands over other agents' messages, each once: a message's claim is stored before the handler
runs, and the end afterwards. The sender gets a success only then, so a message comes again after a
failed handler or a killed process.
"""

from typing import Any

import msgspec
from msgspec import Struct

from appliance.kernel.clock import DAY_MS
from appliance.kernel.errors import Unavailable
from appliance.network.envelope import OpenedMessage
from appliance.sdk.network.state import AgentState

LEASE_MS = 60_000  # a handler that takes longer may run twice
KEPT_MS = 30 * DAY_MS
KEPT_MAX = 10_000


class MessageBeingHandled(Unavailable):
    code = "MESSAGE_BEING_HANDLED"
    default_message = "the recipient is handling this message"
    default_hint = "send it again in a minute if no success comes"


class StoredMessage(Struct, frozen=True, rename="camel"):
    """`number` rises with each arrival, so it is a cursor for readers."""

    number: int
    sender: str
    message_id: str
    timestamp: str
    at_ms: int
    payload: dict[str, Any]
    group_id: str | None = None


class IncomingMessages:
    def __init__(self, state: AgentState) -> None:
        self._state = state

    def claim(self, message: OpenedMessage, now_ms: int) -> bool:
        """Claim a message; return False if it was handed over before. Raises
        MessageBeingHandled."""
        with self._state.transaction() as tx:
            claimed = tx.execute(
                "INSERT INTO incoming (sender, id, at_ms, claimed_until_ms, timestamp, group_id)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (sender, id) DO UPDATE"
                " SET claimed_until_ms = excluded.claimed_until_ms"
                " WHERE claimed_until_ms <= excluded.at_ms",
                (message.sender, message.message_id, now_ms, now_ms + LEASE_MS, message.timestamp,
                 message.group_id),
            ).rowcount  # fmt: skip
            if claimed:
                return True
            (until,) = tx.execute(
                "SELECT claimed_until_ms FROM incoming WHERE sender = ? AND id = ?",
                (message.sender, message.message_id),
            ).fetchone()
        if until is not None:
            raise MessageBeingHandled(retry_after=LEASE_MS / 1000)
        return False

    def release_all(self) -> None:
        """Release the messages that a process was handling when it was killed."""
        with self._state.transaction() as tx:
            tx.execute(
                "UPDATE incoming SET claimed_until_ms = 0 WHERE claimed_until_ms IS NOT NULL"
            )

    def release(self, message: OpenedMessage) -> None:
        """Release a message whose handler failed."""
        self._end(message, 0, None)

    def finish(self, message: OpenedMessage, now_ms: int, *, keep: bool) -> None:
        """Finish a message that was handed over. `keep`: its payload, for `messages`."""
        payload = msgspec.json.encode(message.payload).decode() if keep else None
        self._end(message, None, payload)
        with self._state.transaction() as tx:
            tx.execute(
                "DELETE FROM incoming WHERE at_ms < ? OR number <="
                " (SELECT max(number) FROM incoming) - ?",
                (now_ms - KEPT_MS, KEPT_MAX),
            )

    def messages(self, after: int, limit: int) -> list[StoredMessage]:
        """Return messages that no handler took, oldest first."""
        with self._state.transaction() as tx:
            rows = tx.execute(
                "SELECT number, sender, id, timestamp, at_ms, payload, group_id FROM incoming"
                " WHERE number > ? AND payload IS NOT NULL ORDER BY number LIMIT ?",
                (after, limit),
            ).fetchall()
        return [
            StoredMessage(
                number, sender, message_id, timestamp, at_ms, msgspec.json.decode(payload), group_id
            )
            for number, sender, message_id, timestamp, at_ms, payload, group_id in rows
        ]

    def _end(self, message: OpenedMessage, until_ms: int | None, payload: str | None) -> None:
        with self._state.transaction() as tx:
            tx.execute(
                "UPDATE incoming SET claimed_until_ms = ?, payload = ? WHERE sender = ? AND id = ?",
                (until_ms, payload, message.sender, message.message_id),
            )
