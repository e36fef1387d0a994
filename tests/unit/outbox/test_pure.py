"""The outbox's decisions, each table word for word."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.kernel.errors import ApplianceError
from appliance.outbox import backoff, capacity, destination, expiry, states
from appliance.outbox.breaker import Breaker
from appliance.outbox.settings import OutboxSettings

KEY = "29acbae141bccaf0" * 4


# -- states ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "same", "status", "said"),
    [
        (None, True, 202, "queued"),
        ("pending", True, 202, "queued"),
        ("pending", False, 409, "outbox_pending_fingerprint_mismatch"),
        ("inflight", True, 202, "inflight"),
        ("inflight", False, 409, "outbox_inflight_fingerprint_mismatch"),
        ("done", True, 200, ""),
        ("done", False, 409, "outbox_done_fingerprint_mismatch"),
        ("dead", True, 409, "outbox_dead_fingerprint_match"),
        ("dead", False, 409, "outbox_dead_fingerprint_mismatch"),
        ("aborted", True, 409, "outbox_aborted_fingerprint_match"),
        ("aborted", False, 409, "outbox_aborted_fingerprint_mismatch"),
    ],
)
def test_every_row_of_the_reply_table(state, same, status, said):
    answer = states.answer(state, same)
    assert (answer.status, answer.word or answer.conflict) == (status, said)
    assert answer.tells_broker_id == (state == "done")
    assert answer.tells_reason == (state == "dead" and same)


def test_the_reply_table_has_these_eleven_rows_and_no_other():
    assert len(states.ANSWERS) == 11


def test_only_what_the_contract_names_moves_a_send():
    assert states.TRANSITIONS == {
        (None, "accept"): "pending",
        ("pending", "claim"): "inflight",
        ("inflight", "delivered"): "done",
        ("inflight", "refused"): "dead",
        ("inflight", "later"): "pending",
        ("inflight", "restart"): "pending",
        ("pending", "too_old"): "dead",
        ("pending", "retire"): "aborted",
        ("dead", "retire"): "aborted",
    }
    assert set(states.RETIRABLE) == {"pending", "dead"}


def test_nothing_leads_out_of_done_and_aborted():
    assert not {event for state, event in states.TRANSITIONS if state in ("done", "aborted")}


# -- backoff -----------------------------------------------------------------------------

PACE = OutboxSettings()


@pytest.mark.parametrize(
    ("failures", "ms"), [(1, 500), (2, 1000), (3, 2000), (6, 16_000), (7, 30_000), (500, 30_000)]
)
def test_pauses_double_up_to_the_ceiling(failures, ms):
    assert backoff.pause_ms(failures, 0.5, PACE, None) == ms


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_jitter_is_a_quarter_to_both_sides(failures, chance):
    middle = min(500 * 2 ** min(failures - 1, 64), 30_000)
    assert middle * 0.75 - 1 <= backoff.pause_ms(failures, chance, PACE, None) <= middle * 1.25


@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True), st.floats(0.001, 1e12))
def test_nobody_comes_back_before_the_receiver_asked_for(failures, chance, asked):
    pause = backoff.pause_ms(failures, chance, PACE, asked)
    assert pause >= math.floor(min(asked * 1000, PACE.retry_after_max_ms))
    assert pause <= PACE.retry_after_max_ms * 1.25


@pytest.mark.parametrize("asked", [0, -5, None])
def test_a_retry_after_that_says_nothing_is_no_pause(asked):
    assert backoff.pause_ms(1, 0.5, PACE, asked) == 500


# -- greatest age ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "margin", "hours"),
    [
        (7, 24, 144),
        (10, 24, 216),
        (14, 34, 302),
        (30, 72, 648),
        (90, 216, 1944),
        (365, 876, 7884),
    ],
)
def test_the_table_of_greatest_ages(days, margin, hours):
    assert (expiry.margin_hours(days), expiry.max_age_hours(days)) == (margin, hours)


def test_whole_numbers_and_floats_agree_where_floats_can_be_trusted():
    for days in range(7, 4000):
        assert expiry.margin_hours(days) == max(24, math.ceil(days * 0.1 * 24))
        assert expiry.derived_hours(days) < days * 24


@pytest.mark.parametrize("days", [6, 3, 1, 0, -7])
def test_below_the_floor_nothing_starts(days):
    problem = expiry.max_age_hours(days)
    assert isinstance(problem, expiry.Problem)
    assert (problem.code, problem.close_code) == ("feature_param_below_floor", 4012)


@pytest.mark.parametrize(
    ("days", "hours", "good"),
    [
        (7, 144, True),
        (7, 145, False),
        (30, 696, True),
        (30, 697, False),
        (None, 720, True),
        (None, 721, False),
    ],
)
def test_an_override_leaves_a_day_at_least(days, hours, good):
    found = expiry.max_age_hours(days, hours)
    assert found == hours if good else found.code == "outbox_max_age_above_dedupe_window"


def test_where_ids_are_kept_for_ever_a_week_is_the_default():
    assert expiry.max_age_hours(None) == 168


# -- breaker -----------------------------------------------------------------------------


def test_a_route_is_left_alone_after_failures_in_a_row_then_tried_once():
    breaker = Breaker(3)
    for _ in range(2):
        breaker.begin()
        breaker.failed(0, 100)
        assert breaker.admits(0) == "all"
    breaker.begin()
    breaker.failed(0, 100)
    assert [breaker.admits(ms) for ms in (0, 99, 100)] == ["none", "none", "few"]
    breaker.begin()
    assert breaker.admits(100) == "none", "the first to go out decides"
    breaker.failed(100, 200)
    assert [breaker.admits(ms) for ms in (299, 300)] == ["none", "few"]
    breaker.begin()
    breaker.succeeded()
    assert breaker.admits(300) == "all"
    assert breaker.failures == 0


def test_one_success_starts_the_count_again():
    breaker = Breaker(2)
    for _ in range(10):
        breaker.failed(0, 100)
        breaker.succeeded()
    assert breaker.admits(0) == "all"


def test_a_receiver_that_asks_for_a_pause_gets_it_at_once():
    breaker = Breaker(5)
    breaker.failed(0, 7000, at_once=True)
    assert [breaker.admits(ms) for ms in (6999, 7000)] == ["none", "few"]


# -- destinations ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "kind", "ref"),
    [
        ("#alerts", "topic", "alerts"),
        ("topic:alerts", "topic", "alerts"),
        (KEY, "dm", KEY),
        (f"dm:{KEY.upper()}", "dm", KEY),
        ("queue:q1", "queue", "q1"),
        ("#größe", "topic", "größe"),
    ],
)
def test_what_to_means(to, kind, ref):
    assert destination.parse(to) == (kind, ref)
    assert destination.parse(destination.shown(kind, ref)) == (kind, ref)


@pytest.mark.parametrize(
    "to",
    ["", "#", "alice", KEY[:16], KEY + "0", "dm:" + KEY[:63], "#a b", "mail:x", "#" + "x" * 201],
)
def test_what_could_never_be_delivered_is_refused(to):
    """Among it the beginning of a key, which an earlier implementation took and never sent."""
    with pytest.raises(destination.BadDestination):
        destination.parse(to)


@given(st.text(max_size=300))
def test_any_text_is_a_destination_or_refused(to):
    try:
        kind, ref = destination.parse(to)
    except ApplianceError:
        return
    assert destination.parse(destination.shown(kind, ref)) == (kind, ref)


# -- pressure ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filled", "level", "accepts"),
    [
        (0.0, "normal", True),
        (0.7999, "normal", True),
        (0.80, "high", True),
        (0.9499, "high", True),
        (0.95, "full", False),
        (1.0, "degraded", False),
        (3.0, "degraded", False),
    ],
)
def test_what_each_level_of_fill_means(filled, level, accepts):
    assert capacity.level(filled) == level
    assert capacity.accepts(level) is accepts


def test_the_gauge_counts_between_two_looks():
    gauge = capacity.Gauge(sends_max=100, bytes_max=10_000)
    assert gauge.room == 95
    gauge.accepted(95, 100)
    assert (gauge.room, gauge.level) == (0, "full")
    gauge.ended(20)
    assert (gauge.room, gauge.level) == (20, "normal")
    gauge.accepted(0, 9_450)
    assert (gauge.room, gauge.level) == (0, "full")
    gauge.looked(10, 1_000)
    assert (gauge.room, gauge.level) == (85, "normal")
