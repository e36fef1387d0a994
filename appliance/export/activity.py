"""Sums of the activity tables by day, channel, topic and sender, and replies between senders."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from appliance.export.errors import EmptyRange
from appliance.export.gold import Gold
from appliance.export.wire import Activity, ActivityReport, Pair

COUNTED = ("messages", "edits", "deletes", "moves", "replied")
_COLUMNS = [
    "channel_id", "channel", "topic_id", "topic", "sender", *COUNTED,
    "first_reply_median_seconds", "active_seconds",
]  # fmt: skip
_PAIRS = ["channel_id", "sender", "answers", "replies", "median_seconds"]
NOBODY = "-"
TOTAL = "total"
# For each list, the column to group by and the column with the name.
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
    """Sum up the days from `first` to `last`. Raises EmptyRange if there is no activity.

    `channel` is a name or an id.
    """
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
    pair_rows = tables.rows("pairs", _PAIRS, first, last)
    pairs = _pairs(row for row in pair_rows if row["channel_id"] in ids)
    lists = {name: view.busiest() for name, view in views.items()}
    listed = {name: lists[name][:top] for name in ("channels", "topics", "senders")}
    left_out = {name: len(lists[name]) - len(listed[name]) for name in listed}
    return ActivityReport(
        first,
        last,
        channel,
        total=lists[TOTAL][0],
        days=sorted(lists["days"], key=lambda day: day.key),
        pairs=pairs[:top],
        left_out=left_out | {"pairs": max(0, len(pairs) - top)},
        **listed,
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
        total = self._sums.get(key)
        if total is None:
            total = self._sums[key] = _Sum(key)
        if self._label:
            total.name = row[self._label] or total.name
        total.add(row)

    def busiest(self) -> list[Activity]:
        rows = [each.activity() for each in self._sums.values()]
        return sorted(rows, key=lambda row: (-row.messages, -row.edits, row.name, row.key))


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

    def activity(self) -> Activity:
        seconds = weighted_median(self._waits)
        return Activity(
            self.key,
            self.name,
            **self._counts,
            reply_seconds=None if seconds is None else round(seconds, 3),
            active_seconds=round(self._active, 3),
        )


def weighted_median(pairs: Waits) -> float | None:
    """The value at which half of the weight is reached; None without pairs."""
    left = sum(weight for _, weight in pairs) / 2
    for value, weight in sorted(pairs):
        left -= weight
        if left <= 0:
            return value
    return None


def _pairs(rows: Iterable[Any]) -> list[Pair]:
    waits_by_pair: dict[tuple[str, str], tuple[int, Waits]] = {}
    for row in rows:
        key = (row["sender"] or NOBODY, row["answers"] or NOBODY)
        replies, waits = waits_by_pair.get(key, (0, []))
        if row["median_seconds"] is not None:
            waits.append((row["median_seconds"], row["replies"]))
        waits_by_pair[key] = (replies + row["replies"], waits)
    pairs = [
        Pair(sender, answers, replies, weighted_median(waits))
        for (sender, answers), (replies, waits) in waits_by_pair.items()
    ]
    return sorted(pairs, key=lambda pair: (-pair.replies, pair.sender, pair.answers))
