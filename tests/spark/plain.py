"""Activity and history once more, in plain Python over the events, for comparison only."""

from collections import defaultdict
from datetime import date, datetime
from itertools import pairwise
from statistics import median
from typing import Any

SPAN_PAUSE_SECONDS = 1800
REPLY_SECONDS_MAX = 86_400
Key = tuple[date, str, str, str]


def percentile(values: list[float], share: float) -> float:
    """Between the two nearest, as Spark's `percentile` does."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


class Numbers:
    """events: (event_id, ts, name, data) in order. Afterwards one dict for each table."""

    def __init__(self, events: list[tuple[int, datetime, str, dict[str, Any]]]) -> None:
        self.activity: dict[Key, dict[str, Any]] = defaultdict(
            lambda: dict.fromkeys(("messages", "edits", "deletes", "moves", "replied"), 0)
        )
        self.pairs: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        self._said: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
        self._where: dict[str, list[str]] = {}
        for _, at, name, data in events:
            self._take(at, name, data)
        waits: dict[Key, list[float]] = defaultdict(list)
        active: dict[Key, list[datetime]] = defaultdict(list)
        for topic, said in self._said.items():
            self._replies(topic, said, waits, active)
        for key, found in waits.items():
            row = self.activity[key]
            row["replied"] = len(found)
            row["first_reply_median_seconds"] = median(found)
            row["first_reply_p95_seconds"] = percentile(found, 0.95)
        for key, times in active.items():
            self.activity[key] |= spans(times)

    def _take(self, at: datetime, name: str, data: dict[str, Any]) -> None:
        if name == "message.created":
            said = data["message"]
            channel, topic, sender = said["channel_id"], said["topic_id"], said["sender"]
            self._where[said["id"]] = [channel, topic, sender]
            self._said[topic].append((at, channel, sender))
            self._count(at, said["id"], "messages")
        elif name == "message.moved_topic":
            self._where[data["message_id"]][1] = data["new_topic_id"]
            self._count(at, data["message_id"], "moves")
        elif name in ("message.edited", "message.deleted"):
            word = "edits" if name == "message.edited" else "deletes"
            self._count(at, data["message_id"], word)

    def _count(self, at: datetime, message: str, word: str) -> None:
        channel, topic, sender = self._where[message]
        self.activity[at.date(), channel, topic, sender][word] += 1

    def _replies(self, topic: str, said: Any, waits: Any, active: Any) -> None:
        for place, (at, channel, sender) in enumerate(said):
            key = (at.date(), channel, topic, sender)
            active[key].append(at)
            answers = (when for when, _, who in said[place + 1 :] if who != sender)
            first = next(answers, None)
            if first and (wait := (first - at).total_seconds()) <= REPLY_SECONDS_MAX:
                waits[key].append(wait)
            if place and said[place - 1][2] != sender:
                wait = (at - said[place - 1][0]).total_seconds()
                if wait <= REPLY_SECONDS_MAX:
                    self.pairs[(*key, said[place - 1][2])].append(wait)


def spans(times: list[datetime]) -> dict[str, Any]:
    count, seconds, began = 1, 0.0, times[0]
    for before, at in pairwise(times):
        if (at - before).total_seconds() > SPAN_PAUSE_SECONDS:
            seconds += (before - began).total_seconds()
            count, began = count + 1, at
    return {"active_spans": count, "active_seconds": seconds + (times[-1] - began).total_seconds()}


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether a row says these numbers, up to a microsecond."""
    return all(
        found[name] == value if isinstance(value, int) else abs(found[name] - value) < 1e-5
        for name, value in expected.items()
    )
