"""Decides from manifests alone which days must be computed again.

A row counts on the UTC day on which its stage ended. For the broker, an ack is paired with a
delivery from the same day or the day before. For the courier and for runs, an outcome's row
contains the delivery's start, which may be the day before. So new segments also touch the day after
or before.
"""

import math
from argparse import ArgumentTypeError
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

from spark import segments, verification
from spark.errors import JobError
from spark.locations import Location
from spark.request import JobRequest
from spark.results import CheckResult
from spark.segments import EpochEnd, SegmentFacts, SegmentFile
from spark.tables import Dataset
from spark.taken import TakenSegments

SCHEMA = "delivery-1"
PAIR_DAYS = 1  # days before an ack in which its delivery is looked for
# Days that the rows of a day reach forward, and back.
AFTER = {"outbox": 0, "broker": PAIR_DAYS, "courier": 0, "runs": 0}
BEFORE = {"outbox": 0, "broker": 0, "courier": PAIR_DAYS, "runs": PAIR_DAYS}
LOGS = tuple(AFTER)  # those whose rows this job understands
OBJECTIVES = {  # seconds; of which a report shows how many met them
    "accept_to_deliver": 5.0,
    "deliver_to_ack": 60.0,
    "accept_to_ack": 60.0,
}
Days = set[str]


class LogState(NamedTuple):
    """An exported log compared with the published version.

    rows     segment rows by day
    taken    the segments that the version has
    new      the segments that the version lacks
    changed  days with new rows, or whose rows a restore discarded
    """

    segments: list[SegmentFile]
    cuts: list[EpochEnd]
    rows: dict[str, int]
    taken: TakenSegments
    new: list[SegmentFile]
    changed: Days


class PendingDays(NamedTuple):
    """The work for one run.

    `days` are computed. Days in `lost` cannot be computed because segments were removed. `bad` maps
    skipped segments to their errors."""

    logs: dict[str, LogState]
    days: Days
    lost: Days
    bad: dict[Location, JobError]

    def is_empty(self, request: JobRequest, checkpoint: Mapping[str, Any]) -> bool:
        """Return whether a version with this memory has everything."""
        skipped = verification.list_skipped(request, self.bad)
        new = any(
            state.new or not state.taken.has_compared(state.segments)
            for state in self.logs.values()
        )
        return not self.days and not new and skipped == checkpoint.get("skipped", {})


def objectives(text: str) -> dict[str, float]:
    """Parse STAGE=SECONDS,… and add the defaults for stages not listed."""
    chosen = dict(OBJECTIVES)
    for pair in text.split(","):
        stage, _, number = pair.strip().partition("=")
        if stage not in OBJECTIVES:
            raise ArgumentTypeError(f"{stage!r} is not a stage: use {', '.join(OBJECTIVES)}")
        try:
            seconds = float(number)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise ArgumentTypeError(f"{pair.strip()!r} is not STAGE=SECONDS, such as {stage}=5")
        chosen[stage] = seconds
    return chosen


def gold(lake: Location) -> Dataset:
    return Dataset(lake / "gold" / "delivery", SCHEMA)


def up_to_date(request: JobRequest) -> bool:
    """Return whether the published version contains every segment and no days were requested."""
    published = gold(request.out).current()
    if published is None or request.names_days:
        return False
    return pending(request, published.checkpoint).is_empty(request, published.checkpoint)


def warnings(lake: Location) -> list[CheckResult]:
    return verification.warnings(gold(lake))


def pending(
    request: JobRequest,
    checkpoint: Mapping[str, Any],
    bad: Mapping[Location, JobError] | None = None,
) -> PendingDays:
    """Compare the exported logs with the published version's memory, ignoring `bad` segments."""
    former, logs, skipped = checkpoint.get("logs", {}), {}, dict(bad or {})
    for log in LOGS:
        if (request.source / log).is_dir():
            export = verification.read_export(request, checkpoint, log)
            skipped |= export.bad
            sound = [segment for segment in export.segments if segment.manifest not in skipped]
            logs[log] = state_of(sound, former.get(log, {}))
    known = {day for state in logs.values() for day in state.rows}
    days = {
        day
        for log, state in logs.items()
        for changed in state.changed
        for day in around(changed, BEFORE[log], AFTER[log])
    } & known
    if request.names_days:
        days |= request.of_named_days(known)
    lost = {day for day in days if any(_shrank(logs, former, log, day) for log in LOGS)}
    return PendingDays(logs, days - lost, lost, skipped)


def state_of(exported: list[SegmentFile], former: Mapping[str, Any]) -> LogState:
    taken = TakenSegments(former)
    new = [segment for segment in exported if segment not in taken]
    cuts = segments.epoch_ends(exported)
    before = {tuple(cut) for cut in former.get("epoch_ends", ())}
    changed = {day_of(segment) for segment in new}
    for cut in cuts:
        if tuple(cut) not in before:
            changed |= {
                day_of(segment)
                for segment in exported
                if segment.epoch == cut.epoch and segment.last > cut.last
            }
    rows: dict[str, int] = {}
    for segment in exported:
        rows[day_of(segment)] = rows.get(day_of(segment), 0) + segment.rows
    return LogState(exported, cuts, rows, taken, new, changed)


def remember(state: LogState, facts: Mapping[str, SegmentFacts]) -> dict[str, Any]:
    """Take the new segments and return what the published version remembers about the log."""
    state.taken.add(state.new, facts)
    taken = state.taken.remember(state.segments)
    return {**taken, "epoch_ends": state.cuts, "rows": state.rows}


def list_needed(todo: PendingDays) -> dict[str, list[SegmentFile]]:
    """Return each log's segments for the pending days and the days around them."""
    chosen = {}
    for log, state in todo.logs.items():
        wanted = {near for day in todo.days for near in around(day, AFTER[log], BEFORE[log])}
        chosen[log] = [segment for segment in state.segments if day_of(segment) in wanted]
    return chosen


def day_of(segment: SegmentFile) -> str:
    """Return the segment's day, read from its folder: all rows in a segment share one day."""
    return segment.path.parent.name.removeprefix("date=")


def around(day: str, before: int, after: int) -> Days:
    middle = date.fromisoformat(day)
    return {str(middle + timedelta(days=shift)) for shift in range(-before, after + 1)}


def _shrank(logs: Mapping[str, LogState], former: Mapping[str, Any], log: str, day: str) -> bool:
    """Return whether segments for that day were removed since the day was computed."""
    present = logs[log].rows.get(day, 0) if log in logs else 0
    return present < int(former.get(log, {}).get("rows", {}).get(day, 0))
