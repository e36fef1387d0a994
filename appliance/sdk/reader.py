"""Stateless reads from a workspace's database, without a hub and without writing.

Another process may write at the same time; each query sees one snapshot. Queries are limited in
rows and seconds. Close the connection soon: an open reader prevents checkpoints of the
write-ahead log.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from appliance.hub import foreign_schema, fulltext
from appliance.hub.columns import ATTACHMENT, CHANNEL, STORED_MESSAGE, TOPIC
from appliance.hub.search_query import parse
from appliance.hub.text import plain_name
from appliance.hub.wire import NoSuchChannel, NoSuchMessage, NoSuchTopic, UnknownCursor
from appliance.kernel.clock import Clock, SystemClock
from appliance.kernel.errors import ApplianceError, Invalid, Unavailable
from appliance.kernel.readlimit import ReadLimit, ReadStopped, is_interrupt
from appliance.sdk.closing import Closing

SCHEMA_VERSION = 1  # the tables in hub spec §3.1; the tables named x_… have no version
BUSY_TIMEOUT_SECONDS = 5.0
QUERY_SECONDS_MAX = 30.0
ROWS_MAX = 1000
PAGE_BYTES_MAX = 16 * 1024 * 1024  # messages per search

PRINCIPALS = "x_message_principals"  # missing in workspaces that another program created
Row = dict[str, Any]


class DatabaseUnreadable(Unavailable):
    code = "DATABASE_UNREADABLE"
    default_message = "the workspace's database cannot be read"
    default_hint = "agentlip doctor"


class SchemaUnknown(Unavailable):
    code = "SCHEMA_UNKNOWN"
    default_message = "this program does not know the database schema"
    default_hint = "upgrade agentlip"


class QueryTooLong(Unavailable):
    code = "QUERY_TOO_LONG"
    default_message = f"the query took longer than {QUERY_SECONDS_MAX:.0f} s and was stopped"
    default_hint = "search a topic instead of a channel, or use a smaller --limit"


class BadLimit(Invalid):
    default_message = "--limit must be a positive integer"
    default_hint = "for instance --limit 50"


class WorkspaceReader(Closing):
    """One open database, read-only. Use as a context manager, and close soon."""

    def __init__(self, database: Path, clock: Clock | None = None) -> None:
        self._database = database
        self._limit = ReadLimit(clock or SystemClock(), QUERY_SECONDS_MAX, PAGE_BYTES_MAX)
        with _readable_errors(database):
            self._connection = open_database(database)
            self._limit.watch(self._connection)
        try:
            with _readable_errors(database):
                meta = dict(self._connection.execute("SELECT key, value FROM meta LIMIT 100"))
                exists = "SELECT 1 FROM sqlite_schema WHERE name = ?"
                principals = self._connection.execute(exists, (PRINCIPALS,)).fetchone()
            _check_schema(meta)
            with _readable_errors(database):
                self._order = foreign_schema.id_order(self._connection)
        except BaseException:
            self._connection.close()
            raise
        self.db_id: str = meta.get("db_id", "")
        self._has_principals = principals is not None

    def close(self) -> None:
        self._connection.close()

    def channels(self, limit: int = ROWS_MAX) -> list[Row]:
        query = f"SELECT {CHANNEL} FROM channels ORDER BY name LIMIT ?"
        return self._rows(query, (_rows_max(limit),))

    def channel(self, name_or_id: str) -> Row:
        query = f"SELECT {CHANNEL} FROM channels WHERE id = ?1 OR name IN (?1, ?2)"
        names = (name_or_id, plain_name(name_or_id))
        missing = NoSuchChannel(f"channel not found: {_short(name_or_id)}")
        return self._fetch(f"{query} ORDER BY id <> ?1, name <> ?1 LIMIT 1", names, missing)

    def topics(self, channel: str, limit: int = ROWS_MAX) -> list[Row]:
        """Return a channel's topics (by name or id), the most recently used first."""
        query = (
            f"SELECT {TOPIC} FROM topics WHERE channel_id = ?"
            f" ORDER BY updated_at DESC, {self._order} DESC LIMIT ?"
        )
        return self._rows(query, (self.channel(channel)["id"], _rows_max(limit)))

    def topic(self, topic_id: str) -> Row:
        """Return a topic by id or CHANNEL/TITLE."""
        channel, slash, title = topic_id.partition("/")
        if slash:
            return self.topic_titled(channel, title)
        missing = NoSuchTopic(f"topic not found: {_short(topic_id)}")
        return self._fetch(f"SELECT {TOPIC} FROM topics WHERE id = ? LIMIT 1", (topic_id,), missing)

    def topic_titled(self, channel: str, title: str) -> Row:
        channel_id = self.channel(channel)["id"]
        query = f"SELECT {TOPIC} FROM topics WHERE channel_id = ? AND title IN (?, ?) LIMIT 1"
        hint = f"agentlip topic list --channel {channel}"
        missing = NoSuchTopic(f"topic not found: {_short(title)}", hint=hint)
        return self._fetch(query, (channel_id, title, plain_name(title)), missing)

    def message(self, message_id: str) -> Row:
        query = f"SELECT {self._message('messages')} FROM messages WHERE id = ? LIMIT 1"
        missing = NoSuchMessage(f"message not found: {_short(message_id)}")
        return self._fetch(query, (message_id,), missing)

    def messages(
        self,
        topic_id: str,
        limit: int = 50,
        before_id: str | None = None,
        after_id: str | None = None,
    ) -> list[Row]:
        """Return a topic's messages: the newest ones, or those before or after a message.

        Newest first, or oldest first with `after_id`. Continuing from a page's last row never skips
        or repeats a message. The hub's HTTP API does so too.
        """
        rows_max = _rows_max(limit)
        where, parameters = ["topic_id = ?"], [self.topic(topic_id)["id"]]
        for sign, name, message_id in (("<", "before", before_id), (">", "after", after_id)):
            if message_id is not None:
                where.append(f"{self._order} {sign} ?")
                anchor = f"SELECT {self._order} AS place FROM messages WHERE id = ? LIMIT 1"
                parameters.append(self._anchor(f"{name}_id", anchor, message_id)["place"])
        direction = "DESC" if after_id is None else "ASC"
        query = (
            f"SELECT {self._message('messages')} FROM messages WHERE {' AND '.join(where)}"
            f" ORDER BY {self._order} {direction} LIMIT ?"
        )
        return self._rows(query, (*parameters, rows_max))

    def attachments(
        self,
        topic_id: str,
        kind: str | None = None,
        limit: int = ROWS_MAX,
        before_id: str | None = None,
    ) -> list[Row]:
        """Return a topic's attachments, newest first, from below `before_id`."""
        topic_id = self.topic(topic_id)["id"]
        where, parameters = ["topic_id = ?"], [topic_id]
        if kind is not None:
            where.append("kind = ?")
            parameters.append(kind)
        if before_id is not None:
            anchor = "SELECT created_at, id FROM topic_attachments WHERE id = ? LIMIT 1"
            where.append("(created_at, id) < (?, ?)")
            parameters += self._anchor("before_id", anchor, before_id).values()
        query = (
            f"SELECT {ATTACHMENT} FROM topic_attachments WHERE {' AND '.join(where)}"
            " ORDER BY created_at DESC, id DESC LIMIT ?"
        )
        rows = self._rows(query, (*parameters, _rows_max(limit)))
        for row in rows:
            row["value_json"] = msgspec.json.decode(row["value_json"])
        return rows

    def search(
        self,
        words: str,
        *,
        channel: str | None = None,
        topic_id: str | None = None,
        sender: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Row:
        """Return messages that match the words: `messages` with snippets, `fts_used`,
        `has_more`.

        The hub's HTTP API returns the same. Times are ISO 8601; `after` is inclusive, `before` is
        exclusive.
        """
        query = parse(words)
        where = fulltext.conditions(
            None if channel is None else self.channel(channel)["id"],
            None if topic_id is None else self.topic(topic_id)["id"],
            sender,
            after,
            before,
        )
        self._limit.start()
        with _readable_errors(self._database):
            columns, rows_max = self._message("m"), _rows_max(limit)
            hits = fulltext.find(self._connection, query, columns, where, rows_max, self._limit)
        messages = [
            dict(zip([*STORED_MESSAGE, "principal", "snippet"], [*row, snippet], strict=True))
            for row, snippet in zip(hits.rows, hits.snippets, strict=True)
        ]
        return {"messages": messages, "fts_used": hits.fts_used, "has_more": hits.has_more}

    def counts(self) -> Row:
        """Return numbers for a status line, read from index ends."""
        query = (
            "SELECT (SELECT COALESCE(MAX(event_id), 0) FROM events) AS last_event_id,"
            " (SELECT COALESCE(MAX(rowid), 0) FROM messages) AS messages,"
            " (SELECT COUNT(*) FROM channels) AS channels LIMIT 1"
        )
        return self._rows(query, ())[0]

    def _message(self, table: str) -> str:
        """Return a message's columns in `table`."""
        principal = f"(SELECT principal FROM {PRINCIPALS} WHERE message_id = {table}.id)"
        stored = ", ".join(f"{table}.{name}" for name in STORED_MESSAGE)
        return f"{stored}, {principal if self._has_principals else 'NULL'} AS principal"

    def _anchor(self, field: str, query: str, id_: str) -> Row:
        """Return the row that a page continues from. Raises UnknownCursor."""
        return self._fetch(query, (id_,), UnknownCursor(field, id_))

    def _fetch(self, query: str, parameters: Sequence[Any], missing: ApplianceError) -> Row:
        """Return the first row. Raises `missing` if there is none."""
        rows = self._rows(query, parameters)
        if not rows:
            raise missing
        return rows[0]

    def _rows(self, query: str, parameters: Sequence[Any]) -> list[Row]:
        self._limit.start()
        with _readable_errors(self._database):
            cursor = self._connection.execute(query, parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]


def open_database(database: Path) -> sqlite3.Connection:
    """Open a read-only connection, with or without a running hub."""
    try:
        return _connect(database, "mode=ro")
    except sqlite3.OperationalError:
        # Reading a WAL database needs the -shm file, which cannot be created on a read-only medium.
        # With an empty log, the database file alone is complete.
        log = database.with_name(database.name + "-wal")
        if not database.exists() or (log.exists() and log.stat().st_size > 0):
            raise
        return _connect(database, "mode=ro&immutable=1")


def read_column(database: Path, sql: str) -> list[str]:
    """Return a query's first column; nothing if the database can't be read."""
    with suppress(sqlite3.Error), closing(open_database(database)) as connection:
        return [row[0] for row in connection.execute(sql)]
    return []


def _connect(database: Path, options: str) -> sqlite3.Connection:
    if database.exists() and not database.is_file():
        raise sqlite3.OperationalError("not a file")  # opening a FIFO would not end
    connection = sqlite3.connect(
        f"file:{quote(str(database))}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_SECONDS,
        isolation_level=None,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _check_schema(meta: dict[str, str]) -> None:
    version = meta.get("schema_version", "")
    if version != str(SCHEMA_VERSION):
        raise SchemaUnknown(
            f"the database has schema version {_short(version) or 'unknown'};"
            f" this program knows {SCHEMA_VERSION}",
            details={"found": version, "known": SCHEMA_VERSION},
        )


@contextmanager
def _readable_errors(database: Path) -> Iterator[None]:
    """Convert SQLite errors. The path may be shown: it is the caller's own file."""
    try:
        yield
    except ReadStopped:
        raise QueryTooLong from None
    except sqlite3.Error as error:
        if is_interrupt(error):
            raise QueryTooLong from None
        raise DatabaseUnreadable(f"cannot read {database}: {error}") from None


def _rows_max(limit: int) -> int:
    if limit < 1:
        raise BadLimit
    return min(limit, ROWS_MAX)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
