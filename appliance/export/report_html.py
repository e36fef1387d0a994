"""The report as one HTML file: tables and pictures inside, nothing fetched from anywhere."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from appliance.export.wire import Activity, ActivityReport

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Activity {first} to {last}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d2126; background: #fff; }}
svg {{ max-width: 100%; height: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; width: 100%; }}
th, td {{ text-align: right; padding: .2rem .6rem; border-bottom: 1px solid #e3e6ea; }}
th:first-child, td:first-child {{ text-align: left; overflow-wrap: anywhere; }}
</style></head><body>
<h1>Activity</h1>
<p>{first} to {last} (UTC){where}: {messages:,} messages, {edits:,} edits, {deletes:,} deletes,
{moves:,} moves.</p>
"""
_HEADS = ("", "Messages", "Edits", "Deletes", "Moves", "Replied", "Reply (s)", "Active (min)")


def render(report: ActivityReport, pictures: Mapping[str, bytes]) -> str:
    """`pictures`: SVG by name, may be empty."""
    total = report.total
    parts = [
        _HEAD.format(
            first=escape(report.first),
            last=escape(report.last),
            where=f", channel {escape(report.channel)}" if report.channel else "",
            messages=total.messages,
            edits=total.edits,
            deletes=total.deletes,
            moves=total.moves,
        )
    ]
    for title, rows, names in (
        ("Days", report.days, ("days", "replies")),
        ("Channels", report.channels, ()),
        ("Topics", report.topics, ("topics",)),
        ("Senders", report.senders, ("senders",)),
    ):
        parts += [f"<h2>{title}</h2>", *(_picture(pictures, name) for name in names)]
        parts.append(_activities(rows))
        if left := report.left_out.get(title.lower()):
            parts.append(f"<p>… and {left:,} more.</p>")
    parts += ["<h2>Who answers whom</h2>", _picture(pictures, "pairs"), _pairs(report)]
    return "\n".join([*parts, "</body></html>\n"])


def _picture(pictures: Mapping[str, bytes], name: str) -> str:
    """Without the XML head, and with ids of its own, for several stand in one page."""
    text = pictures.get(name, b"").decode()
    text = text[text.find("<svg") :] if "<svg" in text else ""
    text = re.sub(r'\b(id="|href="#|url\(#)', lambda found: f"{found.group()}{name}-", text)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def _activities(rows: Sequence[Activity]) -> str:
    return _table(
        _HEADS,
        [
            (
                one.name, f"{one.messages:,}", f"{one.edits:,}", f"{one.deletes:,}",
                f"{one.moves:,}", f"{one.replied:,}",
                "" if one.reply_seconds is None else f"{one.reply_seconds:,.1f}",
                f"{one.active_seconds / 60:,.0f}",
            )
            for one in rows
        ],
    )  # fmt: skip


def _pairs(report: ActivityReport) -> str:
    rows = [
        (
            f"{one.sender} answers {one.answers}",
            f"{one.replies:,}",
            "" if one.median_seconds is None else f"{one.median_seconds:,.1f}",
        )
        for one in report.pairs
    ]
    return _table(("", "Replies", "Reply (s)"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
