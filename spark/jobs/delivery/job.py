"""Reads the segments of changed days and publishes their numbers with all other days kept."""

from functools import partial
from typing import Any

from spark import checks, segments, source
from spark.errors import EmptyRange
from spark.jobs.delivery import plan
from spark.jobs.delivery import transforms as t
from spark.request import JobReport, JobRequest
from spark.results import ERROR, WARN, CheckResult
from spark.tables import Dataset, Draft

CHECKS = (
    checks.TableCheck(
        "latency.once", "latency", checks.UNIQUE, ("day", "log", "destination", "stage"), ERROR
    ),
    checks.TableCheck("latency.count", "latency", checks.RANGE, ("count",), ERROR, low=1),
    checks.TableCheck("latency.p50", "latency", checks.NOT_NULL, ("p50_seconds",), ERROR),
    checks.TableCheck(
        "outcomes.once", "outcomes", checks.UNIQUE, ("day", "log", "destination"), ERROR
    ),
    checks.TableCheck(
        "dead_letters.once", "dead_letters", checks.UNIQUE,
        ("day", "log", "destination", "cause"), ERROR,
    ),
)  # fmt: skip


def run(ask: JobRequest) -> JobReport:
    dataset = plan.gold(ask)
    former = dataset.current()
    todo = plan.pending(ask, former.memory if former else {})
    if not todo.days and not any(state.new for state in todo.logs.values()):
        if former is None or ask.first_day or ask.last_day:
            raise EmptyRange("no segments of outbox, broker, courier or runs in range")
        return JobReport({}, _warnings(ask, todo), None)
    return _publish(ask, todo, dataset)


def _publish(ask: JobRequest, todo: plan.PendingDays, dataset: Dataset) -> JobReport:
    draft = dataset.draft()
    counts: dict[str, Any] = {
        "segments": sum(len(state.new) for state in todo.logs.values()),
        "days": len(todo.days),
    }
    checked = _warnings(ask, todo)
    if todo.days:
        counts["rows"], tested = _fill(ask, todo, draft)
        checked += tested
    made = ask.commit(dataset, draft, {"logs": todo.memory})
    return JobReport(counts, checked, made.root)


def _fill(ask: JobRequest, todo: plan.PendingDays, draft: Draft) -> tuple[int, list[CheckResult]]:
    """Write the tables of the days. Returns the number of rows read, and the results of checks."""
    spark, progress = ask.spark, ask.progress
    needed = {log: plan.to_read(state, log, todo.days) for log, state in todo.logs.items()}
    ask.size_shuffles(sum(segment.bytes for mine in needed.values() for segment in mine))
    with progress.step(spark, "delivery: verifying"):
        for mine in needed.values():
            for segment in mine:
                segments.verify(segment)
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
            draft.write(frame.repartition("day"), table, todo.days)  # a file per day
    rows.unpersist()
    with progress.step(spark, "delivery: checks"):
        checked = checks.run(CHECKS, partial(draft.written, spark))
    checks.require_passed(checked, progress)
    return sum(segment.rows for mine in needed.values() for segment in mine), checked


def _warnings(ask: JobRequest, todo: plan.PendingDays) -> list[CheckResult]:
    """Gaps in the logs, and days that keep their numbers because segments of them were removed."""
    warnings = [
        checks.listed(
            f"{log}.gaps",
            log,
            segments.gaps(state.segments, segments.begins_after(ask.source, log)),
        )
        for log, state in todo.logs.items()
    ]
    lost = sorted(todo.lost)
    note = f"segments of {', '.join(lost[:5])} were removed, so these days stay" if lost else ""
    everything = len(todo.days) + len(lost)
    warnings.append(CheckResult("days.complete", "latency", WARN, len(lost), everything, note))
    return warnings
