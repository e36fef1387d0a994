"""P8: moving a thousand and ten thousand messages to another topic, and who waits meanwhile."""

import json
from typing import Any

from tests.bench.client import NOW, Http, check, encode, one_by_one
from tests.bench.figures import Figure, Row, median, milliseconds, percentiles
from tests.bench.hub import floors
from tests.bench.hub.bench import Bench
from tests.bench.hub.reads import Probe
from tests.bench.machine import Meter
from tests.bench.target import RowFailed

BATCH = 500
LIMITS_MS = (25, 250)


def p8(bench: Bench) -> Row:
    few, many = bench.sizes.moves
    row = Row("P8", f"retopic `later` of {few:,} and {many:,} messages, readers beside it")
    row.floor = {"what": "the same rows moved and told by SQLite alone, synchronous FULL"}
    waited: list[float] = []
    for count, limit in zip((few, many), LIMITS_MS, strict=True):
        moves = Moves(bench, count)
        probe_path = f"/api/v1/messages?topic_id={bench.topic()}&limit=50"
        seconds, behind = [], []
        for _ in range(bench.sizes.move_runs):
            with Meter(bench.target.pid) as meter, Probe(bench.target, probe_path) as probe:
                began = NOW()
                took, insert = moves.once()
                ended = NOW()
            delays = probe.during(began, ended)
            waited += delays
            seconds.append(took)
            behind.append(insert)
            bench.metered(
                row, f"{count} messages", meter,
                move_ms=round(took * 1000, 2), insert_behind_ms=round(insert * 1000, 2),
                readers=percentiles(delays) if delays else None,
            )  # fmt: skip
        row.count(moves.counted())
        row.figures += [
            Figure(f"move of {count:,}", median(seconds) * 1000, "ms", below=limit),
            Figure(f"insert sent behind a move of {count:,}", median(behind) * 1000, "ms"),
        ]
        floor = floors.move(bench.target.database, moves.here, moves.there)
        row.floor[f"{count:,}"] = {"ms": round(floor * 1000, 2)}
    row.figures.append(Figure("readers meanwhile p99", milliseconds(waited, 0.99), "ms", below=20))
    return row


class Moves:
    """Messages that go from one topic to another and back."""

    def __init__(self, bench: Bench, count: int) -> None:
        self.here, self.there = bench.topic(), bench.topic()
        self._bench = bench
        self._count = count
        self._done = 0
        self._http, self._other = Http(bench.target), Http(bench.target)
        self._elsewhere = bench.topic()
        answers = one_by_one(self._http, bench.batches(self.here, count, BATCH))
        first = json.loads(answers.bodies[0])["results"][0]["message"]["id"]
        self._path = f"/api/v1/messages/{first}"

    def once(self) -> tuple[float, float]:
        """Seconds of a move, and of an insert that was sent just behind it."""
        command = {"op": "move_topic", "to_topic_id": self.there, "mode": "later"}
        request = encode(self._bench.target, "PATCH", self._path, command)
        (insert,) = self._bench.posts(self._elsewhere, 1)
        self._http.send(request)
        self._other.send(insert)
        committed = self._answer(self._http)
        took = NOW() - self._http.started
        self._answer(self._other)
        behind = NOW() - self._other.started
        ids = committed["event_ids"]
        if committed["affected_count"] != self._count or len(set(ids)) != self._count:
            raise RowFailed(f"{committed['affected_count']} of {self._count} messages moved")
        self._done += 1
        self.here, self.there = self.there, self.here
        return took, behind

    def counted(self) -> dict[str, int]:
        """Nothing lost, nothing doubled: all stand in one topic, with an event for each move."""
        stored = self._bench.count("SELECT count(*) FROM messages WHERE topic_id = ?", self.here)
        events = self._bench.count(
            "SELECT count(*) FROM events WHERE name = 'message.moved_topic'"
            " AND (scope_topic_id = ?1 OR scope_topic_id2 = ?1)",
            self.here,
        )
        if (stored, events) != (self._count, self._count * self._done):
            raise RowFailed(f"{stored} messages and {events} events after {self._done} moves")
        return {"moved": events, "lost": 0}

    @staticmethod
    def _answer(connection: Http) -> Any:
        while (answer := connection.receive()) is None:
            pass
        check(*answer)
        return json.loads(answer[1])
