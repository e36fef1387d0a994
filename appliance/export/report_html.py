"""Renders the report as one self-contained HTML file with tables and pictures."""

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
    """The page. `pictures` has SVG by name and may be empty."""
    total = report.total
    sections = [
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
        sections += [f"<h2>{title}</h2>", *(_picture(pictures, name) for name in names)]
        sections.append(_activities(rows))
        if left := report.left_out.get(title.lower()):
            sections.append(f"<p>… and {left:,} more.</p>")
    sections += ["<h2>Replies between senders</h2>", _picture(pictures, "pairs"), _pairs(report)]
    return "\n".join([*sections, "</body></html>\n"])


def _picture(pictures: Mapping[str, bytes], name: str) -> str:
    """The SVG without the XML header. Ids get a prefix, because a page has several pictures."""
    text = pictures.get(name, b"").decode()
    text = text[text.find("<svg") :] if "<svg" in text else ""
    text = re.sub(r'\b(id="|href="#|url\(#)', lambda match: f"{match.group()}{name}-", text)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def _activities(rows: Sequence[Activity]) -> str:
    return _table(
        _HEADS,
        [
            (
                row.name, f"{row.messages:,}", f"{row.edits:,}", f"{row.deletes:,}",
                f"{row.moves:,}", f"{row.replied:,}",
                "" if row.reply_seconds is None else f"{row.reply_seconds:,.1f}",
                f"{row.active_seconds / 60:,.0f}",
            )
            for row in rows
        ],
    )  # fmt: skip


def _pairs(report: ActivityReport) -> str:
    rows = [
        (
            f"{pair.sender} answers {pair.answers}",
            f"{pair.replies:,}",
            "" if pair.median_seconds is None else f"{pair.median_seconds:,.1f}",
        )
        for pair in report.pairs
    ]
    return _table(("", "Replies", "Reply (s)"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
