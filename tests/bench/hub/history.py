"""Fills a stopped workspace with a long past, straight into SQLite and through its schema."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.bench.hub.bench import CONTENT_BYTES, SENDER
from tests.bench.served import Served

CHANNEL = "ch_BENCHHISTORY"
TOPIC = "topic_BENCHHISTORY"
CHUNK = 20_000
PER_RUN = 50
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=1500)  # a million messages end well before today
WORDS = ["agent", "build", "cache", "deploy", "error", "fetch", "graph", "hook", "index", "job"]
WORDS += ["kernel", "lease", "merge", "node", "offer", "patch", "queue", "retry", "store", "topic"]
COLUMNS = "id, topic_id, channel_id, sender, content_raw, created_at"
EVENTS = (
    "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, entity_type, entity_id,"
    " data_json) VALUES (?, 'message.created', ?, ?, 'message', ?, ?)"
)


def make(workspace: Path, count: int) -> None:
    """A stopped workspace with `count` messages."""
    print(f"a workspace with {count:,} messages", file=sys.stderr, flush=True)
    with Served(workspace) as served:  # the server itself makes the schema
        database = served.target.database
    fill(database, count)


def fill(database: Path, count: int) -> None:
    """`count` messages of one topic in one channel, with their events and search index."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        connection.execute("PRAGMA cache_size = -200000").fetchall()
        stamp = _iso(0)
        connection.execute(
            "INSERT INTO channels (id, name, created_at) VALUES (?, 'history', ?)", (CHANNEL, stamp)
        )
        connection.execute(
            "INSERT INTO topics (id, channel_id, title, created_at, updated_at)"
            " VALUES (?, ?, 'long ago', ?, ?)",
            (TOPIC, CHANNEL, stamp, _iso(count)),
        )
        with WithoutSearch(connection):
            for start in range(0, count, CHUNK):
                _fill_chunk(connection, range(start, min(count, start + CHUNK)))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        stored = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
        assert stored == count, f"{stored} of {count} messages"


class WithoutSearch:
    """Triggers of the search index are put aside; then it is built in one go. The schema
    ends as it was, by its own text."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._triggers: list[tuple[str, str]] = []

    def __enter__(self) -> None:
        self._triggers = self._connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            " AND tbl_name = 'messages' AND name LIKE 'messages_fts_%'"
        ).fetchall()
        for name, _ in self._triggers:
            self._connection.execute(f"DROP TRIGGER {name}")

    def __exit__(self, *failure: object) -> None:
        for _, sql in self._triggers:
            self._connection.execute(sql)
        if self._triggers:
            self._connection.execute("INSERT INTO messages_fts(messages_fts) VALUES ('rebuild')")
            self._connection.execute("UPDATE x_fts SET indexed = (SELECT max(rowid) FROM messages)")


def _fill_chunk(connection: sqlite3.Connection, numbers: range) -> None:
    connection.execute("BEGIN IMMEDIATE")
    rows = list(_messages(numbers))
    connection.executemany(f"INSERT INTO messages ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.executemany(EVENTS, ((row[5], CHANNEL, TOPIC, row[0], _data(row)) for row in rows))
    connection.execute("COMMIT")


def _messages(numbers: range) -> Iterator[tuple[str, str, str, str, str, str]]:
    for number in numbers:
        yield _id(number), TOPIC, CHANNEL, SENDER, _content(number), _iso(number)


def _content(number: int) -> str:
    """Words that differ from message to message, as a search index would meet them."""
    length = len(WORDS)
    first, second = WORDS[number % length], WORDS[number // length % length]
    text = f"n={number};{first} {second} {WORDS[number // 7 % length]} in run {number // PER_RUN} "
    return (text * (CONTENT_BYTES // len(text) + 1))[:CONTENT_BYTES]


def _data(row: tuple[str, str, str, str, str, str]) -> str:
    message_id, topic, channel, sender, text, stamp = row
    return (
        f'{{"message":{{"id":"{message_id}","topic_id":"{topic}","channel_id":"{channel}",'
        f'"sender":"{sender}","content_raw":"{text}","version":1,"created_at":"{stamp}",'
        '"edited_at":null,"deleted_at":null,"deleted_by":null}}'
    )


def _id(number: int) -> str:
    """A ULID of that message's time, the number in place of chance."""
    ms = int((BEGIN + number * STEP).timestamp() * 1000)
    return "msg_" + _base32(ms, 10) + _base32(number, 16)


def _base32(value: int, length: int) -> str:
    digits = []
    for _ in range(length):
        value, digit = divmod(value, 32)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


def _iso(number: int) -> str:
    return (BEGIN + number * STEP).isoformat(timespec="milliseconds")[:23] + "Z"
