"""When jobs are due: time zones, changes of clocks, missed times."""

from datetime import datetime

import pytest

from appliance.jobs.schedule import check_cron, due_cron, next_ms
from appliance.kernel.clock import DAY_MS, iso


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        ("0 6 * * 1", "UTC", "2026-02-01T08:00Z", ["2026-02-02T06:00", "2026-02-09T06:00"]),
        ("0 6 * * *", "Asia/Tokyo", "2026-02-01T08:00Z", ["2026-02-01T21:00", "2026-02-02T21:00"]),
        # Clocks go forward at 2:00: a fixed time in the missing hour is due right after it.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z",
         ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("0 * * * *", "Europe/Berlin", "2026-03-29T00:30Z",
         ["2026-03-29T01:00", "2026-03-29T02:00"]),
        # Clocks go back at 3:00: a fixed time in the repeated hour is due once.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z",
         ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:10Z",
         ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T00:00Z",
         ["2026-11-01T05:30", "2026-11-02T06:30"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", ["2028-02-29T00:00"]),
    ],
)  # fmt: skip
def test_next_times_follow_cron_and_zone(cron, zone, after, due):
    assert [iso(at)[:16] for at in next_ms(cron, zone, ms(after), len(due))] == due


@pytest.mark.parametrize(
    ("cron", "zone", "reason"),
    [
        ("* * *", "UTC", "is not a cron expression"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("0 0 31 2 *", "UTC", "Bad day-of-month|never due"),
        ("* * * * *", "Europe/Nowhere", "knows no time zone"),
        ("* * * * *", "../etc", "knows no time zone"),
    ],
)
def test_wrong_schedule_is_refused_with_the_reason(cron, zone, reason):
    with pytest.raises(ValueError, match=reason):
        check_cron(cron, zone)


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("@reboot", "interval_seconds"),
        ("@fortnightly", "@weekly"),
        ("*/5 * * * * *", "five fields"),
        ("0 0 0 * * MON", "five fields"),
        ("CRON_TZ=UTC 0 0 * * *", "time_zone"),
        ("TZ=Europe/Berlin 0 0 * * *", "time_zone"),
        ("H * * * *", "17 \\* \\* \\* \\*"),
        ("0 H(0-7) * * *", "Jenkins"),
        ("0 0 ? * MON", "day"),
        ("0 0 * *", "fields"),
    ],
)
def test_expression_of_another_program_is_refused_with_what_helps(cron, reason):
    with pytest.raises(ValueError, match=reason):
        check_cron(cron, "UTC")


@pytest.mark.parametrize(
    ("cron", "due"),
    [
        ("@yearly", "2027-01-01T00:00"),
        ("@annually", "2027-01-01T00:00"),
        ("@monthly", "2026-03-01T00:00"),
        ("@weekly", "2026-02-15T00:00"),
        ("@daily", "2026-02-11T00:00"),
        ("@midnight", "2026-02-11T00:00"),
        ("@hourly", "2026-02-10T07:00"),
        ("*/5 * * * *", "2026-02-10T06:05"),
        ("0 0 L * *", "2026-02-28T00:00"),
        ("15 2 29 2 *", "2028-02-29T02:15"),
    ],
)
def test_short_names_are_those_of_cron(cron, due):
    check_cron(cron, "UTC")
    (instant,) = next_ms(cron, "UTC", NOW, 1)
    assert iso(instant) == f"{due}:00.000Z"


NOW = ms("2026-02-10T06:00:10Z")


@pytest.mark.parametrize(
    ("looked_from", "catch_up", "due"),
    [
        ("2026-02-10T05:00Z", "once", "2026-02-10T06:00"),
        ("2026-02-10T05:00Z", "skip", "2026-02-10T06:00"),  # on time
        ("2026-02-10T06:00:05Z", "once", None),  # handled already
        ("2026-01-01T00:00Z", "once", "2026-02-10T06:00"),  # forty missed: the latest, once
        ("2026-02-10T20:00Z", "once", None),  # the clock was set back: handled already
        ("2027-01-01T00:00Z", "once", None),
    ],
)
def test_at_most_one_run_is_due(looked_from, catch_up, due):
    instant, after = due_cron("0 6 * * *", "UTC", ms(looked_from), NOW, catch_up)
    assert (instant and iso(instant)[:16]) == due
    assert due_cron("0 6 * * *", "UTC", after, NOW, catch_up)[0] is None


def test_missed_time_is_skipped_or_caught_up():
    now, looked_from = NOW + 3 * DAY_MS // 2, NOW
    assert due_cron("0 6 * * *", "UTC", looked_from, now, "skip") == (None, now)
    assert iso(due_cron("0 6 * * *", "UTC", looked_from, now, "once")[0])[:10] == "2026-02-11"
