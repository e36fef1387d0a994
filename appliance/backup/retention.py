"""Which backups are kept: a pure function of their times, reasons and results, and of the settings.

Grandfather, father, son: the newest `keep_last` backups, and the newest one of each of the last
hours, days, weeks, months and years that have one. All periods are in UTC.

Some are kept whatever the numbers are: the newest good backup and all that are newer, recent copies
from before a restore or a migration, backups that can't be used while no newer one is good, and the
last one that can be read.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from appliance.backup.manifest import Reason
from appliance.backup.settings import BackupSettings
from appliance.kernel.clock import DAY_MS

SAFETY: tuple[Reason, ...] = ("before-restore", "before-migration")
SAFETY_MS = 7 * DAY_MS  # how long a copy from before a restore or a migration stays
FUTURE_MS = 2000  # clocks differ by less


class RetainedBackup(NamedTuple):
    """A backup as retention sees it. `cut_ms`: Unix time of its cut. `reason`: None if the backup
    is unreadable. `result`: None if it was never verified."""

    name: str
    cut_ms: int
    reason: Reason | None
    result: str | None = None

    @property
    def is_readable(self) -> bool:
        return self.reason is not None

    @property
    def is_broken(self) -> bool:
        return not self.is_readable or self.result == "bad"

    @property
    def is_good(self) -> bool:
        return self.is_readable and self.result == "good"

    @property
    def is_safety(self) -> bool:
        return self.reason in SAFETY


class RetentionDecision(NamedTuple):
    """`why` is a short text for people; for a backup that is kept all its reasons."""

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
    """A decision for each backup, oldest backup first."""
    ordered = sorted(backups, key=lambda kept: (kept.cut_ms, kept.name))
    past = [kept for kept in ordered if kept.cut_ms <= now_ms + FUTURE_MS]
    reasons: dict[str, list[str]] = {kept.name: [] for kept in ordered}
    for kept in ordered[len(past) :]:
        reasons[kept.name].append("its time is in the future")
    good = [kept for kept in past if kept.is_good]
    newest_good = good[-1] if good else None
    _keep_newest_good(past, newest_good, reasons)
    _keep_broken(past, newest_good, reasons)
    _keep_safety(past, now_ms, reasons)
    _keep_by_numbers(past, settings, reasons)
    _keep_last_readable(ordered, reasons)
    return [
        RetentionDecision(
            kept.name,
            bool(reasons[kept.name]),
            ", ".join(reasons[kept.name]) or _why_removed(kept, newest_good),
        )
        for kept in ordered
    ]


def _keep_newest_good(
    past: Sequence[RetainedBackup], newest: RetainedBackup | None, reasons: dict[str, list[str]]
) -> None:
    if newest is None:
        return
    reasons[newest.name].append("newest verified backup")
    for kept in past[past.index(newest) + 1 :]:
        reasons[kept.name].append("newer than the newest verified backup")


def _keep_broken(
    past: Sequence[RetainedBackup],
    newest_good: RetainedBackup | None,
    reasons: dict[str, list[str]],
) -> None:
    """For inspection, and because some of its files may be the only copy."""
    if newest_good is None:
        for kept in past:
            if kept.is_broken:
                reasons[kept.name].append("damaged, and no newer backup is verified")


def _keep_safety(
    past: Sequence[RetainedBackup], now_ms: int, reasons: dict[str, list[str]]
) -> None:
    for kept in past:
        age_ms = now_ms - kept.cut_ms
        if kept.is_safety and age_ms < SAFETY_MS:
            reasons[kept.name].append(f"{kept.reason}, and younger than a week")


def _keep_by_numbers(
    past: Sequence[RetainedBackup], settings: BackupSettings, reasons: dict[str, list[str]]
) -> None:
    counted = [kept for kept in reversed(past) if not kept.is_broken and not kept.is_safety]
    for number, each in enumerate(counted[: settings.keep_last], start=1):
        reasons[each.name].append(f"number {number} of the newest {settings.keep_last}")
    for period in _periods(settings):
        seen: set[str] = set()
        for kept in counted:
            label = period.label(datetime.fromtimestamp(kept.cut_ms / 1000, UTC))
            if label not in seen and len(seen) < period.kept:
                seen.add(label)
                reasons[kept.name].append(f"newest of {period.word} {label}")


def _keep_last_readable(ordered: Sequence[RetainedBackup], reasons: dict[str, list[str]]) -> None:
    readable = [kept for kept in ordered if kept.is_readable]
    if readable and not any(reasons[kept.name] for kept in readable):
        reasons[readable[-1].name].append("the last backup that can be read")


def _why_removed(removed: RetainedBackup, newest_good: RetainedBackup | None) -> str:
    if removed.is_broken and newest_good is not None:
        return f"damaged, and {newest_good.name} is newer and verified"
    if removed.is_safety:
        return f"{removed.reason}, and older than a week"
    return "older than all that are kept by backup.keep_…"


def _periods(settings: BackupSettings) -> tuple[_Period, ...]:
    return (
        _Period("hour", settings.keep_hourly, lambda at: f"{at:%Y-%m-%d %H}"),
        _Period("day", settings.keep_daily, lambda at: f"{at:%Y-%m-%d}"),
        _Period("week", settings.keep_weekly, lambda at: f"{at:%G-W%V}"),
        _Period("month", settings.keep_monthly, lambda at: f"{at:%Y-%m}"),
        _Period("year", settings.keep_yearly, lambda at: f"{at:%Y}"),
    )
