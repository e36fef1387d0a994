"""Messages and cursors: publish, poll, ack, and threads.

Delivery is at least once. A cursor is one number for each agent, so an ack also covers everything
before it: handle messages in order, and stop at the first failure.
"""

import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from appliance.busfile import blobs, payloads
from appliance.busfile.blobs import BLOB_BYTES_MAX, INLINE_BYTES_MAX
from appliance.busfile.retention import LAG_MAX, check_lag
from appliance.kernel.blank import is_printable
from appliance.kernel.errors import Conflict, Invalid, PayloadTooLarge

POLL_MAX = 100  # messages (specification)
POLL_BYTES_MAX = 4 * 1024 * 1024  # other programs may store large payloads in the row
CHAIN_MAX = 100
NAME_LENGTH_MAX = 256
COLUMNS = (
    "messages.seq, id, ts_ms, from_agent, to_agent, type, correlation_id, in_reply_to, payload,"
    " payload_ref, (SELECT traceparent FROM x_traces AS t WHERE t.seq = messages.seq)"
)


class MessageIdReused(Conflict):
    code = "BUS_MESSAGE_ID_REUSED"
    default_message = "the id belongs to a message with other content"
    default_hint = "use a new id for a new message, and the same content for a retry"


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to publish. `payload` is any JSON value; without `to_agent` all agents get it."""

    from_agent: str
    type: str
    to_agent: str | None = None
    correlation_id: str | None = None
    in_reply_to: str | None = None
    payload: Any = None
    payload_ref: str | None = None
    traceparent: str | None = None
    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))


class Published(msgspec.Struct, frozen=True):
    """`duplicate`: the same message had been published before."""

    seq: int
    id: str
    duplicate: bool = False


class BusMessage(msgspec.Struct, frozen=True):
    """A delivered message, in the table's column order.

    payload_error  blob_missing, or decode_failed if it is not JSON; `payload` is then its text
    """

    seq: int
    id: str
    ts_ms: int
    from_agent: str
    to_agent: str | None
    type: str
    correlation_id: str | None = None
    in_reply_to: str | None = None
    payload: Any = None
    payload_ref: str | None = None
    payload_error: str | None = None
    traceparent: str | None = None


def with_blob(folder: Path, message: NewMessage) -> NewMessage:
    """Return the message to publish: a large payload is in a blob afterwards.

    Call it before the transaction. A blob whose message is never published is an orphan.
    """
    payloads.typed_payload(message.type, message.payload)  # raises Invalid
    text = _encode(message.payload)
    if text is None:
        return message
    if len(text) <= INLINE_BYTES_MAX:
        return msgspec.structs.replace(message, payload=msgspec.Raw(text))
    if len(text) > BLOB_BYTES_MAX:
        raise PayloadTooLarge(
            f"the payload has {len(text):,} bytes; the limit is {BLOB_BYTES_MAX:,}",
            hint="write a file in the workspace, and send its path",
        )
    ref = blobs.save(folder, text)
    return msgspec.structs.replace(message, payload=None, payload_ref=ref)


def publish(
    connection: sqlite3.Connection, now_ms: int, message: NewMessage, *, lag_max: int = LAG_MAX
) -> Published:
    """Add the message. A repetition with an equal id and content is harmless.

    Raises MessageIdReused, AgentLags if `lag_max` messages wait for a live agent that would get
    this one, and PayloadTooLarge for a payload that `with_blob` has to store first.
    """
    _check_names(message)
    text = _encode(message.payload)
    if text is not None and len(text) > INLINE_BYTES_MAX:
        raise PayloadTooLarge(f"a payload above {INLINE_BYTES_MAX:,} bytes has to be a blob")
    stored = text.decode() if text is not None else None
    query = f"SELECT {COLUMNS} FROM messages WHERE id = ?"
    if row := connection.execute(query, (message.id,)).fetchone():
        return _accept_again(to_message(row), message, stored)
    seq = connection.execute(
        "INSERT INTO messages (id, ts_ms, from_agent, to_agent, type, correlation_id, in_reply_to,"
        " payload, payload_ref) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (message.id, now_ms, message.from_agent, message.to_agent, message.type,
         message.correlation_id, message.in_reply_to, stored, message.payload_ref),
    ).lastrowid  # fmt: skip
    assert seq is not None
    if message.traceparent is not None:
        connection.execute("INSERT INTO x_traces VALUES (?, ?)", (seq, message.traceparent))
    check_lag(connection, now_ms, message.to_agent, seq, lag_max)
    return Published(seq, message.id)


def _accept_again(present: BusMessage, message: NewMessage, stored: str | None) -> Published:
    for name in ("from_agent", "to_agent", "type", "correlation_id", "in_reply_to", "payload_ref"):
        if getattr(present, name) != getattr(message, name):
            raise MessageIdReused(f"message {message.id} has another {name}")
    if present.payload != _payload(stored)[0]:
        raise MessageIdReused(f"message {message.id} has another payload")
    return Published(present.seq, message.id, duplicate=True)


def poll(
    connection: sqlite3.Connection,
    folder: Path,
    agent: str | None,
    limit: int = POLL_MAX,
    bytes_max: int = POLL_BYTES_MAX,
    after: int | None = None,
) -> list[BusMessage]:
    """Return the agent's next messages behind `after` (its cursor), oldest first. The cursor
    stays. Without an agent, return all messages.

    The messages end before a payload would exceed `bytes_max`, including blobs, but at least one
    message is returned if any.
    """
    if after is None:
        after = cursor(connection, agent) if agent is not None else 0
    # One index search for each: a search with OR reads the messages to all other agents too.
    conditions = ("true",) if agent is None else ("to_agent IS NULL", "to_agent = ?2")
    query = " UNION ALL ".join(
        f"SELECT * FROM (SELECT {COLUMNS} FROM messages WHERE {condition} AND seq > ?1"
        " ORDER BY seq LIMIT ?3)"
        for condition in conditions
    )
    values = (after, agent, min(limit, POLL_MAX))
    messages: list[BusMessage] = []
    for row in connection.execute(f"{query} ORDER BY seq LIMIT ?3", values):
        message = to_message(row)
        ref = message.payload_ref
        bytes_max -= blobs.size(folder, ref) if ref is not None else len(row[8] or "")
        if messages and bytes_max < 0:
            break
        messages.append(with_payload(folder, message))
    return messages


def with_payload(folder: Path, message: BusMessage) -> BusMessage:
    """Return the message with its blob's payload."""
    if message.payload_ref is None or message.payload is not None:
        return message
    content = blobs.load(folder, message.payload_ref)
    if content is None:
        return msgspec.structs.replace(message, payload_error="blob_missing")
    payload, error = _payload(content.decode("utf-8", "replace"))
    return msgspec.structs.replace(message, payload=payload, payload_error=error)


