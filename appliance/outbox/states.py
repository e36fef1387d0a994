"""The states of a send, what moves it, and what each state answers to a repetition. Pure."""

from typing import NamedTuple

PENDING, INFLIGHT, DONE, DEAD, ABORTED = "pending", "inflight", "done", "dead", "aborted"
STATES = (PENDING, INFLIGHT, DONE, DEAD, ABORTED)
OPEN = (PENDING, INFLIGHT)

ACCEPT, CLAIM, DELIVERED, REFUSED, LATER, RESTART, TOO_OLD, RETIRE = (
    "accept", "claim", "delivered", "refused", "later", "restart", "too_old", "retire",
)  # fmt: skip

TRANSITIONS: dict[tuple[str | None, str], str] = {
    (None, ACCEPT): PENDING,
    (PENDING, CLAIM): INFLIGHT,
    (INFLIGHT, DELIVERED): DONE,
    (INFLIGHT, REFUSED): DEAD,
    (INFLIGHT, LATER): PENDING,
    (INFLIGHT, RESTART): PENDING,
    (PENDING, TOO_OLD): DEAD,
    (PENDING, RETIRE): ABORTED,
    (DEAD, RETIRE): ABORTED,
}
"""Everything that may happen; what is not here is refused."""

RETIRABLE = tuple(state for state, event in TRANSITIONS if event == RETIRE)


class Answer(NamedTuple):
    """What a repetition of a send hears. `word` is the status of a 202."""

    status: int
    word: str = ""
    conflict: str = ""
    tells_broker_id: bool = False
    tells_reason: bool = False


ANSWERS: dict[tuple[str | None, bool], Answer] = {
    (None, True): Answer(202, "queued"),
    (PENDING, True): Answer(202, "queued"),
    (PENDING, False): Answer(409, conflict="outbox_pending_fingerprint_mismatch"),
    (INFLIGHT, True): Answer(202, "inflight"),
    (INFLIGHT, False): Answer(409, conflict="outbox_inflight_fingerprint_mismatch"),
    (DONE, True): Answer(200, tells_broker_id=True),
    (DONE, False): Answer(409, conflict="outbox_done_fingerprint_mismatch", tells_broker_id=True),
    (DEAD, True): Answer(409, conflict="outbox_dead_fingerprint_match", tells_reason=True),
    (DEAD, False): Answer(409, conflict="outbox_dead_fingerprint_mismatch"),
    (ABORTED, True): Answer(409, conflict="outbox_aborted_fingerprint_match"),
    (ABORTED, False): Answer(409, conflict="outbox_aborted_fingerprint_mismatch"),
}
"""Row state (None: no row) and whether the request is the same: the table of the specification."""


def answer(state: str | None, same: bool) -> Answer:
    return ANSWERS[state, state is None or same]
