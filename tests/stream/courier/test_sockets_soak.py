"""A soak test: clients that vanish, stall and send nonsense, beside clients that work."""

import json
import random
import socket
import struct
import threading
import time

import pytest
from websockets.exceptions import ConnectionClosed

from appliance.sdk.courier import Consumer, Producer
from appliance.sdk.discovery import Endpoint
from appliance.sdk.websocket import WebSocket
from tests.support.courier import envelope, opened, send, stats, subscribed
from tests.support.hubprocess import served
from tests.support.until import until

SECONDS = 6
STREAM = "soak/work"
TOML = """
[courier]
lease_seconds = 0.4
[[courier.streams]]
pattern = "soak/*"
deliveries_max = 1000
backoff_seconds = 0
depth_max = 100000
"""
BAD_FRAMES = [
    "", "null", "[", '{"credit":-5}', '{"credit":1e9}', '{"ack":["nothing"]}', '{"ack":null}',
    '{"nack":"nobody","mode":"reject"}', '{"extend":["x"],"leaseMs":-1}', "\u0000", '{"a":{"b":[',
    json.dumps({"ack": "x" * 5000}), '{"credit":10000}', '{"credit":10000}',
]  # fmt: skip


class MixedClients:
    """Each client runs in a thread until `over`. Exceptions are collected in `faults`."""

    def __init__(self, hub):
        self.hub = hub
        self.over = threading.Event()
        self.done = threading.Event()
        self.sent = [0, 0]
        self.faults = []
        host, port = hub.url.removeprefix("http://").split(":")
        self.endpoint = Endpoint(host, int(port), token=hub.token)

    def run(self, work, *arguments):
        def guarded():
            try:
                work(*arguments)
            except Exception as error:
                self.faults.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def produce(self, index):
        with Producer(lambda: self.endpoint) as producer:
            while not self.over.is_set():
                ids = [f"p{index}-{self.sent[index] + number}" for number in range(50)]
                producer.send_many(STREAM, [envelope(id_, partitionKey=id_[-3:]) for id_ in ids])
                self.sent[index] += 50
                self.over.wait(0.1)

    def work(self, seen):
        consumer = Consumer(lambda: self.endpoint, STREAM, credit=40)
        for delivery in consumer.deliveries(0.2):
            if delivery is not None:
                seen.append(delivery.id)
                delivery.ack()
            elif self.done.is_set():
                break
        consumer.close()

    def vanish(self):
        rng = random.Random(1)
        while not self.over.is_set():
            link = WebSocket(self.endpoint, f"/v1/subscribe?stream={STREAM}&credit=20")
            for _ in range(rng.randrange(1, 5)):
                link.receive(0.2)
            # Reset the connection without closing it properly, with unread bytes.
            reset = struct.pack("ii", 1, 0)
            link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            link._socket.close()

    def stall(self):
        while not self.over.is_set():
            with opened(self.hub, f"/v1/subscribe?stream={STREAM}&credit=2000") as consumer:
                consumer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                self.over.wait(3)

    def send_bad_frames(self):
        rng = random.Random(2)
        while not self.over.is_set():
            try:
                with (
                    subscribed(self.hub, STREAM) as consumer,
                    opened(self.hub, "/v1/publish") as publisher,
                ):
                    for _ in range(50):
                        consumer.send(rng.choice(BAD_FRAMES))
                        publisher.send(rng.choice(BAD_FRAMES))
                        send(publisher, seq=1, to=STREAM, envelope={"id": "no"})
            except (ConnectionClosed, OSError):
                continue

    def flood_acks(self):
        while not self.over.is_set():
            with subscribed(self.hub, STREAM) as consumer:
                for number in range(200):
                    send(consumer, ack=[f"p0-{number}", f"p1-{number}"])
                self.over.wait(0.2)


@pytest.mark.slow
def test_nothing_is_lost_among_misbehaving_clients(tmp_path):
    (tmp_path / "agentlip.toml").write_text(TOML)
    with served(tmp_path, "--no-limits") as hub:
        clients, seen = MixedClients(hub), []
        good = [clients.run(clients.work, seen) for _ in range(2)]
        bad = [
            clients.run(behaviour)
            for behaviour in (
                clients.vanish,
                clients.stall,
                clients.send_bad_frames,
                clients.flood_acks,
            )
        ]
        producers = [clients.run(clients.produce, index) for index in range(2)]
        request_health_repeatedly(hub, SECONDS)
        clients.over.set()
        for thread in (*producers, *bad):
            thread.join(20)
        total = sum(clients.sent)
        until(lambda: stats(hub, STREAM)["depth"] == 0, 60, "all of it is worked off")
        clients.done.set()
        for thread in good:
            thread.join(20)
        until(lambda: stats(hub, STREAM)["subscribers"] == 0, 20, "nobody is left")
        figures = stats(hub, STREAM)
        assert clients.faults == []
        assert figures["enqueued"] == total
        assert figures["acked"] + figures["dead"] + sum(figures["dropped"].values()) == total
        assert len(set(seen)) == figures["acked"] == total
        assert figures["inflight"] == 0
        assert total > 500


def request_health_repeatedly(hub, seconds):
    """Check that other requests are answered meanwhile."""
    until_then = time.monotonic() + seconds
    while time.monotonic() < until_then:
        assert hub.request("GET", "/health")["ok"]
        time.sleep(0.05)