def ack(connection: sqlite3.Connection, now_ms: int, agent: str, seq: int) -> int:
    """Advance the agent's cursor, which never goes back. Return the position.

    Raises Invalid for a number that no message has had: later messages would be skipped.
    """
    check_name("agent", agent)
    if not 0 <= seq <= head(connection):
        raise Invalid(f"no message has the number {seq}; the last one is {head(connection)}")
    rows = connection.execute(
        "INSERT INTO cursors (agent_id, last_acked_seq, updated_at_ms) VALUES (?, ?, ?)"
        " ON CONFLICT (agent_id) DO UPDATE SET"
        " last_acked_seq = max(cursors.last_acked_seq, excluded.last_acked_seq),"
        " updated_at_ms = excluded.updated_at_ms RETURNING last_acked_seq",
        (agent, seq, now_ms),
    )
    return int(rows.fetchall()[0][0])


def reply_chain(connection: sqlite3.Connection, id_: str) -> list[BusMessage]:
    """Return the message and its chain of earlier messages, oldest first, from the last pruned one
    on."""
    rows = connection.execute(
        "WITH RECURSIVE chain (id, depth) AS (SELECT ?, 0 UNION"
        " SELECT m.in_reply_to, depth + 1 FROM chain JOIN messages m USING (id)"
        " WHERE m.in_reply_to IS NOT NULL AND depth < ?)"
        f" SELECT {COLUMNS} FROM (SELECT id, min(depth) AS depth FROM chain GROUP BY id)"
        " JOIN messages USING (id) ORDER BY depth DESC",
        (id_, CHAIN_MAX - 1),
    )
    return [to_message(row) for row in rows]


def newest(
    connection: sqlite3.Connection, limit: int, correlation_id: str | None = None
) -> list[BusMessage]:
    """Return the last messages, whoever they are for, oldest first; with a correlation, messages
    about a task."""
    condition = "true" if correlation_id is None else "correlation_id = :task"
    query = f"SELECT {COLUMNS} FROM messages WHERE {condition} ORDER BY seq DESC LIMIT :limit"
    rows = connection.execute(query, {"task": correlation_id, "limit": limit})
    return [to_message(row) for row in rows][::-1]


def cursor(connection: sqlite3.Connection, agent: str) -> int:
    """Return the number of the last message that the agent has acked; 0 if there is none."""
    query = "SELECT last_acked_seq FROM cursors WHERE agent_id = ?"
    row = connection.execute(query, (agent,)).fetchone()
    return int(row[0]) if row else 0


def head(connection: sqlite3.Connection) -> int:
    """Return the number of the newest message that was ever published."""
    query = "SELECT seq FROM sqlite_sequence WHERE name = 'messages'"
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def to_message(row: Sequence[Any]) -> BusMessage:
    payload, error = _payload(row[8])
    return BusMessage(*(*row[:8], payload, row[9], error, row[10]))


def _payload(text: str | None) -> tuple[Any, str | None]:
    """Return (payload, payload_error)."""
    try:
        return (msgspec.json.decode(text) if text is not None else None), None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text, "decode_failed"


def _encode(payload: Any) -> bytes | None:
    try:
        return None if payload is None else msgspec.json.encode(payload)
    except (TypeError, ValueError, RecursionError, UnicodeError) as error:
        raise Invalid(f"the payload has no JSON form: {error}") from None


def _check_names(message: NewMessage) -> None:
    for name in ("from_agent", "type", "id", "to_agent", "correlation_id", "in_reply_to"):
        if (value := getattr(message, name)) is not None:
            check_name(name, value)


def check_name(kind: str, name: str) -> str:
    """Return an agent, task or type name: printable text with limited length. Raises Invalid."""
    if not (0 < len(name) <= NAME_LENGTH_MAX and is_printable(name) and name == name.strip()):
        raise Invalid(
            f"{kind}: 1 to {NAME_LENGTH_MAX} printable characters, without spaces around them",
        )
    return name
