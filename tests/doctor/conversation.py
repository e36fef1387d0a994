"""A workspace with conversations as the hub writes them, and what is in its tables."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from appliance.hub import attachments, retopic, wire, writes
from appliance.kernel.batch import Tx
from appliance.kernel.ids import IdFactory
from tests.doctor.workspace import WorkspaceFixture
from tests.support.clock import FakeClock
from tests.support.database_files import execute

DERIVED = ("messages_fts", "x_cjk", "x_fts", "x_migrations", "sqlite_", "meta")
Rows = dict[str, set[tuple[Any, ...]]]


def converse(workspace: WorkspaceFixture, count: int = 400, seed: int = 1) -> None:
    """Channels, topics, and messages that are edited, moved and deleted; with principals."""
    dice, clock = random.Random(seed), FakeClock()
    with closing(sqlite3.connect(workspace.data.database("hub"))) as connection, connection:
        tx = Tx(connection, clock, IdFactory(clock))

        def write(function: Any, *arguments: Any) -> Any:
            clock.pass_seconds(dice.randrange(1, 500) / 1000)
            tx.restart()
            return msgspec.json.decode(function(tx, *arguments).body)

        topics = []
        for number in range(2):
            command = wire.CreateChannel(name=f"channel-{number}")
            channel = write(writes.create_channel, command, "p:a")["channel"]["id"]
            for title in ("one", "two", "three"):
                topic = wire.CreateTopic(channel_id=channel, title=title)
                topics.append((channel, write(writes.create_topic, topic, "p:a")["topic"]["id"]))
        write(writes.rename_topic, topics[0][1], "renamed", "p:b")
        for number in range(count):
            channel, topic = dice.choice(topics)
            text = f"message {number} " + "text ä " * dice.randrange(400)
            made = write(writes.create_message, topic, "ada", text, f"p:{number % 3}")
            _change(write, dice, made["message"]["id"], channel, topic, topics, number)
        workspace.index()


def _change(
    write: Any,
    dice: random.Random,
    message: str,
    channel: str,
    topic: str,
    topics: Any,
    number: int,
) -> None:
    match number % 7:
        case 0:
            edit = wire.EditMessage(content_raw=f"edited {number}", expected_version=None)
            write(writes.edit_message, message, edit, "p:b", None)
        case 1:
            delete = wire.DeleteMessage(actor="ada", expected_version=None)
            write(writes.delete_message, message, delete, "p:b")
        case 2:
            other = dice.choice([to for of, to in topics if of == channel and to != topic])
            move = wire.MoveMessage(to_topic_id=other, mode="one", expected_version=None)
            write(retopic.move, message, move, topic, "id", 100, "p:b")
        case 3:
            add = wire.AddAttachment(kind="note", value_json={"n": number})
            write(attachments.add, topic, add, str(number), "p:b")


def content(database: Path) -> Rows:
    """The rows of each table that holds data, with their rowids."""
    with closing(sqlite3.connect(database)) as connection:
        tables = connection.execute(
            "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        ).fetchall()
        return {
            name: set(connection.execute(f'SELECT {"" if wr else "rowid, "}* FROM "{name}"'))
            for name, wr in tables
            if not name.startswith(DERIVED)
        }


def facts(database: Path) -> dict[str, str]:
    return dict(execute(database, "SELECT key, value FROM meta"))
