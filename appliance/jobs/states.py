"""Defines a run's states and transitions. Pure."""

from appliance.kernel.state_machine import StateMachine

QUEUED, WAITING, RUNNING = "queued", "waiting", "running"
SUCCEEDED, FAILED, CANCELLED, LOST = "succeeded", "failed", "cancelled", "lost"
FOLLOWING = {
    QUEUED: (RUNNING, CANCELLED),
    WAITING: (QUEUED, CANCELLED),
    RUNNING: (SUCCEEDED, FAILED, CANCELLED, LOST),
    FAILED: (QUEUED,),
    LOST: (QUEUED,),
}
RUN = StateMachine({(old, new): new for old, states in FOLLOWING.items() for new in states})
"""Each event is named after the state that it leads to."""
