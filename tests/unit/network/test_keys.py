"""Keys: the vectors of the contract, and what is not a key."""

import pytest

from appliance.network.keys import LOW_ORDER, AgentKey, AgentPublicKey, BadKey, P
from tests.unit.network import vectors

ALICE, BOB = AgentKey(vectors.ALICE_SEED), AgentKey(vectors.BOB_SEED)


def test_encodings_are_those_of_the_contract():
    assert ALICE.public.raw.hex() == vectors.ALICE_PUBLIC
    assert BOB.public.raw.hex() == vectors.BOB_PUBLIC
    assert str(ALICE.public) == vectors.ALICE_SPKI
    assert str(BOB.public) == vectors.BOB_SPKI
    assert ALICE.pkcs8() == vectors.ALICE_PKCS8
    assert AgentKey.of(vectors.ALICE_PKCS8).public == ALICE.public
    assert AgentPublicKey.of(vectors.BOB_SPKI) == BOB.public


def test_x25519_keys_are_those_of_the_contract():
    assert ALICE.x25519_private().hex() == vectors.ALICE_X25519_PRIVATE
    assert BOB.x25519_private().hex() == vectors.BOB_X25519_PRIVATE
    assert ALICE.public.to_x25519().hex() == vectors.ALICE_X25519
    assert BOB.public.to_x25519().hex() == vectors.BOB_X25519


def test_both_sides_share_the_secret_of_the_contract():
    assert ALICE.shared_secret(BOB.public).hex() == vectors.SHARED_SECRET
    assert BOB.shared_secret(ALICE.public).hex() == vectors.SHARED_SECRET


@pytest.mark.parametrize("sign_bit", [0, 1])
@pytest.mark.parametrize("y", sorted(LOW_ORDER))
def test_point_of_small_order_is_refused(y, sign_bit):
    with pytest.raises(BadKey):
        AgentPublicKey((y | sign_bit << 255).to_bytes(32, "little"))


@pytest.mark.parametrize("y", [P, P + 1, 2**255 - 1])
def test_second_encoding_of_a_point_is_refused(y):
    with pytest.raises(BadKey):
        AgentPublicKey(y.to_bytes(32, "little"))


def test_value_that_is_not_on_the_curve_is_refused():
    refused = 0
    for y in range(2, 40):
        try:
            AgentPublicKey(y.to_bytes(32, "little"))
        except BadKey:
            refused += 1
    assert 0 < refused < 38  # about half of all values are points


@pytest.mark.parametrize(
    "text",
    ["", "x", "é", vectors.ALICE_SPKI[:-1], vectors.ALICE_PKCS8, vectors.ALICE_SPKI[:-2] + "h="],
)
def test_text_that_is_not_a_public_key_is_refused(text):
    with pytest.raises(BadKey):
        AgentPublicKey.of(text)


@pytest.mark.parametrize("text", ["", vectors.ALICE_SPKI, vectors.ALICE_PKCS8[:-4]])
def test_text_that_is_not_a_private_key_is_refused(text):
    with pytest.raises(BadKey):
        AgentKey.of(text)


def test_signature_has_one_spelling():
    signature = ALICE.sign(b"text")
    other = signature[:-3] + chr(ord(signature[-3]) + 1) + "=="
    assert not ALICE.public.is_signed(b"text", other)
    assert not ALICE.public.is_signed(b"text", signature + "\n")
