"""Defines an entry's states and transitions. Pure."""

from appliance.kernel.state_machine import StateMachine

STORED, LISTED, ACKNOWLEDGED, DECLINED = "stored", "listed", "acknowledged", "declined"
LIST, ACKNOWLEDGE, DECLINE = "list", "acknowledge", "decline"

ENTRY: StateMachine[str, str] = StateMachine({
    (STORED, LIST): LISTED,
    (LISTED, LIST): LISTED,
    (STORED, ACKNOWLEDGE): ACKNOWLEDGED,
    (LISTED, ACKNOWLEDGE): ACKNOWLEDGED,
    (STORED, DECLINE): DECLINED,
    (LISTED, DECLINE): DECLINED,
})  # fmt: skip
