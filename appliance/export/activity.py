"""Sums the activity tables by day, channel, topic and sender, and the replies between senders.

The rows are read twice: first the counts, then the histograms for the listed rows.
"""

from pathlib import Path
from typing import Any

from appliance.export import sums
from appliance.export.errors import EmptyRange
from appliance.export.gold import ACTIVITY, Gold, GoldRows
from appliance.export.report_wire import Activity, ActivityReport, Pair
from appliance.shared.histogram import RELATIVE_ERROR

COUNTED = ("messages", "edits", "deletes", "moves", "replied")
KEYS = ["topic_id", "sender"]
BUCKETS = "reply_buckets"
NOBODY = "-"
TOTAL = "total"
DAYS, CHANNELS, TOPICS, SENDERS = "days", "channels", "topics", "senders"
VIEWS = {
    TOTAL: lambda _: TOTAL,
    DAYS: lambda row: row["day"],
    CHANNELS: lambda row: row["channel_id"] or NOBODY,
    TOPICS: lambda row: row["topic_id"] or NOBODY,
    SENDERS: lambda row: row["sender"] or NOBODY,
}
_LIMITED = (CHANNELS, TOPICS, SENDERS)


def select(folder: Path, first: str | None, last: str | None, channel: str | None) -> GoldRows:
    """Return the rows of the selected days, for all channels or for the channels with one name
    or id."""
    tables = Gold(folder, ACTIVITY, first, last)
    ids: set[str] = set()
    if channel is not None:
        names = tables.names("channels", "channel_id", "name")
        ids = {channel, *(key for key, name in names.items() if name == channel)}
    return GoldRows(
        tables, ("channel_id",), lambda row: channel is None or row["channel_id"] in ids
    )


def report(
    folder: Path, first: str | None, last: str | None, channel: str | None, top: int
) -> ActivityReport:
    """Sum up the days from `first` to `last`. Raises EmptyRange if there is no activity.

    `channel` is a name or an id.
    """
    selected = select(folder, first, last, channel)
    first, last = selected.tables.first, selected.tables.last
    counted = [*COUNTED, "active_seconds"]
    rows = selected.rows(ACTIVITY, [*KEYS, *counted])
    counts = dict(zip(VIEWS, sums.columns_by(rows, VIEWS.values(), counted), strict=True))
    if not counts[TOTAL]:
        where = f" in channel {channel}" if channel else ""
        raise EmptyRange(f"no activity from {first or '…'} to {last or '…'}{where}")
    listed = {name: sorted(by, key=lambda key: (-by[key][0], -by[key][1], key))
              for name, by in counts.items()}  # fmt: skip
    left_out = {name: max(0, len(listed[name]) - top) for name in _LIMITED}
    listed |= {name: listed[name][:top] for name in _LIMITED} | {DAYS: sorted(counts[DAYS])}
    lists = _activities(selected, counts, listed)
    pairs, pairs_left = _pairs(selected, top)
    return ActivityReport(
        first,
        last,
        channel,
        total=lists.pop(TOTAL)[0],
        pairs=pairs,
        left_out=left_out | {"pairs": pairs_left},
        quantile_error=round(RELATIVE_ERROR, 4),
        **lists,
    )


def _activities(
    selected: GoldRows, counts: dict[str, dict[str, list[Any]]], listed: dict[str, list[str]]
) -> dict[str, list[Activity]]:
    waits = sums.histograms_by(
        selected.rows(ACTIVITY, [*KEYS, BUCKETS]),
        VIEWS.values(),
        BUCKETS,
        [set(listed[view]) for view in VIEWS],
    )
    names = {
        CHANNELS: selected.tables.names(CHANNELS, "channel_id", "name"),
        TOPICS: selected.tables.names(TOPICS, "topic_id", "title"),
    }
    return {
        view: [
            _activity(key, names.get(view, {}).get(key) or key, counts[view][key], by.get(key))
            for key in listed[view]
        ]
        for view, by in zip(VIEWS, waits, strict=True)
    }


def _activity(key: str, name: str, counts: list[Any], waits: sums.Buckets | None) -> Activity:
    return Activity(
        key,
        name,
        **dict(zip(COUNTED, counts, strict=False)),
        reply_seconds=sums.quantile(waits, 0.5),
        active_seconds=round(counts[-1], sums.DECIMALS),
        reply_p95_seconds=sums.quantile(waits, 0.95),
    )


def pair_of(row: Any) -> tuple[str, str]:
    return row["sender"] or NOBODY, row["answers"] or NOBODY


def _pairs(selected: GoldRows, top: int) -> tuple[list[Pair], int]:
    """Return the pairs with most replies, and the number of omitted pairs."""
    columns = ["sender", "answers"]
    rows = selected.rows("pairs", [*columns, "replies"])
    (counts,) = sums.columns_by(rows, [pair_of], ["replies"])
    listed = sorted(counts, key=lambda pair: (-counts[pair][0], pair))[:top]
    rows = selected.rows("pairs", [*columns, BUCKETS])
    (waits,) = sums.histograms_by(rows, [pair_of], BUCKETS, [set(listed)])
    pairs = [
        Pair(
            *pair,
            counts[pair][0],
            sums.quantile(waits.get(pair), 0.5),
            sums.quantile(waits.get(pair), 0.95),
        )
        for pair in listed
    ]
    return pairs, len(counts) - len(listed)
