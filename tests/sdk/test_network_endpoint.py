"""Endpoints for programs: WSGI, ASGI, the twin for asyncio, and real sockets."""

import asyncio
import io
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from wsgiref.simple_server import make_server
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from appliance.mailbox import endpoint_server
from appliance.mailbox.endpoint_server import EndpointServer, QuietHandler
from appliance.network.envelope import ENVELOPE_BYTES_MAX
from appliance.sdk.network.aio import AsyncNetworkAgent
from appliance.sdk.network.endpoint import asgi_endpoint, wsgi_endpoint
from appliance.sdk.network.post import PostRules, post_envelope, tls_context

ID = "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"


class EndlessStatus(threading.Thread):
    """A server that sends a status line one byte at a time and never ends it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/inbox"
        self.ended = threading.Event()

    def run(self):
        client, _ = self.listener.accept()
        with client, suppress(OSError):
            while not self.ended.wait(0.05):
                client.sendall(b"H")


def test_endpoint_that_sends_byte_by_byte_ends_with_the_request(monkeypatch):
    monkeypatch.setattr("appliance.sdk.network.post.TIMEOUT_SECONDS", 0.5)
    server = EndlessStatus()
    server.start()
    try:
        with pytest.raises(OSError, match="H"):
            post_envelope(server.url, b"{}", rules=PostRules(allow_loopback=True, allow_http=True))
    finally:
        server.ended.set()
        server.join(10)


def sealed(network):
    return network.agents["anna"].peers.seal("bert", {"text": "hi"}, ID)[1]


def by_wsgi(agent, method, body, length=None):
    started = []
    environ = {
        "REQUEST_METHOD": method, "wsgi.input": io.BytesIO(body),
        "CONTENT_LENGTH": str(len(body)) if length is None else length,
    }  # fmt: skip
    reply = b"".join(wsgi_endpoint(agent)(environ, lambda status, headers: started.append(status)))
    return int(started[0].split()[0]), reply


async def by_asgi(agent, method, body):
    events = [
        {"type": "http.request", "body": body[at : at + 100_000], "more_body": True}
        for at in range(0, len(body), 100_000)
    ] + [{"type": "http.request"}]
    sent = []

    async def receive():
        return events.pop(0)

    async def send(event):
        sent.append(event)

    await asgi_endpoint(agent)({"type": "http", "method": method}, receive, send)
    return sent[0]["status"], sent[1]["body"]


def call(kind, agent, method, body):
    return by_wsgi(agent, method, body) if kind == "wsgi" else asyncio.run(
        by_asgi(agent, method, body)
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_endpoint_hands_messages_over_once(network, anna, kind):
    bert, body = network.agents["bert"], sealed(network)
    assert call(kind, bert, "POST", body) == (200, b'{"ok":true,"duplicate":false}')
    assert call(kind, bert, "POST", body) == (200, b'{"ok":true,"duplicate":true}')
    assert network.texts("bert") == ["hi"]
    assert call(kind, bert, "GET", b"")[0] == 405
    network.relay.clock.pass_seconds(301)
    assert b"ENVELOPE_NOT_CURRENT" in call(kind, bert, "POST", body)[1]
    network.relay.clock.pass_seconds(-301)
    status, reply = call(kind, bert, "POST", b"{}")
    assert (status, b'"code":"NOT_THE_RECIPIENT"' in reply) == (400, True)
    assert call(kind, bert, "POST", b"x" * (ENVELOPE_BYTES_MAX + 1))[0] == 413


@contextmanager
def served(agent, app=None):
    """The address of the agent's endpoint, as `inbox --serve` serves it."""
    app = app or wsgi_endpoint(agent)
    with make_server("127.0.0.1", 0, app, EndpointServer, QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_address
        server.shutdown()


def exchange(address, body):
    """The whole response, to the end of the connection."""
    head = f"POST /network/inbox HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(address, 10) as connection:
        connection.sendall(head.encode() + body)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_message_passes_a_real_socket(network, anna):
    here = PostRules(allow_loopback=True, allow_http=True)
    with served(network.agents["bert"]) as (host, port):
        url = f"http://{host}:{port}/network/inbox"
        assert post_envelope(url, sealed(network), rules=here)[0] == 200
    assert network.texts("bert") == ["hi"]
    with pytest.raises(OSError, match="refused"):
        post_envelope(url, b"", rules=here)
    assert tls_context().minimum_version.name == "TLSv1_3"


def test_each_response_has_headers_of_its_own(network, anna):
    """A list that responses share gets the length of the first body, which cuts later ones."""
    bodies = [b"x", sealed(network), b"{}", b"x" * 5_000, sealed(network)]
    with served(network.agents["bert"]) as address:
        for body in bodies:
            head, _, content = exchange(address, body).partition(b"\r\n\r\n")
            assert f"Content-Length: {len(content)}".encode() in head
            assert (content[:1], content[-1:]) == (b"{", b"}")


def test_endpoint_keeps_the_rules_of_wsgi(network, anna):
    environ = {"REQUEST_METHOD": "POST", "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    reply = validator(wsgi_endpoint(network.agents["bert"]))(environ, lambda *_: lambda _: None)
    assert b"MALFORMED_ENVELOPE" in b"".join(reply)
    reply.close()


UNFINISHED = [b"", b"POST /netw", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"]


def test_connections_that_send_nothing_do_not_delay_others(network, anna, monkeypatch):
    monkeypatch.setattr(endpoint_server, "CONNECTIONS_MAX", 4)
    with served(network.agents["bert"]) as address, ExitStack() as stack:
        half_open = []
        for number in range(9):
            half_open.append(stack.enter_context(socket.create_connection(address, 10)))
            half_open[-1].sendall(UNFINISHED[number % 3])
        assert b'"duplicate":false' in exchange(address, sealed(network))
        assert half_open[0].recv(1_000).rpartition(b"\r\n\r\n")[2] == b"", "the oldest was closed"
    assert network.texts("bert") == ["hi"]


def test_body_that_does_not_arrive_is_refused_and_leaves_no_thread(network, anna, monkeypatch):
    monkeypatch.setattr(QuietHandler, "timeout", 0.05)
    with served(network.agents["bert"]) as address:
        with socket.create_connection(address, 10) as connection:
            connection.sendall(UNFINISHED[2])
            reply = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert b"MALFORMED_ENVELOPE" in reply
    assert network.handled == []


def test_twin_for_asyncio_runs_handlers_in_its_loop(network, anna):
    network.agents["bert"].close()
    network.relay_is_down = True  # this relay works in one thread only
    seen = []

    async def handle(message):
        await asyncio.sleep(0)
        seen.append((message.payload, threading.current_thread() is threading.main_thread()))

    async def main():
        options = {"clock": network.clock, "post": network.post, "on_message": handle}
        async with AsyncNetworkAgent(network.folder / "bert", **options) as bert:
            assert (await by_asgi(bert.agent, "POST", sealed(network)))[0] == 200
            assert [contact.agent for contact in await bert.contacts()] == ["anna"]
            report = await bert.send("anna", {"text": "back"})
            assert report.status == "delivered"

    asyncio.run(main())
    assert seen == [({"text": "hi"}, True)]
    assert network.texts("anna") == ["back"]


def test_post_connects_to_the_address_that_was_checked(monkeypatch):
    """A second lookup of the name could return an address inside the network."""
    dialed = []

    def dial(address, *_rest, **_more):
        dialed.append(address)
        raise ConnectionRefusedError

    def resolve(_host, port, **_more):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", dial)
    with pytest.raises(OSError):
        post_envelope("https://agent.example/inbox", b"{}", rules=PostRules(False, False))
    assert dialed == [("93.184.216.34", 443)]
