"""Fingerprints and safety numbers."""

import re

from appliance.network.keys import AgentKey
from appliance.network.safety import fingerprint, safety_number
from tests.unit.network import vectors

ALICE, BOB = AgentKey(vectors.ALICE_SEED).public, AgentKey(vectors.BOB_SEED).public
NUMBER = "13858 15650 97264 03045 50747 39405 77237 46183 23408 97669 65941 33933"


def test_both_sides_see_the_same_number():
    number = safety_number(ALICE, BOB)
    assert number == safety_number(BOB, ALICE)
    assert re.fullmatch(r"\d{5}( \d{5}){11}", number)


def test_number_is_stable():
    """People write it down, so it never changes while the keys do not."""
    assert safety_number(ALICE, BOB) == NUMBER


def test_fingerprint_is_that_of_the_raw_key():
    assert fingerprint(ALICE) == "SHA256:Vkdap1RjR0wChd9dvyvKtz2mUTWIOem3dIGy6rEHcIw"
