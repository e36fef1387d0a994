"""Implements `agentlip report`: prints Spark job results and writes one HTML page with all
results.

The exit codes equal the `agentlip export` exit codes.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.export import activity, delivery, report_html, report_page, report_tables
from appliance.export.cli import FirstFlag, LastFlag, day_of, workspace_of
from appliance.export.manifests import write_whole, writing
from appliance.export.report_wire import ActivityReport, DeliveryReport

app = plain_app(
    "Reports from the Spark jobs' results.\n\n"
    "Exit codes: 0 success, 1 error, 10 missing, 11 torn, 13 unknown schema version,"
    " 14 empty range, 15 output not writable, 18 a library is missing, 20 report too large.",
    "Administration/report",
)

GoldFlag = Annotated[
    Path | None,
    typer.Option("--gold", help="The job's output directory (default: export.gold_dir)."),
]
ChannelFlag = Annotated[
    str | None, typer.Option("--channel", help="Only this channel, by name or id.")
]
TopFlag = Annotated[int, typer.Option("--top", min=1, help="Row limit.")]
ActivityView = StrEnum("ActivityView", ["day", "channel", "topic", "sender", "pair"])
DeliveryView = StrEnum("DeliveryView", ["stage", "destination", "cause"])
DeliveryLog = StrEnum("DeliveryLog", ["outbox", "broker", "courier", "runs"])


@app.command("activity")
def report_activity(
    session: Session,
    gold_dir: GoldFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    channel: ChannelFlag = None,
    by: Annotated[
        ActivityView, typer.Option("--by", help="Time span per row; days are always complete.")
    ] = ActivityView.sender,
    top: TopFlag = 20,
) -> None:
    """Report messages, edits and replies.

    Example: agentlip report activity --by topic
    """
    folder = _gold(session, gold_dir)
    _show(session, activity.report(folder, day_of(first), day_of(last), channel, top), by)


@app.command("delivery")
def report_delivery(
    session: Session,
    gold_dir: GoldFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    log: Annotated[DeliveryLog | None, typer.Option("--log", help="Only this log.")] = None,
    by: Annotated[
        DeliveryView, typer.Option("--by", help="Grouping: one row for each.")
    ] = DeliveryView.stage,
    top: TopFlag = 100,
) -> None:
    """Report delivery durations, outcomes and dead letters.

    Example: agentlip report delivery
    """
    folder = _gold(session, gold_dir)
    _show(session, delivery.report(folder, day_of(first), day_of(last), log, top), by)


@app.command("html")
def report_as_html(
    session: Session,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")],
    gold_dir: GoldFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    channel: ChannelFlag = None,
) -> None:
    """Write one HTML file with all reports and filters.

    Example: agentlip report html --out report.html
    """
    page = report_page.build(_gold(session, gold_dir), day_of(first), day_of(last), channel)
    data = report_html.render(page)
    with writing():
        write_whole(out, data)
    shown, days = page.shown_from, page.days_left_out
    answer = {"path": str(out), "bytes": len(data), "from": shown, "days_left_out": days}
    cut = f", from {shown}; {days} more days did not fit" if days else ""
    session.answer(answer, f"wrote {out}: {len(data):,} bytes{cut}")


def _show(session: Session, report: ActivityReport | DeliveryReport, by: str) -> None:
    if session.machine:
        session.answer(msgspec.to_builtins(report), "")
    else:
        report_tables.show(session, report, by)


def _gold(session: Session, explicit: Path | None) -> Path:
    if explicit is not None:
        return explicit
    datadir, settings = workspace_of(session)
    return datadir.workspace / settings.gold_dir
