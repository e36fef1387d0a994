"""Negotiation: every row of the table, on both sides of it."""

import pytest

from appliance.broker import negotiation
from appliance.broker.rows import MeshRow
from appliance.mesh import frames
from appliance.mesh.negotiation import BELOW_MINIMUM, PARAM_INVALID, UNAVAILABLE, check_offer

SCOPED = MeshRow("mesh_1", "lab", "retention_scoped", 30, 7, "prefer_newest", 1)
PERMANENT = MeshRow("mesh_1", "lab", "permanent", 30, 7, "prefer_newest", 1)
DEDUPE, PAYLOAD, EPOCH = "client_message_id_dedupe", "max_payload", "key_epoch"
GOOD = {"version": 2, "mode": "retention_scoped", "dedupe_retention_days": 7,
        "request_fingerprint": True}  # fmt: skip
SIZES = {"version": 1, "inline_bytes": 1024, "blob_bytes": 1024}


@pytest.mark.parametrize("mesh", [SCOPED, PERMANENT])
def test_offers_of_the_broker_pass_the_check(mesh):
    supported = negotiation.offer(mesh)
    assert set(supported) == {
        DEDUPE,
        "concurrent_connection_policy",
        "member_keypair_rotated_event",
        EPOCH,
        PAYLOAD,
    }
    for name, offer in supported.items():
        assert check_offer(name, offer["params"]) is None
    assert negotiation.check_requirements(list(supported), supported) == ([], None)
    assert ("dedupe_retention_days" in supported[DEDUPE]["params"]) is (mesh is SCOPED)


@pytest.mark.parametrize(
    ("name", "params", "code", "param"),
    [
        (DEDUPE, {**GOOD, "version": 1}, PARAM_INVALID, "version"),
        (DEDUPE, {**GOOD, "mode": "sometimes"}, PARAM_INVALID, "mode"),
        (DEDUPE, {**GOOD, "request_fingerprint": False}, PARAM_INVALID, "request_fingerprint"),
        (DEDUPE, {**GOOD, "dedupe_retention_days": 6}, BELOW_MINIMUM, "dedupe_retention_days"),
        (DEDUPE, {**GOOD, "dedupe_retention_days": "9"}, PARAM_INVALID, "dedupe_retention_days"),
        (DEDUPE, {**GOOD, "request_fingerprint": 1}, PARAM_INVALID, "request_fingerprint"),
        (DEDUPE, {**GOOD, "version": True}, PARAM_INVALID, "version"),
        (DEDUPE, {**GOOD, "version": "2"}, PARAM_INVALID, "version"),
        (DEDUPE, {"version": 2}, PARAM_INVALID, "mode"),
        (PAYLOAD, {**SIZES, "inline_bytes": 1023}, BELOW_MINIMUM, "inline_bytes"),
        (PAYLOAD, {**SIZES, "blob_bytes": 0}, BELOW_MINIMUM, "blob_bytes"),
        (PAYLOAD, {"version": 1, "inline_bytes": 1024}, PARAM_INVALID, "blob_bytes"),
        (PAYLOAD, {**SIZES, "version": 2}, PARAM_INVALID, "version"),
        (EPOCH, {"version": 1, "max_concurrent_epochs": 0}, BELOW_MINIMUM, "max_concurrent_epochs"),
        (EPOCH, {"version": 1, "max_concurrent_epochs": True}, PARAM_INVALID, None),
        ("concurrent_connection_policy", {"version": 2}, PARAM_INVALID, "version"),
        (
            "concurrent_connection_policy",
            {"version": 1, "default_policy": "coin toss"},
            PARAM_INVALID,
            "default_policy",
        ),
        ("member_keypair_rotated_event", {}, PARAM_INVALID, "version"),
    ],
)
def test_offer_that_breaks_the_table_is_named_with_its_code(name, params, code, param):
    problem = check_offer(name, params)
    assert problem.code == code
    assert param is None or problem.param == param
    required = negotiation.check_requirements([name], {name: {"params": params}})
    assert required == ([], problem)


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"dedupe_retention_days": 30}, None),
        ({"dedupe_retention_days": 31}, BELOW_MINIMUM),
        ({"mode": "retention_scoped", "request_fingerprint": True}, None),
        ({"mode": "permanent"}, PARAM_INVALID),
        ({"version": 1}, PARAM_INVALID),
        ({"colour": "blue"}, PARAM_INVALID),
    ],
)
def test_required_numbers_are_minima_and_other_values_equal(wish, code):
    supported = negotiation.offer(SCOPED)
    _, problem = negotiation.check_requirements([frames.Feature(DEDUPE, wish)], supported)
    assert (problem.code if problem else None) == code


def test_permanent_ids_satisfy_every_required_retention():
    supported = negotiation.offer(PERMANENT)
    wish = frames.Feature(DEDUPE, {"dedupe_retention_days": 3_999})
    assert negotiation.check_requirements([wish], supported) == ([], None)


def test_missing_feature_is_reported_before_parameters_are_checked():
    supported = negotiation.offer(SCOPED)
    bad = frames.Feature(DEDUPE, {"version": 9})
    missing, problem = negotiation.check_requirements([bad, "blobs", "telepathy"], supported)
    assert missing == ["blobs", "telepathy"]
    assert (problem.code, problem.reason) == (UNAVAILABLE, "feature_unavailable: blobs")
