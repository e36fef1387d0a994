"""Renders the HTML report: one file of at most BYTES_MAX with its data, script and styles.

The tables in the file have the totals of all days, for readers without JavaScript; the script
replaces them and adds filters and charts.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from appliance import __version__, shared
from appliance.export.report_page import ReportPage
from appliance.export.report_tables import duration, share
from appliance.export.report_text import display
from appliance.export.report_wire import Activity, ActivityReport, DeliveryReport

BYTES_MAX = 1_000_000
ROWS = 20  # limit of each table for readers without JavaScript
NAME_CHARACTERS_MAX = 80
NONE = "-"
_NEEDS_SCRIPT = '<p class="soft">This chart needs JavaScript.</p>'
_FOLDER = Path(__file__).with_name("page")
_THEME = Path(shared.__file__).with_name("theme.css")
_SLOT = re.compile(r"\{\{(\w+)\}\}")
ACTIVITY = ("Messages", "Edits", "Deletes", "Moves", "Replied", "Reply p50", "Reply p95", "Active")
STAGES = ("Log", "Destination", "Stage", "Count", "p50", "p95", "p99", "Objective", "Met")
OUTCOMES = (
    "Log", "Destination", "Accepted", "Delivered", "Acked", "Attempts", "Failed", "Dead",
)  # fmt: skip


def render(page: ReportPage) -> bytes:
    """The file in UTF-8."""
    style, script = _THEME.read_text("utf-8") + _part("report.css"), _part("report.js")
    days = page.first if page.first == page.last else f"{page.first} to {page.last}"
    slots = {
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "days": escape(days),
        "where": f", channel {_name(page.channel)}" if page.channel else "",
        "activity": _activity(page.activity) if page.activity else "",
        "delivery": _delivery(page.delivery) if page.delivery else "",
        "version": __version__,
    }
    template = _part("report.html")
    room = BYTES_MAX - len(_fill(template, slots | {"precision": " " * 500, "data": ""}).encode())
    data = page.encode(room)
    slots |= {"precision": _precision(page), "data": data}
    return _fill(template, slots).encode()


def _part(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _fill(template: str, slots: dict[str, str]) -> str:
    return _SLOT.sub(lambda match: slots[match[1]], template)


def _precision(page: ReportPage) -> str:
    level = page.level
    if page.is_exact:
        return f"Medians and percentiles are within ±{level.error:.0%}."
    days = {"day": "", "all": "All days are added up. "}.get(
        level.period, f"Days are added up by {level.period}. "
    )
    return (
        "To limit the size of this file, it is less detailed than the tables of the jobs."
        f" {days}At most {level.names_max} names of each kind are separate,"
        f" {level.pairs_max} in replies between senders. Medians and percentiles of filters are"
        f" within ±{level.error:.0%}. For more detail, choose fewer days."
    )


def _activity(report: ActivityReport) -> str:
    total = report.total
    cards = (
        (f"{total.messages:,}", "messages"),
        (f"{total.edits + total.deletes + total.moves:,}", "edits, deletes and moves"),
        (
            share(total.replied / total.messages) if total.messages else NONE,
            "messages that another sender followed within a day",
        ),
        (duration(total.reply_seconds) or NONE, "median time until then"),
        (duration(total.reply_p95_seconds) or NONE, "95th percentile"),
    )
    items = "".join(f"<li><b>{escape(value)}</b><span>{text}</span></li>" for value, text in cards)
    pairs = (
        (_name(pair.sender), _name(pair.answers), f"{pair.replies:,}",
         duration(pair.median_seconds), duration(pair.p95_seconds))
        for pair in report.pairs[:ROWS]
    )  # fmt: skip
    days = report.days[-ROWS:]
    return "\n".join(
        [
            f'<ul class="cards" id="totals">{items}</ul>',
            _section("messages", "Messages", _activities("Day", days)),
            _section("replies", "Reply times", _NEEDS_SCRIPT),
            _section(
                "pairs",
                "Replies between senders",
                _table(("Sender", "answers", "Replies", "p50", "p95"), 2, pairs),
            ),
            _section("senders", "Senders", _activities("Sender", report.senders)),
            _section("channels", "Channels", _activities("Channel", report.channels)),
            _section("topics", "Topics", _activities("Topic", report.topics)),
        ]
    )


def _activities(head: str, rows: Sequence[Activity]) -> str:
    cells = (
        (
            _name(row.name), f"{row.messages:,}", f"{row.edits:,}", f"{row.deletes:,}",
            f"{row.moves:,}", f"{row.replied:,}", duration(row.reply_seconds),
            duration(row.reply_p95_seconds), duration(row.active_seconds or None),
        )
        for row in rows[:ROWS]
    )  # fmt: skip
    return _table((head, *ACTIVITY), 1, cells)


def _delivery(report: DeliveryReport) -> str:
    latency = (
        (
            row.log, _name(row.destination), row.stage.replace("_", " "), f"{row.count:,}",
            duration(row.p50_seconds), duration(row.p95_seconds), duration(row.p99_seconds),
            duration(row.objective_seconds), share(row.attainment),
        )
        for row in report.latency[:ROWS]
    )  # fmt: skip
    outcomes = (
        (row.log, _name(row.destination), *(f"{count:,}" for count in counts))
        for row in report.outcomes[:ROWS]
        if (counts := (row.accepted, row.delivered, row.acked, row.attempts, row.failed, row.dead))
    )
    causes = (
        (row.log, _name(row.destination), _name(row.cause), f"{row.count:,}")
        for row in report.dead_letters[:ROWS]
    )
    return "\n".join(
        [
            _section("delays", "Time from accept to delivery", _NEEDS_SCRIPT),
            _section("latency", "Durations of deliveries", _table(STAGES, 3, latency)),
            _section("outcomes", "Outcomes of deliveries", _table(OUTCOMES, 2, outcomes)),
            _section(
                "dead_letters",
                "Dead letters",
                _table(("Log", "Destination", "Cause", "Dead letters"), 3, causes),
            ),
        ]
    )


def _section(name: str, title: str, content: str) -> str:
    return f'<section><h2>{title}</h2><div id="{name}">{content}</div></section>'


def _name(text: str) -> str:
    return f"<bdi>{escape(display(text, NAME_CHARACTERS_MAX))}</bdi>"


def _table(heads: Sequence[str], texts: int, rows: Iterable[Sequence[Any]]) -> str:
    """A table of HTML cells, of which the first `texts` are aligned as text."""

    def row(tag: str, cells: Sequence[Any]) -> str:
        kinds = ' class="text"', ""
        return "".join(
            f"<{tag}{kinds[index >= texts]}>{cell or ''}</{tag}>"
            for index, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row('td', cells)}</tr>\n" for cells in rows)
    if not body:
        return '<p class="soft">Nothing on these days.</p>'
    head = row("th", heads)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
        "</div>"
    )
