"""`agentlip report`: prints results of the Spark jobs and writes charts and an HTML page.

Exit codes are those of `agentlip export`.
"""

from datetime import date
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from appliance.cli_support import Session, common, note, plain_app, write_line
from appliance.export import activity, charts, report_html
from appliance.export.cli import workspace_of
from appliance.export.manifests import write_whole, writing
from appliance.export.wire import Activity, ActivityReport
from appliance.kernel.errors import Invalid

app = plain_app(
    "Reports from the results of the Spark jobs.\n\n"
    "Exit codes: 0 success, 1 error, 10 missing, 11 torn, 13 unknown schema version,"
    " 14 empty range, 15 output not writable, 18 a library is missing."
)

VIEWS = {"day": "days", "channel": "channels", "topic": "topics", "sender": "senders"}
COLUMNS = [
    ("MESSAGES", "messages"),
    ("EDITS", "edits"),
    ("DELETES", "deletes"),
    ("MOVES", "moves"),
    ("REPLIED", "replied"),
    ("REPLY (S)", "reply"),
    ("ACTIVE (MIN)", "active"),
    ("", "name"),
]


@app.callback()
def _reports() -> None:
    """Makes Typer keep `activity` as a subcommand while it is the only one."""


@app.command("activity")
@common
def report_activity(
    session: Session,
    gold: Annotated[
        Path | None,
        typer.Option("--gold", help="Output directory of the job (default: export.gold_dir)."),
    ] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", help="First day in UTC, such as 2026-11-01."),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="Last day in UTC.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Only this channel, by name or id.")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help="Rows of the table: day, channel, topic, sender or pair.")
    ] = "sender",
    top: Annotated[
        int, typer.Option("--top", min=1, help="Maximum number of rows; days are always complete.")
    ] = 20,
    pictures: Annotated[
        Path | None,
        typer.Option("--charts", metavar="DIR", help="Write PNG and SVG charts to this directory."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write an HTML page with tables and charts."),
    ] = None,
) -> None:
    """Report messages, edits and replies: agentlip report activity --html report.html"""
    if by not in (*VIEWS, "pair"):
        raise Invalid(f"unknown view {by}", hint=f"--by {', '.join([*VIEWS, 'pair'])}")
    report = activity.report(_gold(session, gold), _day(first), _day(last), channel, top)
    if pictures is not None:
        _write_charts(report, pictures)
    if html is not None:
        with writing():
            write_whole(html, report_html.render(report, charts.draw(report, "svg")).encode())
        note(f"wrote {html}")
    if session.machine:
        session.answer(msgspec.to_builtins(report), "")
    else:
        _show(session, report, by)


def _gold(session: Session, explicit: Path | None) -> Path:
    if explicit is not None:
        return explicit
    datadir, settings = workspace_of(session)
    return datadir.workspace / settings.gold_dir


def _day(text: str | None) -> str | None:
    try:
        return None if text is None else date.fromisoformat(text).isoformat()
    except ValueError:
        raise Invalid(f"{text} is not a date", hint="use a date such as 2026-11-21") from None


def _write_charts(report: ActivityReport, folder: Path) -> None:
    drawn = {kind: charts.draw(report, kind) for kind in ("png", "svg")}
    with writing():
        folder.mkdir(parents=True, exist_ok=True)
        for kind, pictures in drawn.items():
            for name, data in pictures.items():
                write_whole(folder / f"activity-{name}.{kind}", data)
    note(f"wrote PNG and SVG into {folder}")


def _show(session: Session, report: ActivityReport, by: str) -> None:
    where = f", channel {report.channel}" if report.channel else ""
    write_line(f"{report.first} to {report.last} (UTC){where}: {report.total.messages:,} messages")
    if by == "pair":
        rows = [
            {
                "replies": entry.replies,
                "reply": _seconds(entry.median_seconds),
                "name": f"{entry.sender} answers {entry.answers}",
            }
            for entry in report.pairs
        ]
        columns = [("REPLIES", "replies"), ("REPLY (S)", "reply"), ("", "name")]
        session.table(rows, columns, empty="no replies")
    else:
        rows = [_row(entry) for entry in getattr(report, VIEWS[by])]
        session.table(rows, [*COLUMNS[:-1], (by.upper(), "name")], empty="no activity")
    left = report.left_out.get(VIEWS.get(by, "pairs"), 0)
    if left:
        note(f"{left:,} more: --top {len(rows) + left}")


def _row(activity: Activity) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(activity),
        "reply": _seconds(activity.reply_seconds),
        "active": f"{activity.active_seconds / 60:.0f}",
    }


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"
