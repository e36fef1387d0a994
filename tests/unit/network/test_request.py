"""Signatures of requests: the vectors of the contract, and what they cover."""

import hashlib

import pytest

from appliance.network.keys import AgentKey
from appliance.network.request import (
    RequestSignature,
    is_request_signed,
    of_header,
    request_headers,
    request_text,
)
from tests.unit.network import vectors

ALICE, BOB = AgentKey(vectors.ALICE_SEED), AgentKey(vectors.BOB_SEED)
REQUEST = ("POST", "/contacts/request", "", vectors.TIMESTAMP, vectors.REQUEST_BODY)


def test_request_with_a_body_is_signed_as_in_the_contract():
    assert hashlib.sha256(vectors.REQUEST_BODY).hexdigest() == vectors.REQUEST_HASH
    headers = request_headers(
        ALICE, "alice", "POST", "/contacts/request", vectors.REQUEST_BODY, vectors.TIMESTAMP_MS
    )
    assert headers == {
        "Authorization": f"Signature alice:{vectors.REQUEST_SIGNATURE}",
        "X-Timestamp": vectors.TIMESTAMP,
    }


def test_request_without_a_body_is_signed_as_in_the_contract():
    headers = request_headers(ALICE, "alice", "GET", "/contacts", b"", vectors.TIMESTAMP_MS)
    assert headers["Authorization"] == f"Signature alice:{vectors.GET_SIGNATURE}"


def test_signature_of_the_contract_is_good():
    assert is_request_signed(ALICE.public, vectors.REQUEST_SIGNATURE, *REQUEST)
    assert not is_request_signed(BOB.public, vectors.REQUEST_SIGNATURE, *REQUEST)


@pytest.mark.parametrize("at", range(5))
def test_signature_covers_every_part_of_the_request(at):
    changed = list(REQUEST)
    changed[at] = b"{}" if at == 4 else "x" if at != 2 else "a=b"
    good = is_request_signed(ALICE.public, vectors.REQUEST_SIGNATURE, *changed)
    assert good is (at == 2)  # the first relay's form does not cover the query


def test_signature_over_the_query_is_good_for_that_query_only():
    path = "/admin/broadcasts?type=update"
    signature = ALICE.sign(request_text("GET", path, vectors.TIMESTAMP, b""))
    given = (ALICE.public, signature, "GET", "/admin/broadcasts")
    assert is_request_signed(*given, "type=update", vectors.TIMESTAMP, b"")
    assert not is_request_signed(*given, "type=revocation", vectors.TIMESTAMP, b"")
    assert not is_request_signed(*given, "", vectors.TIMESTAMP, b"")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer x", "Signature", "Signature alice", "Signature :AAAA", "Signature alice:",
     "Signature Alice:AAAA", "Signature batch:AAAA", "Signature alice:" + "A" * 500],
)  # fmt: skip
def test_header_that_is_not_a_signature_is_refused(header):
    assert of_header(header) is None


def test_header_names_the_agent():
    assert of_header("Signature alice:AAAA") == RequestSignature("alice", "AAAA")
