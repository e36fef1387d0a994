"""The maximum age of a send: always less than the receiver's dedupe window. Pure.

A receiver that has forgotten an id would accept a late duplicate as a new message. So the maximum
age is the dedupe window less a margin, and a window shorter than a week is refused.
"""

from typing import NamedTuple

RETENTION_DAYS_MIN = 7
RETENTION_DAYS_MAX = 36_500  # larger values from a broker count as this
MARGIN_HOURS_MIN = 24
PERMANENT_HOURS = 168
PERMANENT_HOURS_MAX = 720


class MaxAgeProblem(NamedTuple):
    """Why the settings don't fit the receiver: code and close code of the contract, message."""

    code: str
    close_code: int | None
    message: str


BELOW_MINIMUM = "feature_param_below_floor"
ABOVE_WINDOW = "outbox_max_age_above_dedupe_window"


def margin_hours(days: int) -> int:
    """A tenth of the window, at least a day. Integers, because floats round some days wrongly."""
    return max(MARGIN_HOURS_MIN, -(-days * 24 // 10))


def derived_hours(days: int) -> int:
    return days * 24 - margin_hours(days)


def max_age_hours(days: int | None, override: int | None = None) -> int | MaxAgeProblem:
    """The maximum age for receivers that remember ids for `days` (None: permanently)."""
    if days is None:
        if override is not None and override > PERMANENT_HOURS_MAX:
            return MaxAgeProblem(
                ABOVE_WINDOW,
                None,
                f"max_age_hours is {override}; the maximum is {PERMANENT_HOURS_MAX}",
            )
        return PERMANENT_HOURS if override is None else override
    if days < RETENTION_DAYS_MIN:
        return MaxAgeProblem(
            BELOW_MINIMUM,
            4012,
            f"the receiver remembers ids for {days} days; the minimum is {RETENTION_DAYS_MIN}",
        )
    days = min(days, RETENTION_DAYS_MAX)
    limit_hours = days * 24 - MARGIN_HOURS_MIN
    if override is not None and override > limit_hours:
        return MaxAgeProblem(
            ABOVE_WINDOW,
            None,
            f"max_age_hours is {override}; with ids remembered for {days} days the maximum is"
            f" {limit_hours}",
        )
    return derived_hours(days) if override is None else override
