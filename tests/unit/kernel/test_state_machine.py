"""The state machine as a table."""

from appliance.kernel.state_machine import StateMachine

GATE = StateMachine({
    ("open", "close"): "closed",
    ("closed", "open"): "open",
    ("closed", "lock"): "locked",
    ("locked", "break"): "broken",
    ("closed", "break"): "broken",
})  # fmt: skip


def test_sources_and_events_in_the_order_of_the_table():
    assert GATE.sources("break") == ("locked", "closed")
    assert GATE.events("closed") == ("open", "lock", "break")
    assert GATE.events("broken") == ()
