"""States and transitions of a send."""

from appliance.outbox import states


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
