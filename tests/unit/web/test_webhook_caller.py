"""Calls of webhooks, with a real receiver: statuses, checked addresses, TLS and deadlines."""

import shutil
import socket
import threading

import msgspec
import pytest

from appliance.hub.webhooks.settings import WebhookSettings
from appliance.kernel.delivery import CallResult
from appliance.web import webhook_caller
from appliance.web.webhook_caller import WebhookCaller, result_of, seconds_of
from tests.support.tls import contexts_for
from tests.support.webhook_receiver import webhook_receiver

NAME = "hooks.example.com"
DELIVERED = CallResult("delivered")


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(webhook_caller, "CONNECT_SECONDS", 2.0)
    monkeypatch.setattr(webhook_caller, "REPLY_SECONDS", 0.3)


@pytest.fixture
def receiver():
    with webhook_receiver() as receiver_:
        yield receiver_


def call(url, resolver=None, tls=None, **rules):
    more = {} if resolver is None else {"resolver": resolver}
    settings = msgspec.structs.replace(WebhookSettings(), **rules)
    caller = WebhookCaller(settings, tls=tls, **more)
    return caller.call(url, {"webhook-id": "e:1"}, "{}")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "delivered"), (299, "delivered"), (410, "gone"), (301, "failed"), (404, "failed"),
     (429, "failed"), (500, "failed")],
)  # fmt: skip
def test_only_2xx_is_delivered_and_only_410_is_final(status, outcome):
    assert result_of(status, None).outcome == outcome


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("-1", None), ("Soon", None), (None, None), ("1e9", 86_400.0)],
)
def test_retry_after_is_read_as_seconds_up_to_a_day(value, seconds):
    assert seconds_of(value) == seconds


def test_redirects_are_not_followed(receiver):
    with webhook_receiver() as other:
        receiver.answer = lambda _got: (307, {"Location": other.url})
        result = call(receiver.url)
        assert result.outcome == "failed"
        assert "redirects" in result.reason
        assert other.got == []


@pytest.mark.parametrize(
    ("addresses", "rules"),
    [
        (["127.0.0.1"], {"allow_loopback": False}),
        (["127.0.0.1", "10.0.0.1"], {}),
        (["169.254.169.254", "127.0.0.1"], {"allow_private": True}),
        (["::ffff:10.0.0.1"], {}),
        ([], {}),
    ],
)
def test_name_with_a_forbidden_address_is_not_called(receiver, addresses, rules):
    url = f"http://{NAME}:{receiver.port}/"
    result = call(url, lambda _host, _port: addresses, allow_http=True, **rules)
    assert result.outcome == "failed"
    assert receiver.got == []


def test_connection_uses_the_checked_address_and_keeps_the_name(receiver):
    resolved = []

    def resolver(host, port):
        resolved.append((host, port))
        return ["127.0.0.2", "127.0.0.1"]  # refused the connection at the first

    url = f"http://{NAME}:{receiver.port}/x"
    assert call(url, resolver, allow_http=True) == DELIVERED
    assert resolved == [(NAME, receiver.port)]  # once: a second answer might differ
    assert receiver.got[0].headers["host"] == f"{NAME}:{receiver.port}"


def test_plain_http_to_a_local_name_needs_a_local_address():
    result = call("http://x.localhost:1/", lambda _host, _port: ["93.184.216.34"])
    assert result.outcome == "failed"
    assert "http:// is allowed only" in result.reason


def test_silent_or_unreachable_receiver_has_failed(receiver):
    wait = threading.Event()
    receiver.answer = lambda _got: (wait.wait(10), (204, {}))[1]
    assert "in time" in call(receiver.url).reason
    wait.set()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "refused the connection" in call(f"http://127.0.0.1:{port}/").reason

    def unknown(_host, _port):
        raise socket.gaierror

    assert "resolved" in call("https://a.example/", unknown).reason


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls_verifies_the_name(tmp_path):
    server, trusting = contexts_for(NAME, tmp_path)
    resolved = []
    server.sni_callback = lambda _socket, name, _context: resolved.append(name)
    with webhook_receiver(server) as receiver:

        def ask(name, tls):
            url = f"https://{name}:{receiver.port}/"
            return call(url, lambda _host, _port: ["127.0.0.1"], tls=tls)

        assert ask(NAME, trusting) == DELIVERED
        assert resolved == [NAME]
        assert "SSL" in ask("other.example.com", trusting).reason
        assert "SSL" in ask(NAME, None).reason
        assert len(receiver.got) == 1
