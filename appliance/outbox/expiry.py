"""The maximum age of a send: always less than the receiver's dedupe window. Pure.

A receiver that has forgotten an id would accept a late duplicate as a new message. So the maximum
age is the dedupe window less a margin, and a window shorter than a week is refused.
"""

from typing import Any

from appliance.kernel.config import BadSettings

RETENTION_DAYS_MIN = 7
RETENTION_DAYS_MAX = 36_500  # larger values from a broker count as this one
MARGIN_HOURS_MIN = 24
PERMANENT_HOURS = 168
PERMANENT_HOURS_MAX = 720


class RetentionTooShort(BadSettings):
    """The broker's dedupe window is too short: contract code 4012."""

    code = "FEATURE_PARAM_BELOW_FLOOR"
    default_message = "the broker does not remember ids long enough"
    default_hint = (
        "make the broker remember ids for at least 7 days, then set outbox.dedupe_retention_days"
    )


class MaxAgeTooLong(BadSettings):
    code = "OUTBOX_MAX_AGE_ABOVE_DEDUPE_WINDOW"
    default_message = "sends would be retried for longer than the broker remembers their ids"
    default_hint = "lower outbox.max_age_hours, or remove it"


def max_age_hours(days: int | None, override: int | None = None) -> int:
    """Return the maximum age for receivers that remember ids for `days` (None: permanently).
    Raises RetentionTooShort or MaxAgeTooLong."""
    if days is not None and days < RETENTION_DAYS_MIN:
        minimum = f"the minimum is {RETENTION_DAYS_MIN}"
        raise _problem(
            RetentionTooShort, f"the receiver remembers ids for {days} days; {minimum}", 4012
        )
    if days is None:
        limit_hours, derived, window = PERMANENT_HOURS_MAX, PERMANENT_HOURS, ""
    else:
        days = min(days, RETENTION_DAYS_MAX)
        limit_hours, derived = days * 24 - MARGIN_HOURS_MIN, days * 24 - margin_hours(days)
        window = f"with ids remembered for {days} days "
    if override is None:
        return derived
    if override > limit_hours:
        raise _problem(
            MaxAgeTooLong, f"max_age_hours is {override}; {window}the maximum is {limit_hours}"
        )
    return override


def margin_hours(days: int) -> int:
    """Return a tenth of the window, at least a day. Integers, because floats round some days
    wrongly."""
    return max(MARGIN_HOURS_MIN, -(-days * 24 // 10))


def _problem(kind: type[BadSettings], sentence: str, close_code: int | None = None) -> BadSettings:
    """Return the error with the reason and the contract's close code."""
    reason = kind.code.lower()
    details: dict[str, Any] = {"reason": reason, "close_code": close_code}
    return kind(f"outbox: {reason}: {sentence}", details=details)
