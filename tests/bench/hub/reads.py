"""P6, P7: the past, replayed over one connection; pages and searches in a long topic."""

import json
import os
import re
import select
import signal
from typing import Any

from tests.bench.client import NOW, Http, HubSocket, check, encode, one_by_one, split
from tests.bench.figures import Figure, Row, median, milliseconds, percentiles
from tests.bench.hub import floors, searches
from tests.bench.hub.bench import Bench
from tests.bench.machine import Meter
from tests.bench.target import RowFailed, Target

EVENT_ID = re.compile(rb'"event_id":(\d+)')
PROBE_SECONDS = 0.002
REPLAY_BYTES = 1 << 20


# -- replay ----------------------------------------------------------------------------------


def p6(bench: Bench) -> Row:
    few, many = bench.sizes.replays
    row = Row(
        "P6", f"replay of {few:,} and {many:,} events over one connection, GET /health beside it"
    )
    head, floor_seconds = bench.head(), {}
    if head < many:
        raise RowFailed(f"the log has {head} events, too few")
    for count, limit in ((few, 0.05), (many, 0.5)):
        seconds, probed = [], []
        for _ in range(bench.sizes.replay_runs):
            took, delays = _replay(bench, row, head - count, head)
            seconds.append(took)
            probed += delays
        row.figures += [
            Figure(f"replay of {count:,}", median(seconds), "s", below=limit),
            Figure(f"probe p99 during {count:,}", milliseconds(probed, 0.99), "ms", below=10),
        ]
        floor = floors.read_events(bench.target.database, head - count, head)
        floor_seconds[f"{count:,}"] = round(floor, 4)
    row.floor = {
        "what": "the same rows read from SQLite, their bytes joined",
        "seconds": floor_seconds,
    }
    return row


def _replay(bench: Bench, row: Row, after: int, until: int) -> tuple[float, list[float]]:
    """One replay: its seconds, and the probe's delays while it lasted."""
    with Meter(bench.target.pid) as meter, Probe(bench.target) as probe:
        connection = HubSocket(bench.target, after, None, 4 << 20)
        if connection.replay_until != until:
            raise RowFailed("something was written during a replay")
        early = b"".join(connection.early)
        pieces, ended = _until_last(connection, until)
        began = connection.sent_hello_at
        connection.close()
    frames, _ = split(b"".join(pieces))
    numbers = [int(match[1]) for frame in frames if (match := EVENT_ID.search(frame))]
    first = [int(number) for number in EVENT_ID.findall(early)]
    if [*first, *numbers] != list(range(after + 1, until + 1)):
        raise RowFailed(f"replay of {until - after} brought {len(first) + len(numbers)} events")
    row.count({"replayed": until - after, "lost": 0})
    delays = probe.during(began, ended)
    bench.metered(
        row,
        f"{until - after} events",
        meter,
        events_per_s=round((until - after) / (ended - began)),
        mb=round(sum(map(len, pieces)) / 1e6, 2),
        probe=percentiles(delays) if delays else None,
    )
    return ended - began, delays


def _until_last(connection: HubSocket, until: int) -> tuple[list[bytes], float]:
    """Raw bytes up to the event `until`, looking for which is all that is done meanwhile; and
    when the last of them were there."""
    last = b'"event_id":%d,' % until
    pieces = [connection.rest()]
    if any(last in piece for piece in (*pieces, *connection.early)):
        return pieces, NOW()
    tail = b""
    while True:
        data = connection.sock.recv(REPLAY_BYTES)
        at = NOW()
        if not data:
            raise RowFailed("the server closed a replay")
        pieces.append(data)
        if last in tail + data[:64] or last in data:
            return _finish(connection, pieces, at)
        tail = data[-64:]


def _finish(connection: HubSocket, pieces: list[bytes], at: float) -> tuple[list[bytes], float]:
    """The rest of the last frame, if it was cut."""
    while True:
        whole = b"".join(pieces)
        _, used = split(whole)
        if used == len(whole):
            return [whole], at
        pieces = [whole, connection.sock.recv(REPLAY_BYTES)]
        at = NOW()


class Probe:
    """A process of its own that asks for a page every two milliseconds."""

    def __init__(self, target: Target, path: str = "/health") -> None:
        self._target = target
        self._path = path
        self._samples: list[tuple[float, float]] = []

    def __enter__(self) -> "Probe":
        reading, writing = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(reading)
            _run_probe(writing, self._target, self._path)
        os.close(writing)
        self._results = os.fdopen(reading)
        if self._results.readline() != "ready\n":
            raise RowFailed("the probe could not connect")
        return self

    def __exit__(self, *failure: object) -> None:
        os.kill(self._child, signal.SIGTERM)
        line = self._results.readline()
        self._results.close()
        os.waitpid(self._child, 0)
        answer = json.loads(line) if line else []
        if isinstance(answer, str):
            raise RowFailed(f"the probe failed: {answer}")
        self._samples = [(began, seconds) for began, seconds in answer]

    def during(self, began: float, ended: float) -> list[float]:
        """Delays of the questions that were open at some time in between."""
        return [
            seconds
            for sent_at, seconds in self._samples
            if sent_at < ended and sent_at + seconds > began
        ]


def _run_probe(pipe: int, target: Target, path: str) -> None:
    """In a child process, until SIGTERM. Never returns."""
    stop: list[int] = []
    samples: Any = []
    try:
        signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
        connection = Http(target)
        request = encode(target, "GET", path)
        connection.ask(request)
        os.write(pipe, b"ready\n")
        while not stop:
            status, body = connection.ask(request)
            check(status, body)
            samples.append((connection.started, NOW() - connection.started))
            select.select([], [], [], PROBE_SECONDS)
    except Exception as error:
        samples = repr(error)
    with os.fdopen(pipe, "w") as out:
        out.write(json.dumps(samples) + "\n")
    os._exit(0)


# -- pages ---------------------------------------------------------------------------------


def p7(bench: Bench, topic: str, channel: str) -> Row:
    history = bench.sizes.history
    row = Row("P7", f"newest 50 of, and searches in, {history:,} messages")
    row.floor = {}
    connection = Http(bench.target)
    for column, value in (("topic_id", topic), ("channel_id", channel)):
        path = f"/api/v1/messages?{column}={value}&limit="
        (newest,) = one_by_one(connection, [encode(bench.target, "GET", f"{path}100")]).bodies
        # Each page has more than a hundredth of the cache, so that every one is read again.
        requests = [
            encode(bench.target, "GET", f"{path}50&before_id={message['id']}")
            for message in json.loads(newest)["messages"]
        ]
        one_by_one(connection, requests[:20])
        requests = [requests[number % 100] for number in range(bench.sizes.pages)]
        with Meter(bench.target.pid) as meter:
            answers = one_by_one(connection, requests)
        page = json.loads(answers.bodies[-1])
        ids = [message["id"] for message in page["messages"]]
        if len(set(ids)) != 50 or ids != sorted(ids, reverse=True) or not page["has_more"]:
            raise RowFailed(f"not the newest 50 of {value}")
        row.count({"pages": len(answers.bodies)})
        bench.metered(row, column, meter, **percentiles(answers.seconds))
        name = column.removesuffix("_id")
        row.figures += [
            Figure(f"{name} p50", milliseconds(answers.seconds, 0.5), "ms"),
            Figure(f"{name} p99", milliseconds(answers.seconds, 0.99), "ms", below=2),
        ]
        row.floor[name] = floors.newest_pages(
            bench.target.database, column, value, bench.sizes.pages
        )
    connection.close()
    searches.measure(bench, row)
    return row
