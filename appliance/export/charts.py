"""Draws reports as PNG and SVG with matplotlib, without a display."""

import importlib
import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from appliance.export import chart_fonts, table_writer
from appliance.export.report_tables import duration
from appliance.export.report_text import displayed
from appliance.export.report_wire import Activity, ActivityReport, DeliveryReport, StageLatency

BARS_MAX = 15
DAYS_LABELLED_MAX = 12
DURATIONS_LABELLED_MAX = 8
DURATIONS = (
    *(digit * power for power in (0.001, 0.01, 0.1, 1) for digit in (1, 2, 5)), 10, 30,
    *(60 * minutes for minutes in (1, 2, 5, 10, 30)), *(3600 * hours for hours in (1, 3, 8)),
    *(86_400 * days for days in (1, 3, 10, 30, 100)),
)  # fmt: skip
NAME_MAX = 28
_BLUE, _ORANGE, _GREY = "#2f6f9f", "#c8642a", "#8a8f98"
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9,
    "svg.hashsalt": "agentlip",  # the same report gives the same bytes
    "svg.fonttype": "none",
    "text.parse_math": False,  # names are text, not formulas
}
_SVG_FONTS = ["sans-serif"]  # those of the viewer
Painter = Callable[[Any], None]


class Drawn(NamedTuple):
    """The pictures by name, and a sentence for each script that has no font."""

    pictures: dict[str, bytes]
    problems: list[str]


def of_activity(report: ActivityReport, format_name: str) -> Drawn:
    charts: dict[str, Painter] = {
        "days": lambda axes: _days(axes, report),
        "replies": lambda axes: _replies(axes, report),
        "senders": lambda axes: _bars(axes, report.senders, "Messages by sender"),
        "topics": lambda axes: _bars(axes, report.topics, "Messages by topic"),
        "pairs": lambda axes: _pairs(axes, report),
    }
    rows = (*report.senders, *report.topics)
    names = [row.name for row in rows] + [name for pair in report.pairs[:BARS_MAX]
                                          for name in (pair.sender, pair.answers)]  # fmt: skip
    return _draw(charts, names, format_name)


def of_delivery(report: DeliveryReport, format_name: str) -> Drawn:
    charts: dict[str, Painter] = {
        "latency": lambda axes: _latency(axes, report.latency),
        "dead-letters": lambda axes: _dead_letters(axes, report),
    }
    names = [row.destination for row in report.latency]
    names += [text for row in report.dead_letters for text in (row.destination, row.cause)]
    return _draw(charts, names, format_name)


