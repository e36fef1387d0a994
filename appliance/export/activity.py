"""Adds up what the activity tables say: by day, channel, topic and sender, and who answers whom."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from appliance.export.gold import Gold
from appliance.export.trouble import EmptyRange
from appliance.export.wire import Activity, ActivityReport, Pair

COUNTED = ("messages", "edits", "deletes", "moves", "replied")
_COLUMNS = [
    "channel_id", "channel", "topic_id", "topic", "sender", *COUNTED,
    "first_reply_median_seconds", "active_seconds",
]  # fmt: skip
_PAIRS = ["channel_id", "sender", "answers", "replies", "median_seconds"]
NOBODY = "-"
TOTAL = "total"
# Of each list the column it is by, and the one that names it.
_VIEWS = {
    TOTAL: ("", ""),
    "days": ("day", "day"),
    "channels": ("channel_id", "channel"),
    "topics": ("topic_id", "topic"),
    "senders": ("sender", "sender"),
}
Waits = list[tuple[float, int]]


def report(
    gold: Path, first: str | None, last: str | None, channel: str | None, top: int
) -> ActivityReport:
    """Raises EmptyRange where nothing is. `channel`: a name or an id."""
    tables = Gold(gold)
    first = first or (tables.days[0] if tables.days else "")
    last = last or (tables.days[-1] if tables.days else "")
    views = {name: _View(key, label) for name, (key, label) in _VIEWS.items()}
    ids: set[str] = set()
    for row in tables.rows("activity", _COLUMNS, first, last):
        if channel is None or channel in (row["channel"], row["channel_id"]):
            ids.add(row["channel_id"])
            for view in views.values():
                view.add(row)
    if not ids:
        where = f" in channel {channel}" if channel else ""
        raise EmptyRange(f"no activity from {first or '…'} to {last or '…'}{where}")
    turns = tables.rows("pairs", _PAIRS, first, last)
    pairs = _pairs(row for row in turns if row["channel_id"] in ids)
    lists = {name: view.busiest() for name, view in views.items()}
    shown = {name: lists[name][:top] for name in ("channels", "topics", "senders")}
    left_out = {name: len(lists[name]) - len(shown[name]) for name in shown}
    return ActivityReport(
        first,
        last,
        channel,
        total=lists[TOTAL][0],
        days=sorted(lists["days"], key=lambda one: one.key),
        pairs=pairs[:top],
        left_out=left_out | {"pairs": max(0, len(pairs) - top)},
        **shown,
    )


class _View:
    """Sums by one key."""

    def __init__(self, key: str, label: str) -> None:
        self._key = key
        self._label = label
        self._sums: dict[str, _Sum] = {}

    def add(self, row: Any) -> None:
        key = row[self._key] if self._key else TOTAL
        key = key or NOBODY
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = _Sum(key)
        if self._label:
            found.name = row[self._label] or found.name
        found.add(row)

    def busiest(self) -> list[Activity]:
        told = [each.told() for each in self._sums.values()]
        return sorted(told, key=lambda one: (-one.messages, -one.edits, one.name, one.key))


class _Sum:
    def __init__(self, key: str) -> None:
        self.key = self.name = key
        self._counts = dict.fromkeys(COUNTED, 0)
        self._active = 0.0
        self._waits: Waits = []

    def add(self, row: Any) -> None:
        for name in COUNTED:
            self._counts[name] += row[name]
        self._active += row["active_seconds"]
        if row["first_reply_median_seconds"] is not None and row["replied"]:
            self._waits.append((row["first_reply_median_seconds"], row["replied"]))

    def told(self) -> Activity:
        seconds = weighted_median(self._waits)
        return Activity(
            self.key,
            self.name,
            **self._counts,
            reply_seconds=None if seconds is None else round(seconds, 3),
            active_seconds=round(self._active, 3),
        )


def weighted_median(pairs: Waits) -> float | None:
    """The value at which half of the weight is reached; None of nothing."""
    left = sum(weight for _, weight in pairs) / 2
    for value, weight in sorted(pairs):
        left -= weight
        if left <= 0:
            return value
    return None


def _pairs(rows: Iterable[Any]) -> list[Pair]:
    found: dict[tuple[str, str], tuple[int, Waits]] = {}
    for row in rows:
        key = (row["sender"] or NOBODY, row["answers"] or NOBODY)
        replies, waits = found.get(key, (0, []))
        if row["median_seconds"] is not None:
            waits.append((row["median_seconds"], row["replies"]))
        found[key] = (replies + row["replies"], waits)
    told = [
        Pair(sender, answers, replies, weighted_median(waits))
        for (sender, answers), (replies, waits) in found.items()
    ]
    return sorted(told, key=lambda one: (-one.replies, one.sender, one.answers))
