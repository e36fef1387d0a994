"""States and transitions of a send, and the reply to a duplicate in each state."""

import pytest

from appliance.outbox import states


@pytest.mark.parametrize(
    ("state", "same", "status", "expected"),
    [
        (None, True, 202, "queued"),
        ("pending", True, 202, "queued"),
        ("pending", False, 409, "outbox_pending_fingerprint_mismatch"),
        ("inflight", True, 202, "inflight"),
        ("inflight", False, 409, "outbox_inflight_fingerprint_mismatch"),
        ("done", True, 200, ""),
        ("done", False, 409, "outbox_done_fingerprint_mismatch"),
        ("dead", True, 409, "outbox_dead_fingerprint_match"),
        ("dead", False, 409, "outbox_dead_fingerprint_mismatch"),
        ("aborted", True, 409, "outbox_aborted_fingerprint_match"),
        ("aborted", False, 409, "outbox_aborted_fingerprint_mismatch"),
    ],
)
def test_duplicate_reply_is_that_of_the_table(state, same, status, expected):
    answer = states.reply_to(state, same)
    assert (answer.status, answer.status_word or answer.conflict) == (status, expected)
    assert answer.with_broker_id == (state == "done")
    assert answer.with_reason == (state == "dead" and same)


def test_reply_table_has_eleven_rows():
    assert len(states.DUPLICATE_REPLIES) == 11


def test_transitions_are_those_of_the_contract():
    assert states.SEND.transitions == {
        (None, "accept"): "pending",
        ("pending", "claim"): "inflight",
        ("inflight", "delivered"): "done",
        ("inflight", "reject"): "dead",
        ("inflight", "retry"): "pending",
        ("inflight", "release"): "pending",
        ("inflight", "restart"): "pending",
        ("pending", "expire"): "dead",
        ("pending", "retire"): "aborted",
        ("dead", "retire"): "aborted",
        # a restore of the broker lost it, and an operator sends it again: not in the contract
        ("done", "lose"): "dead",
        ("dead", "send again"): "pending",
    }
    assert set(states.RETIRABLE) == {"pending", "dead"}


def test_aborted_is_final_and_done_unless_the_broker_loses_it():
    assert states.SEND.events("aborted") == ()
    assert states.SEND.events("done") == ("lose",)
