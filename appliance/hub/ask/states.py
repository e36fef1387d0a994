"""Defines an ask's states and transitions. Pure."""

from appliance.kernel.state_machine import StateMachine

WAITING, ANSWERED, DEFAULTED, EXPIRED, CANCELLED = (
    "waiting", "answered", "defaulted", "expired", "cancelled",
)  # fmt: skip
ANSWER, DEFAULT, EXPIRE, CANCEL = "answer", "default", "expire", "cancel"

ASK: StateMachine[str, str] = StateMachine({
    (WAITING, ANSWER): ANSWERED,
    (WAITING, DEFAULT): DEFAULTED,
    (WAITING, EXPIRE): EXPIRED,
    (WAITING, CANCEL): CANCELLED,
})  # fmt: skip
