"""Two backups under full write load: each equals the log up to its cut, in all stores."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.hub import event_replay
from appliance.workspace.datadir import DataDir
from tests.support.commands import succeed
from tests.support.real_backups import Backups
from tests.support.servedhub import Client, ServedHub, serve
from tests.support.until import until

pytestmark = pytest.mark.slow

SETTINGS = """
[backup]
enabled = false
free_bytes_min = 0
[courier]
[[courier.streams]]
pattern = "kept*"
durable = true
"""
WRITERS = 4
BACKUPS = 2
SENDS_BETWEEN = 60
LOAD_SECONDS = 4


class Writer(threading.Thread):
    """Writes to the hub and then to the courier, in turn, and remembers what was acknowledged.

    The courier has the number n only after the hub acknowledged n, and the hub has n + 1 only
    after the courier acknowledged n. So at every moment the hub has as many, or one more.
    """

    def __init__(self, client: Client, topic: str, other_topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._client = client
        self._topic = topic
        self._other_topic = other_topic
        self.acknowledged: list[str] = []
        self.problem: Any = None
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set() and self.problem is None:
            number += 1
            self._write(number)

    def _write(self, number: int) -> None:
        text = f"{self.name} {number}"
        body = {"topic_id": self._topic, "sender": self.name, "content_raw": text}
        message = self._expect("POST", "/api/v1/messages", body)
        if message is None:
            return
        message_id = message["message"]["id"]
        self.acknowledged.append(message_id)
        envelope = {"id": text, "ts": "2026-01-01T00:00:00Z", "type": "t", "payload": number}
        self._expect("POST", "/v1/enqueue", {"to": f"kept.{self.name}", "envelope": envelope})
        change: dict[str, Any] | None = {
            0: {"op": "edit", "content_raw": f"{text} edited"},
            1: {"op": "delete", "actor": self.name},
            2: {"op": "move_topic", "to_topic_id": self._other_topic, "mode": "one"},
        }.get(number % 9)
        if change is not None:
            self._expect("PATCH", f"/api/v1/messages/{message_id}", change)

    def _expect(self, method: str, path: str, body: Any) -> Any:
        answer = self._client(method, path, body)
        if answer.status not in (200, 201):
            self.problem = answer
            return None
        return answer.body


@contextmanager
def writing(hub: ServedHub) -> Iterator[list[Writer]]:
    channel, topic = hub.channel_with_topic("general")
    other = hub.topic(channel, "other")
    writers = [Writer(hub.connect(), topic, other, f"writer-{n}") for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.stopping.set()
        for writer in writers:
            writer.join(30)
    assert [writer.problem for writer in writers] == [None] * WRITERS


def assert_equals_its_log(database: Path) -> dict[str, str]:
    """The rows are what the events say, without a gap; returns the sender of each message."""
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        states: dict[tuple[str, str], Any] = {}
        numbers = []
        for piece in event_replay.all_events(connection):
            for event in piece:
                numbers.append(event.event_id)
                if event.kind in event_replay.KINDS:
                    key = (event.kind, event.entity_id)
                    states[key], broken = event_replay.apply(states.get(key), event)
                    assert broken is None
        assert numbers == list(range(1, len(numbers) + 1))
        for (kind, entity_id), state in states.items():
            row = event_replay.row_of(connection, kind, entity_id)
            assert row is not None, (kind, entity_id)
            assert event_replay.differences(state, row) == []
        senders = dict(connection.execute("SELECT id, sender FROM messages"))
        assert {entity for kind, entity in states if kind == "message"} == senders.keys()
        with_principal = connection.execute("SELECT message_id FROM x_message_principals")
        assert {row[0] for row in with_principal} == senders.keys()
    return senders


def accepted(database: Path) -> dict[str, int]:
    """Envelopes in the courier's journal, by stream."""
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return dict(connection.execute("SELECT stream, count(*) FROM journal GROUP BY stream"))


def assert_one_moment(copy: DataDir, before: set[str], manifest: Any) -> None:
    senders = assert_equals_its_log(copy.database("hub"))
    assert before - senders.keys() == set(), "acknowledged before the backup began, and not in it"
    envelopes = accepted(copy.database("courier"))
    for number in range(WRITERS):
        name = f"writer-{number}"
        messages = sum(1 for sender in senders.values() if sender == name)
        assert messages - envelopes.get(f"kept.{name}", 0) in (0, 1), (name, messages, envelopes)
    rows = manifest.stores["hub"].rows
    assert (rows["messages"], rows["events"]) == (len(senders), manifest.last_event_id)


def test_each_backup_equals_the_log_up_to_its_cut(tmp_path: Path) -> None:
    with serve(tmp_path / "workspace", settings=SETTINGS) as hub:
        backups = Backups(hub.workspace)
        made: list[tuple[str, set[str], int]] = []
        with writing(hub) as writers:
            began = time.monotonic()
            for number in range(BACKUPS):
                start = sum(len(writer.acknowledged) for writer in writers)

                not_before = began + LOAD_SECONDS * (number + 1) / BACKUPS

                def enough(start: int = start, not_before: float = not_before) -> bool:
                    done = sum(len(writer.acknowledged) for writer in writers)
                    written = done >= start + SENDS_BETWEEN and time.monotonic() >= not_before
                    return written or any(writer.problem for writer in writers)

                until(enough, 60, "enough sends")
                before = {each for writer in writers for each in list(writer.acknowledged)}
                done = succeed("backup", "create", "--json", cwd=hub.workspace)
                after = sum(len(writer.acknowledged) for writer in writers)
                made.append((done.json["name"], before, after))
        last = 0
        for number, (name, before, after) in enumerate(made):
            manifest = backups.backups.read(name)
            copy = backups.unpack(name, tmp_path / f"copy-{number}")
            assert_one_moment(copy, before, manifest)
            assert last < manifest.stores["hub"].rows["messages"] <= after + WRITERS
            last = manifest.stores["hub"].rows["messages"]
        assert backups.remains == []
        assert hub.http.get("/health").status == 200
