"""Reads topic states, pins, changed topics, and the parts of a catch-up, each with a row limit."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from appliance.hub import wire as hub_wire
from appliance.hub.catchup import wire
from appliance.hub.catchup.budget import argument, excerpt
from appliance.hub.catchup.wire import CatchUpItem, CatchUpPart
from appliance.hub.columns import message_columns
from appliance.hub.queries import SCANNED_EVENTS_MAX
from appliance.kernel.clock import iso
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader, snapshot

ITEMS_MAX = 500  # items that one part has; one more is read to see whether there are others
SORTED_MAX = 2000  # the oldest entries, which are sorted by urgency
SINCE_MAX = 1000  # events after a handoff note among which messages are counted
TEXT_MAX = 1500  # longer than the longest line
_ONLY = "(SELECT value FROM json_each(:only))"
_MESSAGE = message_columns("m")
_STATE = (
    "SELECT t.id, t.channel_id, t.title, ifnull(s.resolved, 0), s.note, s.changed_by, s.changed_at,"
    " s.handoff, s.handoff_by, s.handoff_at, s.handoff_event, s.handoff_version"
    " FROM topics AS t LEFT JOIN x_topic_states AS s ON s.topic_id = t.id WHERE t.id = ?"
)
_SINCE = (
    "SELECT count(*) FROM (SELECT name FROM events WHERE scope_topic_id = ? AND event_id > ?"
    f" ORDER BY event_id LIMIT {SINCE_MAX}) WHERE name = 'message.created'"
)
# CROSS JOIN: SQLite keeps this order, and reads no message without a pin.
_PIN = "SELECT message_id, channel_id, pinned_by, pinned_at FROM x_pins WHERE message_id = ?"
_PINS = (
    f"SELECT p.message_id, p.channel_id, p.pinned_by, p.pinned_at, {_MESSAGE}"
    " FROM x_pins AS p CROSS JOIN messages AS m ON m.id = p.message_id WHERE m.deleted_at IS NULL"
    " AND (:channel IS NULL OR p.channel_id = :channel)"
    f" AND (:only IS NULL OR p.channel_id IN {_ONLY}) ORDER BY p.number DESC LIMIT :rows"
)
_QUESTIONS = f"""SELECT id, asker, due_steady_ms,
    (SELECT group_concat(value, ' / ') FROM json_each(choices_json)), substr(text, 1, {TEXT_MAX})
FROM x_asks WHERE state = 'waiting' AND (:only IS NULL OR channel_id IN {_ONLY})
AND (:name IN (SELECT value FROM json_each(may_answer_json)) OR (may_answer_json = '[]'
    AND :answers AND (:answer_only IS NULL
    OR channel_id IN (SELECT value FROM json_each(:answer_only)))))
ORDER BY due_steady_ms IS NULL, due_steady_ms, id LIMIT :rows"""
_ENTRIES = f"""SELECT e.id, m.sender, e.due_steady_ms, e.overdue_at,
    substr(m.content_raw, 1, {TEXT_MAX}), m.topic_id
FROM (SELECT * FROM x_entries WHERE name = :name AND settled_at IS NULL
    AND (:only IS NULL OR channel_id IN {_ONLY}) ORDER BY position LIMIT {SORTED_MAX}) AS e
JOIN messages AS m ON m.id = e.message_id
ORDER BY e.overdue_at IS NULL, e.due_steady_ms IS NULL, e.due_steady_ms, e.position LIMIT :rows"""
_PINNED = f"""SELECT p.message_id, p.pinned_by, substr(m.content_raw, 1, {TEXT_MAX}), c.name,
    t.title
FROM x_pins AS p CROSS JOIN messages AS m ON m.id = p.message_id
CROSS JOIN topics AS t ON t.id = m.topic_id CROSS JOIN channels AS c ON c.id = m.channel_id
WHERE m.deleted_at IS NULL AND (:only IS NULL OR p.channel_id IN {_ONLY})
ORDER BY p.number DESC LIMIT :rows"""
# An event is about one topic, or about two when messages moved. Findings of plugins and what
# readers do with their inboxes don't change a topic.
_TOPICS = f"""WITH log AS MATERIALIZED (
    SELECT event_id, name, scope_topic_id, scope_topic_id2 FROM events
    WHERE event_id > :after AND event_id <= :until
    AND (:only IS NULL OR +scope_channel_id IN {_ONLY})
    AND (name GLOB 'message.*' OR name GLOB 'topic.*') AND name <> 'message.enriched'
), changed AS (
    SELECT topic_id, sum(name = 'message.created') AS messages, count(*) AS events,
    max(event_id) AS last_event FROM (
        SELECT event_id, name, scope_topic_id AS topic_id FROM log
        UNION ALL SELECT event_id, name, scope_topic_id2 FROM log WHERE scope_topic_id2 <> '')
    GROUP BY topic_id ORDER BY last_event DESC)
SELECT c.topic_id, h.name, t.title, c.messages, c.events - c.messages, c.last_event,
    CASE s.resolved WHEN 1 THEN substr(s.note, 1, {TEXT_MAX}) END,
    substr(s.handoff, 1, {TEXT_MAX}), s.handoff_version, s.handoff_by, s.handoff_event
FROM changed AS c JOIN topics AS t ON t.id = c.topic_id JOIN channels AS h ON h.id = t.channel_id
LEFT JOIN x_topic_states AS s ON s.topic_id = c.topic_id ORDER BY c.last_event DESC LIMIT :rows"""


Line = Callable[[Any, "LineStyle"], str]
"""Makes the line for a row whose first column is the item's id."""


