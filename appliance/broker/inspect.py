"""The orphan check: rows that break the promise. For the loop, the API and the doctor; reads only.

1. A dedupe row whose message is there, or was removed: then it says so, and a tombstone does too.
2. Its history row is there as long as the message is.
3. A delivery row that is not quite new has the dedupe row of its message.
4. A mention names a message that is there.
"""

from msgspec import Struct

from appliance.kernel.auth import Executor


class Found(Struct, frozen=True):
    rule: str
    mesh: str
    broker_message_id: str
    sentence: str


NO_MESSAGE = (
    "NOT EXISTS (SELECT 1 FROM topic_message AS t WHERE t.id = {0})"
    " AND NOT EXISTS (SELECT 1 FROM message_queue AS q WHERE q.id = {0})"
)
RULES: tuple[tuple[str, str, str], ...] = (
    (
        "message",
        "an id is used up, and its message is missing",
        "SELECT d.mesh_id, d.broker_message_id FROM client_message_dedupe AS d"
        " WHERE d.history_available = 1 AND " + NO_MESSAGE.format("d.broker_message_id"),
    ),
    (
        "tombstone",
        "an id says that its message was removed, and no tombstone does",
        "SELECT d.mesh_id, d.broker_message_id FROM client_message_dedupe AS d"
        " WHERE d.history_available = 0 AND NOT EXISTS (SELECT 1 FROM message_tombstone AS s"
        " WHERE s.broker_message_id = d.broker_message_id)",
    ),
    (
        "history",
        "a message is there, and the history does not know it",
        "SELECT d.mesh_id, d.broker_message_id FROM client_message_dedupe AS d"
        " WHERE d.history_available = 1 AND NOT EXISTS (SELECT 1 FROM message_history AS h"
        " WHERE h.broker_message_id = d.broker_message_id)",
    ),
    (
        "delivery",
        "a delivery is about a message that was never accepted",
        "SELECT v.mesh_id, v.broker_message_id FROM delivery_queue AS v WHERE v.created_ms <= ?"
        " AND NOT EXISTS (SELECT 1 FROM client_message_dedupe AS d"
        " WHERE d.broker_message_id = v.broker_message_id)",
    ),
    (
        "mention",
        "a mention is of a message that is missing",
        "SELECT m.mesh_id, m.broker_message_id FROM mention_index AS m WHERE "
        + NO_MESSAGE.format("m.broker_message_id"),
    ),
)


def orphans(reader: Executor, before_ms: int, limit: int) -> list[Found]:
    """At most `limit` of each rule; deliveries younger than `before_ms` are not looked at."""
    found = []
    for rule, sentence, sql in RULES:
        parameters = (before_ms, limit) if "?" in sql else (limit,)
        rows = reader.execute(f"{sql} LIMIT ?", parameters).fetchall()
        found += [Found(rule, mesh, message_id, sentence) for mesh, message_id in rows]
    return found
