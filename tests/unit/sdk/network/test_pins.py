"""Pinned keys: new, verified, changed, and rotations that the former key signed."""

import pytest

from appliance.network.keys import AgentKey, rotation_text
from appliance.sdk.network.pins import KeyPin, pin_after

FORMER, KEY, STRANGE = (AgentKey(bytes([number] * 32)) for number in (1, 2, 3))
OLD, NEW = str(FORMER.public), str(KEY.public)
ROTATION = FORMER.sign(rotation_text("bert", FORMER.public, KEY.public))


@pytest.mark.parametrize("verified", [False, True])
def test_other_key_waits_for_a_person_and_goes_away_again(verified):
    pin = KeyPin("bert", OLD, verified)
    changed = pin_after(pin, "bert", NEW, None, None)
    assert (changed.key, changed.offered, changed.state) == (OLD, NEW, "changed")
    assert pin_after(changed, "bert", OLD, None, None) == pin


def test_signed_rotation_is_followed_and_is_new_again():
    pin = pin_after(KeyPin("bert", OLD, True), "bert", NEW, OLD, ROTATION)
    assert (pin.key, pin.state) == (NEW, "new")


@pytest.mark.parametrize(
    ("former", "rotation"),
    [
        (OLD, None),
        (OLD, STRANGE.sign(rotation_text("bert", FORMER.public, KEY.public))),
        (OLD, FORMER.sign(rotation_text("cleo", FORMER.public, KEY.public))),
        (OLD, FORMER.sign(rotation_text("bert", FORMER.public, STRANGE.public))),
        (str(STRANGE.public), STRANGE.sign(rotation_text("bert", STRANGE.public, KEY.public))),
        ("nonsense", ROTATION),
    ],
)
def test_rotation_that_the_pinned_key_did_not_sign_is_a_changed_key(former, rotation):
    assert pin_after(KeyPin("bert", OLD), "bert", NEW, former, rotation).state == "changed"
