"""Endpoints for programs: WSGI, ASGI, the twin for asyncio, and real sockets."""

import asyncio
import io
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from appliance.network.envelope import ENVELOPE_BYTES_MAX
from appliance.sdk.network.aio import AsyncNetworkAgent
from appliance.sdk.network.endpoint import asgi_endpoint, wsgi_endpoint
from appliance.sdk.network.post import PostRules, post_envelope, tls_context

ID = "7f9c24e8-3b12-4fef-91e0-56a2d5a1c001"


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
    status, reply = call(kind, bert, "POST", b"{}")
    assert (status, b'"code":"NOT_THE_RECIPIENT"' in reply) == (400, True)
    assert call(kind, bert, "POST", b"x" * (ENVELOPE_BYTES_MAX + 1))[0] == 413


def test_message_passes_a_real_socket(network, anna):
    class Quiet(WSGIRequestHandler):
        def log_message(self, *_):
            pass

    with make_server(
        "127.0.0.1", 0, wsgi_endpoint(network.agents["bert"]), handler_class=Quiet
    ) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/network/inbox"
        here = PostRules(allow_loopback=True, allow_http=True)
        assert post_envelope(url, sealed(network), here) == 200
        thread.join(10)
    assert network.texts("bert") == ["hi"]
    with pytest.raises(OSError, match="refused"):
        post_envelope(url, b"", here)
    assert tls_context().minimum_version.name == "TLSv1_3"


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
