"""How old a send may become before it is given up: always less than receivers remember ids. Pure.

A receiver that has forgotten an id would take a late repetition for a new message. So the
greatest age is what it remembers less a margin, and nothing below a week is accepted.
"""

from typing import NamedTuple

RETENTION_DAYS_MIN = 7
RETENTION_DAYS_MAX = 36_500  # what a broker claims beyond that is worth no more
MARGIN_HOURS_MIN = 24
PERMANENT_HOURS = 168
PERMANENT_HOURS_MAX = 720


class Problem(NamedTuple):
    """Why an outbox must not start: the code of the contract, its close code, a sentence."""

    code: str
    close_code: int | None
    sentence: str


BELOW_FLOOR = "feature_param_below_floor"
ABOVE_WINDOW = "outbox_max_age_above_dedupe_window"


def margin_hours(days: int) -> int:
    """A tenth of the window, at least a day. In whole numbers: a float rounds wrongly some day."""
    return max(MARGIN_HOURS_MIN, -(-days * 24 // 10))


def derived_hours(days: int) -> int:
    return days * 24 - margin_hours(days)


def max_age_hours(days: int | None, override: int | None = None) -> int | Problem:
    """Hours, for receivers that remember ids for `days` (None: for ever)."""
    if days is None:
        if override is not None and override > PERMANENT_HOURS_MAX:
            return Problem(
                ABOVE_WINDOW,
                None,
                f"max_age_hours is {override}; at most {PERMANENT_HOURS_MAX} are allowed",
            )
        return PERMANENT_HOURS if override is None else override
    if days < RETENTION_DAYS_MIN:
        return Problem(
            BELOW_FLOOR,
            4012,
            f"the receiver remembers ids for {days} days; {RETENTION_DAYS_MIN} are needed",
        )
    days = min(days, RETENTION_DAYS_MAX)
    most = days * 24 - MARGIN_HOURS_MIN
    if override is not None and override > most:
        return Problem(
            ABOVE_WINDOW,
            None,
            f"max_age_hours is {override}; ids are remembered for {days} days, so at most"
            f" {most} are allowed",
        )
    return derived_hours(days) if override is None else override
