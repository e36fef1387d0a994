"""The socket file: this user without a token, and nobody on behalf of others."""

import http.client
import json
import socket
import stat

import pytest

from tests.support.servedhub import serve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    settings = "[http]\nunix_socket = true\n"
    with serve(tmp_path_factory.mktemp("s"), settings=settings) as hub:
        yield hub


def ask(hub, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(10)
    connection.sock.connect(str(hub.datadir.socket_file))
    given = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(
        method,
        path,
        None if body is None else json.dumps(body),
        given | {name.replace("_", "-"): value for name, value in headers.items()},
    )
    reply = connection.getresponse()
    output = reply.status, json.loads(reply.read() or b"{}")
    connection.close()
    return output


def test_socket_file_is_readable_by_its_owner_only(hub):
    assert stat.S_IMODE(hub.datadir.socket_file.stat().st_mode) == 0o600


def test_socket_file_needs_no_token_and_refuses_a_wrong_one(hub):
    assert ask(hub, "GET", "/v1/inbox")[0] == 200
    assert ask(hub, "POST", "/api/v1/channels", {"name": "socket"})[0] == 201
    assert ask(hub, "GET", "/api/v1/tokens")[0] == 200
    assert ask(hub, "GET", "/v1/inbox", Authorization="Bearer wrong")[0] == 401
    assert ask(hub, "GET", "/v1/inbox?token=x")[0] == 400
    assert hub.connect(None).get("/v1/inbox").status == 401


@pytest.mark.parametrize("header", ["X_Forwarded_For", "Forwarded"])
def test_forwarded_request_needs_a_token(hub, header):
    assert ask(hub, "GET", "/v1/inbox", **{header: "10.0.0.1"})[0] == 401


def test_browser_pages_are_refused_on_the_socket_file(hub):
    assert ask(hub, "GET", "/v1/inbox", Origin="https://evil.example")[0] == 403
    assert ask(hub, "GET", "/v1/inbox", Host="rebound.example")[0] == 421


def test_start_replaces_a_socket_left_by_a_crash_and_stop_removes_it(hub):
    hub.kill()
    assert hub.datadir.socket_file.exists()
    hub.start()
    assert ask(hub, "GET", "/v1/inbox")[0] == 200
    hub.stop()
    assert not hub.datadir.socket_file.exists()
    hub.start()


def test_a_stream_over_the_file_stays_open(hub):
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(10)
        raw.connect(str(hub.datadir.socket_file))
        raw.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 200")
