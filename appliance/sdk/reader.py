"""Stateless reads from a workspace's database, without a hub and without writing.

Another process may write at the same time; each query sees one snapshot. Queries are limited in
rows and seconds. Close the connection soon: an open reader prevents checkpoints of the
write-ahead log.
"""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from appliance.hub import foreign_schema
from appliance.hub.columns import ATTACHMENT, CHANNEL, STORED_MESSAGE, TOPIC, first_since
from appliance.hub.text import parse_instant, plain_name
from appliance.hub.wire import NoSuchChannel, NoSuchMessage, NoSuchTopic, UnknownCursor
from appliance.kernel.clock import Clock
from appliance.kernel.errors import ApplianceError, Invalid
from appliance.sdk.database import Row, WorkspaceDatabase, readable_errors, shorten

ROWS_MAX = 1000
PRINCIPALS = "x_message_principals"  # missing in workspaces that another program created


class BadLimit(Invalid):
    default_message = "--limit must be a positive integer"
    default_hint = "for instance --limit 50"


class WorkspaceReader(WorkspaceDatabase):
    """One open database, read-only. Use as a context manager, and close soon."""

    def __init__(self, database: Path, clock: Clock | None = None) -> None:
        super().__init__(database, clock)
        try:
            with readable_errors(database):
                self._order = foreign_schema.id_order(self._connection)
                exists = "SELECT 1 FROM sqlite_schema WHERE name = ?"
                principals = self._connection.execute(exists, (PRINCIPALS,)).fetchone()
        except BaseException:
            self.close()
            raise
        self._has_principals = principals is not None

    def channels(self, limit: int = ROWS_MAX) -> list[Row]:
        query = f"SELECT {CHANNEL} FROM channels ORDER BY name LIMIT ?"
        return self._rows(query, (_rows_max(limit),))

    def channel(self, name_or_id: str) -> Row:
        query = f"SELECT {CHANNEL} FROM channels WHERE id = ?1 OR name IN (?1, ?2)"
        names = (name_or_id, plain_name(name_or_id))
        missing = NoSuchChannel(f"channel not found: {shorten(name_or_id)}")
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
        missing = NoSuchTopic(f"topic not found: {shorten(topic_id)}")
        return self._fetch(f"SELECT {TOPIC} FROM topics WHERE id = ? LIMIT 1", (topic_id,), missing)

    def topic_titled(self, channel: str, title: str) -> Row:
        channel_id = self.channel(channel)["id"]
        query = f"SELECT {TOPIC} FROM topics WHERE channel_id = ? AND title IN (?, ?) LIMIT 1"
        hint = f"agentlip topic list --channel {quote(channel)}"
        missing = NoSuchTopic(f"topic not found: {shorten(title)}", hint=hint)
        return self._fetch(query, (channel_id, title, plain_name(title)), missing)

    def message(self, message_id: str) -> Row:
        query = f"SELECT {self._message('messages')} FROM messages WHERE id = ? LIMIT 1"
        missing = NoSuchMessage(f"message not found: {shorten(message_id)}")
        return self._fetch(query, (message_id,), missing)

    def messages(
        self,
        topic_id: str,
        limit: int = 50,
        before_id: str | None = None,
        after_id: str | None = None,
        since: str | None = None,
    ) -> list[Row]:
        """Return a topic's messages: the newest ones, those before or after a message, or those
        from the time `since` on.

        Newest first, or oldest first with `after_id` or `since`. Continuing from a page's last row
        never skips or repeats a message. The hub's HTTP API does so too.
        """
        rows_max = _rows_max(limit)
        where, parameters = ["topic_id = ?"], [self.topic(topic_id)["id"]]
        for sign, name, message_id in (("<", "before", before_id), (">", "after", after_id)):
            if message_id is not None:
                where.append(f"{self._order} {sign} ?")
                anchor = f"SELECT {self._order} AS place FROM messages WHERE id = ? LIMIT 1"
                parameters.append(self._anchor(f"{name}_id", anchor, message_id)["place"])
        if since is not None:
            where.append(f"{self._order} >= ({first_since(self._order)})")
            parameters.append(parse_instant("since", since))
        direction = "DESC" if after_id is None and since is None else "ASC"
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
        prefix: bool = False,
        order: str = "best",
    ) -> Row:
        """Return messages that match the words: `messages` with snippets, `fts_used`,
        `has_more`.

        With `prefix`, the last word also matches longer words. `order` is "best" or "newest".

        The hub's HTTP API returns the same. Times are ISO 8601; `after` is inclusive, `before` is
        exclusive.
        """
        from appliance.hub import fulltext
        from appliance.hub.search_query import parse

        query = parse(words, prefix=prefix)
        where = fulltext.conditions(
            None if channel is None else self.channel(channel)["id"],
            None if topic_id is None else self.topic(topic_id)["id"],
            sender,
            after,
            before,
        )
        self._limit.start()
        with readable_errors(self._database):
            columns, rows_max = self._message("m"), _rows_max(limit)
            hits = fulltext.find(
                self._connection, query, columns, where, rows_max, self._limit,
                ranked=order == "best",
            )  # fmt: skip
        messages = [
            dict(zip([*STORED_MESSAGE, "principal", "snippet"], [*row, snippet], strict=True))
            for row, snippet in zip(hits.rows, hits.snippets, strict=True)
        ]
        return {"messages": messages, "fts_used": hits.fts_used, "has_more": hits.has_more}

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


def _rows_max(limit: int) -> int:
    if limit < 1:
        raise BadLimit
    return min(limit, ROWS_MAX)
