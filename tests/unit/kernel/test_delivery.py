"""Outcomes of deliveries whose write failed are recorded with later ones."""

import pytest

from appliance.kernel.delivery import Outcomes


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
