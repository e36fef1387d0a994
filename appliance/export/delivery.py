"""Sums the delivery tables: stage durations, outcomes, and dead letter causes.

A destination is a route, a subscription or a stream, by log.
"""

from pathlib import Path
from typing import Any

from appliance.export import sums
from appliance.export.errors import EmptyRange
from appliance.export.gold import DELIVERY, Gold, GoldRows
from appliance.export.report_wire import (
    DeadLetterCause,
    DeliveryReport,
    DestinationOutcome,
    StageLatency,
)
from appliance.shared.histogram import RELATIVE_ERROR

OUTCOMES = ("accepted", "delivered", "acked", "attempts", "failed", "dead")
STAGES = ("accept_to_deliver", "deliver_to_ack", "accept_to_ack")
LATENCY = "latency"
DEAD_LETTERS = "dead_letters"
BUCKETS = "buckets"
Stage = tuple[str, str, str]


def select(folder: Path, first: str | None, last: str | None, log: str | None) -> GoldRows:
    """Return the rows for the selected days, from all logs or one."""
    tables = Gold(folder, DELIVERY, first, last)
    return GoldRows(tables, ("log", "destination"), lambda row: log in (None, row["log"]))


def report(
    folder: Path, first: str | None, last: str | None, log: str | None, top: int
) -> DeliveryReport:
    """Sum up the days from `first` to `last`. Raises EmptyRange if nothing happened."""
    selected = select(folder, first, last, log)
    first, last = selected.tables.first, selected.tables.last
    latency, latency_left = _latency(selected, top)
    outcomes, outcomes_left = _outcomes(selected, top)
    dead_letters, dead_left = _dead_letters(selected, top)
    if not (latency or outcomes or dead_letters):
        where = f" in log {log}" if log else ""
        raise EmptyRange(f"no deliveries from {first or '…'} to {last or '…'}{where}")
    return DeliveryReport(
        first,
        last,
        log,
        latency=latency,
        outcomes=outcomes,
        dead_letters=dead_letters,
        left_out={"latency": latency_left, "outcomes": outcomes_left, "dead_letters": dead_left},
        quantile_error=round(RELATIVE_ERROR, 4),
    )


def destination_of(row: Any) -> tuple[str, str]:
    return row["log"], row["destination"]


def stage_of(row: Any) -> Stage:
    return row["log"], row["destination"], row["stage"]


def _latency(selected: GoldRows, top: int) -> tuple[list[StageLatency], int]:
    # Days are in order, so the newest objective stays.
    rows = selected.rows(LATENCY, ["stage", "objective_seconds"])
    objectives = {stage_of(row): row["objective_seconds"] for row in rows}
    counted = ["count", "within_objective"]
    (counts,) = sums.columns_by(selected.rows(LATENCY, ["stage", *counted]), [stage_of], counted)
    listed = sorted(counts, key=lambda stage: (-counts[stage][0], stage))[:top]
    rows = selected.rows(LATENCY, ["stage", BUCKETS])
    (durations,) = sums.histograms_by(rows, [stage_of], BUCKETS, [set(listed)])
    latency = [
        StageLatency(
            *stage,
            count=counts[stage][0],
            p50_seconds=sums.quantile(durations.get(stage), 0.50),
            p95_seconds=sums.quantile(durations.get(stage), 0.95),
            p99_seconds=sums.quantile(durations.get(stage), 0.99),
            objective_seconds=objectives[stage],
            within_objective=counts[stage][1],
            attainment=round(counts[stage][1] / max(1, counts[stage][0]), 5),
        )
        for stage in sorted(listed, key=lambda stage: (*stage[:2], STAGES.index(stage[2])))
    ]
    return latency, len(counts) - len(listed)


def _outcomes(selected: GoldRows, top: int) -> tuple[list[DestinationOutcome], int]:
    rows = selected.rows("outcomes", list(OUTCOMES))
    (counts,) = sums.columns_by(rows, [destination_of], OUTCOMES)
    listed = sorted(counts, key=lambda key: (-counts[key][0], -counts[key][3], key))[:top]
    return [DestinationOutcome(*key, *counts[key]) for key in listed], len(counts) - len(listed)


def _dead_letters(selected: GoldRows, top: int) -> tuple[list[DeadLetterCause], int]:
    examples: dict[Stage, str | None] = {}
    counts: dict[Stage, int] = {}
    for row in selected.rows(DEAD_LETTERS, ["cause", "count", "example"]):
        key = (*destination_of(row), row["cause"])
        counts[key] = counts.get(key, 0) + row["count"]
        examples[key] = row["example"] or examples.get(key)
    listed = sorted(counts, key=lambda key: (-counts[key], key))[:top]
    causes = [DeadLetterCause(*key, counts[key], examples[key]) for key in listed]
    return causes, len(counts) - len(listed)
