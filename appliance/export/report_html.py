"""Renders the HTML report: one file with at most BYTES_MAX bytes, with data, script and styles.

The script draws the tables and charts, with filters.
"""

import base64
import hashlib
import re
from html import escape
from pathlib import Path

from appliance import __version__, shared
from appliance.export.report_page import ReportPage
from appliance.export.report_text import display
from appliance.shared.histogram import RELATIVE_ERROR

BYTES_MAX = 1_000_000
NAME_CHARACTERS_MAX = 80
_FOLDER = Path(__file__).with_name("page")
_THEME = Path(shared.__file__).with_name("theme.css")
_SLOT = re.compile(r"\{\{(\w+)\}\}")
TOTALS = '<ul class="cards" id="totals"></ul>'
ACTIVITY = {
    "messages": "Messages", "replies": "Reply times", "pairs": "Replies between senders",
    "senders": "Senders", "channels": "Channels", "topics": "Topics",
}  # fmt: skip
DELIVERY = {
    "delays": "Time from accept to delivery", "latency": "Delivery durations",
    "outcomes": "Delivery outcomes", "dead_letters": "Dead letters",
}  # fmt: skip


def render(page: ReportPage) -> bytes:
    """Return the file in UTF-8. Raises ReportTooLarge."""
    style, script = _THEME.read_text("utf-8") + _part("report.css"), _part("report.js")
    channel = display(page.channel or "", NAME_CHARACTERS_MAX)
    slots = {
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "days": f"{page.first} to {page.last}",
        "where": f", channel <bdi>{escape(channel)}</bdi>" if channel else "",
        "activity": TOTALS + _sections(ACTIVITY) if page.activity else "",
        "delivery": _sections(DELIVERY) if page.delivery else "",
        "version": __version__,
    }
    template = _part("report.html")
    room = BYTES_MAX - len(_fill(template, slots | {"precision": " " * 500, "data": ""}).encode())
    slots["data"] = page.encode(room)
    first = page.shown_from
    slots["days"] = first if first == page.last else f"{first} to {page.last}"
    slots["precision"] = _precision(page)
    return _fill(template, slots).encode()


def _part(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _fill(template: str, slots: dict[str, str]) -> str:
    return _SLOT.sub(lambda match: slots[match[1]], template)


def _precision(page: ReportPage) -> str:
    text = f"Medians and percentiles are within ±{RELATIVE_ERROR:.0%}."
    if days := page.days_left_out:
        text += f" To limit this file's size, {days} more days, from {page.first}, are left out."
    return text


def _sections(titles: dict[str, str]) -> str:
    """Return empty sections, which the script fills."""
    return "\n".join(
        f'<section><h2>{title}</h2><div id="{name}"></div></section>'
        for name, title in titles.items()
    )
