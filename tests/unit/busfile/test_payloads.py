"""Payloads of the types in the specification."""

import pytest

from appliance.busfile import payloads
from appliance.kernel.errors import Invalid


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
    with pytest.raises(Invalid, match=f"payload for {type_}") as refused:
        bus.send(type_=type_, payload=payload)
    assert f"keys in {type_}" in refused.value.hint
