"""The page for client authors: its vectors are what this appliance computes."""

import hashlib
import json
import re

from appliance.network.encoding import of_base64, of_timestamp
from appliance.network.envelope import Correspondence, message_key, signed_text
from appliance.network.keys import AgentKey
from appliance.network.request import request_text
from tests.contract.test_walls import ROOT

PAGE = ROOT / "docs" / "reference" / "network-client.md"
HALVES = re.compile(r"`([0-9a-f]{32}) ([0-9a-f]{32})`")  # whole ones look like tokens
ROW = re.compile(r"^\| ([^|`]+) \| `(.*)` \|$", re.MULTILINE)


def compute(given):
    """Compute every vector from the seeds and what the page chose."""
    alice, bob = (AgentKey(bytes.fromhex(given[f"{name} seed"])) for name in ("alice", "bob"))
    secret = alice.shared_secret(bob.public)
    assert secret == bob.shared_secret(alice.public)
    timestamp, body = given["timestamp"], given["request 1 body"].encode()
    sealed = Correspondence(alice, "alice", bob.public, "bob").seal(
        json.loads(given["plaintext"]), given["message id"], of_timestamp(timestamp),
        version="2.0", nonce=of_base64(given["nonce"]),
    )  # fmt: skip
    first = request_text("POST", "/contacts/request", timestamp, body)
    second = request_text("GET", "/contacts", timestamp, b"")
    return {
        "alice Ed25519 public key": alice.public.raw.hex(),
        "alice SPKI": str(alice.public),
        "alice PKCS #8": alice.pkcs8(),
        "bob Ed25519 public key": bob.public.raw.hex(),
        "bob SPKI": str(bob.public),
        "alice X25519 private key": alice.x25519_private().hex(),
        "alice X25519 public key": alice.public.to_x25519().hex(),
        "bob X25519 private key": bob.x25519_private().hex(),
        "bob X25519 public key": bob.public.to_x25519().hex(),
        "shared secret": secret.hex(),
        "AES key": message_key(secret, "alice", "bob").hex(),
        "ciphertext and tag": sealed["payload"]["ciphertext"],
        "canonical envelope": signed_text(sealed).decode(),
        "envelope signature": sealed["signature"],
        "request 1 body hash": hashlib.sha256(body).hexdigest(),
        "request 1 signature": alice.sign(first),
        "request 2 signature": alice.sign(second),
    }


def test_vectors_on_the_page_are_what_the_code_computes():
    shown = dict(ROW.findall(HALVES.sub(r"`\1\2`", PAGE.read_text(encoding="utf-8"))))
    computed = compute(shown)
    chosen = {
        "alice seed", "bob seed", "message id", "nonce", "plaintext", "timestamp", "request 1 body",
    }  # fmt: skip
    assert {name: value for name, value in shown.items() if name not in chosen} == computed
    assert chosen <= shown.keys()
