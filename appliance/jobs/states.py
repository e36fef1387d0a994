"""States and transitions of a run. Pure."""

from appliance.kernel.state_machine import StateMachine

QUEUED, WAITING, RUNNING = "queued", "waiting", "running"
SUCCEEDED, FAILED, CANCELLED, LOST = "succeeded", "failed", "cancelled", "lost"
START, SUCCEED, FAIL, CANCEL, LOSE, RETRY = "start", "succeed", "fail", "cancel", "lose", "retry"
ANSWER = "answer"

RUN: StateMachine[str, str] = StateMachine({
    (QUEUED, START): RUNNING,
    (QUEUED, CANCEL): CANCELLED,
    (WAITING, ANSWER): QUEUED,
    (WAITING, CANCEL): CANCELLED,
    (RUNNING, SUCCEED): SUCCEEDED,
    (RUNNING, FAIL): FAILED,
    (RUNNING, CANCEL): CANCELLED,
    (RUNNING, LOSE): LOST,
    (FAILED, RETRY): QUEUED,
    (LOST, RETRY): QUEUED,
})  # fmt: skip
EVENT_OF = {SUCCEEDED: SUCCEED, FAILED: FAIL, CANCELLED: CANCEL, LOST: LOSE}
"""The event with which a run reaches the state of its attempt."""
