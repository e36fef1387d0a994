"""What the machine can do without a hub: SQLite, syncs and sockets alone.

Each floor does the same durable or visible work as the row it stands beside, in the same
run and on the same disk, and nothing of the product takes part in it.
"""

import os
import shutil
import socket
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.bench.client import NOW
from tests.bench.figures import median, milliseconds, significant
from tests.bench.hub.bench import SENDER, content
from tests.bench.machine import sync_seconds
from tests.bench.target import RowFailed

MESSAGE = (
    "INSERT INTO messages (id, topic_id, channel_id, sender, content_raw, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
TOUCH = "UPDATE topics SET updated_at = ?1 WHERE id = ?2 AND updated_at < ?1"
EVENT = (
    "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, entity_type, entity_id,"
    " data_json) VALUES (?, 'message.created', ?, ?, 'message', ?, ?)"
)
EVENTS = (
    "SELECT event_id, ts, name, scope_channel_id, scope_topic_id, scope_topic_id2, data_json"
    " FROM events WHERE event_id > ? AND event_id <= ? ORDER BY event_id LIMIT 1000"
)
NEWEST = (
    "SELECT id, topic_id, channel_id, sender, content_raw, version, created_at, edited_at,"
    " deleted_at, deleted_by FROM messages WHERE {column} = ? ORDER BY id DESC LIMIT 50"
)
STRETCHES = 3
MATCHES = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid DESC LIMIT ?"
MOVED = (
    "INSERT INTO events (ts, name, scope_channel_id, scope_topic_id, scope_topic_id2,"
    " entity_type, entity_id, data_json) SELECT ?, 'message.moved_topic', channel_id, topic_id,"
    " ?, 'message', id, json_object('message_id', id, 'old_topic_id', topic_id,"
    " 'new_topic_id', ?, 'channel_id', channel_id, 'mode', 'later', 'version', version + 1)"
    " FROM messages WHERE topic_id = ? ORDER BY id"
)
MOVE = "UPDATE messages SET topic_id = ?, version = version + 1 WHERE topic_id = ?"
STAMP = "2026-01-01T00:00:00.000Z"


@contextmanager
def copy_of(database: Path) -> Iterator[sqlite3.Connection]:
    """A writable copy beside `database`, through SQLite so that it is whole."""
    folder = Path(tempfile.mkdtemp(prefix="floor-", dir=database.parent))
    try:
        with (
            closing(sqlite3.connect(folder / "floor.sqlite3", isolation_level=None)) as copy,
            closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as source,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = WAL").fetchall()
            copy.execute("PRAGMA synchronous = FULL").fetchall()
            copy.execute("PRAGMA foreign_keys = ON").fetchall()
            yield copy
    finally:
        shutil.rmtree(folder)


def grouped_commits(
    database: Path, topic: str, channel: str, count: int, group: int
) -> dict[str, Any]:
    """The rows of `count` messages in transactions of `group`, synced each; thrice."""
    with copy_of(database) as connection:
        _insert(connection, topic, channel, range(min(count, 500)), group)
        rates = []
        for start in range(500, 500 + STRETCHES * count, count):
            began = NOW()
            _insert(connection, topic, channel, range(start, start + count), group)
            rates.append(count / (NOW() - began))
    return {
        "what": f"the same rows into SQLite, {group} messages a transaction, synchronous FULL",
        "messages_per_s": significant(median(rates)),
    }


def one_commit(database: Path, topic: str, channel: str, count: int) -> dict[str, Any]:
    """One message a transaction, and beside it the bare sync."""
    with copy_of(database) as connection:
        _insert(connection, topic, channel, range(100), 1)
        seconds = []
        for number in range(100, 100 + count):
            began = NOW()
            _insert(connection, topic, channel, range(number, number + 1), 1)
            seconds.append(NOW() - began)
    synced = sync_seconds(database.parent, count)
    return {
        "what": "one message a transaction in SQLite, synchronous FULL; and one fdatasync",
        "messages_per_s": significant(count / sum(seconds)),
        "transaction_p50_ms": milliseconds(seconds, 0.5),
        "fdatasync_p50_ms": milliseconds(synced, 0.5),
    }


def _insert(
    connection: sqlite3.Connection, topic: str, channel: str, numbers: Sequence[int], group: int
) -> None:
    for start in range(0, len(numbers), group):
        connection.execute("BEGIN IMMEDIATE")
        for number in numbers[start : start + group]:
            message_id, text = f"msg_floor{number:021d}", content(number)
            data = (
                f'{{"message":{{"id":"{message_id}","topic_id":"{topic}","channel_id":"{channel}",'
                f'"sender":"{SENDER}","content_raw":"{text}","version":1,"created_at":"{STAMP}",'
                '"edited_at":null,"deleted_at":null,"deleted_by":null}}'
            )
            connection.execute(MESSAGE, (message_id, topic, channel, SENDER, text, STAMP))
            connection.execute(TOUCH, (STAMP, topic))
            connection.execute(EVENT, (STAMP, channel, topic, message_id, data))
        connection.execute("COMMIT")


def read_events(database: Path, after: int, until: int) -> float:
    """Seconds to read a stretch of the log and join its bytes, 1,000 rows at a time."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as reader:
        began = NOW()
        while after < until:
            rows = reader.execute(EVENTS, (after, until)).fetchall()
            b"".join([row[6].encode() for row in rows])
            after = rows[-1][0]
        return NOW() - began


def newest_pages(database: Path, column: str, value: str, count: int) -> dict[str, Any]:
    """The statement of a page, fetched."""
    seconds = []
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as reader:
        for _ in range(count):
            began = NOW()
            reader.execute(NEWEST.format(column=column), (value,)).fetchall()
            seconds.append(NOW() - began)
    return {
        "what": "the statement alone, in SQLite",
        "p50_ms": milliseconds(seconds, 0.5),
        "p99_ms": milliseconds(seconds, 0.99),
    }


def newest_matches(database: Path, texts: Sequence[str], limit: int) -> dict[str, Any]:
    """The index asked for the newest matches, with nothing fetched or ranked."""
    seconds = []
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as reader:
        for text in texts:
            quoted = text if '"' in text else " ".join(
                word if word == "OR" else f'"{word}"' for word in text.split()
            )  # fmt: skip
            began = NOW()
            reader.execute(MATCHES, (quoted, limit)).fetchall()
            seconds.append(NOW() - began)
    return {
        "what": "the newest matches from the index alone, not fetched, not ranked",
        "p50_ms": milliseconds(seconds, 0.5),
        "p99_ms": milliseconds(seconds, 0.99),
    }


def move(database: Path, here: str, there: str) -> float:
    """Seconds to move all messages of a topic and to write an event for each; one commit."""
    with copy_of(database) as connection:
        began = NOW()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(MOVED, (STAMP, there, there, here))
        connection.execute(MOVE, (there, here))
        connection.execute("COMMIT")
        return NOW() - began


def sends(subscribers: int, frame: bytes, count: int) -> dict[str, Any]:
    """`count` frames to each of many sockets, one `sendall` each, until all arrived."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=subscribers)
    child = os.fork()
    if child == 0:
        _drain(listener.getsockname(), subscribers, len(frame) * count)
    sockets = [listener.accept()[0] for _ in range(subscribers)]
    began = NOW()
    for _ in range(count):
        for sock in sockets:
            sock.sendall(frame)
    for sock in sockets:
        sock.shutdown(socket.SHUT_WR)
    _, status = os.waitpid(child, 0)
    seconds = NOW() - began
    for sock in (*sockets, listener):
        sock.close()
    if status != 0:
        raise RowFailed("the floor's own receiver lost bytes")
    return {
        "what": f"{len(frame)} bytes to {subscribers} sockets, one sendall an event and socket",
        "events_per_s": significant(count * subscribers / seconds),
    }


def _drain(address: tuple[str, int], subscribers: int, expected: int) -> None:
    """In a child process: take everything, looking every two milliseconds. Never returns."""
    code = 1
    try:
        waiting = {socket.create_connection(address): 0 for _ in range(subscribers)}
        for sock in waiting:
            sock.setblocking(False)
        whole = 0
        while waiting:
            for sock in tuple(waiting):
                try:
                    data = sock.recv(1 << 20)
                except BlockingIOError:
                    continue
                waiting[sock] += len(data)
                if not data:
                    whole += waiting.pop(sock) == expected
            time.sleep(0.002)
        code = 0 if whole == subscribers else 1
    finally:
        os._exit(code)
