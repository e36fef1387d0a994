"""Deliveries: capacity of a receiver, outcomes of failed writes, and whose turn it is."""

import pytest

from appliance.kernel.delivery import Outcomes, Receiver, in_turn


def failing_receiver(failures_max=2):
    receiver = Receiver(failures_max)
    for _ in range(failures_max):
        receiver.breaker.failed(0.0, open_seconds=10.0)
    return receiver


def test_receiver_is_called_up_to_its_limit():
    receiver = Receiver(failures_max=2)
    assert receiver.free(0.0, running_max=2) == 2
    receiver.begin()
    receiver.begin()
    assert receiver.free(0.0, running_max=2) == 0
    receiver.running -= 1
    assert receiver.free(0.0, running_max=2) == 1


def test_lower_limit_than_running_calls_leaves_nothing_free():
    receiver = Receiver(failures_max=2)
    receiver.running = 3
    assert receiver.free(0.0, running_max=2) == 0


def test_failing_receiver_is_not_called_until_one_probe_may_start():
    receiver = failing_receiver()
    assert receiver.free(9.9, running_max=4) == 0
    assert receiver.free(10.0, running_max=4) == 1
    receiver.begin()
    assert receiver.free(10.0, running_max=4) == 0


def test_successful_probe_frees_the_receiver():
    receiver = failing_receiver()
    receiver.begin()
    receiver.running -= 1
    receiver.breaker.succeeded()
    assert receiver.free(10.0, running_max=4) == 4


def test_outcomes_of_a_failed_write_are_recorded_first_with_later_ones():
    outcomes, written = Outcomes(), []

    def refuse(batch):
        outcomes.add("later")  # a call ends while the write runs
        raise OSError

    outcomes.add("first", "second")
    with pytest.raises(OSError):
        outcomes.record(refuse)
    assert len(outcomes) == 3
    assert outcomes.record(lambda batch: written.extend(batch) or "result") == "result"
    assert written == ["first", "second", "later"]
    assert len(outcomes) == 0


def test_each_turn_begins_with_the_next_item():
    assert [list(in_turn("abc", turn)) for turn in (0, 1, 5)] == [
        ["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"],
    ]  # fmt: skip
    assert list(in_turn((), 3)) == []
