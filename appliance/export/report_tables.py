"""Prints reports as tables in the terminal, with a line about what the columns count."""

from typing import Any

from msgspec.structs import asdict

from appliance.cli_support import Session, note, write_line
from appliance.export.report_wire import Activity, ActivityReport, DeliveryReport, StageLatency

Columns = list[tuple[str, str]]
VIEWS = {"day": "days", "channel": "channels", "topic": "topics", "sender": "senders"}
ACTIVITY: Columns = [
    ("MESSAGES", "messages"), ("EDITS", "edits"), ("DELETES", "deletes"), ("MOVES", "moves"),
    ("REPLIED", "replied"), ("REPLY P50", "p50"), ("REPLY P95", "p95"), ("ACTIVE", "active"),
]  # fmt: skip
PAIRS: Columns = [("REPLIES", "replies"), ("REPLY P50", "p50"), ("REPLY P95", "p95")]
STAGES: Columns = [
    ("COUNT", "count"), ("P50", "p50"), ("P95", "p95"), ("P99", "p99"), ("OBJECTIVE", "objective"),
    ("MET", "met"), ("LOG", "log"), ("STAGE", "stage"), ("DESTINATION", "destination"),
]  # fmt: skip
OUTCOMES: Columns = [
    ("ACCEPTED", "accepted"), ("DELIVERED", "delivered"), ("ACKED", "acked"),
    ("ATTEMPTS", "attempts"), ("FAILED", "failed"), ("DEAD", "dead"), ("LOG", "log"),
    ("DESTINATION", "destination"),
]  # fmt: skip
CAUSES: Columns = [
    ("DEAD", "count"), ("LOG", "log"), ("DESTINATION", "destination"), ("CAUSE", "cause"),
]  # fmt: skip
REPLIED_MEANS = (
    "REPLIED: messages that another sender followed in the topic within a day. REPLY: the time"
    " until then (±{error:.0%}).\nEDITS, DELETES and MOVES count for the author of the message."
    " ACTIVE: time without pauses above 30 minutes."
)
STAGE_MEANS = (
    "COUNT: messages whose stage ended on these days. P50, P95, P99: its duration (±{error:.0%})."
    " MET: share within the objective."
)
OUTCOME_MEANS = (
    "DELIVERED: first deliveries. ATTEMPTS: with repeats. FAILED: attempts that failed."
    " DEAD: messages that were given up.\nThe logs of the courier and of runs have no"
    " acceptances, and that of the outbox no acks."
)
MINUTE, HOUR, DAY = 60, 3600, 86_400
UNITS = (("ms", 0.001, 1), ("s", 1, MINUTE), ("min", MINUTE, HOUR), ("h", HOUR, DAY),
         ("d", DAY, float("inf")))  # fmt: skip


def show_activity(session: Session, report: ActivityReport, by: str) -> None:
    where = f", channel {report.channel}" if report.channel else ""
    write_line(f"{report.first} to {report.last} (UTC){where}: {report.total.messages:,} messages")
    if by == "pair":
        rows = [
            {
                "replies": pair.replies,
                "p50": duration(pair.median_seconds),
                "p95": duration(pair.p95_seconds),
                "name": f"{pair.sender} answers {pair.answers}",
            }
            for pair in report.pairs
        ]
        session.table(rows, [*PAIRS, ("", "name")], empty="no replies")
    else:
        rows = [_activity(row) for row in getattr(report, VIEWS[by])]
        session.table(rows, [*ACTIVITY, (by.upper(), "name")], empty="no activity")
        note(REPLIED_MEANS.format(error=report.quantile_error))
    _more(len(rows), report.left_out.get(VIEWS.get(by, "pairs"), 0))


def show_delivery(session: Session, report: DeliveryReport, by: str) -> None:
    where = f", log {report.log}" if report.log else ""
    write_line(f"{report.first} to {report.last} (UTC){where}")
    if by == "stage":
        rows = [_stage(row) for row in report.latency]
        session.table(rows, STAGES, empty="no stage ended")
        note(STAGE_MEANS.format(error=report.quantile_error))
        left = report.left_out["latency"]
    elif by == "destination":
        rows = [asdict(row) for row in report.outcomes]
        session.table(rows, OUTCOMES, empty="no deliveries")
        note(OUTCOME_MEANS)
        left = report.left_out["outcomes"]
    else:
        rows = [asdict(row) for row in report.dead_letters]
        session.table(rows, CAUSES, empty="no dead letters")
        left = report.left_out["dead_letters"]
    _more(len(rows), left)


def duration(seconds: float | None) -> str | None:
    """Three digits with a unit, from milliseconds to days."""
    if seconds is None:
        return None
    unit, size = next((unit, size) for unit, size, limit in UNITS if seconds < limit)
    return f"{float(f'{seconds / size:.3g}'):g} {unit}"


def share(value: float) -> str:
    """A percentage; 100 % only if nothing is missing."""
    text = f"{value * 100:.1f} %"
    return "99.9 %" if text == "100.0 %" and value < 1 else text


def _more(shown: int, left: int) -> None:
    if left:
        note(f"{left:,} more: --top {shown + left}")


def _activity(row: Activity) -> dict[str, Any]:
    return asdict(row) | {
        "p50": duration(row.reply_seconds),
        "p95": duration(row.reply_p95_seconds),
        "active": duration(row.active_seconds),
    }


def _stage(row: StageLatency) -> dict[str, Any]:
    return asdict(row) | {
        "p50": duration(row.p50_seconds),
        "p95": duration(row.p95_seconds),
        "p99": duration(row.p99_seconds),
        "objective": duration(row.objective_seconds),
        "met": share(row.attainment),
    }
