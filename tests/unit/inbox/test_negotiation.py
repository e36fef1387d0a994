"""What is held against a broker's offer, row by row."""

import copy

import pytest

from appliance.inbox.negotiation import agree
from appliance.mesh.negotiation import PARAM_INVALID, UNAVAILABLE
from tests.support.inbox import SUPPORTED

DEDUPE, POLICY, EPOCH, PAYLOAD = (
    "client_message_id_dedupe",
    "concurrent_connection_policy",
    "key_epoch",
    "max_payload",
)


def offer(feature=None, **params):
    """The good offer with some parameters changed; None takes one away."""
    offered = copy.deepcopy(SUPPORTED)
    if feature is not None:
        there = offered.setdefault(feature, {"params": {"version": 1}})["params"]
        for name, value in params.items():
            there.pop(name, None)
            if value is not None:
                there[name] = value
    return offered


def test_a_good_offer_is_agreed_to():
    agreed = agree(SUPPORTED, [])
    assert (agreed.problem, agreed.dropped, agreed.retention_days) == (None, [], 30)
    assert sorted(agreed.features) == [DEDUPE, PAYLOAD]


@pytest.mark.parametrize("supported", [{}, None, [], "x", {PAYLOAD: {}}, {"other": 1}])
def test_a_required_feature_that_is_absent_ends_it(supported):
    assert agree(supported, []).problem.code == UNAVAILABLE


def test_the_broker_may_say_itself_that_it_is_absent():
    assert agree(SUPPORTED, [DEDUPE]).problem.code == UNAVAILABLE
    assert agree(SUPPORTED, ["something we did not ask for"]).problem is None


@pytest.mark.parametrize("offered", [1, None, {}, {"params": 1}, {"params": None}])
def test_an_offer_without_parameters_is_invalid(offered):
    assert agree({DEDUPE: offered}, []).problem.code == PARAM_INVALID


def test_permanent_ids_need_no_retention_days():
    agreed = agree(offer(DEDUPE, mode="permanent", dedupe_retention_days=None), [])
    assert (agreed.problem, agreed.retention_days) == (None, None)
