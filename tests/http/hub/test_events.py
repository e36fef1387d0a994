"""The log over HTTP: cursors, filters, long polls and server-sent events, and none of it lost."""

import json
import threading
import time

import pytest

from tests.support.servedhub import serve
from tests.support.until import until

SETTINGS = "[plugins]\nurls = false\n"  # its runner would subscribe too
CONSTANTS = {
    "appliance.web.sse_stream.HEARTBEAT_SECONDS": 0.2,
    "appliance.hub.service.WAITING_MAX": 6,
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("hub"), settings=SETTINGS, constants=CONSTANTS) as hub:
        yield hub


@pytest.fixture(scope="module")
def topic_pairs(hub):
    return [hub.channel_with_topic("one"), hub.channel_with_topic("two")]


@pytest.fixture(autouse=True)
def nobody_waits(hub):
    """Every test leaves the hub without streams and polls."""
    yield
    until(lambda: metric(hub, "feed_subscriptions") == 0, 10, "all slots are free")


def metric(hub, name):
    for line in hub.http.get("/metrics").raw.decode().splitlines():
        if line.startswith(f"agentlip_{name} "):
            return float(line.split()[-1])
    raise AssertionError(name)


def ids(answer):
    assert answer.status == 200, answer
    return [event["event_id"] for event in answer.body["events"]]


class Polling(threading.Thread):
    """One request in a thread of its own."""

    def __init__(self, hub, path):
        super().__init__(daemon=True)
        self.client, self.path = hub.connect(), path
        self.start()

    def run(self):
        self.started = time.monotonic()
        self.answer = self.client.get(self.path)
        self.seconds = time.monotonic() - self.started

    def end(self):
        self.join(20)
        assert not self.is_alive()
        self.client.close()
        return self.answer


def waits(hub, count=1):
    until(lambda: metric(hub, "feed_subscriptions") == count, 10, f"{count} wait")


# -- pages -------------------------------------------------------------------------------


def test_filters_select_events_by_channel_topic_and_name(hub, topic_pairs):
    (first, first_topic), (second, second_topic) = topic_pairs
    for topic_id in (first_topic, second_topic):
        message_id = hub.send(topic_id)["message"]["id"]
        hub.http.patch(f"/api/v1/messages/{message_id}", {"op": "edit", "content_raw": "y"})
    log = hub.rows(
        "SELECT event_id, name, scope_channel_id, scope_topic_id FROM events ORDER BY event_id"
    )
    for query, wanted in (
        (f"channel_id={first}", lambda row: row[2] == first),
        (f"topic_id={second_topic}", lambda row: row[3] == second_topic),
        ("name=message.edited", lambda row: row[1] == "message.edited"),
        (f"channel_id={second}&topic_id={first_topic}", lambda row: False),
        (
            f"channel_id={second}&name=message.edited",
            lambda row: row[2] == second and row[1] == "message.edited",
        ),
        ("name=unheard.of", lambda row: False),
        ("topic_id=nobody", lambda row: False),
    ):
        expected = [row[0] for row in log if wanted(row)]
        assert ids(hub.http.get(f"/api/v1/events?limit=1000&{query}")) == expected, query
        tail = ids(hub.http.get(f"/api/v1/events?tail=2&{query}"))
        assert tail == expected[-2:], "the newest, oldest first"
        after = expected[len(expected) // 2] if expected else 5
        later = ids(hub.http.get(f"/api/v1/events?limit=1000&after={after}&{query}"))
        assert later == [number for number in expected if number > after]


# -- long polls ----------------------------------------------------------------------------


def test_poll_of_one_channel_ignores_events_of_others(hub, topic_pairs):
    """However busy the hub is: an empty answer before the time would make a client spin."""
    done = threading.Event()

    def noise():
        client = hub.connect()
        while not done.is_set():
            hub.send(topic_pairs[1][1], "noise", client)

    talking = [threading.Thread(target=noise, daemon=True) for _ in range(3)]
    for thread in talking:
        thread.start()
    try:
        path = f"/api/v1/events?after={hub.head}&channel_id={topic_pairs[0][0]}"
        for _ in range(5):
            poll = Polling(hub, f"{path}&wait=0.3")
            assert ids(poll.end()) == []
            assert poll.seconds >= 0.3
        poll = Polling(hub, f"{path}&wait=5&name=message.created")
        waits(hub)
        event_id = hub.send(topic_pairs[0][1])["event_id"]
        assert ids(poll.end()) == [event_id]
    finally:
        done.set()
        for thread in talking:
            thread.join()


def test_consecutive_polls_miss_no_event_under_load(hub, topic_pairs):
    start, each = hub.head, 150

    def send():
        client = hub.connect()
        for _ in range(each):
            hub.send(topic_pairs[0][1], "load", client)

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


def test_polls_above_the_limit_are_refused(hub):
    polls = [Polling(hub, f"/api/v1/events?after={hub.head}&wait=5") for _ in range(6)]
    waits(hub, 6)
    for path in (f"/api/v1/events?after={hub.head}&wait=5", "/api/v1/events/stream"):
        refused = hub.http.get(path)
        assert (refused.status, refused.body["code"]) == (503, "SERVICE_UNAVAILABLE")
        assert int(refused.headers["retry-after"]) >= 1
    assert hub.http.get(f"/api/v1/events?after={hub.head}").status == 200, "no wait, no limit"
    hub.channel("ends them all")
    for poll in polls:
        assert len(ids(poll.end())) == 1


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


def test_a_stream_goes_on_after_the_last_event_id(hub, topic_pairs):
    stream, start = Stream(hub, f"?after={hub.head}"), hub.head
    events = []
    for _ in range(4):
        hub.send_many(topic_pairs[0][1], ["x"] * 40)
        events += [stream.event()[0] for _ in range(25)]
        stream.close()
        hub.send(topic_pairs[0][1])
        stream = Stream(hub, "?after=0", **{"Last-Event-ID": str(events[-1])})
    events += stream.until(hub.head)
    assert events == list(range(start + 1, hub.head + 1))
    stream.close()


def test_concurrent_streams_receive_all_events_under_load(hub, topic_pairs):
    start = hub.head
    streams = [Stream(hub, f"?after={start}") for _ in range(4)]
    for _ in range(5):
        hub.send_many(topic_pairs[0][1], ["load"] * 500)
    late = Stream(hub, f"?after={start}")
    hub.send_many(topic_pairs[0][1], ["load"] * 500)
    for stream in [*streams, late]:
        assert stream.until(hub.head) == list(range(start + 1, hub.head + 1))
        stream.close()
