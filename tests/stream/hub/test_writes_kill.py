"""Repeated kill -9 under load: acknowledged messages are stored, state and log agree."""

import contextlib
import http.client
import json
import signal
import threading

import pytest

from tests.support.servedhub import ServedHub
from tests.support.socketclient import Closed, SocketClient
from tests.support.until import until

pytestmark = pytest.mark.slow

KILLS = 15
ENDINGS = (OSError, Closed, ValueError, http.client.HTTPException)


@pytest.fixture
def hub(tmp_path):
    with ServedHub(tmp_path, "--no-limits").running(ending=signal.SIGKILL) as hub:
        yield hub


class Load:
    """Senders over HTTP, sockets and batches, editors and deleters; what each was promised."""

    def __init__(self, hub, topic_id, round_):
        self.hub, self.topic_id, self.round = hub, topic_id, round_
        self.made, self.changed = {}, {}  # id → event id, (id, version) → event id
        self.threads = [
            threading.Thread(target=self._guarded, args=(work, n), daemon=True)
            for work in (self.posting, self.requesting, self.batching, self.changing)
            for n in range(2)
        ]
        for thread in self.threads:
            thread.start()

    def _guarded(self, work, number):
        with contextlib.suppress(*ENDINGS):  # the hub was killed
            work(number)

    def message(self, number, n):
        content = f"{self.round}-{number}-{n}"
        return {"topic_id": self.topic_id, "sender": "s", "content_raw": content}

    def posting(self, number):
        client = self.hub.connect()
        for n in range(100_000):
            self.note(client.post("/api/v1/messages", self.message(number, n)).body)

    def batching(self, number):
        client = self.hub.connect()
        for n in range(100_000):
            messages = [self.message(number, f"{n}.{item}") for item in range(20)]
            answer = client.post("/api/v1/messages/batch", {"messages": messages})
            for result in answer.body["results"]:
                self.note(result)

    def requesting(self, number):
        with SocketClient(self.hub.port, self.hub.token) as client:
            client.hello(self.hub.head, subscriptions={})
            for n in range(100_000):
                made = client.request("message.create", self.message(number, n))
                self.note(made["body"])

    def changing(self, number):
        client = self.hub.connect()
        for n in range(100_000):
            made = client.post("/api/v1/messages", self.message(number, n)).body
            self.note(made)
            path = f"/api/v1/messages/{made['message']['id']}"
            for command in (
                {"op": "edit", "content_raw": "edited", "expected_version": 1},
                {"op": "delete", "actor": "s", "expected_version": 2},
            ):
                changed = client.patch(path, command).body
                message = changed["message"]
                self.changed[message["id"], message["version"]] = changed["event_id"]

    def note(self, body):
        self.made[body["message"]["id"]] = body["event_id"]

    def wait_for(self, count):
        until(lambda: len(self.made) + len(self.changed) >= count, 20, "the load runs")

    def end(self):
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()


def assert_log_and_state_agree(hub):
    """Message rows and creation events match one to one, as do versions and tombstones."""
    state = {}
    for event_id, name, entity, data in hub.rows(
        "SELECT event_id, name, entity_id, data_json FROM events ORDER BY event_id"
    ):
        data = json.loads(data)
        if name == "message.created":
            assert entity not in state
            state[entity] = [data["message"]["content_raw"], 1, None]
        elif name == "message.edited":
            assert data["version"] == state[entity][1] + 1
            state[entity][:2] = [data["new_content"], data["version"]]
        elif name == "message.deleted":
            assert data["version"] == state[entity][1] + 1
            state[entity] = ["[deleted]", data["version"], data["deleted_by"]]
        assert event_id
    rows = hub.rows("SELECT id, content_raw, version, deleted_by FROM messages")
    assert {row[0]: list(row[1:]) for row in rows} == state


def test_kills_under_load_lose_no_acknowledged_message(hub):
    topic_id = hub.channel_with_topic("kill")[1]
    promised_made, promised_changed = {}, {}
    for round_ in range(KILLS):
        load = Load(hub, topic_id, round_)
        load.wait_for(60 + 20 * (round_ % 4))
        hub.kill()
        load.end()
        hub.start()
        promised_made |= load.made
        promised_changed |= load.changed
        assert hub.rows("PRAGMA integrity_check") == [("ok",)]
        if round_ % 5 == 4:
            assert_log_and_state_agree(hub)
    created = hub.rows("SELECT entity_id, event_id FROM events WHERE name = 'message.created'")
    assert promised_made.items() <= dict(created).items()
    changes = hub.rows(
        "SELECT entity_id, json_extract(data_json, '$.version'), event_id FROM events"
        " WHERE name IN ('message.edited', 'message.deleted')"
    )
    assert promised_changed.items() <= {row[:2]: row[2] for row in changes}.items()
    numbers = [row[0] for row in hub.rows("SELECT event_id FROM events ORDER BY event_id")]
    assert numbers == list(range(1, len(numbers) + 1)), "a kill makes no gap"
