"""Activity and history once more, in plain Python over the events, for comparison only."""

from collections import Counter, defaultdict
from datetime import date, datetime
from itertools import pairwise
from statistics import median
from typing import Any

from appliance.shared.histogram import bucket_of

SPAN_GAP_SECONDS_MAX = 1800
REPLY_SECONDS_MAX = 86_400
Key = tuple[date, str, str, str]


def percentile(values: list[float], share: float) -> float:
    """Between the two nearest, as Spark's `percentile` does."""
    ordered = sorted(values)
    index = (len(ordered) - 1) * share
    low = int(index)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (index - low)


class Numbers:
    """events: (event_id, ts, name, data) in order. Afterwards one dict for each table."""

    def __init__(self, events: list[tuple[int, datetime, str, dict[str, Any]]]) -> None:
        self.activity: dict[Key, dict[str, Any]] = defaultdict(
            lambda: (
                dict.fromkeys(("messages", "edits", "deletes", "moves", "replied"), 0)
                | {"reply_buckets": {}}
            )
        )
        self.pairs: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._by_topic: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
        self._where: dict[str, list[str]] = {}
        for _, at, name, data in events:
            self._take(at, name, data)
        waits: dict[Key, list[float]] = defaultdict(list)
        answers: dict[tuple[Any, ...], list[float]] = defaultdict(list)
        active: dict[Key, list[datetime]] = defaultdict(list)
        for topic, messages in self._by_topic.items():
            self._replies(topic, messages, waits, answers, active)
        self.waits = [wait for some in waits.values() for wait in some]
        for key, seconds in waits.items():
            row = self.activity[key]
            row["replied"] = len(seconds)
            row["reply_buckets"] = buckets(seconds)
            row["first_reply_median_seconds"] = median(seconds)
            row["first_reply_p95_seconds"] = percentile(seconds, 0.95)
        for key, times in active.items():
            self.activity[key] |= spans(times)
        for pair, seconds in answers.items():
            self.pairs[pair] = {
                "replies": len(seconds), "reply_buckets": buckets(seconds),
                "median_seconds": median(seconds), "p95_seconds": percentile(seconds, 0.95),
            }  # fmt: skip

    def _take(self, at: datetime, name: str, data: dict[str, Any]) -> None:
        if name == "message.created":
            message = data["message"]
            channel, topic, sender = message["channel_id"], message["topic_id"], message["sender"]
            self._where[message["id"]] = [channel, topic, sender]
            self._by_topic[topic].append((at, channel, sender))
            self._count(at, message["id"], "messages")
        elif name == "message.moved_topic":
            self._where[data["message_id"]][1] = data["new_topic_id"]
            self._count(at, data["message_id"], "moves")
        elif name in ("message.edited", "message.deleted"):
            word = "edits" if name == "message.edited" else "deletes"
            self._count(at, data["message_id"], word)

    def _count(self, at: datetime, message: str, word: str) -> None:
        channel, topic, sender = self._where[message]
        self.activity[at.date(), channel, topic, sender][word] += 1

    def _replies(self, topic: str, messages: Any, waits: Any, answers: Any, active: Any) -> None:
        for index, (at, channel, sender) in enumerate(messages):
            key = (at.date(), channel, topic, sender)
            active[key].append(at)
            replies = (when for when, _, who in messages[index + 1 :] if who != sender)
            first = next(replies, None)
            if first and (wait := (first - at).total_seconds()) <= REPLY_SECONDS_MAX:
                waits[key].append(wait)
            if index and messages[index - 1][2] != sender:
                wait = (at - messages[index - 1][0]).total_seconds()
                if wait <= REPLY_SECONDS_MAX:
                    answers[(*key, messages[index - 1][2])].append(wait)


def buckets(seconds: list[float]) -> dict[int, int]:
    return dict(Counter(map(bucket_of, seconds)))


def spans(times: list[datetime]) -> dict[str, Any]:
    count, seconds, began = 1, 0.0, times[0]
    for before, at in pairwise(times):
        if (at - before).total_seconds() > SPAN_GAP_SECONDS_MAX:
            seconds += (before - began).total_seconds()
            count, began = count + 1, at
    return {"active_spans": count, "active_seconds": seconds + (times[-1] - began).total_seconds()}


def same(actual: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether a row says these numbers, up to a microsecond."""
    return all(
        abs(actual[name] - value) < 1e-5
        if isinstance(value, float)
        else as_dict(actual[name]) == value
        for name, value in expected.items()
    )


def as_dict(value: Any) -> Any:
    """A map, which pyarrow reads as a list of pairs."""
    return dict(value) if isinstance(value, list) else value
