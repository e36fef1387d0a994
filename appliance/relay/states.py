"""States of agents, and states and transitions of contacts. Pure."""

from appliance.kernel.state_machine import StateMachine

PENDING, ACTIVE, REVOKED, NOTHING = "pending", "active", "revoked", "nothing"

CONTACT: StateMachine[str, str] = StateMachine({
    (NOTHING, "request"): PENDING,
    (PENDING, "accept"): ACTIVE,
    (PENDING, "deny"): NOTHING,
    (ACTIVE, "remove"): NOTHING,
})  # fmt: skip
