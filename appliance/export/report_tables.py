"""Prints reports as tables in the terminal, with a line about what the columns count."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from appliance.cli_support import Row, Session, note, write_line
from appliance.export.report_wire import ActivityReport, DeliveryReport

MINUTE, HOUR, DAY = 60, 3600, 86_400
UNITS = (("ms", 0.001, 1), ("s", 1, MINUTE), ("min", MINUTE, HOUR), ("h", HOUR, DAY),
         ("d", DAY, float("inf")))  # fmt: skip


def duration(seconds: float | None) -> str | None:
    """Return three digits with a unit, from milliseconds to days."""
    if seconds is None:
        return None
    unit, size = next((unit, size) for unit, size, limit in UNITS if seconds < limit)
    return f"{float(f'{seconds / size:.3g}'):g} {unit}"


def share(value: float) -> str:
    """Return a percentage; 100 % only if nothing is missing."""
    text = f"{value * 100:.1f} %"
    return "99.9 %" if text == "100.0 %" and value < 1 else text


def _duration_of(key: str) -> Callable[[Row], str | None]:
    return lambda row: duration(row[key])


Columns = list[tuple[str, str | Callable[[Row], Any]]]
ACTIVITY: Columns = [
    ("MESSAGES", "messages"), ("EDITS", "edits"), ("DELETES", "deletes"), ("MOVES", "moves"),
    ("REPLIED", "replied"), ("REPLY P50", _duration_of("reply_seconds")),
    ("REPLY P95", _duration_of("reply_p95_seconds")), ("ACTIVE", _duration_of("active_seconds")),
    ("NAME", "name"),
]  # fmt: skip
PAIRS: Columns = [
    ("REPLIES", "replies"), ("REPLY P50", _duration_of("median_seconds")),
    ("REPLY P95", _duration_of("p95_seconds")), ("SENDER", "sender"), ("ANSWERS", "answers"),
]  # fmt: skip
STAGES: Columns = [
    ("COUNT", "count"), ("P50", _duration_of("p50_seconds")), ("P95", _duration_of("p95_seconds")),
    ("P99", _duration_of("p99_seconds")), ("OBJECTIVE", _duration_of("objective_seconds")),
    ("MET", lambda row: share(row["attainment"])), ("LOG", "log"), ("STAGE", "stage"),
    ("DESTINATION", "destination"),
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
    " until then (±{error:.0%}).\nEDITS, DELETES and MOVES count for the message's author."
    " ACTIVE: time without pauses above 30 minutes."
)
STAGE_MEANS = (
    "COUNT: messages whose stage ended on these days. P50, P95, P99: duration "
    "(±{error:.0%})."
    " MET: share within the objective."
)
OUTCOME_MEANS = (
    "DELIVERED: first deliveries. ATTEMPTS: with repeats. FAILED: attempts that failed."
    " DEAD: messages that were given up.\nThe courier log and the run log have no"
    " acceptances, and the outbox log has no acks."
)
# A report's list, its columns, and their meaning.
VIEWS = {
    "day": ("days", ACTIVITY, REPLIED_MEANS), "channel": ("channels", ACTIVITY, REPLIED_MEANS),
    "topic": ("topics", ACTIVITY, REPLIED_MEANS), "sender": ("senders", ACTIVITY, REPLIED_MEANS),
    "pair": ("pairs", PAIRS, ""), "stage": ("latency", STAGES, STAGE_MEANS),
    "destination": ("outcomes", OUTCOMES, OUTCOME_MEANS), "cause": ("dead_letters", CAUSES, ""),
}  # fmt: skip


def show(session: Session, report: ActivityReport | DeliveryReport, by: str) -> None:
    """Print one list from a report, one of VIEWS."""
    name, columns, means = VIEWS[by]
    write_line(f"{report.first} to {report.last} (UTC)")
    rows = [asdict(row) for row in getattr(report, name)]
    session.table(rows, columns, empty="no rows")
    if means:
        note(means.format(error=report.quantile_error))
    if left := report.left_out.get(name):
        note(f"{left:,} more: --top {len(rows) + left}")
