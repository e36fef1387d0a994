"""Webhooks as a target, with a real receiver: what is sent, to whom, and how answers are read."""

import shutil
import socket
import ssl
import subprocess
import threading

import msgspec
import pytest

from appliance.hub.webhooks.settings import WebhookSettings
from appliance.kernel.errors import ApplianceError
from appliance.outbox import wire
from appliance.outbox.settings import OutboxSettings
from appliance.outbox.target import Delivered, Later, Outgoing, Refused
from appliance.outbox.webhook import Call, WebhookTarget
from appliance.web.address import BadWebhookUrl
from tests.support.clock import FakeClock
from tests.support.receiver import receiving

NAME = "hooks.example.com"


class Book:
    """One webhook, and what was told of it."""

    def __init__(self, url):
        self.found = Call(url, {"webhook-id": "e:1", "content-type": "application/json"})
        self.told = []

    def find(self, send):
        return self.found

    def tell(self, ref, outcome):
        self.told.append((ref, outcome))


@pytest.fixture
def receiver():
    with receiving() as one:
        yield one


def target_of(url, resolver=None, book=None, tls=None, **rules):
    settings = msgspec.structs.replace(OutboxSettings(), connect_seconds=2.0, reply_seconds=0.3)
    more = {} if resolver is None else {"resolver": resolver}
    return WebhookTarget(
        book or Book(url),
        msgspec.structs.replace(WebhookSettings(), **rules),
        settings, FakeClock(), tls=tls, **more,
    )  # fmt: skip


def send_of(ref="hook_1", body='{"a":"grüße"}'):
    return Outgoing(
        mesh="default", client_message_id="id-1", fingerprint=b"\0" * 32, destination_kind="queue",
        destination_ref=ref, reply_to_id=None, priority="next", meta=None, body=body, attempt=1,
        accepted_ms=0, target="webhook",
    )  # fmt: skip


def test_the_body_is_posted_with_the_headers_of_the_moment(receiver):
    target = target_of(receiver.url + "?key=1")
    assert target.deliver(send_of()) == Delivered()
    (got,) = receiver.got
    assert got.path == "/hook?key=1"
    assert got.body == '{"a":"grüße"}'.encode()
    assert got.headers["webhook-id"] == "e:1"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "headers", "result", "told"),
    [
        (200, {}, Delivered(), "delivered"),
        (204, {}, Delivered(), "delivered"),
        (200, {"Content-Length": "10"}, Delivered(), "delivered"),
        (410, {}, Refused("the receiver answered 410: it is gone", "GONE"), "gone"),
        (429, {"Retry-After": "7"}, Later("the receiver answered 429", 7.0), "failed"),
        (503, {"Retry-After": "Soon"}, Later("the receiver answered 503", None), "failed"),
        (404, {}, Later("the receiver answered 404", None), "failed"),
        (500, {}, Later("the receiver answered 500", None), "failed"),
    ],
)
def test_what_answers_mean(receiver, status, headers, result, told):
    receiver.answer = lambda _got: (status, headers)
    book = Book(receiver.url)
    assert target_of(receiver.url, book=book).deliver(send_of()) == result
    assert book.told == [("hook_1", told)]


def test_redirects_are_not_followed(receiver):
    with receiving() as other:
        receiver.answer = lambda _got: (307, {"Location": other.url})
        result = target_of(receiver.url).deliver(send_of())
        assert isinstance(result, Later)
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
def test_a_name_is_not_called_when_one_of_its_addresses_is_not_allowed(receiver, addresses, rules):
    url = f"http://{NAME}:{receiver.port}/"
    target = target_of(url, lambda _host, _port: addresses, allow_http=True, **rules)
    assert isinstance(target.deliver(send_of()), Later)
    assert receiver.got == []


def test_the_connection_goes_to_the_address_that_was_judged_and_the_name_stays(receiver):
    asked = []

    def resolver(host, port):
        asked.append((host, port))
        return ["127.0.0.2", "127.0.0.1"]  # nothing listens at the first

    url = f"http://{NAME}:{receiver.port}/x"
    assert target_of(url, resolver, allow_http=True).deliver(send_of()) == Delivered()
    assert asked == [(NAME, receiver.port)]  # once: a second answer might differ
    assert receiver.got[0].headers["host"] == f"{NAME}:{receiver.port}"


def test_plain_http_goes_nowhere_else_under_the_name_of_this_machine():
    target = target_of("http://x.localhost:1/", lambda _host, _port: ["93.184.216.34"])
    result = target.deliver(send_of())
    assert isinstance(result, Later)
    assert "plain http" in result.reason


