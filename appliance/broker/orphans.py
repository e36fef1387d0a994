"""The orphan check: rows whose counterpart is missing. For the loop and the doctor; it only reads.

1. A dedupe row has its message, or is marked as pruned and has a tombstone.
2. A message has its history row.
3. A delivery row has the dedupe row of its message, unless it is new.
4. A mention refers to a stored message.
"""

from typing import NamedTuple

from appliance.kernel.meta import Executor


class Orphan(NamedTuple):
    """An orphaned row: which rule it violates, for which message, and what is wrong."""

    rule: str
    broker_message_id: str
    message: str


NO_MESSAGE = (
    "NOT EXISTS (SELECT 1 FROM topic_message AS t WHERE t.id = {0})"
    " AND NOT EXISTS (SELECT 1 FROM message_queue AS q WHERE q.id = {0})"
)
RULES: tuple[tuple[str, str, str], ...] = (
    (
        "message",
        "the id is in the dedupe table, but its message is missing",
        "SELECT d.broker_message_id FROM client_message_dedupe AS d"
        " WHERE d.history_available = 1 AND " + NO_MESSAGE.format("d.broker_message_id"),
    ),
    (
        "tombstone",
        "the id is marked as pruned, but its tombstone is missing",
        "SELECT d.broker_message_id FROM client_message_dedupe AS d"
        " WHERE d.history_available = 0 AND NOT EXISTS (SELECT 1 FROM message_tombstone AS s"
        " WHERE s.broker_message_id = d.broker_message_id)",
    ),
    (
        "history",
        "the message is stored, but its history row is missing",
        "SELECT d.broker_message_id FROM client_message_dedupe AS d"
        " WHERE d.history_available = 1 AND NOT EXISTS (SELECT 1 FROM message_history AS h"
        " WHERE h.broker_message_id = d.broker_message_id)",
    ),
    (
        "delivery",
        "the delivery belongs to a message without a dedupe row",
        "SELECT v.broker_message_id FROM delivery_queue AS v WHERE v.created_ms <= ?"
        " AND NOT EXISTS (SELECT 1 FROM client_message_dedupe AS d"
        " WHERE d.broker_message_id = v.broker_message_id)",
    ),
    (
        "mention",
        "the mention refers to a message that is missing",
        "SELECT m.broker_message_id FROM mention_index AS m WHERE "
        + NO_MESSAGE.format("m.broker_message_id"),
    ),
)


def find_orphans(reader: Executor, before_ms: int, limit: int) -> list[Orphan]:
    """Return at most `limit` rows for each rule; deliveries created after `before_ms` are not
    checked."""
    orphans = []
    for rule, sentence, sql in RULES:
        parameters = (before_ms, limit) if "?" in sql else (limit,)
        rows = reader.execute(f"{sql} LIMIT ?", parameters).fetchall()
        orphans += [Orphan(rule, message_id, sentence) for (message_id,) in rows]
    return orphans
