"""Reads the hub: functions that take a Reader, each with a row limit."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.hub import events, wire
from appliance.hub.columns import ENVELOPE_COLUMNS, EVENT_COLUMNS, MESSAGE, first_since
from appliance.hub.subscription import Filter
from appliance.hub.text import parse_instant, plain_name
from appliance.kernel.meta import Executor
from appliance.kernel.page import ROW_BYTES, text_bytes
from appliance.kernel.reader import Reader
from appliance.web.frame import text_header

UNION_TERMS_MAX = 60  # with more scopes, one scan of the range is cheaper
SPLITS_MAX = 8  # slashes in CHANNEL/TITLE that may separate the two
SCANNED_EVENTS_MAX = 10_000  # comparing more events one by one makes a slow read


def facts(reader: Reader) -> dict[str, Any]:
    """Return the state for the service's start: ids, their order, the newest event."""
    meta = dict(reader.rows("SELECT key, value FROM meta", limit=100))
    newest = reader.row("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
    last_ids = [
        reader.row(f"SELECT max(id) FROM {table} WHERE id LIKE '{prefix}%'")[0]
        for table, prefix in (
            ("messages", "msg_"),
            ("topics", "topic_"),
            ("channels", "ch_"),
            ("topic_attachments", "att_"),
            ("enrichments", "enr_"),
        )
    ]
    return {
        "db_id": meta.get("db_id", ""),
        "schema_version": int(meta.get("schema_version", "1")),
        "id_order": meta.get("x_id_order", "id"),
        "head": newest[0] if newest else 0,
        "last_ids": last_ids,
    }


def index_lag(reader: Reader) -> int:
    """Count the messages that are not in the search indexes yet; 0 without an index."""
    if reader.row("SELECT 1 FROM sqlite_schema WHERE name = 'x_fts'") is None:
        return 0
    newest, indexed, changed = reader.row(
        "SELECT (SELECT max(rowid) FROM messages),"
        " min((SELECT indexed FROM x_fts), (SELECT indexed FROM x_cjk)),"
        " (SELECT count(*) FROM x_cjk_changed)"
    )
    return max(0, int(newest or 0) - int(indexed)) + int(changed)


# -- channels and topics ---------------------------------------------------------------


def channel_ids(reader: Reader, references: Sequence[str]) -> dict[str, str]:
    """Return reference → id, for references that are a channel's id or name."""
    plain = {reference: plain_name(reference) for reference in references}
    wanted = sorted({*plain, *plain.values()})
    marks = ",".join("?" * len(wanted))
    rows = reader.rows(
        f"SELECT id, name FROM channels WHERE id IN ({marks}) OR name IN ({marks})",
        (*wanted, *wanted),
        limit=2 * len(wanted) + 1,
    )
    ids = {name: id_ for id_, name in rows}
    ids.update({id_: id_ for id_, _ in rows})
    known = {reference: ids.get(reference, ids.get(plain[reference])) for reference in references}
    return {reference: id_ for reference, id_ in known.items() if id_ is not None}


def topics_named(reader: Reader, references: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return reference → (topic id, channel id), for references CHANNEL/TITLE that exist.

    Names and titles may contain `/`, so each of the first `SPLITS_MAX` is tried. If several topics
    fit, the one with the shortest channel name is meant.
    """
    topics: dict[str, tuple[str, str]] = {}
    for reference in references:
        for channel, title in _splits(reference):
            row = reader.row(
                "SELECT topics.id, channel_id FROM topics JOIN channels ON channels.id = channel_id"
                " WHERE (channels.id = ?1 OR channels.name IN (?1, ?2)) AND title IN (?3, ?4)",
                (channel, plain_name(channel), title, plain_name(title)),
            )
            if row is not None:
                topics[reference] = (row[0], row[1])
                break
    return topics


def _splits(reference: str) -> list[tuple[str, str]]:
    parts = reference.split("/", SPLITS_MAX)
    return [("/".join(parts[:n]), reference.split("/", n)[n]) for n in range(1, len(parts))]


def channels_of_topics(reader: Reader, topic_ids: Sequence[str]) -> dict[str, str]:
    """Return topic id → channel id, for the topics that exist."""
    marks = ",".join("?" * len(topic_ids))
    sql = f"SELECT id, channel_id FROM topics WHERE id IN ({marks})"
    return dict(reader.rows(sql, tuple(topic_ids), limit=len(topic_ids)))


def message(reader: Executor, message_id: str) -> wire.Message:
    """Return a message. Raises NoSuchMessage."""
    row = reader.execute(f"SELECT {MESSAGE} FROM messages WHERE id = ?", (message_id,)).fetchone()
    if row is None:
        raise wire.NoSuchMessage(details={"message_id": message_id})
    return wire.Message(*row)


def place_of_message(reader: Reader, message_id: str) -> tuple[str | None, str | None]:
    """Return a message's channel id and topic id; None without such a message."""
    row = reader.row("SELECT channel_id, topic_id FROM messages WHERE id = ?", (message_id,))
    return row or (None, None)


# -- messages ----------------------------------------------------------------------------


def page_messages(reader: Reader, query: wire.MessagesQuery, order: str) -> wire.MessageList:
    """Return a page, newest first, or with `after_id` or `since` oldest first.

    `order` is "id", or "rowid" in a workspace whose ids don't sort by creation.
    """
    conditions: list[str] = []
    parameters: list[Any] = []
    for column, value in (("channel_id", query.channel_id), ("topic_id", query.topic_id)):
        if value is not None:
            conditions.append(f"{column} = ?")
            parameters.append(value)
    for sign, field in (("<", "before_id"), (">", "after_id")):
        anchor = getattr(query, field)
        if anchor is not None:
            row = reader.row(f"SELECT {order} FROM messages WHERE id = ?", (anchor,))
            if row is None:
                raise wire.UnknownCursor(field, anchor)
            conditions.append(f"{order} {sign} ?")
            parameters.append(row[0])
    if query.since is not None:
        conditions.append(f"{order} >= ({first_since(order)})")
        parameters.append(parse_instant("since", query.since))
    direction = "DESC" if query.after_id is None and query.since is None else "ASC"
    messages, has_more = reader.page(
        f"SELECT {MESSAGE} FROM messages WHERE {' AND '.join(conditions)}"
        f" ORDER BY {order} {direction} LIMIT ?",
        (*parameters, query.limit + 1),
        limit=query.limit,
        make=lambda row: wire.Message(*row),
        size=lambda message: ROW_BYTES + text_bytes(message.content_raw),
    )
    if not messages:
        require_scope_exists(reader, query)
    return wire.MessageList(messages, has_more, messages[-1].id if messages else None)


def require_scope_exists(reader: Reader, query: wire.MessagesQuery | wire.SearchQuery) -> None:
    """Raise if the query's topic or channel doesn't exist."""
    if query.topic_id and not reader.row("SELECT 1 FROM topics WHERE id = ?", (query.topic_id,)):
        raise wire.NoSuchTopic(details={"topic_id": query.topic_id})
    if query.channel_id and not reader.row(
        "SELECT 1 FROM channels WHERE id = ?", (query.channel_id,)
    ):
        raise wire.NoSuchChannel(details={"channel_id": query.channel_id})


# -- the log -------------------------------------------------------------------------------


class EventPage(NamedTuple):
    """Events as JSON texts: all wanted ones up to `until`, or as many as the limit allows."""

    events: list[bytes]
    until: int
    has_more: bool

    def body(self) -> bytes:
        """Return the page as JSON. A page can have a megabyte, so it is copied only once."""
        more = b"true" if self.has_more else b"false"
        start, end = b'{"events":[', b'],"replay_until":%d,"has_more":%b}' % (self.until, more)
        if len(self.events) < 2:
            return b"".join((start, *self.events, end))
        first, *middle, last = self.events
        return b",".join((start + first, *middle, last + end))


def list_events(
    reader: Reader, query: wire.EventsQuery, until: int, only: frozenset[str] | None = None
) -> EventPage:
    """Return events oldest first: after a cursor, or the newest `tail`."""
    conditions = ["event_id > ?", "event_id <= ?"]
    parameters: list[Any] = [query.after, until]
    for column, value in (("name", query.name), ("scope_channel_id", query.channel_id)):
        if value is not None:
            conditions.append(f"{column} = ?")
            parameters.append(value)
    if query.topic_id is not None:
        conditions.append("(scope_topic_id = ? OR scope_topic_id2 = ?)")
        parameters += [query.topic_id, query.topic_id]
    if only is not None:
        conditions.append(f"+scope_channel_id IN ({','.join('?' * len(only))})")
        parameters += sorted(only)
    newest = query.tail is not None
    limit = query.tail if query.tail is not None else query.limit
    page, has_more = reader.page(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE {' AND '.join(conditions)}"
        f" ORDER BY event_id {'DESC' if newest else 'ASC'} LIMIT ?",
        (*parameters, limit + 1),
        limit=limit,
        make=events.row_json,
        size=len,
    )
    # Clients may take a short page for the last one, so the events must reach `replay_until`.
    if newest:
        page.reverse()
    elif has_more and len(page) < limit:
        until = int(page[-1].partition(b",")[0][len('{"event_id":') :])  # the data may not be JSON
    return EventPage(page, until, has_more)


def replay(
    reader: Reader,
    after: int,
    until: int,
    wanted: Filter | None,
    limit: int,
    bytes_max: int,
    framed: bool,
) -> tuple[bytes, int]:
    """Return the log from `after` (not included) as bytes to send, and the cursor they reach.

    At most `limit` events and about `bytes_max` bytes. The cursor is `until` when no events are
    left. `framed`: WebSocket frames; else server-sent events.
    """
    sql, parameters = replay_statement(after, until, wanted, limit)
    pieces: list[bytes] = []
    size = 0
    cursor = until
    statement = reader.execute(sql, parameters)
    for count, row in enumerate(statement, 1):
        envelope = events.envelope(*row)
        if framed:
            pieces.append(text_header(len(envelope)))
        else:
            envelope = sse_event(row[0], envelope)
        pieces.append(envelope)
        size += len(envelope)
        if size >= bytes_max or count >= limit:
            cursor = row[0]
            break
    statement.close()
    return b"".join(pieces), cursor


def replay_statement(
    after: int, until: int, wanted: Filter | None, limit: int
) -> tuple[str, list[Any]]:
    """Return the query from ADR-0003, which uses an index for every filter.

    One index seek for each scope, ordered and limited, then their union: replaying a quiet topic in
    a long log reads only its own events.
    """
    bounds = "event_id > ? AND event_id <= ?"
    end = "ORDER BY event_id ASC LIMIT ?"
    if wanted is None:
        return f"SELECT {ENVELOPE_COLUMNS} FROM events WHERE {bounds} {end}", [after, until, limit]
    terms = wanted.terms
    if not terms:
        return f"SELECT {ENVELOPE_COLUMNS} FROM events WHERE 0 LIMIT ?", [limit]
    if len(terms) > UNION_TERMS_MAX:
        return _scan_statement(wanted, f"{bounds} AND", end, [after, until], limit)
    seeks, parameters = [], []
    for column, value in terms:
        seeks.append(
            f"SELECT event_id FROM (SELECT event_id FROM events WHERE {column} = ?"
            f" AND {bounds} {end})"
        )
        parameters += [value, after, until, limit]
    return (
        f"SELECT {ENVELOPE_COLUMNS} FROM events WHERE event_id IN ({' UNION '.join(seeks)}) {end}",
        [*parameters, limit],
    )


def _scan_statement(
    wanted: Filter, bounds: str, end: str, parameters: list[Any], limit: int
) -> tuple[str, list[Any]]:
    """Return one scan over the range that compares each event with all scopes.

    IN lists, because a chain of that many ORs is too deep for SQLite. The `+` keeps SQLite from
    collecting and sorting matches by other indexes for every piece.
    """
    lists = []
    for column, ids in (
        ("scope_channel_id", wanted.channels),
        ("scope_topic_id", wanted.topics),
        ("scope_topic_id2", wanted.topics),
    ):
        lists.append(f"+{column} IN ({','.join('?' * len(ids))})")
        parameters += sorted(ids)
    return (
        f"SELECT {ENVELOPE_COLUMNS} FROM events WHERE {bounds} ({' OR '.join(lists)}) {end}",
        [*parameters, limit],
    )


def sse_event(number: int, envelope: bytes) -> bytes:
    """Make a server-sent event. The data must be one line: line ends, which other programs may
    write between JSON tokens, become spaces."""
    if b"\n" in envelope or b"\r" in envelope:
        envelope = envelope.translate(LINE_ENDS)
    return b"id: %d\ndata: %b\n\n" % (number, envelope)


LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
