"""SIGKILL in the middle of a load of sends: nothing acknowledged is lost, nothing is half."""

import json
import sqlite3
import threading
from http.client import HTTPConnection, HTTPException

import pytest

from tests.support.until import until
from tests.system.box import JSON, Box, bearer, message

pytestmark = [pytest.mark.container, pytest.mark.slow]
SENDERS = 6
ROUNDS = 3
ACKNOWLEDGED_BEFORE_KILL = 400


class Sender(threading.Thread):
    """Posts one message after another until the appliance is gone; remembers each answer."""

    def __init__(self, appliance: Box, topic: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._address = ("127.0.0.1", appliance.port)
        self._headers = JSON | bearer(appliance.token)
        self._topic = topic
        self.acknowledged: dict[str, tuple[str, int]] = {}  # message id: text, event id
        self.refused: list[int] = []

    def run(self) -> None:
        connection = HTTPConnection(*self._address, timeout=10)
        for number in range(100_000):
            text = f"{self.name} {number}"
            try:
                body = json.dumps(message(self._topic, text))
                connection.request("POST", "/api/v1/messages", body, self._headers)
                reply = connection.getresponse()
                answer = json.loads(reply.read())
            except (OSError, HTTPException, ValueError):
                return
            if reply.status != 201:
                self.refused.append(reply.status)
                return
            self.acknowledged[answer["message"]["id"]] = (text, answer["event_id"])


def load_and_kill(appliance: Box, topic: str, round_number: int) -> dict[str, tuple[str, int]]:
    """Kills while every sender is busy; all that was acknowledged until then."""
    senders = [Sender(appliance, topic, f"{round_number}-{n}") for n in range(SENDERS)]
    for sender in senders:
        sender.start()
    until(
        lambda: sum(len(s.acknowledged) for s in senders) >= ACKNOWLEDGED_BEFORE_KILL,
        30,
        "enough acknowledged messages",
    )
    busy = [sender for sender in senders if sender.is_alive()]
    appliance.signal("SIGKILL")
    for sender in senders:
        sender.join(timeout=20)
    assert len(busy) == SENDERS
    assert [sender.refused for sender in senders] == [[]] * SENDERS
    return {key: value for sender in senders for key, value in sender.acknowledged.items()}


def assert_whole(database: sqlite3.Connection, acknowledged: dict[str, tuple[str, int]]) -> None:
    """State and events agree with each other and with the senders' replies."""
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    rows = dict(database.execute("SELECT id, content_raw FROM messages"))
    events = {
        entity: (number, json.loads(data)["message"])
        for entity, number, data in database.execute(
            "SELECT entity_id, event_id, data_json FROM events WHERE name = 'message.created'"
        )
    }
    assert {k: text for k, (text, _) in acknowledged.items() if rows.get(k) != text} == {}
    assert {k: n for k, (_, n) in acknowledged.items() if events[k][0] != n} == {}
    assert rows.keys() == events.keys()
    versions = dict(database.execute("SELECT id, version FROM messages"))
    assert {k for k, (_, event) in events.items() if versions[k] != event["version"]} == set()
    assert {k for k, (_, event) in events.items() if rows[k] != event["content_raw"]} == set()
    numbers = [n for (n,) in database.execute("SELECT event_id FROM events ORDER BY event_id")]
    assert numbers == list(range(1, len(numbers) + 1))


def served_events(appliance: Box) -> list[dict[str, object]]:
    """All events as a client replays them."""
    events_read: list[dict[str, object]] = []
    while True:
        after = events_read[-1]["event_id"] if events_read else 0
        path = f"/api/v1/events?after={after}&limit=1000"
        status, page = appliance.request("GET", path)
        assert status == 200
        if not page["events"]:
            return events_read
        events_read += page["events"]


def test_killed_in_the_middle_of_sends_it_returns_with_all_of_them(box, volume, tmp_path):
    appliance = box(volume(), "--no-limits").start()
    topic = appliance.topic()
    acknowledged: dict[str, tuple[str, int]] = {}
    for number in range(ROUNDS):
        acknowledged |= load_and_kill(appliance, topic, number)
        files = appliance.copy_workspace(tmp_path / str(number))
        database = sqlite3.connect(files / "db.sqlite3")
        assert_whole(database, acknowledged)
        database.close()
        appliance.restart()

    replayed = {
        event["data_json"]["message"]["id"]: event["event_id"]  # type: ignore[index]
        for event in served_events(appliance)
        if event["name"] == "message.created"
    }
    assert {k for k, (_, n) in acknowledged.items() if replayed.get(k) != n} == set()
    appliance.signal("SIGTERM")
    assert appliance.exit_code() == 0
