"""Payloads of the types in the specification."""

import pytest

from appliance.busfile import payloads
from appliance.kernel.errors import Invalid


def test_types_of_the_specification_are_known():
    types = """task_assign task_claim task_progress task_done task_failed task_blocked heartbeat
        state_change review_request review_result agent_started agent_stopped"""
    assert list(payloads.PAYLOADS) == types.split()


def test_typed_payload_ignores_other_keys_and_types():
    change = payloads.typed_payload("state_change", {"from": "WORKING", "to": "FAILED", "why": 1})
    assert change == payloads.StateChange(from_state="WORKING", to_state="FAILED")
    assert payloads.typed_payload("their_type", {"to": 1}) is None
    with pytest.raises(Invalid):
        payloads.typed_payload("state_change", {"to": 1})
    assert payloads.typed_payload("review_request", None) == payloads.BusPayload()


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("state_change", {"from": "WORKING"}),
        ("state_change", None),
        ("task_progress", {"progress": 1.5}),
        ("task_done", ["commit"]),
    ],
)
def test_wrong_payload_is_refused_with_the_keys_that_are_known(bus, type_, payload):
    with pytest.raises(Invalid, match=f"payload of {type_}") as refused:
        bus.send(type_=type_, payload=payload)
    assert f"keys of {type_}" in refused.value.hint


def test_other_keys_and_types_are_stored_as_they_are(bus):
    bus.send(type_="task_done", payload={"commit": "a1b2", "tests": [1, 2]})
    bus.send(type_="their_type", payload=[None])
    assert [message.payload for message in bus.poll("a")] == [
        {"commit": "a1b2", "tests": [1, 2]},
        [None],
    ]
