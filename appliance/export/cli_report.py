"""`agentlip report`: prints results of the Spark jobs and writes them as one HTML page.

Exit codes are those of `agentlip export`.
"""

from pathlib import Path
from typing import Annotated, get_args

import msgspec
import typer

from appliance.cli_support import Session, plain_app
from appliance.export import activity, delivery, report_html, report_page
from appliance.export.cli import FirstFlag, LastFlag, day_of, workspace_of
from appliance.export.manifests import write_whole, writing
from appliance.export.report_tables import show_activity, show_delivery
from appliance.export.report_wire import LogKind
from appliance.kernel.errors import Invalid

app = plain_app(
    "Reports from the results of the Spark jobs.\n\n"
    "Exit codes: 0 success, 1 error, 10 missing, 11 torn, 13 unknown schema version,"
    " 14 empty range, 15 output not writable, 18 a library is missing.",
    "Administration/report",
)

GoldFlag = Annotated[
    Path | None,
    typer.Option("--gold", help="Output directory of the job (default: export.gold_dir)."),
]
ChannelFlag = Annotated[
    str | None, typer.Option("--channel", help="Only this channel, by name or id.")
]
ACTIVITY_VIEWS = ("day", "channel", "topic", "sender", "pair")
DELIVERY_VIEWS = ("stage", "destination", "cause")


@app.command("activity")
def report_activity(
    session: Session,
    gold_dir: GoldFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    channel: ChannelFlag = None,
    by: Annotated[
        str, typer.Option("--by", help="Rows of the table: day, channel, topic, sender or pair.")
    ] = "sender",
    top: Annotated[
        int, typer.Option("--top", min=1, help="Maximum number of rows; days are always complete.")
    ] = 20,
) -> None:
    """Report messages, edits and replies: agentlip report activity --by topic"""
    _choice(by, ACTIVITY_VIEWS)
    folder = _gold(session, gold_dir)
    report = activity.report(folder, day_of(first), day_of(last), channel, top)
    if session.machine:
        session.answer(msgspec.to_builtins(report), "")
    else:
        show_activity(session, report, by)


@app.command("delivery")
def report_delivery(
    session: Session,
    gold_dir: GoldFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    log: Annotated[
        str | None, typer.Option("--log", help="Only this log: outbox, broker, courier or runs.")
    ] = None,
    by: Annotated[
        str, typer.Option("--by", help="Rows of the table: stage, destination or cause.")
    ] = "stage",
    top: Annotated[int, typer.Option("--top", min=1, help="Maximum number of rows.")] = 100,
) -> None:
    """Report durations, outcomes and dead letters of deliveries: agentlip report delivery"""
    _choice(by, DELIVERY_VIEWS)
    if log is not None:
        _choice(log, get_args(LogKind))
    folder = _gold(session, gold_dir)
    report = delivery.report(folder, day_of(first), day_of(last), log, top)
    if session.machine:
        session.answer(msgspec.to_builtins(report), "")
    else:
        show_delivery(session, report, by)


@app.command("html")
def report_as_html(
    session: Session,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")],
    gold_dir: GoldFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    channel: ChannelFlag = None,
) -> None:
    """Write one HTML file with all reports and filters: agentlip report html --out report.html"""
    page = report_page.build(_gold(session, gold_dir), day_of(first), day_of(last), channel)
    data = report_html.render(page)
    with writing():
        write_whole(out, data)
    answer = {"path": str(out), "bytes": len(data), "period": page.level.period}
    coarser = "" if page.is_exact else f", by {page.level.period}"
    session.answer(answer, f"wrote {out}: {len(data):,} bytes{coarser}")


def _gold(session: Session, explicit: Path | None) -> Path:
    if explicit is not None:
        return explicit
    datadir, settings = workspace_of(session)
    return datadir.workspace / settings.gold_dir


def _choice(value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise Invalid(f"unknown value {value}", hint=f"use one of: {', '.join(choices)}")
