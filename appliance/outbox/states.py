"""Defines a send's states and transitions. Pure."""

from appliance.kernel.state_machine import StateMachine

PENDING, INFLIGHT, DONE, DEAD, ABORTED = "pending", "inflight", "done", "dead", "aborted"

ACCEPT, CLAIM, DELIVERED, REJECTED, RETRY, RELEASE, RESTART, EXPIRE, RETIRE, LOSE, SEND_AGAIN = (
    "accept", "claim", "delivered", "reject", "retry", "release", "restart", "expire", "retire",
    "lose", "send again",
)  # fmt: skip

SEND: StateMachine[str | None, str] = StateMachine({
    (None, ACCEPT): PENDING,
    (PENDING, CLAIM): INFLIGHT,
    (INFLIGHT, DELIVERED): DONE,
    (INFLIGHT, REJECTED): DEAD,
    (INFLIGHT, RETRY): PENDING,
    (INFLIGHT, RELEASE): PENDING,  # not tried
    (INFLIGHT, RESTART): PENDING,
    (PENDING, EXPIRE): DEAD,
    (PENDING, RETIRE): ABORTED,
    (DEAD, RETIRE): ABORTED,
    (DONE, LOSE): DEAD,  # lost in a broker restore
    (DEAD, SEND_AGAIN): PENDING,
})  # fmt: skip

RETIRABLE = SEND.sources(RETIRE)
