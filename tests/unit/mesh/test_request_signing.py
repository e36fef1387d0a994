"""A member's signature on its requests, and how it learns the id of a broker."""

import pytest

from appliance.mesh.request_signing import RequestSigner
from tests.support.clock import FakeClock


def wrong_broker(broker_id):
    return {"code": "WRONG_BROKER", "details": {"broker_id": broker_id}}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, wrong_broker("b")), (401, wrong_broker("b/c")), (401, wrong_broker(7)),
        (401, {"code": "WRONG_BROKER"}), (401, {**wrong_broker("b"), "code": "X"}), (401, "text"),
    ],
)  # fmt: skip
def test_nothing_is_learned_from_other_replies(status, body):
    assert not RequestSigner(FakeClock()).learn(status, body)
