"""States and transitions of a send, and the reply to a duplicate in each state. Pure."""

from typing import Any, NamedTuple

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
    (INFLIGHT, RELEASE): PENDING,  # it was not tried
    (INFLIGHT, RESTART): PENDING,
    (PENDING, EXPIRE): DEAD,
    (PENDING, RETIRE): ABORTED,
    (DEAD, RETIRE): ABORTED,
    (DONE, LOSE): DEAD,  # a restore of its broker lost it
    (DEAD, SEND_AGAIN): PENDING,
})  # fmt: skip

RETIRABLE = SEND.sources(RETIRE)


class DuplicateReply(NamedTuple):
    """The reply to a duplicate request. `status_word` is the `status` field of a 202."""

    status: int
    status_word: Any = ""
    conflict: str = ""
    with_broker_id: bool = False
    with_reason: bool = False


DUPLICATE_REPLIES: dict[tuple[str | None, bool], DuplicateReply] = {
    (None, True): DuplicateReply(202, "queued"),
    (PENDING, True): DuplicateReply(202, "queued"),
    (PENDING, False): DuplicateReply(409, conflict="outbox_pending_fingerprint_mismatch"),
    (INFLIGHT, True): DuplicateReply(202, "inflight"),
    (INFLIGHT, False): DuplicateReply(409, conflict="outbox_inflight_fingerprint_mismatch"),
    (DONE, True): DuplicateReply(200, with_broker_id=True),
    (DONE, False): DuplicateReply(
        409, conflict="outbox_done_fingerprint_mismatch", with_broker_id=True
    ),
    (DEAD, True): DuplicateReply(409, conflict="outbox_dead_fingerprint_match", with_reason=True),
    (DEAD, False): DuplicateReply(409, conflict="outbox_dead_fingerprint_mismatch"),
    (ABORTED, True): DuplicateReply(409, conflict="outbox_aborted_fingerprint_match"),
    (ABORTED, False): DuplicateReply(409, conflict="outbox_aborted_fingerprint_mismatch"),
}
"""By state of the row (None: no row) and whether the request is the same: the duplicate table of
the specification."""


def reply_to(state: str | None, same: bool) -> DuplicateReply:
    return DUPLICATE_REPLIES[state, state is None or same]
