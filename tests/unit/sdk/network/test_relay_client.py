"""Requests to a relay: signed for each attempt, repeated only if no reply arrived."""

import pytest

from appliance.network.keys import AgentKey
from appliance.network.request import is_request_signed, of_header
from appliance.sdk.network.relay_client import (
    BadRelayUrl,
    RelayClient,
    RelayRefused,
    RelayUnreachable,
)
from tests.support.clock import SteppingClock
from tests.support.http_server import http_server

KEY = AgentKey(bytes(range(32)))
PAGE = (502, {}, b"<html>")


@pytest.fixture
def pauses():
    return []


def test_each_attempt_has_a_signature_of_its_own(pauses):
    replies = iter([None, PAGE, (201, {}, b'{"ok": true}')])
    with http_server(lambda _: next(replies)) as server:
        client = RelayClient(
            f"http://127.0.0.1:{server.port}/", SteppingClock(), "anna", KEY, pauses.append
        )
        assert client.request("POST", "/contacts/request", {"to": "bert"}) == {"ok": True}
    assert pauses == [0.2, 0.4]
    signatures = []
    for request in server.requests:
        signed = of_header(request.headers["authorization"])
        assert signed.name == "anna"
        assert is_request_signed(
            KEY.public, signed.signature, "POST", request.path, "",
            request.headers["x-timestamp"], request.body,
        )  # fmt: skip
        signatures.append(signed.signature)
    assert len(set(signatures)) == 3


def test_refusal_is_final_and_names_its_reason(pauses):
    body = b'{"ok": false, "error": "revoked", "code": "AGENT_REVOKED"}'
    with http_server(lambda _: (403, {}, body)) as server:
        client = RelayClient(
            f"http://127.0.0.1:{server.port}", SteppingClock(), pause=pauses.append
        )
        with pytest.raises(RelayRefused, match="revoked") as refused:
            client.request("GET", "/contacts")
    assert refused.value.details == {"status": 403, "code": "AGENT_REVOKED"}
    assert (len(server.requests), pauses) == (1, [])
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "url",
    ["http://relay.example.org", "http://192.0.2.7:7464", "http://localhost.example.org", "ftp://x",
     "http://127.0.0.1.example.org", "relay.example.org", "", "http://["],
)  # fmt: skip
def test_relay_without_tls_on_another_machine_is_refused(url):
    with pytest.raises(BadRelayUrl):
        RelayClient(url, SteppingClock())
    RelayClient(url, SteppingClock(), plain_http=True)


@pytest.mark.parametrize(
    "url", ["https://relay.example.org", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost"]
)
def test_relay_with_tls_or_on_this_machine_is_accepted(url):
    RelayClient(url, SteppingClock())


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_redirect_is_not_followed(pauses, method):
    """A redirect could lead to plain HTTP elsewhere."""
    with http_server(lambda _: (200, {}, b"[]")) as other:
        to = {"Location": f"http://127.0.0.1:{other.port}/contacts"}
        with http_server(lambda _: (302, to, b"")) as server:
            client = RelayClient(f"http://127.0.0.1:{server.port}", SteppingClock(), "anna", KEY)
            with pytest.raises(RelayUnreachable):
                client.attempt(method, "/contacts")
    assert (len(server.requests), other.requests) == (1, [])