def test_rules_that_became_stricter_hold_for_what_waits(receiver):
    assert isinstance(target_of(receiver.url, allow_loopback=False).deliver(send_of()), Later)
    assert receiver.got == []


def test_a_receiver_that_is_silent_or_not_there_is_tried_again(receiver):
    wait = threading.Event()
    receiver.answer = lambda _got: (wait.wait(10), (204, {}))[1]
    assert "in time" in target_of(receiver.url).deliver(send_of()).reason
    wait.set()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "nothing listens" in target_of(f"http://127.0.0.1:{port}/").deliver(send_of()).reason

    def unknown(_host, _port):
        raise socket.gaierror

    assert "resolved" in target_of("https://a.example/", unknown).deliver(send_of()).reason


def test_who_the_book_does_not_give_is_not_called_and_nothing_is_told(receiver):
    book = Book(receiver.url)
    book.found = Refused("the webhook was deleted")
    assert target_of(receiver.url, book=book).deliver(send_of()) is book.found
    assert (receiver.got, book.told) == ([], [])


def contexts_for(name, folder):
    """TLS for a receiver of that name, and for who trusts it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_tls_is_with_the_name_and_a_certificate_of_another_is_not_taken(tmp_path):
    server, trusting = contexts_for(NAME, tmp_path)
    asked = []
    server.sni_callback = lambda _socket, name, _context: asked.append(name)
    with receiving(server) as receiver:

        def ask(name, tls):
            url = f"https://{name}:{receiver.port}/"
            return target_of(url, lambda _host, _port: ["127.0.0.1"], tls=tls).deliver(send_of())

        assert ask(NAME, trusting) == Delivered()
        assert asked == [NAME]
        assert "TLS" in ask("other.example.com", trusting).reason
        assert "TLS" in ask(NAME, None).reason
        assert len(receiver.got) == 1


# -- in the outbox -----------------------------------------------------------------------------


def test_a_send_to_a_url_is_unsigned_and_carries_its_id(house, receiver):
    house.targets["webhook"] = target_of(receiver.url)
    command = wire.Send(to=receiver.url, message="{}", client_message_id="k", target="webhook")
    house.outbox.send(command, inside=True)
    house.round()
    assert receiver.ids == ["k"]
    assert "webhook-signature" not in receiver.got[0].headers
    assert house.statuses() == {"k": "done"}


def test_only_the_appliance_itself_may_address_webhooks(house, receiver):
    house.targets["webhook"] = target_of(receiver.url)
    command = wire.Send(to=receiver.url, message="{}", client_message_id="k", target="webhook")
    with pytest.raises(wire.NoSuchTarget) as refused:
        house.outbox.send(command)
    assert "webhook" not in refused.value.hint
    bad = wire.Send(to="https://10.0.0.1/", message="{}", target="webhook")
    with pytest.raises(BadWebhookUrl):
        house.outbox.send(bad, inside=True)
    assert house.statuses() == {}


def test_what_is_signed_by_us_can_be_requeued_but_not_changed(house, receiver):
    house.targets["webhook"] = target_of(receiver.url)
    command = wire.Send(to="hook_1", message="{}", client_message_id="k", target="webhook")
    house.outbox.send(command, inside=True)
    with pytest.raises(wire.WrongState):
        house.operator.requeue(
            wire.Requeue(id="k", auto=True, patch=wire.Patch(message="forged")), "operator"
        )
    house.operator.requeue(wire.Requeue(id="k", auto=True), "operator")
    house.round()
    assert [got.body for got in receiver.got] == [b"{}"]


def test_how_many_wait_is_counted_for_each_webhook(house, receiver):
    house.targets["webhook"] = target_of(receiver.url)
    for number in range(3):
        command = wire.Send(
            to="hook_1", message="{}", client_message_id=f"k{number}", target="webhook"
        )
        house.outbox.send(command, inside=True)
    assert house.outbox.waiting("webhook", "hook_1", 10) == 3
    assert house.outbox.waiting("webhook", "hook_1", 2) == 2
    assert house.outbox.waiting("webhook", "hook_2", 10) == 0


def test_a_body_larger_than_clients_may_send_is_taken_from_inside(new_house, receiver):
    house = new_house(message_bytes_max=10)
    house.targets["webhook"] = target_of(receiver.url)
    command = wire.Send(to="hook_1", message="x" * 100, client_message_id="k", target="webhook")
    house.outbox.send(command, inside=True)
    with pytest.raises(ApplianceError):
        house.send("x" * 100)
    house.round()
    assert receiver.got[0].body == b"x" * 100
