"""Only programs on this machine read without a token, on every route of every subsystem."""

import socket

import pytest

from appliance.web.guard import FORWARDING
from tests.support.servedhub import serve

pytestmark = pytest.mark.slow

ROLES = "[roles]\nrelay = true\nnetwork = true\n"
LOCAL = {"Host": "localhost"}
STRANGERS = {
    "public Host": ("1.1", {"Host": "hub.example.org"}),
    "empty Host": ("1.1", {"Host": ""}),
    "HTTP/1.0": ("1.0", LOCAL),
    "HTTP/1.0 without Host": ("1.0", {}),
    "X-Forwarded-For": ("1.1", {**LOCAL, "X-Forwarded-For": "203.0.113.7"}),
    "empty X-Real-IP": ("1.1", {**LOCAL, "X-Real-IP": ""}),
}
ALWAYS_OPEN = {"/-/healthy", "/-/ready", "/health"}
FREE = ("/", "/metrics", "/api/v1/channels", "/api/v1/asks", "/api/v1/openapi.json", "/v1/stats")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    settings = f'{ROLES}[http]\nallowed_hosts = ["hub.example.org"]\nunix_socket = true\n'
    with serve(tmp_path_factory.mktemp("hub"), settings=settings) as hub:
        yield hub


@pytest.fixture(scope="module")
def paths(hub):
    """Each GET route, and whether its scope needs a token anywhere."""
    document = hub.http.get("/api/v1/openapi.json").body
    gets = {path: item["get"] for path, item in document["paths"].items() if "get" in item}
    assert len(gets) > 90
    return {path: bool(operation["security"]) for path, operation in gets.items()}


def status(hub, path, version, headers, method="GET"):
    """The status of a request, as it goes over the wire."""
    lines = [f"{method} {path} HTTP/{version}", *(f"{n}: {v}" for n, v in headers.items())]
    with socket.create_connection(("127.0.0.1", hub.port), 20) as sock:
        sock.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        return int(sock.makefile("rb").readline().split()[1])


def example_of(path):
    return "/".join("x" if part.startswith("{") else part for part in path.split("/"))


@pytest.mark.parametrize("stranger", STRANGERS)
def test_stranger_needs_a_token_on_every_route(hub, paths, stranger):
    version, headers = STRANGERS[stranger]
    read = {
        path: status(hub, example_of(path), version, headers)
        for path, guarded in paths.items()
        if guarded
    }
    assert {path: code for path, code in read.items() if code not in (400, 401, 421)} == {}
    assert status(hub, "/mcp", version, {**headers, "Content-Length": 0}, "POST") in (400, 401, 421)
    for path in ALWAYS_OPEN - {"/health"}:
        assert status(hub, path, version, {"Host": "localhost", **headers}) in (200, 400, 421)


@pytest.mark.parametrize("header", sorted(FORWARDING))
def test_each_forwarding_header_makes_a_stranger(hub, header):
    name = header.removeprefix("HTTP_").replace("_", "-")
    for path in FREE:
        assert status(hub, path, "1.1", {**LOCAL, name: "x"}) == 401, path


def test_program_on_this_machine_reads_without_a_token(hub):
    for host in ("localhost", "127.0.0.1", f"127.0.0.1:{hub.port}", "[::1]:7464"):
        codes = {path: status(hub, path, "1.1", {"Host": host}) for path in FREE}
        assert set(codes.values()) == {200}, codes


def test_courier_writes_and_sockets_follow_the_same_rule(hub):
    upgrade = {
        "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }  # fmt: skip
    near, proxied = {**LOCAL}, {**LOCAL, "Via": "1.1 proxy"}
    for path in ("/v1/subscribe?stream=s", "/v1/live"):
        assert first_bytes(hub, path, {**near, **upgrade})[9:12] == b"101"
        # Browsers read the reason only after the upgrade, so the refusal is a close frame.
        assert b"\x11\x31" in first_bytes(hub, path, {**proxied, **upgrade})


def first_bytes(hub, path, headers):
    """What comes within one reply, and the close frame behind it (0x1131 is 4401)."""
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    with socket.create_connection(("127.0.0.1", hub.port), 20) as sock:
        sock.sendall("\r\n".join([*lines, "", ""]).encode())
        sock.shutdown(socket.SHUT_WR)
        return sock.makefile("rb").read()


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("HTTP/1.1\r\nHost: localhost", 200),
        ("HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.7", 401),
        ("HTTP/1.1\r\nHost: hub.example.org", 401),
        ("HTTP/1.0\r\nHost: localhost", 401),
    ],
)
def test_socket_file_is_the_owner_only_without_a_proxy(hub, lines, code):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(str(hub.datadir.dir / "sock"))
        sock.sendall(f"GET /api/v1/tokens {lines}\r\nConnection: close\r\n\r\n".encode())
        assert int(sock.makefile("rb").readline().split()[1]) == code


def test_nothing_from_a_trusted_proxy_is_local(tmp_path):
    settings = '[http]\ntrusted_proxies = ["127.0.0.0/8", "::1"]\n'
    with serve(tmp_path, settings=settings) as hub:
        for path in FREE:
            assert status(hub, path, "1.1", LOCAL) == 401, path
        ready = hub.connect(None).get("/-/ready").body
        assert (ready["ready"], "findings" in ready) == (True, False)
        plain = "agentlip_http_plain_tokens_total"
        page = hub.http.get("/metrics").raw.decode()
        (line,) = [line for line in page.splitlines() if line.startswith(f"{plain} ")]
        assert float(line.split()[1]) == 0, "the command line on the same machine is not counted"
