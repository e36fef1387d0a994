"""The data of the HTML report: cells by day, channel, topic and sender, as fine as the page allows.

Memory is limited by CELLS_MAX: if there are more, they are made coarser while the rows are read.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from appliance.export import activity, delivery
from appliance.export.cells import LEVELS, Cells, Level
from appliance.export.errors import EmptyRange, ExportError, TablesMissing
from appliance.export.gold import ACTIVITY, GoldRows
from appliance.export.report_text import display
from appliance.export.report_wire import ActivityReport, DeliveryReport

CELLS_MAX = 40_000
NAMES_MAX = LEVELS[0].names_max
NAME_CHARACTERS_MAX = 200
NAMES = ("channels", "topics", "senders", "destinations", "causes")
TABLES = ("rows", "pairs", "latency", "outcomes", "dead_letters")


class ReportPage(NamedTuple):
    """The reports and the data for filters; None instead of a report that has no tables."""

    first: str
    last: str
    channel: str | None
    activity: ActivityReport | None
    delivery: DeliveryReport | None
    cube: "_Cube"
    names: dict[str, list[Any]]

    @property
    def level(self) -> Level:
        return self.cube.level

    @property
    def is_exact(self) -> bool:
        """Whether no days are added up and quantiles are as exact as the tables."""
        return self.level == LEVELS[0]

    def encode(self, bytes_max: int) -> str:
        """The data as JSON for a script element, made coarser until it has at most `bytes_max`."""
        while True:
            level = self.level
            fields = {"period": level.period, "gamma": level.gamma, "pairs_max": level.pairs_max}
            cut = {name: self.names.get(name, [])[: level.names_max] for name in NAMES}
            text = msgspec.json.encode(self.names | fields | cut | self.cube.rows()).decode()
            text = text.replace("<", "\\u003c")  # no name ends the element
            if len(text.encode()) <= bytes_max or not self.cube.coarsen():
                return text


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


class _Cube:
    """Cells of all tables at one level."""

    def __init__(self) -> None:
        self._levels = iter(LEVELS)
        self.level = next(self._levels)
        self._tables = {name: Cells(self.level, pairs=name == "pairs") for name in TABLES}

    def add(
        self,
        table: str,
        key: tuple[Any, ...],
        counts: Sequence[Any],
        buckets: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._tables[table].add(key, counts, buckets)
        while sum(map(len, self._tables.values())) > CELLS_MAX and self.coarsen():
            pass

    def rows(self) -> dict[str, list[list[Any]]]:
        return {name: cells.rows() for name, cells in self._tables.items()}

    def coarsen(self) -> bool:
        """Change to the next level; False at the last one."""
        level = next(self._levels, None)
        if level is None:
            return False
        self.level = level
        self._tables = {name: cells.coarsen(level) for name, cells in self._tables.items()}
        return True


def _ranks(keys: Iterable[Any]) -> Callable[[Any], int]:
    """The rank of each of the largest names; others get NAMES_MAX, which no level keeps."""
    ranks = {key: rank for rank, key in enumerate(dict.fromkeys(keys))}
    return lambda key: ranks.get(key, NAMES_MAX)


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
    causes = list(dict.fromkeys(row.cause for row in report.dead_letters))
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
