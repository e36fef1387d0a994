"""The endpoint of an agent in a web program: `POST /network/inbox` as a WSGI or ASGI application.

    app = wsgi_endpoint(agent)          # any WSGI server, or mounted in another application
    app = asgi_endpoint(agent)

A success means that the message was handed over, now or before. Refusals have status 400; 503, and
400 with Retry-After, mean that the sender should try again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import msgspec

from appliance.kernel.errors import ApplianceError
from appliance.network.envelope import ENVELOPE_BYTES_MAX
from appliance.sdk.network.agent import NetworkAgent

HEADERS = (("Content-Type", "application/json"),)
Asgi = Callable[..., Awaitable[None]]


def wsgi_endpoint(agent: NetworkAgent) -> Callable[..., Iterable[bytes]]:
    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body: bytes | None = None
        length = environ.get("CONTENT_LENGTH") or "0"
        if length.isdecimal() and len(length) < 10 and int(length) <= ENVELOPE_BYTES_MAX:
            body = b""  # a client that stops sending in between gets this refusal
            with suppress(OSError):
                body = environ["wsgi.input"].read(int(length))
        status, reply, headers = response(agent, environ["REQUEST_METHOD"], body)
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [reply]

    return app


def asgi_endpoint(agent: NetworkAgent) -> Asgi:
    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body: bytes | None = b""
        more = True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            more = event.get("more_body", False)
            body = None if body is None else body + event.get("body", b"")
            if body is not None and len(body) > ENVELOPE_BYTES_MAX:
                body = None  # the rest is read, and dropped
        status, reply, headers = await asyncio.to_thread(response, agent, scope["method"], body)
        raw = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": reply})

    return app


def response(
    agent: NetworkAgent, method: str, body: bytes | None
) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Return status, body and headers for a request. `body`: None if it was too large."""
    if method != "POST":
        return 405, _refusal("send envelopes with POST", "METHOD_NOT_ALLOWED"), [*HEADERS]
    if body is None:
        return 413, _refusal("the envelope is too large", "PAYLOAD_TOO_LARGE"), [*HEADERS]
    try:
        message = agent.receive(body)
    except ApplianceError as error:
        again = [] if error.retry_after is None else [("Retry-After", f"{error.retry_after:.0f}")]
        return error.status, _refusal(error.message, error.code), [*HEADERS, *again]
    except Exception:
        agent.problem = "a message handler failed"
        return 500, _refusal("the message was not handled", "INTERNAL_ERROR"), [*HEADERS]
    return 200, msgspec.json.encode({"ok": True, "duplicate": message is None}), [*HEADERS]


def _refusal(error: str, code: str) -> bytes:
    return msgspec.json.encode({"ok": False, "error": error, "code": code})
