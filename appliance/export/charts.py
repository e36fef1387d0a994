"""The report as pictures, PNG and SVG, by matplotlib; nothing is shown on a screen."""

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
    "text.parse_math": False,  # names are text, whatever is in them
}


def draw(report: ActivityReport, format_name: str) -> dict[str, bytes]:
    """Name → picture."""
    matplotlib = table_writer.library("matplotlib", "report")
    figure = importlib.import_module("matplotlib.figure").Figure
    found = {}
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Of a script that its font lacks; in SVG the reader's own fonts are used anyway.
        warnings.filterwarnings("ignore", "Glyph")
        for name, paint in _CHARTS:
            picture = figure(figsize=(8, 3.6), layout="constrained")
            paint(picture.subplots(), report)
            target = io.BytesIO()
            metadata = {"Date": None} if format_name == "svg" else {"Software": None}
            picture.savefig(target, format=format_name, dpi=144, metadata=metadata)
            found[name] = target.getvalue()
    return found


def _days(axes: Any, report: ActivityReport) -> None:
    days = _calendar(report)
    places = range(len(days))
    axes.bar(places, [one.messages for one in days], color=_BLUE, label="messages")
    axes.plot(
        places,
        [one.edits + one.deletes + one.moves for one in days],
        color=_ORANGE, marker=".", label="edits, deletes, moves",
    )  # fmt: skip
    axes.set_title("Messages a day (UTC)")
    _label_days(axes, days)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def _replies(axes: Any, report: ActivityReport) -> None:
    days = _calendar(report)
    seconds = [float("nan") if one.reply_seconds is None else one.reply_seconds for one in days]
    axes.plot(range(len(days)), seconds, color=_BLUE, marker="o")
    axes.set_title("Seconds to the first reply by another sender (median)")
    axes.set_ylim(bottom=0)
    _label_days(axes, days)


def _senders(axes: Any, report: ActivityReport) -> None:
    _bars(axes, report.senders, "Messages by sender")


def _topics(axes: Any, report: ActivityReport) -> None:
    _bars(axes, report.topics, "Messages by topic")


def _pairs(axes: Any, report: ActivityReport) -> None:
    shown = report.pairs[:BARS_MAX][::-1]
    names = [f"{_short(one.sender)} to {_short(one.answers)}" for one in shown]
    axes.barh(range(len(shown)), [one.replies for one in shown], color=_GREY)
    axes.set_yticks(range(len(shown)), names)
    axes.set_title("Who answers whom: replies")


_CHARTS = (
    ("days", _days),
    ("replies", _replies),
    ("senders", _senders),
    ("topics", _topics),
    ("pairs", _pairs),
)


def _bars(axes: Any, rows: Sequence[Activity], title: str) -> None:
    shown = rows[:BARS_MAX][::-1]
    axes.barh(range(len(shown)), [one.messages for one in shown], color=_BLUE)
    axes.set_yticks(range(len(shown)), [_short(one.name) for one in shown])
    axes.set_title(title)


def _calendar(report: ActivityReport) -> list[Activity]:
    """From the first day on which something happened to the last, the empty ones too."""
    known = {one.key: one for one in report.days}
    first, last = date.fromisoformat(min(known)), date.fromisoformat(max(known))
    days = [str(first + timedelta(days=n)) for n in range((last - first).days + 1)]
    return [known.get(day) or Activity(day, day) for day in days]


def _label_days(axes: Any, days: Sequence[Activity]) -> None:
    step = max(1, -(-len(days) // DAYS_LABELLED_MAX))
    places = range(0, len(days), step)
    axes.set_xticks(places, [days[place].key for place in places], rotation=30, ha="right")


def _short(text: str) -> str:
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return plain if len(plain) <= NAME_MAX else plain[: NAME_MAX - 1] + "…"
