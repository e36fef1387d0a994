"""Messages that wait for their recipient, with the delivery attempts.

    pending ⇄ sending → delivered
        ├→ expired  one hour after it was sent
        └→ failed   the recipient refused it for good

Attempts are made at once and after 10, 40 and 130 seconds. Then the message waits until the
recipient's presence changes. A process that ends during an attempt leaves the message `sending`,
and it is tried again when the lease ends: the recipient drops a repeated message.
"""

import sqlite3
import uuid
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from appliance.kernel.clock import HOUR_MS
from appliance.kernel.errors import Exhausted, Invalid, Missing
from appliance.network.envelope import TYPES
from appliance.sdk.network.state import AgentState

PENDING_MAX, REPORTS_MAX = 100, 500
GROUP_PENDING_MAX = 500  # messages to members, at most 90 MB
ATTEMPTS_KEPT_MAX = 100  # in the report of a message that waits elsewhere; the newest
EXPIRY_MS = HOUR_MS
DELAYS_MS = (10_000, 30_000, 90_000)
WATCH_MS = 60_000  # between two checks whether the recipient is present, after the last delay
LEASE_MS = 60_000  # longer than an attempt takes
PAYLOAD_BYTES_MAX = 180_000  # in base64, with all fields, an envelope has fewer than 262,144

SendStatus = Literal["pending", "sending", "delivered", "expired", "failed"]
_COLUMNS = (
    "id, recipient, type, payload, status, created_ms, due_ms, attempts, receipt_ms, group_id,"
    " shared_id"
)


class NetworkQueueFull(Exhausted):
    code = "NETWORK_QUEUE_FULL"
    default_message = "too many messages from this agent wait for their recipients"
    default_hint = "agentlip network report; wait until some are delivered or expire"


class NetworkMessageTooLarge(Invalid):
    code = "MESSAGE_TOO_LARGE"
    default_message = f"the message has more than {PAYLOAD_BYTES_MAX:,} bytes"
    default_hint = "send a shorter text, or a link"


class NoSuchReport(Missing):
    default_message = "there is no report for this message"
    default_hint = "agentlip network report"


class SendAttempt(Struct, frozen=True, rename="camel"):
    """`problem`: why it was not delivered. `presence`: online, offline or unknown. `tlsMs`: how
    long the TLS handshake took; None without one."""

    at_ms: int
    presence: str
    last_seen: str | None = None
    endpoint: str | None = None
    http_status: int | None = None
    milliseconds: int = 0
    problem: str | None = None
    final: bool = False
    tls_ms: int | None = None


class SendReport(Struct, frozen=True, rename="camel"):
    """`receiptMs`: when the recipient confirmed that it has processed the message. `sharedId`: the
    message id that all the group's members get; None for messages to one agent."""

    message_id: str
    recipient: str
    type: TYPES
    status: SendStatus
    created_ms: int
    due_ms: int
    attempts: list[SendAttempt]
    receipt_ms: int | None = None
    group_id: str | None = None
    shared_id: str | None = None

    @property
    def was_tried_enough(self) -> bool:
        """Return whether only a change in the recipient's presence makes another attempt useful."""
        return len(self.attempts) > len(DELAYS_MS)


class ClaimedMessage(Struct, frozen=True):
    report: SendReport
    payload: dict[str, Any]


