"""Reads the segments for changed days and publishes their numbers; all other days are kept."""

from functools import partial
from typing import Any

from spark import checks, segments, source, verification
from spark.checks import TableCheck
from spark.errors import EmptyRange
from spark.jobs.delivery import plan, schema
from spark.jobs.delivery import transforms as t
from spark.request import JobReport, JobRequest
from spark.results import ERROR, NAMED_MAX, SEGMENTS_SOUND, WARN, CheckResult, warn_of
from spark.segments import SegmentFacts
from spark.tables import Draft

Facts = dict[str, dict[str, SegmentFacts]]  # by log and name of the segment
CHECKS = (
    TableCheck("latency.once", "latency", ERROR, unique=t.STAGE),
    TableCheck("latency.count", "latency", ERROR, "count < 1"),
    TableCheck("latency.p50", "latency", ERROR, "p50_seconds IS NULL"),
    TableCheck("outcomes.once", "outcomes", ERROR, unique=t.WHERE),
    TableCheck("dead_letters.once", "dead_letters", ERROR, unique=(*t.WHERE, "cause")),
)


def run(request: JobRequest) -> JobReport:
    dataset = plan.gold(request.out)
    former = dataset.current()
    checkpoint = former.checkpoint if former else {}
    todo, facts = _verify(request, checkpoint)
    if todo.is_empty(request, checkpoint):
        if former is None or request.names_days:
            raise EmptyRange("no segments of outbox, broker, courier or runs in range")
        return JobReport({}, [], None)
    counts: dict[str, Any] = {
        "segments": sum(len(state.new) for state in todo.logs.values()),
        "days": len(todo.days),
        "skipped_segments": len(todo.bad),
    }
    logs = {log: plan.remember(state, facts[log]) for log, state in todo.logs.items()}
    draft, checked = dataset.draft(), _warnings(request, todo, facts)
    if todo.days:
        counts["rows"], tested = _fill(request, todo, draft)
        checked += tested
    failed = [result for result in checked if result.failed]
    skipped = verification.list_skipped(request, todo.bad)
    made = request.commit(dataset, draft, {"logs": logs, "skipped": skipped, "warnings": failed})
    return JobReport(counts, checked, made.root)


def _verify(request: JobRequest, checkpoint: dict[str, Any]) -> tuple[plan.PendingDays, Facts]:
    """Return the pending days without skipped segments, and the facts for the verified ones."""
    todo = plan.pending(request, checkpoint)
    with request.progress.step(request.spark, "delivery: verifying"):
        facts = {
            log: verification.verify(request, some, todo.bad)
            for log, some in plan.list_needed(todo).items()
        }
    return (plan.pending(request, checkpoint, todo.bad) if todo.bad else todo), facts


def _fill(
    request: JobRequest, todo: plan.PendingDays, draft: Draft
) -> tuple[int, list[CheckResult]]:
    """Write the tables for the pending days and return the row count and check results."""
    spark, progress, needed = request.spark, request.progress, plan.list_needed(todo)
    request.size_shuffles(sum(segment.bytes for mine in needed.values() for segment in mine))
    logs = {
        log: source.drop_undone(source.read(spark, mine, log), todo.logs[log].cuts)
        for log, mine in needed.items()
        if mine
    }
    rows = t.entries(logs, todo.days).persist()
    tables = {
        "latency": t.latency(rows, request.options["objective"]),
        "outcomes": t.outcomes(rows),
        "dead_letters": t.dead_letters(rows),
    }
    for table, frame in tables.items():
        with progress.step(spark, f"delivery: {table.replace('_', ' ')}"):
            draft.replace(frame.repartition("day"), table, todo.days)  # a file per day
    rows.unpersist()
    total = sum(segment.rows for mine in needed.values() for segment in mine)
    with progress.step(spark, "delivery: checks"):
        checked = checks.run(CHECKS, partial(draft.written, spark))
        unknown = t.unknown_names(logs).limit(schema.UNKNOWN_NAMES_MAX).collect()
    checks.require_passed(checked, progress)
    note = "; ".join(f"{row['log']}: {row['name']}" for row in unknown[:NAMED_MAX])
    count = sum(row["count"] for row in unknown)
    return total, [*checked, CheckResult("events.known", "logs", WARN, count, total, note)]


def _warnings(request: JobRequest, todo: plan.PendingDays, facts: Facts) -> list[CheckResult]:
    """Return the warnings found in the manifests and the verified files.

    Warn about skipped segments, added columns, gaps, and days that keep their numbers because some
    segments were removed."""
    added = [
        sentence
        for log, state in todo.logs.items()
        for sentence in verification.added_columns(state.segments, facts[log])
    ]
    warnings = [
        warn_of(SEGMENTS_SOUND, "segments", [error.message for error in todo.bad.values()]),
        warn_of("segments.columns", "segments", added),
    ]
    for log, state in todo.logs.items():
        chain = verification.count_once(state.segments, state.taken.lacking)
        gaps = segments.gaps(chain, segments.begins_after(request.source, log))
        warnings.append(warn_of(f"{log}.gaps", log, gaps))
        warnings.append(verification.disagreements(request, state.segments, todo.bad, log))
    lost = sorted(todo.lost)
    note = f"segments of {', '.join(lost[:5])} were removed, so these days stay" if lost else ""
    everything = len(todo.days) + len(lost)
    warnings.append(CheckResult("days.complete", "latency", WARN, len(lost), everything, note))
    return warnings