class Caller(NamedTuple):
    """Whose catch-up, and what the caller may see. `only`: its channels as JSON; None: all.
    `answers`: whether it may answer asks; `answer_only`: in these channels."""

    name: str
    only: str | None
    answers: bool
    answer_only: str | None


class LineStyle(NamedTuple):
    """`bytes_max`: how long a line may be. `ahead_ms`: how far the wall clock is ahead of
    the steady clock."""

    bytes_max: int
    ahead_ms: int

    def part(
        self, name: wire.PartName, rows: Sequence[Any], line: Line, command: str, bound: bool
    ) -> CatchUpPart:
        """Return a part with an item for each row, and `is_bound` if there may be others."""
        items = [
            CatchUpItem(str(row[0]), excerpt(line(row, self), self.bytes_max))
            for row in rows[:ITEMS_MAX]
        ]
        more = max(0, len(rows) - ITEMS_MAX)
        return CatchUpPart(name, items, more, command, bound or more > 0)

    def by(self, due_steady_ms: int | None) -> str:
        return "" if due_steady_ms is None else f", by {iso(due_steady_ms + self.ahead_ms)[:16]}Z"


def state_of(reader: Executor, topic_id: str) -> wire.TopicState:
    """Return a topic's state. Raises NoSuchTopic."""
    row = reader.execute(_STATE, (topic_id,)).fetchone()
    if row is None:
        raise hub_wire.NoSuchTopic(details={"topic_id": topic_id})
    handoff = None if row[7] is None else wire.Handoff(*row[7:])
    id_, channel_id, title, resolved, note, changed_by, changed_at = row[:7]
    return wire.TopicState(
        id_, channel_id, title, bool(resolved), note, changed_by, changed_at, handoff
    )


def show_state(reader: Reader, topic_id: str) -> wire.TopicStateShown:
    state = state_of(reader, topic_id)
    after = 0 if state.handoff is None else state.handoff.up_to_event
    (count,) = reader.row(_SINCE, (topic_id, after))
    return wire.TopicStateShown(state, count)


def pin_of(reader: Executor, message_id: str) -> wire.Pin | None:
    row = reader.execute(_PIN, (message_id,)).fetchone()
    return None if row is None else wire.Pin(*row)


def pins(reader: Reader, channel_id: str | None, only: str | None, limit: int) -> wire.PinList:
    page, has_more = reader.page(
        _PINS,
        {"channel": channel_id, "only": only, "rows": limit + 1},
        limit=limit,
        make=lambda row: wire.PinnedMessage(wire.Pin(*row[:4]), hub_wire.Message(*row[4:])),
        size=lambda pinned: ROW_BYTES + text_bytes(pinned.message.content_raw),
    )
    return wire.PinList(page, has_more)


def head(reader: Executor) -> int:
    newest: int | None = reader.execute("SELECT max(event_id) FROM events").fetchone()[0]
    return newest or 0


def parts(
    reader: Reader, caller: Caller, since: int, style: LineStyle
) -> tuple[int, list[CatchUpPart]]:
    """Return the newest event and the parts that the hub stores, from one state of the database:
    an event is in this catch-up or after `next`, never between."""

    def part(
        name: wire.PartName, sql: str, line: Line, command: str, *, bound: bool = False
    ) -> CatchUpPart:
        rows = reader.rows(sql, values, limit=ITEMS_MAX + 1)
        return style.part(name, rows, line, command, bound)

    with snapshot(reader.connection):
        newest = head(reader)
        after = max(since, newest - SCANNED_EVENTS_MAX)
        values = {**caller._asdict(), "after": after, "until": newest, "rows": ITEMS_MAX + 1}
        log = f"agentlip listen --since {since} --until-event {newest}"
        inbox = f"agentlip inbox mine{argument(caller.name)}"
        return newest, [
            part("questions", _QUESTIONS, _question, "agentlip ask list --state waiting"),
            part("entries", _ENTRIES, _entry, inbox),
            part("pins", _PINNED, _pin_line, "agentlip msg pins"),
            part("topics", _TOPICS, _topic, log, bound=after > since),
        ]


def _question(row: Any, style: LineStyle) -> str:
    id_, asker, due, choices, text = row
    among = f" ({choices})" if choices else ""
    return f"{id_}{style.by(due)}, {asker} asks: {text}{among}"


def _entry(row: Any, style: LineStyle) -> str:
    id_, sender, due, overdue_at, text, topic_id = row
    late = f", overdue since {overdue_at[:16]}Z" if overdue_at else style.by(due)
    return f"{id_} in {topic_id}{late}, from {sender}: {text}"


def _pin_line(row: Any, _style: LineStyle) -> str:
    id_, pinned_by, text, channel, title = row
    return f"{id_} in {channel}/{title}, pinned by {pinned_by}: {text}"


def _topic(row: Any, style: LineStyle) -> str:
    id_, channel, title, messages, changes, last, note, handoff, version, author, up_to = row
    line = f"{id_} {channel}/{title}: {messages} messages, {changes} changes, last event {last}"
    if note is not None:
        line += f"; resolved: {excerpt(note, style.bytes_max // 4)}"
    if handoff is not None:
        line += f"; handoff {version} by {author} up to event {up_to}: {handoff}"
    return line
