"""No gap: whatever is missed, cut off or read slowly, the log comes whole (hub spec §0.10)."""

import random
import threading

import pytest

from tests.support.servedhub import serve
from tests.support.socketclient import Closed, SocketClient
from tests.support.until import until

pytestmark = pytest.mark.slow


class Listener(threading.Thread):
    """Listens in its own thread, as slowly as configured, until event `last`.

    `drops` times it hangs up in the middle and comes back with its cursor.
    """

    def __init__(self, hub, after, drops=0, seed=0, **hello):
        super().__init__(daemon=True)
        self.hub, self.after, self.drops, self.hello = hub, after, drops, hello
        self.random = random.Random(seed)
        self.last = None
        self.got, self.cursor, self.error = [], after, None
        self.connected = threading.Event()

    def run(self):
        try:
            while not self.finished():
                self.listen()
        except BaseException as error:
            self.error = error
            self.connected.set()

    def listen(self):
        patience = self.random.randrange(1, 400) if self.drops else None
        with SocketClient(self.hub.port, self.hub.token) as client:
            client.hello(self.cursor, **self.hello)
            self.connected.set()
            while not self.finished():
                try:
                    event = client.recv(seconds=0.3)
                except TimeoutError:
                    continue
                assert event["event_id"] > self.cursor, "in order, none twice on a connection"
                self.cursor = event["event_id"]
                self.got.append(self.cursor)
                if patience is not None:
                    patience -= 1
                    if patience == 0:
                        self.drops -= 1
                        return

    def finished(self):
        return self.last is not None and self.cursor >= self.last

    def end(self, last):
        """Ends after the event `last`, which it must want."""
        self.last = last
        self.join(30)
        if self.error is not None:
            raise self.error
        assert not self.is_alive(), f"at {self.cursor} of {self.last}"
        return self.got


def send_from_many(hub, topics, senders, each):
    """A load; every sender has its own connection."""

    def send(number):
        client = hub.connect()
        for n in range(each):
            hub.send(topics[(number + n) % len(topics)], f"{number}-{n}", client)
        client.close()

    threads = [threading.Thread(target=send, args=(n,), daemon=True) for n in range(senders)]
    for thread in threads:
        thread.start()
    return threads


def test_sockets_opened_during_a_load_get_exactly_their_events(hub):
    choice = random.Random(7)
    pairs = [hub.channel_with_topic(f"load-{n}") for n in range(3)]
    channels = [channel for channel, _ in pairs]
    topics = [topic for _, topic in pairs] + [hub.topic(channels[0], "more")]
    start = hub.head
    load = send_from_many(hub, topics, senders=6, each=150)
    listeners = []
    for n in range(16):
        wanted = None
        if n % 4:
            wanted = {
                "channels": choice.sample(channels, n % 2),
                "topics": choice.sample(topics, 1 + n % 3),
            }
        more = {} if wanted is None else {"subscriptions": wanted}
        after = start if n % 3 else choice.randint(0, hub.head)
        listeners.append((wanted, after, Listener(hub, after, drops=n % 5, seed=n, **more)))
        listeners[-1][2].start()
        until(lambda head=hub.head: hub.head > head + 10 or not_any_alive(load), 10, "load")
    for thread in load:
        thread.join()
    for topic_id in topics:
        hub.send(topic_id, "the last one")
    log = hub.rows("SELECT event_id, scope_channel_id, scope_topic_id FROM events")
    assert len(log) > 900
    for wanted, after, listener in listeners:
        expected = [
            number
            for number, channel, topic in log
            if number > after
            and (wanted is None or channel in wanted["channels"] or topic in wanted["topics"])
        ]
        assert listener.end(expected[-1]) == expected


def not_any_alive(threads):
    return not any(thread.is_alive() for thread in threads)


def test_a_replay_of_many_batches_completes_on_one_connection(hub, ids):
    hub.send_many(ids[1], ["x" * (n % 900) for n in range(5000)])
    with SocketClient(hub.port, hub.token) as client:
        boundary = client.hello(0)["replay_until"]
        assert client.events_until(boundary) == list(range(1, boundary + 1))
        event_id = hub.send(ids[1])["event_id"]
        assert client.recv()["event_id"] == event_id


# -- slow clients ------------------------------------------------------------------------------

CONSTANTS = {
    "appliance.web.socket.STALL_SECONDS_MAX": 4.0,
    "appliance.hub.stream.QUEUE_MAX": 50,
    "appliance.web.exposition.KEEP_SECONDS": 0.0,
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("slow"), constants=CONSTANTS) as hub:
        yield hub


def fill(hub, topic_id, megabytes):
    """More events than the kernel's buffers of a connection hold."""
    hub.send_many(topic_id, ["f" * 60_000] * (megabytes * 17), batch_max=100)


def test_client_that_reads_nothing_is_closed(strict):
    topic_id = strict.channel_with_topic("stalled")[1]
    stalled = SocketClient(strict.port, strict.token, receive_buffer=4096)
    stalled.hello(strict.head)
    with SocketClient(strict.port, strict.token) as quick:
        quick.hello(strict.head)
        start = strict.head
        for _ in range(12):  # read as it comes: only one of the two may stall
            before = strict.head
            fill(strict, topic_id, 1)
            assert quick.events_until(strict.head) == list(range(before + 1, strict.head + 1))
    until(lambda: '{code="1008"} 1.0' in closed(strict), 60, "the stalled one is closed")
    # Events sent before the stall can still be read, whole, and then the code.
    events, code = read_to_the_end(stalled)
    assert code in (1008, 1006), "1006 when not even the close frame had room"
    assert events == list(range(start + 1, start + 1 + len(events)))
    stalled.close()


def read_to_the_end(client):
    """Ids of the events that still come, and the close code."""
    received = []
    try:
        while True:
            received.append(client.recv()["event_id"])
    except Closed as gone:
        return received, gone.code


def closed(hub):
    lines = hub.http.get("/metrics").raw.decode().splitlines()
    return "\n".join(line for line in lines if line.startswith("agentlip_socket_closed_total"))


def test_pausing_client_loses_no_event(strict):
    topic_id = strict.channel_with_topic("pausing")[1]
    with SocketClient(strict.port, strict.token, receive_buffer=4096) as client:
        client.hello(strict.head)
        start = strict.head
        for _ in range(3):
            fill(strict, topic_id, 3)
            strict.send_many(topic_id, ["small"] * 200)
            # Reads a little, long before the stall limit, then everybody goes on.
            for _ in range(20):
                client.recv()
        last = strict.send(topic_id)["event_id"]
        seen = client.events_until(last)
        assert seen[-1] == last
        assert seen == list(range(start + 61, last + 1))
    lagged = strict.http.get("/metrics").raw.decode()
    assert "agentlip_hub_sessions_lagged_total 0.0" not in lagged
