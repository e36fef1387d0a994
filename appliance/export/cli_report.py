"""`agentlip report`: what the jobs have found, as tables, pictures and a page.

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
    "Reports of what the Spark jobs have counted.\n\n"
    "Exit codes: 0 success, 1 error, 10 missing, 11 torn, 13 unknown schema version,"
    " 14 nothing in that range, 15 output not writable, 18 a library is missing."
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
    """Keeps `activity` a subcommand while it is the only one."""


@app.command("activity")
@common
def report_activity(
    session: Session,
    gold: Annotated[
        Path | None, typer.Option("--gold", help="Where the job wrote (default: jobs.gold_dir).")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="First day, UTC: 2026-11-01.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DAY", help="Last day.")] = None,
    channel: Annotated[str | None, typer.Option("--channel", help="Name or id.")] = None,
    by: Annotated[
        str, typer.Option("--by", help="day, channel, topic, sender or pair: what the table shows.")
    ] = "sender",
    top: Annotated[int, typer.Option("--top", min=1, help="Rows shown; days are all shown.")] = 20,
    pictures: Annotated[
        Path | None, typer.Option("--charts", metavar="DIR", help="Write PNG and SVG there.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one page with everything.")
    ] = None,
) -> None:
    """Messages, edits, replies and who answers whom: agentlip report activity --html report.html"""
    if by not in (*VIEWS, "pair"):
        raise Invalid(f"there is no view {by}", hint=f"--by {', '.join([*VIEWS, 'pair'])}")
    found = activity.report(_gold(session, gold), _day(first), _day(last), channel, top)
    if pictures is not None:
        _write_charts(found, pictures)
    if html is not None:
        with writing():
            write_whole(html, report_html.render(found, charts.draw(found, "svg")).encode())
        note(f"wrote {html}")
    if session.machine:
        session.answer(msgspec.to_builtins(found), "")
    else:
        _show(session, found, by)


def _gold(session: Session, asked: Path | None) -> Path:
    if asked is not None:
        return asked
    datadir, settings = workspace_of(session)
    return datadir.workspace / settings.gold_dir


def _day(text: str | None) -> str | None:
    try:
        return None if text is None else date.fromisoformat(text).isoformat()
    except ValueError:
        raise Invalid(f"{text} is no day", hint="a day is like 2026-11-21") from None


def _write_charts(found: ActivityReport, folder: Path) -> None:
    drawn = {kind: charts.draw(found, kind) for kind in ("png", "svg")}
    with writing():
        folder.mkdir(parents=True, exist_ok=True)
        for kind, pictures in drawn.items():
            for name, data in pictures.items():
                write_whole(folder / f"activity-{name}.{kind}", data)
    note(f"wrote PNG and SVG into {folder}")


def _show(session: Session, found: ActivityReport, by: str) -> None:
    where = f", channel {found.channel}" if found.channel else ""
    write_line(f"{found.first} to {found.last} (UTC){where}: {found.total.messages:,} messages")
    if by == "pair":
        rows = [
            {
                "replies": one.replies,
                "reply": _seconds(one.median_seconds),
                "name": f"{one.sender} answers {one.answers}",
            }
            for one in found.pairs
        ]
        columns = [("REPLIES", "replies"), ("REPLY (S)", "reply"), ("", "name")]
        session.table(rows, columns, empty="nobody answered anybody")
    else:
        rows = [_row(one) for one in getattr(found, VIEWS[by])]
        session.table(rows, [*COLUMNS[:-1], (by.upper(), "name")], empty="nothing")
    left = found.left_out.get(VIEWS.get(by, "pairs"), 0)
    if left:
        note(f"{left:,} more: --top {len(rows) + left}")


def _row(one: Activity) -> dict[str, Any]:
    return {
        **msgspec.structs.asdict(one),
        "reply": _seconds(one.reply_seconds),
        "active": f"{one.active_seconds / 60:.0f}",
    }


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"
