"""A member's signature on its requests, and how it learns the id of a broker."""

import pytest

from appliance.mesh.request_signing import RequestSigner
from appliance.mesh.signing import is_good, public_key, request_text, sign
from tests.support.clock import FakeClock

SEED = "11" * 32


class KeySigner:
    public_hex = public_key(SEED)

    def sign(self, text):
        return bytes.fromhex(sign(SEED, text))


def wrong_broker(broker_id):
    return {"code": "WRONG_BROKER", "details": {"broker_id": broker_id}}


def test_signature_is_over_the_decoded_path_and_a_new_nonce():
    signer = RequestSigner(FakeClock(), "b1")
    first, second = (signer.headers(KeySigner(), "POST", "/a%20b", "q=1", b"x") for _ in range(2))
    assert first["X-Agentlip-Nonce"] != second["X-Agentlip-Nonce"]
    stamp, nonce = first["X-Agentlip-Timestamp"], first["X-Agentlip-Nonce"]
    text = request_text("POST", "b1", b"/a b", "q=1", stamp, nonce, b"x")
    assert is_good(first["X-Agentlip-Member"], text, first["X-Agentlip-Signature"])


def test_id_is_learned_once_and_forgotten_on_request():
    signer = RequestSigner(FakeClock())
    assert signer.learn(401, wrong_broker("b2"))
    assert not signer.learn(401, wrong_broker("b2")), "no endless loop"
    assert signer.broker_id == "b2"
    signer.forget()
    assert signer.broker_id == ""


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (403, wrong_broker("b")), (401, wrong_broker("b/c")), (401, wrong_broker(7)),
        (401, {"code": "WRONG_BROKER"}), (401, {**wrong_broker("b"), "code": "X"}), (401, "text"),
    ],
)  # fmt: skip
def test_nothing_is_learned_from_other_replies(status, body):
    assert not RequestSigner(FakeClock()).learn(status, body)


def test_id_of_the_settings_is_never_replaced():
    signer = RequestSigner(FakeClock(), "b1")
    signer.forget()
    assert not signer.learn(401, wrong_broker("b2"))
    assert signer.broker_id == "b1"
