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


def run(ask: JobRequest) -> JobReport:
    dataset = plan.gold(ask.out)
    former = dataset.current()
    memory = former.memory if former else {}
    todo, facts = _verify(ask, memory)
    if todo.is_empty(ask, memory):
        if former is None or ask.names_days:
            raise EmptyRange("no segments of outbox, broker, courier or runs in range")
        return JobReport({}, [], None)
    counts: dict[str, Any] = {
        "segments": sum(len(state.new) for state in todo.logs.values()),
        "days": len(todo.days),
        "skipped_segments": len(todo.bad),
    }
    logs = {log: plan.remember(state, facts[log]) for log, state in todo.logs.items()}
    draft, checked = dataset.draft(), _warnings(ask, todo, facts)
    if todo.days:
        counts["rows"], tested = _fill(ask, todo, draft)
        checked += tested
    failed = [result for result in checked if result.failed]
    skipped = verification.list_skipped(ask, todo.bad)
    made = ask.commit(dataset, draft, {"logs": logs, "skipped": skipped, "warnings": failed})
    return JobReport(counts, checked, made.root)


def _verify(ask: JobRequest, memory: dict[str, Any]) -> tuple[plan.PendingDays, Facts]:
    """Return the pending days without skipped segments, and the facts for the verified ones."""
    todo = plan.pending(ask, memory)
    with ask.progress.step(ask.spark, "delivery: verifying"):
        facts = {
            log: verification.verify(ask, some, todo.bad)
            for log, some in plan.list_needed(todo).items()
        }
    return (plan.pending(ask, memory, todo.bad) if todo.bad else todo), facts


def _fill(ask: JobRequest, todo: plan.PendingDays, draft: Draft) -> tuple[int, list[CheckResult]]:
    """Write the tables for the pending days and return the row count and check results."""
    spark, progress, needed = ask.spark, ask.progress, plan.list_needed(todo)
    ask.size_shuffles(sum(segment.bytes for mine in needed.values() for segment in mine))
    logs = {
        log: source.drop_undone(source.read(spark, mine, log), todo.logs[log].cuts)
        for log, mine in needed.items()
        if mine
    }
    rows = t.entries(logs, todo.days).persist()
    tables = {
        "latency": t.latency(rows, ask.options["objective"]),
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


def _warnings(ask: JobRequest, todo: plan.PendingDays, facts: Facts) -> list[CheckResult]:
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
        gaps = segments.gaps(chain, segments.begins_after(ask.source, log))
        warnings.append(warn_of(f"{log}.gaps", log, gaps))
        warnings.append(verification.disagreements(ask, state.segments, todo.bad, log))
    lost = sorted(todo.lost)
    note = f"segments of {', '.join(lost[:5])} were removed, so these days stay" if lost else ""
    everything = len(todo.days) + len(lost)
    warnings.append(CheckResult("days.complete", "latency", WARN, len(lost), everything, note))
    return warnings