def _draw(charts: dict[str, Painter], names: Iterable[str], format_name: str) -> Drawn:
    matplotlib = table_writer.library("matplotlib", "report")
    figure = importlib.import_module("matplotlib.figure").Figure
    families, problems = _SVG_FONTS, list[str]()
    if format_name != "svg":
        families, problems = chart_fonts.choose(_short(name) for name in names)
    pictures = {}
    with matplotlib.rc_context(_STYLE | {"font.family": families}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # `problems` reports them
        for name, paint in charts.items():
            picture = figure(figsize=(8, 3.6), layout="constrained")
            paint(picture.subplots())
            target = io.BytesIO()
            metadata = {"Date": None} if format_name == "svg" else {"Software": None}
            picture.savefig(target, format=format_name, dpi=144, metadata=metadata)
            pictures[name] = target.getvalue()
    return Drawn(pictures, problems)


def _days(axes: Any, report: ActivityReport) -> None:
    days = _calendar(report)
    positions = range(len(days))
    axes.bar(positions, [day.messages for day in days], color=_BLUE, label="messages")
    axes.plot(
        positions,
        [day.edits + day.deletes + day.moves for day in days],
        color=_ORANGE, marker=".", label="edits, deletes, moves",
    )  # fmt: skip
    axes.set_title("Messages a day (UTC)")
    _label_days(axes, days)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def _replies(axes: Any, report: ActivityReport) -> None:
    days = _calendar(report)
    for color, label, values in (
        (_BLUE, "median", [day.reply_seconds for day in days]),
        (_ORANGE, "95th percentile", [day.reply_p95_seconds for day in days]),
    ):
        seconds = [float("nan") if value is None else value for value in values]
        axes.plot(range(len(days)), seconds, color=color, marker=".", label=label)
    axes.set_title("Time until another sender followed, within a day")
    if any(day.reply_seconds for day in days):
        axes.set_yscale("log")
    _label_durations(axes.yaxis)
    _label_days(axes, days)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def _pairs(axes: Any, report: ActivityReport) -> None:
    pairs = report.pairs[:BARS_MAX][::-1]
    names = [f"{_short(pair.sender)} to {_short(pair.answers)}" for pair in pairs]
    axes.barh(range(len(pairs)), [pair.replies for pair in pairs], color=_GREY)
    axes.set_yticks(range(len(pairs)), names)
    axes.set_title("Replies between senders")
    axes.set_xlabel("replies within a day")


def _bars(axes: Any, rows: Sequence[Activity], title: str) -> None:
    bars = rows[:BARS_MAX][::-1]
    axes.barh(range(len(bars)), [activity.messages for activity in bars], color=_BLUE)
    axes.set_yticks(range(len(bars)), [_short(activity.name) for activity in bars])
    axes.set_title(title)
    axes.set_xlabel("messages")


def _latency(axes: Any, stages: Sequence[StageLatency]) -> None:
    """A line from the median to the 99th percentile of each stage, and its objective."""
    busiest = sorted(stages, key=lambda stage: -stage.count)[:BARS_MAX]
    rows = [stage for stage in stages if stage in busiest][::-1]
    for position, row in enumerate(rows):
        axes.hlines(position, row.p50_seconds, row.p99_seconds, color=_GREY, linewidth=1)
    for color, marker, label, values in (
        (_BLUE, "o", "median", [row.p50_seconds for row in rows]),
        (_ORANGE, "s", "95th percentile", [row.p95_seconds for row in rows]),
        (_GREY, "d", "99th percentile", [row.p99_seconds for row in rows]),
        ("black", "|", "objective", [row.objective_seconds for row in rows]),
    ):
        axes.plot(values, range(len(rows)), linestyle="", marker=marker, color=color, label=label)
    if rows:
        axes.set_xscale("log")
    _label_durations(axes.xaxis)
    names = [f"{row.log} {_short(row.destination)}, {row.stage.replace('_', ' ')}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_title("Durations of deliveries")
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, -0.08), ncols=4)


def _dead_letters(axes: Any, report: DeliveryReport) -> None:
    rows = report.dead_letters[:BARS_MAX][::-1]
    axes.barh(range(len(rows)), [row.count for row in rows], color=_ORANGE)
    names = [f"{row.log} {_short(row.destination)}: {_short(row.cause)}" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_title("Dead letters by cause")
    axes.set_xlabel("messages that were given up")


def _label_durations(axis: Any) -> None:
    ticker = importlib.import_module("matplotlib.ticker")
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: duration(value) or ""))
    axis.set_minor_formatter(ticker.NullFormatter())
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        inside = [tick for tick in DURATIONS if low <= tick <= high]
        step = -(-len(inside) // DURATIONS_LABELLED_MAX) or 1
        axis.set_major_locator(ticker.FixedLocator(inside[::step]))
        axis.set_minor_locator(ticker.NullLocator())


def _calendar(report: ActivityReport) -> list[Activity]:
    """All days from the first one with activity to the last, including empty days."""
    by_day = {day.key: day for day in report.days}
    first, last = date.fromisoformat(min(by_day)), date.fromisoformat(max(by_day))
    days = [str(first + timedelta(days=n)) for n in range((last - first).days + 1)]
    return [by_day.get(day) or Activity(day, day) for day in days]


def _label_days(axes: Any, days: Sequence[Activity]) -> None:
    step = max(1, -(-len(days) // DAYS_LABELLED_MAX))
    indexes = range(0, len(days), step)
    axes.set_xticks(indexes, [days[index].key for index in indexes], rotation=30, ha="right")


def _short(text: str) -> str:
    return displayed(text, NAME_MAX)
