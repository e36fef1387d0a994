"""Workspaces on disk without a hub: our own, and one as another program would make it."""

import sqlite3
import sys
import uuid
from pathlib import Path
from typing import Any

from appliance.kernel.clock import SystemClock
from appliance.kernel.ids import IdFactory
from appliance.kernel.log import Log
from appliance.workspace.datadir import DataDir
from appliance.workspace.migration import load
from appliance.workspace.schema import create_workspace

FOREIGN_DDL, _, _OURS = load("hub")[0].sql.partition("-- The appliance's own tables.")
"""The tables as the hub specification prints them."""
AT = "2026-02-04T20:00:00.000Z"


class Filled:
    """A workspace with one channel, one topic, and messages in order of creation."""

    def __init__(self, path: Path, *, foreign: bool = False, messages: int = 5) -> None:
        self.datadir = DataDir(path)
        self._foreign = foreign
        self._ids = IdFactory(SystemClock())
        if foreign:
            self._create_foreign()
        else:
            create_workspace(
                self.datadir, clock=SystemClock(), log=Log(sys.stderr.buffer, level="error")
            )
        self.channel_id = self.new_id("ch_")
        self.topic_id = self.new_id("topic_")
        self.message_ids: list[str] = []
        with self.connect() as connection:
            connection.execute(
                "INSERT INTO channels VALUES (?, 'general', NULL, ?)", (self.channel_id, AT)
            )
            self.add_topic(connection, self.topic_id, "Builds")
            for number in range(messages):
                self.add_message(connection, f"message {number}")
        connection.close()

    @property
    def path(self) -> Path:
        return self.datadir.workspace

    def new_id(self, prefix: str) -> str:
        return str(uuid.uuid4()) if self._foreign else self._ids.new(prefix)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.datadir.database("hub"))

    def add_topic(self, connection: sqlite3.Connection, topic_id: str, title: str) -> None:
        row = (topic_id, self.channel_id, title, AT, AT)
        connection.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", row)

    def add_message(self, connection: sqlite3.Connection, content: str, **more: Any) -> str:
        message_id = self.new_id("msg_")
        row = {
            "id": message_id,
            "topic_id": self.topic_id,
            "channel_id": self.channel_id,
            "sender": "agent-1",
            "content_raw": content,
            "created_at": AT,
            **more,
        }
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO messages ({names}) VALUES ({marks})", tuple(row.values()))
        self.message_ids.append(message_id)
        return message_id

    def _create_foreign(self) -> None:
        self.datadir.dir.mkdir(parents=True)
        with self.connect() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(FOREIGN_DDL)
            connection.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                [("db_id", str(uuid.uuid4())), ("schema_version", "1"), ("created_at", AT)],
            )
        connection.close()
