"""What is held against a broker's offer, row by row."""

import copy

import pytest

from appliance.inbox.negotiation import agree
from appliance.mesh.negotiation import BELOW_MINIMUM, PARAM_INVALID, UNAVAILABLE
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


@pytest.mark.parametrize(
    ("params", "code", "reason"),
    [
        ({"version": 1}, PARAM_INVALID, "version"),
        ({"version": 3}, PARAM_INVALID, "version"),
        ({"version": None}, PARAM_INVALID, "version"),
        ({"version": True}, PARAM_INVALID, "version"),
        ({"version": "2"}, PARAM_INVALID, "version"),
        ({"mode": "forever"}, PARAM_INVALID, "mode"),
        ({"mode": None}, PARAM_INVALID, "mode"),
        ({"request_fingerprint": False}, PARAM_INVALID, "request_fingerprint"),
        ({"request_fingerprint": None}, PARAM_INVALID, "request_fingerprint"),
        ({"request_fingerprint": 1}, PARAM_INVALID, "request_fingerprint"),
        ({"dedupe_retention_days": None}, PARAM_INVALID, "dedupe_retention_days"),
        ({"dedupe_retention_days": "30"}, PARAM_INVALID, "dedupe_retention_days"),
        ({"dedupe_retention_days": 6}, BELOW_MINIMUM, "dedupe_retention_days"),
        ({"dedupe_retention_days": 0}, BELOW_MINIMUM, "dedupe_retention_days"),
    ],
)
def test_invalid_required_feature_prevents_the_link(params, code, reason):
    problem = agree(offer(DEDUPE, **params), []).problem
    assert (problem.code, problem.param) == (code, reason)


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


def test_seven_days_are_enough():
    assert agree(offer(DEDUPE, dedupe_retention_days=7), []).retention_days == 7


@pytest.mark.parametrize(
    ("feature", "params", "code"),
    [
        (PAYLOAD, {"inline_bytes": 1023}, BELOW_MINIMUM),
        (PAYLOAD, {"blob_bytes": None}, PARAM_INVALID),
        (EPOCH, {"max_concurrent_epochs": 0}, BELOW_MINIMUM),
        (EPOCH, {}, PARAM_INVALID),
        (POLICY, {"default_policy": "coin toss"}, PARAM_INVALID),
        (POLICY, {"version": 2}, PARAM_INVALID),
    ],
)
def test_an_optional_feature_costs_only_itself(feature, params, code):
    agreed = agree(offer(feature, **params), [])
    assert agreed.problem is None
    assert feature not in agreed.features
    assert [(dropped.feature, dropped.code) for dropped in agreed.dropped] == [(feature, code)]


@pytest.mark.parametrize("policy", ["prefer_newest", "prefer_oldest", "allow_concurrent", None])
def test_known_policies_are_taken(policy):
    assert POLICY in agree(offer(POLICY, default_policy=policy), []).features
