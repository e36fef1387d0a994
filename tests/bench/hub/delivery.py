"""P4, P5: from an insert to its event, at one subscriber and at fifty."""

import json
import os
import re
import select
import socket
import time
import zlib
from typing import Any

from tests.bench.client import (
    NOW,
    RECEIVE_BYTES,
    Http,
    HubSocket,
    check,
    closed_loop,
    masked,
    one_by_one,
    pipelined,
    split,
)
from tests.bench.figures import Figure, Row, milliseconds, percentiles
from tests.bench.hub import floors
from tests.bench.hub.bench import Bench
from tests.bench.hub.inserts import NOTHING, WINDOW, warm_up
from tests.bench.machine import Meter
from tests.bench.target import RowFailed, Target

NUMBER = re.compile(rb'"content_raw":"n=(\d+);')
EVENT_ID = re.compile(rb'"event_id":(\d+)')
PACED_CONNECTIONS = 4
QUIET_SECONDS_MAX = 15.0
POLL_SECONDS = 0.002
SUBSCRIBER_BUFFER_BYTES = 4 << 20
PONG = masked(b"", 10)
PONG_SECONDS = 5.0


# -- one subscriber ------------------------------------------------------------------------


def p4(bench: Bench) -> Row:
    rate, seconds = bench.sizes.paced_rate, bench.sizes.paced_seconds
    row = Row("P4", f"insert to event at one subscriber, {rate} inserts a second")
    warm_up(bench)
    topic = bench.topic()
    paced = Paced(bench, topic, rate, rate * seconds)
    with Meter(bench.target.pid) as meter:
        paced.run()
    bench.metered(
        row,
        "paced",
        meter,
        insert_to_event=percentiles(paced.event_seconds),
        insert_to_reply=percentiles(paced.reply_seconds),
        latest_send_ms=round(paced.late_seconds * 1000, 2),
    )
    row.counted = {"sent": paced.count, "delivered": len(paced.seen), "doubled": paced.doubled}
    if len(paced.seen) != paced.count:
        raise RowFailed(f"events were lost: {row.counted}")
    row.figures = [
        Figure("insert to event p50", milliseconds(paced.event_seconds, 0.5), "ms", below=0.6),
        Figure("insert to event p99", milliseconds(paced.event_seconds, 0.99), "ms", below=5),
    ]
    row.floor = floors.one_commit(bench.target.database, bench.topic(), bench.channel, 500)
    return row


class Paced:
    """Sends at planned instants; every latency counts from the plan, not from the sending."""

    def __init__(self, bench: Bench, topic: str, rate: float, count: int) -> None:
        self.count = count
        self.event_seconds: list[float] = []
        self.reply_seconds: list[float] = []
        self.seen: set[int] = set()
        self.doubled = 0
        self.late_seconds = 0.0
        self._rate = rate
        self._requests = bench.posts(topic, count)
        self._idle = [Http(bench.target) for _ in range(PACED_CONNECTIONS)]
        self._unanswered: dict[Http, int] = {}
        self._listener = HubSocket(bench.target, bench.head(), {"channels": [], "topics": [topic]})
        self._next = 0
        self._begin = 0.0

    def run(self) -> None:
        self._begin = NOW() + 0.05
        last_received = self._begin
        while len(self.seen) < self.count or self._unanswered:
            self._send_what_is_due()
            if self._receive_ready(self._wait_seconds()):
                last_received = NOW()
            elif NOW() - last_received > QUIET_SECONDS_MAX:
                raise RowFailed(f"silence after {len(self.seen)} of {self.count} events")
        for connection in self._idle:
            connection.close()
        self._listener.close()

    def _due(self, number: int) -> float:
        return self._begin + number / self._rate

    def _send_what_is_due(self) -> None:
        while self._next < self.count and self._idle and NOW() >= self._due(self._next):
            connection = self._idle.pop()
            connection.send(self._requests[self._next])
            self.late_seconds = max(self.late_seconds, NOW() - self._due(self._next))
            self._unanswered[connection] = self._next
            self._next += 1

    def _wait_seconds(self) -> float:
        if self._next < self.count and self._idle:
            return max(0.0, self._due(self._next) - NOW())
        return 1.0

    def _receive_ready(self, wait_seconds: float) -> bool:
        """Take what came. `select` waits by microseconds where `epoll` rounds up to one."""
        sources: list[Any] = [
            self._listener.sock,
            *(open_connection.sock for open_connection in self._unanswered),
        ]
        ready, _, _ = select.select(sources, [], [], wait_seconds)
        if self._listener.sock in ready:
            self._take_events()
        for connection in [
            open_connection for open_connection in self._unanswered if open_connection.sock in ready
        ]:
            answer = connection.receive()
            if answer is not None:
                check(*answer)
                self.reply_seconds.append(NOW() - self._due(self._unanswered.pop(connection)))
                self._idle.append(connection)
        return bool(ready)

    def _take_events(self) -> None:
        frames = self._listener.receive()
        now = NOW()
        for frame in frames:
            match = NUMBER.search(frame)
            if match is None:
                continue
            number = int(match[1])
            if number in self.seen:
                self.doubled += 1
                continue
            self.seen.add(number)
            self.event_seconds.append(now - self._due(number))


# -- fifty subscribers ---------------------------------------------------------------------


