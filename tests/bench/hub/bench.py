"""What every row of the hub's benchmark uses: places to write to, bodies, and the last count."""

import itertools
import json
import time
from collections.abc import Iterable
from typing import Any

from tests.bench.client import Http, encode, masked, one_by_one
from tests.bench.figures import Row, percentiles
from tests.bench.machine import Meter, Metered
from tests.bench.target import RowFailed, Target
from tests.support.database_files import read

CONTENT_BYTES = 200
SENDER = "bench"
TEXT = "The quick brown fox jumps over the lazy dog while 42 agents wait for the build to end. " * 4
_numbers = itertools.count(1)


class Sizes:
    """How much work a row does. `quick` proves that the rows run, not how fast."""

    def __init__(self, quick: bool, history: int | None = None) -> None:
        self.quick = quick
        self.repeats = 1 if quick else 3
        self.warm_up = 50 if quick else 1000
        self.inserts = 400 if quick else 10_000
        self.single_inserts = 200 if quick else 4_000
        self.bulk_inserts = 2_000 if quick else 30_000
        self.paced_rate = 200
        self.paced_seconds = 1 if quick else 8
        self.subscribers = 50
        self.fanned_out = 60 if quick else 3_000
        self.replays = (1_000, 5_000) if quick else (10_000, 100_000)
        self.replay_runs = 2 if quick else 5
        self.moves = (100, 1_000) if quick else (1_000, 10_000)
        self.move_runs = 2 if quick else 7
        self.searches = 20 if quick else 400
        self.pages = 100 if quick else 3_000
        self.starts = 1 if quick else 5
        self.settle_seconds = 0.2 if quick else 2.0
        self.young = 1_000 if quick else 10_000
        self.history = history or (10_000 if quick else 1_000_000)


class Bench(Metered):
    """One served appliance and the sizes of the work it gets."""

    def __init__(self, target: Target, sizes: Sizes) -> None:
        self.target = target
        self.sizes = sizes
        self.warnings: list[str] = []
        self._run = f"{time.time_ns():x}"
        self._http = Http(target)
        name = f"bench-{self._run}"
        self.channel: str = self._http.call("POST", "/api/v1/channels", {"name": name})["channel"][
            "id"
        ]

    def topic(self) -> str:
        """A new topic, so that a row's messages can be counted apart."""
        content = {"channel_id": self.channel, "title": f"topic {next(_numbers)}"}
        connection = Http(self.target)  # an older one may have been closed for idling
        topic_id: str = connection.call("POST", "/api/v1/topics", content)["topic"]["id"]
        connection.close()
        return topic_id

    def posts(self, topic: str, count: int) -> list[bytes]:
        """Requests, ready to send; each content begins with its number and a semicolon."""
        return [
            encode(self.target, "POST", "/api/v1/messages", message(topic, number))
            for number in range(count)
        ]

    def batches(self, topic: str, count: int, size: int) -> list[bytes]:
        numbers = range(count)
        return [
            encode(
                self.target,
                "POST",
                "/api/v1/messages/batch",
                {"messages": [message(topic, number) for number in numbers[start : start + size]]},
            )
            for start in range(0, count, size)
        ]

    def frames(self, topic: str, count: int) -> list[bytes]:
        """`request` frames, masked."""
        return [
            masked(
                json.dumps(
                    {
                        "type": "request",
                        "id": number,
                        "op": "message.create",
                        "data": message(topic, number),
                    }
                ).encode()
            )
            for number in range(count)
        ]

    def sends(self, row: Row, variant: str) -> list[float]:
        """The seconds of single sends, one after another, to a topic of their own."""
        topic = self.topic()
        connection = Http(self.target)
        requests = self.posts(topic, self.sizes.single_inserts)
        with Meter(self.target.pid) as meter:
            answers = one_by_one(connection, requests)
        connection.close()
        self.metered(row, variant, meter, sends=percentiles(answers.seconds))
        self.verify_stored(row, topic, map(json.loads, answers.bodies))
        return answers.seconds

    def head(self) -> int:
        """The newest event's id."""
        answer = Http(self.target).call("GET", "/api/v1/events?tail=1")
        return int(answer["replay_until"])

    def verify_stored(self, row: Row, topic: str, replies: Iterable[Any]) -> None:
        """Every reply is about a different message, and the database holds exactly these."""
        ids = [reply["message"]["id"] for reply in replies]
        stored = self.count("SELECT count(*) FROM messages WHERE topic_id = ?", topic)
        events = self.count(
            "SELECT count(*) FROM events WHERE scope_topic_id = ? AND name = 'message.created'",
            topic,
        )
        counted = {
            "acknowledged": len(ids),
            "distinct": len(set(ids)),
            "stored": stored,
            "events": events,
        }
        if len(set(counted.values())) != 1:
            raise RowFailed(f"messages were lost or doubled: {counted}")
        row.count(counted)

    def count(self, sql: str, topic: str) -> int:
        return int(read(self.target.database.absolute(), sql, topic)[0][0])


def message(topic: str, number: int) -> dict[str, str]:
    return {"topic_id": topic, "sender": SENDER, "content_raw": content(number)}


def content(number: int) -> str:
    return f"n={number};{TEXT}"[:CONTENT_BYTES]
