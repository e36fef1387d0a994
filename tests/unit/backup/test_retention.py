"""Retention for any backups and any settings: what is never removed, and how many are kept."""

from datetime import UTC, datetime

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from appliance.backup.order import in_order
from appliance.backup.retention import SAFETY, SAFETY_MS, RetainedBackup, decide
from appliance.backup.settings import BackupSettings

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = int(datetime(2026, 11, 20, 15, 30, tzinfo=UTC).timestamp() * 1000)
NOTHING = BackupSettings(keep_last=0, keep_hourly=0, keep_daily=0)
GFS = ("keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly")
WORDS = ("hour", "day", "week", "month", "year")

numbers = st.integers(0, 5)
settings = st.builds(
    BackupSettings,
    keep_last=numbers,
    keep_hourly=numbers,
    keep_daily=numbers,
    keep_weekly=numbers,
    keep_monthly=numbers,
    keep_yearly=numbers,
)
ages = st.one_of(
    st.integers(-2 * HOUR_MS, 60 * HOUR_MS), st.integers(0, 1200).map(lambda days: days * DAY_MS)
)
reasons = st.sampled_from(["manual", "schedule", "before-restore", "before-migration", None])
event_ids = st.one_of(st.just(0), st.integers(0, 9))
results = st.sampled_from(["good", "bad", "inconclusive", None])


@st.composite
def backups(draw):
    drawn = draw(st.lists(st.tuples(ages, reasons, results, event_ids), max_size=25))
    return [
        RetainedBackup(
            f"set-{number:02}", NOW_MS - age, reason, result, None if reason is None else event_id
        )
        for number, (age, reason, result, event_id) in enumerate(drawn)
    ]


def kept(decisions):
    return {decision.name for decision in decisions if decision.keep}


def is_good(backup):
    return backup.result == "good" and backup.reason is not None


def at(days, *, reason="schedule", result=None, hours=0):
    cut_ms = NOW_MS - days * DAY_MS - hours * HOUR_MS
    return RetainedBackup(f"{days:04}-{hours:02}-{reason}", cut_ms, reason, result)


@given(backups(), settings)
def test_newest_good_backup_and_all_newer_ones_are_kept(given_backups, rules):
    remaining = kept(decide(given_backups, rules, NOW_MS))
    ordered = in_order(given_backups, NOW_MS)
    good = [number for number, each in enumerate(ordered) if is_good(each)]
    assume(good)
    assert {each.name for each in ordered[good[-1] :]} <= remaining


@given(backups(), settings)
def test_a_backup_that_can_be_read_remains_if_there_was_any(given_backups, rules):
    remaining = kept(decide(given_backups, rules, NOW_MS))
    readable = {each.name for each in given_backups if each.reason is not None}
    assert not readable or readable & remaining


@given(backups(), settings)
def test_young_safety_copies_are_kept(given_backups, rules):
    remaining = kept(decide(given_backups, rules, NOW_MS))
    youngest_ms = NOW_MS - SAFETY_MS
    young = {
        each.name
        for each in given_backups
        if each.reason in SAFETY and youngest_ms < each.cut_ms <= NOW_MS
    }
    assert young <= remaining


@given(backups(), settings)
def test_damaged_backups_are_kept_until_a_newer_one_is_good(given_backups, rules):
    remaining = kept(decide(given_backups, rules, NOW_MS))
    ordered = in_order(given_backups, NOW_MS)
    good = [number for number, each in enumerate(ordered) if is_good(each)]
    newer = ordered[max(good, default=-1) + 1 :]
    assert {each.name for each in newer if each.is_broken} <= remaining


@given(backups(), settings)
def test_pruning_again_removes_no_more(given_backups, rules):
    remaining = kept(decide(given_backups, rules, NOW_MS))
    left = [each for each in given_backups if each.name in remaining]
    assert kept(decide(left, rules, NOW_MS)) == remaining


@given(backups(), settings)
def test_each_period_keeps_one_up_to_its_setting(given_backups, rules):
    whys = [decision.why for decision in decide(given_backups, rules, NOW_MS)]
    for setting, word in zip(GFS, WORDS, strict=True):
        labels = [
            part for why in whys for part in why.split(", ") if part.startswith(f"newest of {word}")
        ]
        assert len(labels) == len(set(labels)) <= getattr(rules, setting)


def test_defaults_keep_the_backups_of_a_day_and_of_seven_days():
    """It is 15:30: the last backup of a day is 16 hours older than that of this hour."""
    hourly = [at(0, hours=hours, result="good") for hours in range(30 * 24)]
    expected = {each.name for each in (*hourly[:24], *hourly[40 : 16 + 6 * 24 : 24])}
    assert kept(decide(hourly, BackupSettings(), NOW_MS)) == expected


def test_grandfathers_are_named_by_their_period():
    rules = msgspec.structs.replace(
        NOTHING, keep_daily=2, keep_weekly=2, keep_monthly=2, keep_yearly=2
    )
    hourly = [at(days, hours=hours) for days in range(500) for hours in (0, 6)]
    named = {each.name: each.why for each in decide(hourly, rules, NOW_MS) if each.keep}
    assert named[at(0).name] == (
        "newest of day 2026-11-20, newest of week 2026-W47, newest of month 2026-11,"
        " newest of year 2026"
    )
    assert named[at(1).name] == "newest of day 2026-11-19"
    assert named[at(5).name] == "newest of week 2026-W46"
    assert named[at(20).name] == "newest of month 2026-10"
    assert named[at(324).name] == "newest of year 2025"
    assert len(named) == 5


def test_backup_from_the_future_is_pruned_like_the_others():
    """The clock was two years ahead during one backup; a backup each day follows."""
    ahead = RetainedBackup("ahead", NOW_MS + 730 * DAY_MS, "schedule", "good", 100)
    for days in range(40):
        before = [at(days + age)._replace(last_event_id=100 - age) for age in range(1, 30)]
        after = [
            at(days - age, result="good")._replace(last_event_id=100 + age)
            for age in range(1, days + 1)
        ]
        decisions = decide([*before, ahead, *after], BackupSettings(), NOW_MS)
        assert [decision.name for decision in decisions][len(before)] == "ahead"
        assert ("ahead" in kept(decisions)) == (days < 24), "keep_hourly is 24"


def test_clock_that_is_set_back_removes_no_more_than_a_right_one():
    """After a reset to 1970, one more backup pushes out one of each period at most."""
    hourly = [
        at(0, hours=hours, result="good")._replace(last_event_id=9_000 - hours)
        for hours in range(30 * 24)
    ]
    before = kept(decide(hourly, BackupSettings(), NOW_MS))
    left = [each for each in hourly if each.name in before]
    reset = RetainedBackup("reset", HOUR_MS, "schedule", "good", 9_001)
    assert len(before - kept(decide([*left, reset], BackupSettings(), 2 * HOUR_MS))) <= 2


def test_without_numbers_the_newest_good_backup_remains():
    old_good, unverified = at(9, result="good"), at(3)
    assert kept(decide([at(20), old_good, unverified], NOTHING, NOW_MS)) == {
        old_good.name,
        unverified.name,
    }
    assert kept(decide([at(20), at(3)], NOTHING, NOW_MS)) == {at(3).name}
