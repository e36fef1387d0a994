"""Clients of the courier's benchmark: raw sockets, with requests and frames built in advance."""

import json
import re
import select
from collections.abc import Callable, Sequence
from urllib.parse import quote

from tests.bench.client import NOW, Http, WebSocket, encode, masked
from tests.bench.target import RowFailed, Target

ENVELOPE_BYTES = 256
STALL_SECONDS_MAX = 20.0
ACKS_MAX = 1_000  # in one frame
_number = re.compile(rb'"id": ?"b(\d+)')
_accepted = re.compile(rb'"accepted":(\d+)')


def envelope(stream: str, number: int) -> dict[str, object]:
    made = {
        "id": f"b{number}",
        "ts": "2025-10-18T19:55:00Z",
        "from": "bench",
        "to": stream,
        "type": "bench.msg",
        "payload": {"pad": ""},
    }
    pad = ENVELOPE_BYTES - len(json.dumps(made, separators=(",", ":")))
    return {**made, "payload": {"pad": "x" * max(0, pad)}}


def batches(target: Target, stream: str, count: int, size: int) -> list[bytes]:
    """Requests of `POST /v1/enqueue/batch`, ready to send."""
    return [
        encode(
            target,
            "POST",
            "/v1/enqueue/batch",
            {
                "to": stream,
                "envelopes": [
                    envelope(stream, number) for number in range(start, min(start + size, count))
                ],
            },
        )
        for start in range(0, count, size)
    ]


def publishes(stream: str, count: int) -> list[bytes]:
    """Frames of `/v1/publish`, one envelope each."""
    return [
        masked(
            json.dumps(
                {"seq": number, "to": stream, "envelope": envelope(stream, number)},
                separators=(",", ":"),
            ).encode()
        )
        for number in range(count)
    ]


class BenchConsumer(WebSocket):
    """Receives, and acks and grants credit with one frame for each `recv`."""

    def __init__(self, target: Target, stream: str, credit: int, query: str = "") -> None:
        super().__init__(target, f"/v1/subscribe?stream={quote(stream, safe='/*')}{query}")
        self.credit = credit
        self.spent = 0
        self.seen: list[int] = []
        self.times: list[float] = []
        self.say(b'{"credit":%d}' % credit)

    def turn(self) -> int:
        """Ack the deliveries of one `recv`. Returns how many."""
        joined = b"".join(self.receive())
        numbers = _number.findall(joined)
        if not numbers:
            if b'"error"' in joined:
                raise RowFailed(f"an error frame: {joined[:200]!r}")
            return 0
        now, count = NOW(), len(numbers)
        self.seen += map(int, numbers)
        self.times += [now] * len(numbers)
        self.spent += len(numbers)
        while len(numbers) > ACKS_MAX:
            self.say(b'{"ack":["b%b"]}' % b'","b'.join(numbers[:ACKS_MAX]))
            numbers = numbers[ACKS_MAX:]
        frame = b'{"ack":["b%b"]' % b'","b'.join(numbers)
        if self.spent * 2 >= self.credit:
            frame += b',"credit":%d' % self.spent
            self.spent = 0
        self.say(frame + b"}")
        return count


class BatchProducer:
    """Sends batches over HTTP, one at a time."""

    def __init__(self, target: Target, requests: Sequence[bytes]) -> None:
        self.http = Http(target)
        self.sock = self.http.sock
        self._waiting = iter(requests)
        self.done = False
        self.next()

    def next(self) -> None:
        request = next(self._waiting, None)
        if request is None:
            self.done = True
        else:
            self.http.send(request)

    def turn(self) -> int:
        answer = self.http.receive()
        if answer is None:
            return 0
        if answer[0] != 200:
            raise RowFailed(f"status {answer[0]}: {answer[1][:200]!r}")
        self.next()
        return 1

    def close(self) -> None:
        self.http.close()


class FrameProducer(WebSocket):
    """Sends frames on a socket with at most `window` unconfirmed; with 0 the caller sends them."""

    def __init__(self, target: Target, frames: Sequence[bytes], window: int) -> None:
        super().__init__(target, "/v1/publish")
        self._frames = frames
        self._window = window
        self._sent = 0
        self.accepted = 0
        self.done = False
        self.sent_at: list[float] = []
        self._fill()

    def _fill(self) -> None:
        if not self._window:
            return
        until = min(len(self._frames), self.accepted + self._window)
        if until > self._sent:
            self.sent_at += [NOW()] * (until - self._sent)
            self.sock.sendall(b"".join(self._frames[self._sent : until]))
            self._sent = until

    def turn(self) -> int:
        joined = b"".join(self.receive())
        if b'"error"' in joined:
            raise RowFailed(f"an error frame: {joined[:200]!r}")
        match = _accepted.findall(joined)
        if not match:
            return 0
        before, self.accepted = self.accepted, int(match[-1]) + 1
        self.done = self.accepted >= len(self._frames)
        self._fill()
        return self.accepted - before


def drive(
    producers: Sequence[BatchProducer | FrameProducer],
    consumers: Sequence[BenchConsumer],
    count: int,
    idle: Callable[[], float] | None = None,
) -> None:
    """Run until `count` envelopes are delivered and all producers have their confirmations.

    `idle` is called in every round. It sends due frames and returns how long to wait.
    """
    clients = {client.sock.fileno(): client for client in (*producers, *consumers)}
    poll = select.epoll()
    for number in clients:
        poll.register(number, select.EPOLLIN)
    received = NOW()
    try:
        while sum(len(consumer.seen) for consumer in consumers) < count or not all(
            producer.done for producer in producers
        ):
            wait = idle() if idle is not None else 0.5
            # epoll rounds its wait up to milliseconds; select does not.
            select.select([poll.fileno()], [], [], wait)
            ready = poll.poll(0)
            for number, _ in ready:
                clients[number].turn()
            if ready:
                received = NOW()
            elif NOW() - received > STALL_SECONDS_MAX:
                got = sum(len(consumer.seen) for consumer in consumers)
                raise RowFailed(f"nothing came any more: {got} of {count} were delivered")
    finally:
        poll.close()


def must_be_all(consumers: Sequence[BenchConsumer], count: int, *, ordered: bool) -> dict[str, int]:
    """Check that every envelope came exactly once, and in order if there was one producer."""
    seen = [number for consumer in consumers for number in consumer.seen]
    if len(seen) != count or len(set(seen)) != count:
        raise RowFailed(f"{count} sent, {len(seen)} delivered, {len(set(seen))} different")
    if ordered and seen != sorted(seen):
        raise RowFailed("deliveries came out of order")
    return {"sent": count, "delivered": len(seen)}
