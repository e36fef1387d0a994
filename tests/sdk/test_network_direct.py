"""Agents in one LAN: addresses that contacts announce are signed, and tried first."""

import socket
import threading
from contextlib import contextmanager
from functools import partial

import pytest
from msgspec.structs import replace

from appliance.mailbox.service import guarded_post
from appliance.network.direct import BadDirectAddress, announce, check_direct_address
from appliance.sdk.network.post import PostRules, post_envelope
from tests.support.commands import agentlip, succeed
from tests.support.network import NetworkFixture
from tests.support.relay import key
from tests.support.tls import contexts_for

LAN = "192.168.1.5"
ENDPOINT = "https://bert.example.org/network/inbox"
HERE = PostRules(allow_loopback=True, allow_http=False, allow_private=True)


@pytest.fixture
def network(tmp_path, monkeypatch):
    with_lan = NetworkFixture(tmp_path, monkeypatch)
    yield with_lan
    with_lan.close()


def join(network, name, **config):
    """Open an agent that has this configuration from the start."""
    network.agent(name)
    return reopen(network, name, **config)


def reopen(network, name, **config):
    agent = network.agents[name]
    agent.folder.configure(replace(agent.config, **config))
    agent.close()
    return network.open(name)


def connected(network, *, anna, bert):
    """Return anna, after both heartbeats."""
    join(network, "anna", **anna)
    join(network, "bert", **bert)
    network.relay.connect("anna", "bert")
    network.agents["bert"].poll()
    network.agents["anna"].poll()
    return network.agents["anna"]


def send(agent):
    report = agent.send("bert", {"text": "hi"})
    return report.status, report.attempts[-1].endpoint


def test_announced_address_is_tried_before_the_public_endpoint(network):
    anna = connected(network, anna={"lan": True}, bert={"direct": (LAN,)})
    assert send(anna) == ("delivered", f"{ENDPOINT} by {LAN}")
    assert network.direct == [LAN]
    assert network.texts("bert") == ["hi"]


@pytest.mark.parametrize(
    ("anna", "bert"), [({}, {"direct": (LAN,)}), ({"lan": True}, {})], ids=["sender", "recipient"]
)
def test_direct_address_needs_both_agents_choice(network, anna, bert):
    assert send(connected(network, anna=anna, bert=bert)) == ("delivered", ENDPOINT)
    assert network.direct == []


def test_address_elsewhere_is_tried_once_between_heartbeats(network):
    anna = connected(network, anna={"lan": True}, bert={"direct": (LAN,)})
    network.unreachable.add(LAN)
    assert [send(anna), send(anna)] == [("delivered", ENDPOINT)] * 2
    assert network.direct == [LAN]
    network.unreachable.clear()
    anna.poll()
    assert send(anna) == ("delivered", f"{ENDPOINT} by {LAN}")


def test_address_with_another_signature_is_ignored(network):
    anna = connected(network, anna={"lan": True}, bert={"direct": (LAN,)})
    forged = f'"addresses":["{LAN}"'.encode(), b'"addresses":["192.168.1.66"'
    network.tamper["/contacts"] = lambda content: content.replace(*forged)
    anna.poll()
    assert anna.peers.contacts["bert"].direct.addresses == ("192.168.1.66",)
    assert send(anna) == ("delivered", ENDPOINT)


def test_withdrawn_address_is_forgotten_with_the_next_heartbeats(network):
    anna = connected(network, anna={"lan": True}, bert={"direct": (LAN,)})
    reopen(network, "bert", direct=()).poll()
    anna.poll()
    assert send(anna) == ("delivered", ENDPOINT)


def test_addresses_are_shown_to_contacts_only(network):
    connected(network, anna={}, bert={"direct": (LAN,)})
    network.agent("cleo")
    shown = [
        network.relay.request("GET", path, by=name).text
        for path, name in (("/contacts", "anna"), ("/presence/bert", "cleo"), ("/contacts", "cleo"),
                           ("/registry/agents/bert", "cleo"))
    ]  # fmt: skip
    assert [LAN in text for text in shown] == [True, False, False, False]


@pytest.mark.parametrize(
    "text",
    ["8.8.8.8", "127.0.0.1", "::1", "169.254.1.1", "0.0.0.0", "example.org", "", "10.0.0.1:80"],
)  # fmt: skip
def test_address_outside_private_networks_is_refused(text):
    with pytest.raises(BadDirectAddress):
        check_direct_address(text)


def test_auto_announces_an_address_that_others_may_use():
    made = announce("anna", ("auto",), key("anna"))
    for address in () if made is None else made.addresses:  # None: this machine has no LAN
        check_direct_address(address)


# -- over sockets ----------------------------------------------------------------------------------


@contextmanager
def tls_endpoint(context):
    """An endpoint for one request with the context's certificate; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            client, _ = listener.accept()
            with context.wrap_socket(client, server_side=True) as secure:
                request = b""
                while not request.endswith(b"{}"):
                    request += secure.recv(65536)
                secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


POSTS = {"sdk": lambda: partial(post_envelope, rules=HERE), "appliance": lambda: guarded_post(HERE)}


@pytest.mark.parametrize("kind", POSTS)
def test_direct_address_keeps_the_endpoints_name_and_certificate(kind, tmp_path, monkeypatch):
    """The name has no address here, so only the direct address leads to the endpoint."""
    server, client = contexts_for("bert.invalid", tmp_path)
    for each in ("appliance.sdk.network.post", "appliance.mailbox.service"):
        monkeypatch.setattr(f"{each}.tls_context", lambda: client)
    with tls_endpoint(server) as port:
        status, _ = POSTS[kind]()(f"https://bert.invalid:{port}/inbox", b"{}", "127.0.0.1")
    assert status == 200


@pytest.mark.parametrize("kind", POSTS)
def test_direct_address_with_another_certificate_is_an_error(kind, tmp_path, monkeypatch):
    server, client = contexts_for("mallory.invalid", tmp_path)
    for each in ("appliance.sdk.network.post", "appliance.mailbox.service"):
        monkeypatch.setattr(f"{each}.tls_context", lambda: client)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve():
            raw, _ = listener.accept()
            with pytest.raises(OSError), server.wrap_socket(raw, server_side=True) as secure:
                secure.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(OSError):
            POSTS[kind]()(f"https://bert.invalid:{port}/inbox", b"{}", "127.0.0.1")
        thread.join(10)


@pytest.mark.parametrize("kind", POSTS)
def test_silent_direct_address_ends_after_its_time(kind, tmp_path, monkeypatch):
    for each in ("appliance.sdk.network.post", "appliance.mailbox.service"):
        monkeypatch.setattr(f"{each}.SECONDS_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError):
            POSTS[kind]()(f"https://bert.invalid:{port}/inbox", b"{}", "127.0.0.1")


def test_command_keeps_addresses_in_the_agents_folder(tmp_path):
    flags, here = ("--folder", tmp_path / "anna"), {"cwd": tmp_path}
    relay, endpoint = "https://relay.example", "https://anna.example.org/network/inbox"
    succeed("network", "init", "anna", "--relay", relay, "--endpoint", endpoint, *flags, **here)
    file = tmp_path / "anna" / "agent.json"
    assert succeed("network", "direct", LAN, *flags, **here).out == f"announces {LAN}\n"
    assert f'"lan":true,"direct":["{LAN}"]' in file.read_text()
    refused = agentlip("network", "direct", "8.8.8.8", *flags, **here)
    assert (refused.code, "private network" in refused.err) == (1, True)
    succeed("network", "direct", "--off", *flags, **here)
    assert '"lan":false,"direct":[]' in file.read_text()
