"""Computes the HTML report's data: sums by day, channel, topic and sender.

Above CELLS_MAX cells, or above the page's byte limit, the oldest days are left out. Names below the
first NAMES_MAX of their kind are added up as OTHERS.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.export import activity, delivery, sums
from appliance.export.errors import EmptyRange, ExportError, ReportTooLarge, TablesMissing
from appliance.export.gold import ACTIVITY, GoldRows
from appliance.export.report_text import display
from appliance.export.report_wire import ActivityReport, DeliveryReport
from appliance.shared.histogram import GAMMA

CELLS_MAX = 40_000  # more are more than 1 MB
NAMES_MAX = 100  # channels, and as many topics and senders
NAME_CHARACTERS_MAX = 100
OTHERS = -1  # the rank for all names above NAMES_MAX
NAMES = ("channels", "topics", "senders", "destinations", "causes")
TABLES = ("rows", "pairs", "latency", "outcomes", "dead_letters")


class ReportPage(NamedTuple):
    """The reports and the data for filters; None for a report without tables."""

    first: str
    last: str
    channel: str | None
    activity: ActivityReport | None
    delivery: DeliveryReport | None
    cube: "_Cube"
    names: dict[str, list[Any]]

    @property
    def shown_from(self) -> str:
        return max(self.first, self.cube.first)

    @property
    def days_left_out(self) -> int:
        return (date.fromisoformat(self.shown_from) - date.fromisoformat(self.first)).days

    def encode(self, bytes_max: int) -> str:
        """Return the data as JSON for a script element. Beyond `bytes_max`, the oldest days are
        left out. Raises ReportTooLarge."""
        fields = {name: self.names.get(name, []) for name in NAMES} | self.names
        while True:
            text = msgspec.json.encode(fields | {"gamma": GAMMA} | self.cube.rows()).decode()
            text = text.replace("<", "\\u003c")  # no name ends the element
            if len(text.encode()) <= bytes_max:
                return text
            self.cube.drop_oldest()


def build(gold: Path, first: str | None, last: str | None, channel: str | None) -> ReportPage:
    """Read both reports and their cells. Raises EmptyRange if neither has data."""
    cube, names = _Cube(), dict[str, list[Any]]()
    missed: list[ExportError] = []
    acted = _read(missed, activity.report, gold, first, last, channel)
    delivered = _read(missed, delivery.report, gold, first, last, None)
    if acted is None and (channel is not None or delivered is None):
        raise missed[0]
    if acted is not None:
        names |= _add_activity(cube, activity.select(gold, first, last, channel), acted)
    if delivered is not None:
        names |= _add_delivery(cube, delivery.select(gold, first, last, None), delivered)
    reports = [report for report in (acted, delivered) if report is not None]
    first, last = min(report.first for report in reports), max(report.last for report in reports)
    return ReportPage(first, last, channel, acted, delivered, cube, names)


def _read(missed: list[ExportError], report: Callable[..., Any], *selection: Any) -> Any:
    try:
        return report(*selection, NAMES_MAX)
    except (EmptyRange, TablesMissing) as error:
        missed.append(error)
        return None


Cell = tuple[list[Any], sums.Buckets]


class _Cube:
    """Counts and a histogram by day and ranks of names, in each table. Days before `first` are left
    out."""

    def __init__(self) -> None:
        self.first = ""
        self._tables: dict[str, dict[tuple[Any, ...], Cell]] = {name: {} for name in TABLES}

    def add(
        self,
        table: str,
        key: tuple[Any, ...],
        counts: Sequence[Any],
        buckets: Sequence[tuple[int, int]] = (),
    ) -> None:
        if key[0] < self.first:
            return
        totals, histogram = self._tables[table].setdefault(key, ([0] * len(counts), {}))
        for index, value in enumerate(counts):
            totals[index] += value
        sums.add(histogram, buckets)
        if sum(map(len, self._tables.values())) > CELLS_MAX:
            self.drop_oldest()

    def rows(self) -> dict[str, list[list[Any]]]:
        """Return [day, rank, …, count, …, [bucket, number, bucket, number, …]] in order."""
        return {
            name: [
                [*key, *totals, [part for pair in sorted(histogram.items()) for part in pair]]
                for key, (totals, histogram) in sorted(cells.items())
            ]
            for name, cells in self._tables.items()
        }

    def drop_oldest(self) -> None:
        """Leave out a quarter of the days, at least one. Raises ReportTooLarge if one is left."""
        days = sorted({key[0] for cells in self._tables.values() for key in cells})
        if len(days) < 2:
            raise ReportTooLarge
        self.first = days[max(1, len(days) // 4)]
        for name, cells in self._tables.items():
            self._tables[name] = {key: cell for key, cell in cells.items() if key[0] >= self.first}


def _ranks(keys: Iterable[Any]) -> Callable[[Any], int]:
    """Return a function that ranks the largest names."""
    ranks = {key: rank for rank, key in enumerate([*dict.fromkeys(keys)][:NAMES_MAX])}
    return lambda key: ranks.get(key, OTHERS)


def _add_activity(cube: _Cube, selected: GoldRows, report: ActivityReport) -> dict[str, list[Any]]:
    """Add the cells and return the names by rank."""
    channels = _ranks(row.key for row in report.channels)
    topics = _ranks(row.key for row in report.topics)
    senders = _ranks(row.key for row in report.senders)
    nobody = activity.NOBODY
    columns = ["topic_id", "sender", *activity.COUNTED, "active_seconds", activity.BUCKETS]
    for row in selected.rows(ACTIVITY, columns):
        key = (
            row["day"],
            channels(row["channel_id"] or nobody),
            topics(row["topic_id"] or nobody),
            senders(row["sender"] or nobody),
        )
        counts = [*(row[name] for name in activity.COUNTED), round(row["active_seconds"])]
        cube.add("rows", key, counts, row[activity.BUCKETS] or ())
    for row in selected.rows("pairs", ["sender", "answers", "replies", activity.BUCKETS]):
        pair = map(senders, activity.pair_of(row))
        key = (row["day"], channels(row["channel_id"] or nobody), *pair)
        cube.add("pairs", key, [row["replies"]], row[activity.BUCKETS] or ())
    return {
        name: [display(row.name, NAME_CHARACTERS_MAX) for row in rows]
        for name, rows in (
            ("channels", report.channels), ("topics", report.topics), ("senders", report.senders),
        )
    }  # fmt: skip


def _add_delivery(cube: _Cube, selected: GoldRows, report: DeliveryReport) -> dict[str, list[Any]]:
    """Add the cells and return the destinations and causes by rank."""
    rows: list[Any] = [*report.outcomes, *report.latency, *report.dead_letters]
    listed = list(dict.fromkeys((row.log, row.destination) for row in rows))[:NAMES_MAX]
    causes = list(dict.fromkeys(row.cause for row in report.dead_letters))[:NAMES_MAX]
    destinations, ranks = _ranks(listed), _ranks(causes)
    objectives: dict[tuple[str, str], float] = {}
    for row in selected.rows(
        delivery.LATENCY,
        ["stage", "count", "within_objective", "objective_seconds", delivery.BUCKETS],
    ):
        stage = delivery.STAGES.index(row["stage"])
        objectives[row["log"], row["stage"]] = row["objective_seconds"]
        counts = [row["count"], row["within_objective"]]
        key = (row["day"], destinations(delivery.destination_of(row)), stage)
        cube.add("latency", key, counts, row[delivery.BUCKETS])
    for row in selected.rows("outcomes", list(delivery.OUTCOMES)):
        counts = [row[name] for name in delivery.OUTCOMES]
        cube.add("outcomes", (row["day"], destinations(delivery.destination_of(row))), counts)
    for row in selected.rows(delivery.DEAD_LETTERS, ["cause", "count"]):
        key = (row["day"], destinations(delivery.destination_of(row)), ranks(row["cause"]))
        cube.add("dead_letters", key, [row["count"]])
    return {
        "stages": list(delivery.STAGES),
        "objectives": [[*key, value] for key, value in sorted(objectives.items())],
        "destinations": [[log, display(name, NAME_CHARACTERS_MAX)] for log, name in listed],
        "causes": [display(cause, NAME_CHARACTERS_MAX) for cause in causes],
    }
