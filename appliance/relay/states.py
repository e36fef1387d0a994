"""States and transitions of agents and contacts. Pure."""

from appliance.kernel.state_machine import StateMachine

PENDING, ACTIVE, REVOKED, NOTHING = "pending", "active", "revoked", "nothing"

AGENT: StateMachine[str, str] = StateMachine({
    (NOTHING, "register"): PENDING,
    (PENDING, "approve"): ACTIVE,
    (PENDING, "revoke"): REVOKED,
    (ACTIVE, "revoke"): REVOKED,
})  # fmt: skip
CONTACT: StateMachine[str, str] = StateMachine({
    (NOTHING, "request"): PENDING,
    (PENDING, "accept"): ACTIVE,
    (PENDING, "deny"): NOTHING,
    (ACTIVE, "remove"): NOTHING,
})  # fmt: skip
