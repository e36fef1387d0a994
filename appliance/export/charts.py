"""Draws the report as PNG and SVG with matplotlib, without a display."""

import importlib
import io
import warnings
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from appliance.export import table_writer
from appliance.export.wire import Activity, ActivityReport

BARS_MAX = 15
DAYS_LABELLED_MAX = 12
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


def draw(report: ActivityReport, format_name: str) -> dict[str, bytes]:
    """The pictures by name."""
    matplotlib = table_writer.library("matplotlib", "report")
    figure = importlib.import_module("matplotlib.figure").Figure
    pictures = {}
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # The font may lack glyphs of a script. SVG uses the fonts of the viewer.
        warnings.filterwarnings("ignore", "Glyph")
        for name, paint in _CHARTS:
            picture = figure(figsize=(8, 3.6), layout="constrained")
            paint(picture.subplots(), report)
            target = io.BytesIO()
            metadata = {"Date": None} if format_name == "svg" else {"Software": None}
            picture.savefig(target, format=format_name, dpi=144, metadata=metadata)
            pictures[name] = target.getvalue()
    return pictures


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
    seconds = [float("nan") if day.reply_seconds is None else day.reply_seconds for day in days]
    axes.plot(range(len(days)), seconds, color=_BLUE, marker="o")
    axes.set_title("Seconds to the first reply by another sender (median)")
    axes.set_ylim(bottom=0)
    _label_days(axes, days)


def _pairs(axes: Any, report: ActivityReport) -> None:
    pairs = report.pairs[:BARS_MAX][::-1]
    names = [f"{_short(pair.sender)} to {_short(pair.answers)}" for pair in pairs]
    axes.barh(range(len(pairs)), [pair.replies for pair in pairs], color=_GREY)
    axes.set_yticks(range(len(pairs)), names)
    axes.set_title("Replies between senders")


_CHARTS = (
    ("days", _days),
    ("replies", _replies),
    ("senders", lambda axes, report: _bars(axes, report.senders, "Messages by sender")),
    ("topics", lambda axes, report: _bars(axes, report.topics, "Messages by topic")),
    ("pairs", _pairs),
)


def _bars(axes: Any, rows: Sequence[Activity], title: str) -> None:
    bars = rows[:BARS_MAX][::-1]
    axes.barh(range(len(bars)), [activity.messages for activity in bars], color=_BLUE)
    axes.set_yticks(range(len(bars)), [_short(activity.name) for activity in bars])
    axes.set_title(title)


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
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return plain if len(plain) <= NAME_MAX else plain[: NAME_MAX - 1] + "…"
