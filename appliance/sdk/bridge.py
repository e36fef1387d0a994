"""Forwards MCP over standard input and output to a running hub's `/mcp`.

Both directions carry one JSON-RPC message per line; standard output carries only messages. Requests
run concurrently, because one may wait for events. After the hub restarts, the next request finds
its new address.
"""

import base64
import contextlib
import http.client
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, BinaryIO
from urllib.parse import urlencode

import msgspec

from appliance.kernel.errors import ApplianceError
from appliance.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    NAMED_BY,
    PARSE_ERROR,
    PATH,
    VERSION_KEY,
)
from appliance.sdk.discovery import Endpoint, connect
from appliance.sdk.errors import Refused, refusal
from appliance.sdk.http import json_object, request_headers

LINE_BYTES_MAX = 1024 * 1024
REPLY_BYTES_MAX = 64 * 1024 * 1024
REQUEST_SECONDS_MAX = 120.0  # twice the longest wait for events
RESULT_REQUESTS_MAX = 40  # for one `tasks/result`: together longer than any task waits
REQUESTS_MAX = 32  # concurrently
WAITING_MAX = 256
END_SECONDS_MAX = 2.0  # for responses in progress when the input ends

HINT = "agentlipd status"

Json = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Bridge:
    """The bridge. `locate` returns the hub's address, and is called again when the hub does not
    answer. `tools`: the groups to list; empty: the default set."""

    def __init__(
        self,
        locate: Callable[[], Endpoint],
        source: BinaryIO,
        target: BinaryIO,
        say: Callable[[str], None],
        tools: str = "",
    ) -> None:
        self._path = PATH + (f"?{urlencode({'tools': tools}, safe=',')}" if tools else "")
        self._locate = locate
        self._source = source
        self._target = target
        self._say = say
        self._endpoint: Endpoint | None = None
        self._version: str | None = None  # agreed in the handshake
        self._writing = threading.Lock()
        self._slots = threading.Semaphore(WAITING_MAX)
        self._futures: set[Future[None]] = set()
        self._running: dict[Any, http.client.HTTPConnection | None] = {}
        self._cancelled: set[Any] = set()

    def run(self) -> None:
        """Serve until the input ends. Responses in progress get a moment, then they are aborted."""
        with ThreadPoolExecutor(REQUESTS_MAX) as pool:
            try:
                while line := self._source.readline(LINE_BYTES_MAX + 1):
                    self._take(line, pool)
                wait(set(self._futures), END_SECONDS_MAX)
            finally:
                for key in list(self._running):
                    self._cut(key)

    def _take(self, line: bytes, pool: ThreadPoolExecutor) -> None:
        message = self._read(line)
        if message is None:
            return
        if message.get("method") == "notifications/cancelled":
            params = message.get("params")
            if isinstance(params, dict):
                self._cut(repr(params.get("requestId")))
        elif "id" in message:
            self._slots.acquire()
            self._running[_key(message)] = None
            future = pool.submit(self._serve, message, line.strip())
            self._futures.add(future)
            future.add_done_callback(self._futures.discard)

    def _read(self, line: bytes) -> Json | None:
        if len(line) > LINE_BYTES_MAX:
            while line and not line.endswith(b"\n"):
                line = self._source.readline(LINE_BYTES_MAX)
            self._fail(None, INVALID_REQUEST, f"the message is longer than {LINE_BYTES_MAX} bytes")
            return None
        if not line.strip():
            return None
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._fail(None, PARSE_ERROR, "the line is not valid JSON")
            return None
        if not isinstance(message, dict) or isinstance(message.get("id"), dict | list):
            self._fail(None, INVALID_REQUEST, "a line must be one JSON-RPC message")
            return None
        return message

    def _serve(self, message: Json, line: bytes) -> None:
        key = _key(message)
        try:
            reply = b"" if key in self._cancelled else self._request(message, line)
            if key not in self._cancelled:
                self._write(reply)
        except ApplianceError as error:
            data = {"code": error.code, "hint": error.hint, "details": error.details}
            self._refuse(message, error.message, data)
        except (OSError, http.client.HTTPException) as error:
            hint = "the hub may have processed the request: check before you repeat it"
            self._refuse(
                message, f"the connection to the hub broke: {type(error).__name__}", {"hint": hint}
            )
        finally:
            self._running.pop(key, None)
            self._cancelled.discard(key)
            self._slots.release()

    def _request(self, message: Json, line: bytes) -> bytes:
        """Return the hub's response. Reading a task's result may take longer than one request."""
        for _ in range(RESULT_REQUESTS_MAX if message.get("method") == "tasks/result" else 0):
            with contextlib.suppress(TimeoutError):
                return b"" if _key(message) in self._cancelled else self._try(message, line)
        return self._try(message, line)

    def _try(self, message: Json, line: bytes) -> bytes:
        """Send the request. A second attempt follows only if the first one reached no hub."""
        endpoint = self._endpoint or self._find()
        try:
            return self._post(endpoint, message, line)
        except (ConnectionRefusedError, Refused):
            return self._post(self._find(), message, line)

    def _find(self) -> Endpoint:
        self._endpoint = None
        self._endpoint = self._locate()
        return self._endpoint

    def _post(self, endpoint: Endpoint, message: Json, line: bytes) -> bytes:
        connection = connect(endpoint, REQUEST_SECONDS_MAX)
        with contextlib.closing(connection):
            self._running[_key(message)] = connection
            headers = self._headers(endpoint, message)
            connection.request("POST", endpoint.prefix + self._path, line, headers)
            reply = connection.getresponse()
            text = reply.read(REPLY_BYTES_MAX)
        answer = json_object(text)
        if answer.get("jsonrpc") == "2.0":
            self._remember(message, answer)
            return text
        if reply.status in (401, 404, 421):
            # The token was rotated, or another program uses that port now.
            raise refusal(reply.status, {"hint": HINT, **answer})
        sentence = str(answer.get("error") or f"the hub answered with status {reply.status}")
        data = {"status": reply.status, **answer}  # rate, size, scope
        return _error(message["id"], INTERNAL_ERROR, sentence, data)

    def _headers(self, endpoint: Endpoint, message: Json) -> dict[str, str]:
        """Return the headers that an HTTP transport client sends."""
        headers = request_headers(endpoint, b"")
        headers["Accept"] = "application/json, text/event-stream"
        version = _modern_version(message)
        if version is None:
            if self._version is not None and message.get("method") != "initialize":
                headers["MCP-Protocol-Version"] = self._version
            return headers
        method = str(message.get("method"))
        headers["MCP-Protocol-Version"] = header_value(version)
        headers["Mcp-Method"] = header_value(method)
        name = message["params"].get(NAMED_BY.get(method, ""))
        if isinstance(name, str):
            headers["Mcp-Name"] = header_value(name)
        return headers

    def _remember(self, message: Json, answer: Json) -> None:
        result = answer.get("result")
        if message.get("method") == "initialize" and isinstance(result, dict):
            version = result.get("protocolVersion")
            self._version = version if isinstance(version, str) else None

    def _cut(self, key: str) -> None:
        """Abort a request: write no response, and close the connection."""
        if key not in self._running:
            return
        self._cancelled.add(key)
        connection = self._running.get(key)
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _refuse(self, message: Json, sentence: str, data: Json) -> None:
        """Refuse a message. A failed tool call is a result that the model reads; other failures
        are errors."""
        if _key(message) in self._cancelled:
            return
        if message.get("method") != "tools/call":
            self._fail(message["id"], INTERNAL_ERROR, sentence, data)
            return
        self._say(sentence)
        text = _encode({"error": sentence, **data}).decode()
        result: Json = {"content": [{"type": "text", "text": text}], "isError": True}
        if _modern_version(message) is not None:
            result["resultType"] = "complete"
        self._write(_encode({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    def _fail(self, request_id: Any, code: int, sentence: str, data: Json | None = None) -> None:
        self._say(sentence)
        self._write(_error(request_id, code, sentence, data))

    def _write(self, message: bytes) -> None:
        with self._writing:
            self._target.write(message.replace(b"\n", b" ") + b"\n")
            self._target.flush()


def header_value(value: str) -> str:
    """Return the value, encoded as the MCP transport requires where a header cannot hold it."""
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _modern_version(message: Json) -> str | None:
    """Return the protocol version that modern requests carry."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    return version if isinstance(version, str) else None


def _key(message: Json) -> str:
    return repr(message["id"])  # 1 and "1" are different requests


def _error(request_id: Any, code: int, sentence: str, data: Json | None) -> bytes:
    error = {"code": code, "message": sentence, **({} if data is None else {"data": data})}
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": error})