class OutgoingMessages:
    def __init__(self, state: AgentState) -> None:
        self._state = state

    def add(
        self, recipient: str, payload: dict[str, Any], kind: TYPES, now_ms: int, lease_ms: int = 0
    ) -> str:
        """Return the message's id, leased to a caller that delivers. Raises NetworkQueueFull and
        NetworkMessageTooLarge."""
        text = _encode(payload)
        with self._state.transaction() as tx:
            _check_room(tx, 1, PENDING_MAX, in_group=False)
            message_id = _insert(tx, recipient, kind, text, now_ms, lease_ms)
            _prune(tx)
        return message_id

    def add_for_group(
        self, group_id: str, recipients: Sequence[str], payload: dict[str, Any], now_ms: int
    ) -> list[str]:
        """Add a message to each recipient, all with one shared id, leased to a caller that
        delivers. Return the ids. Raises NetworkQueueFull and NetworkMessageTooLarge."""
        text = _encode(payload)
        group = (group_id, str(uuid.uuid4()))
        with self._state.transaction() as tx:
            _check_room(tx, len(recipients), GROUP_PENDING_MAX, in_group=True)
            ids = [_insert(tx, name, "group", text, now_ms, LEASE_MS, group) for name in recipients]
            _prune(tx)
        return ids

    def claim(self, now_ms: int) -> ClaimedMessage | None:
        """Return the message that is due first, leased to the caller."""
        with self._state.transaction() as tx:
            row = tx.execute(
                f"SELECT {_COLUMNS} FROM outgoing WHERE status IN ('pending', 'sending')"
                " AND due_ms <= ? AND payload IS NOT NULL ORDER BY due_ms LIMIT 1",
                (now_ms,),
            ).fetchone()
            if row is None:
                return None
            tx.execute(
                "UPDATE outgoing SET status = 'sending', due_ms = ? WHERE id = ?",
                (now_ms + LEASE_MS, row[0]),
            )
        return ClaimedMessage(_report(row), msgspec.json.decode(row[3]))

    def record(self, report: SendReport, attempt: SendAttempt | None, now_ms: int) -> SendReport:
        """Return the report after an attempt; None: it was not tried, because nothing had
        changed."""
        attempts = [*report.attempts, attempt] if attempt else report.attempts
        status, due_ms = _following(report.created_ms, attempts, attempt, now_ms)
        with self._state.transaction() as tx:
            tx.execute(
                "UPDATE outgoing SET status = ?, due_ms = ?, attempts = ?,"
                " payload = CASE WHEN ? = 'pending' THEN payload END WHERE id = ?",
                (
                    status, due_ms, msgspec.json.encode(attempts).decode(), status,
                    report.message_id,
                ),
            )  # fmt: skip
        return msgspec.structs.replace(report, status=status, due_ms=due_ms, attempts=attempts)

    def note_attempt(
        self, message_id: str, recipient: str, attempt: SendAttempt, created_ms: int
    ) -> None:
        """Report an attempt by a caller with its own queue. A row without payload never waits
        here, and counts as a report."""
        with self._state.transaction() as tx:
            row = tx.execute("SELECT attempts FROM outgoing WHERE id = ?", (message_id,)).fetchone()
            before = msgspec.json.decode(row[0], type=list[SendAttempt]) if row else []
            attempts = [*before, attempt][-ATTEMPTS_KEPT_MAX:]
            status, due_ms = _following(created_ms, attempts, attempt, attempt.at_ms)
            tx.execute(
                "INSERT INTO outgoing (id, recipient, type, status, created_ms, due_ms, attempts)"
                " VALUES (?, ?, 'direct', ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
                " status = excluded.status, due_ms = excluded.due_ms, attempts = excluded.attempts",
                (
                    message_id, recipient, status, created_ms, due_ms,
                    msgspec.json.encode(attempts).decode(),
                ),
            )  # fmt: skip
            _prune(tx)

    def note_receipt(self, message_id: str, recipient: str, now_ms: int) -> bool:
        """Return whether this is the first receipt for a message that was sent to this agent."""
        with self._state.transaction() as tx:
            return bool(
                tx.execute(
                    "UPDATE outgoing SET receipt_ms = ?1 WHERE (id = ?2 OR shared_id = ?2)"
                    " AND recipient = ?3 AND receipt_ms IS NULL",
                    (now_ms, message_id, recipient),
                ).rowcount
            )

    def report(self, message_id: str) -> SendReport:
        """Return a report. Raises NoSuchReport."""
        with self._state.transaction() as tx:
            row = tx.execute(
                f"SELECT {_COLUMNS} FROM outgoing WHERE id = ?", (message_id,)
            ).fetchone()
        if row is None:
            raise NoSuchReport
        return _report(row)

    def reports(self, limit: int = REPORTS_MAX) -> list[SendReport]:
        """Return reports, newest first."""
        with self._state.transaction() as tx:
            rows = tx.execute(
                f"SELECT {_COLUMNS} FROM outgoing ORDER BY number DESC LIMIT ?", (limit,)
            ).fetchall()
        return [_report(row) for row in rows]


def _encode(payload: dict[str, Any]) -> str:
    text = msgspec.json.encode(payload)
    if len(text) > PAYLOAD_BYTES_MAX:
        raise NetworkMessageTooLarge
    return text.decode()


def _check_room(tx: sqlite3.Connection, added: int, waiting_max: int, *, in_group: bool) -> None:
    (waiting,) = tx.execute(
        "SELECT count(*) FROM outgoing WHERE payload IS NOT NULL AND (group_id IS NOT NULL) = ?",
        (in_group,),
    ).fetchone()
    if waiting + added > waiting_max:
        raise NetworkQueueFull(f"{waiting} messages from this agent wait for their recipients")


def _insert(
    tx: sqlite3.Connection,
    recipient: str,
    kind: TYPES,
    text: str,
    now_ms: int,
    lease_ms: int,
    group: tuple[str | None, str | None] = (None, None),
) -> str:
    """Insert a message; `group`: the group's id and the shared id. Return the message's id."""
    message_id = str(uuid.uuid4())
    tx.execute(
        "INSERT INTO outgoing (id, recipient, type, payload, status, created_ms, due_ms,"
        " attempts, group_id, shared_id) VALUES (?, ?, ?, ?, 'pending', ?, ?, '[]', ?, ?)",
        (message_id, recipient, kind, text, now_ms, now_ms + lease_ms, *group),
    )
    return message_id


def _prune(tx: sqlite3.Connection) -> None:
    """Delete old reports. A message that waits in this queue has a payload."""
    tx.execute(
        "DELETE FROM outgoing WHERE payload IS NULL AND number <"
        " (SELECT max(number) FROM outgoing) - ?",
        (REPORTS_MAX,),
    )


def _following(
    created_ms: int, attempts: list[SendAttempt], attempt: SendAttempt | None, now_ms: int
) -> tuple[SendStatus, int]:
    """Return the next attempt's status and time."""
    if attempt is not None and attempt.problem is None:
        return "delivered", now_ms
    if attempt is not None and attempt.final:
        return "failed", now_ms
    expires_ms = created_ms + EXPIRY_MS
    if now_ms >= expires_ms:
        return "expired", now_ms
    delays = dict(enumerate(DELAYS_MS, 1))
    return "pending", min(now_ms + delays.get(len(attempts), WATCH_MS), expires_ms)


def _report(row: tuple[Any, ...]) -> SendReport:
    message_id, recipient, kind, _, status, created_ms, due_ms, attempts, *more = row
    decoded = msgspec.json.decode(attempts, type=list[SendAttempt])
    return SendReport(message_id, recipient, kind, status, created_ms, due_ms, decoded, *more)
