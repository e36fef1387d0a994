"""Computes when a job is due: cron expressions in a time zone, and missed times. Pure.

A cron expression is read as Debian's cron does. When clocks go forward, a time in the missing hour
is due right after it. When clocks go back, a fixed time in the repeated hour is due once, while `*`
and steps in the hour field stay regular.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from appliance.kernel.clock import DAY_MS

ON_TIME_MS = 60_000  # an instant without a start for this long is missed
SET_BACK_MS_MAX = DAY_MS  # a clock that is set back by more begins a new schedule
WEEK_MS = 7 * DAY_MS


ALIASES = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}  # fmt: skip
HINTS = {
    r"@reboot": "set `interval_seconds`, whose first run follows the appliance's start",
    r"@": f"use five fields, or one of {', '.join(ALIASES)}",
    r"(CRON_)?TZ=": "write the zone in the field `time_zone`",
    r"(.* )?H\b": "`H` is Jenkins syntax: choose a minute, as in '17 * * * *'",
    r"(\S+ +){5}\S+$": "use five fields; `interval_seconds` is for times below a minute",
}
"""Hints for expressions that other programs accept, by their beginning."""


def check_cron(expression: str, zone: str) -> None:
    """Raise ValueError with the reason if the expression is wrong."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"this machine knows no time zone {zone!r}") from None
    try:
        first = next(_moments(expression, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        why = next((hint for start, hint in HINTS.items() if re.match(start, expression)), error)
        raise ValueError(f"{expression!r} is not a cron expression: {why}") from None
    if first is None:
        raise ValueError(f"{expression!r} is never due")


def next_ms(expression: str, zone: str, after_ms: int, count: int) -> list[int]:
    """Return the next instants after `after_ms`, in milliseconds of Unix time."""
    return list(islice(_instants(expression, zone, after_ms), count))


def continue_from(from_ms: int, now_ms: int) -> int:
    """Return the time to continue from: earlier times were handled, unless the clock was set
    back too far."""
    return now_ms if from_ms - now_ms > SET_BACK_MS_MAX else from_ms


def due_cron(
    expression: str, zone: str, from_ms: int, now_ms: int, catch_up: str
) -> tuple[int | None, int]:
    """Return the instant for which to start a run now, or None, and the time to continue from.

    However many instants have passed since `from_ms`, at most one run starts: for the latest
    instant, if it is on time or `catch_up` is `once`. If the clock was set back, handled instants
    are not repeated.
    """
    from_ms = continue_from(from_ms, now_ms)
    # A week is enough to see most expressions' latest instant without a walk through years.
    latest = next(_instants(expression, zone, from_ms), None)
    if latest is None or latest > now_ms:
        return None, from_ms
    for instant in _instants(expression, zone, max(latest, now_ms - WEEK_MS)):
        if instant > now_ms:
            break
        latest = instant
    if catch_up == "skip" and now_ms - latest > ON_TIME_MS:
        return None, now_ms
    return latest, now_ms


def _instants(expression: str, zone: str, after_ms: int) -> Iterator[int]:
    start = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(zone))
    for moment in _moments(expression, start):
        yield int(moment.timestamp() * 1000)


def _moments(expression: str, start: datetime) -> Iterator[datetime]:
    expression = ALIASES.get(expression.strip(), expression)
    if len(expression.split()) == 6:  # CronSim reads seconds, which no cron does
        raise CronSimError("Bad number of fields")
    return CronSim(expression, start)
