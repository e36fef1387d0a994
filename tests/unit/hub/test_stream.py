"""A session at the moments that are hard to meet from outside: between taking and sending."""

import json

import gevent
import msgspec
import pytest
from gevent.event import Event
from gevent.lock import RLock

from appliance.hub import wire
from appliance.hub.requests import Requests
from appliance.hub.stream import Session
from appliance.web.socket import SocketGone, SocketSettings
from tests.unit.hub.test_queries import frames

SETTINGS = SocketSettings(queue_max=20, ping_seconds=40.0)


class StubSocket:
    """Takes frames; `held` stops the writing greenlet at its next flush. Not `free`: what is
    told waits for that greenlet."""

    def __init__(self):
        self.sent, self.posted = [], []
        self.held, self.arrived = RLock(), Event()
        self.on_flush = lambda: None
        self.gone = self.free = False
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
        return self.free and not self.posted

    def send(self, data):
        self.sent += frames(data)

    def post(self, data):
        if self.is_free():
            self.send(data)
            return
        self.posted.append(data)
        self.wake()

    def flush(self):
        self.arrived.set()
        with self.held:
            pass
        self.on_flush()
        posted, self.posted = self.posted, []
        for data in posted:
            self.send(data)
        if self.gone:
            raise SocketGone(1000)

    def has_room(self, _seconds):
        return True

    def of(self, kind):
        return [message for message in self.sent if message["type"] == kind]


class Table:
    """A session over a stub, and a hub with two channels to talk in."""

    def __init__(self, house):
        self.house, self.hub, self.socket = house, house.hub, StubSocket()
        requests = Requests(self.hub, lambda cost: None)
        self.session = Session(self.socket, self.hub, house.alice, requests, SETTINGS)
        self.running = gevent.spawn(self.session.run)
        self.topics = {}
        self.make("here")

    def make(self, name):
        who = self.house.alice
        made = json.loads(self.hub.create_channel(wire.CreateChannel(name), who).body)
        topic = wire.CreateTopic(made["channel"]["id"], "t")
        self.topics[name] = json.loads(self.hub.create_topic(topic, who).body)["topic"]["id"]
        return made["channel"]["id"]

    def say(self, name, count=1):
        message = wire.CreateMessage(self.topics[name], "s", "x")
        for _ in range(count):
            self.hub.create_message(message, self.house.alice)

    def hello(self, **subscriptions):
        wanted = msgspec.convert(subscriptions, wire.Subscriptions) if subscriptions else None
        hello = wire.Hello(self.house.feed.head, wanted)
        self.socket.on_messages([msgspec.json.encode(hello)])
        self.until(lambda: self.socket.of("hello_ok"))

    def hold(self):
        """Stop the writing greenlet at its next flush, with what it has taken in its hands."""
        self.settle()
        self.socket.held.acquire()
        self.socket.arrived.clear()

    def arrive(self):
        assert self.socket.arrived.wait(10)

    def until(self, condition):
        with gevent.Timeout(10):
            while not condition():
                gevent.sleep(0.001)

    def settle(self):
        """Until everything told so far was dealt with."""
        self.until(lambda: self.session._cursor >= self.house.feed.head or self.quiet())

    def quiet(self):
        subscription = self.session._subscription
        return not subscription._queue and not subscription.lagging

    def told(self):
        return [event["event_id"] for event in self.socket.of("event")]

    def events_of(self, channel_id):
        sql = "SELECT event_id FROM events WHERE scope_channel_id = ?"
        return [row[0] for row in self.house.rows(sql, channel_id)]


@pytest.fixture
def table(house):
    gevent.get_hub()
    table = Table(house)
    gevent.sleep(0)
    yield table
    table.socket.gone = True
    table.socket.wake()
    table.running.join(5)


def test_a_name_that_comes_to_be_while_the_client_lags_is_followed(table):
    table.hello(channels=["later"])
    table.hold()
    table.say("here")
    table.arrive()
    channel_id = table.make("later")
    table.say("later", 40)
    assert table.session._subscription.lagging
    table.socket.held.release()
    table.until(lambda: not table.session._subscription.lagging)
    table.say("later", 3)
    expected = table.events_of(channel_id)
    table.until(lambda: table.told()[-1:] == expected[-1:])
    assert table.told() == expected


def test_a_name_that_comes_to_be_lets_nothing_else_through(table):
    table.hello(channels=["later"])
    table.hold()
    channel_id = table.make("later")
    table.arrive()
    table.say("here", 5)
    table.socket.held.release()
    table.say("later")
    expected = table.events_of(channel_id)
    table.until(lambda: table.told()[-1:] == expected[-1:])
    assert table.told() == expected


def test_a_name_that_comes_to_be_during_hello_is_followed(table):
    """The channel is made after its name was looked up and before the log is read."""
    looked_up = table.hub.filter_for

    def then_somebody_makes_it(channels, topics):
        found = looked_up(channels, topics)
        if "later" not in table.topics:
            table.made = table.make("later")
            table.say("later", 2)
        return found

    table.hub.filter_for = then_somebody_makes_it
    table.hello(channels=["later"])
    table.say("later")
    expected = table.events_of(table.made)
    table.until(lambda: table.told()[-1:] == expected[-1:])
    assert table.told() == expected


def test_answers_posted_while_a_client_catches_up_go_out_at_once(table):
    table.hello()
    table.hold()
    table.socket.wake()
    table.arrive()
    table.say("here", 40)
    assert table.session._subscription.lagging
    posted = []

    def at_the_last_moment():
        if table.session._cursor == table.house.feed.head and not posted:
            posted.append(True)
            gevent.spawn(table.socket.post, b'\x81\x13{"type":"response"}')

    table.socket.on_flush = at_the_last_moment
    table.socket.held.release()
    with gevent.Timeout(2):
        table.until(lambda: table.socket.of("response"))
    assert table.told() == list(range(table.told()[0], table.house.feed.head + 1))


def test_a_lagging_session_gets_every_event_once(table):
    table.hello()
    start = table.house.feed.head
    for _ in range(5):
        table.hold()
        table.say("here")
        table.arrive()
        table.say("here", 50)
        assert table.session._subscription.lagging
        table.socket.held.release()
        table.say("here", 10)
    table.until(lambda: table.told()[-1:] == [table.house.feed.head])
    assert table.told() == list(range(start + 1, table.house.feed.head + 1))


def test_a_session_that_waits_is_told_by_whoever_publishes(table):
    table.hello()
    table.settle()
    gevent.sleep(0)
    table.socket.free = True
    start = table.house.feed.head
    with table.socket.held:  # the writing greenlet is not needed
        table.say("here", 6)
        assert table.told() == list(range(start + 1, start + 7))


def test_who_is_told_directly_and_then_stalls_gets_every_event_in_order(table):
    table.hello()
    start = table.house.feed.head
    for round_ in range(12):
        table.socket.free = round_ % 3 != 2  # its kernel takes no more, for a while
        table.say("here", 1 + round_ % 2)
        if round_ % 4 == 3:
            table.settle()
    table.until(lambda: table.told()[-1:] == [table.house.feed.head])
    assert table.told() == list(range(start + 1, table.house.feed.head + 1))


def test_who_starts_to_wait_when_all_is_over_does_not_wait(house):
    house.feed.close()
    assert house.feed.subscribe(1).wait(0), "there is nobody left to wake it"
