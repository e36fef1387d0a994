"""Calls a container engine on its socket: the API that Docker and Podman share, as far as jobs need
it. Standard library only, for an attempt's launcher.

`follow` runs in the launcher, in place of a command, writes the container's output and ends with
the container's exit code. The container itself survives the launcher and the appliance.
"""

import http.client
import json
import os
import select
import signal
import socket
from typing import Any

from appliance.jobs.handles import NOT_STARTED

REQUEST_SECONDS = 30.0
STOP_SECONDS = 8  # from SIGTERM to SIGKILL: less than the launcher leaves
ANSWER_BYTES_MAX = 4 * 1024 * 1024
READ_BYTES = 64 * 1024
RETRY_SECONDS = 1.0


class EngineConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float | None) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def send_request(self, method: str, target: str, body: Any = None) -> http.client.HTTPResponse:
        data = b"" if body is None else json.dumps(body).encode()
        self.request(method, target, data, {"Content-Type": "application/json"})
        return self.getresponse()


def request(
    path: str, method: str, target: str, body: Any = None, seconds: float | None = REQUEST_SECONDS
) -> tuple[int, Any]:
    """Return the status and content of the engine's response at the socket `path`. Raises
    OSError."""
    connection = EngineConnection(path, seconds)
    try:
        response = connection.send_request(method, target, body)
        data = response.read(ANSWER_BYTES_MAX)
        return response.status, json.loads(data) if data else None
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"the engine sent no valid response: {error}") from error
    finally:
        connection.close()


def follow(path: str, name: str, body: Any) -> int:
    """Create the container, or adopt one (no body), write the output and return the exit code.
    Raises OSError if creation fails."""
    signal.signal(signal.SIGTERM, lambda *_: _stop(path, name))
    if body is not None:
        status, answer = request(path, "POST", f"/containers/create?name={name}", body)
        if status != http.client.CREATED:
            return _fail(answer)
    _, shown = request(path, "GET", f"/containers/{name}/json")
    if shown["State"]["Status"] == "created":  # not an ended one, which would run twice
        status, answer = request(path, "POST", f"/containers/{name}/start")
        if status >= http.client.BAD_REQUEST:
            return _fail(answer)
    written = 0
    while True:
        try:
            written = _write_output(path, name, written)
            status, answer = request(path, "POST", f"/containers/{name}/wait", seconds=None)
            written = _write_output(path, name, written)  # Docker may cut a log before its end
        except OSError:  # the engine is restarted
            select.select([], [], [], RETRY_SECONDS)
            continue
        return int(answer["StatusCode"]) if status == http.client.OK else _fail(answer)


def _write_output(path: str, name: str, written: int) -> int:
    """Write the container's output without the first `written` bytes, and return how many there
    are."""
    connection, position = EngineConnection(path, None), 0
    try:
        response = connection.send_request(
            "GET", f"/containers/{name}/logs?follow=1&stdout=1&stderr=1"
        )
        # A header has the stream, and how many bytes follow.
        while response.status == http.client.OK and (header := response.read(8)):
            left = int.from_bytes(header[4:], "big")
            while left and (data := response.read(min(left, READ_BYTES))):
                os.write(1, data[max(0, written - position) :])
                position, left = position + len(data), left - len(data)
    except http.client.HTTPException:
        pass
    finally:
        connection.close()
    return max(written, position)


def _stop(path: str, name: str) -> None:
    request(path, "POST", f"/containers/{name}/stop?t={STOP_SECONDS}")


def _fail(answer: Any) -> int:
    os.write(1, f"the engine refused: {answer['message']}\n".encode())
    return NOT_STARTED
