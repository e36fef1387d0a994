"""Pure: how long ids and messages are kept, and when the nightly sweep is due."""

from appliance.broker.settings import DAY_MS


def keeps_ms(mode: str, days: int) -> int | None:
    """How long an id is remembered after it was first seen; None: for ever."""
    return None if mode == "permanent" else days * DAY_MS


def oldest_kept_ms(now_ms: int, days: int) -> int:
    """Messages from before are removed."""
    return now_ms - days * DAY_MS


def is_misconfigured(mode: str, dedupe_days: int, message_days: int) -> bool:
    """Ids that are forgotten before their messages: the same send could be stored twice."""
    return mode != "permanent" and dedupe_days < message_days


def is_due(now_ms: int, last_ms: int | None, every_hours: float) -> bool:
    """A clock that went back makes a sweep due, not impossible."""
    return last_ms is None or not 0 <= now_ms - last_ms < every_hours * 3_600_000
