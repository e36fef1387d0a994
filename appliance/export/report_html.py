"""Renders the HTML report: one file of at most BYTES_MAX with its data, script and styles.

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
    "delays": "Time from accept to delivery", "latency": "Durations of deliveries",
    "outcomes": "Outcomes of deliveries", "dead_letters": "Dead letters",
}  # fmt: skip


def render(page: ReportPage) -> bytes:
    """The file in UTF-8."""
    style, script = _THEME.read_text("utf-8") + _part("report.css"), _part("report.js")
    days = page.first if page.first == page.last else f"{page.first} to {page.last}"
    channel = display(page.channel or "", NAME_CHARACTERS_MAX)
    slots = {
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "days": escape(days),
        "where": f", channel <bdi>{escape(channel)}</bdi>" if channel else "",
        "activity": TOTALS + _sections(ACTIVITY) if page.activity else "",
        "delivery": _sections(DELIVERY) if page.delivery else "",
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
    return (
        "To limit the size of this file, it is less detailed than the tables of the jobs. Days are"
        f" added up by: {level.period}. At most {level.names_max} names of each kind are separate,"
        f" {level.pairs_max} in replies between senders. Medians and percentiles of filters are"
        f" within ±{level.error:.0%}. For more detail, choose fewer days."
    )


def _sections(titles: dict[str, str]) -> str:
    """Empty sections, which the script fills."""
    return "\n".join(
        f'<section><h2>{title}</h2><div id="{name}"></div></section>'
        for name, title in titles.items()
    )
