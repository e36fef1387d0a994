"""The maximum age of a send for each dedupe window and setting."""

import pytest

from appliance.outbox import expiry


@pytest.mark.parametrize(
    ("days", "margin", "hours"),
    [(7, 24, 144), (10, 24, 216), (14, 34, 302), (30, 72, 648), (90, 216, 1944), (365, 876, 7884)],
)
def test_max_age_by_dedupe_window(days, margin, hours):
    assert (expiry.margin_hours(days), expiry.max_age_hours(days)) == (margin, hours)


@pytest.mark.parametrize("days", [6, 3, 1, 0, -7])
def test_dedupe_window_below_the_minimum_is_refused(days):
    with pytest.raises(expiry.RetentionTooShort) as refused:
        expiry.max_age_hours(days)
    assert refused.value.details == {"reason": "feature_param_below_floor", "close_code": 4012}


@pytest.mark.parametrize(("days", "hours"), [(7, 144), (30, 696), (None, 720)])
def test_max_age_override_leaves_a_margin_of_a_day(days, hours):
    assert expiry.max_age_hours(days, hours) == hours
    with pytest.raises(expiry.MaxAgeTooLong, match=f"the maximum is {hours}"):
        expiry.max_age_hours(days, hours + 1)


def test_max_age_is_a_week_if_ids_are_permanent():
    assert expiry.max_age_hours(None) == 168
