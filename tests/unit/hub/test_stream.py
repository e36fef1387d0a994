"""A session at the moments that are hard to meet from outside: between taking and sending."""

import gevent
import msgspec
import pytest
from gevent.event import Event
from gevent.lock import RLock

from appliance.hub import wire
from appliance.hub.requests import Requests
from appliance.hub.stream import HubSession
from appliance.web.socket import SocketGone
from tests.support.until import gevent_until
from tests.unit.hub.test_queries import frames


class StubSocket:
    """Takes frames; `blocked` stops the writing greenlet at its next flush."""

    wait_seconds = 10.0

    def __init__(self):
        self.sent, self.posted = [], []
        self.blocked, self.arrived = RLock(), Event()
        self.on_flush = lambda: None
        self.gone = False
        self.wake = None

    def run(self, on_messages, wake, body, settle):
        self.on_messages, self.wake = on_messages, wake
        try:
            body()
        except SocketGone:
            return 1000

    def wake_with(self, wake):
        self.wake = wake

    def is_free(self):
        return False

    def send(self, data):
        self.sent += frames(data)

    def post(self, data):
        self.posted.append(data)
        self.wake()

    def flush(self):
        self.arrived.set()
        with self.blocked:
            pass
        self.on_flush()
        posted, self.posted = self.posted, []
        for data in posted:
            self.send(data)
        if self.gone:
            raise SocketGone(1000)

    def of(self, kind):
        return [message for message in self.sent if message["type"] == kind]


class Table:
    """A session over a stub, and a hub with two channels to talk in."""

    def __init__(self, env):
        self.env, self.hub, self.socket = env, env.hub, StubSocket()
        requests = Requests(self.hub, lambda cost: None)
        self.session = HubSession(self.socket, self.hub, env.alice, requests)
        self.running = gevent.spawn(self.session.run)
        self.topics = {}
        self.make("here")

    def make(self, name):
        channel_id = self.env.channel(name)
        self.topics[name] = self.env.topic(channel_id, "t")
        return channel_id

    def say(self, name, count=1):
        for _ in range(count):
            self.env.post(self.topics[name])

    def hello(self, **subscriptions):
        wanted = msgspec.convert(subscriptions, wire.Subscriptions) if subscriptions else None
        hello = wire.HubHello(self.env.feed.head, wanted)
        self.socket.on_messages([msgspec.json.encode(hello)])
        gevent_until(lambda: self.socket.of("hello_ok"))

    def block_writer(self):
        """Stop the writing greenlet at its next flush, with the frames it has taken."""
        self.settle()
        self.socket.blocked.acquire()
        self.socket.arrived.clear()

    def arrive(self):
        assert self.socket.arrived.wait(10)

    def settle(self):
        """Waits until all events published so far were handled."""
        gevent_until(lambda: self.session._cursor >= self.env.feed.head or self.quiet())

    def quiet(self):
        subscription = self.session._subscription
        return not subscription._queue and not subscription.lagging

    def event_ids(self):
        return [event["event_id"] for event in self.socket.of("event")]

    def events_of(self, channel_id):
        sql = "SELECT event_id FROM events WHERE scope_channel_id = ?"
        return [row[0] for row in self.env.rows(sql, channel_id)]


@pytest.fixture
def table(env, monkeypatch):
    monkeypatch.setattr("appliance.hub.stream.QUEUE_MAX", 20)
    gevent.get_hub()
    table = Table(env)
    gevent.sleep(0)
    yield table
    table.socket.gone = True
    table.socket.wake()
    table.running.join(5)


def test_channel_created_during_lag_is_followed(table):
    table.hello(channels=["later"])
    table.block_writer()
    table.say("here")
    table.arrive()
    channel_id = table.make("later")
    table.say("later", 40)
    assert table.session._subscription.lagging
    table.socket.blocked.release()
    gevent_until(lambda: not table.session._subscription.lagging)
    table.say("later", 3)
    expected = table.events_of(channel_id)
    gevent_until(lambda: table.event_ids()[-1:] == expected[-1:])
    assert table.event_ids() == expected


def test_channel_created_during_hello_is_followed(table):
    """The channel is made after its name was looked up and before the log is read."""
    looked_up = table.hub.filter_for

    def then_somebody_makes_it(channels, topics):
        resolved = looked_up(channels, topics)
        if "later" not in table.topics:
            table.made = table.make("later")
            table.say("later", 2)
        return resolved

    table.hub.filter_for = then_somebody_makes_it
    table.hello(channels=["later"])
    table.say("later")
    expected = table.events_of(table.made)
    gevent_until(lambda: table.event_ids()[-1:] == expected[-1:])
    assert table.event_ids() == expected


def test_a_lagging_session_gets_every_event_once(table):
    table.hello()
    start = table.env.feed.head
    for _ in range(5):
        table.block_writer()
        table.say("here")
        table.arrive()
        table.say("here", 50)
        assert table.session._subscription.lagging
        table.socket.blocked.release()
        table.say("here", 10)
    gevent_until(lambda: table.event_ids()[-1:] == [table.env.feed.head])
    assert table.event_ids() == list(range(start + 1, table.env.feed.head + 1))
