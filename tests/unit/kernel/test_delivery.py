"""Deliveries: capacity of a receiver, outcomes of failed writes, and whose turn it is."""

import pytest

from appliance.kernel.delivery import Outcomes, in_turn


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
