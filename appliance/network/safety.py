"""Computes fingerprints, and the safety numbers that two people compare. Pure."""

import hashlib
from base64 import b64encode

from appliance.network.keys import AgentPublicKey

ROUNDS = 5_200  # slows down the search for a key with nearly equal digits
DIGITS, GROUP = 30, 5
_DOMAIN = b"agentlip-safety-number-v1"


def fingerprint(key: AgentPublicKey) -> str:
    return "SHA256:" + b64encode(hashlib.sha256(key.raw).digest()).decode().rstrip("=")


def safety_number(own: AgentPublicKey, peer: AgentPublicKey) -> str:
    """Return 60 digits in groups of five, equal on both sides. Each half belongs to one key."""
    digits = "".join(sorted(_digits(key) for key in (own, peer)))
    return " ".join(digits[at : at + GROUP] for at in range(0, len(digits), GROUP))


def _digits(key: AgentPublicKey) -> str:
    digest = _DOMAIN + key.raw
    for _ in range(ROUNDS):
        digest = hashlib.sha512(digest + key.raw).digest()
    return str(int.from_bytes(digest, "big") % 10**DIGITS).zfill(DIGITS)
