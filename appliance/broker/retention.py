"""Pure: how long ids and messages are kept, and when the daily pruning is due."""

from appliance.kernel.clock import DAY_MS, HOUR_MS


def dedupe_window_ms(mode: str, days: int) -> int | None:
    """Return how long an id is kept after it was first seen; None: forever."""
    return None if mode == "permanent" else days * DAY_MS


def oldest_kept_ms(now_ms: int, days: int) -> int:
    """Return the time before which accepted messages are deleted."""
    return now_ms - days * DAY_MS


def is_misconfigured(mode: str, dedupe_days: int, message_days: int) -> bool:
    """Return whether ids are deleted before their messages, so that a send could be stored
    twice."""
    return mode != "permanent" and dedupe_days < message_days


def is_due(now_ms: int, last_ms: int | None, every_hours: float) -> bool:
    """Return whether the time is over, also if the clock was set back."""
    return last_ms is None or not 0 <= now_ms - last_ms < every_hours * HOUR_MS
