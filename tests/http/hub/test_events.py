"""The log over HTTP: cursors, filters, long polls and server-sent events, and none of it lost."""

import json
import threading
import time

import pytest

from tests.support.database_files import execute
from tests.support.servedhub import serve

SETTINGS = "[plugins]\nurls = false\n"  # its runner would subscribe too
CONSTANTS = {"appliance.web.sse_stream.HEARTBEAT_SECONDS": 0.2}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), settings=SETTINGS, constants=CONSTANTS) as hub:
        yield hub


@pytest.fixture(scope="module")
def topic_id(hub):
    return hub.channel_with_topic("one")[1]


def ids(answer):
    assert answer.status == 200, answer
    return [event["event_id"] for event in answer.body["events"]]


# -- long polls ----------------------------------------------------------------------------


def test_consecutive_polls_miss_no_event_under_load(hub, topic_id):
    start, each = hub.head, 150

    def send():
        client = hub.connect()
        for _ in range(each):
            hub.send(topic_id, "load", client)

    senders = [threading.Thread(target=send, daemon=True) for _ in range(3)]
    for thread in senders:
        thread.start()
    events, client = [], hub.connect()
    while len(events) < 3 * each:
        after = events[-1] if events else start
        page = ids(client.get(f"/api/v1/events?after={after}&wait=5&limit=7"))
        assert page
        events += page
    assert events == list(range(start + 1, start + 1 + 3 * each))
    client.close()


# -- server-sent events ----------------------------------------------------------------------


class Stream:
    """An open event stream, read line by line."""

    def __init__(self, hub, query="", **headers):
        self.client = hub.connect()
        headers["Authorization"] = f"Bearer {hub.token}"
        self.client.connection.request("GET", f"/api/v1/events/stream{query}", headers=headers)
        self.reply = self.client.connection.getresponse()
        self.comments = 0

    def event(self):
        """(id, envelope) of the next event."""
        fields, deadline = {}, time.monotonic() + 10
        while True:
            line = self.reply.readline().decode()
            assert line, "the stream ended"
            assert time.monotonic() < deadline, "only heartbeats arrived"
            if line.startswith(":"):
                self.comments += 1
            elif line == "\n":
                if "data" in fields:
                    return int(fields["id"]), json.loads(fields["data"])
                fields = {}
            else:
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value

    def until(self, number):
        events = [self.event()[0]]
        while events[-1] < number:
            events.append(self.event()[0])
        return events

    def close(self):
        self.client.connection.sock.close() if self.client.connection.sock else None
        self.reply.close()
        self.client.close()


def test_a_stream_goes_on_after_the_last_event_id(hub, topic_id):
    stream, start = Stream(hub, f"?after={hub.head}"), hub.head
    events = []
    for _ in range(4):
        hub.send_many(topic_id, ["x"] * 40)
        events += [stream.event()[0] for _ in range(25)]
        stream.close()
        hub.send(topic_id)
        stream = Stream(hub, "?after=0", **{"Last-Event-ID": str(events[-1])})
    events += stream.until(hub.head)
    assert events == list(range(start + 1, hub.head + 1))
    stream.close()


def test_concurrent_streams_receive_all_events_under_load(hub, topic_id):
    start = hub.head
    streams = [Stream(hub, f"?after={start}") for _ in range(4)]
    for _ in range(5):
        hub.send_many(topic_id, ["load"] * 500)
    late = Stream(hub, f"?after={start}")
    hub.send_many(topic_id, ["load"] * 500)
    for stream in [*streams, late]:
        assert stream.until(hub.head) == list(range(start + 1, hub.head + 1))
        stream.close()


# -- backwards -----------------------------------------------------------------------------


def test_pages_before_a_cursor_reach_the_first_event(hub, topic_id):
    hub.send_many(topic_id, [f"page {number}" for number in range(25)])
    events, before = [], hub.head + 1
    while page := ids(hub.http.get(f"/api/v1/events?tail=10&before={before}")):
        events = page + events
        before = page[0]
    assert events == list(range(1, hub.head + 1))
    assert ids(hub.http.get("/api/v1/events?tail=10&before=0&wait=5")) == []
    assert ids(hub.http.get("/api/v1/events?before=4")) == [1, 2, 3]


def test_bytes_that_are_not_utf8_are_replaced_in_a_page(hub, topic_id):
    insert = (
        "INSERT INTO events (ts, name, scope_topic_id, entity_type, entity_id, data_json) VALUES"
        " ('2026-11-29T00:00:00.000Z', 'x.foreign', ?, 'topic', ?, CAST(? AS TEXT))"
    )
    execute(hub.datadir.database("hub"), insert, topic_id, topic_id, b'{"text":"\xff \xc3\xa4"}')
    hub.send_many(topic_id, ["after"])
    [event] = hub.http.get("/api/v1/events?name=x.foreign").body["events"]
    assert event["data_json"] == {"text": "\N{REPLACEMENT CHARACTER} ä"}


@pytest.mark.parametrize(
    ("table", "column", "path"),
    [
        ("messages", "sender", "messages?topic_id={topic}"),
        ("messages", "content_raw", "messages?topic_id={topic}"),
        ("topics", "title", "channels/{channel}/topics"),
        ("channels", "name", "channels"),
        ("channels", "description", "channels"),
    ],
)
def test_columns_that_are_not_utf8_are_read_and_can_be_changed(hub, table, column, path):
    channel_id, topic_id = hub.channel_with_topic(f"{table} {column}")
    message = hub.send(topic_id, "first")["message"]
    newest = f"rowid = (SELECT max(rowid) FROM {table})"
    change = f"UPDATE {table} SET {column} = CAST(x'c3a4ff' AS TEXT) WHERE {newest}"
    execute(hub.datadir.database("hub"), change)
    page = hub.http.get("/api/v1/" + path.format(topic=topic_id, channel=channel_id))
    assert (page.status, "ä\N{REPLACEMENT CHARACTER}" in str(page.body)) == (200, True)
    changes = [
        (f"messages/{message['id']}", {"op": "edit", "content_raw": "second"}),
        (f"topics/{topic_id}", {"title": f"{column} changed"}),
    ]
    for changed, command in changes:
        assert hub.http.patch(f"/api/v1/{changed}", command).status == 200
