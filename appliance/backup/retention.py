"""Decides which backups are kept: a pure function over times, reasons, results and settings.

Grandfather, father, son: the newest `keep_last` backups, and the newest backup in each of the last
hours, days, weeks, months and years that have one. All periods are in UTC. The order comes from
`order.py`, so a backup from the future has a place and a separate hour, and expires like any
backup.

Some backups are kept regardless of the numbers: the newest good backup and all newer backups,
recent copies from before a restore or a migration, unusable backups while no newer one is good, and
the last readable backup.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from appliance.backup.manifest import Reason
from appliance.backup.order import in_order, is_future
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import DAY_MS

SAFETY: tuple[Reason, ...] = ("before-restore", "before-migration")
SAFETY_MS = 7 * DAY_MS  # how long a copy from before a restore or a migration stays


class RetainedBackup(NamedTuple):
    """A backup as retention sees it. `cut_ms`: the cut's Unix time. `reason` and
    `last_event_id`: None for an unreadable backup. `result`: None for a backup that was never
    verified."""

    name: str
    cut_ms: int
    reason: Reason | None
    result: str | None = None
    last_event_id: int | None = 0

    @property
    def is_broken(self) -> bool:
        return self.reason is None or self.result == "bad"


class RetentionDecision(NamedTuple):
    """A backup's decision. `why` is a short text for people; a kept backup lists all reasons."""

    name: str
    keep: bool
    why: str


class _Period(NamedTuple):
    word: str
    kept: int
    label: Callable[[datetime], str]


def decide(
    backups: Iterable[RetainedBackup], settings: BackupSettings, now_ms: int
) -> list[RetentionDecision]:
    """Return a decision for each backup, oldest backup first."""
    ordered = in_order(backups, now_ms)
    good = [kept for kept in ordered if kept.result == "good" and kept.reason is not None]
    newest_good = ordered.index(good[-1]) if good else -1
    reasons: dict[str, list[str]] = {}
    for position, kept in enumerate(ordered):
        at_ms = kept.cut_ms
        if is_future(at_ms, now_ms):  # made before all later ones
            at_ms = min(later.cut_ms for later in ordered[position:])
        newer = position - newest_good
        reasons[kept.name] = list(_always(kept, newer, bool(good), now_ms - at_ms))
    _keep_by_numbers(ordered, settings, reasons)
    readable = [kept.name for kept in ordered if kept.reason is not None]
    if readable and not any(reasons[name] for name in readable):
        reasons[readable[-1]].append("the last backup that can be read")
    removed = "a newer verified backup is here, or backup.keep_… keeps others"
    return [
        RetentionDecision(kept.name, bool(whys), ", ".join(whys) or removed)
        for kept in ordered
        for whys in [reasons[kept.name]]
    ]


def _always(kept: RetainedBackup, newer: int, is_any_good: bool, age_ms: int) -> Iterator[str]:
    """Yield why a backup is kept regardless of the numbers. `newer`: how many places the backup
    is newer than the newest good one."""
    if is_any_good and newer >= 0:
        yield "newer than the newest verified backup" if newer else "newest verified backup"
    if kept.is_broken and not is_any_good:  # for inspection; some files may be the only copy
        yield "damaged, and no newer backup is verified"
    if kept.reason in SAFETY and age_ms < SAFETY_MS:
        yield f"{kept.reason}, and younger than a week"


def _keep_by_numbers(
    ordered: Sequence[RetainedBackup], settings: BackupSettings, reasons: dict[str, list[str]]
) -> None:
    counted = [
        kept for kept in reversed(ordered) if not kept.is_broken and kept.reason not in SAFETY
    ]
    for number, kept in enumerate(counted[: settings.keep_last], start=1):
        reasons[kept.name].append(f"number {number} of the newest {settings.keep_last}")
    for period in _periods(settings):
        seen: set[str] = set()
        for kept in counted:
            label = period.label(datetime.fromtimestamp(kept.cut_ms / 1000, UTC))
            if label not in seen and len(seen) < period.kept:
                seen.add(label)
                reasons[kept.name].append(f"newest of {period.word} {label}")


def _periods(settings: BackupSettings) -> tuple[_Period, ...]:
    return (
        _Period("hour", settings.keep_hourly, lambda at: f"{at:%Y-%m-%d %H}"),
        _Period("day", settings.keep_daily, lambda at: f"{at:%Y-%m-%d}"),
        _Period("week", settings.keep_weekly, lambda at: f"{at:%G-W%V}"),
        _Period("month", settings.keep_monthly, lambda at: f"{at:%Y-%m}"),
        _Period("year", settings.keep_yearly, lambda at: f"{at:%Y}"),
    )
