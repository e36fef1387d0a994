"""The state machine as a table."""

import pytest

from appliance.kernel.state_machine import IllegalTransition, StateMachine

GATE = StateMachine({
    ("open", "close"): "closed",
    ("closed", "open"): "open",
    ("closed", "lock"): "locked",
    ("locked", "break"): "broken",
    ("closed", "break"): "broken",
})  # fmt: skip


def test_an_event_leads_to_the_state_in_the_table():
    assert GATE.after("closed", "lock") == "locked"


@pytest.mark.parametrize(
    ("state", "event"), [("open", "lock"), ("broken", "open"), ("no", "close")]
)
def test_transition_that_is_not_in_the_table_is_illegal(state, event):
    with pytest.raises(IllegalTransition, match=f"'{event}' is not possible in state '{state}'"):
        GATE.after(state, event)


def test_sources_and_events_in_the_order_of_the_table():
    assert GATE.sources("break") == ("locked", "closed")
    assert GATE.events("closed") == ("open", "lock", "break")
    assert GATE.events("broken") == ()
