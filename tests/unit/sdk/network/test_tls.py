"""Agents use TLS 1.3 between each other and towards the relay; older versions are refused."""

import shutil
import ssl

import pytest

from appliance.mailbox.service import guarded_post
from appliance.sdk.network import post, relay_client
from appliance.sdk.network.post import PostRules, post_envelope
from appliance.sdk.network.relay_client import RelayClient, RelayUnreachable
from tests.support.clock import SteppingClock
from tests.support.http_server import http_server
from tests.support.tls import contexts_for

RULES = PostRules(allow_loopback=True, allow_http=False)
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture
def server_tls(tmp_path, monkeypatch):
    """A server's context. The agents' own context trusts its certificate."""
    server, _ = contexts_for("localhost", tmp_path)
    context = post.tls_context.__wrapped__()
    context.load_verify_locations(tmp_path / "certificate.pem")
    for module in (post, relay_client):
        monkeypatch.setattr(module, "tls_context", lambda: context)
    monkeypatch.setattr("appliance.mailbox.service.tls_context", lambda: context)
    relay_client._opener.cache_clear()
    yield server
    relay_client._opener.cache_clear()


def post_from_program(url):
    return post_envelope(url, b"{}", rules=RULES)[0]


def post_from_appliance(url):
    return guarded_post(RULES)(url, b"{}")[0]


def ask_relay(url):
    try:
        RelayClient(url.removesuffix("/"), SteppingClock()).attempt("GET", "/contacts")
    except RelayUnreachable as error:
        raise OSError from error
    return 200


@pytest.mark.parametrize("call", [post_from_program, post_from_appliance, ask_relay])
def test_tls_below_1_3_is_refused(server_tls, call):
    server_tls.maximum_version = ssl.TLSVersion.TLSv1_2
    with http_server(lambda _: (200, {}, b"[]"), server_tls) as server, pytest.raises(OSError):
        call(f"https://localhost:{server.port}/")
    assert server.requests == []


@pytest.mark.parametrize("call", [post_from_program, post_from_appliance, ask_relay])
def test_tls_1_3_is_used(server_tls, call):
    with http_server(lambda _: (200, {}, b"[]"), server_tls) as server:
        assert call(f"https://localhost:{server.port}/") == 200


@pytest.mark.parametrize("call", [post_from_program, post_from_appliance])
def test_endpoint_without_tls_on_another_machine_gets_nothing(call):
    with pytest.raises(OSError, match="http://"):
        call("http://bert.example.org/network/inbox")