def p5(bench: Bench) -> Row:
    subscribers, count = bench.sizes.subscribers, bench.sizes.fanned_out
    row = Row("P5", f"fan-out of every event to {subscribers} WebSocket subscribers")
    warm_up(bench)
    for name, produce, target in (
        ("1 producer", _one_producer, None),
        ("8 producers", _eight_producers, 150_000),
        ("1 WebSocket producer", _socket_producer, None),
    ):
        rate, facts = _fan_out(bench, row, name, produce)
        row.figures.append(Figure(name, rate, "events per s", at_least=target))
        row.counted[name] = facts
    frame = b"\x81\x7e\x02\x58" + b"x" * 600
    row.floor = floors.sends(subscribers, frame, max(50, count // 3))
    return row


def _one_producer(bench: Bench, topic: str, count: int) -> None:
    connection = Http(bench.target)
    one_by_one(connection, bench.posts(topic, count))
    connection.close()


def _eight_producers(bench: Bench, topic: str, count: int) -> None:
    closed_loop(bench.target, bench.posts(topic, count), 8)


def _socket_producer(bench: Bench, topic: str, count: int) -> None:
    connection = HubSocket(bench.target, 0, NOTHING)
    pipelined(connection, bench.frames(topic, count), WINDOW, lambda _: None)
    connection.close()


def _fan_out(bench: Bench, row: Row, name: str, produce: Any) -> tuple[float, dict[str, Any]]:
    """One variant: events a second, from the first insert sent to the last event received."""
    topic, count, subscribers = bench.topic(), bench.sizes.fanned_out, bench.sizes.subscribers
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_subscribers(writing, bench.target, topic, bench.head(), subscribers, count)
    os.close(writing)
    with os.fdopen(reading) as results, Meter(bench.target.pid) as meter:
        if results.readline() != "ready\n":
            raise RowFailed("the subscribers could not connect")
        began = NOW()
        produce(bench, topic, count)
        produced = NOW()
        line = results.readline()
        os.waitpid(child, 0)  # so that its CPU time counts
    facts = json.loads(line or '{"failed": "the subscribers ended without a word"}')
    if "failed" in facts:
        raise RowFailed(f"{name}: {facts['failed']}")
    last = facts.pop("last")
    bench.metered(
        row,
        name,
        meter,
        inserts_per_s=round(count / (produced - began)),
        events_per_s=round(subscribers * count / (last - began)),
    )
    return subscribers * count / (last - began), facts


def _run_subscribers(
    pipe: int, target: Target, topic: str, after: int, subscribers: int, count: int
) -> None:
    """In a child process: receive all events and report to the parent. Never returns."""
    try:
        connected = [Subscriber(target, topic, after) for _ in range(subscribers)]
        os.write(pipe, b"ready\n")
        facts = _receive(connected, count)
    except Exception as error:
        facts = {"failed": repr(error)}
    os.write(pipe, json.dumps(facts).encode() + b"\n")
    os._exit(0)


class Subscriber:
    """A subscriber that only counts and sums up bytes: all must get the same stream."""

    def __init__(self, target: Target, topic: str, after: int) -> None:
        subscriptions: dict[str, list[str]] = {"channels": [], "topics": [topic]}
        connection = HubSocket(target, after, subscriptions, SUBSCRIBER_BUFFER_BYTES)
        connection.sock.setblocking(False)
        self.sock: socket.socket = connection.sock
        self.size = 0
        self.sum = 0
        self.frames: list[bytes] | None = None  # kept by the first hearer alone
        self._rest = b""
        self._add(connection.rest())

    def poll(self) -> bool:
        try:
            data = self.sock.recv(4 * RECEIVE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            raise RowFailed("a subscriber was closed")
        self._add(data)
        return True

    def _add(self, data: bytes) -> None:
        self.size += len(data)
        self.sum = zlib.crc32(data, self.sum)
        if self.frames is not None:
            self._rest += data
            frames, used = split(self._rest)
            self._rest = self._rest[used:]
            self.frames += frames


def _receive(subscribers: list[Subscriber], count: int) -> dict[str, Any]:
    """Read until all have what the first has, and that is everything."""
    first = subscribers[0]
    first.frames = []
    last = NOW()
    ponged = last
    while len(first.frames) < count or any(
        subscriber.size != first.size for subscriber in subscribers
    ):
        time.sleep(POLL_SECONDS)  # reading at every event would cost a core by itself
        if sum(subscriber.poll() for subscriber in subscribers):
            last = NOW()
        elif NOW() - last > QUIET_SECONDS_MAX:
            break
        if NOW() - ponged > PONG_SECONDS:  # a sign of life, so that nobody is pinged
            ponged = NOW()
            for subscriber in subscribers:
                subscriber.sock.sendall(PONG)
    numbers = [int(match[1]) for frame in first.frames if (match := EVENT_ID.search(frame))]
    unlike = sum(
        (subscriber.size, subscriber.sum) != (first.size, first.sum) for subscriber in subscribers
    )
    facts = {
        "subscribers": len(subscribers),
        "events_each": len(set(numbers)),
        "lost": count - len(set(numbers)),
        "doubled": len(numbers) - len(set(numbers)),
        "streams_unlike_the_first": unlike,
        "last": last,
    }
    if facts["lost"] or facts["doubled"] or unlike or numbers != sorted(numbers):
        return {"failed": f"events were lost, doubled or out of order: {facts}"}
    return facts
